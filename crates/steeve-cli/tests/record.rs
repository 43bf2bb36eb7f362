//! `steeve record` with shell scripts in the place of programs that use ggml.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod harness;

use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::harness::{Folder, Said, corpus, words};

const PROMPT: &str = "graphs/llm/llama-3.2-1b.c4096.fa1.out1.pp.json.gz";
const TWO_MEMORIES: &str = "graphs/multi/llama-3.1-8b.gpu1max1g.c32768.fa0.pp.json.gz";

/// A place with a stand-in for the library. Nothing is preloaded from it but its name is: the loader says that it is too
/// short and goes on.
struct Place {
    folder: Folder,
    library: String,
}

impl Place {
    fn new(name: &str) -> Self {
        let folder = Folder::new(&format!("record-{name}"));
        let library = folder.file("libsteeve_ggml.so", b"\x7fELF");
        Self { folder, library }
    }

    /// Runs `steeve record ARGS -- sh -c SCRIPT`, with what the corpus has in `$GRAPH` and `$TWO`.
    fn record(&self, args: &[&str], script: &str) -> Said {
        let args = [&["record", "--library", &self.library], args, &["--", "sh", "-c", script]].concat();
        self.run(Path::new(env!("CARGO_BIN_EXE_steeve")), &args, &[])
    }

    fn run(&self, steeve: &Path, args: &[&str], variables: &[(&str, &str)]) -> Said {
        let mut command = Command::new(steeve);
        command
            .args(args)
            .current_dir(&self.folder.0)
            .env("GRAPH", corpus(PROMPT))
            .env("TWO", corpus(TWO_MEMORIES))
            .env_remove("STEEVE_LIBRARY")
            .env_remove("LD_PRELOAD")
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // A copy of the program that was just written may still be open in a process that another test is starting.
        let mut child = loop {
            match command.spawn() {
                Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => sleep(Duration::from_millis(5)),
                spawned => break spawned.unwrap(),
            }
        };
        let _ = child.stdin.take().unwrap().write_all(b"from the input\n");
        let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
        let err = String::from_utf8(stderr).unwrap();
        // What the loader has to say about the stand-in.
        let err: String = err.lines().filter(|line| !line.contains("ld.so")).map(|line| format!("{line}\n")).collect();
        Said { status: status.code().unwrap(), out: String::from_utf8(stdout).unwrap(), err }
    }
}

#[test]
fn what_a_program_records_is_listed_with_what_it_would_take() {
    let place = Place::new("listed");
    let said = place.record(&[], r#"cp "$GRAPH" "$STEEVE_RECORD/1-0000-502nodes.json.gz""#);
    assert_eq!(said.expect(0).out, "");
    let expected = [
        "note: 1 graph recorded in steeve-recorded",
        "file | nodes | ggml | steeve | of ggml | bound | more | of ggml",
        "1-0000-502nodes.json.gz | 502 | 68.01 MiB | 56.01 MiB | 0.8236 | 56.01 MiB | 44.01 MiB | 0.6471",
    ];
    assert_eq!(words(&said.err, &[]), expected);
    assert!(place.folder.0.join("steeve-recorded/1-0000-502nodes.json.gz").exists());
}

#[test]
fn several_memories_have_a_row_each_and_a_total() {
    let place = Place::new("memories");
    let said = place.record(&["--bytes", "-o", "graphs"], r#"cp "$TWO" "$STEEVE_RECORD/two.json.gz""#);
    let lines = words(&said.expect(0).err, &[0, 1]);
    assert_eq!(lines[1], "memory | ggml | steeve | of ggml | bound | more | of ggml");
    let memories: Vec<&str> = lines[2..].iter().map(|line| line.split(" | ").next().unwrap()).collect();
    assert_eq!(memories, ["FAKE0", "FAKE_Host", "total"]);
    assert!(lines[2].starts_with("FAKE0 | 4399833088 | 2235572224 | 0.5082"), "{}", lines[2]);
}

#[test]
fn what_was_there_before_stays_and_is_not_listed() {
    let place = Place::new("again");
    let script = |name: &str| format!(r#"cp "$GRAPH" "$STEEVE_RECORD/{name}.json.gz""#);
    place.record(&[], &script("old")).expect(0);
    let old = fs::metadata(place.folder.path("steeve-recorded/old.json.gz")).unwrap().modified().unwrap();
    let said = place.record(&[], &script("new"));
    said.expect(0).complains(&["has 1 graph already", "1 graph recorded", "new.json.gz"]);
    assert!(!said.err.contains("old.json.gz"), "{}", said.err);
    assert_eq!(fs::metadata(place.folder.path("steeve-recorded/old.json.gz")).unwrap().modified().unwrap(), old);
    let said = place.record(&[], "true");
    said.expect(0).complains(&["has 2 graphs already", "nothing recorded"]);
    assert!(place.folder.0.join("steeve-recorded").exists());
}

#[test]
fn input_output_and_status_are_the_programs() {
    let place = Place::new("streams");
    let said = place.record(&[], "cat; echo to the error stream >&2; exit 7");
    assert_eq!(said.expect(7).out, "from the input\n");
    said.complains(&["to the error stream", "nothing recorded", "linked statically"]);
    assert!(!place.folder.0.join("steeve-recorded").exists(), "a folder for nothing");
}

#[test]
fn a_killed_program_is_said_to_be_killed() {
    let place = Place::new("killed");
    let said = place.record(&[], r#"cp "$GRAPH" "$STEEVE_RECORD/g.json.gz"; kill -KILL $$"#);
    said.expect(128 + 9).complains(&["error: sh: killed by a signal: signal: 9 (SIGKILL)\n", "1 graph recorded"]);
    let said = place.record(&[], "kill -SEGV $$");
    said.expect(128 + 11).complains(&["sh: killed by a signal: signal: 11", "runs well without steeve record"]);
}

#[test]
fn the_program_finds_its_folder_and_its_library_wherever_it_goes() {
    let place = Place::new("environment");
    let script = r#"cd /; echo "$LD_PRELOAD"; echo "$STEEVE_RECORD"; echo "${STEEVE_OFF-unset}"; echo "$STEEVE_LOG""#;
    let args = ["record", "--library", "./libsteeve_ggml.so", "-o", "a/b", "--", "sh", "-c", script];
    let variables = [("LD_PRELOAD", "libc.so.6"), ("STEEVE_OFF", "1"), ("STEEVE_LOG", "1")];
    let said = place.run(Path::new(env!("CARGO_BIN_EXE_steeve")), &args, &variables);
    let here = place.folder.0.canonicalize().unwrap();
    let library = here.join("libsteeve_ggml.so");
    let lines: Vec<&str> = said.expect(0).out.lines().collect();
    assert_eq!(lines[0], format!("{}:libc.so.6", library.display()));
    assert_eq!(Path::new(lines[1]), place.folder.0.join("a/b"));
    assert_eq!(lines[2..], ["unset", "1"]);
}

#[test]
fn a_program_needs_no_dashes_before_it_and_keeps_its_own() {
    let place = Place::new("dashes");
    let args = ["record", "--library", &place.library, "echo", "-o", "x", "--help"];
    let said = place.run(Path::new(env!("CARGO_BIN_EXE_steeve")), &args, &[]);
    assert_eq!(said.expect(0).out, "-o x --help\n");
}

#[test]
fn the_library_stands_beside_the_program_or_in_lib() {
    let place = Place::new("beside");
    let (bin, lib) = (place.folder.0.join("bin"), place.folder.0.join("lib"));
    fs::create_dir_all(&bin).unwrap();
    fs::create_dir_all(&lib).unwrap();
    let steeve = bin.join("steeve");
    fs::copy(env!("CARGO_BIN_EXE_steeve"), &steeve).unwrap();
    let args = ["record", "--", "sh", "-c", r#"echo "$LD_PRELOAD""#];
    let run = |variables: &[(&str, &str)]| place.run(&steeve, &args, variables);
    run(&[]).expect(2).complains(&[
        "drop-in library: not found",
        "bin/libsteeve_ggml.so and",
        "bin/../lib/libsteeve_ggml.so",
        "cargo build --release -p steeve-ggml",
        "STEEVE_LIBRARY",
    ]);
    let at = |folder: &Path| format!("{}\n", folder.canonicalize().unwrap().join("libsteeve_ggml.so").display());
    fs::copy(&place.library, lib.join("libsteeve_ggml.so")).unwrap();
    assert_eq!(run(&[]).expect(0).out, at(&lib));
    fs::copy(&place.library, bin.join("libsteeve_ggml.so")).unwrap();
    assert_eq!(run(&[]).expect(0).out, at(&bin));
    assert_eq!(run(&[("STEEVE_LIBRARY", &place.library)]).expect(0).out, at(&place.folder.0));
    assert_eq!(run(&[("STEEVE_LIBRARY", "")]).expect(0).out, at(&bin));
}

#[test]
fn what_can_not_be_run_is_named() {
    let place = Place::new("errors");
    let run = |args: &[&str]| place.run(Path::new(env!("CARGO_BIN_EXE_steeve")), &[&["record"], args].concat(), &[]);
    run(&[]).expect(2).complains(&["PROGRAM", "steeve record [OPTIONS] -- PROGRAM [ARGS]"]);
    run(&["--library", "nowhere.so", "true"]).expect(2).complains(&["nowhere.so (No such file"]);
    let text = place.folder.file("text.so", "not a library");
    run(&["--library", &text, "true"]).expect(2).complains(&["text.so: not a shared library"]);
    let spaced = place.folder.file("with space.so", b"\x7fELF");
    run(&["--library", &spaced, "true"]).expect(2).complains(&["without spaces and colons"]);
    run(&["--library", &place.library, "--", "no-such-program", "x"])
        .expect(2)
        .complains(&["error: no-such-program: program not found"]);
    assert!(!place.folder.0.join("steeve-recorded").exists(), "a folder for nothing");
    let script = place.folder.file("script", "#!/bin/sh\n");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o644)).unwrap();
    run(&["--library", &place.library, "--", &script]).expect(2).complains(&["script: cannot be started: Permission"]);
    run(&["--library", &place.library, "-o", &text, "true"])
        .expect(2)
        .complains(&["text.so: cannot be used as the folder"]);
}

#[test]
fn a_damaged_graph_is_named_and_the_others_are_shown() {
    let place = Place::new("damaged");
    let script =
        r#"cp "$GRAPH" "$STEEVE_RECORD/good.json.gz"; echo '{"schema":"other"}' > "$STEEVE_RECORD/bad.json.gz""#;
    let said = place.record(&[], script);
    said.expect(0).complains(&["bad.json.gz: unknown schema", "2 graphs recorded", "good.json.gz  "]);
}
