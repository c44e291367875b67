//! The books stay exact when several processes share a device, and when one of them is killed at any instruction.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use simdevice::{Knobs, MIB, Truth};

struct Neighbour {
    process: Child,
    said: String,
    _stdout: BufReader<ChildStdout>,
}

impl Neighbour {
    fn start(state: &Path, arguments: &[&str]) -> Neighbour {
        let mut process = Command::new(env!("CARGO_BIN_EXE_simhold"))
            .args(arguments)
            .env("SIMCUDA_STATE", state)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("simhold starts");
        let mut stdout = BufReader::new(process.stdout.take().expect("stdout is piped"));
        let mut said = String::new();
        stdout.read_line(&mut said).expect("simhold speaks");
        Neighbour { process, said: said.trim().to_owned(), _stdout: stdout }
    }

    fn pid(&self) -> u32 {
        self.process.id()
    }

    fn kill(&mut self) {
        self.process.kill().expect("still ours");
        self.process.wait().expect("still ours");
    }
}

fn machine(variables: &[(&str, &str)]) -> (tempfile::TempDir, std::path::PathBuf, Truth) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let state = folder.path().join("state");
    let knobs =
        Knobs::parse(|name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()));
    let truth = Truth::create(&state, &knobs).expect("a state file");
    (folder, state, truth)
}

#[test]
fn two_processes_cannot_take_the_same_bytes() {
    let (_folder, state, truth) = machine(&[("SIMCUDA_TOTAL_MIB", "1000")]);
    let mut first = Neighbour::start(&state, &["600"]);
    let mut second = Neighbour::start(&state, &["401"]);
    let mut third = Neighbour::start(&state, &["400"]);
    assert_eq!([&*first.said, &*second.said, &*third.said], ["held", "full", "held"]);
    assert_eq!(truth.device(0).used, 1000 * MIB);
    assert_eq!(truth.process(first.pid()).map(|process| process.per_device[0].blocks), Some(600 * MIB));
    first.kill();
    second.kill();
    third.kill();
    assert_eq!(truth.device(0).used, 0);
    assert_eq!(truth.device(0).peak, 1000 * MIB);
}

#[test]
fn a_killed_process_gives_everything_back_and_its_record_stays() {
    let (_folder, state, truth) = machine(&[]);
    let mut gone = Neighbour::start(&state, &["300", "20"]);
    let mut stays = Neighbour::start(&state, &["7"]);
    gone.kill();
    assert_eq!(truth.device(0).used, 7 * MIB);
    let record = truth.process(gone.pid()).expect("a record");
    assert!(!record.alive);
    assert_eq!((record.per_device[0].pages, record.per_device[0].peak_pages), (0, 320 * MIB));
    stays.kill();
}

#[test]
fn processes_killed_in_the_middle_of_a_change_leave_exact_books() {
    let (_folder, state, truth) = machine(&[("SIMCUDA_TOTAL_MIB", "64")]);
    let mut stays = Neighbour::start(&state, &["6"]);
    for _ in 0..40 {
        let mut some: Vec<Neighbour> = (0..3).map(|_| Neighbour::start(&state, &["churn"])).collect();
        for one in &mut some {
            one.kill();
        }
        assert_eq!(truth.device(0).used, 6 * MIB);
    }
    assert!(stays.process.try_wait().expect("still ours").is_none());
    stays.kill();
}

#[test]
fn foreign_memory_counts_and_survives_a_recount() {
    let (_folder, state, truth) = machine(&[("SIMCUDA_TOTAL_MIB", "100")]);
    assert!(truth.take_foreign(0, 60 * MIB));
    assert!(!truth.take_foreign(0, 41 * MIB));
    let mut full = Neighbour::start(&state, &["50"]);
    assert_eq!(full.said, "full");
    full.kill();
    let mut held = Neighbour::start(&state, &["40"]);
    assert_eq!(held.said, "held");
    held.kill();
    assert_eq!((truth.device(0).used, truth.device(0).foreign), (60 * MIB, 60 * MIB));
    truth.give_foreign(0, 60 * MIB);
    assert_eq!(truth.device(0).used, 0);
}

#[test]
fn an_mps_limit_refuses_what_the_device_would_give() {
    let (_folder, state, truth) = machine(&[]);
    let mut process = Command::new(env!("CARGO_BIN_EXE_simhold"))
        .args(["64", "37"])
        .env("SIMCUDA_STATE", &state)
        .env("SIMCUDA_MPS_LIMIT_MIB", "100")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("simhold starts");
    let pid = process.id();
    process.wait().expect("simhold ends");
    let record = truth.process(pid).expect("a record");
    assert_eq!(record.per_device[0].peak_pages, 64 * MIB);
}

#[test]
fn simtruth_prints_the_same_as_json() {
    let (_folder, state, truth) = machine(&[("SIMCUDA_DEVICES", "2"), ("SIMCUDA_TOTAL_MIB", "100,200")]);
    let mut held = Neighbour::start(&state, &["30"]);
    let output = Command::new(env!("CARGO_BIN_EXE_simtruth")).arg(&state).output().expect("simtruth runs");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(text.contains(&format!(r#""uuid":"{}","total":{}"#, truth.device(1).uuid, 200 * MIB)), "{text}");
    assert!(text.contains(&format!(r#""pid":{},"alive":true,"held":[{{"blocks":31457280"#, held.pid())), "{text}");
    held.kill();
}
