//! What an address is: `cuPointerGetAttribute`.

use std::collections::HashSet;
use std::sync::LazyLock;

use parking_lot::Mutex;

use crate::api::{In, Out, cuda_api};
use crate::codes::INVALID_VALUE;
use crate::ctx::Context;
use crate::heap::Kind;
use crate::memory::{self, Source};
use crate::{devices, host, pool};

/// `CUpointer_attribute`.
const CONTEXT: u32 = 1;
const MEMORY_TYPE: u32 = 2;
const DEVICE_POINTER: u32 = 3;
const HOST_POINTER: u32 = 4;
const SYNC_MEMOPS: u32 = 6;
const BUFFER_ID: u32 = 7;
const IS_MANAGED: u32 = 8;
const DEVICE_ORDINAL: u32 = 9;
const IS_LEGACY_CUDA_IPC_CAPABLE: u32 = 10;
const RANGE_START_ADDR: u32 = 11;
const RANGE_SIZE: u32 = 12;
const MAPPED: u32 = 13;
const ALLOWED_HANDLE_TYPES: u32 = 14;
const IS_GPU_DIRECT_RDMA_CAPABLE: u32 = 15;
const ACCESS_FLAGS: u32 = 16;
const MEMPOOL_HANDLE: u32 = 17;
const MAPPING_SIZE: u32 = 18;
const MAPPING_BASE_ADDR: u32 = 19;
const MEMORY_BLOCK_ID: u32 = 20;
const IS_HW_DECOMPRESS_CAPABLE: u32 = 21;

/// `CUmemorytype`; 0 for what the driver does not know.
const HOST: u32 = 1;
const DEVICE: u32 = 2;

/// Allocations whose memory operations were asked to be synchronous.
static SYNCHRONOUS: LazyLock<Mutex<HashSet<u64>>> = LazyLock::new(Mutex::default);

/// An address that the driver knows.
struct Known {
    base: u64,
    size: u64,
    kind: u32,
    source: Option<Source>,
    device: Option<usize>,
    context: Option<&'static Context>,
}

fn known(address: u64) -> Option<Known> {
    if let Some(found) = memory::find(address) {
        let memory::Allocation { base, size, source, device, context } = found;
        return Some(Known { base, size, kind: DEVICE, source: Some(source), device: Some(device), context });
    }
    let (base, size) = host::find(address)?;
    let context = crate::ctx::current();
    Some(Known { base, size, kind: HOST, source: None, device: context.map(Context::device), context })
}

/// The ordinal of a device of the machine; -2 (`CU_DEVICE_INVALID`) if this process does not see it.
fn ordinal(device: Option<usize>) -> i32 {
    let position = devices::visible().iter().position(|other| Some(*other) == device);
    position.and_then(|position| i32::try_from(position).ok()).unwrap_or(-2)
}

/// How an answer is written: pointers and sizes have 8 bytes, everything else has 4.
enum Value {
    Wide(u64),
    Word(u32),
}

impl Value {
    fn write(self, out: Out<u8>) {
        // SAFETY: the caller gave room for the attribute's type.
        unsafe {
            match self {
                Value::Wide(value) => out.raw().cast::<u64>().write_unaligned(value),
                Value::Word(value) => out.raw().cast::<u32>().write_unaligned(value),
            }
        }
    }
}

/// The attribute of an address, of one that the driver does not know as well; `None` if there is no such attribute.
fn value(attribute: u32, address: u64, known: Option<&Known>) -> Option<Value> {
    let flag = |value: bool| Value::Word(u32::from(value));
    let source = known.and_then(|known| known.source);
    let managed = source == Some(Source::Block(Kind::Managed));
    Some(match attribute {
        CONTEXT => Value::Wide(known.and_then(|known| known.context).map_or(0, |context| context.handle() as u64)),
        MEMORY_TYPE => Value::Word(known.map_or(0, |known| known.kind)),
        DEVICE_POINTER => Value::Wide(if known.is_some() { address } else { 0 }),
        HOST_POINTER => Value::Wide(if managed || known.is_some_and(|known| known.kind == HOST) { address } else { 0 }),
        SYNC_MEMOPS => flag(known.is_some_and(|known| SYNCHRONOUS.lock().contains(&known.base))),
        BUFFER_ID | MEMORY_BLOCK_ID => Value::Wide(known.map_or(0, |known| known.base >> 8)),
        IS_MANAGED => flag(managed),
        DEVICE_ORDINAL => Value::Word(ordinal(known.and_then(|known| known.device)).cast_unsigned()),
        IS_LEGACY_CUDA_IPC_CAPABLE => flag(source == Some(Source::Block(Kind::Linear))),
        RANGE_START_ADDR | MAPPING_BASE_ADDR => Value::Wide(known.map_or(0, |known| known.base)),
        RANGE_SIZE | MAPPING_SIZE => Value::Wide(known.map_or(0, |known| known.size)),
        MAPPED => flag(known.is_some()),
        ALLOWED_HANDLE_TYPES => Value::Wide(u64::from(matches!(source, Some(Source::Mapping(_))))),
        IS_GPU_DIRECT_RDMA_CAPABLE => flag(known.is_some_and(|known| known.kind == DEVICE)),
        // Read and write.
        ACCESS_FLAGS => Value::Word(if known.is_some() { 3 } else { 0 }),
        MEMPOOL_HANDLE => Value::Wide(match source {
            Some(Source::Block(Kind::Pool(number))) => pool::handle_of(number) as u64,
            _ => 0,
        }),
        IS_HW_DECOMPRESS_CAPABLE => flag(false),
        _ => return None,
    })
}

cuda_api! {
    fn cuPointerGetAttribute(out: Out<u8>, attribute: u32, address: u64) -> CUresult {
        if out.is_null() {
            return INVALID_VALUE;
        }
        let Some(known) = known(address) else { return INVALID_VALUE };
        // A context or a host address that there is none of is an error here, and null in the list below.
        match value(attribute, address, Some(&known)) {
            Some(Value::Wide(0)) if matches!(attribute, CONTEXT | HOST_POINTER) => INVALID_VALUE,
            Some(value) => {
                value.write(out);
                0
            }
            None => INVALID_VALUE,
        }
    }

    /// An unknown address is no error: its type is 0.
    fn cuPointerGetAttributes(count: u32, attributes: In<u32>, out: In<Out<u8>>, address: u64) -> CUresult {
        if count == 0 || attributes.is_null() || out.is_null() {
            return INVALID_VALUE;
        }
        let known = known(address);
        let count = count as usize;
        for (attribute, out) in attributes.many(count).into_iter().zip(out.many(count)) {
            match value(attribute, address, known.as_ref()) {
                Some(_) | None if out.is_null() => return INVALID_VALUE,
                Some(value) => value.write(out),
                None => return INVALID_VALUE,
            }
        }
        0
    }

    fn cuPointerSetAttribute(from: In<u32>, attribute: u32, address: u64) -> CUresult {
        let (Some(value), Some(known)) = (from.get(), known(address)) else { return INVALID_VALUE };
        if attribute != SYNC_MEMOPS || known.kind != DEVICE {
            return INVALID_VALUE;
        }
        let mut synchronous = SYNCHRONOUS.lock();
        if value == 0 {
            synchronous.remove(&known.base);
        } else {
            synchronous.insert(known.base);
        }
        0
    }
}
