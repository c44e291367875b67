//! What the runtime libraries keep beside a context (private table CONTEXT_LOCAL_STORAGE).

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::LazyLock;

use parking_lot::Mutex;

use crate::api::Out;
use crate::codes::{CUresult, INVALID_CONTEXT, INVALID_HANDLE, INVALID_VALUE};
use crate::ctx;

/// Called with (context, key, value) when the context goes.
type Destructor = Option<unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void)>;

/// (context, key) → (value, destructor), addresses as numbers.
type Store = HashMap<(usize, usize), (usize, Destructor)>;

static STORE: LazyLock<Mutex<Store>> = LazyLock::new(Mutex::default);

/// The context that a handle means; null is the current one.
fn resolve(context: *mut c_void) -> Result<usize, CUresult> {
    if context.is_null() {
        ctx::current_handle().map(<*mut c_void>::addr).ok_or(INVALID_CONTEXT)
    } else {
        Ok(context.addr())
    }
}

pub extern "C" fn put(context: *mut c_void, key: *mut c_void, value: *mut c_void, destructor: Destructor) -> CUresult {
    match resolve(context) {
        Ok(context) => {
            STORE.lock().insert((context, key.addr()), (value.expose_provenance(), destructor));
            0
        }
        Err(code) => code,
    }
}

pub extern "C" fn delete(context: *mut c_void, key: *mut c_void) -> CUresult {
    match resolve(context) {
        Ok(context) => {
            STORE.lock().remove(&(context, key.addr()));
            0
        }
        Err(code) => code,
    }
}

pub extern "C" fn get(value: Out<*mut c_void>, context: *mut c_void, key: *mut c_void) -> CUresult {
    if value.is_null() {
        return INVALID_VALUE;
    }
    let context = match resolve(context) {
        Ok(context) => context,
        Err(code) => return code,
    };
    match STORE.lock().get(&(context, key.addr())) {
        Some((known, _)) => value.answer(std::ptr::with_exposed_provenance_mut(*known)),
        None => INVALID_HANDLE,
    }
}

/// The context is going: runs the destructors of what was kept beside it.
pub fn context_gone(context: *mut c_void) {
    let mut gone = Vec::new();
    STORE.lock().retain(|&(owner, key), &mut (value, destructor)| {
        if owner == context.addr() {
            gone.push((key, value, destructor));
        }
        owner != context.addr()
    });
    for (key, value, destructor) in gone {
        if let Some(destructor) = destructor {
            let [key, value] = [key, value].map(std::ptr::with_exposed_provenance_mut);
            // SAFETY: the library that put the value gave the function for exactly this call.
            unsafe { destructor(context, key, value) };
        }
    }
}
