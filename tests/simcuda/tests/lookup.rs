//! `cuGetProcAddress` answers as NVIDIA's own driver does, for every name, version and flag.

use std::process::Command;

use harness::{Sim, python, root};

/// NVIDIA's driver 535, as `scripts/fetch` brought it; it looks names up without a GPU.
fn real() -> std::path::PathBuf {
    root().join("target/nvidia-535/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.1")
}

#[test]
fn every_name_version_and_flag_is_answered_as_by_the_real_driver_535() {
    let script = root().join("tests/clients/lookup.py");
    let names = root().join("tests/simcuda/names.txt");
    let real = Command::new("python3").arg(&script).arg(real()).arg(&names).output().expect("python3 runs");
    assert!(real.status.success(), "{}", String::from_utf8_lossy(&real.stderr));
    let sim = Sim::with(&[("DRIVER", "12020")]);
    let ours = sim.run(python()).arg(&script).arg(sim.libcuda()).arg(&names).out();
    let (real, ours) = (String::from_utf8_lossy(&real.stdout), &ours.ok().stdout);
    let differing: Vec<_> = real.lines().zip(ours.lines()).filter(|(real, ours)| real != ours).take(20).collect();
    assert!(differing.is_empty(), "(real, simulated): {differing:#?}");
    assert_eq!(real.lines().count(), ours.lines().count());
}

#[test]
fn every_name_that_the_real_driver_exports_is_exported() {
    let exports = |path: &std::path::Path| {
        let listing = Command::new("nm").args(["-D", "--defined-only"]).arg(path).output().expect("nm runs");
        let text = String::from_utf8_lossy(&listing.stdout).into_owned();
        let functions = text.lines().filter_map(|line| line.split(" T ").nth(1));
        let public = functions.filter(|name| name.starts_with("cu") && name.as_bytes()[2].is_ascii_uppercase());
        public.map(str::to_owned).collect::<std::collections::BTreeSet<_>>()
    };
    let (real, ours) = (exports(&real()), exports(&Sim::new().libcuda()));
    assert!(real.len() > 550, "{}", real.len());
    let missing: Vec<_> = real.difference(&ours).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn a_hidden_name_is_unknown_to_dlsym_and_to_cu_get_proc_address() {
    let sim = Sim::new().hide(&["cuMemAllocManaged"]);
    let script = "import ctypes, sys\n\
         lib = ctypes.CDLL('libcuda.so.1'); p = ctypes.c_void_p(); s = ctypes.c_int()\n\
         print(hasattr(lib, 'cuMemAllocManaged'), hasattr(lib, 'cuMemAlloc_v2'))\n\
         rc = lib.cuGetProcAddress_v2(b'cuMemAllocManaged', ctypes.byref(p), 12000, ctypes.c_uint64(0), ctypes.byref(s))\n\
         print(rc, p.value, s.value)";
    let out = sim.run(python()).arg("-c").arg(script).out();
    assert_eq!(out.ok().stdout, "False True\n0 None 1\n");
}
