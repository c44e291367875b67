//! Python programs: ctypes clients, worker processes of every kind, the environment set from inside.

use harness::{Output, Sim};
use script::{GIB, MIB, client, said_once, silent};

mod script;

#[test]
fn b18_a_limit_set_by_os_environ_holds_before_the_first_cuda_call_and_not_after() {
    let sim = Sim::new();
    let expected = format!("info 0 {GIB} {GIB}\nalloc 2\ninfo 0 {GIB} {GIB}\n");
    for run in [
        client(&sim, "late.py").preload(),
        client(&sim, "late.py").capped("12GiB"),
        client(&sim, "late.py").capped("rubbish"),
    ] {
        let out = run.out();
        assert_eq!(out.ok().stdout, expected, "{out}");
        assert!(said_once(&out).starts_with("warning: denied "), "{out}");
    }
}

fn workers(sim: &Sim, how: &str, count: usize) -> Output {
    let out = client(sim, "workers.py").args([how, &count.to_string(), &(32 * MIB).to_string()]).capped("1GiB").out();
    out.ok();
    assert_eq!(out.stdout.lines().count(), count, "{out}");
    out
}

#[test]
fn b41_worker_processes_inherit_the_limit_each_for_itself() {
    for how in ["fork", "spawn", "forkserver"] {
        let sim = Sim::new();
        let out = workers(&sim, how, 3);
        for line in out.stdout.lines() {
            assert_eq!(line, format!("worker 0 {GIB} 2 32 0 0 {GIB}"), "{how}: {out}");
        }
        let held: Vec<u64> = sim
            .truth()
            .processes()
            .iter()
            .map(|process| process.per_device[0].peak_blocks)
            .filter(|peak| *peak > 0)
            .collect();
        assert_eq!(held, [GIB; 3], "{how}");
        assert_eq!(sim.truth().device(0).peak, 3 * GIB);
        assert_eq!(sim.truth().device(0).used, 0, "the dead have given back");
        // Each process says once that it was refused.
        assert_eq!(out.stderr.lines().count(), 3, "{out}");
    }
}

#[test]
fn threads_share_the_limit_of_their_process() {
    let sim = Sim::new();
    let out = workers(&sim, "threads", 4);
    let counts: Vec<u64> = out
        .stdout
        .lines()
        .map(|line| match line.split(' ').collect::<Vec<_>>()[..] {
            ["worker", "0", _, "2", count, "0", "0", _] => count.parse().expect("a number"),
            _ => panic!("{out}"),
        })
        .collect();
    assert_eq!(counts.iter().sum::<u64>(), 32, "{out}");
    assert_eq!(sim.truth().process(out.pid).expect("it ran").per_device[0].peak_blocks, GIB);
}

#[test]
fn a_program_that_becomes_another_one_starts_with_empty_books_and_reads_its_limit_again() {
    for overhead in ["0", "auto"] {
        let sim = Sim::new();
        let out = client(&sim, "exec.py").arg("2GiB").capped("1GiB").env("GPUCAP_OVERHEAD", overhead).out();
        assert_eq!(silent(out.ok()).stdout, format!("info 0 {GIB} {GIB}\ninfo 0 {0} {0}\n", 2 * GIB), "{out}");
    }
}
