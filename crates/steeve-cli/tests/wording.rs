//! What is said about odd values and names: in our own words, true, and no longer than can be read.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod harness;

use std::fs;

use crate::harness::{Folder, json, steeve};

const TWO: &str = "id,lower,upper,size\nleft,0,2,8\nright,1,3,4\n";
const GRAPH: &str = "x = input f32[64,32]; y = silu x; z = add y x !output";

#[test]
fn a_list_without_blocks_is_no_optimal_plan() {
    let folder = Folder::new("wording-no-blocks");
    let recorded = r#"{"schema":"galloc-dump-1","buffers":[{"name":"CPU","alignment":32,"max_size":1}],"leafs":[],"nodes":[],"tensors":[]}"#;
    for (name, content, words) in [
        ("header.csv", "id,lower,upper,size\n", ": no blocks"),
        ("short.csv", "lower,upper,size", ": no blocks"),
        ("offsets.csv", "id,lower,upper,size,offset\n\n  \n", ": no blocks"),
        ("plan.json", NO_BLOCKS, ": no blocks"),
        ("memory.graph", "memory gpu align=128\n", ": no tensors"),
        ("comment.graph", "# nothing but a comment\n", ": no tensors"),
        ("recorded.json", recorded, ": no tensors"),
    ] {
        let file = folder.file(name, content);
        for args in
            [["plan", &file].as_slice(), &["show", &file], &["view", &file], &["compare", &file], &["check", &file]]
        {
            let said = steeve(args);
            said.expect(2).complains(&[name, words]);
            assert!(!said.out.contains("optimal"), "{args:?}: {}", said.out);
        }
        let out = folder.path("out.json");
        steeve(&["plan", &file, "-o", &out]).expect(2);
        assert!(!fs::exists(out).unwrap(), "{name}");
    }
    // A graph that needs no bytes is a graph all the same, and so is a leaf without any node.
    for text in ["x = external f32[8]; y = view f32[4] x", "x = input 16"] {
        steeve(&["plan", &folder.file("small.graph", text)]).expect(0);
    }
}

#[test]
fn numbers_are_refused_in_our_own_words() {
    let folder = Folder::new("wording-numbers");
    let two = folder.file("two.csv", TWO);
    let svg = folder.path("map.svg");
    let rust = ["invalid digit", "would be zero", "cannot parse", "number too", "ParseIntError", "non-zero"];
    let cases: [(&[&str], &str, &[&str]); 5] = [
        (&["plan", &two], "--threads", &["0", "abc", "1.5", "99999999999999999999999", ""]),
        (&["compare", &two], "--threads", &["0", "x"]),
        (&["show", &two], "--top", &["abc", "1.5", "99999999999999999999999", ""]),
        (&["view", &two, "-o", &svg], "--rectangles", &["abc", "0x10", "99999999999999999999999"]),
        (&["view", &two], "--width", &["0", "abc", "99999999999999999999999"]),
    ];
    for (args, option, values) in cases {
        for value in values {
            let given = format!("{option}={value}");
            let said = steeve(&[args, &[given.as_str()]].concat());
            said.expect(2).complains(&["error: ", option]);
            for words in rust {
                assert!(!said.err.contains(words), "{given}: {}", said.err);
            }
        }
    }
    steeve(&["plan", &two, "--threads", "0"]).expect(2).complains(&["a number of threads: expected 1 or more"]);
    steeve(&["plan", &two, "--threads", "2", "--budget", "20nodes"]).expect(0);
    steeve(&["show", &two, "--top", "0"]).expect(0);
}

#[test]
fn a_prefix_is_put_in_capitals_or_refused_and_never_repaired() {
    let folder = Folder::new("wording-prefix");
    let graph = folder.file("small.graph", GRAPH);
    let out = folder.path("plan.h");
    let named = |prefix: &str| steeve(&["view", &graph, "-o", &out, &format!("--prefix={prefix}")]);
    for prefix in ["", " ", "9lives", "a-b", "a b", "a.b", "naïve", "NET;", "x\ny", "/* */", "-"] {
        named(prefix).expect(2).complains(&["--prefix", "letters, digits and underscores"]);
        assert!(!fs::exists(&out).unwrap(), "{prefix:?}");
    }
    for prefix in ["NET", "net", "Net_2", "_x", "a__b", "n_"] {
        named(prefix).expect(0);
        let (prefix, text) = (prefix.to_ascii_uppercase(), fs::read_to_string(&out).unwrap());
        assert!(text.contains(&format!("#define {prefix}_ARENA_SIZE ")), "{prefix}: {text}");
        assert!(text.contains(&format!("#define {prefix}_X_OFFSET ")), "{prefix}: {text}");
        fs::remove_file(&out).unwrap();
    }
}

const NO_BLOCKS: &str = r#"{"schema":"steeve-plan","version":3,"strategy":"fast","memories":[{"name":"memory","peak":0,"lower_bound":0,"buffers":[],"blocks":[]}]}"#;

/// No message is longer than this, whatever it speaks of.
const READABLE: usize = 1500;

#[test]
fn no_message_echoes_a_long_name_whole() {
    let folder = Folder::new("wording-names");
    let long = "n".repeat(5000);
    let file = |name: &str, content: String| folder.file(name, content);
    let graph = file("small.graph", GRAPH.to_owned());
    let plan = folder.path("plan.json");
    steeve(&["plan", &graph, "-o", &plan]).expect(0);
    let changed = |name: &str, change: &dyn Fn(&mut serde_json::Value)| {
        let mut value = json(&fs::read_to_string(&plan).unwrap());
        change(&mut value);
        folder.file(name, value.to_string())
    };
    let text = |value: &str| serde_json::Value::from(value);
    let overlap = format!("id,lower,upper,size,offset\n{long}a,0,2,8,0\n{long}b,1,3,4,4\n");
    let overlap = file("overlap.csv", overlap);
    let named = file("named.graph", format!("x = input 8 \"{long}\"; y = neg x !output"));
    let named_plan = folder.path("named.json");
    steeve(&["plan", &named, "-o", &named_plan]).expect(0);
    let mut moved = json(&fs::read_to_string(&named_plan).unwrap());
    moved["memories"][0]["blocks"][0]["offset"] = 1.into();
    let moved = folder.file("moved.json", moved.to_string());
    let recorded = |row: &str| {
        format!(
            r#"{{"schema":"galloc-dump-1","buffers":[{{"name":"{long}","alignment":3,"max_size":1}}],"leafs":[],"nodes":[],"tensors":[{row}]}}"#
        )
    };
    let row = format!(
        r#"{{"id":0,"name":"{long}","op":"NONE","type":"{long}","ne":[8,1,1,1],"nb":[4,32,32,32],"nbytes":32}}"#
    );
    let (named_capacity, named_percentage) = (format!("{long}=1"), format!("{long}%"));
    let runs: Vec<Vec<String>> = [
        vec!["plan", &folder.path(&long)],
        vec!["plan", &folder.path(&format!("{long}*"))],
        vec!["plan", &graph, "-o", &folder.path(&format!("{long}.json"))],
        vec!["check", &overlap],
        vec!["view", &overlap],
        vec!["plan", &overlap, "--pinned"],
        vec!["check", &named, &moved],
        vec!["view", &moved],
        vec!["view", &named, "--memory", &long],
        vec!["check", &graph, &changed("buffer.json", &|it| it["memories"][0]["name"] = text(&long))],
        vec![
            "view",
            &changed("first.json", &|it| {
                it["memories"][0]["blocks"][0]["name"] = text(&long);
                it["memories"][0]["blocks"][0]["offset"] = 1_000_000.into();
            }),
        ],
        vec!["check", &graph, &changed("graph.json", &|it| it["graph"] = text(&long))],
        vec!["check", &graph, &changed("strategy.json", &|it| it["strategy"] = text(&long))],
        vec!["check", &graph, &changed("field.json", &|it| it[&long] = 1.into())],
        vec!["check", &graph, &changed("version.json", &|it| it["version"] = text(&long))],
        vec!["check", &graph, &changed("versions.json", &|it| it["version"] = vec![1; 9999].into())],
        vec!["check", &graph, &changed("size.json", &|it| it["memories"][0]["blocks"][0]["size"] = text(&long))],
        vec!["check", &graph, &changed("reuse.json", &|it| it["reuse"] = text(&long))],
        vec!["plan", &file("schema.json", format!("{{\"schema\":\"{long}\"}}"))],
        vec!["plan", &file("schemas.json", format!("{{\"schema\":[\"{long}\"]}}"))],
        vec!["plan", &file("type.json", recorded(&row).replace(":3,", ":4,"))],
        vec!["plan", &file("align.json", recorded(""))],
        vec!["plan", &file("column.csv", format!("id,lower,upper,{long}\n"))],
        vec!["plan", &file("number.csv", format!("id,lower,upper,size\na,0,1,{long}\n"))],
        vec!["plan", &file("twice.csv", format!("id,lower,upper,size\n{long},0,1,1\n{long},0,1,1\n"))],
        vec!["plan", &file("follows.csv", format!("id,lower,upper,size,follows\na,0,1,1,{long}\n"))],
        vec!["plan", &file("after.csv", format!("id,lower,upper,size,follows\n{long},0,1,1,\nb,2,3,1,{long}\n"))],
        vec!["check", &file("place.csv", format!("id,lower,upper,size,offset\n{long},0,1,1,\nb,2,3,1,0\n"))],
        vec![
            "plan",
            &file("life.json", NO_BLOCKS.replace("[]}]", &format!(r#"[{{"name":"{long}","live":[1,1]}}]}}]"#))),
        ],
        vec!["plan", &file("label.graph", format!("x = input 8\ny = neg {long}\n"))],
        vec!["plan", &file("op.graph", format!("x = input 8\ny = {long} x\n"))],
        vec!["plan", &file("flag.graph", format!("x = input 8 !{long}\n"))],
        vec!["plan", &file("number.graph", format!("x = input f32[{long}]\n"))],
        vec!["plan", &file("outside.graph", format!("x = input f32[4] \"{long}\"\ny = view f32[8]+0 x \"{long}\"\n"))],
        vec![
            "plan",
            &file("huge.graph", format!("memory m \"{long}\"\nx = input 8\n")),
            "--align",
            "8E",
            "--capacity",
            "1",
        ],
        vec!["plan", &graph, "--capacity", &long],
        vec!["plan", &graph, "--capacity", &named_capacity],
        vec!["plan", &graph, "--capacity", &named_capacity, "--capacity", &named_capacity],
        vec!["check", &named, "--capacity", "1"],
        vec!["check", &file("list.csv", format!("id,lower,upper,size,offset\n{long},0,1,8,0\n")), "--capacity", "1"],
        vec!["show", &overlap],
        vec!["diff", &graph, &overlap],
        vec!["diff", &file("less.graph", format!("memory m \"{long}\"\nx = input 4 \"{long}\"\n")), &named],
        vec!["diff", &graph, &graph, "--allow", &named_percentage],
        vec!["plan", &graph, "--budget", &long],
        vec!["record", "--library", &folder.path(&long), "--", "true"],
    ]
    .into_iter()
    .map(|args| args.into_iter().map(str::to_owned).collect())
    .collect();
    for args in runs {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let said = steeve(&args);
        let shown: Vec<String> = args.iter().map(|arg| arg.chars().take(60).collect()).collect();
        assert!([1, 2].contains(&said.status), "{shown:?}: {}", said.status);
        for line in said.err.lines().chain(said.out.lines()) {
            assert!(line.len() < READABLE, "{shown:?} says {} bytes: {}...", line.len(), &line[..200]);
        }
        // Where something is left out, that is said.
        assert!(!said.err.contains(&long) && !said.err.is_empty(), "{shown:?}");
    }
}

#[test]
fn no_option_of_any_length_is_echoed_whole() {
    let long = format!("--{}", "p".repeat(5000));
    let said = steeve(&["plan", "x.csv", &long]);
    assert!(said.expect(2).err.len() < 1500, "{} bytes", said.err.len());
}
