//! The map against a naive one, under threads, and its cost in host memory.

use super::*;
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const MIB: u64 = 1 << 20;

fn host_bytes(map: &PageMap) -> u64 {
    tree::host_bytes(map.root.get().unwrap()) as u64
}

#[test]
fn only_the_exact_base_address_is_found() {
    let map = PageMap::new();
    let base = 0x7f12_3460_0000;
    assert_eq!(map.insert(base, 512, 7), None);
    assert_eq!(map.insert(base + 0x400, 512, 8), None);
    for other in [
        0,
        512,
        base - 512,
        base + 512,
        base + 1,
        base + 0x401,
        base + 2 * MIB,
        base + (1 << 35),
        u64::MAX,
        u64::MAX - 511,
    ] {
        assert_eq!((map.get(other), map.take(other)), (None, None), "{other:#x}");
    }
    assert_eq!((map.take(base), map.take(base)), (Some(7), None));
    assert_eq!((map.take(base + 0x400), map.get(base + 0x400)), (Some(8), None));
}

#[test]
fn addresses_that_the_tree_does_not_cover_are_kept_exactly_too() {
    let map = PageMap::new();
    for address in [1, 0x7f00_0000_0100, 1 << 48, (1 << 48) + 512, u64::MAX] {
        assert_eq!(map.insert(address, 512, address & 0xff | 1), None);
        assert_eq!(map.get(address), Some(address & 0xff | 1));
        assert!(!map.put_back(address, 3));
        assert_eq!(map.insert(address, 512, 9), Some(address & 0xff | 1));
        assert_eq!((map.take(address), map.take(address)), (Some(9), None));
        assert!(map.put_back(address, 3));
    }
    let mut left = Vec::new();
    map.purge(|address, _| address > 1, |address, _| left.push(address));
    assert_eq!(left.len(), 4);
    assert_eq!(map.take(1), Some(3));
}

#[test]
fn a_value_may_use_all_of_its_bits() {
    let map = PageMap::new();
    let last = (1 << VALUE_BITS) - 1;
    let top = (1 << 48) - 512;
    for address in [top, top - 512, top - 1024, top - 32 * 1024] {
        map.insert(address, 512, last);
    }
    for address in [top - 1024, top, top - 32 * 1024, top - 512] {
        assert_eq!(map.take(address), Some(last));
    }
}

/// Addresses that meet in every way: in a page, in a group, at page edges, in other regions, outside the tree.
fn some_address() -> impl Strategy<Value = u64> {
    let base =
        prop_oneof![Just(0u64), Just(0x7f00_0000_0000), Just(0x7f00_0020_0000), Just(0x7f08_0000_0000), Just(1 << 48)];
    let step = prop_oneof![0..6u64, 62..66u64, 4090..4096u64];
    (base, step, prop_oneof![9 => Just(0u64), 1 => Just(8u64)]).prop_map(|(base, step, off)| base + step * 512 + off)
}

#[derive(Clone, Debug)]
enum Op {
    Insert(u64, u64),
    PutBack(u64, u64),
    Take(u64),
    Get(u64),
    Purge(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let value = 1..(1u64 << VALUE_BITS);
    prop_oneof![
        4 => (some_address(), value.clone()).prop_map(|(a, v)| Op::Insert(a, v)),
        1 => (some_address(), value).prop_map(|(a, v)| Op::PutBack(a, v)),
        3 => some_address().prop_map(Op::Take),
        1 => some_address().prop_map(Op::Get),
        1 => (0..7u64).prop_map(Op::Purge),
    ]
}

proptest! {
    #[test]
    fn it_equals_a_naive_map(ops in prop::collection::vec(op(), 0..200)) {
        let (map, mut naive) = (PageMap::new(), HashMap::new());
        for op in ops {
            match op {
                Op::Insert(a, v) => prop_assert_eq!(map.insert(a, 512, v), naive.insert(a, v)),
                Op::PutBack(a, v) => {
                    prop_assert_eq!(map.put_back(a, v), !naive.contains_key(&a));
                    naive.entry(a).or_insert(v);
                }
                Op::Take(a) => prop_assert_eq!(map.take(a), naive.remove(&a)),
                Op::Get(a) => prop_assert_eq!(map.get(a), naive.get(&a).copied()),
                Op::Purge(k) => {
                    let mut gone = HashMap::new();
                    map.purge(|_, v| v % 7 == k, |a, v| assert_eq!(gone.insert(a, v), None));
                    let expected: HashMap<_, _> = naive.extract_if(|_, v| *v % 7 == k).collect();
                    prop_assert_eq!(gone, expected);
                }
            }
            let mut all = HashMap::new();
            map.for_each(|a, v| assert_eq!(all.insert(a, v), None));
            prop_assert_eq!(&all, &naive);
        }
    }
}

/// A driver with few addresses: threads allocate and free blocks of the same two pages, so that they meet in own slots and places
/// all the time, while two of them free the same block now and then. Every block is taken exactly once.
#[test]
fn every_block_is_taken_exactly_once_by_racing_threads() {
    const STEPS: u64 = 100;
    const ROUNDS: u64 = 200_000;
    let map = PageMap::new();
    let live: Vec<AtomicU64> = (0..STEPS).map(|_| AtomicU64::new(0)).collect();
    let (put, got) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|s| {
        for t in 0..4u64 {
            let (map, live, put, got) = (&map, &live, &put, &got);
            s.spawn(move || {
                let mut random = t + 1;
                for round in 0..ROUNDS {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let i = (random >> 33) % STEPS;
                    let (address, free) = (0x7f00_001f_8000 + i * 512, &live[i as usize]);
                    if free.compare_exchange(0, 1, AcqRel, Acquire).is_ok() {
                        // The driver gave us this address; nobody else gets it until we give it back.
                        let value = t << 40 | round << 1 | 1;
                        assert_eq!(map.insert(address, 512, value), None);
                        put.fetch_add(value, Relaxed);
                        free.store(2, std::sync::atomic::Ordering::Release);
                    } else if let Some(value) = map.take(address) {
                        // A block may be freed before its allocation has returned to anyone: it still counts once.
                        got.fetch_add(value, Relaxed);
                        while free.compare_exchange(2, 0, AcqRel, Acquire).is_err() {
                            std::hint::spin_loop();
                        }
                    }
                }
            });
        }
    });
    map.purge(|_, _| true, |_, value| _ = got.fetch_add(value, Relaxed));
    assert_eq!(put.into_inner(), got.into_inner());
    map.for_each(|a, _| panic!("{a:#x} is left"));
}

#[test]
fn a_live_allocation_costs_at_most_64_bytes_dense_and_128_sparse() {
    const LIVE: u64 = 100_000;
    // Bytes between blocks, and the bar for each. Ten to sixteen blocks a page are the worst: each has a group to itself.
    for (apart, bar) in [
        (512, 64),
        (1024, 64),
        (2048, 64),
        (4096, 64),
        (16 * 1024, 64),
        (64 * 1024, 64),
        (128 * 1024, 80),
        (MIB, 64),
        (2 * MIB, 128),
        (4 * MIB, 128),
    ] {
        let map = PageMap::new();
        (0..LIVE).for_each(|i| assert_eq!(map.insert(0x7e00_0000_0000 + i * apart, apart, i + 1), None));
        let each = host_bytes(&map) as f64 / LIVE as f64;
        println!("{apart:>9} bytes apart: {each:.1} bytes each");
        assert!(each <= f64::from(bar), "{apart} bytes apart: {each:.1}");
    }
}

#[test]
fn emptied_nodes_serve_again() {
    let map = PageMap::new();
    let run = || {
        (0..10_000).for_each(|i| assert_eq!(map.insert(i * 1536, 512, i + 1), None));
        (0..10_000).for_each(|i| assert_eq!(map.take(i * 1536), Some(i + 1)));
        host_bytes(&map)
    };
    let first = run();
    assert_eq!(run(), first);
}
