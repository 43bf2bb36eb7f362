//! Plan files that lie: refused, or harmless.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code, reason = "every test uses some of it")]
mod plan_files;

use std::collections::BTreeMap;

use plan_files::{assert_holds, block, graph, options, refusal, saved, smuggle_take_over, with_claims};
use serde_json::{Value, json};
use steeve_graph::fuzz::{Choices, random_graph, scrambled_graph};
use steeve_graph::{
    Bytes, GraphPlan, MatchMemories, PlanFile, PlanOptions, Reuse, Verdict, check_plan_file, plan_graph, replay,
};

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
            // The first is said to end where the second begins, and the second is moved onto it.
            rows[a]["live"][1] = second["live"][0].clone();
            (rows[b]["buffer"], rows[b]["offset"]) = (first["buffer"].clone(), first["offset"].clone());
            "a life cut short"
        }
        2 if step(&first, 0) < step(&second, 0) && first["size"].as_u64() >= second["size"].as_u64() => {
            rows[a]["live"][1] = second["live"][0].clone();
            (rows[b]["buffer"], rows[b]["offset"], rows[b]["follows"]) =
                (first["buffer"].clone(), first["offset"].clone(), json!(a));
            "an alias"
        }
        3 => {
            let half = first["size"].as_u64()? / 2;
            (rows[b]["buffer"], rows[b]["offset"]) = (first["buffer"].clone(), json!(first["offset"].as_u64()? + half));
            "a block put on another's half"
        }
        4 => {
            rows[b]["follows"] = Value::Null;
            "an alias concealed"
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

/// Returns where the numbers of a text are, outside of strings.
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
    assert_eq!(error, "memory memory: live range of tensor 1 (a) wrong: expected [1, 5), got [1, 3)");
}

#[test]
fn a_node_on_its_source_is_a_take_over_whatever_the_file_calls_it() {
    let graph = graph("x = input f32[16]; a = sqr x; b = neg a; c = mul_mat f32[1] b x !output");
    let plan = plan_graph(&graph, &PlanOptions::default()).unwrap();
    // The alias of `a` is concealed: it ends where `b` starts, and no block follows it.
    let concealed = refusal(&graph, &plan, |rows| rows[2]["follows"] = Value::Null);
    assert_eq!(concealed, "memory memory: live range of tensor 1 (a) wrong: expected [1, 3), got [1, 2)");
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
            let source = "computed in place of its source in slot 0, tensor 1 (a)";
            assert_eq!(error, format!("tensor 2 (b): {source}, which {name} may not with reuse more"));
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
    assert_eq!(error, "memory memory: live range of tensor 0 (x) wrong: expected [0, 3), got [0, 1)");
}

#[test]
fn where_sources_are_held_only_ggmls_take_overs_are_allowed() {
    let graph = graph(
        "memory m align=1 hold=1
         x = input f32[8,4]; a = mul_mat f32[8,4] x x; r = reshape f32[32] a; b = neg r; c = mul_mat f32[1] b b !output",
    );
    let plan = plan_graph(&graph, &PlanOptions::default()).unwrap();
    let error = refusal(&graph, &plan, |blocks| smuggle_take_over(blocks));
    assert_eq!(
        error,
        "tensor 3 (b): computed in place of its source in slot 0, tensor 1 (a), which NEG may not with reuse more"
    );
}

#[test]
fn a_take_over_through_a_view_that_starts_later_is_refused() {
    // `b` has the size of the view, and would be located on the part of `a` that it does not read.
    let graph =
        graph("x = input f32[8,4]; a = sqr x; v = view f32[8,2]+64 a; b = neg v; c = mul_mat f32[1] b b !output");
    let plan = plan_graph(&graph, &PlanOptions::default()).unwrap();
    let error = refusal(&graph, &plan, |blocks| smuggle_take_over(blocks));
    assert_eq!(
        error,
        "tensor 3 (b): computed in place of its source in slot 0, tensor 1 (a), which NEG may not with reuse more"
    );
}

#[test]
fn a_plan_without_reuse_aliases_nothing() {
    let graph = graph("x = input f32[16]; a = sqr x; b = neg a !output");
    let text = saved(&graph).replace(r#""reuse":"more""#, r#""reuse":"none""#);
    let error = GraphPlan::from_json(&text, &graph).unwrap_err().to_string();
    assert_eq!(
        error,
        "tensor 1 (a): computed in place of its source in slot 0, tensor 0 (x), which SQR may not with reuse none"
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
    assert_eq!(
        error,
        "memory gpu: size of tensor 1 (a) decided by a wrong memory: expected one that it may belong to, got gpu"
    );
    let error = refusal(&graph, &plan, |rows| rows[1]["size"] = json!(64));
    assert_eq!(error, "memory gpu: block of tensor 1 (a) too small: expected at least 128 bytes, got 64");
    let error = refusal(&graph, &plan, |rows| rows.push(block(2, [2, 3])));
    assert_eq!(error, "memory gpu: block of tensor 2 (b) in a wrong memory: expected memory host");
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
    let unknown = "memory memory: block 3 () of an unknown tensor: expected one of 6 tensors, got tensor 6";
    assert_eq!(refusal(&graph, &plan, add(6)), unknown);
    let gone = refusal(&graph, &plan, |rows| drop(rows.pop()));
    assert!(
        gone.starts_with("memory memory: live range of tensor 4 (a) wrong: expected [2, 4)")
            || gone.contains("no block"),
        "{gone}"
    );
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
    let error = GraphPlan::from_json(&file.to_string(), &graph).unwrap_err();
    let error = steeve_graph::ErrorChain(&error).to_string();
    assert_eq!(error, "memory memory: wrong figure: buffers: does not match the blocks: expected [384], got [128]");
    // Claims that only a search could have found are not believed, nor are they refused.
    let loaded = with_claims(&mut file, &graph).unwrap();
    assert_eq!((loaded.memories()[0].verdict, loaded.memories()[0].at_least), (Verdict::Fits, Bytes(128)));
    for (field, value) in [("lower_bound", 385), ("peak", 383)] {
        let mut wrong = file.clone();
        wrong["memories"][0][field] = json!(value);
        let error =
            steeve_graph::ErrorChain(&GraphPlan::from_json(&wrong.to_string(), &graph).unwrap_err()).to_string();
        let (start, end) =
            (format!("memory memory: wrong figure: {field}: does not match the blocks: "), format!("got {value}"));
        assert!(error.starts_with(&start) && error.ends_with(&end), "{error}");
    }
    for life in [[0, 3], [0, 4], [0, 5]] {
        let error = refusal(&graph, &plan, |rows| {
            apart(rows);
            rows[0]["live"] = json!(life);
        });
        assert!(error.starts_with("memory memory: live range of tensor 0 (x) wrong: expected [0, 2), got"), "{error}");
    }
    let early = refusal(&graph, &plan, |rows| {
        apart(rows);
        rows[2]["live"] = json!([0, 4]);
    });
    assert_eq!(early, "memory memory: live range of tensor 2 (b) wrong: expected [2, 4), got [0, 4)");
}

#[test]
fn bytes_are_taken_over_across_memories_by_ggmls_rule_alone() {
    let graph = graph("memory a align=1; memory b align=1; x = input f32[16]; y = sqr x; z = neg y @b !output");
    let plan = plan_graph(&graph, &PlanOptions::default().with_reuse(Reuse::Ggml)).unwrap();
    assert!(plan.aliased_across_memories().is_some());
    assert_eq!(GraphPlan::from_json(&plan.to_json(), &graph).unwrap(), plan);
    let text = plan.to_json().replace(r#""reuse":"ggml""#, r#""reuse":"more""#);
    let error = GraphPlan::from_json(&text, &graph).unwrap_err().to_string();
    assert_eq!(error, "memory a: block of tensor 2 (z) in a wrong memory: expected memory b");
}

#[test]
fn a_block_follows_one_that_is_listed_before_it() {
    let graph = graph("x = input f32[16]; a = sqr x; b = neg a; c = mul_mat f32[1] b x !output");
    let plan = plan_graph(&graph, &PlanOptions::default()).unwrap();
    let error = refusal(&graph, &plan, |blocks| {
        blocks.swap(1, 2);
        blocks[1]["follows"] = json!(2);
    });
    assert_eq!(error, "memory memory: block 1 (b) follows a later one: expected a block before it, got block 2");
}
