//! Every error of docs/command-line.md is said by the real binary, with the status that stands there; and whatever is said
//! here stands there.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg(target_os = "linux")]

mod harness;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use steeve_models::onnx;
use steeve_models::tflite::SmallModel;

use crate::harness::{Folder, Said, corpus, gzip, json, steeve, steeve_with};

const TWO: &str = "id,lower,upper,size\nleft,0,2,8\nright,1,3,4\n";
const GRAPH: &str = "x = input f32[64,32]; y = silu x; z = add y x !output";
const TWO_MEMORIES: &str =
    "memory gpu\nmemory host\nt = input f32[8] @host\nx = input f32[8] @gpu\ny = add x t !output @gpu\n";

/// The rows of the tables of errors: status and message.
fn rows() -> Vec<(i32, String)> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/command-line.md");
    let text = fs::read_to_string(docs).unwrap();
    let errors = text.split_once("\n## Errors\n").unwrap().1;
    let row = |line: &str| {
        let cells: Vec<&str> = line.strip_prefix("| ")?.strip_suffix(" |")?.splitn(2, " | ").collect();
        let message = cells.get(1)?.strip_prefix('`')?.strip_suffix('`')?;
        Some((cells[0].parse().ok()?, message.to_owned()))
    };
    errors.lines().filter_map(row).collect()
}

/// Whether a message is what a row says, with something for each `…`.
fn fits(row: &str, message: &str) -> bool {
    let mut rest = message;
    row.split('…').filter(|part| !part.is_empty()).all(|part| match rest.find(part) {
        Some(at) => {
            rest = &rest[at + part.len()..];
            true
        }
        None => false,
    })
}

/// What was said, each with its status.
#[derive(Default)]
struct Heard(Vec<(i32, String)>);

impl Heard {
    /// Takes in what a run has said; exactly one error is expected, unless the command line itself was wrong.
    #[track_caller]
    fn hear(&mut self, said: &Said) {
        let errors = said.err.lines().filter_map(|line| line.strip_prefix("error: ")).collect::<Vec<_>>();
        assert_eq!(errors.len(), 1, "status {}\nout: {}\nerr: {}", said.status, said.out, said.err);
        assert!(!errors[0].ends_with('.'), "{}", errors[0]);
        self.0.push((said.status, errors[0].to_owned()));
    }

    #[track_caller]
    fn run(&mut self, args: &[&str]) {
        self.hear(&steeve(args));
    }
}

#[test]
fn every_error_of_the_docs_is_said_and_every_error_that_is_said_is_in_the_docs() {
    let mut heard = Heard::default();
    files(&mut heard);
    models(&mut heard);
    plans(&mut heard);
    answers(&mut heard);
    programs(&mut heard);
    estimates(&mut heard);
    usage(&mut heard);
    let rows = rows();
    assert!(rows.len() > 60, "{}", rows.len());
    let mut used = BTreeSet::new();
    for (status, message) in &heard.0 {
        // The most specific row is meant: "can't be planned: …" is a row, and so is much that ends in a name.
        let fitting = rows.iter().enumerate().filter(|(_, (_, row))| fits(row, message));
        let Some((index, (expected, _))) = fitting.max_by_key(|(_, (_, row))| row.len()) else {
            panic!("not in docs/command-line.md: {message}");
        };
        assert_eq!(status, expected, "{message}");
        used.insert(index);
    }
    let silent: Vec<&str> =
        rows.iter().enumerate().filter(|(index, _)| !used.contains(index)).map(|(_, (_, row))| row.as_str()).collect();
    assert!(silent.is_empty(), "nothing says: {silent:#?}");
    println!("messages: {} errors in {} rows", heard.0.len(), rows.len());
}

fn models(heard: &mut Heard) {
    let folder = Folder::new("messages-models");
    let model = folder.file("net.tflite", SmallModel::chain(&[64, 32, 16]).to_bytes());
    let (graph, list) = (folder.file("net.graph", GRAPH), folder.file("two.csv", TWO));
    heard.run(&["plan", &folder.file("cut.tflite", &SmallModel::chain(&[64, 32]).to_bytes()[..60])]);
    heard.run(&["plan", &graph, "--in-place", "tflm-reference"]);
    heard.run(&["plan", &list, "--overlap", "tflm-reference"]);
    heard.run(&["plan", &graph, "--scratch", "64"]);
    heard.run(&["plan", &graph, "--context", "64"]);
    heard.run(&["plan", &list, "--batch", "64"]);
    heard.run(&["plan", &model, "--layers-on-gpu", "1"]);
    heard.run(&["plan", &model, "--strategy", "ggml"]);
    heard.run(&["plan", &model, "--reuse", "ggml"]);
    heard.run(&["plan", &model, "--as", "drop-in"]);
    heard.run(&["plan", &model, "-o", &folder.path("plans/")]);
    heard.run(&["plan", &model, "--max-buffer", "80", "-o", &folder.path("out.tflite")]);
    heard.run(&["plan", &graph, "-o", &folder.path("out.tflite")]);
    let mut small = onnx::SmallModel::new();
    small.input("x", onnx::DataType::FLOAT, &["batch", "16"]);
    small.node("Relu", &["x"], &["y"]);
    small.output("y");
    let model = folder.file("net.onnx", small.to_bytes());
    heard.run(&["plan", &folder.file("cut.onnx", &small.to_bytes()[..20])]);
    heard.run(&["plan", &model]);
    heard.run(&["plan", &model, "--dim", "batch=1", "--dim", "height=2"]);
    heard.run(&["plan", &graph, "--dim", "batch=1"]);
    heard.run(&["show", &model, "--dim", "batch=1,2"]);
    heard.run(&["plan", &model, "--dim", "batch=1", "--dim", "batch=2"]);
    heard.run(&["plan", &model, "--dim", "batch=1,2", "-o", &folder.path("plan.json")]);
    heard.run(&["plan", &model, "--dim", "batch=1", "--in-place", "tflm-reference"]);
    heard.run(&["plan", &model, "--dim", "batch=1", "--strategy", "ggml"]);
    heard.run(&["plan", &model, "--dim", "batch=1", "-o", &folder.path("plans/")]);
    heard.run(&["plan", &model, "--dim", "batch"]);
}

fn files(heard: &mut Heard) {
    let folder = Folder::new("messages-files");
    let mut plan = |name: &str, content: &[u8]| heard.run(&["plan", &folder.file(name, content)]);
    plan("cut.csv.gz", &gzip(TWO)[..20]);
    plan("empty.csv", b"");
    plan("binary", &[0xff, 0xfe, 0, 1]);
    plan("model.onnx", b"\x08\x07");
    plan("model.gguf", b"GGUF");
    plan("header.csv", b"id,lower,upper,size\n");
    plan("memory.graph", b"memory gpu\n");
    plan("schema.json", br#"{"schema":"galloc-dump-2"}"#);
    plan("fields.json", br#"{"schema":"galloc-dump-1"}"#);
    plan("line.graph", b"x = input 16\ny = neg z\n");
    plan("number.csv", b"id,lower,upper,size\na,0,x,1\n");
    plan("broken.json", b"{\"version\": 1,");
    plan("list.json", b"[1,2");
    plan("other.json", b"{\"a\": 1}");
    plan("version.json", br#"{"schema":"steeve-plan","version":2,"memories":[]}"#);
    plan("memories.json", br#"{"schema":"steeve-plan","version":3,"strategy":"fast","memories":[]}"#);
    plan("follows.csv", b"id,lower,upper,size,follows\na,0,1,1,\nb,2,3,1,a\n");
    plan(
        "twice.json",
        br#"{"schema":"steeve-plan","version":3,"strategy":"fast","memories":[{"name":"m","peak":1,"lower_bound":1,"buffers":[1],"blocks":[{"name":"a","size":1,"live":[0,1],"buffer":0,"offset":0},{"name":"a","size":1,"live":[0,1],"buffer":0,"offset":0}]}]}"#,
    );
    let nowhere = folder.path("nowhere.csv");
    heard.run(&["plan", &nowhere]);
    fs::create_dir(folder.path("empty")).unwrap();
    heard.run(&["plan", &folder.path("empty")]);
    heard.run(&["view", &folder.path("empty")]);
    heard.run(&["plan", &folder.path("*.nothing")]);
    heard.run(&["compare", &folder.path("a[")]);
    let two = folder.file("two.csv", TWO);
    heard.run(&["plan", &two, "--max-input", "10"]);
    heard.run(&["plan", "/dev/zero", "--max-input", "10"]);
    heard.run(&["plan", &folder.file("two.csv.gz", gzip(TWO)), "--max-input", "10"]);
    let large = folder.file("large.csv", "");
    fs::OpenOptions::new().write(true).open(&large).unwrap().set_len(1 << 30).unwrap();
    let script = "ulimit -v 200000; exec \"$0\" \"$@\"";
    let args = ["-c", script, env!("CARGO_BIN_EXE_steeve"), "plan", &large, "--max-input", "2G"];
    let out = Command::new("sh").args(args).output().unwrap();
    let err = String::from_utf8(out.stderr).unwrap();
    heard.hear(&Said { status: out.status.code().unwrap(), out: String::new(), err });
    heard.run(&["plan", &two, "-o", &two]);
    std::os::unix::fs::symlink("/dev/full", folder.path("full.csv")).unwrap();
    heard.run(&["plan", &two, "-o", &folder.path("full.csv")]);
    heard.run(&["plan", &two, "-o", "/nowhere/at/all/plan.csv"]);
    heard.run(&["view", &two, "-o", "/nowhere/at/all/map.html"]);
    heard.run(&["plan", &two, "-o", "/nowhere/at/all/"]);
    heard.run(&["plan", &two, "-o", &folder.path("empty")]);
    heard.run(&["plan", &two, "-o", "plans"]);
    for args in [["plan", &two], ["view", &two], ["completions", "zsh"]] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let out = Command::new(env!("CARGO_BIN_EXE_steeve")).args(args).stdout(full).output().unwrap();
        let err = String::from_utf8(out.stderr).unwrap();
        heard.hear(&Said { status: out.status.code().unwrap(), out: String::new(), err });
    }
}

fn plans(heard: &mut Heard) {
    let folder = Folder::new("messages-plans");
    let (two, graph) = (folder.file("two.csv", TWO), folder.file("small.graph", GRAPH));
    let (plan, list) = (folder.path("graph.json"), folder.path("list.json"));
    steeve(&["plan", &graph, "-o", &plan]).expect(0);
    steeve(&["plan", &two, "-o", &list]).expect(0);
    heard.run(&["check", &graph, &graph]);
    heard.run(&["plan", &plan]);
    heard.run(&["check", &graph, &list]);
    heard.run(&["check", &two]);
    heard.run(&["check", &two, &two]);
    heard.run(&["check", &list, "--strategy", "fast"]);
    heard.run(&["plan", &graph, "-o", &folder.path("plans/"), "--strategy", "fast"]);
    heard.run(&["check", &graph, &plan, "--strategy", "fast"]);
    heard.run(&["view", &plan, "-o", &folder.path("again.json")]);
    heard.run(&["view", &plan, "--capacity", "1M"]);
    heard.run(&["view", &plan, &plan, "--engine"]);
    heard.run(&["view", &plan, &plan, &plan]);
    let mut stray = json(&fs::read_to_string(&plan).unwrap());
    stray["memories"][0]["blocks"][0]["offset"] = 1_000_000.into();
    heard.run(&["view", &folder.file("stray.json", stray.to_string())]);
    heard.run(&["view", &folder.path("stray.json"), "-o", &folder.path("stray.h")]);
    stray["memories"][0]["blocks"][0]["follows"] = 77.into();
    heard.run(&["view", &folder.file("stray.json", stray.to_string())]);
    stray["memories"][0]["blocks"][0]["buffer"] = 77.into();
    heard.run(&["view", &folder.file("stray.json", stray.to_string())]);
    heard.run(&["view", &plan, &list, "-o", &folder.path("two.h")]);
    let mut wrong = json(&fs::read_to_string(&plan).unwrap());
    wrong["memories"][0]["blocks"][0].as_object_mut().unwrap().remove("live");
    heard.run(&["view", &folder.file("wrong.json", wrong.to_string())]);
    wrong["memories"][0]["blocks"][0]["live"] = [0, 1].as_slice().into();
    wrong["memories"][0]["blocks"][0]["offset"] = 1.into();
    heard.run(&["check", &graph, &folder.file("wrong.json", wrong.to_string())]);
    let overlap = folder.file("overlap.csv", "id,lower,upper,size,offset\nleft,0,2,8,0\nright,1,3,4,4\n");
    heard.run(&["view", &overlap]);
    heard.run(&["show", &overlap]);
    heard.run(&["diff", &list, &overlap]);
    heard.run(&["diff", &list, &plan, "--strategy", "fast"]);
    heard.run(&["plan", &overlap, "--pinned"]);
}

fn answers(heard: &mut Heard) {
    let folder = Folder::new("messages-answers");
    let (two, tiny) = (folder.file("two.csv", TWO), corpus("blocks/tiny.csv"));
    heard.run(&["plan", &two, "--capacity", "10"]);
    heard.run(&["plan", &tiny, "--capacity", "3000", "--strategy", "best-fit"]);
    heard.run(&["plan", &folder.file("small.graph", GRAPH), "--capacity", "1K"]);
    let recorded = corpus("graphs/other/train-mnist-fc.b500.0000.json.gz");
    heard.run(&["plan", &recorded, "--strategy", "ggml", "--capacity", "3.2MB"]);
    heard.run(&["plan", &folder.file("huge.graph", GRAPH), "--align", "8E"]);
    heard.run(&["check", &folder.path("small.graph"), "--capacity", "1K"]);
    heard.run(&["diff", &two, &tiny]);
    let [old, new, other] = ["old", "new", "other"].map(|name| folder.path(name));
    for (name, size) in [("old/a.csv", 8), ("new/a.csv", 9), ("other/b.csv", 8)] {
        fs::create_dir_all(Path::new(&folder.path(name)).parent().unwrap()).unwrap();
        folder.file(name, format!("id,lower,upper,size\nx,0,1,{size}\n"));
    }
    heard.run(&["diff", &old, &new]);
    heard.run(&["diff", &old, &other]);
    stopped(heard, &folder);
}

/// Ctrl-C in the middle of the first file of two.
fn stopped(heard: &mut Heard, folder: &Folder) {
    let mut rows = String::from("lower,upper,size\n");
    let mut state = 1u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % below
    };
    for _ in 0..3000 {
        let lower = random(1000);
        rows += &format!("{lower},{},{}\n", lower + 1 + random(60), 1 + random(100_000));
    }
    let (first, second) = (folder.file("first.csv", &rows), folder.file("second.csv", &rows));
    let child = Command::new(env!("CARGO_BIN_EXE_steeve"))
        .args(["--quiet", "plan", &first, &second, "--budget", "2min"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_secs(1));
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    let out = child.wait_with_output().unwrap();
    let err = String::from_utf8(out.stderr).unwrap();
    heard.hear(&Said { status: out.status.code().unwrap(), out: String::new(), err });
}

fn programs(heard: &mut Heard) {
    let folder = Folder::new("messages-programs");
    let library = folder.file("libsteeve_ggml.so", b"\x7fELF");
    let record = |library: &str, out: &str, program: &[&str]| {
        let said = steeve(&[&["record", "--library", library, "-o", out, "--"], program].concat());
        // The loader says that the stand-in is too short, and goes on.
        let err = said.err.lines().filter(|line| !line.contains("ld.so")).map(|line| format!("{line}\n")).collect();
        Said { err, ..said }
    };
    let out = folder.path("graphs");
    heard.hear(&record(&folder.path("nothing.so"), &out, &["true"]));
    heard.hear(&record(&folder.file("text.so", "text"), &out, &["true"]));
    fs::create_dir(folder.path("a b")).unwrap();
    heard.hear(&record(&folder.file("a b/lib.so", b"\x7fELF"), &out, &["true"]));
    heard.hear(&record(&library, &folder.file("file", ""), &["true"]));
    heard.hear(&record(&library, &out, &[&folder.path("no-such-program")]));
    let locked = folder.file("locked", "#!/bin/sh\n");
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o644)).unwrap();
    heard.hear(&record(&library, &out, &[&locked]));
    heard.hear(&record(&library, &out, &["sh", "-c", "kill -9 $$"]));
}

/// Programs that plan nothing, each in its own way.
fn estimates(heard: &mut Heard) {
    let folder = Folder::new("messages-estimates");
    // Any library that can be preloaded, and one that can't.
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let libc = maps.lines().filter_map(|line| line.find('/').map(|at| &line[at..])).find(|path| path.contains("/libc"));
    let (library, none) = (libc.unwrap().to_owned(), folder.file("libsteeve_ggml.so", b"\x7fELF"));
    let estimate = |library: &str, options: &[&str], program: &[&str]| {
        let start = ["estimate", "--library", library, "--settle", "100ms"];
        let said = steeve(&[&start, options, &["--"], program].concat());
        let err = said.err.lines().filter(|line| !line.contains("ld.so")).map(|line| format!("{line}\n")).collect();
        Said { err, ..said }
    };
    let report = |lines: &str| format!("printf '{lines}' >\"$STEEVE_REPORT\"");
    let open = |owner: &str| {
        format!(
            r#"{{"report":1,"process":1,"event":"open","handle":"1","owner":"{owner}","ggml_version":"","memories":[{{"memory":"CUDA0","host":false,"shared":false}}]}}\n"#
        )
    };
    let reserve =
        r#"{"report":1,"process":1,"event":"reserve","handle":"1","outcome":"done","ggml":[[9]],"steeve":[7]}\n"#;
    let script = |script: &str| ["sh".to_owned(), "-c".to_owned(), script.to_owned()];
    for (library, options, text) in [
        (&library, ["--timeout", "1min"], "echo why >&2; exit 3".to_owned()),
        (&library, ["--timeout", "1min"], "true".to_owned()),
        (&library, ["--timeout", "1.5s"], "sleep 30".to_owned()),
        (&none, ["--timeout", "1.5s"], "sleep 30".to_owned()),
        (&none, ["--timeout", "1min"], report(&open("ggml"))),
        (&none, ["--capacity", "CUDA1=8G"], report(&(open("steeve") + reserve))),
        (&none, ["--capacity", "CUDA0=6"], report(&(open("steeve") + reserve))),
        (&none, ["--timeout", "1min"], report(r#"{"report":2}\n"#)),
        (&none, ["--timeout", "1min"], report(r#"{"report":1,"process":1,"event":"dr\n"#)),
        (&none, ["--timeout", "1min"], r#"mkdir "$STEEVE_REPORT""#.to_owned()),
    ] {
        let program = script(&text);
        heard.hear(&estimate(library, &options, &program.each_ref().map(String::as_str)));
    }
    let inside = folder.file("inside", [fs::read("/bin/true").unwrap(), b"ggml-alloc.c".to_vec()].concat());
    fs::set_permissions(&inside, fs::Permissions::from_mode(0o755)).unwrap();
    heard.hear(&estimate(&library, &[], &[&inside]));
    interrupted(heard, &library);
    let mut command = Command::new(env!("CARGO_BIN_EXE_steeve"));
    command.args(["estimate", "--library", &library, "--", "true"]).env("TMPDIR", folder.path("nowhere"));
    let out = command.output().unwrap();
    let err = String::from_utf8(out.stderr).unwrap();
    heard.hear(&Said { status: out.status.code().unwrap(), out: String::new(), err });
}

/// Ctrl-C before a program has planned anything.
fn interrupted(heard: &mut Heard, library: &str) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_steeve"));
    command.args(["estimate", "--library", library, "--", "sleep", "30"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(500));
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    let out = child.wait_with_output().unwrap();
    let err = String::from_utf8(out.stderr).unwrap();
    heard.hear(&Said { status: out.status.code().unwrap(), out: String::new(), err });
}

fn usage(heard: &mut Heard) {
    let folder = Folder::new("messages-usage");
    let (two, graph) = (folder.file("two.csv", TWO), folder.file("small.graph", GRAPH));
    let memories = folder.file("memories.graph", TWO_MEMORIES);
    let out = folder.path("plan.csv");
    for args in [
        ["plan", &two, "--nonsense"].as_slice(),
        &["paln", &two],
        &["view", &two, "--width", "0"],
        &["plan", &two, "--threads", "0"],
        &["fit", &graph, "--parts", "0"],
        &["show", &two, "--top", "many"],
        &["view", &two, "-o", "net.h", "--prefix", "a-b"],
        &["view", &two, "--height", "5000"],
        &["view", &two, "--theme", "dark"],
        &["plan"],
        &["plan", &two, "--quiet", "--verbose"],
        &["plan", &two, "--capacity", "1.2.3"],
        &["plan", &two, "--capacity", "1X"],
        &["plan", &two, "--capacity", "16E"],
        &["plan", &two, "--align", "48"],
        &["estimate", "--capacity", "=8GiB", "true"],
        &["plan", &two, "--capacity", "1M", "--capacity", "2M"],
        &["estimate", "--capacity", "CPU=1M", "--capacity", "CPU=2M", "--", "true"],
        &["plan", &memories, "--capacity", "disk=1M"],
        &["diff", &two, &two, "--allow", "one%"],
        &["diff", &two, &folder.path("")],
        &["diff", "-", "-"],
        &["estimate", "--settle", "20nodes", "true"],
        &["view", &two, "--steps", "9..3"],
        &["view", &two, "-o", "map.png"],
        &["plan", &two, "--budget", "1s", "--strategy", "fast"],
        &["plan", &graph, "--strategy", "ggml", "--reuse", "more"],
        &["plan", &graph, "--strategy", "ggml", "--unread", "free"],
        &["plan", &two, "--reuse", "more"],
        &["plan", &two, "--unread", "keep"],
        &["plan", &two, "--as", "drop-in"],
        &["plan", &graph, "--strategy", "ggml", "--as", "drop-in"],
        &["plan", &two, "--strategy", "ggml"],
        &["plan", &graph, "--strategy", "best-fit"],
        &["plan", &graph, "--pinned"],
        &["plan", &two, &graph, "-o", &out],
        &["check", "-", "-"],
        &["view", "-", "-"],
        &["plan", &memories, "-o", &out],
        &["view", &memories, "--memory", "disk"],
        &["view", &two, "--steps", "70..90"],
    ] {
        heard.run(args);
    }
}

#[test]
fn quiet_and_verbose_change_what_is_said_beside_the_answer() {
    let folder = Folder::new("messages-voice");
    let (two, out) = (folder.file("two.csv", TWO), folder.path("map.svg"));
    assert!(steeve(&["view", &two, "-o", &out]).expect(0).err.starts_with("note: "));
    assert_eq!(steeve(&["view", &two, "-o", &out, "--quiet"]).expect(0).err, "");
    assert_eq!(steeve(&["-q", "plan", &two, "--capacity", "1", "-o", &out]).expect(1).err.lines().count(), 1);
    steeve(&["plan", &two, "--verbose"]).expect(0).complains(&["detail: ", "a list of 2 blocks", "planned in"]);
    let graph = folder.file("small.graph", GRAPH);
    steeve(&["-v", "plan", &graph]).expect(0).complains(&["a graph of 2 nodes and 3 tensors in memory"]);
    let plain = steeve(&["plan", "--json", &two]).expect(0).err.clone();
    assert_eq!(plain, "");
}

#[test]
fn whatever_the_shell_asks_for_is_there() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let said = steeve(&["completions", shell]);
        assert!(said.expect(0).out.contains("steeve") && said.out.contains("compare"), "{shell}");
    }
    // Whoever reads may have seen enough before the first byte.
    let mut child = Command::new(env!("CARGO_BIN_EXE_steeve"))
        .args(["completions", "zsh"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success() && out.stderr.is_empty(), "{out:?}");
    steeve(&["completions", "dos"]).expect(2).complains(&["bash", "zsh"]);
    let said = steeve_with(&["view", "-"], GRAPH.as_bytes());
    assert!(said.expect(0).out.starts_with("<stdin>: steeve\n16.00 KiB in 3 blocks"), "{}", said.out);
}
