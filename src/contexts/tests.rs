//! Owners through the life of contexts.

use super::*;
use crate::driver::PoolLevels;

/// A driver with one current context at most.
struct Fake {
    current: Option<usize>,
    device: u32,
}

impl Driver for Fake {
    fn current_context(&self) -> Result<Option<usize>, Code> {
        Ok(self.current)
    }
    fn current_device(&self) -> Result<u32, Code> {
        Ok(self.device)
    }
    fn primary_is_active(&self, _: u32) -> Option<bool> {
        None
    }
    fn context_id(&self, _: usize) -> Option<u64> {
        None
    }
    fn stream_context(&self, _: usize) -> Option<usize> {
        None
    }
    fn current_pool(&self, _: u32) -> Option<usize> {
        None
    }
    fn pool_levels(&self, _: usize) -> Option<PoolLevels> {
        None
    }
    fn trim_pool(&self, _: usize) {}
    fn footprint(&self, _: u32) -> Option<u64> {
        None
    }
}

const NOBODY: Fake = Fake {
    current: None,
    device: 0,
};

#[test]
fn without_a_context_nobody_owns() {
    assert_eq!(Contexts::new(1).owner(&NOBODY), Err(Code::INVALID_CONTEXT));
}

#[test]
fn the_only_context_of_the_only_device_needs_no_question() {
    let contexts = Contexts::new(1);
    assert_eq!(contexts.primary_retained(0x10, 0, Some(1)), vec![]);
    let owner = contexts.find(0x10).unwrap();
    assert_eq!(contexts.owner(&NOBODY), Ok(owner));
    contexts.created(0x20, 0);
    assert_eq!(
        contexts.owner(&Fake {
            current: Some(0x10),
            device: 0
        }),
        Ok(owner),
        "now it is asked"
    );
}

#[test]
fn with_two_devices_the_current_context_decides() {
    let contexts = Contexts::new(2);
    let second = contexts.created(0x20, 1);
    assert_eq!(
        contexts.owner(&Fake {
            current: Some(0x20),
            device: 9
        }),
        Ok(second)
    );
    assert_eq!(second.device, 1);
    let past_us = contexts
        .owner(&Fake {
            current: Some(0x30),
            device: 1,
        })
        .unwrap();
    assert_eq!((past_us.device, Some(past_us)), (1, contexts.find(0x30)));
}

#[test]
fn the_last_release_ends_the_incarnation_and_no_other() {
    let contexts = Contexts::new(1);
    assert_eq!(contexts.primary_retained(0x10, 0, Some(1)), vec![]);
    assert_eq!(contexts.primary_retained(0x10, 0, Some(1)), vec![]);
    let first = contexts.find(0x10).unwrap();
    let ending = contexts.primary_ending(0, false);
    assert_eq!(contexts.primary_ended(ending, false, true, Some(1)), vec![]);
    let ending = contexts.primary_ending(0, false);
    let next = contexts.find(0x10).unwrap();
    assert_ne!(
        first, next,
        "what is allocated from now on outlives the call"
    );
    let dead = contexts.primary_ended(ending, false, false, None);
    assert_eq!(dead, vec![first.slot]);
    contexts.dropped(&dead);
    assert_eq!(contexts.primary_retained(0x10, 0, Some(2)), vec![]);
    assert_eq!(contexts.find(0x10), Some(next));
}

#[test]
fn a_context_that_died_and_came_back_at_once_is_told_by_its_id() {
    let contexts = Contexts::new(1);
    let _ = contexts.primary_retained(0x10, 0, Some(1));
    let first = contexts.find(0x10).unwrap();
    let ending = contexts.primary_ending(0, false);
    // Another thread retains while the release is in the driver.
    assert_eq!(contexts.primary_retained(0x10, 0, Some(2)), vec![]);
    assert_eq!(
        contexts.primary_ended(ending, false, true, Some(2)),
        vec![first.slot]
    );
}

#[test]
fn a_release_that_others_outlive_drops_nothing_until_the_end() {
    let contexts = Contexts::new(1);
    let _ = contexts.primary_retained(0x10, 0, Some(1));
    let first = contexts.find(0x10).unwrap();
    // Somebody retained past us: the driver says that it is alive.
    let ending = contexts.primary_ending(0, false);
    assert_eq!(contexts.primary_ended(ending, false, true, Some(1)), vec![]);
    let second = contexts.find(0x10).unwrap();
    let ending = contexts.primary_ending(0, false);
    let mut dead = contexts.primary_ended(ending, false, false, None);
    dead.sort_unstable();
    assert_eq!(dead, vec![first.slot, second.slot]);
}

#[test]
fn a_reset_ends_the_incarnation_whoever_holds_it() {
    let contexts = Contexts::new(1);
    let _ = contexts.primary_retained(0x10, 0, Some(1));
    let _ = contexts.primary_retained(0x10, 0, Some(1));
    let first = contexts.find(0x10).unwrap();
    let ending = contexts.primary_ending(0, true);
    assert_eq!(
        contexts.primary_ended(ending, true, true, Some(2)),
        vec![first.slot]
    );
}

#[test]
fn a_refused_release_changes_nothing() {
    let contexts = Contexts::new(1);
    let _ = contexts.primary_retained(0x10, 0, Some(1));
    let first = contexts.find(0x10).unwrap();
    let ending = contexts.primary_ending(0, false);
    contexts.primary_lives(ending, false);
    let ending = contexts.primary_ending(0, false);
    assert!(
        contexts
            .primary_ended(ending, false, false, None)
            .contains(&first.slot)
    );
}

#[test]
fn a_recycled_handle_means_the_new_context() {
    let contexts = Contexts::new(2);
    let old = contexts.created(0x10, 0);
    let new = contexts.created(0x10, 1);
    assert_eq!(contexts.find(0x10), Some(new));
    contexts.destroyed(old);
    assert_eq!(contexts.find(0x10), Some(new));
}

#[test]
fn attach_and_detach_are_counted() {
    let contexts = Contexts::new(1);
    contexts.created(0x10, 0);
    contexts.attached(0x10);
    assert!(!contexts.detached(0x10));
    assert!(contexts.detached(0x10));
}
