//! The map's races on one page, explored by loom. Page and group have one cell of their own and one for a few each here, so that
//! the fifth block of the page goes to its place.

use super::*;
use loom::sync::Arc;
use loom::thread::spawn;

const X: u64 = 0;
const Y: u64 = 512;
const Z: u64 = 1024;
const V: u64 = 1536;
const W: u64 = 2048;

/// Runs `a` and `b` on two threads.
fn race<A: Send + 'static, B>(
    map: &Arc<PageMap>,
    a: impl FnOnce(&PageMap) -> A + Send + 'static,
    b: impl FnOnce(&PageMap) -> B,
) -> (A, B) {
    let theirs = Arc::clone(map);
    let thread = spawn(move || a(&theirs));
    let b = b(map);
    (thread.join().unwrap(), b)
}

/// A map with these blocks. Its nodes exist already: whoever races to make one is `OnceBox`'s concern, which loom does not see.
fn with(addresses: &[u64]) -> Arc<PageMap> {
    let map = PageMap::new();
    [X, Y, Z, V, W].map(|address| map.insert(address, 512, 1));
    [X, Y, Z, V, W].map(|address| map.take(address));
    for &address in addresses {
        assert_eq!(map.insert(address, 512, address + 1), None);
    }
    Arc::new(map)
}

fn all(map: &PageMap) -> Vec<(u64, u64)> {
    let mut all = Vec::new();
    map.for_each(|address, value| all.push((address, value)));
    all.sort_unstable();
    all
}

#[test]
fn two_new_blocks_of_a_page_are_both_found() {
    for before in [&[][..], &[Z], &[Z, V], &[Z, V, W]] {
        loom::model(move || {
            let map = with(before);
            race(&map, |m| assert_eq!(m.insert(X, 512, 1), None), |m| assert_eq!(m.insert(Y, 512, 2), None));
            assert_eq!((map.take(X), map.take(Y)), (Some(1), Some(2)));
            assert_eq!(all(&map).len(), before.len());
        });
    }
}

#[test]
fn of_two_takers_exactly_one_wins_wherever_the_block_is() {
    for before in [&[X][..], &[Y, X], &[Y, Z, V, W, X]] {
        loom::model(move || {
            let map = with(before);
            let (a, b) = race(&map, |m| m.take(X), |m| m.take(X));
            assert!((a, b) == (Some(1), None) || (a, b) == (None, Some(1)));
            assert_eq!(all(&map).len(), before.len() - 1);
        });
    }
}

/// One thread frees a block of a shared cell and gets its address again, as the driver hands them out, beside the other's.
#[test]
fn an_address_that_comes_round_is_found_again_beside_other_blocks() {
    for before in [&[X, Y][..], &[Y, X], &[Z, Y, X], &[Z, V, W, Y, X]] {
        loom::model(move || {
            let map = with(before);
            race(
                &map,
                |m| {
                    assert_eq!(m.take(X), Some(1));
                    assert_eq!(m.insert(X, 512, 7), None);
                    assert_eq!(m.get(X), Some(7));
                },
                |m| {
                    assert_eq!(m.take(Y), Some(Y + 1));
                    assert_eq!(m.insert(Y, 512, 8), None);
                },
            );
            assert_eq!((map.take(X), map.take(Y)), (Some(7), Some(8)));
            assert_eq!(all(&map).len(), before.len() - 2);
        });
    }
}

#[test]
fn a_block_that_covers_its_page_is_found_where_dead_ones_are_purged() {
    for before in [&[][..], &[X], &[Y]] {
        loom::model(move || {
            let map = if before == [Y] { with(&[]) } else { Arc::new(PageMap::new()) };
            assert_eq!((map.insert(X, 512, 1), map.take(X)), (None, Some(1)));
            before.iter().for_each(|&dead| assert_eq!(map.insert(dead, 512, 1), None));
            let (purged, displaced) = race(
                &map,
                |m| {
                    let mut purged = 0;
                    m.purge(|_, value| value == 1, |_, _| purged += 1);
                    purged
                },
                |m| m.insert(X, 4 << 20, 5),
            );
            assert_eq!(purged + displaced.into_iter().count(), before.len());
            assert_eq!(all(&map), [(X, 5)]);
        });
    }
}

#[test]
fn a_freed_address_goes_to_another_thread_which_finds_it() {
    loom::model(|| {
        let map = with(&[Z, X]);
        // The second free of the same pointer, by a program that is wrong, races with both.
        let (second, ()) = race(
            &map,
            |m| m.take(X),
            |m| {
                if m.take(X).is_some() {
                    assert_eq!(m.insert(X, 512, 9), None);
                }
            },
        );
        let left = map.take(X);
        match second {
            None => assert_eq!(left, Some(9)),
            // It took the old one (then nothing was inserted) or the new one.
            Some(value) => assert!(left.is_none() && (value == 1 || value == 9)),
        }
    });
}

#[test]
fn a_purge_and_a_new_block_at_a_dead_address_count_the_dead_one_once() {
    for before in [&[X][..], &[Y, X], &[Y, Z, V, W, X]] {
        loom::model(move || {
            let map = with(before);
            let (purged, displaced) = race(
                &map,
                |m| {
                    let mut purged = 0;
                    m.purge(|_, value| value == 1, |_, _| purged += 1);
                    purged
                },
                |m| m.insert(X, 512, 5),
            );
            assert_eq!(purged + u32::from(displaced == Some(1)), 1);
            assert_eq!(map.take(X), Some(5));
            assert_eq!(map.take(X), None);
        });
    }
}
