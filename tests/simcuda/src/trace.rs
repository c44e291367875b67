//! The trace of calls: one line each, `pid tid name how code`, where `how` is the way in which the caller got the function:
//! `linked` (its object imports the name), `gpa` (its object asked `cuGetProcAddress` for it), or `dlsym`.

use std::collections::HashSet;
use std::ffi::{CStr, c_char, c_void};
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::sync::LazyLock;

use parking_lot::Mutex;
use simdevice::Knobs;

use crate::codes::CUresult;

static FILE: LazyLock<Option<File>> = LazyLock::new(|| {
    let path = Knobs::get().trace.as_ref()?;
    OpenOptions::new().create(true).append(true).open(path).ok()
});

/// What each object, by its base, got from `cuGetProcAddress`.
static ASKED: LazyLock<Mutex<HashSet<(usize, &'static str)>>> = LazyLock::new(Mutex::default);

/// The caller gets `name` from `cuGetProcAddress`.
#[cold]
pub fn asked_for(name: &'static str) {
    if let Some(object) = caller() {
        ASKED.lock().insert((object.addr(), name));
    }
}

/// Writes the line of one call.
#[cold]
pub fn line(name: &'static str, code: CUresult) {
    let how = match caller() {
        Some(object) if imports(object, name) => "linked",
        Some(object) if ASKED.lock().contains(&(object.addr(), name)) => "gpa",
        _ => "dlsym",
    };
    let (pid, thread) = (std::process::id(), crate::devices::thread_id());
    if let Some(mut file) = FILE.as_ref() {
        // One write, so that lines of several threads and processes stay whole.
        let _ = file.write_all(format!("{pid} {thread} {name} {how} {code}\n").as_bytes());
    }
}

/// The base of the loaded object that holds `address`.
fn object_of(address: *const c_void) -> Option<*const c_void> {
    // SAFETY: dladdr(3) takes any address and fills a plain struct.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    (unsafe { libc::dladdr(address, &raw mut info) } != 0).then_some(info.dli_fbase.cast_const())
}

/// The object from which the driver was called: that of the innermost frame outside of our own.
fn caller() -> Option<*const c_void> {
    let mut frames = [std::ptr::null_mut(); 64];
    // SAFETY: backtrace(3) fills at most the 64 entries that it is told of.
    let count = unsafe { libc::backtrace(frames.as_mut_ptr(), 64) };
    let ours = object_of((line as *const ()).cast());
    let frames = frames.iter().take(usize::try_from(count).unwrap_or(0));
    frames.filter_map(|frame| object_of(*frame)).find(|object| Some(*object) != ours)
}

/// Whether the loaded object at `base` imports `name`: one of its relocations names it.
fn imports(base: *const c_void, name: &str) -> bool {
    let mut search = Search { base, name, found: false };
    // SAFETY: `visit` gets the pointer to `search`, which lives until the call returns.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.found
}

struct Search<'a> {
    base: *const c_void,
    name: &'a str,
    found: bool,
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, data: *mut c_void) -> i32 {
    // SAFETY: dl_iterate_phdr(3) hands out a valid description of a loaded object; `data` is the Search.
    let (info, search) = unsafe { (&*info, &mut *data.cast::<Search>()) };
    // SAFETY: dlpi_phdr points to dlpi_phnum program headers.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let start = headers.iter().find(|header| header.p_type == libc::PT_LOAD).map_or(0, |header| header.p_vaddr);
    let bias = usize::try_from(info.dlpi_addr).unwrap_or(0);
    if bias + (usize::try_from(start).unwrap_or(0) & !0xfff) != search.base.addr() {
        return 0;
    }
    if let Some(dynamic) = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC) {
        let dynamic = bias + usize::try_from(dynamic.p_vaddr).unwrap_or(0);
        search.found = named_by_relocations(dynamic, search.name);
    }
    1
}

/// Tags of the dynamic section (elf.h).
const DT_PLTRELSZ: u64 = 2;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_RELA: u64 = 7;
const DT_RELASZ: u64 = 8;
const DT_JMPREL: u64 = 23;

/// Reads the dynamic section at `dynamic`, whose addresses glibc has made absolute.
fn named_by_relocations(dynamic: usize, name: &str) -> bool {
    let at = std::ptr::with_exposed_provenance::<[u64; 2]>(dynamic);
    // SAFETY: a dynamic section is a list of (tag, value) that ends with tag 0.
    let tags = (0..).map(|i| unsafe { *at.add(i) }).take_while(|entry| entry[0] != 0);
    let mut values = [0_u64; 24];
    for [tag, value] in tags {
        if let Some(place) = usize::try_from(tag).ok().and_then(|tag| values.get_mut(tag)) {
            *place = value;
        }
    }
    let value = |tag: u64| usize::try_from(values[usize::try_from(tag).unwrap_or(0)]).unwrap_or(0);
    let symbol_name = |index: usize| {
        let symbol = std::ptr::with_exposed_provenance::<libc::Elf64_Sym>(value(DT_SYMTAB));
        // SAFETY: a relocation's symbol index lies in the object's symbol table, its name in the string table.
        unsafe {
            let offset = (*symbol.add(index)).st_name as usize;
            CStr::from_ptr(std::ptr::with_exposed_provenance::<c_char>(value(DT_STRTAB) + offset))
        }
    };
    [(DT_RELA, DT_RELASZ), (DT_JMPREL, DT_PLTRELSZ)].into_iter().any(|(table, size)| {
        let entries = std::ptr::with_exposed_provenance::<[u64; 3]>(value(table));
        (0..value(size) / 24).any(|i| {
            // SAFETY: the table has `size` bytes of (offset, info, addend).
            let index = usize::try_from(unsafe { (*entries.add(i))[1] } >> 32).unwrap_or(0);
            index != 0 && symbol_name(index).to_bytes() == name.as_bytes()
        })
    })
}
