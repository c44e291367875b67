//! `cuGetProcAddress` under the cap gives the variant that the driver gives, so that every signature is the expected one.

use harness::{Sim, cc};

/// Field case A22: the newest variant was given whatever version was asked for, and the caller passed other arguments.
#[test]
fn every_name_version_and_flag_leads_to_the_variant_that_the_driver_gives() {
    let app = cc("variants.c", &[]);
    for driver in ["11030", "11080", "12020", "12050", "13000", "13050"] {
        let sim = Sim::with(&[("DRIVER", driver)]);
        let bare = sim.run(&app).bare().out();
        let capped = sim.run(&app).capped("1GiB").out();
        let (bare, capped) = (bare.ok().lines(), capped.ok().lines());
        assert!(bare.len() > 3000, "{driver}: {} lines", bare.len());
        for (bare, capped) in bare.iter().zip(&capped) {
            assert_eq!(bare, capped, "{driver}");
        }
        assert_eq!(bare.len(), capped.len(), "{driver}");
        // The table tells what it should: the first ABI, the second, one for each thread's stream.
        let tells = |line: &str| assert!(bare.contains(&line), "{driver}: no {line:?}");
        tells("1 cuMemAlloc 2000 0: 0 cuMemAlloc");
        tells("1 cuMemAlloc 3020 0: 0 cuMemAlloc_v2");
        tells("1 cuMemAllocAsync 11020 2: 0 cuMemAllocAsync_ptsz");
        if driver >= "12050" {
            tells("2 cuCtxCreate 12050 0: 0 0 cuCtxCreate_v4");
            tells("2 cuCtxCreate 11040 0: 0 0 cuCtxCreate_v3");
        }
    }
}
