//! Makes a copy of a shared library that lacks some of its dynamic symbols.

use std::fs;
use std::path::Path;

use object::elf;
use object::read::elf::{Dyn, ElfFile64, FileHeader, ProgramHeader, Sym};
use object::{Endianness, Object, ObjectSymbol};

/// Bytes of an `Elf64_Sym`; `st_info` at 4, `st_shndx` at 6, `st_value` at 8 (gABI).
const SYMBOL_BYTES: usize = 24;

/// `STB_WEAK`
const WEAK: u8 = 2;

/// Copies `from` to `to`; `dlsym` and the dynamic linker find none of `names` in the copy.
///
/// # Panics
/// If `from` is no 64-bit ELF library or does not define one of the names.
pub(crate) fn copy_without(from: &Path, to: &Path, names: &[&str]) {
    let mut bytes = fs::read(from).expect("the library is readable");
    let at = {
        let file = ElfFile64::<Endianness>::parse(&*bytes).expect("a 64-bit ELF file");
        let table = dynamic_symbols(&file, &bytes);
        let find = |name: &&str| {
            let symbol = file.dynamic_symbols().find(|symbol| symbol.is_definition() && symbol.name() == Ok(name));
            let symbol = symbol.unwrap_or_else(|| panic!("{name} is no symbol of {}", from.display()));
            debug_assert!(symbol.elf_symbol().st_name(Endianness::Little) != 0);
            table + symbol.index().0 * SYMBOL_BYTES
        };
        names.iter().map(find).collect::<Vec<_>>()
    };
    for offset in at {
        // An undefined symbol without a value is passed over by every look-up; a weak one is null where the library itself
        // refers to it.
        bytes[offset + 4] = bytes[offset + 4] & 0xf | WEAK << 4;
        bytes[offset + 6..offset + 16].fill(0);
    }
    // A new file, never the old one written over: programs that run have it mapped.
    let _ = fs::remove_file(to);
    fs::write(to, bytes).expect("the test's folder is writable");
}

/// File offset of `.dynsym`, by DT_SYMTAB (in a library the first segment maps offset 0 to address 0 and holds the table).
fn dynamic_symbols(file: &ElfFile64<'_, Endianness>, bytes: &[u8]) -> usize {
    let end = Endianness::Little;
    let headers = file.elf_header().program_headers(end, bytes).expect("program headers");
    let entries = headers.iter().find_map(|header| header.dynamic(end, bytes).ok().flatten()).expect("PT_DYNAMIC");
    let entry = entries.iter().find(|entry| entry.tag32(end) == Some(elf::DT_SYMTAB)).expect("DT_SYMTAB");
    let address = entry.d_val(end);
    let segment = headers
        .iter()
        .find(|header| {
            header.p_type(end) == elf::PT_LOAD
                && (header.p_vaddr(end)..header.p_vaddr(end) + header.p_filesz(end)).contains(&address)
        })
        .expect("a segment holds .dynsym");
    usize::try_from(address - segment.p_vaddr(end) + segment.p_offset(end)).expect("x86-64")
}
