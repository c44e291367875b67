//! Every function of the driver API is classified: a function or a variant that a new toolkit or driver brings is told here
//! before its memory goes past the cap.
//!
//! A new toolkit is one more `wheel cudart-…` line in `scripts/fetch`: every such folder in `target/wheels` is read.

#[path = "surface/compare.rs"]
mod compare;
#[path = "surface/headers.rs"]
mod headers;
#[path = "surface/list.rs"]
mod list;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use compare::{Source, faults};
use headers::Headers;
use object::{Object as _, ObjectSymbol as _};

/// Toolkits that must be there; others are read too.
const TOOLKITS: [&str; 4] = ["11.8", "12.9", "13.0", "13.5"];

const LIST: &str = include_str!("surface/functions.txt");

/// The functions that a library exports.
fn exports(library: &Path) -> BTreeSet<String> {
    let bytes =
        fs::read(library).unwrap_or_else(|error| panic!("{}: {error}; scripts/fetch brings it", library.display()));
    let file = object::File::parse(&*bytes).expect("an ELF file");
    let functions =
        file.dynamic_symbols().filter(|symbol| symbol.is_definition() && symbol.kind() == object::SymbolKind::Text);
    functions.filter_map(|symbol| symbol.name().ok().map(str::to_owned)).collect()
}

/// The golden list of exports, which a test of the library compares with its table of hooks.
fn golden() -> BTreeSet<String> {
    let lines = include_str!("../shim/exports.txt").lines();
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
}

fn hooked() -> BTreeSet<String> {
    golden().into_iter().filter(|name| headers::is_function(name)).collect()
}

/// The toolkits that are here, and the real driver.
fn sources() -> Vec<Source> {
    let wheels = harness::root().join("target/wheels");
    let mut versions: BTreeSet<String> = TOOLKITS.map(str::to_owned).into();
    for folder in fs::read_dir(&wheels).into_iter().flatten().flatten() {
        versions.extend(folder.file_name().to_string_lossy().strip_prefix("cudart-").map(str::to_owned));
    }
    let mut sources: Vec<Source> = Vec::new();
    for version in versions {
        let folder = wheels.join(format!("cudart-{version}"));
        let headers = Headers::of_toolkit(&folder);
        assert!(
            headers.names.len() > 400 && headers.signatures.len() > 300,
            "{}: {} functions, {} types; scripts/fetch brings the headers of the toolkits",
            folder.display(),
            headers.names.len(),
            headers.signatures.len(),
        );
        sources.push(Source { title: format!("toolkit {version}"), headers });
    }
    let driver = harness::root().join("target/nvidia-535/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.1");
    let mut names = exports(&driver);
    names.retain(|name| headers::is_function(name));
    assert!(names.len() > 500, "{}: {}", driver.display(), names.len());
    sources.push(Source { title: "driver 535".to_owned(), headers: Headers { names, ..Headers::default() } });
    sources
}

fn assert_none(faults: &[String]) {
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

/// The faults that a change of what is compared brings, besides those that are there anyway.
fn brought(list: &str, sources: &[Source], hooked: &BTreeSet<String>) -> Vec<String> {
    let before = faults(&list::parse(LIST).unwrap(), &self::sources(), &self::hooked());
    let mut after = faults(&list::parse(list).unwrap(), sources, hooked);
    after.retain(|fault| !before.contains(fault));
    after
}

/// The faults that a made-up header brings.
fn faults_of(header: &str) -> Vec<String> {
    let mut sources = sources();
    let mut headers = Headers::default();
    headers.read(header);
    sources.push(Source { title: "toolkit 99".to_owned(), headers });
    brought(LIST, &sources, &hooked())
}

#[test]
fn every_function_of_every_toolkit_and_driver_is_classified_and_every_hook_is_complete() {
    assert_none(&faults(&list::parse(LIST).unwrap(), &sources(), &hooked()));
}

#[test]
fn the_library_exports_what_the_golden_list_names_and_nothing_else() {
    let exports = exports(&harness::shim());
    let more = exports
        .difference(&golden())
        .map(|name| format!("{name} is exported and not in shim/exports.txt"))
        .collect::<Vec<_>>();
    let less = golden()
        .difference(&exports)
        .map(|name| format!("{name} is in shim/exports.txt and not exported"))
        .collect::<Vec<_>>();
    assert_none(&[more, less].concat());
}

#[test]
fn a_new_function_is_told_with_what_to_do() {
    let told = faults_of("CUresult CUDAAPI\ncuMemAllocSomething(CUdeviceptr *dptr, size_t bytes);");
    assert_eq!(told, ["cuMemAllocSomething (toolkit 99) is not classified: add a line to tests/surface/functions.txt"]);
}

#[test]
fn a_new_signature_of_a_hooked_function_is_told_with_what_to_do() {
    let told = faults_of("#define cuMemCreate cuMemCreate_v2\n");
    assert_eq!(
        told,
        [
            "cuMemCreate_v2 (toolkit 99) is a variant that is not classified: add v2 to cuMemCreate in tests/surface/functions.txt, and \
          a hook for cuMemCreate_v2, since cuMemCreate is hooked"
        ]
    );
}

#[test]
fn a_new_variant_for_the_default_stream_of_each_thread_is_told() {
    let told = faults_of("# define cuMemPoolTrimTo   __CUDA_API_PTSZ( cuMemPoolTrimTo )");
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("cuMemPoolTrimTo_ptsz (toolkit 99)"), "{told:?}");
}

#[test]
fn a_new_pointer_type_without_a_declaration_is_told() {
    let told = faults_of(
        "typedef CUresult (CUDAAPI *PFN_cuMemFree_v2000)(int);\ntypedef CUresult (CUDAAPI *PFN_cuMemFree_v3020)(int);",
    );
    assert_none(&told);
    let told = faults_of(
        "typedef CUresult (CUDAAPI *PFN_cuMemCreate_v10020)(int);\ntypedef CUresult (CUDAAPI *PFN_cuMemCreate_v14000)(int);",
    );
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].starts_with("cuMemCreate has 2 signatures (toolkit 99: {10020, 14000}) and 1 variants"),
        "{told:?}"
    );
}

#[test]
fn what_is_only_talked_about_or_inline_in_a_header_is_no_function() {
    let told = faults_of(
        "/* CUresult CUDAAPI cuOld(int); */ // CUresult CUDAAPI cuOlder(int);\n#define CUDAAPI\n#define cuda_thing cuda_other\n\
         static inline CUresult cuGetProcAddress_v2_ptsz(int) {}\n#define cuGetProcAddress_v2 cuGetProcAddress_v2_ptsz\n",
    );
    assert_none(&told);
}

#[test]
fn a_name_on_the_list_that_exists_nowhere_is_told() {
    let list = LIST.to_owned() + "\nquery  cuMemAlloq  v1  a slip\nquery cuInitt v1,v3_ptds a slip\n";
    let told = brought(&list, &sources(), &hooked());
    let names: Vec<&str> =
        told.iter().filter_map(|fault| fault.split_once(" is in no toolkit").map(|(name, _)| name)).collect();
    assert_eq!(names, ["cuInitt", "cuInitt_v3_ptds", "cuMemAlloq"], "{told:?}");
}

#[test]
fn a_hook_that_is_missing_or_that_the_list_does_not_know_is_told() {
    let mut hooked = hooked();
    hooked.remove("cuMemAllocAsync_ptsz");
    hooked.extend(["cuMemcpy_ptds".to_owned(), "cuMemAlloc_v3".to_owned(), "cuSomething".to_owned()]);
    let told = brought(LIST, &sources(), &hooked);
    let first_words: Vec<&str> = told.iter().filter_map(|fault| fault.split(',').next()).collect();
    assert_eq!(
        first_words,
        [
            "cuMemAlloc_v3 is hooked and no variant of cuMemAlloc in tests/surface/functions.txt: add it there",
            "cuMemcpy_ptds is hooked",
            "cuSomething is hooked and no function of the driver: correct shim/src/hooks.rs",
            "cuMemAllocAsync_ptsz is not hooked",
        ],
        "{told:?}"
    );
}

#[test]
fn a_line_that_is_wrong_is_told_with_its_number() {
    for (line, expected) in [
        ("hooked cuMemAlloc v1", "a line is `role function variants reason`"),
        ("hookd cuMemAlloc v1 why", "the role is one of"),
        ("hooked cuMemAlloc _v2 why", "variants are"),
        ("query cuInit v1 why\nquery cuInit v1 why", "listed twice"),
    ] {
        let error = list::parse(line).expect_err(line);
        assert!(error.starts_with(list::PATH) && error.contains(expected), "{error}");
    }
}
