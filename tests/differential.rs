//! Twenty thousand calls that no sane program makes get the same answers with and without us.

use std::collections::BTreeSet;
use std::time::Duration;

use harness::{MIB, Sim, cc};
use simdevice::ProcessTruth;

const CALLS: &str = "20000";

/// What `hostile` printed, and the truth about it while it still held everything.
struct Ran {
    lines: Vec<String>,
    truth: ProcessTruth,
}

#[derive(Clone, Copy)]
enum With<'a> {
    Nothing,
    Preload,
    Limit(&'a str),
}

#[track_caller]
fn hostile(sim: &Sim, arguments: &[&str], with: With<'_>) -> Ran {
    let run = sim.run(cc("hostile.c", &["-lcuda"])).args(arguments);
    let run = match with {
        With::Nothing => run.bare(),
        With::Preload => run.preload(),
        With::Limit(limit) => run.capped(limit),
    };
    let run = run.env("GPUCAP_LOG", "off").env("GPUCAP_OVERHEAD", "0");
    let mut app = run.timeout(Duration::from_secs(60)).spawn();
    let mut lines = Vec::new();
    loop {
        let line = app.hear();
        if line == "done" {
            break;
        }
        lines.push(line);
    }
    let truth = sim.truth().process(app.pid()).expect("it has called the driver");
    let out = app.wait();
    assert_eq!(out.code, Some(0), "{}", out.stderr);
    Ran { lines, truth }
}

#[track_caller]
fn same(bare: &Ran, ours: &Ran, what: &str) {
    for (at, (theirs, ours)) in bare.lines.iter().zip(&ours.lines).enumerate() {
        let before = bare.lines[at.saturating_sub(8)..at].join("\n");
        assert_eq!(theirs, ours, "{what}; left without us, after\n{before}");
    }
    assert_eq!(bare.lines.len(), ours.lines.len(), "{what}");
}

/// A machine whose devices never fill up, so that nothing is trimmed to make room.
fn roomy(devices: &str) -> Sim {
    Sim::with(&[("DEVICES", devices), ("TOTAL_MIB", "600000")])
}

#[test]
fn hostile_calls_get_the_drivers_answers_where_no_limit_is_set() {
    for (seed, devices) in [("101", "1"), ("102", "2")] {
        let sim = roomy(devices);
        let bare = hostile(&sim, &[seed, CALLS], With::Nothing);
        let ours = hostile(&sim, &[seed, CALLS], With::Preload);
        same(&bare, &ours, &format!("seed {seed}, {devices} devices, no limit"));
    }
}

#[test]
fn hostile_calls_get_the_drivers_answers_under_the_limit_of_the_whole_device() {
    for (seed, devices) in [("103", "1"), ("104", "2")] {
        let sim = roomy(devices);
        let bare = hostile(&sim, &[seed, CALLS], With::Nothing);
        let ours = hostile(&sim, &[seed, CALLS], With::Limit("1"));
        same(&bare, &ours, &format!("seed {seed}, {devices} devices, the whole device"));
    }
}

/// `end of device D: CODE free F total T` of the devices that exist.
fn ends(ran: &Ran) -> Vec<(u64, u64)> {
    let numbers = |line: &String| -> Vec<u64> { line.split(' ').filter_map(|word| word.parse().ok()).collect() };
    let ends = ran.lines.iter().filter(|line| line.starts_with("end of device") && line.contains(": 0 free"));
    ends.map(numbers).map(|all| (all[all.len() - 2], all[all.len() - 1])).collect()
}

#[test]
fn after_any_hostile_calls_the_books_equal_the_truth_and_the_limit_held() {
    for (seed, devices) in [("105", "1"), ("106", "2"), ("107", "1")] {
        let sim = Sim::with(&[("DEVICES", devices)]);
        let limit = 3 * 1024 * MIB;
        let ran = hostile(&sim, &[seed, CALLS], With::Limit("3GiB"));
        let ends = ends(&ran);
        assert_eq!(ends.len().to_string(), devices, "{:?}", ran.lines.last());
        for (device, (free, total)) in ends.into_iter().enumerate() {
            let held = ran.truth.per_device[device];
            assert_eq!((free, total), (limit - held.blocks, limit), "seed {seed}, device {device}: {held:?}");
            assert!(held.peak_blocks <= limit, "seed {seed}, device {device}: {held:?}");
        }
        assert!(ran.lines.iter().any(|line| line.contains(" 2 -")), "something was refused");
    }
}

/// A line of a tame run: what was called and answered, what it used and made, what was asked and what was left at a refusal.
#[derive(Debug)]
struct Line<'a> {
    name: &'a str,
    code: &'a str,
    uses: Vec<&'a str>,
    makes: Option<&'a str>,
    asked: Option<u64>,
    free: Option<u64>,
}

fn parse(line: &str) -> Line<'_> {
    let words: Vec<&str> = line.split(' ').collect();
    let code = words.iter().skip(1).position(|word| word.parse::<u32>().is_ok()).map_or("", |at| words[at + 1]);
    let after = |key: &str| {
        let at = words.iter().position(|word| *word == key)?;
        words.get(at + 1)?.parse().ok()
    };
    let name = line.split(' ').nth(1).unwrap_or("");
    Line {
        name,
        code,
        uses: words.iter().filter_map(|word| word.strip_prefix('<')).collect(),
        makes: words.iter().find_map(|word| word.strip_prefix('>')),
        asked: after("of"),
        // Not known where no context was current.
        free: after("free").filter(|free| *free != u64::MAX),
    }
}

#[test]
fn at_the_limit_only_what_does_not_fit_is_refused_and_only_what_depends_on_it_differs() {
    for (seed, devices) in [("108", "1"), ("109", "1"), ("110", "2")] {
        let sim = Sim::with(&[("DEVICES", devices), ("TOTAL_MIB", "100000")]);
        let bare = hostile(&sim, &[seed, CALLS, "tame"], With::Nothing);
        let ours = hostile(&sim, &[seed, CALLS, "tame"], With::Limit("66MiB"));
        let (mut lacking, mut refused, mut compared) = (BTreeSet::new(), 0, 0);
        for (at, (theirs, ours)) in bare.lines.iter().zip(&ours.lines).enumerate() {
            if theirs.starts_with("end of") {
                continue;
            }
            let (b, o) = (parse(theirs), parse(ours));
            let context = format!("seed {seed}, line {at}\n{theirs}\n{ours}");
            assert_eq!((b.name, &b.uses, b.makes), (o.name, &o.uses, o.makes), "{context}");
            let depends = b.uses.iter().any(|used| lacking.contains(used)) && !b.name.starts_with("clear");
            if b.code == "0" && o.code == "2" && b.makes.is_some() && !depends {
                refused += 1;
                lacking.extend(b.makes);
                // A block, or a step of a pool.
                let step = if o.name.contains("Async") { 32 * MIB } else { 2 * MIB };
                let asked = o.asked.expect("an allocation").next_multiple_of(step);
                let other_device = o.name == "cuMemCreate" && devices == "2";
                assert!(other_device || o.free.is_none_or(|free| asked > free), "it fits: {context}");
                continue;
            }
            if depends {
                lacking.extend(b.uses);
                lacking.extend(b.makes);
                continue;
            }
            if b.name.starts_with("clear") {
                // Empty from here on, in both.
                for used in &b.uses {
                    lacking.remove(used);
                }
                continue;
            }
            compared += 1;
            assert_eq!(b.code, o.code, "{context}");
        }
        assert!(refused > 20 && compared > 8000, "refused {refused}, compared {compared}");
    }
}

#[test]
fn no_call_breaks_a_capture_that_the_driver_alone_would_not_break() {
    let sim = Sim::new();
    let bare = hostile(&sim, &["capture"], With::Nothing);
    for limit in ["1", "8GiB"] {
        let ours = hostile(&sim, &["capture"], With::Limit(limit));
        same(&bare, &ours, &format!("limit {limit}"));
        let violations = |ran: &Ran| ran.truth.calls("capture violation");
        assert_eq!(violations(&bare), violations(&ours));
    }
}
