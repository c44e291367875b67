//! Arrays: charged by their shape, to the current context's device, until they or their context are destroyed.

mod session;

use harness::Sim;
use session::{MIB, Session};

const KIB: u64 = 1 << 10;
const FLOAT: u64 = 0x20;

/// Puts a `CUDA_ARRAY_DESCRIPTOR` into slot `d`.
fn flat(session: &mut Session, [width, height, format, channels]: [u64; 4]) {
    session.set("d", &[(0, 8, width), (8, 8, height), (16, 4, format), (20, 4, channels)]);
}

/// Puts a `CUDA_ARRAY3D_DESCRIPTOR` into slot `d`.
fn deep(session: &mut Session, [width, height, depth, format, channels, flags]: [u64; 6]) {
    session
        .set("d", &[(0, 8, width), (8, 8, height), (16, 8, depth), (24, 4, format), (28, 4, channels), (32, 4, flags)]);
}

#[test]
fn an_array_of_every_format_and_shape_is_charged_what_the_driver_takes_for_it() {
    let sim = Sim::new();
    let mut session = Session::capped(&sim, "1GiB");
    let formats = [(0x01, 1), (0x09, 2), (0x10, 4), (FLOAT, 4), (0xc5, 4), (0x91, 4), (0x9d, 4), (0xb0, 3)];
    for (format, channels) in formats {
        for (width, height, depth, flags) in
            [(1, 0, 0, 0), (1000, 0, 0, 0), (1920, 1080, 0, 0), (100, 100, 100, 0), (300, 300, 6, 4), (512, 512, 9, 1)]
        {
            deep(&mut session, [width, height, depth, format, channels, flags]);
            session.ok("cuArray3DCreate_v2 &a &d");
            assert!(session.held() >= 64 * KIB);
            session.ok("cuArrayDestroy $a");
            for levels in [1, 3, 100] {
                session.ok(&format!("cuMipmappedArrayCreate &m &d {levels}"));
                session.held();
                session.ok("cuMipmappedArrayDestroy $m");
            }
            session.holds(0);
        }
    }
    session.end();
}

#[test]
fn every_entry_that_makes_arrays_stops_at_the_limit_and_leaves_its_out_param_alone() {
    let sim = Sim::new();
    for entry in
        ["cuArrayCreate_v2", "cuArray3DCreate_v2", "cuMipmappedArrayCreate", "cuArrayCreate", "cuArray3DCreate"]
    {
        let mut session = Session::capped(&sim, "64MiB");
        match entry {
            "cuArrayCreate_v2" => flat(&mut session, [1024, 1024, FLOAT, 4]),
            "cuArrayCreate" => session.set("d", &[(0, 4, 1024), (4, 4, 1024), (8, 4, FLOAT), (12, 4, 4)]),
            "cuArray3DCreate" => session.set("d", &[(0, 4, 1024), (4, 4, 1024), (12, 4, FLOAT), (16, 4, 4)]),
            _ => deep(&mut session, [1024, 1024, 0, FLOAT, 4, 0]),
        }
        let levels = if entry == "cuMipmappedArrayCreate" { " 1" } else { "" };
        for slot in ["a", "b", "e", "f"] {
            session.ok(&format!("{entry} &{slot} &d{levels}"));
        }
        session.holds(64 * MIB);
        session.refused(&format!("{entry} &out &d{levels}"));
        assert_eq!(session.peak(), 64 * MIB, "{entry}");
        let destroy = if levels.is_empty() { "cuArrayDestroy" } else { "cuMipmappedArrayDestroy" };
        session.ok(&format!("{destroy} $a"));
        session.ok(&format!("{entry} &a &d{levels}"));
        session.end();
    }
}

#[test]
fn levels_and_planes_are_other_names_of_an_array_and_change_nothing() {
    let sim = Sim::new();
    let mut session = Session::capped(&sim, "64MiB");
    deep(&mut session, [1024, 1024, 0, FLOAT, 4, 0]);
    session.ok("cuMipmappedArrayCreate &m &d 4");
    let held = session.held();
    session.ok("cuMipmappedArrayGetLevel &level $m 1");
    assert_ne!(session.call("cuArrayDestroy $level"), 0);
    session.holds(held);
    deep(&mut session, [1024, 1024, 0, 0xb0, 3, 0]);
    session.ok("cuArray3DCreate_v2 &yuv &d");
    let both = session.held();
    session.ok("cuArrayGetPlane &plane $yuv 0");
    assert_ne!(session.call("cuArrayDestroy $plane"), 0);
    session.holds(both);
    session.ok("cuMipmappedArrayDestroy $m");
    session.holds(both - held);
    session.end();
}

#[test]
fn sparse_and_deferred_arrays_cost_nothing() {
    let sim = Sim::new();
    let mut session = Session::capped(&sim, "1MiB");
    for flags in [0x40, 0x80] {
        deep(&mut session, [4096, 4096, 0, FLOAT, 4, flags]);
        session.ok("cuArray3DCreate_v2 &a &d");
        session.ok("cuMipmappedArrayCreate &m &d 3");
        session.holds(0);
    }
    session.end();
}

#[test]
fn arrays_die_with_their_context() {
    let sim = Sim::new();
    let mut session = Session::capped(&sim, "64MiB");
    session.ok("cuCtxCreate_v2 &x 0 0");
    flat(&mut session, [1024, 1024, FLOAT, 4]);
    session.ok("cuArrayCreate_v2 &a &d");
    session.ok("cuArrayCreate_v2 &b &d");
    session.holds(32 * MIB);
    session.ok("cuCtxDestroy_v2 $x");
    session.ok("cuCtxSetCurrent $c");
    session.holds(0);
    session.end();
}

#[test]
fn what_the_driver_finds_wrong_is_not_refused_as_memory() {
    let sim = Sim::new();
    let mut session = Session::capped(&sim, "0");
    let mut bare = Session::bare(&sim);
    for shape in [[0, 1, FLOAT, 4], [1024, 1024, FLOAT, 3], [1024, 1024, 0x7777, 4], [1024, 1024, FLOAT, 9]] {
        for session in [&mut session, &mut bare] {
            flat(session, shape);
            session.gets("cuArrayCreate_v2 &out &d", 1);
        }
    }
    flat(&mut session, [1024, 1024, FLOAT, 4]);
    session.gets("cuArrayCreate_v2 null &d", 1);
    session.gets("cuMipmappedArrayCreate &out &d 0", 1);
    session.refused("cuArrayCreate_v2 &out &d");
    session.ok("cuCtxSetCurrent null");
    session.gets("cuArrayCreate_v2 &out &d", 201);
    session.end();
}
