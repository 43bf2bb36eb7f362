//! Plans as files: what is saved is loaded again, and a file that lies is caught.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod recordings;

use std::collections::BTreeMap;

use recordings::each_graph;
use serde_json::{Value, json};
use steeve_graph::fuzz::{Choices, random_graph, scrambled_graph};
use steeve_graph::{
    AllocSizes, AssignedGraph, Best, Budget, Bytes, GraphParts, GraphPlan, GraphStrategy, Layout, PlanOptions, Reuse,
    SavedPlanError, Tensor, Unread, Verdict, View, plan_graph, replay,
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
    let error = GraphPlan::from_json(&ggml.replace(r#""strategy":"ggml""#, r#""strategy":"fast""#), &chunks);
    let error = error.unwrap_err().to_string();
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
    let step = |row: &Value, at: usize| row[3][at].as_u64().unwrap();
    let kind = match choices.below(7) {
        0 => {
            (rows[b][5], rows[b][6]) = (first[5].clone(), first[6].clone());
            "a block put on another"
        }
        1 if step(&first, 0) < step(&second, 0) => {
            // The first is said to end where the second begins, and the second stands on it.
            rows[a][3][1] = second[3][0].clone();
            (rows[b][5], rows[b][6]) = (first[5].clone(), first[6].clone());
            "a life cut short"
        }
        2 if step(&first, 0) < step(&second, 0) && first[2].as_u64() >= second[2].as_u64() => {
            rows[a][3][1] = second[3][0].clone();
            (rows[b][5], rows[b][6], rows[b][4]) = (first[5].clone(), first[6].clone(), json!(a));
            "a take-over"
        }
        3 => {
            let half = first[2].as_u64()? / 2;
            (rows[b][5], rows[b][6]) = (first[5].clone(), json!(first[6].as_u64()? + half));
            "a block put on another's half"
        }
        4 => {
            rows[b][4] = Value::Null;
            "a take-over concealed"
        }
        5 => {
            (rows[a][0], rows[b][0]) = (second[0].clone(), first[0].clone());
            "two tensors swapped"
        }
        _ => {
            let tensor = rows.remove(b)[0].clone();
            memory["sharing"] = json!([[tensor, if a > b { a - 1 } else { a }]]);
            "two tensors in one block"
        }
    };
    // What a liar would say of the result.
    memory["verdict"] = json!("fits");
    Some(kind)
}

/// Makes the claims about a plan agree with it, which is no defence.
fn with_claims(file: &mut Value, graph: &AssignedGraph) -> Result<GraphPlan, SavedPlanError> {
    for _ in 0..4 {
        match GraphPlan::from_json(&file.to_string(), graph) {
            Err(SavedPlanError::Claim { memory, peak, bound, .. }) => {
                let verdict = if peak == bound { "optimal" } else { "fits" };
                for it in file["memories"].as_array_mut().unwrap().iter_mut().filter(|it| it["name"] == *memory) {
                    (it["verdict"], it["at_least"]) = (json!(verdict), json!(bound.0));
                }
            }
            answer => return answer,
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
            match with_claims(&mut file, &graph) {
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
        r#"{{"version":2,"fingerprint":"{}","strategy":"fast","reuse":"more","unread":"free-inputs","memories":["#,
        graph.fingerprint()
    );
    let gpu = r#"{"name":"gpu","align":32,"max_buffer":4096,"hold":0,"verdict":"optimal","at_least":64,"blocks":[[0,0,64,[0,1],null,0,0],[1,0,64,[1,4],0,0,0]]},"#;
    let host = r#"{"name":"host","align":16,"max_buffer":null,"hold":1,"verdict":"optimal","at_least":64,"blocks":[[2,1,64,[2,3],null,0,0],[3,1,64,[3,4],0,0,0]]}]}"#;
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
    let was = "the plan was made for memory host (alignment 16, buffers of any size, hold 0), and the graph has memory";
    for (change, is) in [
        ("memory host align=64", "host (alignment 64, buffers of any size, hold 0) there"),
        ("memory host align=16 max=512", "host (alignment 16, buffers of at most 512 bytes, hold 0) there"),
        ("memory host align=16 hold=2", "host (alignment 16, buffers of any size, hold 2) there"),
    ] {
        assert_eq!(error(&memories.replace("memory host align=16", change), body), format!("{was} {is}"));
    }
    let renamed = error(&memories.replace("gpu", "tpu"), body);
    assert!(renamed.contains("memory gpu (") && renamed.contains("memory tpu ("), "{renamed}");
    assert_eq!(
        error(&format!("{memories}; memory disk align=1"), body),
        "the plan has 2 memories, and the graph has 3 that do not share another's"
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
    let newer = text.replace(r#""version":2"#, r#""version":3,"what":"ever""#).replace("memories", "others");
    assert_eq!(error(&newer), "the plan has version 3, and this program reads version 2");
    assert!(error(&text.replace("\"fast\"", "\"faster\"")).contains("unknown variant `faster`"));
    assert!(error(&text.replace("\"reuse\"", "\"use\"")).contains("unknown field `use`"));
    assert!(error("").starts_with("not a saved plan: "));
    assert!(error("[1]").starts_with("not a saved plan: "));
    assert!(error(&"[".repeat(100_000)).starts_with("not a saved plan: "));
    for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)) {
        assert!(matches!(GraphPlan::from_json(&text[..end], &graph), Err(SavedPlanError::Json(_))), "{end}");
    }
    assert!(error(&format!("{text}]")).starts_with("not a saved plan: "));
    assert!(GraphPlan::from_json(&format!("{text}\n"), &graph).is_ok());
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
    assert!(refused > 10 * accepted, "{refused} refused, {accepted} accepted");
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
        (rows[2][5], rows[2][6]) = (rows[1][5].clone(), json!(rows[1][6].as_u64().unwrap() + 64));
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
    assert!(error.contains("share byte") && error.contains("(tensor 1 (a), tensor 3 (b))"), "{error}");
    let error = refusal(&graph, &plan, |rows| {
        smuggle(rows);
        rows[1][3] = json!([1, 3]);
    });
    assert_eq!(error, "memory memory: tensor 1 (a) is needed in [1, 5), and its block is there in [1, 3)");
}

#[test]
fn a_node_on_its_source_is_a_take_over_whatever_the_file_calls_it() {
    let graph = graph("x = input f32[16]; a = sqr x; b = neg a; c = mul_mat f32[1] b x !output");
    let plan = plan_graph(&graph, &PlanOptions::default()).unwrap();
    // The take-over of `a` concealed: it ends where `b` starts, and nobody follows.
    let concealed = refusal(&graph, &plan, |rows| rows[2][4] = Value::Null);
    assert_eq!(concealed, "memory memory: tensor 1 (a) is needed in [1, 3), and its block is there in [1, 2)");
    let alive = refusal(&graph, &plan, |rows| {
        rows[2][4] = Value::Null;
        rows[1][3] = json!([1, 3]);
    });
    assert!(alive.contains("blocks 1 and 2 share byte"), "{alive}");
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
                blocks.iter_mut().for_each(|row| row[2] = json!(256));
                (blocks[1][3], blocks[2][4]) = (json!([1, 2]), json!(1));
                (blocks[2][5], blocks[2][6]) = (blocks[1][5].clone(), blocks[1][6].clone());
                (blocks[3][5], blocks[3][6]) = (blocks[1][5].clone(), blocks[1][6].clone());
            });
            let source = "stands on the bytes of its source in slot 0, tensor 1 (a)";
            assert_eq!(error, format!("tensor 2 (b) {source}, which {name} may not"));
        }
    }
}

#[test]
fn a_source_on_another_source_is_no_take_over() {
    // In the bytes of `x`, `a` would read the same twice.
    let graph = graph("x = input f32[16]; s = mul_mat f32[16] x x; a = add x s; b = mul_mat f32[1] a a !output");
    let plan = plan_graph(&graph, &PlanOptions::default().with_reuse(Reuse::None)).unwrap();
    let error = refusal(&graph, &plan, |rows| {
        (rows[0][3], rows[1][4]) = (json!([0, 1]), json!(0));
        (rows[1][5], rows[1][6]) = (rows[0][5].clone(), rows[0][6].clone());
        (rows[2][6], rows[3][6]) = (json!(4096), json!(8192));
    });
    assert_eq!(error, "memory memory: tensor 0 (x) is needed in [0, 3), and its block is there in [0, 1)");
}

#[test]
fn where_sources_are_held_only_ggmls_take_overs_are_allowed() {
    let graph = graph(
        "memory m align=1 hold=1
         x = input f32[8,4]; a = mul_mat f32[8,4] x x; r = reshape f32[32] a; b = neg r; c = mul_mat f32[1] b b !output",
    );
    let plan = plan_graph(&graph, &PlanOptions::default()).unwrap();
    let error = refusal(&graph, &plan, |rows| {
        (rows[1][3], rows[2][4]) = (json!([1, 3]), json!(1));
        (rows[2][5], rows[2][6]) = (rows[1][5].clone(), rows[1][6].clone());
        rows[3][6] = json!(4096);
    });
    assert_eq!(error, "tensor 3 (b) stands on the bytes of its source in slot 0, tensor 1 (a), which NEG may not");
}

#[test]
fn a_take_over_through_a_view_that_starts_later_is_refused() {
    // `b` has the size of the view, and would stand on the part of `a` that it does not read.
    let graph =
        graph("x = input f32[8,4]; a = sqr x; v = view f32[8,2]+64 a; b = neg v; c = mul_mat f32[1] b b !output");
    let plan = plan_graph(&graph, &PlanOptions::default()).unwrap();
    let error = refusal(&graph, &plan, |rows| {
        (rows[1][3], rows[2][4]) = (json!([1, 3]), json!(1));
        (rows[2][5], rows[2][6]) = (rows[1][5].clone(), rows[1][6].clone());
        rows[3][6] = json!(4096);
    });
    assert_eq!(error, "tensor 3 (b) stands on the bytes of its source in slot 0, tensor 1 (a), which NEG may not");
}

#[test]
fn a_plan_without_reuse_has_no_take_overs() {
    let graph = graph("x = input f32[16]; a = sqr x; b = neg a !output");
    let text = saved(&graph).replace(r#""reuse":"more""#, r#""reuse":"none""#);
    let error = GraphPlan::from_json(&text, &graph).unwrap_err().to_string();
    assert_eq!(error, "tensor 1 (a) stands on the bytes of its source in slot 0, tensor 0 (x), which SQR may not");
}

#[test]
fn a_tensor_stands_in_its_own_memory_and_has_the_bytes_that_this_one_asks_for() {
    let graph = graph(
        "memory gpu align=16; memory twin align=16 shares=gpu; memory host align=16
         x = input f32[16]; a = mul_mat f32[16] x x size=64,128,64 @twin; b = mul_mat f32[16] a a @host !output",
    );
    let plan = plan_graph(&graph, &PlanOptions::default()).unwrap();
    // Under the name `gpu` it would do with less.
    let error = refusal(&graph, &plan, |rows| (rows[1][1], rows[1][2]) = (json!(0), json!(64)));
    assert_eq!(
        error,
        "memory gpu has a block for tensor 1 (a), which belongs to memory twin; the file says that it was asked for in memory number 0"
    );
    let error = refusal(&graph, &plan, |rows| rows[1][2] = json!(64));
    assert_eq!(error, "memory gpu: tensor 1 (a) needs 128 bytes, and its block has 64");
    let error = refusal(&graph, &plan, |rows| rows.push(json!([2, 2, 64, [2, 3], null, 0, 4096])));
    assert_eq!(
        error,
        "memory gpu has a block for tensor 2 (b), which belongs to memory host; the file says that it was asked for in memory number 2"
    );
}

#[test]
fn every_tensor_has_one_place_and_what_needs_none_has_none() {
    let graph = graph(
        "w = external f32[16]; x = input f32[16]; u = input f32[16] !aside; v = view f32[8]+0 x; a = add x w; b = neg a !output",
    );
    let plan = plan_graph(&graph, &PlanOptions::default()).unwrap();
    let add = |tensor: u32| move |rows: &mut Vec<Value>| rows.push(json!([tensor, 0, 64, [0, 3], null, 0, 4096]));
    let needless = "which needs none: it is external, a view, or never used";
    assert_eq!(refusal(&graph, &plan, add(0)), format!("memory memory has a block for tensor 0 (w), {needless}"));
    assert_eq!(refusal(&graph, &plan, add(2)), format!("memory memory has a block for tensor 2 (u), {needless}"));
    assert_eq!(refusal(&graph, &plan, add(3)), format!("memory memory has a block for tensor 3 (v), {needless}"));
    let twice = "memory memory has a block for tensor 1 (x), which has one already";
    assert_eq!(refusal(&graph, &plan, add(1)), twice);
    let unknown = "memory memory: block 3 is said to be tensor 6's, but there are only 6 tensors";
    assert_eq!(refusal(&graph, &plan, add(6)), unknown);
    let gone = refusal(&graph, &plan, |rows| drop(rows.pop()));
    assert!(gone.starts_with("memory memory: tensor 4 (a) is needed in [2, 4)") || gone.contains("no block"), "{gone}");
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
            row[6] = json!(64 * index);
        }
    };
    let mut file: Value = serde_json::from_str(&plan.to_json()).unwrap();
    apart(file["memories"][0]["blocks"].as_array_mut().unwrap());
    let error = GraphPlan::from_json(&file.to_string(), &graph).unwrap_err().to_string();
    assert_eq!(error, "memory memory: a plan of 384 bytes with a bound of 128 can't be \"optimal\" with at least 128");
    let loaded = with_claims(&mut file, &graph).unwrap();
    assert_eq!(loaded.memories()[0].verdict, Verdict::Fits);
    // Claims that only a search could have found are not believed, nor are they refused.
    (file["memories"][0]["verdict"], file["memories"][0]["at_least"]) = (json!("optimal"), json!(384));
    let loaded = GraphPlan::from_json(&file.to_string(), &graph).unwrap();
    assert_eq!((loaded.memories()[0].verdict, loaded.memories()[0].at_least), (Verdict::Fits, Bytes(128)));
    for life in [[0, 3], [0, 4], [0, 5]] {
        let error = refusal(&graph, &plan, |rows| {
            apart(rows);
            rows[0][3] = json!(life);
        });
        assert!(error.starts_with("memory memory: tensor 0 (x) is needed in [0, 2), and its block"), "{error}");
    }
    let early = refusal(&graph, &plan, |rows| {
        apart(rows);
        rows[2][3] = json!([0, 4]);
    });
    assert_eq!(early, "memory memory: tensor 2 (b) is needed in [2, 4), and its block is there in [0, 4)");
}
