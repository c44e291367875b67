//! Maps the shared file, and makes it when it is not there.

use std::fs::{File, OpenOptions};
use std::io;
use std::mem::size_of;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::knobs::Knobs;
use crate::layout::{Layout, MAGIC};
use crate::process;

/// A mapped [`Layout`].
pub(crate) struct Map(NonNull<Layout>);

// SAFETY: the layout consists of atomics only; the mapping lives until drop.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    /// Opens the file at `path`, making and filling it from `knobs` if it is new. `None` gives a device that only this
    /// process and the children it forks share.
    pub fn open(path: Option<&Path>, knobs: &Knobs) -> io::Result<Self> {
        let Some(path) = path else {
            let map = Self::attach(None)?;
            map.fill(knobs);
            return Ok(map);
        };
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        // Two processes may start at once: the first one in fills the file.
        // SAFETY: flock(2) on a descriptor that `file` keeps open.
        if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) } != 0 {
            return Err(io::Error::last_os_error());
        }
        if file.metadata()?.len() == 0 {
            file.set_len(size_of::<Layout>() as u64)?;
        }
        let map = Self::attach(Some(&file))?;
        if map.magic.load(Acquire) != MAGIC {
            map.fill(knobs);
        }
        // Closing would not do: the mapping keeps the open file, and with it the lock.
        // SAFETY: as above.
        unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_UN) };
        Ok(map)
    }

    /// Opens an existing file.
    pub fn open_existing(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        if file.metadata()?.len() != size_of::<Layout>() as u64 {
            return Err(io::Error::other("not a state file of the simulated driver"));
        }
        Self::attach(Some(&file))
    }

    fn attach(file: Option<&File>) -> io::Result<Self> {
        let (flags, fd) = match file {
            Some(file) => (libc::MAP_SHARED, file.as_raw_fd()),
            None => (libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1),
        };
        // SAFETY: mmap(2) of a fresh range; a file is at least as long as the layout.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size_of::<Layout>(),
                libc::PROT_READ | libc::PROT_WRITE,
                flags | libc::MAP_NORESERVE,
                fd,
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        NonNull::new(at.cast()).map(Self).ok_or_else(|| io::Error::other("mmap returned null"))
    }

    fn fill(&self, knobs: &Knobs) {
        for (device, spec) in self.device.iter().zip(&knobs.devices) {
            device.total.store(spec.total, Relaxed);
            for (word, bytes) in device.uuid.iter().zip(spec.uuid.chunks_exact(8)) {
                let mut raw = [0; 8];
                raw.copy_from_slice(bytes);
                word.store(u64::from_ne_bytes(raw), Relaxed);
            }
        }
        self.namespace.store(process::namespace(), Relaxed);
        let count = u32::try_from(knobs.devices.len()).unwrap_or(0);
        self.devices.store(count, Relaxed);
        self.magic.store(MAGIC, Release);
    }
}

impl Deref for Map {
    type Target = Layout;

    fn deref(&self) -> &Layout {
        // SAFETY: `0` points at a mapping of `size_of::<Layout>()` bytes, page aligned, valid until drop; all-zero
        // bytes are a valid layout.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `attach` got from mmap(2); no reference outlives `self`.
        unsafe { libc::munmap(self.0.as_ptr().cast(), size_of::<Layout>()) };
    }
}
