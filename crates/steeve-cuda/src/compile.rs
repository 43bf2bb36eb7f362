//! Kernels from source to machine code: once, and then from a file.
//!
//! The file's name is made of the source, the options, the GPU's architecture and the compiler's version, so that none of
//! them can change behind its back; its contents begin with a sum of the rest, so that half a file is none.

use std::ffi::CString;
use std::hash::Hasher;
use std::path::{Path, PathBuf};
use std::ptr::null;

use cudarc::nvrtc::sys;

/// The machine code of all kernels for an architecture, one piece for each family. Families are compiled side by side.
pub(crate) fn machine_code(arch: (i32, i32)) -> Result<Vec<Vec<u8>>, String> {
    std::thread::scope(|scope| {
        let families = FAMILIES.map(|(name, source)| scope.spawn(move || family(name, source, arch)));
        let join = |family: std::thread::ScopedJoinHandle<'_, _>| {
            family.join().unwrap_or_else(|_| Err(String::from("the compiler panicked")))
        };
        families.into_iter().map(join).collect()
    })
}

/// From the cache, or compiled.
fn family(name: &str, source: &str, (major, minor): (i32, i32)) -> Result<Vec<u8>, String> {
    let source = [COMMON, source].concat();
    let options = options(&format!("sm_{major}{minor}"));
    let version = version();
    let mut sum = Sum::default();
    sum.add(source.as_bytes());
    options.iter().for_each(|option| sum.add(option.as_bytes()));
    sum.add(&[version.0.to_le_bytes(), version.1.to_le_bytes()].concat());
    let file = folder().map(|folder| folder.join(format!("{name}-sm_{major}{minor}-{:016x}.cubin", sum.finish())));
    if let Some(code) = file.as_deref().and_then(read) {
        return Ok(code);
    }
    let code = compile(&source, &options)?;
    if let Some(file) = file {
        // Who can't write there compiles again next time.
        let _ = write(&file, &code);
    }
    Ok(code)
}

fn options(arch: &str) -> [String; 3] {
    [format!("--gpu-architecture={arch}"), "--std=c++17".into(), "-default-device".into()]
}

const COMMON: &str = include_str!("../cuda/common.cu");

/// Kernels by family: `act` knows them in this order.
pub(crate) const FAMILIES: [(&str, &str); 6] = [
    ("elementwise", include_str!("../cuda/elementwise.cu")),
    ("rows", include_str!("../cuda/rows.cu")),
    ("movement", include_str!("../cuda/movement.cu")),
    ("image", include_str!("../cuda/image.cu")),
    ("matrix", include_str!("../cuda/matrix.cu")),
    ("attention", include_str!("../cuda/attention.cu")),
];

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

/// In one step, so that nobody reads half a file.
fn write(file: &Path, code: &[u8]) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let part = file.with_extension(format!("{}.part", std::process::id()));
    std::fs::write(&part, [&sum_of(code), code].concat())?;
    std::fs::rename(&part, file)
}

fn sum_of(code: &[u8]) -> [u8; 8] {
    let mut sum = Sum::default();
    sum.add(code);
    sum.finish().to_le_bytes()
}

/// The sum of FNV-1a, which is the same on every machine and in every version.
struct Sum(u64);

impl Default for Sum {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Sum {
    fn add(&mut self, bytes: &[u8]) {
        self.write(&(bytes.len() as u64).to_le_bytes());
        self.write(bytes);
    }
}

impl Hasher for Sum {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
}

fn is_there() -> bool {
    // SAFETY: only tries to load the library.
    unsafe { sys::is_culib_present() }
}

/// The compiler's version; zeros without one.
fn version() -> (i32, i32) {
    let (mut major, mut minor) = (0, 0);
    if is_there() {
        // SAFETY: writes two numbers.
        unsafe { sys::nvrtcVersion(&mut major, &mut minor) };
    }
    (major, minor)
}

/// A program that is freed.
struct Program(sys::nvrtcProgram);

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: `compile` has made it.
        unsafe { sys::nvrtcDestroyProgram(&mut self.0) };
    }
}

fn compile(source: &str, options: &[String]) -> Result<Vec<u8>, String> {
    if !is_there() {
        return Err("the compiler's library (libnvrtc) can't be loaded, and the kernels are in no cache".into());
    }
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
    if compiled != sys::nvrtcResult::NVRTC_SUCCESS {
        let log = bytes_of(
            |size| {
                // SAFETY: writes a number.
                unsafe { sys::nvrtcGetProgramLogSize(program.0, size) }
            },
            |log| {
                // SAFETY: there is room for as many bytes as were asked for.
                unsafe { sys::nvrtcGetProgramLog(program.0, log) }
            },
        )?;
        return Err(format!("the kernels can't be compiled: {}", String::from_utf8_lossy(&log)));
    }
    bytes_of(
        |size| {
            // SAFETY: writes a number.
            unsafe { sys::nvrtcGetCUBINSize(program.0, size) }
        },
        |code| {
            // SAFETY: there is room for as many bytes as were asked for.
            unsafe { sys::nvrtcGetCUBIN(program.0, code) }
        },
    )
}

fn bytes_of(
    size: impl FnOnce(&mut usize) -> sys::nvrtcResult,
    get: impl FnOnce(*mut i8) -> sys::nvrtcResult,
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

    #[test]
    fn what_is_written_is_read_and_half_of_it_is_not() {
        let folder = std::env::temp_dir().join(format!("steeve-cuda-{}", std::process::id()));
        let file = folder.join("kernels.cubin");
        write(&file, b"machine code").unwrap();
        assert_eq!(read(&file).as_deref(), Some(&b"machine code"[..]));
        let half = std::fs::read(&file).unwrap();
        std::fs::write(&file, &half[..half.len() - 1]).unwrap();
        assert_eq!(read(&file), None);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// Needs no GPU, only the compiler.
    #[test]
    fn the_kernels_compile_for_old_and_new_architectures() {
        if !is_there() {
            println!("skipped: libnvrtc can't be loaded");
            return;
        }
        for (name, source) in FAMILIES {
            for arch in ["compute_75", "sm_90"] {
                let compiled = compile(&[COMMON, source].concat(), &options(arch));
                compiled.unwrap_or_else(|why| panic!("{name}, {arch}: {why}"));
            }
        }
    }
}
