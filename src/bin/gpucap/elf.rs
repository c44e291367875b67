//! The few things about an ELF file that decide what the loader does with it.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use object::LittleEndian;
use object::elf::{
    DT_RPATH, DT_RUNPATH, DT_SONAME, EM_386, EM_AARCH64, EM_ARM, EM_PPC64, EM_RISCV, EM_X86_64, ET_DYN, FileHeader64,
};
use object::read::elf::{Dyn, FileHeader, ProgramHeader, SectionTable};
use object::read::{ReadCache, StringTable};

/// One ELF file.
pub struct Image {
    /// What it is made for.
    pub target: Target,
    kind: u16,
    /// The loader it asks for; `None` is a static program, or a library.
    pub interpreter: Option<PathBuf>,
    /// The name that it gives itself as a library.
    pub soname: Option<String>,
    /// Where it wants its libraries looked for, `$ORIGIN` as it is written.
    pub run_paths: Vec<String>,
    /// The versions of symbols that it needs, by library.
    pub needs: Vec<(String, Vec<String>)>,
    /// The versions of symbols that it has.
    pub has: Vec<String>,
}

/// What machine code is in it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Target {
    is_64_bit: bool,
    is_little_endian: bool,
    machine: u16,
}

impl std::fmt::Display for Target {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bits = if self.is_64_bit { "64" } else { "32" };
        match self.machine {
            EM_X86_64 => write!(out, "{bits}-bit x86-64"),
            EM_386 => write!(out, "{bits}-bit x86"),
            EM_AARCH64 => write!(out, "{bits}-bit ARM"),
            EM_ARM => write!(out, "{bits}-bit ARM"),
            EM_PPC64 => write!(out, "{bits}-bit POWER"),
            EM_RISCV => write!(out, "{bits}-bit RISC-V"),
            machine => write!(out, "{bits}-bit, machine {machine}"),
        }
    }
}

impl Image {
    /// Whether it can be loaded as a library.
    pub fn is_shared_object(&self) -> bool {
        self.kind == ET_DYN && self.interpreter.is_none()
    }
}

/// Reads what the loader would look at; `None` for a file that is not ELF. Of a file for another machine than 64-bit
/// little-endian ones only the target is read.
pub fn read(path: &Path) -> io::Result<Option<Image>> {
    let mut head = Vec::new();
    File::open(path)?.take(20).read_to_end(&mut head)?;
    let Some(target) = target(&head) else {
        return Ok(None);
    };
    let mut image =
        Image { target, kind: 0, interpreter: None, soname: None, run_paths: vec![], needs: vec![], has: vec![] };
    if target.is_64_bit && target.is_little_endian {
        image.fill(&ReadCache::new(File::open(path)?)).map_err(io::Error::other)?;
    }
    Ok(Some(image))
}

/// The file's `e_ident` and `e_machine` (elf(5)).
fn target(head: &[u8]) -> Option<Target> {
    let machine = [*head.get(18)?, *head.get(19)?];
    let is_little_endian = head[5] == 1;
    let machine = if is_little_endian { u16::from_le_bytes(machine) } else { u16::from_be_bytes(machine) };
    head.starts_with(b"\x7fELF").then_some(Target { is_64_bit: head[4] == 2, is_little_endian, machine })
}

type Data<'data> = &'data ReadCache<File>;
type Sections<'data> = SectionTable<'data, FileHeader64<LittleEndian>, Data<'data>>;

impl Image {
    fn fill(&mut self, data: Data<'_>) -> object::Result<()> {
        let header = FileHeader64::<LittleEndian>::parse(data)?;
        self.kind = header.e_type(LittleEndian);
        for segment in header.program_headers(LittleEndian, data)? {
            if let Some(path) = segment.interpreter(LittleEndian, data)? {
                self.interpreter = Some(OsString::from_vec(path.to_vec()).into());
            }
        }
        // Only linkers that strip the section table leave these empty; then less can be said beforehand.
        let sections = header.sections(LittleEndian, data)?;
        self.read_dynamic(&sections, data)?;
        self.read_versions(&sections, data)
    }

    fn read_dynamic(&mut self, sections: &Sections<'_>, data: Data<'_>) -> object::Result<()> {
        let Some((entries, link)) = sections.dynamic(LittleEndian, data)? else {
            return Ok(());
        };
        let strings = sections.strings(LittleEndian, data, link)?;
        for entry in entries {
            let tag = entry.tag32(LittleEndian);
            if matches!(tag, Some(DT_SONAME | DT_RPATH | DT_RUNPATH)) {
                let offset = entry.val32(LittleEndian).unwrap_or(u32::MAX);
                let Ok(value) = strings.get(offset).map(text) else {
                    continue;
                };
                match tag {
                    Some(DT_SONAME) => self.soname = Some(value),
                    _ => self.run_paths.extend(value.split(':').map(String::from)),
                }
            }
        }
        Ok(())
    }

    fn read_versions(&mut self, sections: &Sections<'_>, data: Data<'_>) -> object::Result<()> {
        if let Some((mut files, link)) = sections.gnu_verneed(LittleEndian, data)? {
            let strings: StringTable<'_, Data<'_>> = sections.strings(LittleEndian, data, link)?;
            while let Some((file, mut versions)) = files.next()? {
                let mut names = Vec::new();
                while let Some(version) = versions.next()? {
                    names.push(text(version.name(LittleEndian, strings)?));
                }
                self.needs.push((text(file.file(LittleEndian, strings)?), names));
            }
        }
        if let Some((mut versions, link)) = sections.gnu_verdef(LittleEndian, data)? {
            let strings = sections.strings(LittleEndian, data, link)?;
            while let Some((_, mut names)) = versions.next()? {
                // The first name is the version's own, the rest are those it inherits.
                if let Some(name) = names.next()? {
                    self.has.push(text(name.name(LittleEndian, strings)?));
                }
            }
        }
        Ok(())
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
