//! Kernels from source to machine code: once, and then from files.
//!
//! A file's name is made of the source, the options, the architecture and the compiler's version, so that none of them can
//! change behind its back; its contents begin with a sum of the rest, so that half a file is none. Without a compiler, files
//! of any of its versions will do.

use std::ffi::{CString, c_char};
use std::fmt;
use std::path::{Path, PathBuf};
use std::ptr::null;
use std::sync::atomic::{AtomicU64, Ordering};

use cudarc::nvrtc::sys;

use crate::sources::{FAMILIES, KernelFamily};

/// The kernels of all families.
pub(crate) struct CompiledKernels<M> {
    pub(crate) families: Vec<(&'static str, M)>,
    /// What they are compiled for: 90 is that of compute capability 9.0. It may be older than the GPU.
    pub(crate) arch: i32,
}

/// Loads the kernels for an architecture. Families are compiled side by side.
pub(crate) fn load<M: Send>(
    arch: (i32, i32),
    load: &(impl Fn(&[u8]) -> Result<M, String> + Sync),
) -> Result<CompiledKernels<M>, String> {
    let cache = CodeCache::new(arch)?;
    std::thread::scope(|scope| {
        let cache = &cache;
        let start = |family: &'static KernelFamily| {
            (family.name, scope.spawn(move || cache.load(family.name, &family.source(), load)))
        };
        // All of them before any is waited for.
        let started: Vec<_> = FAMILIES.iter().map(start).collect();
        let end = |(name, family): (_, std::thread::ScopedJoinHandle<'_, _>)| {
            let loaded = family.join().unwrap_or_else(|_| Err(String::from("the compiler panicked")))?;
            Ok::<_, String>((name, loaded))
        };
        let families = started.into_iter().map(end).collect::<Result<_, _>>()?;
        Ok(CompiledKernels { families, arch: cache.target.arch() })
    })
}

/// Loads a kernel of the caller's for an architecture.
pub(crate) fn load_custom<M>(
    arch: (i32, i32),
    source: &str,
    load: &impl Fn(&[u8]) -> Result<M, String>,
) -> Result<M, String> {
    CodeCache::new(arch)?.load("custom", source, load)
}

/// Files of machine code for an architecture, and the version of the compiler that makes those that are missing.
struct CodeCache {
    folder: Option<PathBuf>,
    target: Target,
    version: Option<String>,
}

impl CodeCache {
    fn new(arch: (i32, i32)) -> Result<Self, String> {
        let (target, version) = match Compiler::new(arch)? {
            Some(compiler) => (compiler.target, Some(compiler.version)),
            None => (Target::Code(10 * arch.0 + arch.1), None),
        };
        Ok(Self { folder: folder(), target, version })
    }

    /// Loads a source's machine code from its file, or else compiles it.
    fn load<M>(&self, name: &str, source: &str, load: impl Fn(&[u8]) -> Result<M, String>) -> Result<M, String> {
        let (target, options) = (self.target, options(self.target));
        let parts: Vec<&[u8]> = options.iter().map(String::as_bytes).chain([source.as_bytes()]).collect();
        // Sources of callers are among them, so one sum may not be enough.
        let turned: Vec<&[u8]> = parts.iter().rev().copied().collect();
        let stem = format!("{name}-{target}-{:016x}{:016x}-", sum(&parts), sum(&turned));
        let Some(version) = &self.version else {
            let files = self.folder.iter().flat_map(|folder| kept(folder, &stem));
            return files.into_iter().find_map(|file| load(&read(&file)?).ok()).ok_or_else(|| {
                "the compiler's library (libnvrtc) can't be loaded, and the kernels are in no file of the cache".into()
            });
        };
        let file = self.folder.as_ref().map(|folder| folder.join(format!("{stem}{version}.code")));
        if let Some(code) = file.as_deref().and_then(read)
            && let Ok(loaded) = load(&code)
        {
            return Ok(loaded);
        }
        let code = compile(source, &options, target)?;
        let loaded = load(&code)?;
        if let Some(file) = file {
            // Where the folder can't be written, the next process compiles again.
            let _ = write(&file, &code);
        }
        Ok(loaded)
    }
}

/// Files whose names begin so.
fn kept(folder: &Path, stem: &str) -> Vec<PathBuf> {
    let Ok(files) = std::fs::read_dir(folder) else { return Vec::new() };
    let named = |file: &std::fs::DirEntry| {
        let name = file.file_name();
        name.to_str().is_some_and(|name| name.starts_with(stem) && name.ends_with(".code"))
    };
    files.filter_map(Result::ok).filter(named).map(|file| file.path()).collect()
}

fn options(target: Target) -> [String; 3] {
    [format!("--gpu-architecture={target}"), "--std=c++17".into(), "-default-device".into()]
}

/// `STEEVE_CUDA_CACHE`, or a folder of the user's; an empty name is for none.
fn folder() -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os("STEEVE_CUDA_CACHE") {
        return (!folder.is_empty()).then(|| folder.into());
    }
    let cache = std::env::var_os("XDG_CACHE_HOME").filter(|it| !it.is_empty()).map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))?;
    Some(cache.join("steeve"))
}

fn read(file: &Path) -> Option<Vec<u8>> {
    let bytes = std::fs::read(file).ok()?;
    let (sum, code) = bytes.split_at_checked(8)?;
    (sum == sum_of(code)).then(|| code.to_vec())
}

/// Writes a file in one step, so that half of it is never read.
fn write(file: &Path, code: &[u8]) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let part = file.with_extension(format!("{}-{number}.part", std::process::id()));
    std::fs::write(&part, [&sum_of(code), code].concat())?;
    std::fs::rename(&part, file)
}

fn sum_of(code: &[u8]) -> [u8; 8] {
    sum(&[code]).to_le_bytes()
}

/// The sum of FNV-1a over all parts and their lengths, which is the same on every machine and in every version.
fn sum(parts: &[&[u8]]) -> u64 {
    let lengths = parts.iter().flat_map(|part| (part.len() as u64).to_le_bytes());
    let bytes = lengths.chain(parts.iter().flat_map(|part| part.iter().copied()));
    bytes.fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

fn is_there() -> bool {
    // SAFETY: only tries to load the library.
    let is_there = unsafe { sys::is_culib_present() };
    if is_there {
        // SAFETY: it can be loaded. It stays from now on, since loading it takes a while.
        unsafe { sys::culib() };
    }
    is_there
}

/// What the compiler makes, for which architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    /// Machine code.
    Code(i32),
    /// A text that the driver compiles, for a GPU that the compiler does not know.
    Text(i32),
}

impl Target {
    /// Machine code where the compiler knows the GPU, and else a text for the newest that it knows and the GPU can still run.
    fn new(arch: i32, known: &[i32]) -> Option<Self> {
        if known.contains(&arch) {
            return Some(Self::Code(arch));
        }
        known.iter().copied().filter(|known| *known < arch).max().map(Self::Text)
    }

    fn arch(self) -> i32 {
        match self {
            Self::Code(arch) | Self::Text(arch) => arch,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(arch) => write!(f, "sm_{arch}"),
            Self::Text(arch) => write!(f, "compute_{arch}"),
        }
    }
}

/// The compiler, and what it makes for a GPU.
struct Compiler {
    version: String,
    target: Target,
}

impl Compiler {
    /// `None` if there is none; an error if it knows no GPU as old as this one.
    fn new((major, minor): (i32, i32)) -> Result<Option<Self>, String> {
        if !is_there() {
            return Ok(None);
        }
        let (mut version, mut count) = ((0, 0), 0);
        // SAFETY: writes two numbers.
        said("nvrtcVersion", unsafe { sys::nvrtcVersion(&mut version.0, &mut version.1) })?;
        // SAFETY: writes a number.
        said("nvrtcGetNumSupportedArchs", unsafe { sys::nvrtcGetNumSupportedArchs(&mut count) })?;
        let mut known = vec![0; usize::try_from(count).unwrap_or(0)];
        // SAFETY: there is room for so many numbers.
        said("nvrtcGetSupportedArchs", unsafe { sys::nvrtcGetSupportedArchs(known.as_mut_ptr()) })?;
        let version = format!("{}.{}", version.0, version.1);
        match Target::new(10 * major + minor, &known) {
            Some(target) => Ok(Some(Self { version, target })),
            None => {
                Err(format!("NVRTC {version}: no code for this GPU: expected one of {known:?}, got {major}{minor}"))
            }
        }
    }
}

/// A program that is freed.
struct Program(sys::nvrtcProgram);

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: `compile` has made it.
        unsafe { sys::nvrtcDestroyProgram(&mut self.0) };
    }
}

/// Machine code, or a text that ends with a zero.
fn compile(source: &str, options: &[String], target: Target) -> Result<Vec<u8>, String> {
    let text = |text: &str| CString::new(text).map_err(|_| String::from("the source has a zero in it"));
    let (source, name) = (text(source)?, c"steeve.cu");
    let options: Vec<CString> = options.iter().map(|option| text(option)).collect::<Result<_, _>>()?;
    let mut program = Program(std::ptr::null_mut());
    // SAFETY: strings that end with a zero and outlive the program.
    let made = unsafe { sys::nvrtcCreateProgram(&mut program.0, source.as_ptr(), name.as_ptr(), 0, null(), null()) };
    said("nvrtcCreateProgram", made)?;
    let pointers: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
    // SAFETY: so many strings.
    let compiled = unsafe { sys::nvrtcCompileProgram(program.0, pointers.len() as i32, pointers.as_ptr()) };
    let program = program.0;
    // SAFETY: each writes a number, and then as many bytes as that is, for which there is room.
    unsafe {
        if compiled != sys::nvrtcResult::NVRTC_SUCCESS {
            let log = bytes_of(
                |size| sys::nvrtcGetProgramLogSize(program, size),
                |log| sys::nvrtcGetProgramLog(program, log),
            )?;
            return Err(format!("the kernels can't be compiled: {}", String::from_utf8_lossy(&log)));
        }
        if let Target::Text(_) = target {
            return bytes_of(|size| sys::nvrtcGetPTXSize(program, size), |text| sys::nvrtcGetPTX(program, text));
        }
        bytes_of(|size| sys::nvrtcGetCUBINSize(program, size), |code| sys::nvrtcGetCUBIN(program, code))
    }
}

fn bytes_of(
    size: impl FnOnce(&mut usize) -> sys::nvrtcResult,
    get: impl FnOnce(*mut c_char) -> sys::nvrtcResult,
) -> Result<Vec<u8>, String> {
    let mut len = 0;
    said("nvrtc", size(&mut len))?;
    let mut bytes = vec![0u8; len];
    said("nvrtc", get(bytes.as_mut_ptr().cast()))?;
    Ok(bytes)
}

fn said(call: &str, result: sys::nvrtcResult) -> Result<(), String> {
    if result == sys::nvrtcResult::NVRTC_SUCCESS { Ok(()) } else { Err(format!("{call}: {result:?}")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel_list::KERNELS;

    fn folder_of(test: &str) -> PathBuf {
        std::env::temp_dir().join(format!("steeve-cuda-{test}-{}", std::process::id()))
    }

    #[test]
    fn what_is_written_is_read_and_half_of_it_is_not() {
        let folder = folder_of("half");
        let file = folder.join("kernels.code");
        write(&file, b"machine code").unwrap();
        assert_eq!(read(&file).as_deref(), Some(&b"machine code"[..]));
        let half = std::fs::read(&file).unwrap();
        std::fs::write(&file, &half[..half.len() - 1]).unwrap();
        assert_eq!(read(&file), None);
        assert_eq!(kept(&folder, "kernels"), [file]);
        assert!(kept(&folder, "rows").is_empty() && kept(&folder.join("none"), "kernels").is_empty());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// Kernels are launched early, so each must wait for the one ahead of it.
    #[test]
    fn every_kernel_is_made_by_the_one_macro() {
        for family in FAMILIES {
            let (name, source) = (family.name, family.source());
            assert_eq!(source.matches("__global__").count(), 1, "{name} has a kernel of another make");
        }
    }

    #[test]
    fn a_gpu_that_the_compiler_does_not_know_gets_a_text() {
        let known = [75, 80, 90, 100];
        assert_eq!(Target::new(90, &known), Some(Target::Code(90)));
        assert_eq!(Target::new(103, &known), Some(Target::Text(100)));
        assert_eq!(Target::new(89, &known), Some(Target::Text(80)));
        assert_eq!(Target::new(70, &known), None);
    }

    /// Needs no GPU, only the compiler.
    #[test]
    fn the_kernels_compile_for_old_and_new_architectures() {
        if !is_there() {
            return crate::skip("libnvrtc can't be loaded");
        }
        for family in FAMILIES {
            let name = family.name;
            let compiled = [Target::Text(75), Target::Code(90)].map(|target| {
                let compiled = compile(&family.source(), &options(target), target);
                compiled.unwrap_or_else(|why| panic!("{name}, {target}: {why}"))
            });
            // All that is asked for is there, and nothing else.
            let text = String::from_utf8_lossy(&compiled[0]);
            let mut made: Vec<&str> = text.split(".entry ").skip(1).filter_map(|it| it.split('(').next()).collect();
            let mut asked: Vec<&str> = KERNELS.iter().filter(|it| it.family == name).map(|it| it.name).collect();
            made.sort_unstable();
            asked.sort_unstable();
            assert_eq!(made, asked, "{name}");
        }
    }

    /// Needs no GPU, only the compiler.
    #[test]
    fn kernels_of_callers_compile_and_errors_name_the_line_of_their_source() {
        if !is_there() {
            return crate::skip("libnvrtc can't be loaded");
        }
        for text in crate::custom::texts_for_tests() {
            for target in [Target::Text(75), Target::Code(90)] {
                compile(&text, &options(target), target).unwrap_or_else(|why| panic!("{target}: {why}"));
            }
        }
        let wrong = crate::custom::texts_for_tests()[0].replace("write(call, i,", "wriet(call, i,");
        let error = compile(&wrong, &options(Target::Code(90)), Target::Code(90)).map(drop).unwrap_err();
        assert!(error.contains("TEST(1)") && error.contains("wriet"), "{error}");
    }

    /// Needs a GPU.
    #[test]
    fn the_driver_compiles_a_text_for_a_gpu_that_is_newer() {
        use crate::driver::{self, Context, Module};
        if !driver::count().is_ok_and(|count| count > 0) || !is_there() {
            return crate::skip("there is no GPU, or no compiler for it");
        }
        let (context, target) = (Context::of(0).unwrap(), Target::Text(75));
        for family in FAMILIES {
            let text = compile(&family.source(), &options(target), target).unwrap();
            Module::load(&context, &text).unwrap_or_else(|fault| panic!("{}: {fault}", family.name));
        }
    }

    /// No file can be relied on: one that the driver refuses is made anew, and without the compiler any that it takes will do.
    #[test]
    fn a_file_that_is_refused_is_replaced() {
        if !is_there() {
            return crate::skip("libnvrtc can't be loaded");
        }
        let (folder, family) = (folder_of("refused"), &FAMILIES[3]);
        let load = |folder: &Path, version: Option<&str>, wrong: &[u8]| {
            let taken = |code: &[u8]| if code == wrong { Err(String::from("refused")) } else { Ok(code.to_vec()) };
            let (folder, version) = (Some(folder.into()), version.map(String::from));
            CodeCache { folder, target: Target::Code(90), version }.load(family.name, &family.source(), taken)
        };
        let first = load(&folder, Some("13.0"), b"").unwrap();
        assert_eq!(load(&folder, None, b"").unwrap(), first);
        let file = &kept(&folder, family.name)[0];
        write(file, b"not for this GPU").unwrap();
        assert_eq!(load(&folder, Some("13.0"), b"not for this GPU").unwrap(), first);
        assert_eq!(read(file).unwrap(), first);
        let error = load(&folder, None, &first).unwrap_err();
        assert!(error.contains("libnvrtc"), "{error}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
