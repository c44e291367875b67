//! Libraries: what is loaded once and becomes a module in each context that uses it.

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_void};
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;

use crate::api::{Out, code, cuda_api};
use crate::codes::{CUresult, INVALID_HANDLE, INVALID_VALUE, NOT_FOUND};
use crate::ctx;
use crate::modules::{self, Handle, Module};

/// One library.
#[derive(Default)]
struct Library {
    kernels: Mutex<HashMap<CString, Handle>>,
    /// By context.
    modules: Mutex<HashMap<u64, Arc<Module>>>,
}

static LIBRARIES: LazyLock<Mutex<HashMap<Handle, Arc<Library>>>> = LazyLock::new(Mutex::default);

fn library(handle: Handle) -> Result<Arc<Library>, CUresult> {
    LIBRARIES.lock().get(&handle).cloned().ok_or(INVALID_HANDLE)
}

/// What the library is in the current context, which pays for it at its first use.
pub fn module_of(handle: Handle) -> Result<Arc<Module>, CUresult> {
    let library = library(handle)?;
    let context = ctx::require()?;
    let mut modules = library.modules.lock();
    if let Some(module) = modules.get(&context.id()) {
        return Ok(module.clone());
    }
    let module = Module::load(context)?;
    modules.insert(context.id(), module.clone());
    Ok(module)
}

/// Loads; where a context is current, into it at once.
fn load(out: Out<Handle>) -> Result<(), CUresult> {
    if out.is_null() {
        return Err(INVALID_VALUE);
    }
    let library = Arc::new(Library::default());
    let handle = Arc::as_ptr(&library).addr();
    LIBRARIES.lock().insert(handle, library);
    if ctx::require().is_ok()
        && let Err(code) = module_of(handle)
    {
        LIBRARIES.lock().remove(&handle);
        return Err(code);
    }
    out.set(handle);
    Ok(())
}

cuda_api! {
    fn cuLibraryLoadData(out: Out<Handle>, image: *const c_void, _options: *const u32, _values: *const c_void, _count: u32, _library_options: *const u32, _library_values: *const c_void, _library_count: u32) -> CUresult {
        if image.is_null() { INVALID_VALUE } else { code(load(out)) }
    }

    fn cuLibraryLoadFromFile(out: Out<Handle>, path: *const c_char, _options: *const u32, _values: *const c_void, _count: u32, _library_options: *const u32, _library_values: *const c_void, _library_count: u32) -> CUresult {
        code(modules::check_file(path).and_then(|()| load(out)))
    }

    fn cuLibraryUnload(handle: Handle) -> CUresult {
        match LIBRARIES.lock().remove(&handle) {
            Some(library) => {
                library.kernels.lock().drain().for_each(|(_, kernel)| modules::unregister(kernel));
                for (_, module) in library.modules.lock().drain() {
                    // Not there any more if its context went.
                    let _ = Module::unload(module.handle());
                }
                0
            }
            None => INVALID_HANDLE,
        }
    }

    fn cuLibraryGetKernel(out: Out<Handle>, handle: Handle, name: *const c_char) -> CUresult {
        if out.is_null() {
            return INVALID_VALUE;
        }
        code(library(handle).and_then(|library| {
            let name = modules::name(name)?;
            let mut kernels = library.kernels.lock();
            out.set(*kernels.entry(name.to_owned()).or_insert_with(|| modules::register(name, handle)));
            Ok(())
        }))
    }

    fn cuLibraryGetModule(out: Out<Handle>, handle: Handle) -> CUresult {
        if out.is_null() {
            return INVALID_VALUE;
        }
        code(module_of(handle).map(|module| out.set(module.handle())))
    }

    fn cuLibraryGetKernelCount(count: Out<u32>, handle: Handle) -> CUresult {
        match library(handle) {
            Ok(library) => count.answer(u32::try_from(library.kernels.lock().len()).unwrap_or(0)),
            Err(code) => code,
        }
    }

    fn cuLibraryEnumerateKernels(out: Out<Handle>, count: u32, handle: Handle) -> CUresult {
        if out.is_null() || count == 0 {
            return INVALID_VALUE;
        }
        match library(handle) {
            Ok(library) => {
                for (i, kernel) in library.kernels.lock().values().take(count as usize).enumerate() {
                    // SAFETY: the caller gave room for `count` handles.
                    unsafe { out.raw().add(i).write(*kernel) };
                }
                0
            }
            Err(code) => code,
        }
    }

    fn cuLibraryGetGlobal, cuLibraryGetManaged(address: Out<u64>, bytes: Out<usize>, handle: Handle, name: *const c_char) -> CUresult {
        match module_of(handle).and_then(|module| Ok(module.global(modules::name(name)?))) {
            Ok(at) => modules::answer_global(address, bytes, at),
            Err(code) => code,
        }
    }

    fn cuLibraryGetUnifiedFunction(_out: Out<*const c_void>, handle: Handle, _name: *const c_char) -> CUresult {
        library(handle).err().unwrap_or(NOT_FOUND)
    }

    fn cuKernelGetFunction(out: Out<Handle>, kernel: Handle) -> CUresult {
        if out.is_null() {
            return INVALID_VALUE;
        }
        code(modules::function(kernel).and_then(|kernel| {
            out.set(module_of(kernel.owner)?.function(&kernel.name));
            Ok(())
        }))
    }

    fn cuKernelGetLibrary(out: Out<Handle>, kernel: Handle) -> CUresult {
        match modules::function(kernel) {
            Ok(kernel) => out.answer(kernel.owner),
            Err(code) => code,
        }
    }

    fn cuKernelSetCacheConfig(kernel: Handle, _config: u32, _device: i32) -> CUresult {
        modules::function(kernel).err().unwrap_or(0)
    }

    fn cuKernelGetParamInfo, cuFuncGetParamInfo(kernel: Handle, _index: usize, _offset: Out<usize>, _size: Out<usize>) -> CUresult {
        // No function has parameters; the code ends a loop that counts them.
        modules::function(kernel).err().unwrap_or(INVALID_VALUE)
    }

    fn cuKernelGetParamCount, cuFuncGetParamCount(kernel: Handle, count: Out<usize>) -> CUresult {
        modules::function(kernel).map_or_else(|code| code, |_| count.answer(0))
    }
}
