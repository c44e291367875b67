//! The ways in: `dlsym` and `dlvsym` in front of the loader's, and `cuGetProcAddress`.
//!
//! Both exports ask [`filter`] first and jump to the next function of that name in scope when there is nothing for us to
//! say. They jump with the registers and the return address of the original call, because the loader finds out from the
//! return address who is asking: that decides what `RTLD_NEXT` and `RTLD_DEFAULT` mean and what `dlerror` says.

use core::arch::naked_asm;
use core::ffi::{CStr, c_char, c_void};

use crate::reloc;

mod gpa;
mod hide;
mod look;
mod names;
pub mod next;
mod scope;
mod unlisted;

pub use gpa::{get_proc_address, get_proc_address_v2};
pub use hide::at_load;
pub use names::{index_of, may_be_hooked};
pub use unlisted::{refusal, say_second_copy};

use look::Question;

/// What the assembly below does next; comes back in rax and rdx.
#[repr(C)]
struct Answer {
    /// Returned to the caller if `go` is null.
    value: *mut c_void,
    /// Where to jump.
    go: usize,
}

impl Answer {
    fn go(next: usize) -> Answer {
        Answer { value: core::ptr::null_mut(), go: next }
    }

    fn value(value: usize) -> Answer {
        Answer { value: value as *mut c_void, go: 0 }
    }
}

macro_rules! chained {
    ($(#[$doc:meta])* $kind:ident $name:ident $($slot:tt)?) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As the function of this name in dlfcn.h.
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name$(<const $slot: usize>)?() {
            chained!(@$kind 0 $($slot)?)
        }
    };
    (@dlsym $zero:literal $($slot:ident)?) => {
        naked_asm!(
            ".cfi_startproc",
            "endbr64",
            "push rdi",
            "push rsi",
            "sub rsp, 8",
            ".cfi_adjust_cfa_offset 24",
            "mov rdx, [rsp + 24]",
            "mov ecx, {slot}",
            "call {filter}",
            "add rsp, 8",
            "pop rsi",
            "pop rdi",
            ".cfi_adjust_cfa_offset -24",
            "test rdx, rdx",
            "jz 2f",
            "jmp rdx",
            "2:",
            "ret",
            ".cfi_endproc",
            slot = const chained!(@slot $zero $($slot)?),
            filter = sym filter,
        )
    };
    (@dlvsym $zero:literal $($slot:ident)?) => {
        naked_asm!(
            ".cfi_startproc",
            "endbr64",
            "push rdi",
            "push rsi",
            "push rdx",
            ".cfi_adjust_cfa_offset 24",
            "mov rcx, [rsp + 24]",
            "mov r8d, {slot}",
            "call {filter}",
            "mov rcx, rdx",
            "pop rdx",
            "pop rsi",
            "pop rdi",
            ".cfi_adjust_cfa_offset -24",
            "test rcx, rcx",
            "jz 2f",
            "jmp rcx",
            "2:",
            "ret",
            ".cfi_endproc",
            slot = const chained!(@slot $zero $($slot)?),
            filter = sym filter_versioned,
        )
    };
    (@slot $zero:literal) => { $zero };
    (@slot $zero:literal $slot:ident) => { $slot };
}

#[cfg(not(target_arch = "x86_64"))]
compile_error!("gpucap's ways in are written for x86-64 only");

chained! {
    /// `dlsym` for objects that were bound past the export, one for each function that they were bound to.
    dlsym dlsym_for SLOT
}
chained! {
    /// `dlvsym` likewise.
    dlvsym dlvsym_for SLOT
}

/// The exports. They are slot 0, whose next function is found by asking the loader.
#[cfg(not(test))]
mod exports {
    use super::{filter, filter_versioned, naked_asm};

    chained! {
        /// In front of the loader's `dlsym`.
        #[unsafe(no_mangle)]
        dlsym dlsym
    }
    chained! {
        /// In front of the loader's `dlvsym`.
        #[unsafe(no_mangle)]
        dlvsym dlvsym
    }
}

/// Decides about one call of `dlsym`. `caller` is the return address of the call.
///
/// # Safety
/// The arguments are those of a call of `dlsym`: `name` is null or a C string.
unsafe extern "C" fn filter(handle: *mut c_void, name: *const c_char, caller: usize, slot: usize) -> Answer {
    let next = next::symbol(slot);
    // SAFETY: the caller's promise.
    if !unsafe { names::may_be_hooked(name) } {
        reloc::notice(handle);
        return Answer::go(next);
    }
    // SAFETY: checked to be a C string by the line above.
    let name = unsafe { CStr::from_ptr(name) };
    look::answer(&Question { handle, name, version: None, caller, next })
}

/// Decides about one call of `dlvsym`.
///
/// # Safety
/// The arguments are those of a call of `dlvsym`: `name` and `version` are null or C strings.
unsafe extern "C" fn filter_versioned(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
    caller: usize,
    slot: usize,
) -> Answer {
    let next = next::versioned(slot);
    // SAFETY: the caller's promise.
    if version.is_null() || !unsafe { names::may_be_hooked(name) } {
        reloc::notice(handle);
        return Answer::go(next);
    }
    // SAFETY: checked to be C strings.
    let (name, version) = unsafe { (CStr::from_ptr(name), CStr::from_ptr(version)) };
    look::answer(&Question { handle, name, version: Some(version), caller, next })
}
