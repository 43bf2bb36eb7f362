//! How much is read at most, and what is said when there is more.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod harness;

use std::fs::{self, File};
use std::io::Write;
use std::process::{Command, Stdio};

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::harness::{Folder, Said, gzip, steeve, steeve_with};

const TWO: &str = "id,lower,upper,size\nleft,0,2,8\nright,1,3,4\n";
const GRAPH: &str = "x = input f32[64,32]; y = silu x; z = add y x !output";
const RECORDED: &str = r#"{"schema":"galloc-dump-1",
    "buffers":[{"name":"CPU","alignment":32,"max_size":18446744073709551615,"chunks":[64]}],
    "leafs":[],"nodes":[[0,0]],
    "tensors":[{"id":0,"name":"y","op":"?","type":"f32","ne":[8,1,1,1],"nb":[4,32,32,32],"nbytes":32}]}"#;

/// Every form that is read, and what each can be asked.
fn forms() -> Vec<(&'static str, String)> {
    let folder = Folder::new("limits-forms");
    let plan = |input: &str, name: &str| {
        let out = folder.path(name);
        steeve(&["plan", input, "-o", &out]).expect(0);
        fs::read_to_string(out).unwrap()
    };
    let graph_plan = plan(&folder.file("small.graph", GRAPH), "graph-plan.json");
    let block_plan = plan(&folder.file("two.csv", TWO), "block-plan.json");
    vec![
        ("two.csv", TWO.to_owned()),
        ("small.graph", GRAPH.to_owned()),
        ("recorded.json", RECORDED.to_owned()),
        ("block-plan.json", block_plan),
        ("graph-plan.json", graph_plan),
    ]
}

/// A run with at most this much memory in all, where the system can limit that.
fn within_memory(kilobytes: u64, args: &[&str]) -> Said {
    let script = format!("ulimit -v {kilobytes}; exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_steeve")]).args(args);
    let out = command.stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Said { status: out.status.code().unwrap_or(-1), out: text(out.stdout), err: text(out.stderr) }
}

#[test]
fn what_has_just_the_limit_is_read_and_one_byte_more_is_not() {
    let folder = Folder::new("limits-exact");
    for (name, content) in forms() {
        let (plain, packed) = (folder.file(name, &content), folder.file(&format!("{name}.gz"), gzip(&content)));
        let (limit, less) = (content.len().to_string(), (content.len() - 1).to_string());
        for file in [&plain, &packed] {
            steeve(&["view", file, "--max-input", &limit]).expect(0);
            let said = steeve(&["view", file, "--max-input", &less]);
            said.expect(2).complains(&[file, "too large", &less, "--max-input"]);
            assert!(!said.err.contains("cannot read") && !said.err.contains("damaged"), "{}", said.err);
        }
        for content in [content.as_bytes(), &gzip(&content)] {
            steeve_with(&["view", "-", "--max-input", &limit], content).expect(0);
            let said = steeve_with(&["view", "-", "--max-input", &less], content);
            said.expect(2).complains(&["<stdin>", "too large", &less, "--max-input"]);
        }
    }
}

#[test]
fn every_command_that_reads_has_the_limit() {
    let folder = Folder::new("limits-commands");
    let (two, graph) = (folder.file("two.csv", TWO), folder.file("small.graph", GRAPH));
    let plan = folder.path("plan.json");
    steeve(&["plan", &graph, "-o", &plan]).expect(0);
    for args in [
        ["plan", &two].as_slice(),
        &["show", &two],
        &["view", &two],
        &["compare", &two],
        &["check", &two],
        &["plan", &graph],
        &["check", &graph],
    ] {
        let said = steeve(&[args, &["--max-input", "40"]].concat());
        said.expect(2).complains(&["too large", "at most 40 bytes", "--max-input"]);
    }
    // The plan is an input like the problem.
    let graph_size = GRAPH.len().to_string();
    steeve(&["check", &graph, &plan, "--max-input", &graph_size]).expect(2).complains(&["plan.json", "too large"]);
    // One file too large keeps no other from being planned.
    let large = folder.file("large.csv", format!("{TWO}last,5,6,{}\n", "0".repeat(100)));
    let said = steeve(&["plan", &large, &two, "--max-input", "100"]);
    said.expect(2).complains(&["large.csv", "too large"]);
    assert!(said.out.contains("two.csv"), "{}", said.out);
}

#[test]
fn a_size_is_written_as_everywhere() {
    let folder = Folder::new("limits-sizes");
    let two = folder.file("two.csv", TWO);
    for size in ["1K", "1KiB", "0.5M", "1g"] {
        steeve(&["plan", &two, "--max-input", size]).expect(0);
    }
    steeve(&["plan", &two, "--max-input", "1.2.3"]).expect(2).complains(&["not a size"]);
}

/// A megabyte that unpacks to a gigabyte of `line`s, in blocks of their own so that making it takes no time.
fn bomb(line: &str) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(line.repeat((1 << 24) / line.len()).as_bytes()).unwrap();
    let member = packed.finish().unwrap();
    member.repeat(64)
}

#[cfg(target_os = "linux")]
#[test]
fn a_gzip_bomb_takes_no_more_memory_than_the_limit() {
    let folder = Folder::new("limits-bomb");
    for (name, line) in
        [("lines.csv.gz", "\n"), ("zeros.json.gz", "\0"), ("rows.csv.gz", "0,1,1\n"), ("x.json.gz", "[")]
    {
        let file = folder.file(name, bomb(line));
        // By default, too, a gigabyte is more than is read.
        let said = within_memory(600_000, &["plan", &file]);
        said.expect(2).complains(&[&file, "too large", "268435456", "--max-input"]);
        let said = within_memory(100_000, &["plan", &file, "--max-input", "8M"]);
        said.expect(2).complains(&[&file, "too large", "8388608", "--max-input"]);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn what_never_ends_is_read_up_to_the_limit() {
    let said = within_memory(100_000, &["plan", "/dev/zero", "--max-input", "1M"]);
    said.expect(2).complains(&["/dev/zero", "too large", "1048576"]);
    let folder = Folder::new("limits-endless");
    let pipe = folder.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let writer = std::thread::spawn({
        let pipe = pipe.clone();
        // It is told that nobody reads any more, long before it is done.
        move || File::options().write(true).open(pipe).unwrap().write_all(&vec![b'\n'; 64 << 20])
    });
    within_memory(100_000, &["plan", &pipe, "--max-input", "1M"]).expect(2).complains(&["too large"]);
    assert!(writer.join().unwrap().is_err());
}

#[test]
fn a_plain_file_above_the_limit_is_refused_unread() {
    let folder = Folder::new("limits-sparse");
    let large = folder.path("large.csv");
    // A terabyte with nothing in it; reading it would take minutes.
    File::create(&large).unwrap().set_len(1 << 40).unwrap();
    steeve(&["plan", &large]).expect(2).complains(&["too large", "1099511627776", "268435456", "--max-input"]);
}

#[test]
fn a_model_is_told_what_it_is_however_large() {
    let folder = Folder::new("limits-models");
    for (name, head) in [("model.gguf", b"GGUF\x03\0\0\0".as_slice()), ("model", b"GGUF")] {
        let file = folder.file(name, head);
        File::options().write(true).open(&file).unwrap().set_len(1 << 40).unwrap();
        // Of a terabyte of zeros no more is read than its first numbers say.
        steeve(&["plan", &file]).expect(2).complains(&["cannot be used as a model", "GGUF"]);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn out_of_memory_is_called_that() {
    let folder = Folder::new("limits-memory");
    let large = folder.path("large.csv");
    File::create(&large).unwrap().set_len(1 << 30).unwrap();
    let packed = folder.file("bomb.csv.gz", bomb("\n"));
    for file in [&large, &packed] {
        let said = within_memory(200_000, &["plan", file, "--max-input", "2G"]);
        said.expect(2).complains(&[file, "out of memory"]);
        assert!(!said.err.contains("cannot read") && !said.err.contains("damaged"), "{}", said.err);
    }
}

#[test]
fn damaged_gzip_data_is_still_called_that() {
    let folder = Folder::new("limits-damaged");
    let packed = gzip(&TWO.repeat(100));
    for cut in [3, 12, packed.len() / 2, packed.len() - 1] {
        let file = folder.file("cut.csv.gz", &packed[..cut]);
        steeve(&["plan", &file]).expect(2).complains(&["damaged"]);
    }
}

#[test]
fn every_limit_is_kept_however_small() {
    let folder = Folder::new("limits-small");
    let text = "x = input 16\n";
    let (plain, packed) = (folder.file("x.graph", text), folder.path("x.graph.gz"));
    fs::write(&packed, gzip(text)).unwrap();
    for limit in 0..=text.len() + 1 {
        let (status, limit) = (if limit < text.len() { 2 } else { 0 }, limit.to_string());
        steeve(&["plan", &plain, "--max-input", &limit]).expect(status);
        steeve(&["plan", &packed, "--max-input", &limit]).expect(status);
        steeve_with(&["plan", "-", "--max-input", &limit], text.as_bytes()).expect(status);
        if status == 2 {
            steeve(&["plan", "/dev/zero", "--max-input", &limit]).expect(2);
        }
    }
}
