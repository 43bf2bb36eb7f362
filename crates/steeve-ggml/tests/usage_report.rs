//! What the library reports of a program's memory with `STEEVE_REPORT`.
#![cfg(all(target_os = "linux", not(feature = "whole")))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod harness;

use harness::{BARE, Loaded, NEW, Workshop};

/// The lines of a report without what no two runs share: the process, and addresses, which are numbered.
fn lines(text: &str) -> Vec<String> {
    let mut addresses: Vec<String> = Vec::new();
    let line = |line: &str| {
        let rest = line.strip_prefix("{\"report\":1,\"process\":").unwrap().split_once(",\"event\":").unwrap().1;
        let mut parts = rest.split("\"0x");
        let mut made = parts.next().unwrap().to_owned();
        for part in parts {
            let (address, rest) = part.split_once('"').unwrap();
            let number = addresses.iter().position(|known| known == address).unwrap_or_else(|| {
                addresses.push(address.to_owned());
                addresses.len() - 1
            });
            made += &format!("#{number}{rest}");
        }
        made.strip_suffix('}').unwrap().replace('"', "")
    };
    text.lines().map(line).collect()
}

#[test]
fn buffers_and_plans_are_reported_until_they_are_freed() {
    let Some(workshop) = Workshop::open("contexts") else { return };
    let file = workshop.folder.0.join("report");
    for loaded in [Loaded::Local, Loaded::Global, Loaded::Linked] {
        let said = workshop.run("contexts", NEW, loaded, &[], &[("STEEVE_REPORT", file.to_str().unwrap())]).well();
        assert_eq!(said.lines(), Vec::<&str>::new());
        let report = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        let gpu = r"memory:GPU,host:false,device:GPU\7";
        let expected = [
            "size,context:#0,memory:CPU,host:true,contents:weights,bytes:128".to_owned(),
            format!("buffer,buffer:#1,context:#0,{gpu},contents:weights,bytes:128"),
            "buffer,buffer:#2,context:#3,memory:CPU,host:true,contents:caches,bytes:128".to_owned(),
            "buffer,buffer:#4,context:#5,memory:CPU,host:true,contents:other,bytes:128".to_owned(),
            format!("mapped,buffer:#6,{gpu},bytes:4096"),
            format!("size,context:#3,{gpu},contents:caches,bytes:128"),
            format!(
                "open,handle:#7,owner:steeve,ggml_version:0.0.0-mock,memories:[{{{gpu},shared:false}},{{memory:CPU,host:true,shared:false}},{{{gpu},shared:true}}]"
            ),
            "reserve,handle:#7,outcome:dry,ggml:[[768], [], []],steeve:[768, 0, 0]".to_owned(),
            "reserve,handle:#7,outcome:done,ggml:[[768], [], []],steeve:[768, 0, 0]".to_owned(),
            "close,handle:#7".to_owned(),
            "drop,buffer:#1".to_owned(),
            "drop,buffer:#2".to_owned(),
            "drop,buffer:#4".to_owned(),
            "drop,buffer:#6".to_owned(),
        ];
        assert_eq!(lines(&report), expected);
    }
}

#[test]
fn a_report_changes_nothing_and_nothing_is_reported_unasked() {
    let Some(workshop) = Workshop::open("unasked") else { return };
    let file = workshop.folder.0.join("report");
    for (program, ggml) in [("report", NEW), ("report", BARE), ("plans", NEW), ("fallback", NEW), ("contexts", NEW)] {
        let args: &[&str] = if program == "fallback" { &["both"] } else { &[] };
        let plain = workshop.run(program, ggml, Loaded::Local, args, &[]).well();
        assert!(!file.exists());
        let env = [("STEEVE_REPORT", file.to_str().unwrap())];
        let reported = workshop.run(program, ggml, Loaded::Local, args, &env).well();
        assert_eq!((plain.out, plain.err), (reported.out, reported.err), "{program}");
        assert!(!lines(&std::fs::read_to_string(&file).unwrap()).is_empty());
        std::fs::remove_file(&file).unwrap();
    }
    // A file that can't be written is the reader's loss.
    workshop.run("contexts", NEW, Loaded::Local, &[], &[("STEEVE_REPORT", "/dev/null/x")]).well();
}

#[test]
fn what_ggmls_own_allocator_takes_is_what_ggml_takes() {
    let Some(workshop) = Workshop::open("theirs") else { return };
    let file = workshop.folder.0.join("report");
    let env = [("STEEVE_REPORT", file.to_str().unwrap()), ("STEEVE_OFF", "1")];
    workshop.run("report", NEW, Loaded::Local, &[], &env).well();
    let report = lines(&std::fs::read_to_string(&file).unwrap());
    assert!(report[0].starts_with("open,handle:#0,owner:ggml,why:STEEVE_OFF is set,ggml_version:"), "{report:?}");
    std::fs::remove_file(&file).unwrap();
    workshop.run("fallback", NEW, Loaded::Local, &["both"], &env[..1]).well();
    let report = lines(&std::fs::read_to_string(&file).unwrap());
    let reserves: Vec<&String> = report.iter().filter(|line| line.contains(",outcome:done,")).collect();
    // Where ours is in use the two differ, and else they are the same.
    let same = |line: &&&String| {
        let (ggml, steeve) = line.split_once("ggml:").unwrap().1.split_once(",steeve:").unwrap();
        ggml.replace("[[", "[").replace("]]", "]").replace("], [", ", ") == steeve
    };
    assert!(reserves.iter().any(|line| same(&line)) && !reserves.iter().all(|line| same(&line)));
    assert_eq!(reserves.iter().find(|line| line.contains("ggml:null")), None);
}

#[test]
fn a_graph_that_makes_no_sense_is_refused_and_has_not_failed() {
    let Some(workshop) = Workshop::open("refused") else { return };
    let file = workshop.folder.0.join("report");
    let env = [("STEEVE_REPORT", file.to_str().unwrap())];
    let plain = workshop.run("malformed", NEW, Loaded::Local, &[], &[]).well();
    let reported = workshop.run("malformed", NEW, Loaded::Local, &[], &env).well();
    assert_eq!(plain.lines().len(), reported.lines().len(), "nothing is said twice");
    let report = lines(&std::fs::read_to_string(&file).unwrap());
    let refused: Vec<&String> = report.iter().filter(|line| line.contains("outcome:refused")).collect();
    assert!(!refused.is_empty() && refused.iter().all(|line| line.ends_with("ggml:null,steeve:[]")), "{refused:#?}");
    assert!(report.iter().any(|line| line.contains("outcome:done")));
    // Some make sense, and need more than there is.
    let is_nothing = |line: &&String| line.contains("outcome:failed") && line.contains("steeve:[0]");
    assert_eq!(report.iter().find(is_nothing), None);
}
