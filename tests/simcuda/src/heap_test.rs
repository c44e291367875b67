//! The heap against a plain model: no two blocks overlap, every block is found, the books are the sum of the blocks.

use std::collections::BTreeMap;

use simdevice::me;

use crate::heap::{self, Kind};
use crate::units::{PAGE, block_size};
use crate::{ctx, small};

/// xorshift64*: repeatable.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % limit
    }
}

#[test]
fn blocks_never_overlap_and_the_books_are_their_sum() {
    let context = ctx::retain_primary(0).expect("a device");
    let mut dice = Dice(0x5eed);
    let mut live: BTreeMap<u64, u64> = BTreeMap::new();
    let mut sum = 0;
    for round in 0..200_000_u64 {
        // Waves: mostly taking, then mostly freeing, so that pages fill, break up and empty.
        let taking = dice.below(100) < if round / 20_000 % 2 == 0 { 60 } else { 40 };
        if taking || live.is_empty() {
            let size = match dice.below(10) {
                0 => 1 + dice.below(8 << 20),
                1..=3 => 1 + dice.below(1 << 20),
                _ => 1 + dice.below(8 << 10),
            };
            let Ok(address) = heap::allocate(context, size, Kind::Linear, false) else { continue };
            let block = block_size(size).expect("small enough");
            let before = live.range(..=address).next_back();
            assert!(before.is_none_or(|(base, size)| base + size <= address), "round {round}");
            let after = live.range(address..).next();
            assert!(after.is_none_or(|(base, _)| address + block <= *base), "round {round}");
            live.insert(address, block);
            sum += block;
            let last = heap::find(address + size - 1).expect("it is live");
            assert_eq!((last.base, last.size), (address, size));
        } else {
            let key = live.range(dice.below(u64::MAX)..).next().or(live.iter().next()).map(|(key, _)| *key);
            let nth = usize::try_from(dice.below(live.len().min(64) as u64)).expect("small");
            let address = live.keys().nth(nth).copied().or(key).expect("not empty");
            sum -= live.remove(&address).expect("live");
            assert!(heap::remove(address, |_| true).is_some());
            assert!(heap::find(address).is_none());
        }
    }
    assert_eq!(me().held(0).blocks, sum);
    assert!(me().held(0).pages >= sum && me().held(0).pages.is_multiple_of(PAGE));
    for address in live.keys() {
        assert!(heap::remove(*address, |_| true).is_some());
    }
    assert_eq!((me().held(0).blocks, me().held(0).pages), (0, 0));
}

#[test]
fn a_shared_page_fills_to_the_last_unit() {
    let mut page = small::SmallPage::new();
    let mut places = Vec::new();
    while let Some(offset) = page.place(700) {
        places.push(offset);
    }
    assert_eq!(places.len(), 2048);
    assert_eq!(page.find_block(1024 + 699), Some((1024, 700)));
    assert_eq!(page.find_block(1024 + 1023), Some((1024, 700)));
    page.remove(2048).expect("it is there");
    page.remove(3072).expect("it is there");
    assert_eq!(page.place(2048), Some(2048));
    assert_eq!(page.place(1), None);
}
