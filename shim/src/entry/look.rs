//! What a look-up of a hooked name is answered.
//!
//! First the chain behind us is asked, so that a name is there if and only if it would be there without us. Then a function
//! of the process's driver is replaced by the hook of the same name, which has the same signature.

use core::ffi::{CStr, c_void};

use super::scope::{self, Found};
use super::{Answer, hide, names, next, unlisted};
use crate::driver::{self, Copy};
use crate::hooks::{HOOKS, REAL};
use crate::images::{self, Class, LinkMap, Loaded};
use crate::{phase, reloc};
use core::sync::atomic::Ordering;

/// One call of `dlsym` or `dlvsym`.
pub struct Question<'a> {
    /// As the caller gave it.
    pub handle: *mut c_void,
    /// The name asked for.
    pub name: &'a CStr,
    /// `dlvsym`'s version.
    pub version: Option<&'a CStr>,
    /// Return address of the call.
    pub caller: usize,
    /// The function behind us that the call would have reached.
    pub next: usize,
}

impl Question<'_> {
    /// Asks the function behind us, from our image, about the same name.
    pub fn ask(&self, handle: *mut c_void) -> usize {
        match self.version {
            None => next::ask(self.next, handle, self.name),
            Some(version) => next::ask_versioned(self.next, handle, self.name, version),
        }
    }

    /// Whether the handle stands for a scope and not for one object.
    pub fn is_scope(&self) -> bool {
        self.handle == libc::RTLD_DEFAULT || self.handle == libc::RTLD_NEXT
    }
}

/// Answers a look-up whose name begins as hooked names do.
#[cold]
#[inline(never)]
pub fn answer(question: &Question) -> Answer {
    if images::is_own(question.caller) {
        return Answer::go(question.next);
    }
    let Some(index) = names::index_of(question.name) else {
        reloc::notice(question.handle);
        return unlisted::answer(question);
    };
    if !phase::disabled() {
        reloc::refresh(question.handle);
    }
    let caller = images::owner(question.caller);
    let found = scope::without_us(question, caller.as_ref());
    match found {
        Found::Natural => Answer::go(question.next),
        Found::Nowhere => {
            hide::hide(HOOKS[index].name);
            Answer::go(question.next)
        }
        Found::At(address) => {
            if question.is_scope() && driver::in_global_scope(Class::of_name(question.name)) {
                hide::show(HOOKS[index].name);
            }
            let value = if phase::disabled() || is_behind_us(caller.as_ref(), index) {
                address
            } else {
                in_place_of(question, index, address)
            };
            next::settle(next::symbol(0));
            if question.version.is_none() && question.next != next::symbol(0) {
                next::settle(question.next);
            }
            Answer::value(value)
        }
    }
}

/// Whether the caller is what our hook will call: a driver, or an interposer between us and the driver.
pub fn is_behind_us(caller: Option<&Loaded>, index: usize) -> bool {
    caller.is_some_and(|caller| {
        Class::of(&caller.object).is_some() || caller.object.contains(REAL[index].load(Ordering::Acquire) as usize)
    })
}

/// What is returned for a name that leads to `address` without us.
fn in_place_of(question: &Question, index: usize, address: usize) -> usize {
    let hook = HOOKS[index].addr as usize;
    let class = Class::of_name(question.name);
    let Some(image) = images::owner(address) else {
        return address;
    };
    if Class::of(&image.object) == Some(class) {
        return of_copy(&image, class, hook, address);
    }
    // Somebody else's function. On the driver's own handle, another interposer has answered for the driver.
    if !question.is_scope() {
        // SAFETY: the look-up on this handle just succeeded, so it is one.
        let asked = unsafe { images::of_handle(question.handle.cast::<LinkMap>()) };
        if let Some(asked) = asked.filter(|asked| Class::of(&asked.object) == Some(class)) {
            return of_copy(&asked, class, hook, address);
        }
        let behind_us = image.object.contains(REAL[index].load(Ordering::Acquire) as usize);
        return if behind_us { hook } else { address };
    }
    if driver::present(class) { hook } else { address }
}

fn of_copy(image: &Loaded, class: Class, hook: usize, address: usize) -> usize {
    match driver::adopt(image, class) {
        Copy::Driver => hook,
        Copy::Second => unlisted::second_copy(&image.object, class, address),
    }
}
