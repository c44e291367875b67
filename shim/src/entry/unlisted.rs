//! What can't be capped: a second copy of the driver, and newer ABIs of allocating functions that the table does not know.

use core::ffi::{CStr, c_int};
use core::sync::atomic::{AtomicBool, Ordering};

use super::look::Question;
use super::{Answer, names};
use crate::elf::Object;
use crate::hooks::{HOOKS, Role};
use crate::images::{self, Class};
use crate::{driver, log, phase};

/// `CUDA_ERROR_NOT_PERMITTED`; takes any arguments, as the C calling convention allows.
unsafe extern "C" fn refuse_cuda() -> c_int {
    800
}

/// `NVML_ERROR_NO_PERMISSION`
unsafe extern "C" fn refuse_nvml() -> c_int {
    4
}

/// A function that refuses, as the functions of a class do.
pub fn refusal(class: Class) -> usize {
    match class {
        Class::Cuda => refuse_cuda as *const () as usize,
        Class::Nvml => refuse_nvml as *const () as usize,
    }
}

/// What a hooked name of a second copy of the driver leads to: a refusal, or with `GPUCAP_ON_ERROR=open` the copy's own
/// function at `address`.
pub fn second_copy(object: &Object, class: Class, address: usize) -> usize {
    let open = phase::on_error_open();
    say_second_copy(object.path(), class, open);
    if open { address } else { refusal(class) }
}

/// Says once what becomes of a second copy.
pub fn say_second_copy(path: &CStr, class: Class, open: bool) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if SAID.swap(true, Ordering::Relaxed) {
        return;
    }
    let (path, file) = (path.to_string_lossy(), class.file().to_string_lossy());
    if open {
        log::warn(format_args!("{path} is a second copy of {file}: its memory is not capped"));
    } else {
        log::error(format_args!(
            "{path} is a second copy of {file} in this process: its functions are refused, since only one can be capped (GPUCAP_ON_ERROR=open lets it through)"
        ));
    }
}

/// Whether an unknown ABI of an allocating function is let through; says so once.
pub fn unknown_abi_passes(name: &CStr) -> bool {
    static SAID: AtomicBool = AtomicBool::new(false);
    let open = phase::on_error_open();
    if !SAID.swap(true, Ordering::Relaxed) {
        let name = name.to_string_lossy();
        if open {
            log::warn(format_args!("this driver has a newer {name} than gpucap knows: its memory is not capped"));
        } else {
            log::error(format_args!(
                "this driver has a newer {name} than gpucap knows: it is refused (GPUCAP_ON_ERROR=open lets it through uncapped)"
            ));
        }
    }
    open
}

/// A name without its ABI suffix: `cuMemAlloc` of `cuMemAlloc_v2`, `cuMemAllocAsync` of `cuMemAllocAsync_ptsz`.
pub fn base(name: &[u8]) -> &[u8] {
    let name = name.strip_suffix(b"_ptsz").or_else(|| name.strip_suffix(b"_ptds")).unwrap_or(name);
    match name.iter().rposition(|byte| !byte.is_ascii_digit()) {
        Some(last) if last + 1 < name.len() => {
            name.get(..=last).and_then(|rest| rest.strip_suffix(b"_v")).unwrap_or(name)
        }
        _ => name,
    }
}

/// Whether `name` is, but for its ABI, a function that takes memory or hands out functions.
pub fn is_guarded(name: &[u8]) -> bool {
    HOOKS.iter().any(|hook| matches!(hook.role, Role::Alloc | Role::Lookup) && base(hook.name.to_bytes()) == base(name))
}

/// Answers a look-up of a name that is not in the table: straight through, unless it is a newer ABI of a guarded one.
pub fn answer(question: &Question) -> Answer {
    debug_assert!(names::index_of(question.name).is_none());
    if !is_guarded(question.name.to_bytes()) || phase::disabled() {
        return Answer::go(question.next);
    }
    let handle = if question.is_scope() { libc::RTLD_NEXT } else { question.handle };
    let found = question.ask(handle);
    let class = Class::of_name(question.name);
    let of_driver = found != 0
        && (driver::contains(class, found)
            || images::owner(found).is_some_and(|image| Class::of(&image.object) == Some(class)));
    let by_driver = images::owner(question.caller).is_some_and(|image| Class::of(&image.object).is_some());
    if !of_driver || by_driver || unknown_abi_passes(question.name) {
        return Answer::go(question.next);
    }
    Answer::value(refusal(class))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_of_a_name_has_no_abi_suffix() {
        for (name, expected) in [
            ("cuMemAlloc", "cuMemAlloc"),
            ("cuMemAlloc_v2", "cuMemAlloc"),
            ("cuMemAlloc_v13", "cuMemAlloc"),
            ("cuMemAllocAsync_ptsz", "cuMemAllocAsync"),
            ("cuMemPrefetchAsync_v2_ptsz", "cuMemPrefetchAsync"),
            ("cuGLMapBufferObject_v2_ptds", "cuGLMapBufferObject"),
            ("cuArray3DCreate_v2", "cuArray3DCreate"),
            ("cuLink2", "cuLink2"),
            ("42", "42"),
            ("", ""),
        ] {
            assert_eq!(base(name.as_bytes()), expected.as_bytes());
        }
    }

    #[test]
    fn only_allocating_and_look_up_functions_are_guarded_against_newer_abis() {
        for name in ["cuMemAlloc_v9", "cuMemCreate_v2", "cuGetProcAddress_v3", "cuMemAllocAsync_v2_ptsz"] {
            assert!(is_guarded(name.as_bytes()), "{name}");
        }
        for name in ["cuMemFree_v3", "cuMemcpy_v3", "cuMemAllocHost_v3"] {
            assert!(!is_guarded(name.as_bytes()), "{name}");
        }
    }
}
