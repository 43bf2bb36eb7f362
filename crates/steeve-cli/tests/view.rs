//! `steeve view`, and what else is drawn or summed up: the real binary on real files.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod harness;

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::harness::{Folder, corpus, golden, json, steeve, steeve_with, words};

const SMALL: &str = "x = input f32[64,32]; y = silu x; z = add y x !output";
const RECORDED: &str = "graphs/llm/qwen3-30b-a3b.c4096.fa1.out1.pp.json.gz";

/// The data of a page.
fn data(page: &str) -> serde_json::Value {
    let start = "<script id=\"data\" type=\"application/json\">";
    json(page.split_once(start).unwrap().1.split_once("</script>").unwrap().0)
}

#[test]
fn a_page_of_a_graph_has_ggmls_plan_and_ours() {
    let folder = Folder::new("view-page");
    let out = folder.path("map.html");
    steeve(&["view", &corpus(RECORDED), "-o", &out]).expect(0).complains(&["note:", &out, "written"]);
    let data = data(&fs::read_to_string(&out).unwrap());
    let plan = json(&steeve(&["plan", "--json", &corpus(RECORDED)]).expect(0).out);
    let names: Vec<&serde_json::Value> = data["maps"].as_array().unwrap().iter().map(|map| &map["name"]).collect();
    assert_eq!(names, ["ggml", "steeve"]);
    let memory = |map: usize| &data["maps"][map]["memories"][0];
    assert_eq!(memory(0)["buffers"][0], plan["buffers"][0]["ggml"]);
    assert_eq!(memory(1)["buffers"][0], plan["buffers"][0]["peak"]);
    assert_eq!(memory(1)["size"].as_array().unwrap().len() as u64, plan["buffers"][0]["blocks"]);
    // What plan -o draws is the same picture.
    let again = folder.path("again.html");
    steeve(&["plan", &corpus(RECORDED), "-o", &again]).expect(0);
    assert_eq!(fs::read(&again).unwrap(), fs::read(&out).unwrap());
}

#[test]
fn every_kind_of_file_is_drawn() {
    let folder = Folder::new("view-kinds");
    let graph = folder.file("small.graph", SMALL);
    let (plan, list, packed) = (folder.path("plan.json"), folder.path("list.csv"), folder.path("list.json.gz"));
    steeve(&["plan", &graph, "-o", &plan]).expect(0);
    steeve(&["plan", &corpus("blocks/tiny.csv"), "-o", &list]).expect(0);
    steeve(&["plan", &corpus("blocks/tiny.csv"), "-o", &packed]).expect(0);
    for file in [&graph, &plan, &list, &packed, &corpus("blocks/tiny.csv"), &corpus(RECORDED)] {
        for ending in ["html", "svg", "h"] {
            let out = folder.path(&format!("out.{ending}"));
            assert_eq!(steeve(&["view", "-q", file, "-o", &out]).expect(0).err, "", "{file}");
            assert!(fs::metadata(&out).unwrap().len() > 200, "{file}");
        }
        let said = steeve(&["view", file]);
        assert!(said.expect(0).out.lines().all(|line| line.chars().count() <= 80), "{}", said.out);
        assert!(!said.out.contains('\x1b') && said.err.is_empty());
    }
}

#[test]
fn a_saved_plan_is_drawn_as_it_stands() {
    let folder = Folder::new("view-saved");
    let graph = folder.file("small.graph", SMALL);
    let (plan, ours, theirs) = (folder.path("plan.json"), folder.path("ours.html"), folder.path("theirs.html"));
    steeve(&["plan", &graph, "-o", &plan]).expect(0);
    steeve(&["view", "-q", &graph, "-o", &ours]).expect(0);
    steeve(&["view", "-q", &plan, "-o", &theirs]).expect(0);
    let (ours, theirs) = (data(&fs::read_to_string(ours).unwrap()), data(&fs::read_to_string(theirs).unwrap()));
    for column in ["start", "steps", "offset", "size", "buffers", "bound"] {
        assert_eq!(ours["maps"][1]["memories"][0][column], theirs["maps"][0]["memories"][0][column], "{column}");
    }
    assert!(theirs["strings"].as_array().unwrap().iter().any(|text| text == "silu"));
    // A block list with offsets is drawn as it stands, and planned anew if a strategy is named.
    let list = folder.file("list.csv", "id,lower,upper,size,offset\na,0,1,8,100\nb,0,1,8,0\n");
    assert!(steeve(&["view", &list]).expect(0).out.contains("plan\n108 B in 2 blocks, lower bound 16 B"));
    let said = steeve(&["view", &list, "--strategy", "fast"]);
    assert!(said.expect(0).out.contains("steeve\n16 B in 2 blocks, no plan is smaller"), "{}", said.out);
}

#[test]
fn two_files_are_compared() {
    let folder = Folder::new("view-two");
    let (old, new) = (folder.path("old.json"), folder.path("new.json"));
    steeve(&["plan", &corpus(RECORDED), "--strategy", "ggml", "-o", &old]).expect(0);
    steeve(&["plan", &corpus(RECORDED), "-o", &new]).expect(0);
    let said = steeve(&["view", &old, &new, "--height", "6"]);
    assert!(said.expect(0).out.contains("old.json and new.json: old.json, CPU"), "{}", said.out);
    assert!(said.out.contains("39.74 MiB less (41666560 bytes, 43.2 %)"), "{}", said.out);
    let said = steeve(&["view", &new, &old, "--height", "6"]);
    assert!(said.expect(0).out.contains("39.74 MiB more"), "{}", said.out);
    steeve(&["view", &corpus("blocks/tiny.csv"), "--engine"]).expect(0).complains(&["no plan of its engine"]);
    let said = steeve(&["view", &corpus(RECORDED), "--engine", "--height", "6"]);
    assert!(said.expect(0).out.contains("39.74 MiB less"), "{}", said.out);
}

#[test]
fn what_view_writes_for_programs_is_what_plan_writes() {
    let folder = Folder::new("view-data");
    let graph = folder.file("small.graph", SMALL);
    for ending in ["json", "csv", "json.gz", "h"] {
        let (viewed, planned) = (folder.path(&format!("viewed.{ending}")), folder.path(&format!("planned.{ending}")));
        steeve(&["view", "-q", &graph, "-o", &viewed]).expect(0);
        steeve(&["plan", &graph, "-o", &planned]).expect(0);
        assert_eq!(fs::read(viewed).unwrap(), fs::read(planned).unwrap(), "{ending}");
    }
}

#[test]
fn options_of_pictures_do_what_they_say() {
    let folder = Folder::new("view-options");
    let out = folder.path("map.svg");
    let drawn = |options: &[&str]| {
        steeve(&[&["view", "-q", &corpus(RECORDED), "-o", &out], options].concat()).expect(0);
        fs::read_to_string(&out).unwrap()
    };
    assert!(drawn(&["--width", "640"]).starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"640\""));
    assert!(drawn(&["--title", "A & B"]).contains(">A &amp; B</text>"));
    assert!(!drawn(&["--theme", "dark"]).contains("prefers-color-scheme"));
    assert!(drawn(&["--rectangles", "100"]).contains("small blocks are merged into"));
    assert!(drawn(&["--color-by", "operation"]).contains(">mul_mat_id</text>"));
    assert!(drawn(&["--steps", "0..100"]).len() < drawn(&[]).len() / 4);
    let said = steeve(&["view", &corpus(RECORDED), "--width", "50", "--height", "5", "--color-by", "size"]);
    assert_eq!(said.expect(0).out.lines().nth(2).unwrap().chars().count(), 50);
    assert_eq!(drawn(&["--colour-by", "name"]), drawn(&["--color-by", "name"]));
    let said = steeve(&["view", &corpus(RECORDED), "--bytes"]);
    assert!(said.expect(0).out.contains("54814752 bytes in 1693 blocks, no plan is smaller"), "{}", said.out);
    let limited = corpus("graphs/multi/llama-3.1-8b.gpu1max1g.c32768.fa0.pp.json.gz");
    let said = steeve(&["view", &limited, "--memory", "FAKE_Host"]);
    assert!(said.expect(0).out.contains("FAKE_Host") && !said.out.contains("FAKE0"), "{}", said.out);
}

#[test]
fn the_picture_of_the_readme_is_what_the_tool_draws() {
    let folder = Folder::new("view-readme");
    let out = folder.path("map.svg");
    let title = "Qwen3 30B A3B: the first 4 of 48 layers, with a prompt of 512 tokens";
    steeve(&["view", "-q", &corpus(RECORDED), "--engine", "--steps", "0..252", "--title", title, "-o", &out]).expect(0);
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    golden(&docs.join("map.svg"), &fs::read_to_string(&out).unwrap());
}

#[test]
fn what_needs_no_memory_is_no_mistake() {
    let folder = Folder::new("view-empty");
    let said = steeve(&["view", &folder.file("external.graph", "x = external f32[8]; y = view f32[4] x\n")]);
    said.expect(0).complains(&["nothing to draw"]);
    steeve(&["view", "-q", &folder.path("external.graph"), "-o", &folder.path("external.html")]).expect(0);
    let zero = folder.file("zero.csv", "id,lower,upper,size\na,0,1,0\n");
    steeve(&["view", &zero]).expect(0);
    steeve(&["view", "-q", &zero, "-o", &folder.path("zero.svg")]).expect(0);
}

#[cfg(target_os = "linux")]
#[test]
fn colours_are_for_terminals() {
    // `script` runs a command in a terminal of its own.
    let run_in = |term: &str, no_color: &str, args: &str| {
        let command = format!("{} {args}", env!("CARGO_BIN_EXE_steeve"));
        let mut script = Command::new("script");
        let script = script.args(["-qec", &command, "/dev/null"]).env("NO_COLOR", no_color).env("TERM", term).output();
        script.ok().map(|out| String::from_utf8_lossy(&out.stdout).into_owned())
    };
    let run = |no_color: &str, args: &str| run_in("xterm-256color", no_color, args);
    let (view, plan) = (format!("view {}", corpus("blocks/tiny.csv")), format!("plan {}", corpus("blocks/tiny.csv")));
    let Some(coloured) = run("", &view) else {
        println!("colours: skipped, there is no script(1)");
        return;
    };
    assert!(coloured.contains("\x1b[38;5;") && coloured.contains('█'), "{coloured:?}");
    assert!(run("", &plan).unwrap().contains("\x1b["));
    for args in [&view, &plan] {
        let plain = run("1", args).unwrap();
        assert!(!plain.contains("\x1b["), "{plain:?}");
        let dumb = run_in("dumb", "", args).unwrap();
        assert!(!dumb.contains("\x1b["), "{dumb:?}");
    }
}

#[test]
fn many_files_have_a_last_row_for_all() {
    let said = steeve(&["plan", &corpus("blocks")]);
    let lines = words(&said.expect(0).out, &[6]);
    assert_eq!(lines[0], "file | blocks | peak | bound | ratio | result | strategy");
    assert_eq!(lines.last().unwrap(), "all 4 | 32 | 15.63 KiB | 15.63 KiB | 1.0000 | 4 of 4 optimal");
    let said =
        steeve(&["plan", "--bytes", &corpus("graphs/other/train-mnist-fc.b500.0000.json.gz"), &corpus(RECORDED)]);
    let last = words(&said.expect(0).out, &[8]).pop().unwrap();
    assert!(last.starts_with("all 2 | 1707 | 100069312 | 57402752 | 0.6402 | "), "{last}");
}

#[test]
fn patterns_are_found_where_the_shell_leaves_them_alone() {
    let folder = Folder::new("view-patterns");
    fs::create_dir_all(folder.path("deep/er")).unwrap();
    folder.file("a.graph", SMALL);
    folder.file("deep/er/b.graph", SMALL);
    folder.file("deep/c.csv", "id,lower,upper,size\na,0,1,1\n");
    folder.file("odd[1].graph", SMALL);
    let names = |pattern: &str| {
        let said = steeve(&["plan", "--json", &folder.path(pattern)]);
        let name = |line| json(line)["file"].as_str().unwrap().to_owned();
        said.expect(0).out.lines().map(name).collect::<Vec<_>>()
    };
    assert_eq!(
        names("**/*.graph"),
        [folder.path("a.graph"), folder.path("deep/er/b.graph"), folder.path("odd[1].graph")]
    );
    assert_eq!(names("d*"), [folder.path("deep/c.csv"), folder.path("deep/er/b.graph")]);
    assert_eq!(names("odd[1].graph"), [folder.path("odd[1].graph")], "what exists is no pattern");
    assert_eq!(names("?.graph"), [folder.path("a.graph")]);
}

#[test]
fn a_comparison_of_many_files_fits_on_a_slide() {
    let said = steeve(&["compare", &corpus("graphs"), "--budget", "10nodes"]);
    said.expect(0).complains(&["files are summed up by folder; --rows file shows each"]);
    let lines = words(&said.out, &[9]);
    assert_eq!(lines[0], "folder | graphs | memories | ggml | steeve | saved | of ggml | at best | optimal");
    let folders: Vec<&str> = lines[1..].iter().map(|line| line.split(" | ").next().unwrap()).collect();
    assert_eq!(folders, ["arch", "llm", "multi", "other", "all"]);
    let said = steeve(&["compare", "--rows", "folder", &corpus("blocks"), "--budget", "100nodes"]);
    let lines = words(&said.expect(0).out, &[9]);
    assert_eq!(lines[0], "folder | lists | memories | best-fit | steeve | saved | of best-fit | at best | optimal");
    assert_eq!(said.err, "");
    let said = steeve(&["compare", "--rows", "file", &corpus("graphs/arch"), "--budget", "10nodes", "-q"]);
    assert!(said.expect(0).out.lines().count() > 30, "{}", said.out);
}

#[test]
fn a_graph_from_the_standard_input_is_drawn() {
    let folder = Folder::new("view-stdin");
    let out = folder.path("map.h");
    steeve_with(&["view", "-q", "-", "-o", &out, "--prefix", "tiny"], SMALL.as_bytes()).expect(0);
    assert!(fs::read_to_string(&out).unwrap().contains("#define TINY_ARENA_SIZE 16384u"));
}

const EMBEDDED: &str = include_str!("../examples/embedded/net.graph");

/// A plan of the example, changed.
fn spoiled(folder: &Folder, spoil: impl Fn(&mut serde_json::Value)) -> String {
    let (graph, plan) = (folder.file("net.graph", EMBEDDED), folder.path("net.json"));
    steeve(&["plan", &graph, "-o", &plan]).expect(0);
    let mut content = json(&fs::read_to_string(&plan).unwrap());
    spoil(&mut content);
    folder.file("spoiled.json", content.to_string())
}

#[test]
fn a_saved_plan_that_does_not_hold_is_drawn_and_refused() {
    let folder = Folder::new("view-spoiled");
    let at = |plan: &serde_json::Value, name: &str| {
        plan["memories"][0]["blocks"].as_array().unwrap().iter().position(|it| it["name"] == name).unwrap()
    };
    let set = |name: &'static str, field: &'static str, value: serde_json::Value| {
        move |plan: &mut serde_json::Value| {
            let index = at(plan, name);
            plan["memories"][0]["blocks"][index][field] = value.clone();
        }
    };
    let check = |spoil: &dyn Fn(&mut serde_json::Value), words: &[&str]| {
        let plan = spoiled(&folder, spoil);
        let said = steeve(&["view", &plan]);
        said.expect(1).complains(words).complains(&["the plan does not hold: ", "; drawn all the same"]);
        // Nothing is missing from the picture.
        assert!(said.out.contains(" in 8 blocks"), "{}", said.out);
        let page = folder.path("map.html");
        steeve(&["view", &plan, "-o", &page]).expect(1).complains(words);
        let memory = &data(&fs::read_to_string(&page).unwrap())["maps"][0]["memories"][0];
        for index in 0..8 {
            let number = |column: &str| memory[column].get(index).map_or(0, |it| it.as_u64().unwrap());
            let buffer = memory["buffers"][number("buffer") as usize].as_u64().unwrap();
            assert!(number("offset") + number("size") <= buffer, "{memory}");
        }
        let header = folder.path("net.h");
        let said = steeve(&["view", &plan, "-o", &header]);
        said.expect(1).complains(words).complains(&["no header written"]);
        assert!(!Path::new(&header).exists());
    };
    check(&set("s", "offset", 100_000.into()), &["block s of 256 bytes at offset 100000 passes the end of buffer 0"]);
    check(
        &|plan| plan["memories"][0]["buffers"] = [100].as_slice().into(),
        &["passes the end of buffer 0, which has 100"],
    );
    check(&set("s", "offset", 257.into()), &["block s is at offset 257, which is not a multiple of its alignment 16"]);
    check(&set("s", "buffer", 3.into()), &["block s is in buffer 3, and there are 1"]);
    check(&set("s", "buffer", 4_294_967_294u32.into()), &["block s is in buffer 4294967294, and there are 1"]);
    check(&set("x", "offset", 0.into()), &["blocks x and h1 share byte 0"]);
    check(&set("a1", "follows", 0.into()), &["block a1 of 256 bytes does not fit into the 128 bytes of block x"]);
}

#[test]
fn a_saved_plan_names_the_nodes_that_its_blocks_tell() {
    let folder = Folder::new("view-nodes");
    let (plan, out) = (folder.path("plan.json"), folder.path("map.html"));
    steeve(&["plan", &corpus(RECORDED), "-o", &plan]).expect(0);
    let nodes = |file: &str, map: usize| -> Vec<[String; 2]> {
        steeve(&["view", "-q", file, "-o", &out]).expect(0);
        let data = data(&fs::read_to_string(&out).unwrap());
        let text = |it: &serde_json::Value| data["strings"][it.as_u64().unwrap() as usize].as_str().unwrap().to_owned();
        let texts = data["maps"][map]["nodes"].as_array().unwrap();
        texts.chunks(2).map(|node| [text(&node[0]), text(&node[1])]).collect()
    };
    let (saved, made) = (nodes(&plan, 0), nodes(&corpus(RECORDED), 1));
    assert_eq!(saved.len(), made.len());
    let known: Vec<_> = saved.iter().zip(&made).filter(|(saved, _)| !saved[1].is_empty()).collect();
    assert!(known.len() > made.len() / 2, "{} of {}", known.len(), made.len());
    assert!(known.iter().all(|(saved, made)| saved == made));
}

#[test]
fn a_saved_plan_says_all_that_a_picture_and_a_header_need() {
    let folder = Folder::new("view-again");
    let graph = "memory gpu align=128\nmemory host align=64\nmask = input f32[100] @host\nx = input f32[64,33] @gpu\n\
                 q = silu x @gpu\nup = add q x @gpu\npart = view f32[64]+0 up @gpu\ny = neg part !output @gpu\n";
    for (name, graph) in [("two.graph", graph), ("net.graph", EMBEDDED), ("small.graph", SMALL)] {
        let (graph, plan) = (folder.file(name, graph), folder.path("plan.json"));
        steeve(&["plan", &graph, "-o", &plan]).expect(0);
        let page = |file: &str, map: usize| {
            let out = folder.path("map.html");
            steeve(&["view", "-q", file, "-o", &out]).expect(0);
            let data = data(&fs::read_to_string(&out).unwrap());
            let text = |index: &serde_json::Value| data["strings"][index.as_u64().unwrap() as usize].clone();
            let mut memories = data["maps"][map]["memories"].clone();
            // Texts are numbered as they come, so they are compared by themselves.
            for memory in memories.as_array_mut().unwrap() {
                for column in ["label", "operation", "layout"] {
                    let texts = memory[column].as_array().unwrap().iter().map(text).collect::<Vec<_>>();
                    memory[column] = texts.into();
                }
                for also in memory.get_mut("also").and_then(|it| it.as_array_mut()).into_iter().flatten() {
                    let texts = also[1].as_array().unwrap().iter().map(text).collect::<Vec<_>>();
                    also[1] = texts.into();
                }
                // A plan says nothing of operands, so it can't tell which node first uses a memory.
                memory.as_object_mut().unwrap().remove("used");
            }
            memories
        };
        assert_eq!(page(&plan, 0), page(&graph, 1), "{name}");
    }
    // The same constants, but for the file that they were made from.
    let (graph, plan) = (folder.path("net.graph"), folder.path("net.json"));
    steeve(&["plan", &graph, "-o", &plan]).expect(0);
    let header = |file: &str| {
        let out = folder.path("net.h");
        assert_eq!(steeve(&["view", "-q", file, "-o", &out]).expect(0).err, "");
        fs::read_to_string(&out).unwrap().lines().skip(1).map(|line| format!("{line}\n")).collect::<String>()
    };
    assert_eq!(header(&plan), header(&graph));
    assert!(header(&plan).contains("#define NET_ARENA_ALIGN 16u"));
    // What is there for people alone may be left out, as in the library's files.
    let mut bare = json(&fs::read_to_string(&plan).unwrap());
    for block in bare["memories"][0]["blocks"].as_array_mut().unwrap() {
        let tensor = block["tensor"].as_object_mut().unwrap();
        for field in ["op", "type", "flags", "last_reader", "kept", "role", "layer", "views"] {
            tensor.remove(field);
        }
        block.as_object_mut().unwrap().remove("name");
    }
    let bare = folder.file("bare.json", bare.to_string());
    steeve(&["view", &bare]).expect(0);
    steeve(&["check", &graph, &bare]).expect(0);
}

#[test]
fn a_plan_of_the_corpus_that_was_saved_holds_and_looks_the_same() {
    let folder = Folder::new("view-saved-corpus");
    for (name, strategy) in [
        (RECORDED, "fast"),
        (RECORDED, "ggml"),
        ("graphs/multi/llama-3.1-8b.gpu1max1g.c32768.fa0.pp.json.gz", "fast"),
        ("graphs/other/train-mnist-fc.b500.0000.json.gz", "ggml"),
    ] {
        let plan = folder.path("plan.json");
        steeve(&["plan", &corpus(name), "--strategy", strategy, "-o", &plan]).expect(0);
        let shown = |file: &str, options: &[&str]| {
            let said = steeve(&[&["view", file, "--title", "t", "--bytes"], options].concat());
            said.expect(0).out.replace("t: plan", "t").replace("t: steeve", "t").replace("t: ggml", "t")
        };
        assert_eq!(shown(&plan, &[]), shown(&corpus(name), &["--strategy", strategy]), "{name}");
    }
}

#[test]
fn a_header_is_aligned_for_the_elements_of_its_tensors() {
    let folder = Folder::new("view-elements");
    let graph = "a = input i8[3]; b = input f32[4]; c = silu b; d = add c b !output; e = dup a !output";
    let graph = folder.file("al.graph", graph);
    let number = |text: &str, name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("#define {name} "))).unwrap();
        line.split('u').next().unwrap().parse().unwrap()
    };
    let out = folder.path("al.h");
    for command in ["view", "plan"] {
        assert_eq!(steeve(&[command, "-q", &graph, "-o", &out]).expect(0).err, "");
        let text = fs::read_to_string(&out).unwrap();
        assert_eq!(number(&text, "AL_ARENA_ALIGN"), 4);
        for name in ["B", "C", "D"] {
            assert_eq!(number(&text, &format!("AL_{name}_OFFSET")) % 4, 0, "{text}");
        }
    }
    // Whoever wants it otherwise is told what that means; and so is who saved a plan for something else.
    let words = ["is f32 at offset", "which not every machine can read; plan with --align 4"];
    for command in ["view", "plan"] {
        steeve(&[command, &graph, "--align", "1", "-o", &out]).expect(0).complains(&words);
    }
    let plan = folder.path("al.json");
    steeve(&["plan", &graph, "-o", &plan]).expect(0);
    steeve(&["view", &plan, "-o", &out]).expect(0).complains(&words);
    // Bytes need no alignment, nor does a block list of which nobody knows the types.
    let bytes = folder.file("bytes.graph", "a = input i8[3]; b = neg a !output");
    steeve(&["view", "-q", &bytes, "-o", &out]).expect(0);
    assert_eq!(number(&fs::read_to_string(&out).unwrap(), "BYTES_ARENA_ALIGN"), 1);
}

#[test]
fn some_steps_of_a_plan_are_told_as_they_are() {
    let folder = Folder::new("view-part");
    let out = folder.path("map.html");
    steeve(&["view", "-q", &corpus(RECORDED), "-o", &out]).expect(0);
    let whole = data(&fs::read_to_string(&out).unwrap());
    steeve(&["view", "-q", &corpus(RECORDED), "--steps", "0..3", "-o", &out]).expect(0);
    let part = data(&fs::read_to_string(&out).unwrap());
    assert_eq!(part["steps"], json("[1, 4]"));
    let lives = |data: &serde_json::Value| {
        let memory = &data["maps"][1]["memories"][0];
        let life = |at: usize| {
            let label = memory["label"][at].as_u64().unwrap() as usize;
            (data["strings"][label].to_string(), memory["start"][at].to_string(), memory["steps"][at].to_string())
        };
        (0..memory["start"].as_array().unwrap().len()).map(life).collect::<Vec<_>>()
    };
    let (all, some) = (lives(&whole), lives(&part));
    assert!(some.len() > 3 && some.len() < 50 && some.iter().all(|it| all.contains(it)), "{some:?}");
    assert!(some.iter().any(|(_, start, steps)| start == "0" && steps.parse::<u64>().unwrap() > 100), "{some:?}");
    for (ending, option) in
        [("h", "--steps"), ("json", "--steps"), ("csv", "--steps"), ("h", "--memory"), ("json", "--memory")]
    {
        let out = folder.path(&format!("part.{ending}"));
        let said =
            steeve(&["view", &corpus(RECORDED), "-o", &out, option, if option == "--steps" { "0..3" } else { "CPU" }]);
        said.expect(2).complains(&[option, "expected a map in the terminal or a page (.html) or a drawing (.svg)"]);
        assert!(!Path::new(&out).exists());
    }
}

#[test]
fn options_that_would_change_nothing_are_refused() {
    let folder = Folder::new("view-refused");
    let (graph, plan) = (folder.file("small.graph", SMALL), folder.path("plan.json"));
    steeve(&["plan", &graph, "-o", &plan]).expect(0);
    let out = |ending: &str| folder.path(&format!("out.{ending}"));
    for (ending, options) in [
        ("h", ["--theme", "dark"].as_slice()),
        ("h", &["--title", "x"]),
        ("html", &["--width", "100"]),
        ("html", &["--rectangles", "100"]),
        ("svg", &["--prefix", "x"]),
        ("svg", &["--bytes"]),
        ("json", &["--engine"]),
        ("csv", &["--colour-by", "size"]),
    ] {
        let said = steeve(&[&["view", &graph, "-o", &out(ending)], options].concat());
        said.expect(2).complains(&[options[0], "not used for "]);
    }
    steeve(&["view", &graph, "--theme", "dark"]).expect(2).complains(&["not used for a map in the terminal"]);
    for options in [
        ["--capacity", "1"].as_slice(),
        &["--align", "64"],
        &["--max-buffer", "1"],
        &["--reuse", "none"],
        &["--strategy", "fast"],
        &["--budget", "1s"],
        &["--threads", "2"],
    ] {
        let said = steeve(&[&["view", &plan], options].concat());
        said.expect(2).complains(&["is a plan already: leave out", options[0]]);
    }
    let list = folder.file("list.csv", "id,lower,upper,size,offset\na,0,1,8,100\nb,0,1,8,0\n");
    steeve(&["view", &list, "--align", "64"])
        .expect(2)
        .complains(&["leave out --align, or plan it again with --strategy"]);
    assert!(steeve(&["view", &list, "--budget", "10nodes"]).expect(0).out.contains("16 B in 2 blocks"));
    // A page is opened as it was asked for.
    steeve(&["view", "-q", &graph, "--colour-by", "size", "--theme", "dark", "-o", &out("html")]).expect(0);
    let page = fs::read_to_string(out("html")).unwrap();
    assert_eq!(data(&page)["by"], "size");
    assert!(page.contains("data-theme=\"dark\""));
}

#[test]
fn a_map_of_a_terminal_has_a_limit() {
    let file = corpus("blocks/tiny.csv");
    for option in ["--width", "--height"] {
        for count in ["1001", "20000"] {
            let said = steeve(&["view", &file, option, count]);
            said.expect(2).complains(&["expected at most 1000 columns and lines", count, "-o map.svg"]);
        }
        for count in ["0", "20001", "99999999999", "18446744073709551616", "x"] {
            steeve(&["view", &file, option, count]).expect(2).complains(&["a number from 1 to 20000"]);
        }
    }
    let said = steeve(&["view", &file, "--width", "1000", "--height", "1000"]);
    assert!(said.expect(0).out.lines().count() > 1000);
    for width in ["24", "30", "39"] {
        let said = steeve(&["view", &corpus(RECORDED), "--engine", "--width", width, "--height", "4"]);
        let width: usize = width.parse().unwrap();
        assert!(said.expect(0).out.lines().all(|line| line.chars().count() <= width), "{}", said.out);
    }
}

#[test]
fn plans_with_one_memory_each_stand_beside_each_other_whatever_its_name() {
    let folder = Folder::new("view-names");
    let list = folder.path("list.csv");
    steeve(&["plan", &corpus(RECORDED), "--strategy", "ggml", "-o", &list]).expect(0);
    let said = steeve(&["view", &list, &corpus(RECORDED), "--height", "6"]);
    assert!(said.expect(0).out.contains("39.74 MiB less (41666560 bytes, 43.2 %)"), "{}", said.out);
    assert!(said.out.contains("list.csv, CPU"), "{}", said.out);
}

#[test]
fn names_do_nothing_to_the_terminal() {
    let folder = Folder::new("view-control");
    let name = "evil\x1b[31m";
    let list = folder.file("list.csv", format!("id,lower,upper,size\n{name},0,1,8\n{},0,1,8\n", "long".repeat(200)));
    for args in [["show", &list].as_slice(), &["view", &list, "--colour-by", "name"]] {
        let said = steeve(args);
        assert!(!said.expect(0).out.contains('\x1b'), "{:?}", said.out);
        assert!(said.out.contains("evil\\u{1b}"), "{:?}", said.out);
        assert!(said.out.lines().all(|line| line.chars().count() <= 120), "{}", said.out);
    }
    let odd = folder.file("odd\x1b[31m.csv", "id,lower,upper,size\na,0,1,8\n");
    for command in ["plan", "compare"] {
        let said = steeve(&[command, &odd]);
        assert!(!said.expect(0).out.contains('\x1b') && said.out.contains("odd\\u{1b}"), "{:?}", said.out);
    }
    let said = steeve(&["plan", &folder.path("no\x1b[31m.csv")]);
    assert!(!said.expect(2).err.contains('\x1b') && said.err.contains("no\\u{1b}"), "{:?}", said.err);
}
