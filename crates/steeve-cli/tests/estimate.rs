//! `steeve estimate` with shell scripts in the place of programs: they write the lines that the drop-in writes.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod harness;

use std::fs;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::harness::{Folder, Said, json, steeve, words};

/// A place with a stand-in for the library, which the loader complains about and leaves out.
struct Place {
    folder: Folder,
    library: String,
}

/// A shell function that writes a line of the report.
const SAY: &str = r#"say() { printf '{"report":1,"process":%d,%s}\n' $$ "$1" >>"$STEEVE_REPORT"; }
open='"event":"open","handle":"0x1","owner":"steeve","ggml_version":"0.26.0","memories":[{"memory":"CUDA0","device":"CUDA0","host":false,"shared":false},{"memory":"CUDA_Host","device":"CUDA0","host":true,"shared":false}]'
reserve() { say '"event":"reserve","handle":"0x1","outcome":"'$1'","ggml":'$2',"steeve":'$3; }
tensors() { say '"event":"'$1'","context":"0xc'$3'","'$2'":"'$3'","memory":"CUDA0","device":"CUDA0","host":false,"contents":"'$4'","bytes":'$5; }
"#;

impl Place {
    fn new(name: &str) -> Self {
        let folder = Folder::new(&format!("estimate-{name}"));
        let library = folder.file("libsteeve_ggml.so", b"\x7fELF");
        Self { folder, library }
    }

    /// Runs `steeve estimate ARGS -- sh -c SCRIPT MORE`.
    fn estimate(&self, args: &[&str], script: &str, more: &[&str]) -> Said {
        let script = format!("{SAY}{script}");
        let start = ["estimate", "--library", &self.library, "--settle", "300ms"];
        steeve(&[&start, args, &["--", "sh", "-c", &script, "program"], more].concat())
    }
}

const REAL: &str = r#"
say "$open"
tensors buffer buffer 0xa weights 4194304
tensors buffer buffer 0xb caches 1048576
reserve done '[[3145728],[1024]]' '[2097152,1024]'
reserve done '[[1048576],[2048]]' '[2097152,2048]'
"#;

#[test]
fn each_device_has_a_row_with_what_is_known_and_where_from() {
    let place = Place::new("rows");
    let said = place.estimate(&[], &format!("{REAL}sleep 60"), &[]);
    let expected = [
        "device | weights | caches | compute: ggml | steeve | of ggml | total: ggml | steeve",
        "CUDA0 | 4.00 MiB | 1.00 MiB | 3.00 MiB | 2.00 MiB | 0.6667 | 8.00 MiB | 7.00 MiB",
        "CPU | - | - | 2.00 KiB | 2.00 KiB | 1.0000 | 2.00 KiB | 2.00 KiB",
        "total | 4.00 MiB | 1.00 MiB | 3.00 MiB | 2.00 MiB | 0.6669 | 8.00 MiB | 7.00 MiB",
        "compute: buffers of the graphs that the program has reserved; ggml's by its own rules",
        "weights: buffers that the program has allocated through ggml (CUDA0 4.00 MiB)",
        "caches: buffers that the program has allocated through ggml (CUDA0 1.00 MiB)",
    ];
    assert_eq!(words(&said.expect(0).out, &[]), expected);
    assert_eq!(said.err, "");
}

#[test]
fn what_is_not_known_is_said_to_be_not_known() {
    let place = Place::new("unknown");
    let script = r#"say "$open"; reserve done null '[100,0]'"#;
    let said = place.estimate(&["--bytes"], script, &[]);
    let lines = words(&said.expect(0).out, &[]);
    assert_eq!(lines[1], "CUDA0 | - | - | - | 100 | - | - | 100");
    assert!(lines.contains(&"weights: not known".to_owned()) && lines.contains(&"caches: not known".to_owned()));
    let said = place.estimate(&["--json"], script, &[]);
    let value = json(&said.expect(0).out);
    let device = value["devices"][0].as_object().unwrap();
    assert!(!device.contains_key("weights") && device["compute"].get("ggml").is_none(), "{value}");
    assert_eq!(device["total"], serde_json::json!({"steeve": 100}));
}

#[test]
fn a_program_is_ended_a_moment_after_its_last_plan_with_all_that_it_has_started() {
    let place = Place::new("ended");
    let pids = place.folder.path("pids");
    let script = format!(
        r#"echo $$ >"{pids}"; sleep 60 & echo $! >>"{pids}"; {REAL} (trap '' TERM; sleep 60) & echo $! >>"{pids}"; wait"#
    );
    let start = Instant::now();
    let said = place.estimate(&["--json"], &script, &[]);
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    let value = json(&said.expect(0).out);
    assert_eq!((value["ended"].as_str(), value["run"].as_str()), (Some("by steeve"), Some("real")));
    let pids = fs::read_to_string(pids).unwrap();
    assert_eq!(pids.lines().count(), 3);
    for pid in pids.lines() {
        let is_gone = || match fs::read_to_string(format!("/proc/{pid}/stat")) {
            // Nobody may have asked yet what became of it.
            Ok(stat) => stat.contains(") Z "),
            Err(_) => true,
        };
        let start = Instant::now();
        while !is_gone() && start.elapsed() < Duration::from_secs(5) {
            sleep(Duration::from_millis(20));
        }
        assert!(is_gone(), "process {pid} is still there");
    }
}

#[test]
fn what_a_program_has_started_has_time_to_end_also_once_the_program_itself_is_gone() {
    let place = Place::new("grace");
    let tidy = place.folder.path("tidy");
    // The leader ends at once, whether by itself or because it is asked to.
    let child = format!(r#"(trap 'sleep 1; echo done >"{tidy}"; exit' TERM; while :; do sleep 0.1; done) &"#);
    for end in ["sleep 60", "sleep 0.3"] {
        place.estimate(&[], &format!("{child}{REAL}exec {end}"), &[]).expect(0);
        assert_eq!(fs::read_to_string(&tidy).unwrap_or_default(), "done\n", "{end}");
        fs::remove_file(&tidy).unwrap();
    }
}

const DRY: &str = r#"
say "$open"
reserve dry '[[3145728],[0]]' '[2097152,0]'
for again in 1 2; do
    tensors size for 0xa weights 4194304
    tensors size for 0xb caches 1048576
done
say '"event":"close","handle":"0x1"'
"#;

#[test]
fn a_dry_run_alone_is_an_answer() {
    let place = Place::new("dry");
    // A program that loads weights after it is ended before it has done so.
    for more in ["", "tensors buffer buffer 0xa weights 4194304; sleep 60"] {
        let said = place.estimate(&["--json"], &format!("{DRY}{more}"), &[]);
        let value = json(&said.expect(0).out);
        assert_eq!(value["run"], "dry");
        let cuda = &value["devices"][0];
        assert_eq!((&cuda["device"], &cuda["total"]["ggml"]), (&"CUDA0".into(), &8388608.into()));
        assert_eq!(cuda["weights"], serde_json::json!({"bytes": 4194304, "from": {"sized": 4194304}}));
    }
}

#[test]
fn a_dry_run_before_the_real_one_is_not_counted() {
    let place = Place::new("both");
    let said = place.estimate(&["--json"], &format!("{DRY}{REAL}"), &[]);
    let value = json(&said.expect(0).out);
    assert_eq!(value["run"], "real");
    assert_eq!(value["devices"][0]["weights"], serde_json::json!({"bytes": 4194304, "from": {"allocated": 4194304}}));
    // Of several dry runs none need be what the program settles for, so it is waited for.
    let said = place.estimate(&["--json"], &format!("{DRY}{DRY}sleep 0.6; {REAL}"), &[]);
    assert_eq!(json(&said.expect(0).out)["run"], "real");
    said.complains(&["note: sh: made 2 dry runs before it reserved; it may have changed its parameters"]);
    let said = place.estimate(&["--json", "--timeout", "1s"], &format!("{DRY}{DRY}sleep 60"), &[]);
    assert_eq!(json(&said.expect(0).out)["run"], "dry");
    said.complains(&["note: sh: made 2 dry runs and reserved nothing", "ended after --timeout"]);
}

#[test]
fn a_capacity_is_answered_by_the_status() {
    let place = Place::new("capacity");
    let said = place.estimate(&["--capacity", "CUDA0=8MiB"], REAL, &[]);
    assert!(words(&said.expect(0).out, &[])[1].ends_with("| 8.00 MiB | yes"), "{}", said.out);
    let said = place.estimate(&["--capacity", "CUDA0=7.5MiB", "--capacity", "CPU=1G"], REAL, &[]);
    assert!(words(&said.expect(0).out, &[])[1].ends_with("| 7.50 MiB | with steeve"), "{}", said.out);
    let said = place.estimate(&["--capacity", "CUDA0=6MiB", "--json"], REAL, &[]);
    said.expect(1)
        .complains(&["error: CUDA0: does not fit: capacity 6.00 MiB, at least 7.00 MiB needed, 1.00 MiB too much"]);
    let value = json(&said.out);
    assert_eq!((&value["devices"][0]["fits"], &value["devices"][0]["capacity"]), (&false.into(), &6291456.into()));
    assert!(value["devices"][1].get("fits").is_none());
}

#[test]
fn a_capacity_means_the_same_as_in_the_other_commands() {
    let place = Place::new("capacities");
    let said = place.estimate(&["--capacity", "8MiB"], REAL, &[]);
    assert!(words(&said.expect(0).out, &[])[1..3].iter().all(|row| row.ends_with("| 8.00 MiB | yes")), "{}", said.out);
    place.estimate(&["--capacity", "8MiB", "--capacity", "CUDA0=6MiB"], REAL, &[]).expect(1);
    let said = place.estimate(&["--capacity", "CUDA0=8MiB", "--capacity", "CUDA0=6MiB"], REAL, &[]);
    assert_eq!(said.expect(2).out, "", "neither is taken silently");
    said.complains(&["--capacity CUDA0: given twice"]);
    // What was found out is shown, be the name mistyped.
    let said = place.estimate(&["--capacity", "cuda0=8MiB"], REAL, &[]);
    assert!(said.expect(2).out.contains("CUDA0"), "{}", said.out);
    said.complains(&["--capacity cuda0: no such memory: expected one of "]);
}

#[test]
fn a_program_that_fails_after_it_has_planned_is_still_an_answer() {
    let place = Place::new("failed");
    let script = r#"say "$open"; reserve failed '[[3145728],[0]]' '[2097152,0]'; echo out of memory >&2; exit 3"#;
    let said = place.estimate(&[], script, &[]);
    assert!(said.expect(0).out.contains("3.00 MiB"), "{}", said.out);
    said.complains(&[
        "out of memory for one of its plans",
        "failed (exit status: 3) after it had planned",
        "\n  out of memory",
    ]);
}

#[test]
fn a_graph_that_is_refused_is_no_lack_of_memory() {
    let place = Place::new("refused");
    let said = place.estimate(&[], &format!("{REAL}reserve refused null '[0,0]'"), &[]);
    assert!(said.expect(0).out.contains("3.00 MiB") && !said.err.contains("no memory"), "{}{}", said.out, said.err);
    said.complains(&["one of its graphs is malformed and was refused"]);
}

#[test]
fn why_ggmls_own_allocator_is_used_is_passed_on() {
    let place = Place::new("theirs");
    let theirs = r#"say "$(echo "$open" | sed 's/"steeve"/"ggml","why":"it has no ggml_op_desc"/; s/0x1/0x2/')""#;
    let said = place.estimate(&[], theirs, &[]);
    said.expect(2).complains(&["graphs planned by ggml's own allocator: it has no ggml_op_desc"]);
    let said = place.estimate(&[], &format!("{theirs}\n{REAL}"), &[]);
    said.expect(0).complains(&["plans some of its graphs (it has no ggml_op_desc); they are not counted"]);
}

#[test]
fn the_header_of_a_model_says_what_its_weights_have() {
    let place = Place::new("model");
    let mut model = [b"GGUF".as_slice(), &3u32.to_le_bytes(), &1u64.to_le_bytes(), &0u64.to_le_bytes()].concat();
    model.extend([8u64.to_le_bytes().as_slice(), b"t.weight", &1u32.to_le_bytes(), &1024u64.to_le_bytes()].concat());
    model.extend([0u32.to_le_bytes().as_slice(), &[0; 8]].concat());
    let (model, broken) = (place.folder.file("model.gguf", &model), place.folder.file("broken.gguf", &model[..40]));
    let said = place.estimate(&[], REAL, &["-m", &model, &format!("--draft={model}"), "-m", &broken, "GGUF"]);
    let lines: Vec<&str> = said.expect(0).out.lines().filter(|line| line.contains("by its header")).collect();
    assert_eq!(lines, vec![format!("{model}: 1 tensor, 4.00 KiB by its header"); 2]);
}

#[test]
fn the_program_has_no_input_and_what_it_prints_is_not_shown() {
    let place = Place::new("streams");
    let said = place.estimate(&[], &format!("cat; echo out; echo err >&2; {REAL}"), &[]);
    assert!(!said.expect(0).out.contains("out\n") && said.err.is_empty(), "{}{}", said.out, said.err);
}

#[test]
fn whatever_ends_an_estimate_ends_the_program_and_shows_what_it_has_planned() {
    for signal in ["-INT", "-TERM", "-HUP"] {
        end_by(signal);
    }
}

fn end_by(signal: &str) {
    let place = Place::new(&format!("interrupted{signal}"));
    let pid = place.folder.path("pid");
    let script = format!("{SAY}{REAL}echo $$ >{pid}; sleep 60");
    let mut command = Command::new(env!("CARGO_BIN_EXE_steeve"));
    command.args(["estimate", "--library", &place.library, "--settle", "1min", "--", "sh", "-c", &script]);
    let child = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    sleep(Duration::from_secs(1));
    Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
    let out = child.wait_with_output().unwrap();
    let (said, err) = (String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap());
    assert!(out.status.success() && said.contains("CUDA0") && err.contains("ended by Ctrl-C"), "{signal}: {said}{err}");
    let pid = fs::read_to_string(pid).unwrap();
    assert!(!std::path::Path::new(&format!("/proc/{}", pid.trim())).exists(), "{signal}");
}
