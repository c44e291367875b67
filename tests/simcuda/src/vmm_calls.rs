//! Driver functions of virtual memory management: `cuMemCreate`, `cuMemMap` and what belongs to them.

use std::os::fd::{BorrowedFd, IntoRawFd};

use crate::api::{self, In, Out, cuda_api};
use crate::codes::{CUresult, INVALID_VALUE, NOT_SUPPORTED};
use crate::devices;
use crate::pool::{DEVICE, HOST, HOST_NUMA, HOST_NUMA_CURRENT, Location, PINNED};
use crate::units::{PAGE, to_usize};
use crate::vmm::{self, Handle, Properties};

/// `CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN` (13.4): a byte for the device, a byte for the part of it.
const DEVICE_PART: u32 = 6;

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
const FILE_DESCRIPTOR: u32 = 1;

/// `CUmemAccessDesc`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Access {
    location: Location,
    flags: u32,
}

/// The machine's number of the device that pays for memory with these properties; none for host memory.
fn payer(properties: &Properties) -> Result<Option<usize>, CUresult> {
    if properties.kind != PINNED {
        return Err(INVALID_VALUE);
    }
    match properties.location.kind {
        DEVICE => devices::machine(properties.location.id).map(Some),
        DEVICE_PART => devices::machine(properties.location.id & 0xff).map(Some),
        HOST | HOST_NUMA | HOST_NUMA_CURRENT => Ok(None),
        _ => Err(INVALID_VALUE),
    }
}

/// A file descriptor of the same file for somebody else.
fn share(handle: Handle) -> Result<i32, CUresult> {
    vmm::with(|vmm| {
        let memory = vmm.memory(handle)?;
        if memory.properties.handle_types & FILE_DESCRIPTOR == 0 {
            return Err(INVALID_VALUE);
        }
        crate::exports::export(memory).map(IntoRawFd::into_raw_fd)
    })
}

cuda_api! {
    fn cuMemCreate(out: Out<Handle>, size: usize, properties: In<Properties>, flags: u64) -> CUresult {
        let Some(properties) = properties.get() else { return INVALID_VALUE };
        if out.is_null() || flags != 0 {
            return INVALID_VALUE;
        }
        let create = || {
            let device = payer(&properties)?;
            vmm::with(|vmm| vmm.create(size as u64, properties, device))
        };
        api::code(create().map(|handle| out.set(handle)))
    }

    fn cuMemRelease(handle: Handle) -> CUresult {
        if crate::multicast::release(handle) {
            return 0;
        }
        api::code(vmm::with(|vmm| vmm.release(handle)))
    }

    fn cuMemRetainAllocationHandle(out: Out<Handle>, address: u64) -> CUresult {
        if out.is_null() {
            return INVALID_VALUE;
        }
        api::code(vmm::with(|vmm| vmm.retain(address)).map(|handle| out.set(handle)))
    }

    fn cuMemAddressReserve(out: Out<u64>, size: usize, alignment: usize, hint: u64, flags: u64) -> CUresult {
        if out.is_null() || flags != 0 {
            return INVALID_VALUE;
        }
        let reserved = vmm::with(|vmm| vmm.reserve(size as u64, alignment as u64, hint));
        api::code(reserved.map(|address| out.set(address)))
    }

    fn cuMemAddressFree(address: u64, size: usize) -> CUresult {
        api::code(vmm::with(|vmm| vmm.free_address(address, size as u64)))
    }

    fn cuMemMap(address: u64, size: usize, offset: usize, handle: Handle, flags: u64) -> CUresult {
        if flags != 0 {
            return INVALID_VALUE;
        }
        api::code(vmm::with(|vmm| vmm.map(address, size as u64, offset as u64, handle)))
    }

    fn cuMemUnmap(address: u64, size: usize) -> CUresult {
        api::code(vmm::with(|vmm| vmm.unmap(address, size as u64)))
    }

    fn cuMemSetAccess(address: u64, size: usize, list: In<Access>, count: usize) -> CUresult {
        if list.is_null() || count == 0 {
            return INVALID_VALUE;
        }
        let set = |access: Access| {
            if access.location.kind == DEVICE {
                devices::machine(access.location.id)?;
            }
            vmm::with(|vmm| vmm.set_access(address, size as u64, access.location, access.flags))
        };
        api::code(list.many(count).into_iter().try_for_each(set))
    }

    fn cuMemGetAccess(out: Out<u64>, location: In<Location>, address: u64) -> CUresult {
        let Some(location) = location.get() else { return INVALID_VALUE };
        if out.is_null() {
            return INVALID_VALUE;
        }
        api::code(vmm::with(|vmm| vmm.access(address, location)).map(|flags| out.set(u64::from(flags))))
    }

    fn cuMemGetAllocationGranularity(out: Out<usize>, properties: In<Properties>, option: u32) -> CUresult {
        let Some(properties) = properties.get() else { return INVALID_VALUE };
        if out.is_null() || option > 1 {
            return INVALID_VALUE;
        }
        api::code(payer(&properties).map(|_| out.set(to_usize(PAGE))))
    }

    fn cuMemGetAllocationPropertiesFromHandle(out: Out<Properties>, handle: Handle) -> CUresult {
        if out.is_null() {
            return INVALID_VALUE;
        }
        api::code(vmm::with(|vmm| vmm.memory(handle).map(|memory| out.set(memory.properties))))
    }

    /// Gives a file descriptor that keeps the memory alive.
    fn cuMemExportToShareableHandle(out: Out<i32>, handle: Handle, kind: u32, flags: u64) -> CUresult {
        if out.is_null() || flags != 0 {
            return INVALID_VALUE;
        }
        if kind != FILE_DESCRIPTOR {
            return NOT_SUPPORTED;
        }
        api::code(share(handle).map(|fd| out.set(fd)))
    }

    fn cuMemImportFromShareableHandle(out: Out<Handle>, os_handle: usize, kind: u32) -> CUresult {
        if out.is_null() {
            return INVALID_VALUE;
        }
        if kind != FILE_DESCRIPTOR {
            return NOT_SUPPORTED;
        }
        let import = || {
            let fd = i32::try_from(os_handle).ok().filter(|fd| *fd >= 0).ok_or(INVALID_VALUE)?;
            // SAFETY: fcntl(2) with any number tells whether it is a descriptor.
            if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
                return Err(INVALID_VALUE);
            }
            // SAFETY: the caller's open descriptor, borrowed for this call.
            let file = unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned().map_err(|_| INVALID_VALUE)?;
            crate::exports::import(file)
        };
        api::code(import().map(|handle| out.set(handle)))
    }
}
