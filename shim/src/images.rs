//! Which loaded object an address belongs to, and which objects are a driver's.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ops::ControlFlow;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::elf::Object;
use crate::forks;

/// The libraries whose functions are hooked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// `libcuda.so*`
    Cuda,
    /// `libnvidia-ml.so*`
    Nvml,
}

/// How many classes there are.
pub const CLASSES: usize = 2;

impl Class {
    /// The class that a hooked name belongs to.
    pub fn of_name(name: &CStr) -> Class {
        if name.to_bytes().starts_with(b"nvml") { Class::Nvml } else { Class::Cuda }
    }

    /// The class of a library; `None` for any other object.
    pub fn of(object: &Object) -> Option<Class> {
        let called =
            |beginning: &[u8]| object.called().starts_with(beginning) || object.file_name().starts_with(beginning);
        if called(b"libcuda.so") && object.defines(c"cuInit") {
            Some(Class::Cuda)
        } else if called(b"libnvidia-ml.so") && (object.defines(c"nvmlInit_v2") || object.defines(c"nvmlInit")) {
            Some(Class::Nvml)
        } else {
            None
        }
    }

    /// The name under which programs load it.
    pub fn file(self) -> &'static CStr {
        match self {
            Class::Cuda => c"libcuda.so.1",
            Class::Nvml => c"libnvidia-ml.so.1",
        }
    }
}

/// How often the loader has added and removed objects, over all namespaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Generation {
    /// `dlpi_adds`
    pub adds: u64,
    /// `dlpi_subs`
    pub subs: u64,
}

/// Calls `visit` for each object of the program's namespace in load order, with its position, while the loader's list is
/// held still. `visit` must not call the loader (lock order: `dl_iterate_phdr` holds the inner one of its locks).
pub fn for_each(mut visit: impl FnMut(usize, &Object) -> ControlFlow<()>) {
    let mut position = 0;
    walk(|info| {
        let at = position;
        position += 1;
        let Ok(base) = usize::try_from(info.dlpi_addr) else {
            return ControlFlow::Continue(());
        };
        // SAFETY: dl_iterate_phdr(3) reports headers and name of an object that stays mapped during the callback; who keeps
        // what it reads does so only for objects that it knows to stay.
        let object = unsafe {
            Object::from_segments(base, info.dlpi_phdr as usize, usize::from(info.dlpi_phnum), info.dlpi_name)
        };
        object.map_or(ControlFlow::Continue(()), |object| visit(at, &object))
    });
}

/// The loader's counters.
pub fn generation() -> Generation {
    let mut found = Generation { adds: 0, subs: 0 };
    walk(|info| {
        found = Generation { adds: info.dlpi_adds, subs: info.dlpi_subs };
        ControlFlow::Break(())
    });
    found
}

fn walk<F: FnMut(&libc::dl_phdr_info) -> ControlFlow<()>>(mut visit: F) {
    unsafe extern "C" fn each<F: FnMut(&libc::dl_phdr_info) -> ControlFlow<()>>(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        visit: *mut c_void,
    ) -> c_int {
        // SAFETY: `visit` is the closure that `walk` passed, not used elsewhere meanwhile; `info` is the loader's valid
        // record (dl_iterate_phdr(3)).
        let (visit, info) = unsafe { (&mut *visit.cast::<F>(), &*info) };
        c_int::from(visit(info).is_break())
    }
    // SAFETY: the callback matches the type of the closure behind the pointer, which outlives the call.
    forks::apart(|| unsafe { libc::dl_iterate_phdr(Some(each::<F>), (&raw mut visit).cast()) });
}

/// Beginning of the loader's `struct link_map`, which is also what a handle of `dlopen` points to (link.h).
#[repr(C)]
pub struct LinkMap {
    /// What was added to every address of the file.
    pub base: usize,
    /// Path.
    pub name: *const c_char,
    /// The dynamic table.
    pub dynamic: usize,
    /// The next object of the namespace.
    pub next: *mut LinkMap,
    /// The one before.
    pub previous: *mut LinkMap,
}

/// An object with what the loader calls it.
#[derive(Clone, Copy)]
pub struct Loaded {
    /// The object.
    pub object: Object,
    /// Its link map; null where it was not asked for.
    pub map: *mut LinkMap,
    /// Place in the program's namespace in load order; `None` in any other namespace.
    pub position: Option<usize>,
}

/// The object that `address` lies in.
pub fn owner(address: usize) -> Option<Loaded> {
    let mut found = None;
    for_each(|position, object| {
        if object.contains(address) {
            found = Some(Loaded { object: *object, map: core::ptr::null_mut(), position: Some(position) });
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
    found.or_else(|| elsewhere(address))
}

unsafe extern "C" {
    fn dladdr1(address: *const c_void, info: *mut libc::Dl_info, extra: *mut *mut c_void, flags: c_int) -> c_int;
}

/// As [`owner`], for objects of other namespaces (`dlmopen`), which `dl_iterate_phdr` does not show to us.
fn elsewhere(address: usize) -> Option<Loaded> {
    const RTLD_DL_LINKMAP: c_int = 2;
    // SAFETY: all zero is a valid Dl_info.
    let mut info: libc::Dl_info = unsafe { core::mem::zeroed() };
    let mut map: *mut c_void = core::ptr::null_mut();
    // SAFETY: dladdr1(3) takes any address and fills both on success.
    let known = unsafe { dladdr1(address as *const c_void, &raw mut info, &raw mut map, RTLD_DL_LINKMAP) } != 0;
    if !known || map.is_null() {
        return None;
    }
    let map = map.cast::<LinkMap>();
    // SAFETY: dladdr1 gave the object's link map and the address of its file header, and the object stays loaded: it is
    // the caller's, or it just answered the caller's look-up.
    let object = unsafe { Object::from_header(info.dli_fbase as usize, (*map).base, (*map).name) }?;
    Some(Loaded { object, map, position: None })
}

/// A handle for look-ups in an object and its dependencies; closed when dropped.
pub struct Handle(*mut c_void);

impl Loaded {
    /// Opens the object again. Its link map alone will not do: the loader lists the dependencies of an object that came with
    /// the program only when somebody opens it. `None` for the program, whose scope is everybody's.
    pub fn open(&self) -> Option<Handle> {
        self.open_with(libc::RTLD_LAZY)
    }

    /// As [`Loaded::open`], and keeps the object loaded until the process ends, whatever its users close.
    pub fn open_for_good(&self) -> Option<Handle> {
        self.open_with(libc::RTLD_NOW | libc::RTLD_NODELETE)
    }

    fn open_with(&self, flags: c_int) -> Option<Handle> {
        let path = self.object.path();
        if path.is_empty() {
            return None;
        }
        let mut namespace: libc::Lmid_t = libc::LM_ID_BASE;
        if self.position.is_none() && !self.map.is_null() {
            // SAFETY: the link map of a loaded object is its handle, and RTLD_DI_LMID writes one Lmid_t (dlinfo(3)).
            unsafe { libc::dlinfo(self.map.cast(), libc::RTLD_DI_LMID, (&raw mut namespace).cast()) };
        }
        // SAFETY: dlmopen(3) with the path under which the object is loaded in its namespace; nothing new is loaded.
        let handle = unsafe { libc::dlmopen(namespace, path.as_ptr(), flags | libc::RTLD_NOLOAD) };
        (!handle.is_null()).then_some(Handle(handle))
    }
}

impl Handle {
    /// For `dlsym`.
    pub fn get(&self) -> *mut c_void {
        self.0
    }

    /// Leaves it open.
    pub fn keep(self) -> *mut c_void {
        let handle = self.0;
        core::mem::forget(self);
        handle
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: opened by us and closed once.
        unsafe { libc::dlclose(self.0) };
    }
}

/// `struct r_debug` (link.h).
#[repr(C)]
pub struct DebugRecord {
    /// From 2 on, `more` exists (glibc 2.35).
    pub version: c_int,
    /// First object of the namespace.
    pub map: *mut LinkMap,
    breakpoint: usize,
    state: c_int,
    loader: usize,
    /// The next namespace's record.
    pub more: *mut DebugRecord,
}

/// The program's debug record; null where the loader keeps none.
pub fn debug_record(program: &Object) -> *mut DebugRecord {
    program.debug_record() as *mut DebugRecord
}

/// The object of a handle that `dlopen` gave; `None` where its header can't be read.
///
/// # Safety
/// `map` is a handle of an object that stays loaded during the call.
pub unsafe fn of_handle(map: *mut LinkMap) -> Option<Loaded> {
    // SAFETY: a handle is a link map in glibc, valid while the object is loaded.
    let dynamic = unsafe { (*map).dynamic };
    let mut found = owner(dynamic)?;
    found.map = map;
    Some(found)
}

static AT_START: AtomicUsize = AtomicUsize::new(usize::MAX);

/// How many objects came with the program; those at higher positions were opened later.
pub fn at_start() -> usize {
    AT_START.load(Ordering::Relaxed)
}

/// Counts them. Called when we are loaded.
pub fn count_at_start() {
    let mut count = 0;
    walk(|_| {
        count += 1;
        ControlFlow::Continue(())
    });
    AT_START.store(count, Ordering::Relaxed);
}

static OWN: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Our own extent.
fn own_extent() -> (usize, usize) {
    let known = OWN[1].load(Ordering::Acquire);
    if known != 0 {
        return (OWN[0].load(Ordering::Relaxed), known);
    }
    let inside = own_extent as *const () as usize;
    let mut extent = (0, 0);
    for_each(|_, object| {
        if object.contains(inside) {
            extent = (object.start, object.end);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
    if extent.1 != 0 {
        OWN[0].store(extent.0, Ordering::Relaxed);
        OWN[1].store(extent.1, Ordering::Release);
    }
    extent
}

/// Whether an object is libgpucap.so itself.
pub fn is_ours(object: &Object) -> bool {
    object.contains(is_ours as *const () as usize)
}

/// Whether an address lies in libgpucap.so itself.
pub fn is_own(address: usize) -> bool {
    let (start, end) = own_extent();
    (start..end).contains(&address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_where_the_loader_finds_them() {
        for name in [c"malloc", c"dlsym", c"environ", c"pthread_create", c"no_such_name"] {
            // SAFETY: dlsym(3) with a C string.
            let expected = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) } as usize;
            let mut found = 0;
            for_each(|_, object| {
                found = object.lookup(name).unwrap_or(0);
                if found != 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            assert_eq!(found, expected, "{name:?}");
        }
    }

    #[test]
    fn an_address_belongs_to_the_object_that_is_mapped_there() {
        let libc = owner(libc::malloc as *const () as usize).expect("libc is loaded");
        assert_eq!(libc.object.called(), b"libc.so.6");
        assert!(libc.position.is_some());
        assert!(is_own(owner as *const () as usize));
        assert!(owner(8).is_none());
    }

    #[test]
    fn nothing_here_is_a_driver() {
        let mut drivers = 0;
        for_each(|_, object| {
            drivers += usize::from(Class::of(object).is_some());
            ControlFlow::Continue(())
        });
        assert_eq!(drivers, 0);
    }
}
