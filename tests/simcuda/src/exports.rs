//! Physical memory that several processes hold: what a file descriptor of it stands for.
//!
//! What an importer must know travels in the name of the memory's file, which /proc shows for any descriptor of it:
//! the object's number in the books, the device, the properties. The size is the file's.

use std::ffi::CString;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};

use simdevice::{FILE_NAME, me};

use crate::backing::anonymous_file;
use crate::codes::{CUresult, INVALID_DEVICE, INVALID_VALUE, OUT_OF_MEMORY};
use crate::devices;
use crate::pool::{DEVICE, Location};
use crate::vmm::{self, Handle, Memory, Properties};

/// A file for new physical memory, and its number in the books.
pub fn new_file(size: u64, properties: &Properties, device: Option<usize>) -> Option<(OwnedFd, u64)> {
    let number = me().new_object();
    let Properties { kind, handle_types, location, .. } = properties;
    let on = device.map_or_else(|| "host".to_owned(), |device| device.to_string());
    let name = format!("{FILE_NAME}{number}:{on}:{kind}:{handle_types}:{}:{}", location.kind, location.id);
    Some((anonymous_file(&CString::new(name).ok()?, size)?, number))
}

/// A descriptor of `memory` for somebody else; other processes may hold it from now on.
pub fn export(memory: &mut Memory) -> Result<OwnedFd, CUresult> {
    let copy = memory.file.try_clone().map_err(|_| OUT_OF_MEMORY)?;
    if let Some(device) = memory.device
        && !memory.shared
    {
        memory.shared = me().share(memory.number, device, memory.size);
        if !memory.shared {
            return Err(OUT_OF_MEMORY);
        }
    }
    Ok(copy)
}

/// Takes in what `file` stands for; memory that this process has already gets one reference more.
pub fn import(file: OwnedFd) -> Result<Handle, CUresult> {
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    let size = fs::metadata(&link).map_err(|_| INVALID_VALUE)?.len();
    let name = fs::read_link(&link).map_err(|_| INVALID_VALUE)?;
    let (number, device, properties) = parse(&name.to_string_lossy()).ok_or(INVALID_VALUE)?;
    vmm::with(|vmm| {
        if let Some(handle) = vmm.retain_number(number) {
            return Ok(handle);
        }
        let Some(device) = device else { return Ok(vmm.import(size, properties, 0, file, number, false)) };
        let ordinal = devices::visible().iter().position(|visible| *visible == device).ok_or(INVALID_DEVICE)?;
        let id = i32::try_from(ordinal).map_err(|_| INVALID_DEVICE)?;
        if !me().hold_shared(number) {
            return Err(INVALID_VALUE);
        }
        let properties = Properties { location: Location { kind: DEVICE, id }, ..properties };
        Ok(vmm.import(size, properties, device, file, number, true))
    })
}

/// Reads what [`new_file`] wrote.
fn parse(name: &str) -> Option<(u64, Option<usize>, Properties)> {
    let name = name.strip_prefix("/memfd:")?.strip_prefix(FILE_NAME)?;
    let parts: Vec<&str> = name.trim_end_matches(" (deleted)").split(':').collect();
    let [number, on, kind, handle_types, location, id] = parts[..] else { return None };
    let properties = Properties {
        kind: kind.parse().ok()?,
        handle_types: handle_types.parse().ok()?,
        location: Location { kind: location.parse().ok()?, id: id.parse().ok()? },
        security: 0,
        compression: 0,
        rdma: 0,
        usage: 0,
        reserved: [0; 4],
    };
    Some((number.parse().ok()?, on.parse().ok(), properties))
}
