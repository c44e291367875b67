//! Reads the objects that the loader has mapped: their dynamic tables, symbols and relocations, with every access checked
//! against the object's own extent.
//!
//! Nothing here calls the loader or allocates, so it works before any constructor has run, inside a callback of
//! `dl_iterate_phdr` and in a forked child.

use core::ffi::{CStr, c_char};
use core::mem::size_of;

mod records;

use records::{HashHeader, Segment};
pub use records::{Relocation, Symbol};

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_GNU_RELRO: u32 = 0x6474_e552;

const PF_W: u32 = 2;

const DT_PLTRELSZ: usize = 2;
const DT_STRTAB: usize = 5;
const DT_SYMTAB: usize = 6;
const DT_RELA: usize = 7;
const DT_RELASZ: usize = 8;
const DT_STRSZ: usize = 10;
const DT_SONAME: usize = 14;
const DT_DEBUG: usize = 21;
const DT_JMPREL: usize = 23;
const DT_RELACOUNT: usize = 0x6fff_fff9;
const DT_GNU_HASH: usize = 0x6fff_fef5;
const DT_VERSYM: usize = 0x6fff_fff0;

/// One mapped object.
#[derive(Clone, Copy)]
pub struct Object {
    /// What the loader added to every address of the file (`l_addr`).
    pub base: usize,
    /// First mapped byte.
    pub start: usize,
    /// One past the last mapped byte.
    pub end: usize,
    /// Address of its dynamic table (`l_ld`); identifies the object while it is mapped.
    pub dynamic: usize,
    /// What the loader makes read-only after relocating; empty where start = end.
    pub relro: (usize, usize),
    /// From the first to the last byte of the writable segments.
    writable: (usize, usize),
    name: *const c_char,
    strings: usize,
    strings_size: usize,
    symbols: usize,
    hash: usize,
    /// Version index of each symbol; 0 where the object has none.
    pub versions: usize,
    relocations: (usize, usize),
    /// How many of them, at the beginning, name no symbol.
    relative: usize,
    jumps: (usize, usize),
    soname: usize,
    debug: usize,
}

impl Object {
    /// From what `dl_iterate_phdr` reports; `None` for what is no dynamic object of this machine's kind.
    ///
    /// # Safety
    /// `segments` points to `count` program headers of an object that stays mapped while the result is used; `name` is
    /// null or a C string that lives as long.
    pub unsafe fn from_segments(base: usize, segments: usize, count: usize, name: *const c_char) -> Option<Object> {
        let mut object = Object {
            base,
            start: usize::MAX,
            end: 0,
            dynamic: 0,
            relro: (0, 0),
            writable: (usize::MAX, 0),
            name,
            strings: 0,
            strings_size: 0,
            symbols: 0,
            hash: 0,
            versions: 0,
            relocations: (0, 0),
            relative: 0,
            jumps: (0, 0),
            soname: usize::MAX,
            debug: 0,
        };
        for index in 0..count {
            // SAFETY: within the `count` headers that the caller vouches for.
            let segment = unsafe { (segments as *const Segment).add(index).read_unaligned() };
            let at = base.wrapping_add(segment.vaddr);
            let end = at.wrapping_add(segment.memsz);
            match segment.kind {
                PT_LOAD => {
                    object.start = object.start.min(at);
                    object.end = object.end.max(end);
                    if segment.flags & PF_W != 0 {
                        object.writable = (object.writable.0.min(at), object.writable.1.max(end));
                    }
                }
                PT_DYNAMIC => object.dynamic = at,
                PT_GNU_RELRO => object.relro = (at, end),
                _ => {}
            }
        }
        if object.dynamic == 0 || object.start >= object.end {
            return None;
        }
        object.read_dynamic();
        Some(object)
    }

    /// From the first byte of a mapped file, where its header lies.
    ///
    /// # Safety
    /// As [`Object::from_segments`], for the object mapped at `start`, whose first page is readable.
    pub unsafe fn from_header(start: usize, base: usize, name: *const c_char) -> Option<Object> {
        const HEADER: usize = 64;
        // SAFETY: the first page is readable and a header is 64 bytes (System V ABI).
        let header = unsafe { (start as *const [u8; HEADER]).read_unaligned() };
        if header.get(..4) != Some(b"\x7fELF") {
            return None;
        }
        let at = |offset: usize, size: usize| -> Option<usize> {
            let bytes = header.get(offset..offset + size)?;
            Some(bytes.iter().rev().fold(0, |value, byte| value << 8 | usize::from(*byte)))
        };
        let (offset, count) = (at(32, 8)?, at(56, 2)?);
        if offset == 0 || offset + count * size_of::<Segment>() > 4096 {
            return None;
        }
        // SAFETY: the headers lie in the first page; the rest is the caller's promise.
        unsafe { Object::from_segments(base, start + offset, count, name) }
    }

    fn read_dynamic(&mut self) {
        for index in 0.. {
            let Some([tag, value]) = self.read::<[usize; 2]>(self.dynamic + index * 16) else {
                break;
            };
            match tag {
                0 => break,
                DT_STRTAB => self.strings = self.address(value),
                DT_STRSZ => self.strings_size = value,
                DT_SYMTAB => self.symbols = self.address(value),
                DT_GNU_HASH => self.hash = self.address(value),
                DT_VERSYM => self.versions = self.address(value),
                DT_RELA => self.relocations.0 = self.address(value),
                DT_RELASZ => self.relocations.1 = value,
                DT_RELACOUNT => self.relative = value,
                DT_JMPREL => self.jumps.0 = self.address(value),
                DT_PLTRELSZ => self.jumps.1 = value,
                DT_SONAME => self.soname = value,
                DT_DEBUG => self.debug = value,
                _ => {}
            }
        }
    }

    /// The loader relocates these entries in place for most objects, but not for the vdso.
    fn address(&self, value: usize) -> usize {
        if value < self.start { self.base.wrapping_add(value) } else { value }
    }

    /// Whether `address` lies in this object.
    pub fn contains(&self, address: usize) -> bool {
        (self.start..self.end).contains(&address)
    }

    fn read<T: Copy>(&self, address: usize) -> Option<T> {
        let end = address.checked_add(size_of::<T>())?;
        if address < self.start || end > self.end {
            return None;
        }
        // SAFETY: inside the object's extent, which the maker of the object vouched is mapped; the tables read here are
        // plain integers that the link editor laid into its readable segments.
        Some(unsafe { (address as *const T).read_unaligned() })
    }

    fn string(&self, offset: usize) -> Option<&CStr> {
        let at = self.strings.checked_add(offset)?;
        if self.strings == 0 || offset >= self.strings_size || !self.contains(at) {
            return None;
        }
        // SAFETY: an offset into the object's string table, whose last byte is NUL (System V ABI).
        Some(unsafe { CStr::from_ptr(at as *const c_char) })
    }

    /// Path as the loader knows it; empty for the program.
    pub fn path(&self) -> &CStr {
        if self.name.is_null() {
            return c"";
        }
        // SAFETY: the maker of the object vouched for the string.
        unsafe { CStr::from_ptr(self.name) }
    }

    /// `DT_SONAME`, else the file's name.
    pub fn called(&self) -> &[u8] {
        if let Some(soname) = self.string(self.soname) {
            return soname.to_bytes();
        }
        self.file_name()
    }

    /// Last part of its path.
    pub fn file_name(&self) -> &[u8] {
        let path = self.path().to_bytes();
        path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
    }

    /// The loader's record for debuggers (`r_debug`), which only the program has.
    pub fn debug_record(&self) -> usize {
        self.debug
    }

    /// One entry of the symbol table.
    pub fn symbol(&self, index: usize) -> Option<Symbol> {
        if self.symbols == 0 {
            return None;
        }
        self.read(self.symbols.checked_add(index.checked_mul(size_of::<Symbol>())?)?)
    }

    /// The name of an entry.
    pub fn name_of(&self, symbol: &Symbol) -> Option<&CStr> {
        self.string(usize::try_from(symbol.name).ok()?)
    }

    fn hash_header(&self) -> Option<HashHeader> {
        if self.hash == 0 {
            return None;
        }
        let [buckets, first, words, shift] = self.read::<[u32; 4]>(self.hash)?;
        let size = |value: u32| usize::try_from(value).ok();
        let (buckets, first, words) = (size(buckets)?, size(first)?, size(words)?);
        if buckets == 0 || words == 0 {
            return None;
        }
        Some(HashHeader { buckets, first, words, shift })
    }

    /// Index of the symbol that this object defines under `name`, by its `DT_GNU_HASH` table.
    pub fn index_of(&self, name: &CStr) -> Option<usize> {
        let header = self.hash_header()?;
        let hash =
            name.to_bytes().iter().fold(5381_u32, |hash, byte| hash.wrapping_mul(33).wrapping_add(u32::from(*byte)));
        let wide = usize::try_from(hash).ok()?;
        let bloom = self.hash + 16;
        let word = self.read::<usize>(bloom + (wide / 64 % header.words) * 8)?;
        let other = usize::try_from(hash.checked_shr(header.shift)?).ok()?;
        if word >> (wide % 64) & word >> (other % 64) & 1 == 0 {
            return None;
        }
        let buckets = bloom + header.words * 8;
        let chains = buckets + header.buckets * 4;
        let mut index = usize::try_from(self.read::<u32>(buckets + wide % header.buckets * 4)?).ok()?;
        if index < header.first {
            return None;
        }
        // The last entry of a chain has its low bit set; the extent of the object ends a broken one.
        loop {
            let entry = self.read::<u32>(chains + (index - header.first) * 4)?;
            if entry | 1 == hash | 1 {
                let symbol = self.symbol(index)?;
                if symbol.is_defined() && self.name_of(&symbol) == Some(name) {
                    return Some(index);
                }
            }
            if entry & 1 == 1 {
                return None;
            }
            index += 1;
        }
    }

    /// Address of the function that this object defines under `name`.
    pub fn lookup(&self, name: &CStr) -> Option<usize> {
        let symbol = self.symbol(self.index_of(name)?)?;
        Some(self.base.wrapping_add(symbol.value))
    }

    /// Whether this object defines `name`.
    pub fn defines(&self, name: &CStr) -> bool {
        self.index_of(name).is_some()
    }

    /// The relocations that may name a symbol, the PLT's included. (x86-64 objects have explicit addends only.)
    pub fn relocations(&self) -> impl Iterator<Item = Relocation> + '_ {
        let all = [(self.relocations, self.relative), (self.jumps, 0)];
        all.into_iter().flat_map(move |((at, size), skip)| {
            let count = if at == 0 { 0 } else { size / size_of::<Relocation>() };
            (skip..count).map_while(move |index| self.read(at + index * size_of::<Relocation>()))
        })
    }

    /// The last relocation that the loader works on.
    pub fn last_relocation(&self) -> Option<Relocation> {
        let (at, size) = if self.jumps.0 != 0 && self.jumps.1 != 0 { self.jumps } else { self.relocations };
        let count = size / size_of::<Relocation>();
        if at == 0 || count == 0 { None } else { self.read(at + (count - 1) * size_of::<Relocation>()) }
    }

    /// The word that a relocation fills; `None` outside the writable segments.
    pub fn slot(&self, relocation: &Relocation) -> Option<(usize, usize)> {
        let at = self.base.wrapping_add(relocation.offset);
        let (start, end) = self.writable;
        if at < start || at.checked_add(8)? > end || !at.is_multiple_of(8) {
            return None;
        }
        Some((at, self.read(at)?))
    }
}
