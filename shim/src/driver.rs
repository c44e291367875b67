//! Which loaded library is the process's driver, and where its functions are.
//!
//! The first copy that is used is the driver of the process; it stays loaded from then on, because hooks keep its addresses.
//! Nothing here holds a lock: whoever comes second finds the same addresses.

use core::ffi::{CStr, c_void};
use core::ops::ControlFlow;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use crate::elf::Object;
use crate::entry::next;
use crate::hooks::{COUNT, HOOKS, REAL};
use crate::images::{self, CLASSES, Class, Handle, Loaded};
use crate::reloc;

mod addresses;

pub use addresses::hook_at;

/// A registered driver.
struct Driver {
    object: Object,
    handle: *mut c_void,
    filled: AtomicBool,
}

/// What an image is to the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Copy {
    /// The process's driver.
    Driver,
    /// Another copy of it, which came later.
    Second,
}

static DRIVERS: [AtomicPtr<Driver>; CLASSES] = [const { AtomicPtr::new(core::ptr::null_mut()) }; CLASSES];

/// Dynamic table of a copy that calls are expected for; 0 = none.
static EXPECTED: [AtomicUsize; CLASSES] = [const { AtomicUsize::new(0) }; CLASSES];

/// The driver's own function behind each hook, whatever another interposer has put in front of it.
static OWN: [AtomicUsize; COUNT] = [const { AtomicUsize::new(0) }; COUNT];

fn registered(class: Class) -> Option<&'static Driver> {
    // SAFETY: null, or a record that was leaked when it was registered.
    unsafe { DRIVERS[class as usize].load(Ordering::Acquire).as_ref() }
}

/// Whether a driver of this class is known or loaded in the program's namespace.
pub fn present(class: Class) -> bool {
    registered(class).is_some() || loaded(class).is_some()
}

/// Finds the driver for a hook that was called without any look-up before (a linked program): the copy in global scope,
/// else one that is loaded, else what `dlopen` finds. Fills [`REAL`] where there is one.
pub fn ensure_class(class: Class) {
    if registered(class).is_none() {
        match global(class).or_else(|| loaded(class)).or_else(|| expected(class)).or_else(|| open(class)) {
            Some(image) => drop(adopt(&image, class)),
            // No driver: what a linked program calls is whatever else defines it, as without us.
            None => hooks_of(class).for_each(|index| {
                let other = in_scope(HOOKS[index].name);
                let _ = REAL[index].compare_exchange(
                    core::ptr::null_mut(),
                    other as *mut c_void,
                    Ordering::AcqRel,
                    Ordering::Acquire,
                );
            }),
        }
    }
    if let Some(driver) = registered(class) {
        fill(driver, class);
    }
    // From now on the process has to do with CUDA.
    reloc::refresh(core::ptr::null_mut());
    next::settle(next::symbol(0));
}

/// What a name leads to in global scope after us.
fn in_scope(name: &CStr) -> usize {
    match next::ask(next::symbol(0), libc::RTLD_NEXT, name) {
        found if images::is_own(found) => 0,
        found => found,
    }
}

/// The driver in global scope.
fn global(class: Class) -> Option<Loaded> {
    let found = in_scope(match class {
        Class::Cuda => c"cuInit",
        Class::Nvml => c"nvmlInit_v2",
    });
    if found == 0 {
        return None;
    }
    images::owner(found).filter(|image| Class::of(&image.object) == Some(class))
}

/// Whether a driver is in global scope.
pub fn in_global_scope(class: Class) -> bool {
    global(class).is_some()
}

fn hooks_of(class: Class) -> impl Iterator<Item = usize> {
    (0..COUNT).filter(move |index| Class::of_name(HOOKS[*index].name) == class)
}

/// The first loaded driver of the program's namespace.
fn loaded(class: Class) -> Option<Loaded> {
    let mut found = None;
    images::for_each(|position, object| {
        if Class::of(object) == Some(class) {
            found = Some(Loaded { object: *object, map: core::ptr::null_mut(), position: Some(position) });
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
    found
}

/// Notes that an object of another namespace was bound to this copy past us; the first call will make it the driver.
pub fn expect(object: &Object, class: Class) {
    EXPECTED[class as usize].store(object.dynamic, Ordering::Release);
}

fn expected(class: Class) -> Option<Loaded> {
    let dynamic = EXPECTED[class as usize].load(Ordering::Acquire);
    // It may have been closed since.
    images::owner(dynamic).filter(|image| image.object.dynamic == dynamic && Class::of(&image.object) == Some(class))
}

fn open(class: Class) -> Option<Loaded> {
    // SAFETY: dlopen(3) with a C string.
    let handle = unsafe { libc::dlopen(class.file().as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        return None;
    }
    // SAFETY: a handle that was just opened and is never closed.
    unsafe { images::of_handle(handle.cast()) }.filter(|image| Class::of(&image.object) == Some(class))
}

/// Registers a driver image that is being used, unless there is one already.
pub fn adopt(image: &Loaded, class: Class) -> Copy {
    let slot = &DRIVERS[class as usize];
    if slot.load(Ordering::Acquire).is_null() {
        let handle = image.open_for_good().map_or(core::ptr::null_mut(), Handle::keep);
        let driver = Box::into_raw(Box::new(Driver { object: image.object, handle, filled: AtomicBool::new(false) }));
        if slot.compare_exchange(core::ptr::null_mut(), driver, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // SAFETY: another thread was first; nobody else has seen this one.
            drop(unsafe { Box::from_raw(driver) });
        }
    }
    match registered(class) {
        Some(driver) if driver.object.dynamic == image.object.dynamic => {
            fill(driver, class);
            Copy::Driver
        }
        _ => Copy::Second,
    }
}

/// What a driver image is to the process, without registering it.
pub fn standing(object: &Object, class: Class) -> Option<Copy> {
    registered(class).map(|driver| if driver.object.dynamic == object.dynamic { Copy::Driver } else { Copy::Second })
}

/// Fills the addresses behind the hooks. Doing it twice at once is harmless: both find the same.
fn fill(driver: &Driver, class: Class) {
    if driver.filled.load(Ordering::Acquire) {
        return;
    }
    // Another interposer that answers no look-ups expects the driver in the program's scope, and is reached only from there.
    let shared = driver.object.contains(in_scope(match class {
        Class::Cuda => c"cuDriverGetVersion",
        Class::Nvml => c"nvmlSystemGetDriverVersion",
    }));
    let behind = |name: &CStr| if shared { wrapper_behind(name) } else { None };
    for index in hooks_of(class) {
        let name = HOOKS[index].name;
        // Only what the driver has is asked for, so that no look-up fails and leaves a message for dlerror.
        let Some(own) = driver.object.lookup(name) else {
            continue;
        };
        let chained = if driver.handle.is_null() { own } else { next::ask(next::symbol(0), driver.handle, name) };
        // Where no other interposer answers look-ups, one may still stand behind us in the order of preloading. Or it answers
        // with the name of its own function, which in the program's scope is ours.
        let real = if chained == 0 || chained == own {
            behind(name).unwrap_or(own)
        } else if images::is_own(chained) {
            wrapper_behind(name).unwrap_or(own)
        } else {
            chained
        };
        OWN[index].store(own, Ordering::Relaxed);
        addresses::note(own, index);
        addresses::note(real, index);
        REAL[index].store(real as *mut c_void, Ordering::Release);
    }
    driver.filled.store(true, Ordering::Release);
}

/// Another interposer of `name` that was preloaded after us: an object between us and libc that is no driver.
fn wrapper_behind(name: &CStr) -> Option<usize> {
    let mut behind_us = false;
    let mut found = None;
    images::for_each(|_, object| {
        if images::is_ours(object) {
            behind_us = true;
        } else if object.called() == b"libc.so.6" {
            return ControlFlow::Break(());
        } else if behind_us && Class::of(object).is_none() {
            found = object.lookup(name);
        }
        if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    found
}

/// The driver's own function behind a hook, past any other interposer; 0 if unknown or absent.
pub fn own(index: usize) -> usize {
    OWN[index].load(Ordering::Relaxed)
}

/// The driver's own function of any name; null if there is no driver or it lacks the name.
pub fn symbol(name: &CStr) -> *mut c_void {
    let class = Class::of_name(name);
    ensure_class(class);
    registered(class).and_then(|driver| driver.object.lookup(name)).unwrap_or(0) as *mut c_void
}

/// Whether an address lies in the process's driver.
pub fn contains(class: Class, address: usize) -> bool {
    registered(class).is_some_and(|driver| driver.object.contains(address))
}

/// Takes a library into which the driver's look-ups lead (as WSL's libcuda hands out its implementation's functions) as
/// part of the driver: its functions of hooked names are the driver's.
pub fn adopt_part(object: &Object) {
    for (index, hook) in HOOKS.iter().enumerate() {
        if let Some(address) = object.lookup(hook.name) {
            addresses::note(address, index);
        }
    }
}
