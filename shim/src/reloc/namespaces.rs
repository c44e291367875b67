//! All loaded objects, those of other namespaces (`dlmopen`) included.
//!
//! `dlsym` sees only the namespace of who asks, and so does `dl_iterate_phdr`. The others are reached through the loader's
//! records for debuggers, where they list all namespaces (glibc 2.35), and through handles that pass by.

use core::ops::ControlFlow;

use crate::elf::Object;
use crate::images::{self, DebugRecord, LinkMap};

/// Which namespace an object is in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Namespace {
    /// The program's.
    Program,
    /// Another one, known by the link map of its first object.
    Other(*mut LinkMap),
}

/// Calls `visit` for every object, while the loader's lists are held still. `visit` must not call the loader.
pub fn for_each(handle: *mut LinkMap, mut visit: impl FnMut(&Object, Namespace)) {
    images::for_each(|position, object| {
        // The program comes first; it has the loader's record.
        if position == 0 {
            others(images::debug_record(object), handle, &mut visit);
        }
        visit(object, Namespace::Program);
        ControlFlow::Continue(())
    });
}

fn others(record: *mut DebugRecord, handle: *mut LinkMap, visit: &mut impl FnMut(&Object, Namespace)) {
    if record.is_null() {
        return;
    }
    // SAFETY: the loader's own record, which lives as long as the process; it and the lists of link maps do not change while
    // dl_iterate_phdr holds the loader's lock.
    let program = unsafe { &*record };
    let mut seen_handle = handle.is_null();
    let mut next = if program.version >= 2 { program.more } else { core::ptr::null_mut() };
    let given = if seen_handle { core::ptr::null_mut() } else { first_of(handle) };
    seen_handle |= given == program.map;
    // glibc has at most 16 namespaces.
    for _ in 0..16 {
        if next.is_null() {
            break;
        }
        // SAFETY: as above.
        let record = unsafe { &*next };
        seen_handle |= record.map == given;
        each(record.map, visit);
        next = record.more;
    }
    if !seen_handle {
        each(given, visit);
    }
}

fn first_of(mut map: *mut LinkMap) -> *mut LinkMap {
    // SAFETY: a handle whose object is loaded, in a list that does not change meanwhile.
    unsafe {
        while !(*map).previous.is_null() {
            map = (*map).previous;
        }
    }
    map
}

fn each(first: *mut LinkMap, visit: &mut impl FnMut(&Object, Namespace)) {
    let mut map = first;
    while !map.is_null() {
        // SAFETY: a link map of a list that does not change meanwhile.
        let entry = unsafe { &*map };
        if let Some(object) = object_of(entry) {
            visit(&object, Namespace::Other(first));
        }
        map = entry.next;
    }
}

/// The object of a link map, by the file header at its load address.
fn object_of(map: &LinkMap) -> Option<Object> {
    const PAGE: usize = 4096;
    if map.base == 0 || !map.base.is_multiple_of(PAGE) {
        return None;
    }
    let mut resident = 0_u8;
    // An object whose first segment is not at its load address has nothing there.
    // SAFETY: mincore(2) fails for what is not mapped, and writes one byte for one page.
    let mapped = unsafe { libc::mincore(map.base as *mut _, PAGE, &raw mut resident) } == 0;
    if !mapped {
        return None;
    }
    // SAFETY: mapped, and the loader maps the file's first page there; checked for the header's magic.
    unsafe { Object::from_header(map.base, map.base, map.name) }
}
