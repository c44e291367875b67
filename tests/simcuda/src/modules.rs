//! Modules and the functions in them. Nothing is parsed: every function exists, every global has 64 KiB, and a loaded
//! module costs what `SIMCUDA_MODULE_MIB` says.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_void};
use std::path::Path;
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use simdevice::Knobs;

use crate::api::{Out, code, cuda_api};
use crate::codes::{CUresult, FILE_NOT_FOUND, INVALID_HANDLE, INVALID_VALUE, NOT_FOUND, NOT_SUPPORTED, OUT_OF_MEMORY};
use crate::ctx::{self, Context};

/// A `CUmodule`, a `CUfunction`, a `CUkernel`: an address.
pub type Handle = usize;

/// Bytes of every global variable.
const GLOBAL_BYTES: usize = 64 << 10;

/// A loaded module, or what a library is in one context.
pub struct Module {
    context: &'static Context,
    context_id: u64,
    charge: u64,
    functions: Mutex<HashMap<CString, Handle>>,
    globals: Mutex<HashMap<CString, Box<[u64]>>>,
}

/// A function of a module, or a kernel of a library.
pub struct Function {
    pub name: CString,
    /// The module, or the library.
    pub owner: Handle,
    /// Attributes that the program set.
    pub attributes: Mutex<HashMap<u32, i32>>,
}

static MODULES: LazyLock<Mutex<HashMap<Handle, Arc<Module>>>> = LazyLock::new(Mutex::default);
static FUNCTIONS: LazyLock<Mutex<HashMap<Handle, Arc<Function>>>> = LazyLock::new(Mutex::default);

impl Module {
    /// Loads into `context`, which pays for it.
    pub fn load(context: &'static Context) -> Result<Arc<Module>, CUresult> {
        let charge = Knobs::get().module_bytes;
        if !context.take_overhead(charge) {
            return Err(OUT_OF_MEMORY);
        }
        let module = Arc::new(Module {
            context,
            context_id: context.id(),
            charge,
            functions: Mutex::default(),
            globals: Mutex::default(),
        });
        MODULES.lock().insert(module.handle(), module.clone());
        Ok(module)
    }

    pub fn handle(self: &Arc<Self>) -> Handle {
        Arc::as_ptr(self).addr()
    }

    /// Takes the module out of its context.
    pub fn unload(handle: Handle) -> Result<(), CUresult> {
        let module = MODULES.lock().remove(&handle).ok_or(INVALID_HANDLE)?;
        for (_, function) in module.functions.lock().drain() {
            FUNCTIONS.lock().remove(&function);
        }
        module.context.give_overhead(module.context_id, module.charge);
        Ok(())
    }

    /// The function called `name`.
    pub fn function(self: &Arc<Self>, name: &CStr) -> Handle {
        let mut functions = self.functions.lock();
        *functions.entry(name.to_owned()).or_insert_with(|| register(name, self.handle()))
    }

    /// Where the global called `name` lies.
    pub fn global(&self, name: &CStr) -> u64 {
        let mut globals = self.globals.lock();
        globals.entry(name.to_owned()).or_insert_with(|| vec![0; GLOBAL_BYTES / 8].into()).as_ptr().expose_provenance()
            as u64
    }
}

/// Whether a run of bytes lies in a global.
pub fn is_global(address: u64, bytes: u64) -> bool {
    let inside = |base: u64| base <= address && address + bytes <= base + GLOBAL_BYTES as u64;
    let modules = MODULES.lock();
    modules.values().any(|module| {
        let globals = module.globals.lock();
        globals.values().any(|global| inside(global.as_ptr().expose_provenance() as u64))
    })
}

/// Makes a function or kernel that handles can name.
pub fn register(name: &CStr, owner: Handle) -> Handle {
    let function = Arc::new(Function { name: name.to_owned(), owner, attributes: Mutex::default() });
    let handle = Arc::as_ptr(&function).addr();
    FUNCTIONS.lock().insert(handle, function);
    handle
}

/// Takes a kernel's name away.
pub fn unregister(handle: Handle) {
    FUNCTIONS.lock().remove(&handle);
}

/// The function or kernel that a handle names; either may stand for the other in a launch.
pub fn function(handle: Handle) -> Result<Arc<Function>, CUresult> {
    FUNCTIONS.lock().get(&handle).cloned().ok_or(INVALID_HANDLE)
}

fn module(handle: Handle) -> Result<Arc<Module>, CUresult> {
    MODULES.lock().get(&handle).cloned().ok_or(INVALID_HANDLE)
}

/// A name that the caller gave; null and the empty one are wrong.
pub fn name<'a>(text: *const c_char) -> Result<&'a CStr, CUresult> {
    if text.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: a C string, by the driver API.
    let name = unsafe { CStr::from_ptr(text) };
    if name.is_empty() { Err(NOT_FOUND) } else { Ok(name) }
}

/// Whether a file that is to be loaded exists.
pub fn check_file(path: *const c_char) -> Result<(), CUresult> {
    let path = name(path).map_err(|_| INVALID_VALUE)?;
    if Path::new(&*path.to_string_lossy()).is_file() { Ok(()) } else { Err(FILE_NOT_FOUND) }
}

fn load(out: Out<Handle>, image: *const c_void) -> CUresult {
    if out.is_null() || image.is_null() {
        return INVALID_VALUE;
    }
    code(ctx::require().and_then(Module::load).map(|module| out.set(module.handle())))
}

/// Answers where a global lies and how large it is; either may be left out.
pub fn answer_global(address: Out<u64>, bytes: Out<usize>, at: u64) -> CUresult {
    address.set(at);
    bytes.set(GLOBAL_BYTES);
    0
}

cuda_api! {
    fn cuModuleLoad(out: Out<Handle>, path: *const c_char) -> CUresult {
        match ctx::require().and(check_file(path)) {
            Ok(()) => load(out, path.cast()),
            Err(code) => code,
        }
    }

    fn cuModuleLoadData, cuModuleLoadFatBinary(out: Out<Handle>, image: *const c_void) -> CUresult {
        load(out, image)
    }

    fn cuModuleLoadDataEx(out: Out<Handle>, image: *const c_void, _count: u32, _options: *const u32, _values: *const c_void) -> CUresult {
        load(out, image)
    }

    fn cuModuleUnload(handle: Handle) -> CUresult {
        code(Module::unload(handle))
    }

    fn cuModuleGetFunction(out: Out<Handle>, handle: Handle, text: *const c_char) -> CUresult {
        if out.is_null() {
            return INVALID_VALUE;
        }
        code(module(handle).and_then(|module| {
            out.set(module.function(name(text)?));
            Ok(())
        }))
    }

    fn cuModuleGetFunctionCount(count: Out<u32>, handle: Handle) -> CUresult {
        match module(handle) {
            Ok(module) => count.answer(u32::try_from(module.functions.lock().len()).unwrap_or(0)),
            Err(code) => code,
        }
    }

    fn cuModuleEnumerateFunctions(out: Out<Handle>, count: u32, handle: Handle) -> CUresult {
        if out.is_null() || count == 0 {
            return INVALID_VALUE;
        }
        match module(handle) {
            Ok(module) => {
                for (i, function) in module.functions.lock().values().take(count as usize).enumerate() {
                    // SAFETY: the caller gave room for `count` handles.
                    unsafe { out.raw().add(i).write(*function) };
                }
                0
            }
            Err(code) => code,
        }
    }

    fn cuModuleGetGlobal_v2(address: Out<u64>, bytes: Out<usize>, handle: Handle, text: *const c_char) -> CUresult {
        match module(handle).and_then(|module| Ok(module.global(name(text)?))) {
            Ok(at) => answer_global(address, bytes, at),
            Err(code) => code,
        }
    }

    fn cuModuleGetTexRef, cuModuleGetSurfRef(_out: Out<Handle>, handle: Handle, _name: *const c_char) -> CUresult {
        module(handle).err().unwrap_or(NOT_FOUND)
    }

    /// Lazy, as by default since CUDA 12.2.
    fn cuModuleGetLoadingMode(mode: Out<u32>) -> CUresult {
        mode.answer(2)
    }

    fn cuFuncGetModule(out: Out<Handle>, handle: Handle) -> CUresult {
        if out.is_null() {
            return INVALID_VALUE;
        }
        match function(handle) {
            Ok(function) if module(function.owner).is_ok() => out.answer(function.owner),
            Ok(function) => match crate::libraries::module_of(function.owner) {
                Ok(module) => out.answer(module.handle()),
                Err(code) => code,
            },
            Err(code) => code,
        }
    }

    /// A program that is linked at run time: a few bytes that no loader looks at.
    fn cuLinkCreate, cuLinkCreate_v2(_count: u32, _options: *const u32, _values: *const c_void, out: Out<usize>) -> CUresult {
        match ctx::require() {
            Ok(_) => out.answer(1),
            Err(code) => code,
        }
    }

    fn cuLinkAddData, cuLinkAddData_v2(_state: usize, _kind: u32, data: *const c_void, size: usize, _name: *const c_char, _count: u32, _options: *const u32, _values: *const c_void) -> CUresult {
        if data.is_null() || size == 0 { INVALID_VALUE } else { 0 }
    }

    fn cuLinkAddFile, cuLinkAddFile_v2(_state: usize, _kind: u32, path: *const c_char, _count: u32, _options: *const u32, _values: *const c_void) -> CUresult {
        code(check_file(path))
    }

    fn cuLinkComplete(_state: usize, out: Out<*const c_void>, size: Out<usize>) -> CUresult {
        static IMAGE: [u8; 64] = [0; 64];
        if out.is_null() {
            return INVALID_VALUE;
        }
        size.set(IMAGE.len());
        out.answer(IMAGE.as_ptr().cast())
    }

    fn cuLinkDestroy(_state: usize) -> CUresult {
        0
    }

    fn cuModuleGetGlobal(_address: Out<u32>, _bytes: Out<u32>, handle: Handle, _name: *const c_char) -> CUresult {
        // Its answer has 32 bits, and no global lies that low.
        module(handle).err().unwrap_or(NOT_SUPPORTED)
    }
}
