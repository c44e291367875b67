//! Where lines go, what they may look like, and what of the program's they must leave alone.

use std::fs;
use std::process::Command;

use harness::{Output, Sim};
use script::{GIB, MIB, answer, client, said_once, silent, started};

mod script;

#[test]
fn a_log_file_gets_every_line_and_stderr_none() {
    let sim = Sim::new();
    let shared = sim.folder().join("all.log");
    let commands = format!("take alloc a {}", 2 * GIB);
    let run = |path: &str| {
        let out = started(&sim, &commands).capped("1GiB").env("GPUCAP_LOG_FILE", path).env("GPUCAP_LOG", "info").out();
        silent(out.ok());
        out
    };
    let (one, other) = (run(&shared.display().to_string()), run(&shared.display().to_string()));
    let text = fs::read_to_string(&shared).expect("written");
    for out in [&one, &other] {
        assert_eq!(text.matches(&format!("gpucap[{}]: ", out.pid)).count(), 3, "{text}");
    }
    assert_eq!(text.lines().count(), 6, "appended: {text}");

    let own = run(&sim.folder().join("log.%p.of-%p").display().to_string());
    let own = sim.folder().join(format!("log.{0}.of-{0}", own.pid));
    assert_eq!(fs::read_to_string(own).expect("written").lines().count(), 3);

    // A file that can't be written changes nothing for the program, nor does a pipe that nobody reads.
    let pipe = sim.folder().join("pipe").display().to_string();
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo").success());
    for path in ["/nowhere/at/all", "/proc/version", "/", &pipe] {
        let out = run(path);
        assert_eq!(answer(&out, "take", 0), "2 ok");
    }
    let out = started(&sim, "").capped("8").env("GPUCAP_LOG_FILE", &shared).out();
    silent(out.ok());
    assert!(fs::read_to_string(&shared).expect("written").contains("error: GPUCAP_LIMIT=8: "));
}

#[test]
fn a_log_file_stays_where_it_was_when_the_program_goes_elsewhere() {
    let sim = Sim::new();
    let out = client(&sim, "elsewhere.py")
        .arg(sim.folder())
        .capped("1GiB")
        .env("GPUCAP_LOG", "info")
        .env("GPUCAP_LOG_FILE", "relative.log")
        .out();
    silent(out.ok());
    let text = fs::read_to_string(sim.folder().join("relative.log")).expect("written");
    assert_eq!(text.lines().count(), 3, "{text}");
    assert!(!sim.folder().join("below/relative.log").exists());
}

#[test]
fn a55_what_a_program_writes_is_the_same_byte_for_byte() {
    let sim = Sim::new();
    let commands = format!("info_null\ntake alloc a {MIB}\nfill alloc 2097152\nfree a\nfree a\nfree_raw 12345\nsync");
    let bare = started(&sim, &commands).out();
    for level in ["warn", "info", "debug"] {
        // The simulated device is as large as the limit.
        let out = started(&sim, &commands).capped("16GiB").env("GPUCAP_LOG", level).out();
        assert_eq!(out.ok().stdout, bare.stdout, "{out}");
        if level == "warn" {
            silent(&out);
        }
    }
    for program in ["true", "env -i echo a"] {
        let run = || sim.run("sh").args(["-c", program]);
        let (bare, out) = (run().out(), run().capped("8").env("GPUCAP_LOG", "debug").out());
        assert_eq!((&bare.stdout, &bare.stderr, bare.code), (&out.stdout, &out.stderr, out.code));
    }
}

#[test]
fn a55_a_descriptor_2_that_is_no_longer_stderr_is_left_alone() {
    let sim = Sim::new();
    let path = sim.folder().join("data");
    for (when, what) in [("early", "file"), ("early", "socket"), ("late", "socket")] {
        let out = client(&sim, "stderr.py").args([when, what]).arg(&path).capped("1GiB").out();
        assert_eq!(out.ok().stdout, "b''\n", "{when} {what}: {out}");
        silent(&out);
    }
}

#[test]
fn a_program_with_every_descriptor_closed_works_all_the_same() {
    let sim = Sim::new();
    let app = harness::cc("calls.c", &[]);
    let run = sim.run("sh").args(["-c", "exec \"$0\" dlsym 2>&-"]).arg(app);
    let out = run.capped("1GiB").stdin(&format!("init\nretain 0\ntake alloc a {}", 2 * GIB)).out();
    assert_eq!(answer(out.ok(), "take", 0), "2 ok");
    silent(&out);
}

/// Requires every line to be ours, short and free of control characters.
fn decent(out: &Output) {
    for line in out.stderr.split_inclusive('\n') {
        assert!(line.len() <= 1024, "{} bytes: {line}", line.len());
        let text = line.strip_suffix('\n').unwrap_or_else(|| panic!("no end of line: {line:?}"));
        assert!(text.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{line:?}");
        assert!(text.starts_with("gpucap["), "{line:?}");
    }
}

#[test]
fn no_line_is_long_or_holds_a_control_character_whatever_the_environment_holds() {
    let sim = Sim::new();
    let long = "9".repeat(100_000);
    for value in [&long, "4G\nGPUCAP_LOG=off", "\u{1b}[31m1G", "1\r2", "\u{202e}1G", "%s%n"] {
        let out = started(&sim, "").capped(value).out();
        decent(out.ok());
        said_once(&out);
    }
    let mut run = started(&sim, "info").capped("1GiB").env("GPUCAP_\u{1b}[2JWHAT\u{7}EVER", "1");
    for number in 0..200 {
        run = run.env(&format!("GPUCAP_NOBODY_KNOWS_THIS_VARIABLE_{number}"), "1");
    }
    let out = run.out();
    decent(out.ok());
    said_once(&out);
    assert_eq!(answer(&out, "info", 0), format!("0 {GIB} {GIB}"));
}

#[test]
fn errno_stays_as_the_program_set_it() {
    let sim = Sim::new();
    for file in ["", "/nowhere/at/all", "/dev/null"] {
        let run = client(&sim, "errnos.py").capped("1GiB").env("GPUCAP_LOG", "debug");
        let out = if file.is_empty() { run.out() } else { run.env("GPUCAP_LOG_FILE", file).out() };
        assert_eq!(out.ok().stdout, "first 2 42\nsecond 2 42\nmanaged 2 42\nasync 2 42\n", "{file}: {out}");
    }
}
