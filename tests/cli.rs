//! `gpucap run` as a user meets it: what the program sees, and which values are refused before it starts.

use std::process::Command;

use place::{Place, bare, fails, ok};

mod place;

#[test]
fn flags_set_variables_and_variables_that_are_set_stay() {
    let place = Place::new();
    let show = "echo $GPUCAP_LIMIT $GPUCAP_MODE $GPUCAP_LOG_FILE $GPUCAP_ON_ERROR";
    assert_eq!(place.shell(place.gpucap().args(["--limit", "0.3", "--log-file", "/tmp/%p"]), show), "0.3 /tmp/%p");
    let mut command = place.gpucap();
    command.env("GPUCAP_LIMIT", "1GiB").env("GPUCAP_ON_ERROR", "exit").args(["--mode", "cap"]);
    assert_eq!(place.shell(&mut command, show), "1GiB cap exit");
    let mut command = place.gpucap();
    command.env("GPUCAP_LIMIT", "rubbish").args(["--limit=0=1G,*=50%"]);
    assert_eq!(place.shell(&mut command, show), "0=1G,*=50%");
}

#[test]
fn the_library_is_loaded_first_and_other_preloads_stay() {
    let place = Place::new();
    let other = place.compile("libother.so", "int other;", &["-shared", "-fPIC"]);
    let (ours, other) = (place.path("libgpucap.so").display().to_string(), other.display().to_string());
    assert_eq!(place.shell(&mut place.gpucap(), "echo $LD_PRELOAD"), ours);
    let mut command = place.gpucap();
    command.env("LD_PRELOAD", &other);
    assert_eq!(place.shell(&mut command, "echo $LD_PRELOAD"), format!("{ours}:{other}"));
    let mut command = place.gpucap();
    command.env("LD_PRELOAD", format!("{ours} {other}"));
    assert_eq!(place.shell(&mut command, "echo $LD_PRELOAD"), format!("{ours}:{other}"));
    let mapped = ok(place.gpucap().args(["cat", "/proc/self/maps"]));
    assert!(mapped.contains(&ours), "{mapped}");
}

#[test]
fn the_library_is_found_beside_the_command_and_where_a_package_puts_it() {
    let place = Place::new();
    let show = ["run", "--", "sh", "-c", "echo $LD_PRELOAD"];
    let prefix = place.path("usr");
    std::fs::create_dir_all(prefix.join("bin")).expect("made");
    let command = prefix.join("bin/gpucap");
    let copy = Command::new("cp").arg(env!("CARGO_BIN_EXE_gpucap")).arg(&command).status();
    assert!(copy.expect("cp").success());
    let run = || {
        let mut run = Command::new(&command);
        run.args(show).env_remove("LD_PRELOAD").env_remove("GPUCAP_LIB");
        run
    };
    let line = fails(&mut run(), 78);
    assert!(line.contains("usr/bin/libgpucap.so") && line.contains("usr/lib/gpucap/libgpucap.so"), "{line}");

    let library = place.path("libgpucap.so");
    let packaged = prefix.join("lib/gpucap/libgpucap.so");
    std::fs::create_dir_all(packaged.parent().expect("a parent")).expect("made");
    std::fs::copy(&library, &packaged).expect("copied");
    assert_eq!(ok(&mut run()), packaged.display().to_string());
    let beside = prefix.join("bin/libgpucap.so");
    std::fs::copy(&library, &beside).expect("copied");
    assert_eq!(ok(&mut run()), beside.display().to_string());
    assert_eq!(ok(run().env("GPUCAP_LIB", &library)), library.display().to_string());
}

#[test]
fn the_program_keeps_its_arguments_its_name_and_its_code() {
    let place = Place::new();
    let shown = ok(place.gpucap().args(["--limit", "1", "sh", "-c", "echo \"$0|$1|$2\"", "--limit", "a b", "--"]));
    assert_eq!(shown, "--limit|a b|--");
    assert_eq!(ok(place.gpucap().args(["sh", "-c", "echo $0"])), "sh");
    let status = place.gpucap().args(["sh", "-c", "exit 7"]).status().expect("started");
    assert_eq!(status.code(), Some(7));
}

#[test]
fn a_program_that_is_not_there_or_not_executable_gives_a_shells_code() {
    let place = Place::new();
    fails(place.gpucap().arg("/no/such/program"), 127);
    fails(place.gpucap().arg("no-such-program-anywhere"), 127);
    std::fs::write(place.path("plain"), "").expect("written");
    fails(place.gpucap().arg(place.path("plain")), 126);
    fails(place.gpucap().arg(place.script("bad", "#!/no/such/interpreter\n")), 127);
}

#[test]
fn a_wrong_value_is_found_before_the_program_starts() {
    let place = Place::new();
    let line = fails(place.gpucap().args(["--limit", "8", "echo"]), 78);
    assert!(line.contains("GPUCAP_LIMIT=8: 8 what? 8GiB or 8%; accepted: "), "{line}");
    for value in ["-1", "", "0,5", "nan", "1e400", "4G;rm", "0x10M"] {
        let line = fails(place.gpucap().args(["--limit", value, "echo"]), 78);
        assert!(line.starts_with(&format!("gpucap: GPUCAP_LIMIT={value}: ")), "{line}");
    }
    fails(place.gpucap().args(["--mode", "growht", "echo"]), 78);
    let line = fails(place.gpucap().args(["--mode", "growth", "echo"]), 78);
    assert!(line.contains("not in this version yet"), "{line}");
    let line = fails(place.gpucap().env("GPUCAP_LIMTI", "0.3").arg("echo"), 78);
    assert!(line.contains("GPUCAP_LIMIT is meant"), "{line}");
    fails(place.gpucap().env("CUDA_DEVICE_MEMORY_LIMIT", "4q").arg("echo"), 78);
}

#[test]
fn with_open_the_program_starts_whatever_is_wrong() {
    let place = Place::new();
    let output = place.gpucap().args(["--on-error", "open", "--limit", "8", "sh", "-c", "echo $LD_PRELOAD"]).output();
    let output = output.expect("started");
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("8 what?"));
    assert!(String::from_utf8_lossy(&output.stdout).contains("libgpucap.so"));

    let output = bare()
        .args(["run", "--on-error", "open", "--lib", "/no/such.so", "sh", "-c", "echo ${LD_PRELOAD-none}"])
        .output();
    let output = output.expect("started");
    assert!(String::from_utf8_lossy(&output.stderr).contains("going on uncapped"));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "none\n");
}

#[test]
fn help_lists_every_flag_with_its_variable() {
    let help = ok(bare().args(["run", "--help"]));
    for variable in gpucap_core::config::table::VARIABLES {
        assert!(help.contains(variable.name), "{}", variable.name);
        assert!(variable.flag.is_none_or(|flag| help.contains(&format!("--{flag} "))), "{}", variable.name);
    }
}
