//! User objects: what a program wants destroyed with the last graph that uses it.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::LazyLock;

use parking_lot::Mutex;

use crate::api::{Out, cuda_api};
use crate::codes::{CUresult, INVALID_VALUE};
use crate::graphs;

type Destroy = Option<unsafe extern "C" fn(*mut c_void)>;

/// Handle → (object, its destructor, references).
type Objects = HashMap<usize, (usize, Destroy, u32)>;
static OBJECTS: LazyLock<Mutex<Objects>> = LazyLock::new(Mutex::default);

/// Gives `count` references back; the last one destroys the object.
pub fn release(handle: usize, count: u32) {
    let gone = {
        let mut objects = OBJECTS.lock();
        let Some(entry) = objects.get_mut(&handle) else {
            return;
        };
        entry.2 = entry.2.saturating_sub(count);
        if entry.2 > 0 {
            return;
        }
        objects.remove(&handle)
    };
    if let Some((object, Some(destroy), _)) = gone {
        // SAFETY: the program gave this function for this object.
        unsafe { destroy(std::ptr::with_exposed_provenance_mut(object)) };
    }
}

fn retain(handle: usize, count: u32) -> CUresult {
    match OBJECTS.lock().get_mut(&handle) {
        Some(entry) if count > 0 => {
            entry.2 += count;
            0
        }
        _ => INVALID_VALUE,
    }
}

cuda_api! {
    fn cuUserObjectCreate(out: Out<usize>, object: *mut c_void, destroy: Destroy, count: u32, flags: u32) -> CUresult {
        // The one flag there is, and it is required: destruction is not ordered with the host.
        if out.is_null() || destroy.is_none() || count == 0 || flags != 1 {
            return INVALID_VALUE;
        }
        let mut objects = OBJECTS.lock();
        let handle = (1..).map(|i| 16 * i).find(|handle| !objects.contains_key(handle)).unwrap_or(0);
        objects.insert(handle, (object.expose_provenance(), destroy, count));
        out.answer(handle)
    }

    fn cuUserObjectRetain(handle: usize, count: u32) -> CUresult {
        retain(handle, count)
    }

    fn cuUserObjectRelease(handle: usize, count: u32) -> CUresult {
        if count == 0 || !OBJECTS.lock().contains_key(&handle) {
            return INVALID_VALUE;
        }
        release(handle, count);
        0
    }

    fn cuGraphRetainUserObject(graph: graphs::Handle, handle: usize, count: u32, flags: u32) -> CUresult {
        const MOVE: u32 = 1;
        let graph = match graphs::graph(graph) {
            Ok(graph) if flags & !MOVE == 0 => graph,
            Ok(_) => return INVALID_VALUE,
            Err(code) => return code,
        };
        if flags & MOVE == 0 && retain(handle, count) != 0 {
            return INVALID_VALUE;
        }
        *graph.objects.lock().entry(handle).or_default() += count;
        0
    }

    fn cuGraphReleaseUserObject(graph: graphs::Handle, handle: usize, count: u32) -> CUresult {
        match graphs::graph(graph) {
            Ok(graph) => {
                let mut objects = graph.objects.lock();
                match objects.get_mut(&handle) {
                    Some(held) if *held >= count => {
                        *held -= count;
                        drop(objects);
                        release(handle, count);
                        0
                    }
                    _ => INVALID_VALUE,
                }
            }
            Err(code) => code,
        }
    }
}
