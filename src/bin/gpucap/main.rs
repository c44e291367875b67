//! The command: starts programs under a cap, one file a subcommand.

use std::process::ExitCode;

use clap::Command;

mod elf;
mod library;
mod loadable;
mod program;
mod run;

/// A configuration error, as `sysexits.h` numbers it: the code of everything that gpucap itself refuses.
const EXIT_CONFIG: u8 = 78;

fn main() -> ExitCode {
    let command = Command::new("gpucap")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Caps the GPU memory that a CUDA program may hold, from outside")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(run::command());
    match command.get_matches().subcommand() {
        Some(("run", matches)) => run::run(matches),
        // clap lets no other subcommand through.
        _ => ExitCode::from(2),
    }
}

/// Writes one line about what went wrong.
fn complain(line: impl std::fmt::Display) {
    eprintln!("gpucap: {line}");
}
