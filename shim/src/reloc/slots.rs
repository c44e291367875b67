//! The words through which an object calls others, and what they are changed to.

use core::cell::Cell;
use core::ffi::CStr;
use core::ops::ControlFlow;
use core::sync::atomic::{AtomicUsize, Ordering};

use super::namespaces::Namespace;
use super::untold::Untold;
use crate::driver::{self, Copy};
use crate::elf::{Object, Relocation};
use crate::entry::{self, next};
use crate::hooks::HOOKS;
use crate::images::{self, Class};

const R_X86_64_64: usize = 1;
const R_X86_64_GLOB_DAT: usize = 6;
const R_X86_64_JUMP_SLOT: usize = 7;

/// A loaded driver.
#[derive(Clone, Copy)]
pub struct Driver {
    /// The library.
    pub object: Object,
    /// Which one.
    pub class: Class,
    /// Where it is loaded.
    pub namespace: Namespace,
}

/// The loaded drivers, and the C library of each namespace.
#[derive(Default)]
pub struct Drivers {
    /// References to a second copy are left as they are (`GPUCAP_ON_ERROR=open`).
    pub second_passes: bool,
    /// References to `dlsym` whose end only the loader knows: each has its PLT entry here until the loader was made to tell.
    pub untold: Untold,
    /// Something was redirected.
    pub redirected: Cell<bool>,
    /// A second copy that something is bound to.
    pub second_bound: Cell<Option<Driver>>,
    found: [Option<Driver>; 16],
    libc: [Option<(Object, Namespace)>; 20],
}

impl Drivers {
    /// Notes an object if it is one.
    pub fn add(&mut self, object: &Object, namespace: Namespace) {
        if let Some(class) = Class::of(object) {
            if let Some(free) = self.found.iter_mut().find(|place| place.is_none()) {
                *free = Some(Driver { object: *object, class, namespace });
            }
        } else if matches!(object.called(), b"libc.so.6" | b"libdl.so.2")
            && object.defines(c"dlsym")
            && let Some(free) = self.libc.iter_mut().find(|place| place.is_none())
        {
            *free = Some((*object, namespace));
        }
    }

    /// Whether one is loaded.
    pub fn any(&self) -> bool {
        self.found[0].is_some()
    }

    /// Whether a driver of this class is in the program's namespace.
    pub fn in_program(&self, class: Class) -> bool {
        self.of(Namespace::Program, class).is_some()
    }

    /// Whether a copy is loaded that is not the process's driver.
    pub fn any_second(&self) -> bool {
        let second = |driver: &Driver| driver::standing(&driver.object, driver.class) == Some(Copy::Second);
        self.found.iter().flatten().any(second)
    }

    fn at(&self, address: usize) -> Option<Driver> {
        self.found.iter().flatten().find(|driver| driver.object.contains(address)).copied()
    }

    fn of(&self, namespace: Namespace, class: Class) -> Option<Driver> {
        self.found.iter().flatten().find(|driver| driver.class == class && driver.namespace == namespace).copied()
    }

    /// libc's function in a namespace; libdl's before glibc 2.34.
    fn libc_function(&self, namespace: Namespace, name: &CStr) -> Option<usize> {
        self.libc.iter().flatten().filter(|(_, of)| *of == namespace).find_map(|(object, _)| object.lookup(name))
    }

    fn libc_has(&self, name: &CStr, address: usize) -> bool {
        self.libc.iter().flatten().any(|(object, _)| object.lookup(name) == Some(address))
    }
}

/// A reference of an object to a function that is of interest.
enum Wanted {
    Hook(usize),
    Symbol,
    Versioned,
}

/// One such reference and where it is kept.
struct Slot {
    wanted: Wanted,
    address: usize,
    value: usize,
    lazy: bool,
}

/// All references of an object.
fn slots(object: &Object) -> impl Iterator<Item = Slot> + '_ {
    object.relocations().filter_map(move |relocation| slot(object, &relocation))
}

fn slot(object: &Object, relocation: &Relocation) -> Option<Slot> {
    let kind = relocation.kind();
    if !matches!(kind, R_X86_64_64 | R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT) {
        return None;
    }
    let symbol = object.symbol(relocation.symbol())?;
    if !symbol.is_undefined() {
        return None;
    }
    let wanted = wanted(object.name_of(&symbol)?)?;
    if kind == R_X86_64_64 && relocation.addend != 0 {
        return None;
    }
    let (address, value) = object.slot(relocation)?;
    // A PLT slot that was not called yet leads back into the object's own PLT.
    let lazy = kind == R_X86_64_JUMP_SLOT && object.contains(value);
    Some(Slot { wanted, address, value, lazy })
}

fn wanted(name: &CStr) -> Option<Wanted> {
    // SAFETY: a C string.
    if unsafe { entry::may_be_hooked(name.as_ptr()) } {
        return entry::index_of(name).map(Wanted::Hook);
    }
    match name.to_bytes() {
        b"dlsym" => Some(Wanted::Symbol),
        b"dlvsym" => Some(Wanted::Versioned),
        _ => None,
    }
}

/// The first driver that an object is bound to past us.
pub fn first_bound(object: &Object, namespace: Namespace, drivers: &Drivers) -> Option<Driver> {
    slots(object).find_map(|slot| match slot.wanted {
        Wanted::Hook(index) => drivers.at(slot.value).or_else(|| lazily_bound(&slot, index, namespace, drivers)),
        Wanted::Symbol | Wanted::Versioned => None,
    })
}

/// The driver that a slot of another namespace will lead to.
fn lazily_bound(slot: &Slot, index: usize, namespace: Namespace, drivers: &Drivers) -> Option<Driver> {
    if !slot.lazy || namespace == Namespace::Program {
        return None;
    }
    drivers.of(namespace, Class::of_name(HOOKS[index].name))
}

/// Redirects what is bound past us. Returns whether the object was ready: false while another thread is loading it.
pub fn redirect(object: &Object, namespace: Namespace, drivers: &Drivers) -> bool {
    if !is_relocated(object) {
        return false;
    }
    let mut ready = true;
    let untold = drivers.untold.count();
    for slot in slots(object) {
        if slot.value == 0 {
            // Not filled yet, or a weak reference of another namespace to what is not there.
            ready &= namespace != Namespace::Program;
        } else if !images::is_own(slot.value)
            && let Some(target) = target(&slot, namespace, drivers)
        {
            store(object, slot.address, target);
            drivers.redirected.set(true);
        }
    }
    ready && untold == drivers.untold.count()
}

/// Whether the loader is through with an object.
fn is_relocated(object: &Object) -> bool {
    match object.last_relocation().and_then(|last| object.slot(&last)) {
        // Before, a PLT slot holds an address of the file. (A weak reference may stay null.)
        Some((_, value)) => value == 0 || value >= object.end - object.start || object.base == 0,
        None => true,
    }
}

/// What a slot is to lead to; `None` if it is right as it is.
fn target(slot: &Slot, namespace: Namespace, drivers: &Drivers) -> Option<usize> {
    match slot.wanted {
        Wanted::Hook(index) => {
            let name = HOOKS[index].name;
            if let Some(driver) = drivers.at(slot.value).or_else(|| lazily_bound(slot, index, namespace, drivers)) {
                return hook_for(&driver, index, drivers);
            }
            let ours = slot.lazy && namespace == Namespace::Program && !is_defined_before_us(name);
            ours.then_some(HOOKS[index].addr as usize)
        }
        Wanted::Symbol | Wanted::Versioned => look_up(slot, namespace, drivers),
    }
}

fn hook_for(driver: &Driver, index: usize, drivers: &Drivers) -> Option<usize> {
    match driver::standing(&driver.object, driver.class) {
        None | Some(Copy::Driver) => Some(HOOKS[index].addr as usize),
        Some(Copy::Second) => {
            drivers.second_bound.set(Some(*driver));
            (!drivers.second_passes).then(|| entry::refusal(driver.class))
        }
    }
}

/// A `dlsym` that was bound to libc's keeps it behind ours. One that was not called yet would find ours by itself, unless the
/// object was bound past us: then it gets ours early.
fn look_up(slot: &Slot, namespace: Namespace, drivers: &Drivers) -> Option<usize> {
    let versioned = matches!(slot.wanted, Wanted::Versioned);
    let name = if versioned { c"dlvsym" } else { c"dlsym" };
    let in_front_of = |target| {
        if versioned { next::in_front_of_versioned(target) } else { next::in_front_of_symbol(target) }
    };
    match namespace {
        Namespace::Other(_) if slot.lazy => in_front_of(drivers.libc_function(namespace, name)?),
        Namespace::Program if slot.lazy => {
            let (own, behind) = if versioned {
                (next::own_versioned(), next::versioned(0))
            } else {
                (next::own_symbol(), next::symbol(0))
            };
            if drivers.libc_has(name, behind) && !is_defined_before_us(name) {
                return Some(own);
            }
            // Another interposer is there too: whether the object would reach it depends on how it was opened.
            drivers.untold.note(slot.value, versioned);
            None
        }
        _ if drivers.libc_has(name, slot.value) => in_front_of(slot.value),
        _ => None,
    }
}

/// Whether an object in front of us in the program's scope defines a name, so that references without `RTLD_DEEPBIND` end
/// there.
fn is_defined_before_us(name: &CStr) -> bool {
    let mut found = false;
    images::for_each(|_, object| {
        found |= !images::is_ours(object) && object.defines(name);
        if found || images::is_ours(object) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    found
}

/// Writes a slot, opening the page for it where the loader has made it read-only.
fn store(object: &Object, address: usize, target: usize) {
    const PAGE: usize = 4096;
    let page = address & !(PAGE - 1);
    let (start, end) = (object.relro.0 & !(PAGE - 1), object.relro.1 & !(PAGE - 1));
    let closed = (start..end).contains(&address);
    let protect = |bits| {
        // SAFETY: a page of the object's relocated data, which the loader itself opens and closes in this way; nothing else
        // changes its protection, since the loader is through with it and its lock is held.
        unsafe { libc::mprotect(page as *mut _, PAGE, bits) == 0 }
    };
    if closed && !protect(libc::PROT_READ | libc::PROT_WRITE) {
        return;
    }
    // SAFETY: an aligned word of the object's writable data that only the loader and we write, and that calls of the object
    // read atomically (one aligned load).
    unsafe { AtomicUsize::from_ptr(address as *mut usize) }.store(target, Ordering::Release);
    if closed {
        protect(libc::PROT_READ);
    }
}
