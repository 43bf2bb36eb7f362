//! What `-o` may be written over, and what is left when writing fails.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod harness;

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::harness::{Folder, Said, gzip, json, steeve, steeve_with};

const TWO: &str = "id,lower,upper,size\nleft,0,2,8\nright,1,3,4\n";
const GRAPH: &str = "x = input f32[64,32]; y = silu x; z = add y x !output";

/// Everything in a folder: names and contents. Links are followed.
fn contents(folder: &Folder) -> Vec<(String, Vec<u8>)> {
    let mut found: Vec<_> = fs::read_dir(&folder.0)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read(&path).unwrap()))
        .collect();
    found.sort();
    found
}

/// The names of all that a folder holds.
fn names(folder: &Folder) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(&folder.0).unwrap().map(|it| it.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// A run that must change no file, must leave none behind, and must name the input.
#[track_caller]
fn refused(folder: &Folder, args: &[&str]) {
    let before = contents(folder);
    let said = steeve(args);
    assert_eq!(contents(folder), before, "{args:?} changed a file: {}", said.err);
    said.expect(2).complains(&["error: ", "input"]);
    assert_eq!(said.out, "", "{args:?}");
}

/// Every way to spell one file: itself, through its folder, through links of both kinds.
fn spellings(folder: &Folder, name: &str) -> Vec<String> {
    let file = folder.path(name);
    let link = |how: &str| folder.path(&format!("{how}-{name}"));
    symlink(&file, link("symbolic")).unwrap();
    symlink(link("symbolic"), link("twice")).unwrap();
    fs::hard_link(&file, link("hard")).unwrap();
    fs::create_dir_all(folder.path("deeper")).unwrap();
    let (root, own) = (folder.0.display(), folder.0.file_name().unwrap().to_string_lossy());
    vec![
        file.clone(),
        format!("{root}/./{name}"),
        format!("{root}//{name}"),
        format!("{root}/deeper/../{name}"),
        format!("{root}/../{own}/{name}"),
        link("symbolic"),
        link("twice"),
        link("hard"),
    ]
}

#[test]
fn no_spelling_of_an_input_is_written_over() {
    for (name, content) in [
        ("two.csv", TWO.as_bytes().to_vec()),
        ("two.csv.gz", gzip(TWO)),
        ("graph.json", recorded().into_bytes()),
        ("graph.json.gz", gzip(&recorded())),
    ] {
        let folder = Folder::new(&format!("outputs-spellings-{name}"));
        folder.file(name, &content);
        for spelling in spellings(&folder, name) {
            refused(&folder, &["plan", &folder.path(name), "-o", &spelling]);
            refused(&folder, &["view", &folder.path(name), "-o", &spelling]);
            // The same the other way around: the input is spelled in another way, too.
            refused(&folder, &["plan", &spelling, "-o", &folder.path(name)]);
        }
    }
}

fn recorded() -> String {
    r#"{"schema":"galloc-dump-1","tag":"tiny",
    "buffers":[{"name":"CPU","alignment":32,"max_size":18446744073709551615,"shared_with":0,"chunks":[64]}],
    "leafs":[[0,0]],"nodes":[[1,0]],
    "tensors":[
    {"id":0,"name":"x","op":"NONE","type":"f32","ne":[8,1,1,1],"nb":[4,32,32,32],"flags":1,"nbytes":32,
     "alloc_size":[32],"res":{"buffer_id":0,"chunk":0,"offset":0,"size_max":32}},
    {"id":1,"name":"y","op":"UNARY","desc":"NEG","type":"f32","ne":[8,1,1,1],"nb":[4,32,32,32],"flags":2,"nbytes":32,
     "src":[0],"alloc_size":[32],"res":{"buffer_id":0,"chunk":0,"offset":32,"size_max":32}}]}"#
        .to_owned()
}

#[test]
fn no_input_of_several_is_written_over() {
    let folder = Folder::new("outputs-several");
    let (one, two) = (folder.file("one.csv", TWO), folder.file("two.csv", TWO));
    // A picture of two plans is written over neither of them, whatever its own name ends in.
    symlink(&one, folder.path("one.svg")).unwrap();
    symlink(&two, folder.path("two.html")).unwrap();
    refused(&folder, &["view", &one, &two, "-o", &folder.path("one.svg")]);
    refused(&folder, &["view", &one, &two, "-o", &folder.path("two.html")]);
    refused(&folder, &["view", &one, &one, "-o", &folder.path("one.svg")]);
    let alone = Folder::new("outputs-alone");
    alone.file("one.csv", TWO);
    for input in [alone.0.display().to_string(), alone.path("*.csv"), alone.path("**/*.csv")] {
        refused(&alone, &["plan", &input, "-o", &alone.path("one.csv")]);
    }
}

#[test]
fn a_saved_plan_is_not_drawn_over_itself() {
    let folder = Folder::new("outputs-plan");
    let (graph, plan) = (folder.file("small.graph", GRAPH), folder.path("plan.json"));
    steeve(&["plan", &graph, "-o", &plan]).expect(0);
    symlink(&plan, folder.path("plan.svg")).unwrap();
    refused(&folder, &["view", &plan, "-o", &folder.path("plan.svg")]);
    refused(&folder, &["view", &plan, "-o", &plan]);
    // What it was before may be replaced by a new one.
    steeve(&["plan", &graph, "-o", &plan]).expect(0);
    steeve(&["check", &graph, &plan]).expect(0);
}

#[test]
fn what_the_standard_input_comes_from_is_not_written_over() {
    let folder = Folder::new("outputs-stdin");
    let two = folder.file("two.csv", TWO);
    let status = Command::new(env!("CARGO_BIN_EXE_steeve"))
        .args(["plan", "-", "-o", &two])
        .stdin(File::open(&two).unwrap())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert_eq!((status.code(), fs::read_to_string(&two).unwrap()), (Some(2), TWO.to_owned()));
    steeve_with(&["plan", "-", "-o", &folder.path("plan.csv")], TWO.as_bytes()).expect(0);
}

#[test]
fn a_device_that_is_both_input_and_output_is_no_file_to_be_lost() {
    let folder = Folder::new("outputs-device");
    symlink("/dev/null", folder.path("null.csv")).unwrap();
    steeve(&["plan", "/dev/null", "-o", &folder.path("null.csv")]).expect(2).complains(&["empty: expected"]);
}

#[test]
fn a_failed_run_leaves_the_old_file_and_nothing_else() {
    let folder = Folder::new("outputs-failed");
    let two = folder.file("two.csv", TWO);
    let old = folder.file("plan.csv", "what was here before");
    // No plan fits, the form does not fit, the input is wrong: each fails after the name of the output is known.
    steeve(&["plan", &two, "--capacity", "1", "-o", &old]).expect(1);
    let memories = folder.file("memories.graph", "memory a\nmemory b\nx = input 8 @a\ny = neg x @b !output\n");
    steeve(&["plan", &memories, "-o", &old]).expect(2);
    steeve(&["plan", &folder.file("bad.csv", "id\n"), "-o", &old]).expect(2);
    assert_eq!(fs::read_to_string(&old).unwrap(), "what was here before");
    assert_eq!(names(&folder), ["bad.csv", "memories.graph", "plan.csv", "two.csv"]);
}

#[test]
fn an_output_is_replaced_whole_and_keeps_its_permissions() {
    let folder = Folder::new("outputs-mode");
    let two = folder.file("two.csv", TWO);
    let plan = folder.file("plan.json", "x".repeat(1 << 20));
    fs::set_permissions(&plan, fs::Permissions::from_mode(0o640)).unwrap();
    // A program that has the old file open goes on reading the old file: it is never seen half written.
    let mut reader = File::open(&plan).unwrap();
    let before = fs::metadata(&plan).unwrap().ino();
    steeve(&["plan", &two, "-o", &plan]).expect(0);
    let about = fs::metadata(&plan).unwrap();
    assert_eq!(about.permissions().mode() & 0o7777, 0o640);
    assert_ne!(about.ino(), before, "written in place");
    let mut old = String::new();
    reader.read_to_string(&mut old).unwrap();
    assert_eq!(old.len(), 1 << 20);
    json(&fs::read_to_string(&plan).unwrap());
    // A new file has the permissions that any new file has.
    let (ours, theirs) = (folder.path("new.json"), folder.file("theirs", ""));
    steeve(&["plan", &two, "-o", &ours]).expect(0);
    let mode = |path: &str| fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&ours), mode(&theirs));
    assert_eq!(names(&folder), ["new.json", "plan.json", "theirs", "two.csv"]);
}

#[test]
fn a_link_stays_a_link_and_its_target_gets_the_plan() {
    let folder = Folder::new("outputs-link");
    let two = folder.file("two.csv", TWO);
    fs::create_dir(folder.path("deeper")).unwrap();
    let target = folder.file("deeper/target.csv", "old");
    symlink("deeper/target.csv", folder.path("link.csv")).unwrap();
    symlink("link.csv", folder.path("twice.csv")).unwrap();
    // A link to what is not there yet makes it.
    symlink("deeper/new.csv", folder.path("dangling.csv")).unwrap();
    for (link, target) in
        [("link.csv", &target), ("twice.csv", &target), ("dangling.csv", &folder.path("deeper/new.csv"))]
    {
        steeve(&["plan", &two, "-o", &folder.path(link)]).expect(0);
        assert!(fs::symlink_metadata(folder.path(link)).unwrap().is_symlink(), "{link}");
        assert!(fs::read_to_string(target).unwrap().starts_with("id,lower,upper,size,offset\n"), "{link}");
    }
    assert_eq!(fs::read_dir(folder.path("deeper")).unwrap().count(), 2);
    // A link to itself leads nowhere, and is said so rather than followed for ever.
    symlink("loop.csv", folder.path("loop.csv")).unwrap();
    steeve(&["plan", &two, "-o", &folder.path("loop.csv")]).expect(2).complains(&["loop.csv", "cannot write"]);
}

#[test]
fn what_is_no_regular_file_is_written_to_directly() {
    let folder = Folder::new("outputs-pipe");
    let two = folder.file("two.csv", TWO);
    let pipe = folder.path("pipe.csv");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || fs::read_to_string(pipe).unwrap()
    });
    steeve(&["plan", &two, "-o", &pipe]).expect(0);
    assert!(reader.join().unwrap().starts_with("id,lower,upper,size,offset\n"));
    assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo(), "the pipe was replaced");
    symlink("/dev/stdout", folder.path("stdout.csv")).unwrap();
    let said = steeve(&["plan", &two, "-o", &folder.path("stdout.csv"), "--quiet"]);
    assert!(said.expect(0).out.starts_with("id,lower,upper,size,offset\n"), "{}", said.out);
    symlink("/dev/null", folder.path("null.csv")).unwrap();
    steeve(&["plan", &two, "-o", &folder.path("null.csv")]).expect(0);
    assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    symlink("/dev/full", folder.path("full.csv")).unwrap();
    steeve(&["plan", &two, "-o", &folder.path("full.csv")]).expect(2).complains(&["full.csv", "no space left"]);
    fs::create_dir(folder.path("folder.csv")).unwrap();
    steeve(&["plan", &two, "-o", &folder.path("folder.csv")]).expect(2).complains(&["--out FOLDER is for graphs"]);
    steeve(&["view", &two, "-o", &folder.path("folder.csv")]).expect(2).complains(&["folder.csv", "is a folder"]);
}

#[test]
fn a_file_that_may_not_be_written_is_not_replaced() {
    let folder = Folder::new("outputs-readonly");
    let two = folder.file("two.csv", TWO);
    let old = folder.file("plan.csv", "old");
    fs::set_permissions(&old, fs::Permissions::from_mode(0o444)).unwrap();
    if File::options().write(true).open(&old).is_ok() {
        eprintln!("skipped: permissions do not hold for root");
        return;
    }
    steeve(&["plan", &two, "-o", &old]).expect(2).complains(&["cannot write"]);
    assert_eq!(fs::read_to_string(&old).unwrap(), "old");
}

/// A file system with little room, where one can be mounted; gone at its end.
struct SmallDisk(Folder);

impl SmallDisk {
    fn mount(name: &str) -> Option<Self> {
        let folder = Folder::new(name);
        let mount = ["-t", "tmpfs", "-o", "size=64k", "steeve-test"];
        let mounted = Command::new("mount").args(mount).arg(&folder.0).stderr(Stdio::null()).status();
        mounted.is_ok_and(|status| status.success()).then_some(Self(folder))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0.0).status();
    }
}

#[test]
fn a_full_disk_leaves_the_old_file_and_says_that_no_space_is_left() {
    let Some(disk) = SmallDisk::mount("outputs-full") else {
        eprintln!("skipped: no file system can be mounted here; /dev/full is tried in another test");
        return;
    };
    let disk = &disk.0;
    let rows: String = (0..4000).map(|row| format!("block-{row},{row},{},64\n", row + 2)).collect();
    let input = Folder::new("outputs-full-input");
    let blocks = input.file("blocks.csv", format!("id,lower,upper,size\n{rows}"));
    let old = disk.file("plan.csv", "what was here before");
    for name in ["plan.csv", "new.csv", "map.html", "plan.json"] {
        let said = steeve(&["plan", &blocks, "-o", &disk.path(name)]);
        said.expect(2).complains(&[name, "no space left"]);
        assert!(!said.err.contains("permissions"), "{}", said.err);
        steeve(&["view", &blocks, "-o", &disk.path(name)]).expect(2).complains(&[name, "no space left"]);
    }
    assert_eq!(fs::read_to_string(old).unwrap(), "what was here before");
    assert_eq!(names(disk), ["plan.csv"]);
}

#[test]
fn of_two_that_write_the_same_output_one_is_there_whole() {
    let folder = Folder::new("outputs-race");
    let rows = |count: usize| -> String {
        let rows: String = (0..count).map(|row| format!("b{count}-{row},{row},{},64\n", row + 2)).collect();
        format!("id,lower,upper,size\n{rows}")
    };
    let inputs = [folder.file("small.csv", rows(300)), folder.file("large.csv", rows(900))];
    let out = folder.path("plan.csv");
    let start = |input: &String| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_steeve"));
        command.args(["plan", input, "-o", &out]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    for _ in 0..8 {
        let children: Vec<_> = inputs.iter().chain(&inputs).map(start).collect();
        for child in children {
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            // Whoever comes first, what can be read at any time is one plan or the other.
            let lines = fs::read_to_string(&out).unwrap().lines().count();
            assert!([301, 901].contains(&lines), "{lines} lines");
        }
        let said: Said = steeve(&["check", &out]);
        said.expect(0);
    }
    assert_eq!(names(&folder), ["large.csv", "plan.csv", "small.csv"]);
    assert!(Path::new(&out).is_file());
}
