//! Programs and libraries that don't go together, which `gpucap run` says before the loader kills the program or, worse,
//! starts it uncapped.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::PathBuf;

use place::{Place, bare, fails, ok};

mod place;

#[test]
fn a_library_that_can_not_be_preloaded_is_refused() {
    let place = Place::new();
    std::fs::write(place.path("text.so"), "not a library at all").expect("written");
    std::fs::create_dir(place.path("a b")).expect("made");
    std::fs::copy(place.path("libgpucap.so"), place.path("a b/libgpucap.so")).expect("copied");
    for (library, words) in [
        (place.path("nowhere.so"), "No such file"),
        (place.path("text.so"), "not a shared library"),
        (place.program("program", &[]), "not a shared library"),
        (place.path("a b/libgpucap.so"), "use a link"),
    ] {
        let line = fails(bare().args(["run", "--lib"]).arg(&library).arg("echo"), 78);
        assert!(line.contains(words) && line.contains(&library.display().to_string()), "{line}");
    }
}

#[test]
fn a_static_program_is_refused() {
    let place = Place::new();
    assert!(place.refused(&place.fixed("fixed", "-static")).contains("statically linked"));
    assert!(place.refused(&place.fixed("movable", "-static-pie")).contains("statically linked"));
}

#[test]
fn a_program_of_another_libc_is_refused() {
    let place = Place::new();
    let musl = place.program("musl", &["-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"]);
    assert!(place.refused(&musl).contains("is a musl program"));
    let android = place.program("android", &["-Wl,--dynamic-linker=/system/bin/linker64"]);
    assert!(place.refused(&android).contains("/system/bin/linker64, which is not glibc's"));
    // A glibc name that is a link to musl's loader, as compatibility packages make it.
    std::fs::write(place.path("ld-musl-x86_64.so.1"), "").expect("written");
    std::os::unix::fs::symlink(place.path("ld-musl-x86_64.so.1"), place.path("ld-linux-x86-64.so.2")).expect("linked");
    let loader = format!("-Wl,--dynamic-linker={}", place.path("ld-linux-x86-64.so.2").display());
    assert!(place.refused(&place.program("disguised", &[&loader])).contains("is a musl program"));
}

#[test]
fn a_program_for_another_machine_is_refused() {
    let place = Place::new();
    // e_machine is at 18, EI_CLASS at 4 (elf(5)).
    assert!(place.refused(&place.patched("arm", 18, &183u16.to_le_bytes())).contains("is a 64-bit ARM program"));
    let small = place.patched("small", 18, &3u16.to_le_bytes());
    let mut bytes = std::fs::read(&small).expect("read");
    bytes[4] = 1;
    std::fs::write(&small, bytes).expect("written");
    assert!(place.refused(&small).contains("is a 32-bit x86 program"));
}

#[test]
fn a_program_with_more_rights_than_its_caller_is_refused() {
    let place = Place::new();
    let mine = place.program("elevated", &[]);
    // Only root can make a program that is somebody else's; anybody else has those that root made.
    let found = match std::fs::metadata(&mine).expect("there").uid() {
        0 => {
            chown(&mine, Some(65534), None).expect("given away");
            std::fs::set_permissions(&mine, std::fs::Permissions::from_mode(0o4755)).expect("set");
            mine
        }
        _ => {
            let known = ["/usr/bin/su", "/bin/su", "/usr/bin/passwd", "/usr/bin/mount"].map(PathBuf::from);
            let is_set = |path: &PathBuf| path.metadata().is_ok_and(|data| data.mode() & 0o4000 != 0);
            known.into_iter().find(is_set).expect("a set-user-ID program")
        }
    };
    assert!(place.refused(&found).contains("is set-user-ID: the loader ignores LD_PRELOAD for it"));
}

#[test]
fn a_script_is_judged_by_what_runs_it() {
    let place = Place::new();
    let fixed = place.fixed("fixed", "-static");
    let path = format!("{}:{}", place.directory.path().display(), std::env::var("PATH").expect("a PATH"));
    let direct = place.script("direct", &format!("#!{}\n", fixed.display()));
    let by_env = place.script("by-env", "#!/usr/bin/env fixed\n");
    let by_split = place.script("by-split", "#!/usr/bin/env -S A=1 fixed -x\n");
    for script in [direct, by_env, by_split] {
        let line = fails(place.gpucap().env("PATH", &path).arg(&script), 78);
        assert!(line.contains("fixed is statically linked"), "{line}");
    }
    let fine = place.script("fine", "#!/usr/bin/env sh\necho $LD_PRELOAD\n");
    assert!(ok(place.gpucap().arg(fine)).ends_with("libgpucap.so"));
    let plain = place.script("plain", "echo $LD_PRELOAD\n");
    assert!(ok(place.gpucap().arg(plain)).ends_with("libgpucap.so"));
}

#[test]
fn a_program_whose_libc_is_too_old_for_the_library_is_refused() {
    let place = Place::new();
    // Needs a version of the libc that the tests run on.
    place.compile(
        "libgpucap.so",
        "void *malloc(unsigned long);\nvoid *stand_in(void) { return malloc(1); }",
        &["-shared", "-fPIC"],
    );
    let old = place.path("old");
    std::fs::create_dir(&old).expect("made");
    std::fs::write(place.path("versions"), "GLIBC_2.1 { global: *; };").expect("written");
    let script = format!("-Wl,--version-script={}", place.path("versions").display());
    let libc = place.compile("libc.so.6", "int nothing;", &["-shared", "-fPIC", "-nostdlib", &script]);
    std::fs::rename(libc, old.join("libc.so.6")).expect("moved");
    std::fs::write(old.join("ld-linux-x86-64.so.2"), "").expect("written");
    let loader = format!("-Wl,--dynamic-linker={}", old.join("ld-linux-x86-64.so.2").display());
    let line = place.refused(&place.program("program", &[&loader]));
    assert!(line.contains("needs GLIBC_2.2.5") && line.contains("old/libc.so.6 has GLIBC_2.1:"), "{line}");
    // The same library is fine with the libc that it was made for.
    ok(place.gpucap().arg("true"));
}

#[test]
fn the_loader_started_by_hand_is_not_taken_for_a_static_program() {
    let place = Place::new();
    ok(place.gpucap().args(["/lib64/ld-linux-x86-64.so.2", "/bin/true"]));
}
