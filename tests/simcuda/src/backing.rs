//! The addresses of device memory, and host memory behind them.
//!
//! A device address is the address of a byte of host memory: one sparse file per process ([`Arena`]), mapped once, from
//! which runs of 2 MiB pages are handed out. Copies and memsets are then ordinary ones, and another process reaches the
//! same bytes through the file (CUDA IPC). Nothing is resident before it is touched.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

use crate::units::{PAGE, to_usize};

/// Runs of pages of one file.
pub struct Arena {
    base: u64,
    pages: u32,
    file: OwnedFd,
    /// First page that was never handed out.
    fresh: u32,
    /// Freed runs by length: the last one freed is the first one reused, as a busy driver does it. In order, so that the
    /// same calls get the same addresses.
    freed: BTreeMap<u32, Vec<u32>>,
    /// Block number + 1 by page, 0 where nothing is.
    owner: Box<[u32]>,
}

impl Arena {
    /// Address space for everything a process ever allocates; halved until the machine gives it.
    pub fn high() -> Option<Arena> {
        (19..22).rev().find_map(|bits| Arena::map(0, 1 << bits))
    }

    /// Addresses that 32 bits can say, for the first version of the API.
    pub fn low() -> Option<Arena> {
        // Position-dependent programs and their heap begin lower.
        [(0x8000_0000, 960), (0x8000_0000, 448), (0x4000_0000, 448), (0x1000_0000, 192)]
            .into_iter()
            .find_map(|(base, pages)| Arena::map(base, pages))
    }

    fn map(at: u64, pages: u32) -> Option<Arena> {
        let bytes = u64::from(pages) * PAGE;
        let file = anonymous_file(c"simcuda-device", bytes)?;
        // The kernel aligns only to small pages: room to cut.
        let (room, fixed) = if at == 0 { (bytes + PAGE, 0) } else { (bytes, libc::MAP_FIXED_NOREPLACE) };
        let from = map_shared(at, room, fixed, None)?;
        let base = from.next_multiple_of(PAGE);
        let at = map_shared(base, bytes, libc::MAP_FIXED, Some(&file))?;
        debug_assert_eq!(at, base);
        let owner = vec![0; to_usize(u64::from(pages))].into_boxed_slice();
        Some(Arena { base, pages, file, fresh: 0, freed: BTreeMap::new(), owner })
    }

    /// Takes `pages` pages in a row; the number of the first.
    pub fn take(&mut self, pages: u32) -> Option<u32> {
        if let Some(first) = self.freed.get_mut(&pages).and_then(Vec::pop) {
            return Some(first);
        }
        if pages > self.pages - self.fresh {
            self.merge();
            return self.first_fit(pages);
        }
        let first = self.fresh;
        self.fresh += pages;
        Some(first)
    }

    /// Makes a run free for others. Its `owner` entries must be gone.
    pub fn give(&mut self, first: u32, pages: u32) {
        self.freed.entry(pages).or_default().push(first);
    }

    /// Joins neighbouring free runs; only when addresses run out.
    fn merge(&mut self) {
        let mut runs: Vec<(u32, u32)> = std::mem::take(&mut self.freed)
            .into_iter()
            .flat_map(|(pages, firsts)| firsts.into_iter().map(move |first| (first, pages)))
            .collect();
        runs.sort_unstable();
        let mut joined: Vec<(u32, u32)> = Vec::new();
        for (first, pages) in runs {
            match joined.last_mut() {
                Some((start, length)) if *start + *length == first => *length += pages,
                _ => joined.push((first, pages)),
            }
        }
        if let Some(&(first, pages)) = joined.last()
            && first + pages == self.fresh
        {
            self.fresh = first;
            joined.pop();
        }
        for (first, pages) in joined {
            self.give(first, pages);
        }
    }

    fn first_fit(&mut self, pages: u32) -> Option<u32> {
        let length = *self.freed.iter().find(|(length, firsts)| **length >= pages && !firsts.is_empty())?.0;
        let first = self.freed.get_mut(&length)?.pop()?;
        if length > pages {
            self.give(first + pages, length - pages);
        }
        Some(first)
    }

    /// Says which block a run belongs to, or that it is free.
    pub fn set_owner(&mut self, first: u32, pages: u32, block: Option<u32>) {
        let range = to_usize(u64::from(first))..to_usize(u64::from(first + pages));
        self.owner[range].fill(block.map_or(0, |block| block + 1));
    }

    /// The block that `address` lies in.
    #[inline]
    pub fn owner(&self, address: u64) -> Option<u32> {
        let offset = address.checked_sub(self.base)?;
        self.owner.get(to_usize(offset / PAGE))?.checked_sub(1)
    }

    pub fn address(&self, first: u32) -> u64 {
        self.base + u64::from(first) * PAGE
    }

    /// The file, for other processes, and the offset of `address` in it.
    pub fn place(&self, address: u64) -> (i32, u64) {
        (self.file.as_raw_fd(), address - self.base)
    }

    /// Gives the host memory behind a run back; it reads as zeros from here on.
    pub fn punch(&self, first: u32, pages: u32) {
        let range = |page: u32| libc::off64_t::try_from(u64::from(page) * PAGE).unwrap_or(0);
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: fallocate(2) inside our own file. Where the kernel refuses, the memory just stays resident.
        unsafe { libc::fallocate64(self.file.as_raw_fd(), mode, range(first), range(pages)) };
    }
}

/// A file without a name, sparse, of `bytes` bytes.
pub fn anonymous_file(name: &std::ffi::CStr, bytes: u64) -> Option<OwnedFd> {
    // SAFETY: memfd_create(2) with a C string; the descriptor is ours from here on.
    let file = unsafe {
        let fd = libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC);
        if fd < 0 {
            return None;
        }
        OwnedFd::from_raw_fd(fd)
    };
    let length = libc::off64_t::try_from(bytes).ok()?;
    // SAFETY: ftruncate(2) of our own file.
    (unsafe { libc::ftruncate64(file.as_raw_fd(), length) } == 0).then_some(file)
}

/// Maps `file`, or only reserves addresses without one.
pub fn map_shared(at: u64, bytes: u64, flags: i32, file: Option<&OwnedFd>) -> Option<u64> {
    let (access, kind, fd) = match file {
        Some(file) => (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, file.as_raw_fd()),
        None => (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
    };
    // SAFETY: mmap(2) of new addresses, or with MAP_FIXED of addresses that the caller reserved through here.
    let got = unsafe {
        libc::mmap(
            ptr::with_exposed_provenance_mut(to_usize(at)),
            to_usize(bytes),
            access,
            kind | flags | libc::MAP_NORESERVE,
            fd,
            0,
        )
    };
    if got == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: madvise(2) of the range just mapped: terabytes of holes do not belong into a core dump.
    unsafe { libc::madvise(got, to_usize(bytes), libc::MADV_DONTDUMP) };
    Some(got.expose_provenance() as u64)
}

/// Maps `bytes` bytes of `file` from `offset` on, wherever there is room.
pub fn map_shared_at(file: &OwnedFd, offset: u64, bytes: u64) -> Option<u64> {
    let offset = libc::off64_t::try_from(offset).ok()?;
    // SAFETY: mmap(2) of new addresses.
    let got = unsafe {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        libc::mmap64(ptr::null_mut(), to_usize(bytes), access, libc::MAP_SHARED, file.as_raw_fd(), offset)
    };
    (got != libc::MAP_FAILED).then(|| got.expose_provenance() as u64)
}

/// Gives addresses back that [`map_shared`] gave.
pub fn unmap(at: u64, bytes: u64) {
    if bytes > 0 {
        // SAFETY: munmap(2) of a range that came from mmap(2) and that no reference points into.
        unsafe { libc::munmap(ptr::with_exposed_provenance_mut(to_usize(at)), to_usize(bytes)) };
    }
}
