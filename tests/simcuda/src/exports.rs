//! Physical memory that several processes hold: telling what a file descriptor stands for.
//!
//! The file itself carries what an importer must know: its size is the memory's, and the first write to it is not the
//! program's. The properties travel in the file's name, which /proc shows for any descriptor of it.

use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use crate::codes::{CUresult, INVALID_VALUE};
use crate::vmm::{self, Handle, Memory, Properties};

/// Notes that other processes may hold `memory` from now on.
pub fn exported(memory: &mut Memory) {
    if memory.shared.is_none() {
        memory.shared = number_of(&memory.file);
    }
}

/// Takes in what `file` stands for.
pub fn import(file: OwnedFd) -> Result<Handle, CUresult> {
    let number = number_of(&file).ok_or(INVALID_VALUE)?;
    if let Some(handle) = vmm::with(|vmm| vmm.retain_file(number)) {
        return Ok(handle);
    }
    let (properties, device) = describe(&file).ok_or(INVALID_VALUE)?;
    let size = metadata(&file).ok_or(INVALID_VALUE)?.len();
    Ok(vmm::with(|vmm| vmm.import(size, properties, device, file, number)))
}

fn link(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

fn metadata(file: &OwnedFd) -> Option<fs::Metadata> {
    fs::metadata(link(file)).ok()
}

fn number_of(file: &OwnedFd) -> Option<u64> {
    metadata(file).map(|facts| facts.ino())
}

fn describe(_file: &OwnedFd) -> Option<(Properties, usize)> {
    None
}
