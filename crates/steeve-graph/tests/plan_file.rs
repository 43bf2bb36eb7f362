//! Plans as files: what is saved is loaded again, in every memory that demands no more.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code, reason = "every test uses some of it")]
mod plan_files;
mod recordings;

use plan_files::{assert_holds, graph, options, saved};
use recordings::each_graph;
use steeve_graph::fuzz::{Choices, random_graph, scrambled_graph};
use steeve_graph::{
    AssignedGraph, Best, GraphPlan, GraphStrategy, MatchMemories, PlanFault, PlanFileError, PlanOptions, Unread,
    Verdict, check_plan_file, plan_graph, replay,
};

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
    assert!(error.contains("buffer 15: too large: at most 16 bytes, got 80"), "{error}");
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
        "memory gpu: block of tensor 0 (x) too small: expected at least 320 bytes, got 256"
    );
    assert_eq!(
        error(memories, &body.replace("@host", "@host size=300")),
        "memory host: block of tensor 2 (b) too small: expected at least 300 bytes, got 256"
    );
    for (change, message) in [
        ("align=64", "memory host: alignment beyond the plan's: expected a divisor of 16, got 64"),
        ("align=16 hold=2", "memory host: hold beyond the plan's: expected at most 0, got 2"),
        ("align=16 fusion=checked", "memory host: fusion beyond the plan's: expected at most none, got checked"),
        (
            "align=16 shares=gpu",
            "memory host: shared in another way: expected sharing memory gpu, got with bytes of its own",
        ),
    ] {
        assert_eq!(error(&memories.replace("host align=16", &format!("host {change}")), body), message);
    }
    let small = graph(&format!("{}\n{body}", memories.replace("gpu align=32", "gpu align=32 max=300")));
    let message = GraphPlan::from_json(&text, &small).unwrap_err().to_string();
    assert!(message.contains("buffer 0: too large: at most 300 bytes"), "{message}");
    assert_eq!(
        error(&memories.replace("gpu", "tpu"), body),
        "plan: made for other memories: expected [tpu, host], got [gpu, host], matched by name"
    );
    assert_eq!(
        error(&format!("{memories}; memory disk align=1"), body),
        "plan: made for other memories: expected [gpu, host, disk], got [gpu, host], matched by name"
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
    assert_eq!(error(&newer), "version: not supported: expected 3, got 4; make it again with steeve plan -o");
    assert_eq!(
        error(&text.replace("\"fast\"", "\"faster\"")),
        "strategy: unknown value: expected ggml, fast, best or best-fit, got \"faster\""
    );
    assert_eq!(
        error(&text.replace("\"more\"", "\"most\"")),
        "reuse: unknown word: expected ggml, more or none, got \"most\""
    );
    let unknown = GraphPlan::from_json(&text.replace("\"reuse\"", "\"use\""), &graph).unwrap_err();
    assert!(steeve_graph::ErrorChain(&unknown).to_string().contains("unknown field `use`"), "{unknown}");
    let older = "schema: missing: expected \"steeve-plan\" (plan files of older versions have none); make it again with steeve plan -o";
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
    assert!(error(blocks).contains("that of a block list"), "{}", error(blocks));
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

/// A plan is accepted for a memory whose alignment divides the plan's, whose maximum is not below its buffers and
/// whose extra lifetime and fusion demand no more; in all other cases it is refused. In either case it is right.
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
fn memories_are_matched_by_name_or_by_order() {
    let body =
        "x = input f32[16]; a = sqr x; b = mul_mat f32[16] a a @two; c = neg b @two; d = mul_mat f32[16] c a !output";
    let of = |memories: &str| graph(&format!("{memories}\n{body}"));
    let planned = of("memory one align=32; memory two align=16");
    let plan = plan_graph(&planned, &PlanOptions::default()).unwrap();
    let file = plan.to_file();
    // The memories of the plan in another order: `a` and `d` name theirs.
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
