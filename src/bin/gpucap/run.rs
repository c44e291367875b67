//! `gpucap run`: sets the variables, sees to it that the library will really be loaded, and becomes the program.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::ExitCode;

use clap::{Arg, ArgMatches, Command, value_parser};
use gpucap_core::config::table::{self, VARIABLES, Variable};
use gpucap_core::config::{Config, OnError};

use crate::{EXIT_CONFIG, complain, library, loadable, program};

/// The environment that the program will see.
type Environment = BTreeMap<OsString, OsString>;

/// What the command line looks like; the flags are those of the table of variables.
pub fn command() -> Command {
    let flags = VARIABLES.iter().filter_map(|variable| Some(flag(variable, variable.flag?)));
    let program = Arg::new("program")
        .value_name("PROGRAM")
        .help("The program to start, and its arguments")
        .required(true)
        .num_args(1..)
        .trailing_var_arg(true)
        .allow_hyphen_values(true)
        .value_parser(value_parser!(OsString));
    let others = VARIABLES.iter().filter(|variable| variable.flag.is_none());
    let others: Vec<_> = others.map(|variable| format!("{}: {}", variable.name, table::plain(variable.doc))).collect();
    Command::new("run")
        .about("Start a program under a cap")
        .override_usage("gpucap run [OPTIONS] -- PROGRAM [ARGUMENTS]")
        .args(flags)
        .arg(program)
        .after_help(format!(
            "A flag sets its variable; variables that are set already hold where no flag is given.\n\n\
             Without a flag:\n  {}\n\n\
             The exit code is the program's; 78 when a value is wrong or the program can't be capped, 127 when it is not \
             found, 126 when it can't be started.",
            others.join("\n  ")
        ))
}

fn flag(variable: &'static Variable, name: &'static str) -> Arg {
    let values = match (variable.values, variable.later) {
        (values, "") => values.to_string(),
        ("", later) => format!("(not in this version: {later})"),
        (values, later) => format!("{values} (not in this version: {later})"),
    };
    let help = format!("{}\nvalues: {values}\ndefault: {}\nsets: {}", variable.doc, variable.default, variable.name);
    Arg::new(name)
        .long(name)
        .value_name("VALUE")
        .help(table::plain(&help))
        // A negative limit must reach the parser that explains what is wrong with it.
        .allow_negative_numbers(true)
        .value_parser(value_parser!(OsString))
}

/// Becomes the program, or says why not.
pub fn run(matches: &ArgMatches) -> ExitCode {
    let environment = environment(matches);
    let parsed = Config::read(environment.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())));
    let open = parsed.config.on_error == OnError::Open;
    for line in &parsed.errors {
        complain(line);
    }
    if !parsed.errors.is_empty() && !open {
        return ExitCode::from(EXIT_CONFIG);
    }

    let arguments: Vec<&OsString> = matches.get_many("program").into_iter().flatten().collect();
    let Some((name, arguments)) = arguments.split_first() else {
        return ExitCode::from(2);
    };
    let path = environment.get(OsStr::new("PATH")).map(OsString::as_os_str);
    let program = match program::find(name, path) {
        Ok(program) => program,
        Err(refusal) => {
            complain(&refusal.line);
            return ExitCode::from(refusal.code);
        }
    };
    let preload = match preload(&program, &environment) {
        Ok(preload) => Some(preload),
        Err(line) if open => {
            complain(format!("{line}; going on uncapped"));
            None
        }
        Err(line) => {
            complain(line);
            return ExitCode::from(EXIT_CONFIG);
        }
    };

    let mut command = std::process::Command::new(&program);
    command.arg0(name).args(arguments).env_clear().envs(&environment);
    if let Some(preload) = preload {
        command.env("LD_PRELOAD", preload);
    }
    let error = command.exec();
    complain(format!("{}: {error}", program.display()));
    ExitCode::from(if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 })
}

/// Our own environment with what the flags set.
fn environment(matches: &ArgMatches) -> Environment {
    let mut environment: Environment = std::env::vars_os().collect();
    for variable in VARIABLES {
        let value: Option<&OsString> = variable.flag.and_then(|flag| matches.get_one(flag));
        if let Some(value) = value {
            environment.insert(variable.name.into(), value.clone());
        }
    }
    environment
}

/// The value of LD_PRELOAD with which the library will be loaded by this program.
fn preload(program: &Path, environment: &Environment) -> Result<OsString, String> {
    let get = |name: &str| environment.get(OsStr::new(name)).map(OsString::as_os_str);
    let library = library::find(get("GPUCAP_LIB"))?;
    let image = library::open(&library)?;
    for file in program::chain(program, get("PATH")) {
        loadable::check(&file, &library, &image, get("LD_LIBRARY_PATH"))?;
    }
    Ok(library::preload(get("LD_PRELOAD"), &library))
}
