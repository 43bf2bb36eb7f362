//! Readers of graphs and plans: how much they take, how much they say, and what a small input may cost.
#![cfg(feature = "json")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fmt::Write;

use steeve_graph::{AssignedGraph, Bytes, Graph, GraphPlan, PlanOptions, RecordedGraph, plan_graph, text};
use steeve_plan::InputLimit;

const TEXT: &str = "memory gpu align=128 max=4096 hold=2 \"GPU 0\"\nmemory host align=64 shares=gpu\n\
    x = input f32[64,32] @gpu\nw = external q4_K[256,64] \"blk.0.w (copy)\" @host\n\
    q = add f32[64,32] x x @host\ns = scale(0.125,0.0) q @gpu\nk = view f32[8]+4^q q @gpu\n\
    y = silu q !output size=8448,8448 @gpu\nt = ?SSM_SCAN f32[64] x q @gpu\nleaf x @gpu\n";

const RECORDED: &str = r#"{"schema":"galloc-dump-1","tag":"tiny",
    "buffers":[{"name":"CPU","alignment":32,"max_size":18446744073709551615,"shared_with":0,"chunks":[64]}],
    "leafs":[[0,0]],"nodes":[[1,0],[2,0]],
    "tensors":[
    {"id":0,"name":"x","op":"NONE","type":"f32","ne":[8,1,1,1],"nb":[4,32,32,32],"flags":1,"nbytes":32,
     "alloc_size":[32],"res":{"buffer_id":0,"chunk":0,"offset":0,"size_max":32}},
    {"id":1,"name":"y","op":"UNARY","desc":"NEG","type":"f32","ne":[8,1,1,1],"nb":[4,32,32,32],"flags":2,"nbytes":32,
     "src":[0],"alloc_size":[32],"pre":1,"pre_buft":"host","res":{"buffer_id":0,"chunk":0,"offset":32,"size_max":32}},
    {"id":2,"name":"v","op":"VIEW","type":"f32","ne":[4,1,1,1],"nb":[4,16,16,16],"nbytes":16,
     "src":[1],"view_src":1,"view_offs":0}]}"#;

const PLANNED: &str = "memory gpu \"GPU 0\"\nx = input f32[64]; a = sqr x; b = neg a; c = add a b !output";

/// No error is longer than this.
const READABLE: usize = 1500;

/// Returns the text with something long at each of its letters and digits, and instead of each of its words.
fn swollen(text: &str) -> impl Iterator<Item = String> {
    let places = text.char_indices().filter(|(_, letter)| letter.is_alphanumeric()).map(|(place, _)| place);
    places.flat_map(move |place| {
        let word = text[place..].find(|letter: char| !letter.is_alphanumeric()).unwrap_or(text.len() - place);
        ["n", "7", "é"].into_iter().flat_map(move |letter| {
            let long = letter.repeat(5000);
            [
                format!("{}{long}{}", &text[..place], &text[place..]),
                format!("{}{long}{}", &text[..place], &text[place + word..]),
                format!("{}\"{long}\"{}", &text[..place], &text[place + word..]),
            ]
        })
    })
}

#[track_caller]
fn short(what: &str, input: &str, error: &dyn std::error::Error) {
    let message = error.to_string();
    let start: String = message.chars().take(200).collect();
    assert!(message.len() < READABLE, "{what}: {} bytes: {start}\nof {} bytes", message.len(), input.len());
}

/// Returns a text of this many bytes that begins with another one.
fn padded(text: &str, bytes: usize) -> String {
    format!("{text}{}", " ".repeat(bytes - text.len()))
}

#[test]
fn every_reader_takes_just_its_limit_and_not_one_byte_more() {
    let limit = InputLimit::DEFAULT.bytes().0 as usize;
    let (within, above) = (|text: &str| padded(text, limit), |text: &str| padded(text, limit + 1));
    let too_large = "input too large: at most 268435456 bytes are read, got 268435457";
    assert!(within(TEXT).parse::<AssignedGraph>().is_ok());
    assert_eq!(above(TEXT).parse::<AssignedGraph>().unwrap_err().to_string(), too_large);
    assert_eq!(above(TEXT).parse::<Graph>().unwrap_err().to_string(), too_large);
    assert!(RecordedGraph::from_json(&within(RECORDED)).is_ok());
    assert_eq!(RecordedGraph::from_json(&above(RECORDED)).unwrap_err().to_string(), too_large);
    assert_eq!(RecordedGraph::from_json_bytes(above(RECORDED).as_bytes()).unwrap_err().to_string(), too_large);
    let graph: AssignedGraph = PLANNED.parse().unwrap();
    let saved = plan_graph(&graph, &PlanOptions::default()).unwrap().to_json();
    assert!(GraphPlan::from_json(&within(&saved), &graph).is_ok());
    assert_eq!(GraphPlan::from_json(&above(&saved), &graph).unwrap_err().to_string(), too_large);
    // The limit can be raised, and lowered.
    let raised = InputLimit::new(Bytes(1 << 40));
    assert!(text::read_within(&above(TEXT), raised).is_ok());
    assert!(RecordedGraph::from_json_within(&above(RECORDED), raised).is_ok());
    let lowered = InputLimit::new(Bytes(40));
    assert!(text::read_within(TEXT, lowered).is_err() && RecordedGraph::from_json_within(RECORDED, lowered).is_err());
}

#[test]
fn no_error_of_a_reader_echoes_a_long_name_whole() {
    TEXT.parse::<AssignedGraph>().unwrap();
    RecordedGraph::from_json(RECORDED).unwrap();
    for text in swollen(TEXT) {
        if let Err(error) = text.parse::<AssignedGraph>() {
            short("text", &text, &error);
        }
    }
    for text in swollen(RECORDED) {
        if let Err(error) = RecordedGraph::from_json(&text) {
            short("record", &text, &error);
        }
    }
    let graph: AssignedGraph = PLANNED.parse().unwrap();
    let saved = plan_graph(&graph, &PlanOptions::default()).unwrap().to_json();
    for text in swollen(&saved) {
        if let Err(error) = GraphPlan::from_json(&text, &graph) {
            short("plan", &text, &error);
        }
    }
}

#[test]
fn no_error_about_a_graph_with_long_names_echoes_them_whole() {
    let long = "n".repeat(5000);
    let graph = |size: u32| -> AssignedGraph {
        let text = format!(
            "memory m \"{long}\"\nx = input f32[{size}] \"{long}\"; a = sqr x \"{long}a\"; b = add a x \"{long}b\" !output"
        );
        text.parse().unwrap()
    };
    let planned = graph(64);
    let plan = plan_graph(&planned, &PlanOptions::default()).unwrap();
    let saved = plan.to_json();
    let larger = graph(65);
    short("fits", "", &plan.fits(&larger).unwrap_err());
    short("larger", "", &GraphPlan::from_json(&saved, &larger).unwrap_err());
    let other: AssignedGraph = PLANNED.parse().unwrap();
    short("other", "", &GraphPlan::from_json(&saved, &other).unwrap_err());
    // Every number of the plan is wrong once.
    for (place, _) in saved.match_indices(|letter: char| letter.is_ascii_digit()) {
        for digit in ["", "9", "77"] {
            let text = format!("{}{digit}{}", &saved[..place], &saved[place + 1..]);
            if let Err(error) = GraphPlan::from_json(&text, &planned) {
                short("plan", &text, &error);
            }
        }
    }
    // What is wrong is told by name.
    for offset in [0, 4, 1 << 40] {
        let mut places = plan.places();
        let moved = planned.graph().nodes()[1];
        places.places[moved].as_mut().unwrap().offset = steeve_graph::Offset(offset);
        if let Err(faults) = steeve_graph::replay(&planned, &places) {
            short("replay", "", &faults);
        }
    }
}

#[test]
fn a_short_text_takes_little_memory() {
    // One size for every memory: as a table these would be 3,000 million sizes.
    let mut text: String = (0..60_000).fold(String::new(), |mut text, memory| {
        let _ = writeln!(text, "memory m{memory}");
        text
    });
    (0..50_000).for_each(|tensor| {
        let _ = writeln!(text, "x{tensor} = input 4 size=64");
    });
    let error = text.parse::<AssignedGraph>().unwrap_err().to_string();
    assert!(error.contains("size"), "{error}");
    // A statement of symbols is no statement, and is not kept either.
    let symbols = format!("x = input {}", "=".repeat(30_000_000));
    assert!(symbols.parse::<Graph>().is_err());
}

#[test]
fn many_names_take_little_time() {
    // Looked up one by one in a list these would be 20,000 million comparisons each.
    const COUNT: usize = 200_000;
    let mut text = String::from("x0 = input 4\n");
    (1..COUNT).for_each(|node| {
        let _ = writeln!(text, "x{node} = ?OP{node} f32[4] x0");
    });
    let graph: Graph = text.parse().unwrap();
    assert_eq!(graph.nodes().len(), COUNT - 1);
    let rows = |row: &dyn Fn(usize) -> String| (0..COUNT).map(row).collect::<Vec<_>>().join(",");
    let row = |id: usize| {
        format!(
            r#"{{"id":{id},"op":"OP{id}","type":"f32","ne":[8,1,1,1],"nb":[4,32,32,32],"nbytes":32,"pre":1,"pre_buft":"type {id}"}}"#
        )
    };
    let json = format!(
        r#"{{"schema":"galloc-dump-1","buffers":[{{"name":"CPU","alignment":32,"max_size":1}}],"leafs":[],"nodes":[[0,0]],"tensors":[{}]}}"#,
        rows(&row)
    );
    let recorded = RecordedGraph::from_json(&json).unwrap();
    assert_eq!(recorded.buffer_types.len(), COUNT);
    assert_eq!(RecordedGraph::from_json(&recorded.to_json()).unwrap(), recorded);
}

#[test]
fn sizes_in_many_memories_survive_writing_and_reading() {
    for memories in [1, 2, 63, 64, 65, 100] {
        let mut text: String = (0..memories).map(|memory| format!("memory m{memory}\n")).collect();
        let sizes = vec!["64"; memories].join(",");
        let _ = writeln!(text, "x = input 4 size={sizes}");
        let graph: AssignedGraph = text.parse().unwrap();
        assert_eq!(graph.to_string().parse::<AssignedGraph>().unwrap(), graph, "{memories}");
    }
}
