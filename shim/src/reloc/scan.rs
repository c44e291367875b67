//! One look at what was loaded since the last one.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::namespaces::{self, Namespace};
use super::slots::{self, Driver, Drivers};
use crate::driver;
use crate::elf::Object;
use crate::entry;
use crate::images::{self, Class, Generation, LinkMap};
use crate::phase;

/// The loader's counters at the last complete look.
static ADDS: AtomicU64 = AtomicU64::new(0);
static SUBS: AtomicU64 = AtomicU64::new(0);

/// The counter of removals when [`DONE`] was emptied last.
static CLEARED: AtomicU64 = AtomicU64::new(0);

/// Looks at what is new. `thorough`: even if the counters did not move, because `handle` may lead to a namespace that was
/// not seen before. Returns whether everything was ready to be looked at.
pub fn scan(handle: *mut LinkMap, thorough: bool) -> bool {
    let counters = images::generation();
    if !thorough && counters.adds == ADDS.load(Ordering::Relaxed) && counters.subs == SUBS.load(Ordering::Relaxed) {
        return true;
    }
    look_at_new(handle, counters)
}

#[inline(never)]
fn look_at_new(handle: *mut LinkMap, counters: Generation) -> bool {
    let mut drivers = Drivers::default();
    namespaces::for_each(handle, |object, namespace| drivers.add(object, namespace));
    if drivers.any() && phase::disabled() {
        remember(counters);
        return true;
    }
    if let Some(driver) = unregistered(&drivers, handle) {
        // Bound to this copy past us. It is used when the first call comes, unless it could then be taken for another copy.
        if driver.namespace != Namespace::Program && !drivers.in_program(driver.class) {
            driver::expect(&driver.object, driver.class);
        } else if let Some(image) = images::owner(driver.object.dynamic) {
            driver::adopt(&image, driver.class);
        }
    }
    // The configuration is not read with the loader's lock held.
    drivers.second_passes = drivers.any_second() && phase::on_error_open();
    let mut outcome = redirect_all(handle, counters, &drivers);
    if drivers.untold.bind() {
        outcome = redirect_all(handle, counters, &drivers);
    }
    if let Some(second) = drivers.second_bound.get() {
        entry::say_second_copy(second.object.path(), second.class, drivers.second_passes);
    }
    if drivers.any() || drivers.redirected.get() {
        // What was redirected may be closed and opened again at the same place.
        super::INTERESTED.store(true, Ordering::Relaxed);
    }
    // Something was loaded meanwhile, or is being loaded: the next look-up looks again.
    remember(if outcome { counters } else { Generation { adds: 0, subs: 0 } });
    outcome
}

fn remember(counters: Generation) {
    ADDS.store(counters.adds, Ordering::Relaxed);
    SUBS.store(counters.subs, Ordering::Relaxed);
}

/// Looks at every object that is not done. Returns whether that settles all that was loaded when the counters were read.
fn redirect_all(handle: *mut LinkMap, counters: Generation, drivers: &Drivers) -> bool {
    let now = images::generation();
    if now.subs != CLEARED.swap(now.subs, Ordering::Relaxed) {
        DONE.clear();
    }
    let mut ready = true;
    namespaces::for_each(handle, |object, namespace| {
        if is_left_alone(object) || DONE.holds(object) {
            return;
        }
        if slots::redirect(object, namespace, drivers) {
            DONE.add(object);
        } else {
            ready = false;
        }
    });
    ready && images::generation() == counters
}

/// A driver that new objects are bound to past us, where its class has none yet.
fn unregistered(drivers: &Drivers, handle: *mut LinkMap) -> Option<Driver> {
    if !drivers.any() {
        return None;
    }
    let mut found = None;
    namespaces::for_each(handle, |object, namespace| {
        if found.is_none() && !is_left_alone(object) && !DONE.holds(object) {
            found = slots::first_bound(object, namespace, drivers);
        }
    });
    match found {
        Some(driver) if driver::standing(&driver.object, driver.class).is_none() => Some(driver),
        _ => None,
    }
}

/// Ourselves, the drivers, the loader and libc.
fn is_left_alone(object: &Object) -> bool {
    const LIBC: [&[u8]; 5] =
        [b"ld-linux-x86-64.so.2", b"libc.so.6", b"libdl.so.2", b"libpthread.so.0", b"linux-vdso.so.1"];
    images::is_ours(object) || LIBC.contains(&object.called()) || Class::of(object).is_some()
}

/// Objects that need no second look while they are loaded.
struct Done {
    objects: [AtomicUsize; Done::SLOTS],
}

static DONE: Done = Done { objects: [const { AtomicUsize::new(0) }; Done::SLOTS] };

impl Done {
    const SLOTS: usize = 4096;

    fn slot(&self, object: &Object) -> Option<&AtomicUsize> {
        let start =
            (object.dynamic >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (usize::BITS - Self::SLOTS.trailing_zeros());
        (0..64)
            .filter_map(|step| self.objects.get((start + step) % Self::SLOTS))
            .find(|slot| matches!(slot.load(Ordering::Relaxed), value if value == 0 || value == object.dynamic))
    }

    fn holds(&self, object: &Object) -> bool {
        self.slot(object).is_some_and(|slot| slot.load(Ordering::Relaxed) == object.dynamic)
    }

    fn add(&self, object: &Object) {
        if let Some(slot) = self.slot(object) {
            slot.store(object.dynamic, Ordering::Relaxed);
        }
    }

    fn clear(&self) {
        self.objects.iter().for_each(|slot| slot.store(0, Ordering::Relaxed));
    }
}
