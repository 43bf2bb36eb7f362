//! Plans as files: what is saved is loaded again, and a file that lies is caught.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod recordings;

use std::collections::BTreeMap;

use recordings::each_graph;
use serde_json::{Value, json};
use steeve_graph::fuzz::{Choices, random_graph, scrambled_graph};
use steeve_graph::{
    AllocSizes, AssignedGraph, Best, Budget, Bytes, GraphParts, GraphPlan, GraphStrategy, Layout, MatchMemories,
    PlanFault, PlanFile, PlanFileError, PlanOptions, Reuse, Tensor, Unread, Verdict, View, check_plan_file, plan_graph,
    replay,
};

fn graph(text: &str) -> AssignedGraph {
    text.parse().unwrap_or_else(|error| panic!("{error} in\n{text}"))
}

fn options() -> Vec<PlanOptions> {
    let best = GraphStrategy::Best(Best::new(Budget::Nodes(300)));
    let ours = [GraphStrategy::Fast, best].into_iter().flat_map(|strategy| {
        [Reuse::Ggml, Reuse::More, Reuse::None].map(|reuse| PlanOptions::new(strategy).with_reuse(reuse))
    });
    [PlanOptions::new(GraphStrategy::Ggml)].into_iter().chain(ours).collect()
}

/// Saves and loads; everything is equal but what can't be known without searching again.
fn check_round_trip(name: &str, graph: &AssignedGraph, plan: &GraphPlan) {
    let text = plan.to_json();
    assert_eq!(text, plan.clone().to_json(), "{name}");
    let loaded = GraphPlan::from_json(&text, graph).unwrap_or_else(|error| panic!("{name}: {error}\n{graph}\n{text}"));
    if !matches!(plan.options().strategy, GraphStrategy::Best(_)) {
        assert_eq!(&loaded, plan, "{name}");
        return;
    }
    assert_eq!(loaded.options().strategy, GraphStrategy::Best(Best::default()), "{name}");
    assert_eq!((loaded.options().reuse, loaded.options().unread), (plan.options().reuse, plan.options().unread));
    assert_eq!(loaded.places(), plan.places(), "{name}");
    for (now, before) in loaded.memories().iter().zip(plan.memories()) {
        assert_eq!((now.memory, &now.plan, &now.tensors), (before.memory, &before.plan, &before.tensors), "{name}");
        assert_eq!(now.at_least, now.plan.bound().bytes, "{name}");
        assert_eq!(now.verdict == Verdict::Optimal, now.plan.is_optimal(), "{name}");
    }
    assert_eq!(GraphPlan::from_json(&loaded.to_json(), graph).unwrap(), loaded, "{name}");
}

#[test]
fn a_plan_of_any_graph_is_loaded_as_it_was_saved() {
    let (mut loaded, mut refused) = (0, 0);
    for seed in 0..900 {
        let mut choices = Choices::from_seed(seed);
        let orderly = seed % 3 != 0;
        let graph = if orderly { random_graph(&mut choices) } else { scrambled_graph(&mut choices) };
        for options in options() {
            let options = options.with_unread([Unread::Keep, Unread::FreeInputs, Unread::Free][seed as usize / 3 % 3]);
            let Ok(plan) = plan_graph(&graph, &options) else {
                assert!(options.strategy == GraphStrategy::Ggml, "seed {seed}, {options:?}");
                refused += 1;
                continue;
            };
            check_round_trip(&format!("seed {seed}, {options:?}"), &graph, &plan);
            loaded += 1;
        }
    }
    println!("{loaded} loaded; {refused} of ggml's plans free something too early");
    assert!(loaded > 5000 && refused < 300, "{loaded}, {refused}");
}

#[test]
fn a_plan_of_a_recorded_graph_is_loaded_as_it_was_saved() {
    let mut files = 0;
    each_graph(|name, recorded| {
        // All of the project's own; of the many others, plans as they are made by default.
        let options = if name.starts_with("project/") { options() } else { vec![PlanOptions::default()] };
        for options in options {
            let plan = plan_graph(&recorded.assigned, &options).unwrap();
            check_round_trip(&format!("{name}, {options:?}"), &recorded.assigned, &plan);
            files += 1;
        }
    });
    assert!(files > 500, "{files}");
}

#[test]
fn plans_without_bytes_and_ggmls_chunks_without_limit_are_loaded_too() {
    let empty = graph("x = input f32[16,0]; a = sqr x; b = neg a; c = mul_mat f32[1] b b !output");
    let mut text = String::from("memory m align=16 max=16\nx = external 4\n");
    (0..20).for_each(|node| text.push_str(&format!("n{node} = mul_mat f32[4] x x !output\n")));
    let chunks = graph(&text);
    for options in options() {
        check_round_trip("empty", &empty, &plan_graph(&empty, &options).unwrap());
        check_round_trip("chunks", &chunks, &plan_graph(&chunks, &options).unwrap());
    }
    // Only ggml's own strategy may pass the limit.
    let ggml = plan_graph(&chunks, &PlanOptions::new(GraphStrategy::Ggml)).unwrap().to_json();
    let ours = ggml.replace(r#""strategy":"ggml""#, r#""strategy":"fast""#).replace(r#","ggml_layout":true"#, "");
    let error = GraphPlan::from_json(&ours, &chunks).unwrap_err().to_string();
    assert!(error.contains("buffer 15 has 80 bytes, above the limit of 16"), "{error}");
}

/// The same graph with views that start elsewhere in their roots and, once in two, with fewer rows everywhere.
fn variant(assigned: &AssignedGraph, choices: &mut Choices<'_>) -> Option<AssignedGraph> {
    let graph = assigned.graph();
    let fewer = choices.once_in(2);
    let halved = |tensor: &Tensor| {
        let ([n0, n1, n2, n3], half) = (tensor.layout.ne(), |n: u64| if fewer { n.div_ceil(2) } else { n });
        Layout::new(tensor.layout.dtype(), [n0, half(n1), half(n2), half(n3)], tensor.layout.nb()).unwrap()
    };
    let mut parts = GraphParts::default();
    parts.detach();
    for (id, tensor) in graph.tensors().pairs() {
        let (op, layout) =
            (parts.op(graph.tensors().op_name(tensor.op), graph.tensors().kind_name(tensor.op)), halved(tensor));
        let mut moved = |view: View| {
            let spare = halved(&graph.tensors()[view.root]).nbytes().0.checked_sub(layout.nbytes().0)?;
            Some(View { offset: Bytes(choices.below(spare as usize + 1) as u64), ..view })
        };
        let view = match tensor.view {
            Some(view) => Some(moved(view)?),
            None => None,
        };
        let it = Tensor { layout, op: op.unwrap(), view, ..*tensor };
        parts.push_with(it, graph.sources(id), graph.params(id)).unwrap();
    }
    graph.leafs().iter().for_each(|leaf| parts.leaf(*leaf));
    graph.nodes().iter().for_each(|node| parts.node(*node));
    let sizes = AllocSizes::new(assigned.memories().len());
    AssignedGraph::new(parts.finish().ok()?, assigned.memories().clone(), assigned.assignment().clone(), sizes).ok()
}

/// A plan may be used for every graph that it fits: it holds for its own, and for others with other views and sizes.
/// How many others it fitted.
fn assert_holds(what: &str, plan: &GraphPlan, graph: &AssignedGraph, choices: &mut Choices<'_>) -> u32 {
    plan.fits(graph).unwrap_or_else(|misfit| panic!("{what}: {misfit}"));
    replay(graph, &plan.places()).unwrap_or_else(|faults| panic!("{what}: {faults}"));
    let mut fitted = 0;
    for _ in 0..3 {
        let Some(other) = variant(graph, choices) else { continue };
        if plan.fits(&other).is_ok() {
            fitted += 1;
            replay(&other, &plan.places()).unwrap_or_else(|faults| panic!("{what}: {faults}\n{graph}\nand\n{other}"));
        }
    }
    fitted
}

#[test]
fn a_plan_that_is_loaded_holds_for_every_graph_that_it_fits() {
    let mut fitted = 0;
    for seed in 0..600 {
        let mut choices = Choices::from_seed(seed);
        let graph = random_graph(&mut choices);
        for options in options() {
            // ggml frees the root of an output that is a view and is read.
            let Ok(plan) = plan_graph(&graph, &options) else { continue };
            let loaded = GraphPlan::from_json(&plan.to_json(), &graph).unwrap();
            fitted += assert_holds(&format!("seed {seed}, {options:?}"), &loaded, &graph, &mut choices);
        }
    }
    println!("{fitted} fitted");
    assert!(fitted > 1000, "{fitted}");
}

/// Changes a plan in a way that is meant to pass: blocks are put on each other, and their steps made to agree.
fn lie(file: &mut Value, choices: &mut Choices<'_>) -> Option<&'static str> {
    let memories = file["memories"].as_array_mut()?;
    let count = memories.len();
    let memory = &mut memories[choices.below(count)];
    let rows = memory["blocks"].as_array_mut()?;
    let (a, b) = (choices.below(rows.len()), choices.below(rows.len()));
    if a == b || rows.is_empty() {
        return None;
    }
    let (first, second) = (rows[a].clone(), rows[b].clone());
    let step = |row: &Value, at: usize| row["live"][at].as_u64().unwrap();
    let kind = match choices.below(7) {
        0 => {
            (rows[b]["buffer"], rows[b]["offset"]) = (first["buffer"].clone(), first["offset"].clone());
            "a block put on another"
        }
        1 if step(&first, 0) < step(&second, 0) => {
            // The first is said to end where the second begins, and the second stands on it.
            rows[a]["live"][1] = second["live"][0].clone();
            (rows[b]["buffer"], rows[b]["offset"]) = (first["buffer"].clone(), first["offset"].clone());
            "a life cut short"
        }
        2 if step(&first, 0) < step(&second, 0) && first["size"].as_u64() >= second["size"].as_u64() => {
            rows[a]["live"][1] = second["live"][0].clone();
            (rows[b]["buffer"], rows[b]["offset"], rows[b]["follows"]) =
                (first["buffer"].clone(), first["offset"].clone(), json!(a));
            "a take-over"
        }
        3 => {
            let half = first["size"].as_u64()? / 2;
            (rows[b]["buffer"], rows[b]["offset"]) = (first["buffer"].clone(), json!(first["offset"].as_u64()? + half));
            "a block put on another's half"
        }
        4 => {
            rows[b]["follows"] = Value::Null;
            "a take-over concealed"
        }
        5 => {
            (rows[a]["tensor"]["id"], rows[b]["tensor"]["id"]) =
                (second["tensor"]["id"].clone(), first["tensor"]["id"].clone());
            "two tensors swapped"
        }
        _ => {
            let other = rows.remove(b);
            let at = if a > b { a - 1 } else { a };
            rows[at]["tensor"]["views"] = json!([{"id": other["tensor"]["id"], "offset": 0, "size": other["size"]}]);
            "two tensors in one block"
        }
    };
    Some(kind)
}

/// Makes the figures of a plan agree with it, which is no defence.
fn with_claims(file: &mut Value, graph: &AssignedGraph) -> Result<GraphPlan, PlanFault> {
    let read: Result<PlanFile, _> = PlanFile::from_json(&file.to_string());
    if let Ok(read) = read {
        for (memory, it) in read.memories.iter().zip(file["memories"].as_array_mut().unwrap()) {
            let used: Vec<u64> = memory.used_sizes().iter().map(|size| size.0).collect();
            let peak = used.iter().fold(0, |sum: u64, size| sum.saturating_add(*size));
            (it["buffers"], it["peak"], it["lower_bound"]) = (json!(used), json!(peak), json!(peak));
        }
    }
    GraphPlan::from_json(&file.to_string(), graph)
}

#[test]
fn a_file_that_lies_is_refused_or_does_no_harm() {
    let mut told: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    let mut fitted = 0;
    for seed in 0..1500 {
        let mut choices = Choices::from_seed(seed);
        let graph = random_graph(&mut choices);
        let options = options()[choices.below(4)];
        let Ok(plan) = plan_graph(&graph, &options) else { continue };
        let text = plan.to_json();
        for _ in 0..12 {
            let mut file: Value = serde_json::from_str(&text).unwrap();
            let Some(kind) = lie(&mut file, &mut choices) else { continue };
            if choices.once_in(3) {
                lie(&mut file, &mut choices);
            }
            let told = told.entry(kind).or_default();
            let answer = with_claims(&mut file, &graph);
            // The diagnostic reader agrees, and has as much to say.
            if let Ok(file) = PlanFile::from_json(&file.to_string()) {
                match check_plan_file(&file, &graph, MatchMemories::ByName) {
                    Ok(_) => assert!(answer.is_ok(), "seed {seed}, {kind}: {:?}", answer.err()),
                    Err(faults) => assert!(answer.is_err() && !faults.is_empty(), "seed {seed}, {kind}: {faults:?}"),
                }
            }
            match answer {
                Ok(loaded) => {
                    told.1 += 1;
                    fitted += assert_holds(&format!("seed {seed}, {kind}"), &loaded, &graph, &mut choices);
                }
                Err(error) => {
                    told.0 += 1;
                    assert!(!error.to_string().is_empty());
                }
            }
        }
    }
    println!("refused and accepted: {told:?}, {fitted} fitted");
    assert!(told.len() == 7 && told.values().all(|(refused, _)| *refused > 50), "{told:?}");
}

fn saved(graph: &AssignedGraph) -> String {
    plan_graph(graph, &PlanOptions::default()).unwrap().to_json()
}

/// What is said of a file after `edit` has been at the blocks of its first memory.
fn refusal(graph: &AssignedGraph, plan: &GraphPlan, edit: impl Fn(&mut Vec<Value>)) -> String {
    let mut file: Value = serde_json::from_str(&plan.to_json()).unwrap();
    edit(file["memories"][0]["blocks"].as_array_mut().unwrap());
    match with_claims(&mut file, graph) {
        Ok(_) => panic!("accepted: {file}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn the_form_of_the_file_does_not_change_without_a_new_version() {
    let graph = graph(
        "memory gpu align=32 max=4096; memory host align=16 hold=1
         x = input f32[16]; a = sqr x; b = neg a @host; c = add a b @host !output",
    );
    let text = saved(&graph);
    let head = format!(
        r#"{{"schema":"steeve-plan","version":3,"strategy":"fast","reuse":"more","unread":"free-inputs","graph":"{}","memories":["#,
        graph.fingerprint()
    );
    let gpu = r#"{"name":"gpu","alignment":32,"max_buffer":4096,"peak":64,"lower_bound":64,"buffers":[64],"blocks":[{"name":"x","size":64,"live":[0,1],"buffer":0,"offset":0,"tensor":{"id":0,"type":"f32[16]","flags":["input"],"last_reader":0}},{"name":"a","size":64,"live":[1,4],"buffer":0,"offset":0,"follows":0,"tensor":{"id":1,"op":"sqr","type":"f32[16]","last_reader":2}}]},"#;
    let host = r#"{"name":"host","alignment":16,"hold":1,"peak":64,"lower_bound":64,"buffers":[64],"blocks":[{"name":"b","size":64,"live":[2,3],"buffer":0,"offset":0,"tensor":{"id":2,"op":"neg","type":"f32[16]","last_reader":2}},{"name":"c","size":64,"live":[3,4],"buffer":0,"offset":0,"follows":0,"tensor":{"id":3,"op":"add","type":"f32[16]","flags":["output"],"kept":true}}]}]}"#;
    assert_eq!(text, format!("{head}{gpu}{host}"));
}

#[test]
fn a_plan_of_another_graph_is_refused_and_the_message_says_why() {
    let memories = "memory gpu align=32; memory host align=16";
    let body = "x = input f32[16,4]; a = sqr x; b = neg a @host; c = mul_mat f32[4,4] a b !output";
    let planned = graph(&format!("{memories}\n{body}"));
    let text = saved(&planned);
    let error = |memories: &str, body: &str| {
        let other = graph(&format!("{memories}\n{body}"));
        GraphPlan::from_json(&text, &other).unwrap_err().to_string()
    };
    for (from, to) in [("neg a", "neg x"), ("!output", ""), ("x = input", "x = external"), ("@host", "")] {
        let message = error(memories, &body.replace(from, to));
        assert!(message.contains(&planned.fingerprint().to_string()), "{message}");
        assert!(message.contains("made for another graph") && message.contains("edges"), "{message}");
    }
    assert_eq!(
        error(memories, &body.replace("[16,4]", "[16,5]")),
        "memory gpu: tensor 0 (x) needs 320 bytes, and its block has 256"
    );
    assert_eq!(
        error(memories, &body.replace("@host", "@host size=300")),
        "memory host: tensor 2 (b) needs 300 bytes, and its block has 256"
    );
    for (change, message) in [
        ("align=64", "memory host: its alignment is 64, which does not divide the plan's 16"),
        ("align=16 hold=2", "memory host: its hold is 2, above the plan's 0"),
        ("align=16 fusion=checked", "memory host: its fusion is checked, beyond the plan's none"),
        ("align=16 shares=gpu", "memory host: the plan has it with bytes of its own, and the graph sharing memory gpu"),
    ] {
        assert_eq!(error(&memories.replace("host align=16", &format!("host {change}")), body), message);
    }
    let small = graph(&format!("{}\n{body}", memories.replace("gpu align=32", "gpu align=32 max=300")));
    let message = GraphPlan::from_json(&text, &small).unwrap_err().to_string();
    assert!(message.contains("buffer 0 has") && message.contains("above the limit of 300"), "{message}");
    assert_eq!(
        error(&memories.replace("gpu", "tpu"), body),
        "the plan has the memories [gpu, host], and the graph [tpu, host]; matched by name"
    );
    assert_eq!(
        error(&format!("{memories}; memory disk align=1"), body),
        "the plan has the memories [gpu, host], and the graph [gpu, host, disk]; matched by name"
    );
    // A smaller graph may use it, and so may the one it was made for.
    let smaller = graph(&format!("{memories}\n{}", body.replace("[16,4]", "[16,3]").replace("[4,4]", "[3,3]")));
    let loaded = GraphPlan::from_json(&text, &smaller).unwrap();
    loaded.fits(&planned).unwrap();
    replay(&planned, &loaded.places()).unwrap();
}

#[test]
fn a_file_of_another_version_or_kind_is_refused() {
    let graph = graph("x = input 16; y = neg x !output");
    let text = saved(&graph);
    let error = |text: &str| GraphPlan::from_json(text, &graph).unwrap_err().to_string();
    let newer = text.replace(r#""version":3"#, r#""version":4,"what":"ever""#).replace("memories", "others");
    assert_eq!(error(&newer), "the plan file has version 4, and version 3 is read; make it again with steeve plan -o");
    assert_eq!(
        error(&text.replace("\"fast\"", "\"faster\"")),
        "strategy is \"faster\"; known are ggml, fast, best and best-fit"
    );
    assert_eq!(error(&text.replace("\"more\"", "\"most\"")), "reuse is \"most\"; known are ggml, more and none");
    assert!(error(&text.replace("\"reuse\"", "\"use\"")).contains("unknown field `use`"));
    let older = "the file names no schema, and a plan file has \"steeve-plan\" (those of older versions had none); make it again with steeve plan -o";
    assert_eq!(error(r#"{"version":2,"fingerprint":"0","memories":[]}"#), older);
    assert_eq!(error(&text.replace(r#""schema":"steeve-plan","#, "")), older);
    for other in ["", "[1]", &"[".repeat(100_000), &format!("{text}]")] {
        assert!(error(other).starts_with("not a plan file: "), "{other}");
    }
    for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)) {
        let refused = GraphPlan::from_json(&text[..end], &graph);
        assert!(matches!(refused, Err(PlanFault::File(PlanFileError::Json(_)))), "{end}");
    }
    assert!(GraphPlan::from_json(&format!("{text}\n"), &graph).is_ok());
    let blocks = r#"{"schema":"steeve-plan","version":3,"strategy":"fast","memories":[{"name":"memory","peak":0,"lower_bound":0,"buffers":[],"blocks":[]}]}"#;
    assert!(error(blocks).contains("is that of a block list"), "{}", error(blocks));
}

/// The text of a graph is that of its compact form, whose tensors have other numbers.
#[test]
fn a_plan_that_was_made_from_the_text_of_a_graph_is_one_for_the_graph() {
    let (mut renumbered, mut planned) = (0, 0);
    for seed in 0..600 {
        let mut choices = Choices::from_seed(seed);
        let graph = if seed % 3 == 0 { scrambled_graph(&mut choices) } else { random_graph(&mut choices) };
        let read: AssignedGraph = graph.to_string().parse().unwrap();
        renumbered += u32::from(read.fingerprint() != graph.fingerprint());
        let Ok(plan) = plan_graph(&read, &options()[choices.below(7)]) else { continue };
        let loaded =
            GraphPlan::from_json(&plan.to_json(), &graph).unwrap_or_else(|error| panic!("{seed}: {error}\n{graph}"));
        assert_eq!(loaded.peak(), plan.peak());
        assert_holds(&format!("seed {seed}"), &loaded, &graph, &mut choices);
        check_plan_file(&plan.to_file(), &graph, MatchMemories::ByName).unwrap();
        // And the other way round.
        let Ok(own) = plan_graph(&graph, &PlanOptions::default()) else { continue };
        let loaded =
            GraphPlan::from_json(&own.to_json(), &read).unwrap_or_else(|error| panic!("{seed}: {error}\n{graph}"));
        assert_eq!(loaded.peak(), own.peak());
        planned += 1;
    }
    assert!(renumbered > 100 && planned > 400, "{renumbered} of {planned}");
}

/// A plan is accepted for a memory whose alignment divides the plan's, whose maximum is not below its buffers and whose hold
/// and fusion ask for no more; in all other cases it is refused. Whichever it is, it holds.
#[test]
fn a_plan_is_accepted_for_the_memories_that_it_holds_in() {
    let word = ["none", "checked", "kept"];
    let memory = |name: &str, align: u64, max: u64, hold: u32, fusion: usize| {
        format!("memory {name} align={align} max={max} hold={hold} fusion={}\n", word[fusion])
    };
    // A router and a gated product, whose groups are kept, and a chain.
    let body = "w = external f32[16,8]; g = external f32[16,32]; x = input f32[16,4]
         logits = mul_mat w x; probs = soft_max(1.0,0.0) logits; p = reshape f32[1,8,4] probs
         order = argsort(1) i32[8,4] probs; top = view i32[2,4]{4,32,128,128}+0 order; chosen = get_rows f32[1,2,4] p top
         a = mul_mat g x; b = mul_mat g x; c = swiglu f32[32,4] a b; d = mul_mat f32[4,4] c c; e = add d d
         f = concat f32[4,8] e e; s = mul_mat f32[4,4] chosen chosen !output; h = mul_mat f32[1] f f !output";
    let (mut accepted, mut refused) = (0, 0);
    for seed in 0..3000 {
        let mut choices = Choices::from_seed(seed);
        let mut draw = || {
            (
                1u64 << choices.below(6),
                [512, 800, 1200, 4096][choices.below(4)],
                choices.below(3) as u32,
                choices.below(3),
            )
        };
        let ((align, max, hold, fusion), (align2, max2, hold2, fusion2)) = (draw(), draw());
        let planned = graph(&(memory("m", align, max, hold, fusion) + body));
        let other = graph(&(memory("m", align2, max2, hold2, fusion2) + body));
        let plan = plan_graph(&planned, &PlanOptions::default()).unwrap();
        let largest = plan.memories()[0].plan.buffers().iter().max().unwrap().0;
        // A single tensor of 512 bytes may pass the maximum, which is never below that here.
        let expected = align % align2 == 0 && max2 >= largest && hold2 <= hold && fusion2 <= fusion;
        let answer = GraphPlan::from_json(&plan.to_json(), &other);
        assert_eq!(answer.is_ok(), expected, "{seed}: {:?}", answer.err());
        match answer {
            Ok(loaded) => {
                accepted += 1;
                loaded.fits(&other).unwrap();
                replay(&other, &loaded.places()).unwrap();
                assert_eq!(loaded.assigned(), &other);
                // What was loaded can be saved, and loaded again.
                let again = GraphPlan::from_json(&loaded.to_json(), &other);
                assert_eq!(again.unwrap_or_else(|error| panic!("{seed}: {error}")), loaded);
                let again = GraphPlan::from_json(&loaded.to_json(), &planned).unwrap();
                assert_eq!(again.places(), plan.places());
            }
            Err(_) => refused += 1,
        }
    }
    assert!(accepted > 300 && refused > 300, "{accepted} {refused}");
}

#[test]
fn bytes_are_taken_over_across_memories_by_ggmls_rule_alone() {
    let graph = graph("memory a align=1; memory b align=1; x = input f32[16]; y = sqr x; z = neg y @b !output");
    let plan = plan_graph(&graph, &PlanOptions::default().with_reuse(Reuse::Ggml)).unwrap();
    assert!(plan.away_from_home().is_some());
    assert_eq!(GraphPlan::from_json(&plan.to_json(), &graph).unwrap(), plan);
    let text = plan.to_json().replace(r#""reuse":"ggml""#, r#""reuse":"more""#);
    let error = GraphPlan::from_json(&text, &graph).unwrap_err().to_string();
    assert_eq!(error, "memory a: tensor 2 (z) has a block there, and belongs to memory b");
}

#[test]
fn a_block_follows_one_that_is_listed_before_it() {
    let graph = graph("x = input f32[16]; a = sqr x; b = neg a; c = mul_mat f32[1] b x !output");
    let plan = plan_graph(&graph, &PlanOptions::default()).unwrap();
    let error = refusal(&graph, &plan, |blocks| {
        blocks.swap(1, 2);
        blocks[1]["follows"] = json!(2);
    });
    assert_eq!(error, "memory memory: block 1 (b) follows block 2, which is not before it");
}

#[test]
fn memories_are_matched_by_name_or_by_order() {
    let body =
        "x = input f32[16]; a = sqr x; b = mul_mat f32[16] a a @two; c = neg b @two; d = mul_mat f32[16] c a !output";
    let of = |memories: &str| graph(&format!("{memories}\n{body}"));
    let planned = of("memory one align=32; memory two align=16");
    let plan = plan_graph(&planned, &PlanOptions::default()).unwrap();
    let file = plan.to_file();
    // The same memories in another order: `a` and `d` name theirs.
    let swapped = "memory two align=16; memory one align=32";
    let body = "x = input f32[16] @one; a = sqr x @one; b = mul_mat f32[16] a a; c = neg b; d = mul_mat f32[16] c a @one !output";
    let swapped = graph(&format!("{swapped}\n{body}"));
    assert_eq!(swapped.fingerprint(), planned.fingerprint());
    let loaded = GraphPlan::from_file(&file, &swapped, MatchMemories::ByName).unwrap();
    replay(&swapped, &loaded.places()).unwrap();
    assert_eq!(loaded.peak(), plan.peak());
    assert!(GraphPlan::from_file(&file, &swapped, MatchMemories::ByOrder).is_err());
    // Other names in the same order.
    let renamed = of("memory first align=32; memory two align=16");
    let error = GraphPlan::from_file(&file, &renamed, MatchMemories::ByName).unwrap_err();
    assert!(matches!(error, PlanFault::Memories { .. }), "{error}");
    assert_eq!(GraphPlan::from_file(&file, &renamed, MatchMemories::ByOrder).unwrap().places(), plan.places());
}

/// Where the numbers of a text are, outside of strings.
fn numbers(text: &str) -> Vec<std::ops::Range<usize>> {
    let (mut found, mut quoted): (Vec<std::ops::Range<usize>>, bool) = (Vec::new(), false);
    for (at, byte) in text.bytes().enumerate() {
        quoted ^= byte == b'"';
        if byte.is_ascii_digit() && !quoted {
            match found.last_mut() {
                Some(last) if last.end == at => last.end += 1,
                _ => found.push(at..at + 1),
            }
        }
    }
    found
}

#[test]
fn no_number_of_a_file_can_be_changed_to_do_harm() {
    let graphs = [
        "memory gpu align=32 max=4096; memory host align=16 hold=1; memory twin align=32 shares=gpu
         w = external f32[16,16]; x = input f32[16,4]; cache = leaf f32[16,8]
         a = mul_mat w x; b = silu a; spot = view f32[16,4]+256 cache; write = cpy b spot
         v = view f32[16,2]+64 cache @twin; c = sqr v @twin; d = neg c @host; e = add c d @host
         f = scale(2.0,0.0) e @host; y = mul_mat f32[4,4] x b; z = concat f32[4,8] y y !output; g = neg f @host !output",
        // `s` is in no list, and has its bytes before the run.
        "x = input 16; s = leaf f32[16] !aside; a = neg s; b = mul_mat f32[1] a a; c = mul_mat f32[16] b x !output",
    ];
    let (mut accepted, mut refused) = (0, 0);
    for (text, options) in graphs.iter().flat_map(|text| options().into_iter().map(move |options| (text, options))) {
        let graph = graph(text);
        // ggml gives `s` its bytes at its reader.
        let Ok(plan) = plan_graph(&graph, &options) else { continue };
        let file = plan.to_json();
        let mut choices = Choices::from_seed(7);
        let numbers = numbers(&file);
        let others = numbers.iter().map(|range| file[range.clone()].to_owned());
        let mut others: Vec<String> = others
            .chain(
                ["0", "1", "2", "3", "16", "4294967295", "4294967296", "18446744073709551615", "18446744073709551616"]
                    .into_iter()
                    .chain(["-1", "1.5", "1e3", "null", "\"1\"", "[]", "{}"])
                    .map(String::from),
            )
            .collect();
        others.sort();
        others.dedup();
        for range in numbers {
            let number: u64 = file[range.clone()].parse().unwrap();
            let near =
                [number + 1, number.saturating_sub(1), number * 2, number / 2, number + 32].map(|it| it.to_string());
            for other in near.iter().chain(&others) {
                let spoilt = format!("{}{other}{}", &file[..range.start], &file[range.end..]);
                match GraphPlan::from_json(&spoilt, &graph) {
                    Ok(loaded) => {
                        accepted += 1;
                        assert_holds(&spoilt, &loaded, &graph, &mut choices);
                    }
                    Err(error) => {
                        refused += 1;
                        assert!(!error.to_string().is_empty());
                    }
                }
            }
        }
    }
    println!("{refused} refused, {accepted} accepted");
    // The last readers and the views are there for people alone.
    assert!(refused > 3 * accepted, "{refused} refused, {accepted} accepted");
}

#[test]
fn no_text_makes_the_reader_panic() {
    for seed in 0..400 {
        let mut choices = Choices::from_seed(seed);
        let graph = if seed % 2 == 0 { random_graph(&mut choices) } else { scrambled_graph(&mut choices) };
        let Ok(plan) = plan_graph(&graph, &options()[choices.below(4)]) else { continue };
        let text = plan.to_json();
        for _ in 0..40 {
            let mut bytes = text.clone().into_bytes();
            for _ in 0..1 + choices.below(3) {
                let at = choices.below(bytes.len());
                match choices.below(3) {
                    0 => bytes[at] = b"0123456789,[]{}\"-.en"[choices.below(20)],
                    1 => drop(bytes.remove(at)),
                    _ => bytes.insert(at, b'0' + choices.below(10) as u8),
                }
            }
            let Ok(spoilt) = String::from_utf8(bytes) else { continue };
            if let Ok(loaded) = GraphPlan::from_json(&spoilt, &graph) {
                assert_holds(&format!("seed {seed}"), &loaded, &graph, &mut choices);
            }
        }
    }
}

// Aliases that are smuggled in, one case each. Blocks are in the order of births: the position in the text.

#[test]
fn bytes_that_a_view_does_not_read_today_are_not_free() {
    let text = "x = input f32[8,4]; a = mul_mat f32[8,4] x x; v = view f32[8,1]+0 a; b = mul_mat f32[8,2] x x; c = concat f32[8,3] v b !output";
    let graph = graph(text);
    let plan = plan_graph(&graph, &PlanOptions::default()).unwrap();
    // `b` on the second half of `a`, of which only the first row is read.
    let smuggle = |rows: &mut Vec<Value>| {
        (rows[2]["buffer"], rows[2]["offset"]) =
            (rows[1]["buffer"].clone(), json!(rows[1]["offset"].as_u64().unwrap() + 64));
    };
    let mut places = plan.places();
    let (a, b) = (graph.graph().nodes()[0], graph.graph().nodes()[2]);
    let on_half =
        |place: &mut steeve_graph::TensorPlace, base: steeve_graph::TensorPlace| place.offset.0 = base.offset.0 + 64;
    let base = places.places[a].unwrap();
    on_half(places.places[b].as_mut().unwrap(), base);
    replay(&graph, &places).unwrap();
    let other = self::graph(&text.replace("+0", "+64"));
    plan.fits(&other).unwrap();
    assert!(replay(&other, &places).is_err());
    // So a replay is not enough, and the lifetimes that forbid it can't be lied about either.
    let error = refusal(&graph, &plan, smuggle);
    assert!(error.contains("tensor 1 (a) and tensor 3 (b) share byte") && error.contains("at node 2"), "{error}");
    let error = refusal(&graph, &plan, |rows| {
        smuggle(rows);
        rows[1]["live"] = json!([1, 3]);
    });
    assert_eq!(error, "memory memory: tensor 1 (a) is live in [1, 5), and its block in [1, 3)");
}

#[test]
fn a_node_on_its_source_is_a_take_over_whatever_the_file_calls_it() {
    let graph = graph("x = input f32[16]; a = sqr x; b = neg a; c = mul_mat f32[1] b x !output");
    let plan = plan_graph(&graph, &PlanOptions::default()).unwrap();
    // The take-over of `a` concealed: it ends where `b` starts, and nobody follows.
    let concealed = refusal(&graph, &plan, |rows| rows[2]["follows"] = Value::Null);
    assert_eq!(concealed, "memory memory: tensor 1 (a) is live in [1, 3), and its block in [1, 2)");
    let alive = refusal(&graph, &plan, |rows| {
        rows[2]["follows"] = Value::Null;
        rows[1]["live"] = json!([1, 3]);
    });
    assert!(alive.contains("tensor 1 (a) and tensor 2 (b) share byte") && alive.contains("at node 1"), "{alive}");
    // Nor is it hidden from later shapes: the loaded plan looks at the same pairs as the planned one.
    let loaded = GraphPlan::from_json(&plan.to_json(), &graph).unwrap();
    assert_eq!(loaded, plan);
}

#[test]
fn a_take_over_that_the_operation_forbids_is_refused_also_where_there_are_no_bytes_yet() {
    // A product reads its sources to the end; a sum may write over one source, but not if it reads it twice.
    for (op, name) in [("mul_mat", "MUL_MAT"), ("add", "ADD")] {
        for rows in [0, 4] {
            let text = format!("x = input f32[16,{rows}]; a = sqr x; b = {op} f32[16,{rows}] a a; c = neg b !output");
            let graph = graph(&text);
            let plan = plan_graph(&graph, &PlanOptions::default()).unwrap();
            let error = refusal(&graph, &plan, |blocks| {
                // Room for more than there is today; `b` over `a`.
                blocks.iter_mut().for_each(|row| row["size"] = json!(256));
                (blocks[1]["live"], blocks[2]["follows"]) = (json!([1, 2]), json!(1));
                (blocks[2]["buffer"], blocks[2]["offset"]) = (blocks[1]["buffer"].clone(), blocks[1]["offset"].clone());
                (blocks[3]["buffer"], blocks[3]["offset"]) = (blocks[1]["buffer"].clone(), blocks[1]["offset"].clone());
            });
            let source = "is computed in place of its source in slot 0, tensor 1 (a)";
            assert_eq!(error, format!("tensor 2 (b) {source}, which {name} may not with reuse more"));
        }
    }
}

#[test]
fn a_source_on_another_source_is_no_take_over() {
    // In the bytes of `x`, `a` would read the same twice.
    let graph = graph("x = input f32[16]; s = mul_mat f32[16] x x; a = add x s; b = mul_mat f32[1] a a !output");
    let plan = plan_graph(&graph, &PlanOptions::default().with_reuse(Reuse::None)).unwrap();
    let error = refusal(&graph, &plan, |rows| {
        (rows[0]["live"], rows[1]["follows"]) = (json!([0, 1]), json!(0));
        (rows[1]["buffer"], rows[1]["offset"]) = (rows[0]["buffer"].clone(), rows[0]["offset"].clone());
        (rows[2]["offset"], rows[3]["offset"]) = (json!(4096), json!(8192));
    });
    assert_eq!(error, "memory memory: tensor 0 (x) is live in [0, 3), and its block in [0, 1)");
}

#[test]
fn where_sources_are_held_only_ggmls_take_overs_are_allowed() {
    let graph = graph(
        "memory m align=1 hold=1
         x = input f32[8,4]; a = mul_mat f32[8,4] x x; r = reshape f32[32] a; b = neg r; c = mul_mat f32[1] b b !output",
    );
    let plan = plan_graph(&graph, &PlanOptions::default()).unwrap();
    let error = refusal(&graph, &plan, |rows| {
        (rows[1]["live"], rows[2]["follows"]) = (json!([1, 3]), json!(1));
        (rows[2]["buffer"], rows[2]["offset"]) = (rows[1]["buffer"].clone(), rows[1]["offset"].clone());
        rows[3]["offset"] = json!(4096);
    });
    assert_eq!(
        error,
        "tensor 3 (b) is computed in place of its source in slot 0, tensor 1 (a), which NEG may not with reuse more"
    );
}

#[test]
fn a_take_over_through_a_view_that_starts_later_is_refused() {
    // `b` has the size of the view, and would stand on the part of `a` that it does not read.
    let graph =
        graph("x = input f32[8,4]; a = sqr x; v = view f32[8,2]+64 a; b = neg v; c = mul_mat f32[1] b b !output");
    let plan = plan_graph(&graph, &PlanOptions::default()).unwrap();
    let error = refusal(&graph, &plan, |rows| {
        (rows[1]["live"], rows[2]["follows"]) = (json!([1, 3]), json!(1));
        (rows[2]["buffer"], rows[2]["offset"]) = (rows[1]["buffer"].clone(), rows[1]["offset"].clone());
        rows[3]["offset"] = json!(4096);
    });
    assert_eq!(
        error,
        "tensor 3 (b) is computed in place of its source in slot 0, tensor 1 (a), which NEG may not with reuse more"
    );
}

#[test]
fn a_plan_without_reuse_has_no_take_overs() {
    let graph = graph("x = input f32[16]; a = sqr x; b = neg a !output");
    let text = saved(&graph).replace(r#""reuse":"more""#, r#""reuse":"none""#);
    let error = GraphPlan::from_json(&text, &graph).unwrap_err().to_string();
    assert_eq!(
        error,
        "tensor 1 (a) is computed in place of its source in slot 0, tensor 0 (x), which SQR may not with reuse none"
    );
}

#[test]
fn a_tensor_stands_in_its_own_memory_and_has_the_bytes_that_this_one_asks_for() {
    let graph = graph(
        "memory gpu align=16; memory twin align=16 shares=gpu; memory host align=16
         x = input f32[16]; a = mul_mat f32[16] x x size=64,128,64 @twin; b = mul_mat f32[16] a a @host !output",
    );
    let plan = plan_graph(&graph, &PlanOptions::default()).unwrap();
    // Under the name `gpu` it would do with less.
    let error = refusal(&graph, &plan, |rows| (rows[1]["tensor"]["sized_by"], rows[1]["size"]) = (json!(0), json!(64)));
    assert_eq!(error, "memory gpu: the size of tensor 1 (a) is not decided by memory gpu");
    let error = refusal(&graph, &plan, |rows| rows[1]["size"] = json!(64));
    assert_eq!(error, "memory gpu: tensor 1 (a) needs 128 bytes, and its block has 64");
    let error = refusal(&graph, &plan, |rows| rows.push(block(2, [2, 3])));
    assert_eq!(error, "memory gpu: tensor 2 (b) has a block there, and belongs to memory host");
}

/// A block of a file for a tensor.
fn block(tensor: u32, live: [u64; 2]) -> Value {
    json!({"size": 64, "live": live, "buffer": 0, "offset": 4096, "tensor": {"id": tensor}})
}

#[test]
fn every_tensor_has_one_place_and_what_needs_none_has_none() {
    let graph = graph(
        "w = external f32[16]; x = input f32[16]; u = input f32[16] !aside; v = view f32[8]+0 x; a = add x w; b = neg a !output",
    );
    let plan = plan_graph(&graph, &PlanOptions::default()).unwrap();
    let add = |tensor: u32| move |rows: &mut Vec<Value>| rows.push(block(tensor, [0, 3]));
    let needless = "has a block and needs none: it is external, a view, or never used";
    for (tensor, name) in [(0, "w"), (2, "u"), (3, "v")] {
        let message = format!("memory memory: tensor {tensor} ({name}) {needless}");
        assert_eq!(refusal(&graph, &plan, add(tensor)), message);
    }
    assert_eq!(refusal(&graph, &plan, add(1)), "memory memory: tensor 1 (x) has a second block");
    let unknown = "memory memory: block 3 () is that of tensor 6, and the graph has 6 tensors";
    assert_eq!(refusal(&graph, &plan, add(6)), unknown);
    let gone = refusal(&graph, &plan, |rows| drop(rows.pop()));
    assert!(gone.starts_with("memory memory: tensor 4 (a) is live in [2, 4)") || gone.contains("no block"), "{gone}");
}

#[test]
fn lifetimes_and_claims_that_would_make_a_plan_look_better_are_refused() {
    let graph = graph(
        "x = input f32[16]; a = mul_mat f32[16] x x; b = mul_mat f32[16] a a; c = mul_mat f32[16] b b; d = mul_mat f32[16] c c; e = mul_mat f32[16] d d !output",
    );
    let plan = plan_graph(&graph, &PlanOptions::default()).unwrap();
    // All of it alive at once, one behind the other: the bound would be as high as the plan.
    let apart = |rows: &mut Vec<Value>| {
        for (index, row) in rows.iter_mut().enumerate() {
            row["offset"] = json!(64 * index);
        }
    };
    let mut file: Value = serde_json::from_str(&plan.to_json()).unwrap();
    apart(file["memories"][0]["blocks"].as_array_mut().unwrap());
    let error = GraphPlan::from_json(&file.to_string(), &graph).unwrap_err().to_string();
    assert_eq!(error, "memory memory: buffers is [128], and the blocks make it [384]");
    // Claims that only a search could have found are not believed, nor are they refused.
    let loaded = with_claims(&mut file, &graph).unwrap();
    assert_eq!((loaded.memories()[0].verdict, loaded.memories()[0].at_least), (Verdict::Fits, Bytes(128)));
    for (field, value) in [("lower_bound", 385), ("peak", 383)] {
        let mut wrong = file.clone();
        wrong["memories"][0][field] = json!(value);
        let error = GraphPlan::from_json(&wrong.to_string(), &graph).unwrap_err().to_string();
        assert!(error.starts_with(&format!("memory memory: {field} is {value}, and the blocks make it ")), "{error}");
    }
    for life in [[0, 3], [0, 4], [0, 5]] {
        let error = refusal(&graph, &plan, |rows| {
            apart(rows);
            rows[0]["live"] = json!(life);
        });
        assert!(error.starts_with("memory memory: tensor 0 (x) is live in [0, 2), and its block"), "{error}");
    }
    let early = refusal(&graph, &plan, |rows| {
        apart(rows);
        rows[2]["live"] = json!([0, 4]);
    });
    assert_eq!(early, "memory memory: tensor 2 (b) is live in [2, 4), and its block in [0, 4)");
}
