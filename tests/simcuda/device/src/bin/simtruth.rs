//! Prints the books of a simulated machine as JSON: `simtruth [STATE]` (default: `$SIMCUDA_STATE`).

use std::env;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use simdevice::{Held, Truth};

fn main() -> ExitCode {
    let Some(path) = env::args_os().nth(1).or_else(|| env::var_os("SIMCUDA_STATE")) else {
        eprintln!("usage: simtruth STATE");
        return ExitCode::from(2);
    };
    println!("{}", json(&Truth::open(&PathBuf::from(path))));
    ExitCode::SUCCESS
}

/// Names and UUIDs hold nothing that JSON would have to escape.
fn json(truth: &Truth) -> String {
    let devices: Vec<String> = (0..truth.devices())
        .map(|index| {
            let device = truth.device(index);
            format!(
                r#"{{"uuid":"{}","total":{},"used":{},"free":{},"peak":{},"foreign":{}}}"#,
                device.uuid, device.total, device.used, device.free, device.peak, device.foreign
            )
        })
        .collect();
    let processes: Vec<String> = truth
        .processes()
        .iter()
        .map(|process| {
            let held: Vec<String> = process.per_device.iter().map(held).collect();
            let mut calls = String::new();
            for (name, count) in process.all_calls() {
                let comma = if calls.is_empty() { "" } else { "," };
                let _ = write!(calls, r#"{comma}"{name}":{count}"#);
            }
            format!(
                r#"{{"pid":{},"alive":{},"held":[{}],"calls":{{{calls}}}}}"#,
                process.pid,
                process.alive,
                held.join(",")
            )
        })
        .collect();
    format!(r#"{{"devices":[{}],"processes":[{}]}}"#, devices.join(","), processes.join(","))
}

fn held(held: &Held) -> String {
    format!(
        r#"{{"blocks":{},"pages":{},"overhead":{},"peak_blocks":{},"peak_pages":{}}}"#,
        held.blocks, held.pages, held.overhead, held.peak_blocks, held.peak_pages
    )
}
