//! Builds the C programs of `tests/c` with a ggml of their own, and runs them under the library.
// Each test file uses a part of this.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;

/// The C compiler, or a line that says that tests are skipped.
pub(crate) fn compiler() -> Option<OsString> {
    let cc = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    match Command::new(&cc).arg("--version").output() {
        Ok(said) if said.status.success() => Some(cc),
        _ => {
            println!("skipped: there is no C compiler {}", cc.display());
            None
        }
    }
}

/// A folder of its own for each test, gone at its end.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A kind of ggml to test with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ggml {
    pub(crate) name: &'static str,
    /// What its sources and the programs are compiled with.
    pub(crate) defines: &'static [&'static str],
    /// Whether it has an allocator of its own.
    pub(crate) originals: bool,
}

/// As ggml is today.
pub(crate) const NEW: Ggml = Ggml { name: "new", defines: &[], originals: true };
/// An old one, whose own allocator can't be reached.
pub(crate) const BARE: Ggml = Ggml { name: "bare", defines: &["-DMOCK_OLD"], originals: false };

/// How a program comes by its ggml.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loaded {
    /// It opens a library that is linked with it, as Node and Python do.
    Local,
    /// It opens such a library, whose symbols are then visible to all others.
    Global,
    /// It opens such a library, and closes it before it opens the next.
    Reload,
    /// It is linked with it.
    Linked,
}

/// What is built for a test.
pub(crate) struct Workshop {
    pub(crate) folder: Folder,
    cc: OsString,
    built: Mutex<Vec<PathBuf>>,
}

impl Workshop {
    /// `None` where nothing can be built.
    pub(crate) fn open(name: &str) -> Option<Self> {
        Some(Self { folder: Folder::new(name), cc: compiler()?, built: Mutex::default() })
    }

    /// Runs a program of `tests/c` with this ggml under the library.
    pub(crate) fn run(&self, program: &str, ggml: Ggml, loaded: Loaded, args: &[&str], env: &[(&str, &str)]) -> Said {
        let mut command = self.command(program, &[ggml], loaded, args);
        said(preloaded(&mut command).envs(env.iter().copied()))
    }

    /// The command that runs a program once for each ggml, which are all in one process.
    pub(crate) fn command(&self, program: &str, ggmls: &[Ggml], loaded: Loaded, args: &[&str]) -> Command {
        let libraries: Vec<PathBuf> = ggmls.iter().map(|ggml| self.program(program, *ggml)).collect();
        let mut command = match loaded {
            Loaded::Linked => {
                let mut command = Command::new(self.linked(program, ggmls[0]));
                command.args(args);
                return command;
            }
            Loaded::Local | Loaded::Global | Loaded::Reload => Command::new(self.loader()),
        };
        command.arg(match loaded {
            Loaded::Global => "global",
            Loaded::Reload => "reload",
            Loaded::Local | Loaded::Linked => "local",
        });
        command.args(libraries).arg("--").args(args);
        command
    }

    fn ggml(&self, ggml: Ggml) -> PathBuf {
        let sources: &[&str] = if ggml.originals { &["ggml.c", "original.c"] } else { &["ggml.c"] };
        self.cc(&format!("libggml_{}.so", ggml.name), sources, &["-shared"], ggml.defines)
    }

    fn program(&self, name: &str, ggml: Ggml) -> PathBuf {
        self.ggml(ggml);
        let link = format!("-lggml_{}", ggml.name);
        let source = format!("{name}.c");
        self.cc(&format!("lib{name}_{}.so", ggml.name), &[&source], &["-shared", &link], ggml.defines)
    }

    fn linked(&self, name: &str, ggml: Ggml) -> PathBuf {
        self.ggml(ggml);
        let link = format!("-lggml_{}", ggml.name);
        self.cc(&format!("{name}_{}", ggml.name), &[&format!("{name}.c"), "main.c"], &[&link], ggml.defines)
    }

    fn loader(&self) -> PathBuf {
        self.cc("loader", &["loader.c"], &["-ldl"], &[])
    }

    /// Compiles and links, unless that has been done.
    pub(crate) fn cc(&self, name: &str, sources: &[&str], link: &[&str], defines: &[&str]) -> PathBuf {
        let target = self.folder.0.join(name);
        let mut built = self.built.lock().unwrap();
        if built.contains(&target) {
            return target;
        }
        let mut command = Command::new(&self.cc);
        command.args(["-O1", "-g", "-fPIC", "-Wall", "-Wextra", "-Werror"]).args(defines).arg("-o").arg(&target);
        command.args(sources.iter().map(|source| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(source)));
        command.arg("-L").arg(&self.folder.0).arg(format!("-Wl,-rpath,{}", self.folder.0.display())).args(link);
        let Output { status, stderr, .. } = command.output().unwrap();
        assert!(status.success(), "{command:?}\n{}", String::from_utf8_lossy(&stderr));
        built.push(target.clone());
        target
    }
}

/// The library, which cargo has built beside this test.
pub(crate) fn library() -> PathBuf {
    let library = std::env::current_exe().unwrap().with_file_name("libsteeve_ggml.so");
    assert!(library.exists(), "cargo has not built {}", library.display());
    library
}

/// Returns the command under the library, and with no settings from elsewhere.
pub(crate) fn preloaded(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("STEEVE_") {
            command.env_remove(name);
        }
    }
    command.env("LD_PRELOAD", library())
}

/// What a program said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) status: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

pub(crate) fn said(command: &mut Command) -> Said {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Said { status: status.code(), out: text(stdout), err: text(stderr) }
}

impl Said {
    /// It ended well.
    #[track_caller]
    pub(crate) fn well(self) -> Self {
        assert_eq!(self.status, Some(0), "\nout: {}\nerr: {}", self.out, self.err);
        self
    }

    /// The lines of the library.
    pub(crate) fn lines(&self) -> Vec<&str> {
        self.err.lines().filter(|line| line.starts_with("steeve: ")).collect()
    }
}
