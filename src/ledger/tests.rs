//! The ledger's rules, against a naive one.

use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

const TIB: u64 = 1 << 40;

fn linear(size: u64, owner: u16) -> Block {
    Block { size, kind: Kind::Linear, owner }
}

#[test]
fn a_block_is_as_large_as_the_driver_makes_it() {
    let table = [
        (0, Some(0)),
        (1, Some(512)),
        (512, Some(512)),
        (513, Some(1024)),
        (MIB - 1, Some(MIB)),
        (MIB, Some(2 * MIB)),
        (2 * MIB, Some(2 * MIB)),
        (2 * MIB + 1, Some(4 * MIB)),
        (u64::MAX - 2 * MIB + 1, Some(u64::MAX - 2 * MIB + 1)),
        (u64::MAX - 2 * MIB + 2, None),
        (u64::MAX, None),
    ];
    for (bytes, block) in table {
        assert_eq!(block_size(bytes), block, "{bytes}");
    }
}

#[test]
fn any_size_is_kept_exactly() {
    let ledger = Ledger::new();
    for (i, size) in [0, 1, 511, 512, 3 * MIB, 16 * TIB, TIB + 512, 700 * TIB + 1, u64::MAX].into_iter().enumerate() {
        for kind in [Kind::Linear, Kind::Pitch, Kind::Managed, Kind::Pool] {
            let (address, block) = (0x7f00_0000_0000 + i as u64 * 512, Block { size, kind, owner: u16::MAX });
            assert_eq!(ledger.insert(address, block), None);
            assert_eq!(ledger.get(address), Some(block));
            assert_eq!(ledger.take(address), Some(block));
            assert!(ledger.put_back(address, block));
            assert!(!ledger.put_back(address, linear(u64::MAX - 1, 0)));
            assert_eq!(ledger.insert(address, linear(u64::MAX - 2, 0)), Some(block));
            assert_eq!(ledger.take(address), Some(linear(u64::MAX - 2, 0)));
        }
    }
    assert!(ledger.odd.lock().sizes.is_empty());
}

#[test]
fn a_purge_says_what_each_owner_lost_and_leaves_the_others() {
    let ledger = Ledger::new();
    for i in 0..10u16 {
        ledger.insert(u64::from(i) * 2 * MIB, linear(u64::from(i) * TIB + 1, i % 3));
    }
    let lost = ledger.purge(|block| block.owner != 1);
    assert_eq!(
        lost,
        [Purged { owner: 0, blocks: 4, bytes: 18 * TIB + 4 }, Purged { owner: 2, blocks: 3, bytes: 15 * TIB + 3 },]
    );
    let mut left = Vec::new();
    ledger.for_each(|address, block| left.push((address, block.size)));
    assert_eq!(left, [1, 4, 7].map(|i| (i * 2 * MIB, i * TIB + 1)));
    assert_eq!(ledger.odd.lock().sizes.len(), 3);
}

#[derive(Clone, Debug)]
enum Op {
    Insert(u64, Block),
    PutBack(u64, Block),
    Take(u64),
    Purge(u16),
}

fn block() -> impl Strategy<Value = Block> {
    let kind = prop_oneof![Just(Kind::Linear), Just(Kind::Pitch), Just(Kind::Managed), Just(Kind::Pool)];
    let size = prop_oneof![(0..2048u64).prop_map(|n| n * 512), (0..1u64 << 24).prop_map(|n| n * 2 * MIB), any::<u64>()];
    (size, kind, 0..4u16).prop_map(|(size, kind, owner)| Block { size, kind, owner })
}

fn op() -> impl Strategy<Value = Op> {
    let address = || (0..3u64, 0..5u64).prop_map(|(page, step)| page * 2 * MIB + step * 512);
    prop_oneof![
        4 => (address(), block()).prop_map(|(a, b)| Op::Insert(a, b)),
        1 => (address(), block()).prop_map(|(a, b)| Op::PutBack(a, b)),
        3 => address().prop_map(Op::Take),
        1 => (0..4u16).prop_map(Op::Purge),
    ]
}

proptest! {
    #[test]
    fn it_equals_a_naive_ledger(ops in prop::collection::vec(op(), 0..150)) {
        let (ledger, mut naive) = (Ledger::new(), HashMap::new());
        for op in ops {
            match op {
                // Blocks never overlap, so one at a page's start that is larger than 512 bytes is alone; the map may rely on it.
                Op::Insert(a, b) => {
                    let (from, to) = (a, a.saturating_add(b.size.max(1)));
                    let overlaps = naive.iter().any(|(&x, y): (&u64, &Block)| {
                        x != a && x < to && from < x.saturating_add(y.size.max(1))
                    });
                    if !overlaps {
                        prop_assert_eq!(ledger.insert(a, b), naive.insert(a, b));
                    }
                }
                Op::PutBack(a, b) => {
                    prop_assert_eq!(ledger.put_back(a, b), !naive.contains_key(&a));
                    naive.entry(a).or_insert(b);
                }
                Op::Take(a) => prop_assert_eq!(ledger.take(a), naive.remove(&a)),
                Op::Purge(owner) => {
                    let mut expected = (0, 0u64);
                    let sum: Option<u64> = naive.values().filter(|b| b.owner == owner).try_fold(0u64, |s, b| s.checked_add(b.size));
                    prop_assume!(sum.is_some());
                    naive.retain(|_, b| {
                        let dies = b.owner == owner;
                        if dies { expected = (expected.0 + 1, expected.1 + b.size); }
                        !dies
                    });
                    let lost = ledger.purge(|block| block.owner == owner);
                    let found = lost.first().map_or((0, 0), |p| (p.blocks, p.bytes));
                    prop_assert_eq!(found, expected);
                    prop_assert!(lost.len() <= 1);
                }
            }
            for (a, b) in &naive {
                prop_assert_eq!(ledger.get(*a), Some(*b));
            }
            let mut count = 0;
            ledger.for_each(|_, _| count += 1);
            prop_assert_eq!(count, naive.len());
        }
        let odd = naive.values().filter(|b| {
            let fits = |unit: u64| b.size % unit == 0 && b.size / unit < 1 << 30;
            !fits(512) && !fits(2 * MIB) && !fits(1)
        });
        prop_assert_eq!(ledger.odd.lock().sizes.len(), odd.count());
    }
}
