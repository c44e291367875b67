//! What a look-up would find if libgpucap.so were not there.

use core::ffi::CStr;
use core::ops::ControlFlow;

use super::look::Question;
use crate::images::{self, LinkMap, Loaded};

/// What is found without us.
pub enum Found {
    /// The function behind us finds it by itself: we are not in the way.
    Natural,
    /// Nothing, though our own export would be found.
    Nowhere,
    /// This function.
    At(usize),
}

/// Answers `question` as if we were not loaded. `caller` is the object that asks; `None` for code outside any object,
/// which the loader takes for the program's.
pub fn without_us(question: &Question, caller: Option<&Loaded>) -> Found {
    if !question.is_scope() {
        return by_handle(question);
    }
    if question.version.is_some() {
        // Our exports have no version, so a look-up with one never stops at them.
        return match question.ask(libc::RTLD_NEXT) {
            0 => Found::Natural,
            found => Found::At(found),
        };
    }
    let position = match caller {
        Some(caller) => match caller.position {
            Some(position) => position,
            None => return elsewhere(question, caller),
        },
        None if question.handle == libc::RTLD_NEXT => return Found::Natural,
        None => 0,
    };
    if question.handle == libc::RTLD_NEXT { next(question, caller, position) } else { default(question, caller) }
}

fn by_handle(question: &Question) -> Found {
    match question.ask(question.handle) {
        0 => Found::Natural,
        // The program's handle leads to our exports; so does an interposer behind us that answers for a library with the
        // name of its own function, which in the program's scope is ours.
        found if images::is_own(found) => {
            // SAFETY: the look-up on this handle just succeeded, so it is one.
            let asked = unsafe { images::of_handle(question.handle.cast::<LinkMap>()) };
            match asked.and_then(|asked| asked.object.lookup(question.name)) {
                Some(found) => Found::At(found),
                None => after_us(question).map_or(Found::Nowhere, Found::At),
            }
        }
        found => Found::At(found),
    }
}

fn default(question: &Question, caller: Option<&Loaded>) -> Found {
    if Definers::of(question.name).before_us(0) {
        return Found::Natural;
    }
    after_us(question).or_else(|| own_scope(question, caller)).map_or(Found::Nowhere, Found::At)
}

/// What is found in the program's scope after us.
fn after_us(question: &Question) -> Option<usize> {
    match question.ask(libc::RTLD_NEXT) {
        0 => None,
        found if images::is_own(found) => {
            let definers = Definers::of(question.name);
            definers.first_after(definers.ours)
        }
        found => Some(found),
    }
}

fn next(question: &Question, caller: Option<&Loaded>, position: usize) -> Found {
    let definers = Definers::of(question.name);
    if position < definers.ours {
        if definers.before_us(position + 1) {
            return Found::Natural;
        }
        return after_us(question).map_or(Found::Nowhere, Found::At);
    }
    if position >= images::at_start() {
        // Opened later: "next" is among its own dependencies.
        return own_scope(question, caller).map_or(Found::Natural, Found::At);
    }
    let Some(after) = definers.first_after(position) else {
        return Found::Natural;
    };
    // What comes later in load order counts if it is in the program's scope.
    if after_us(question).is_some() { Found::At(after) } else { Found::Natural }
}

/// In a namespace of its own (dlmopen) a caller never sees our exports.
fn elsewhere(question: &Question, caller: &Loaded) -> Found {
    own_scope(question, Some(caller)).map_or(Found::Natural, Found::At)
}

/// What the caller and its own dependencies have.
fn own_scope(question: &Question, caller: Option<&Loaded>) -> Option<usize> {
    let caller = caller.filter(|caller| caller.position != Some(0))?;
    let handle = caller.open()?;
    let found = question.ask(handle.get());
    let skip = question.handle == libc::RTLD_NEXT && caller.object.contains(found);
    (found != 0 && !skip && !images::is_own(found)).then_some(found)
}

/// The objects of the program's namespace that define a name, in load order.
struct Definers {
    ours: usize,
    found: [(usize, usize); Definers::MOST],
    count: usize,
}

impl Definers {
    const MOST: usize = 16;

    fn of(name: &CStr) -> Definers {
        let mut definers = Definers { ours: usize::MAX, found: [(0, 0); Definers::MOST], count: 0 };
        images::for_each(|position, object| {
            if images::is_ours(object) {
                definers.ours = position;
            } else if let Some(address) = object.lookup(name)
                && let Some(place) = definers.found.get_mut(definers.count)
            {
                *place = (position, address);
                definers.count += 1;
            }
            ControlFlow::Continue(())
        });
        definers
    }

    fn all(&self) -> &[(usize, usize)] {
        self.found.get(..self.count).unwrap_or(&[])
    }

    /// Whether one stands in front of us, from a position on.
    fn before_us(&self, from: usize) -> bool {
        self.all().iter().any(|(position, _)| (from..self.ours).contains(position))
    }

    fn first_after(&self, position: usize) -> Option<usize> {
        self.all().iter().find(|(at, _)| *at > position).map(|(_, address)| *address)
    }
}
