//! Records of ELF files, as the System V ABI and its GNU extensions lay them out for 64 bits.

/// The fields of `Elf64_Phdr`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Segment {
    /// `PT_*`
    pub kind: u32,
    /// `PF_*`
    pub flags: u32,
    offset: usize,
    /// Where, relative to the load address.
    pub vaddr: usize,
    paddr: usize,
    filesz: usize,
    /// Bytes in memory.
    pub memsz: usize,
    align: usize,
}

/// `Elf64_Sym`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Symbol {
    /// Offset of its name in the string table.
    pub name: u32,
    info: u8,
    other: u8,
    section: u16,
    /// Address, relative to the load address.
    pub value: usize,
    size: usize,
}

/// `Elf64_Rela`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Relocation {
    /// Where, relative to the object's load address.
    pub offset: usize,
    info: usize,
    /// Added to the symbol's value.
    pub addend: isize,
}

impl Relocation {
    /// `R_X86_64_*`.
    pub fn kind(&self) -> usize {
        self.info & 0xffff_ffff
    }

    /// Index into the symbol table.
    pub fn symbol(&self) -> usize {
        self.info >> 32
    }
}

impl Symbol {
    /// Whether a look-up by name ends here. As in the loader, an undefined symbol with a value counts: it is the PLT entry
    /// that stands for the function in a program that is not position-independent.
    pub fn is_defined(&self) -> bool {
        self.value != 0
    }

    /// Whether the object leaves this symbol to others.
    pub fn is_undefined(&self) -> bool {
        self.section == 0
    }
}

/// Header of a `DT_GNU_HASH` table.
pub struct HashHeader {
    /// How many buckets.
    pub buckets: usize,
    /// First symbol that the table knows.
    pub first: usize,
    /// Words of the bloom filter.
    pub words: usize,
    /// Second hash of the bloom filter.
    pub shift: u32,
}
