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

const NOBODY: Fake = Fake { current: None, device: 0 };

/// What is dead after the driver's answer.
fn ended(contexts: &Contexts, ending: &Ending, all: bool, alive: Option<Option<u64>>) -> Vec<u16> {
    let retains = contexts.retains();
    contexts.primary_ended(ending, all, alive, retains).unwrap().dead
}

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
    assert_eq!(contexts.owner(&Fake { current: Some(0x10), device: 0 }), Ok(owner), "now it is asked");
}

#[test]
fn with_two_devices_the_current_context_decides() {
    let contexts = Contexts::new(2);
    let second = contexts.created(0x20, 1);
    assert_eq!(contexts.owner(&Fake { current: Some(0x20), device: 9 }), Ok(second));
    assert_eq!(second.device, 1);
    let past_us = contexts.owner(&Fake { current: Some(0x30), device: 1 }).unwrap();
    assert_eq!((past_us.device, Some(past_us)), (1, contexts.find(0x30)));
}

#[test]
fn the_last_release_ends_the_incarnation_and_no_other() {
    let contexts = Contexts::new(1);
    assert_eq!(contexts.primary_retained(0x10, 0, Some(1)), vec![]);
    assert_eq!(contexts.primary_retained(0x10, 0, Some(1)), vec![]);
    let first = contexts.find(0x10).unwrap();
    let ending = contexts.primary_ending(0, false);
    assert_eq!(ended(&contexts, &ending, false, Some(Some(1))), vec![]);
    let ending = contexts.primary_ending(0, false);
    let next = contexts.find(0x10).unwrap();
    assert_ne!(first, next, "what is allocated from now on outlives the call");
    let dead = ended(&contexts, &ending, false, None);
    assert_eq!(dead, vec![first.slot, next.slot], "what came meanwhile too");
    contexts.dropped(&dead);
    assert_eq!(contexts.primary_retained(0x10, 0, Some(2)), vec![]);
    let new = contexts.find(0x10).unwrap();
    assert!(!dead.contains(&new.slot) && new.device == 0);
}

#[test]
fn a_context_that_died_and_came_back_at_once_is_told_by_its_id() {
    let contexts = Contexts::new(1);
    let _ = contexts.primary_retained(0x10, 0, Some(1));
    let first = contexts.find(0x10).unwrap();
    let ending = contexts.primary_ending(0, false);
    // Another thread retains while the release is in the driver.
    assert_eq!(contexts.primary_retained(0x10, 0, Some(2)), vec![]);
    assert_eq!(ended(&contexts, &ending, false, Some(Some(2))), vec![first.slot]);
}

#[test]
fn a_release_that_others_outlive_drops_nothing_until_the_end() {
    let contexts = Contexts::new(1);
    let _ = contexts.primary_retained(0x10, 0, Some(1));
    let first = contexts.find(0x10).unwrap();
    // Somebody retained past us: the driver says that it is alive.
    let ending = contexts.primary_ending(0, false);
    assert_eq!(ended(&contexts, &ending, false, Some(Some(1))), vec![]);
    assert_eq!(contexts.find(0x10), Some(first), "the same incarnation");
    let ending = contexts.primary_ending(0, false);
    let dead = ended(&contexts, &ending, false, None);
    assert!(dead.contains(&first.slot));
}

#[test]
fn an_answer_from_before_a_retain_is_asked_for_again() {
    let contexts = Contexts::new(1);
    let _ = contexts.primary_retained(0x10, 0, Some(1));
    let first = contexts.find(0x10).unwrap();
    let ending = contexts.primary_ending(0, false);
    let retains = contexts.retains();
    // The driver says that it is not alive, but then another thread brings it back and allocates.
    assert_eq!(contexts.primary_retained(0x10, 0, Some(2)), vec![]);
    let new = contexts.find(0x10).unwrap();
    assert_eq!(contexts.primary_ended(&ending, false, None, retains), None);
    assert_eq!(ended(&contexts, &ending, false, Some(Some(2))), vec![first.slot]);
    assert_eq!(contexts.find(0x10), Some(new));
}

#[test]
fn a_slot_is_dropped_by_one_thread_and_rests_before_it_is_another_of_its_device() {
    let contexts = Contexts::new(2);
    let old = contexts.created(0x10, 1);
    assert!(!contexts.is_over(old.slot));
    assert_eq!(contexts.destroyed(old), vec![old.slot]);
    assert!(contexts.is_over(old.slot));
    assert_eq!(contexts.destroyed(old), vec![], "somebody else drops it");
    contexts.dropped(&[old.slot]);
    assert_eq!((contexts.to_sweep(0), contexts.to_sweep(1)), (vec![], vec![old.slot]));
    assert_eq!(contexts.to_sweep(1), vec![], "once");
    let mut reused = 0;
    for handle in 1..100 {
        let device = u32::from(handle % 2 == 0);
        let owner = contexts.created(handle << 8, device);
        assert_eq!(contexts.device_of(owner.slot), Some(device));
        if owner.slot == old.slot {
            assert!(handle > RESTING && device == 1);
            reused += 1;
        }
        let dead = contexts.destroyed(owner);
        contexts.dropped(&dead);
        contexts.to_sweep(device);
    }
    assert!(reused > 0);
}

#[test]
fn releases_of_a_context_that_somebody_holds_past_us_use_no_slots_up() {
    let contexts = Contexts::new(2);
    let held = |device| Fake { current: Some(0x10), device };
    let _ = contexts.primary_retained(0x10, 1, Some(1));
    let first = contexts.find(0x10).unwrap();
    for round in 0..5000 {
        let ending = contexts.primary_ending(1, false);
        // Sometimes another thread allocates while the driver is asked.
        let meanwhile = (round % 3 == 0).then(|| contexts.owner(&held(1)).unwrap());
        let retains = contexts.retains();
        let what = contexts.primary_ended(&ending, false, Some(Some(1)), retains);
        let moved = what.unwrap().moved.unwrap();
        assert_eq!((moved.to, moved.empty), (first.slot, meanwhile.is_none()));
        assert!(meanwhile.is_none_or(|owner| owner.slot == moved.from));
        contexts.merged(moved);
        let _ = contexts.primary_retained(0x10, 1, Some(1));
        assert_eq!(contexts.find(0x10), Some(first));
    }
    assert!(contexts.slots.lock().len() < 3 * RESTING);
}

#[test]
fn what_was_moved_to_a_slot_moves_on_with_it() {
    let contexts = Contexts::new(2);
    let held = Fake { current: Some(0x10), device: 0 };
    let _ = contexts.primary_retained(0x10, 0, Some(1));
    let first = contexts.find(0x10).unwrap();
    let outer = contexts.primary_ending(0, false);
    let second = contexts.owner(&held).unwrap();
    let inner = contexts.primary_ending(0, false);
    let end = |ending| {
        let retains = contexts.retains();
        let ended = contexts.primary_ended(ending, false, Some(Some(1)), retains);
        let moved = ended.unwrap().moved.unwrap();
        contexts.merged(moved);
        moved
    };
    let moved = end(&inner);
    assert_eq!((moved.from, moved.empty), (second.slot, false));
    let last = end(&outer);
    assert_eq!((last.from, last.to, last.empty), (moved.to, first.slot, false));
}

#[test]
fn contexts_that_are_too_many_stay_with_their_device() {
    let contexts = Contexts::new(2);
    let mut past = 0;
    for handle in 1..1500 {
        let device = u32::from(handle % 2 == 1);
        let owner = contexts.created(handle << 8, device);
        assert_eq!(contexts.device_of(owner.slot), Some(device));
        assert!(!contexts.is_over(owner.slot));
        past += usize::from(contexts.find(handle << 8).is_none());
    }
    assert_eq!(past, 1499 - (SLOTS - 2));
}

#[test]
fn a_reset_ends_the_incarnation_whoever_holds_it() {
    let contexts = Contexts::new(1);
    let _ = contexts.primary_retained(0x10, 0, Some(1));
    let _ = contexts.primary_retained(0x10, 0, Some(1));
    let first = contexts.find(0x10).unwrap();
    let ending = contexts.primary_ending(0, true);
    assert_eq!(ended(&contexts, &ending, true, Some(Some(2))), vec![first.slot]);
}

#[test]
fn a_refused_release_changes_nothing() {
    let contexts = Contexts::new(1);
    let _ = contexts.primary_retained(0x10, 0, Some(1));
    let first = contexts.find(0x10).unwrap();
    let ending = contexts.primary_ending(0, false);
    assert!(contexts.primary_lives(&ending, false).is_some());
    let ending = contexts.primary_ending(0, false);
    assert!(ended(&contexts, &ending, false, None).contains(&first.slot));
}

#[test]
fn a_recycled_handle_means_the_new_context() {
    let contexts = Contexts::new(2);
    let old = contexts.created(0x10, 0);
    let new = contexts.created(0x10, 1);
    assert_eq!(contexts.find(0x10), Some(new));
    assert_eq!(contexts.destroyed(old), vec![old.slot]);
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
