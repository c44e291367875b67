//! A neighbour: a process that holds memory of a simulated device without any CUDA name.
//!
//! `simhold TAKE_MIB…` takes that much of device 0 in one block each, prints `held` or `full`, and waits for its stdin to
//! close. `simhold churn` takes and gives 2 MiB blocks until it is killed, to be killed in the middle of a change.

use std::env;
use std::io::{self, Read};

use simdevice::{MIB, me};

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if arguments.first().is_some_and(|word| word == "churn") {
        println!("churning");
        loop {
            if me().take_block(0, 2 * MIB) {
                me().give_block(0, 2 * MIB);
            }
        }
    }
    let all = arguments.iter().all(|mib| me().take_block(0, mib.parse::<u64>().expect("MiB") * MIB));
    println!("{}", if all { "held" } else { "full" });
    let _ = io::stdin().read_to_end(&mut Vec::new());
}
