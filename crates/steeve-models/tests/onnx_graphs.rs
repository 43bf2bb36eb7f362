//! Graphs inside ONNX models: branches, bodies of loops, functions; and values that are views or lists.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::collections::BTreeMap;

use steeve_graph::{KeyedGraph, KeyedPlan, PlanOptions, TensorGraph, Unread, plan_tensor_graph};
use steeve_models::onnx::SmallAttribute::{Graph, Int, Ints, Reference, Tensor};
use steeve_models::onnx::{DataType, DimSizes, Model, OnnxError, OnnxGraph, OnnxKey, SmallAttribute, SmallModel};

const FLOAT: DataType = DataType::FLOAT;
/// The bytes of `x`.
const X: u64 = 4 * 1024;

fn graph_at(model: &SmallModel, dims: &[(&str, u64)]) -> Result<OnnxGraph, OnnxError> {
    let dims = DimSizes::new(dims.iter().map(|(name, size)| ((*name).to_owned(), *size)))?;
    OnnxGraph::new(&Model::read(&model.to_bytes())?, &dims)
}

fn graph(model: &SmallModel) -> OnnxGraph {
    graph_at(model, &[]).unwrap()
}

fn layout(graph: &OnnxGraph, name: &str) -> String {
    let all: BTreeMap<&str, String> = graph.layouts().collect();
    all.get(name).unwrap_or_else(|| panic!("{name} is not in {all:?}")).clone()
}

/// Plans a graph and replays the plan.
fn plan(graph: &OnnxGraph) -> KeyedPlan<OnnxKey> {
    let plan = plan_tensor_graph(graph, &PlanOptions::default().with_unread(Unread::Free)).unwrap();
    KeyedGraph::new(graph).unwrap().replay(|key| plan.place(key)).unwrap();
    plan
}

/// Returns the peak in units of `x`, rounded down: what is smaller are counters and conditions.
fn peak(model: &SmallModel) -> u64 {
    plan(&graph(model)).peak().get() / X
}

fn names(graph: &OnnxGraph, keys: impl Iterator<Item = OnnxKey>) -> Vec<String> {
    keys.map(|key| graph.name(key)).collect()
}

/// Returns a model with the input `x` of 1024 numbers.
fn with_x() -> SmallModel {
    let mut model = SmallModel::new();
    model.input("x", FLOAT, &["1024"]);
    model
}

/// Returns a branch or body of some nodes, one after the other: each reads the one before it.
fn chain(from: &str, ops: &[&str], to: &str) -> SmallModel {
    let mut model = SmallModel::new();
    let mut last = from.to_owned();
    for (at, op) in ops.iter().enumerate() {
        let next = if at + 1 == ops.len() { to.to_owned() } else { format!("{to}_{at}") };
        model.node(op, &[&last], &[&next]);
        last = next;
    }
    model.output(to);
    model
}

fn inside(model: SmallModel) -> SmallAttribute {
    Graph(Box::new(model))
}

/// Returns a model of an `If` whose branches read `x`; the condition is an input.
fn choice(then_branch: SmallModel, else_branch: SmallModel) -> SmallModel {
    let mut model = with_x();
    model.input("c", DataType::BOOL, &[]);
    let branches = [("then_branch", inside(then_branch)), ("else_branch", inside(else_branch))];
    model.node_with(("", "If"), &["c"], &["y"], &branches);
    model.output("y");
    model
}

#[test]
fn a_branch_needs_what_is_alive_inside_it_while_the_step_runs() {
    // Its result is written to that of the step.
    assert_eq!(peak(&choice(chain("x", &["Transpose"], "a"), chain("x", &["Relu"], "b"))), 2);
    // Two more tensors on the way, of which both are alive at once.
    let longer = chain("x", &["Transpose", "Transpose", "Transpose"], "a");
    assert_eq!(peak(&choice(longer.clone(), chain("x", &["Relu"], "b"))), 4);
    assert_eq!(peak(&choice(chain("x", &["Relu"], "b"), longer)), 4);
    // In place, one is enough.
    assert_eq!(peak(&choice(chain("x", &["Transpose", "Relu", "Transpose"], "a"), chain("x", &["Relu"], "b"))), 3);
}

#[test]
fn a_branch_may_return_what_is_outside() {
    let mut empty = SmallModel::new();
    empty.output("x");
    let model = choice(empty, chain("x", &["Relu"], "b"));
    let graph = graph(&model);
    let node = graph.nodes().next().unwrap();
    assert_eq!(names(&graph, graph.sources(node)), ["c", "x"].map(String::from).into_iter().rev().collect::<Vec<_>>());
    assert_eq!(peak(&model), 2);
}

#[test]
fn what_a_graph_inside_reads_is_kept_for_it() {
    let mut model = choice(chain("early", &["Neg"], "a"), chain("x", &["Relu"], "b"));
    // The same, with a node in front whose result only a branch reads.
    let mut front = with_x();
    front.input("c", DataType::BOOL, &[]);
    front.node("Transpose", &["x"], &["early"]);
    front.node("Transpose", &["x"], &["between"]);
    front.node("Transpose", &["between"], &["late"]);
    let deep = choice_of("c", chain("early", &["Neg"], "deep_a"), chain("late", &["Neg"], "deep_b"), "deep");
    front.node_with(
        ("", "If"),
        &["c"],
        &["y"],
        &[("then_branch", inside(deep)), ("else_branch", inside(chain("x", &["Relu"], "b")))],
    );
    front.output("y");
    let graph = graph(&front);
    let node = graph.nodes().last().unwrap();
    let mut sources = names(&graph, graph.sources(node));
    sources.sort();
    assert_eq!(sources, ["c", "early", "late", "x"]);
    plan(&graph);
    // What is computed nowhere is an error, also inside.
    model.output("x");
    assert!(graph_at(&model, &[]).unwrap_err().to_string().contains("reads \"early\""));
}

/// Returns a graph of an `If` and nothing else.
fn choice_of(condition: &str, then_branch: SmallModel, else_branch: SmallModel, result: &str) -> SmallModel {
    let mut model = SmallModel::new();
    let branches = [("then_branch", inside(then_branch)), ("else_branch", inside(else_branch))];
    model.node_with(("", "If"), &[condition], &[result], &branches);
    model.output(result);
    model
}

#[test]
fn a_branch_whose_condition_is_known_is_computed_in_place() {
    let mut model = with_x();
    model.node("Shape", &["x"], &["shape"]);
    model.ints("n", &[1024]);
    model.node("Equal", &["shape", "n"], &["c"]);
    let branches =
        [("then_branch", inside(chain("x", &["Transpose"], "a"))), ("else_branch", inside(chain("x", &["Oops"], "b")))];
    model.node_with(("", "If"), &["c"], &["y"], &branches);
    model.output("y");
    let graph = graph(&model);
    assert_eq!(names(&graph, graph.nodes()), ["y"]);
    assert_eq!(graph.op_name(graph.nodes().next().unwrap()), "transpose");
}

#[test]
fn branches_of_several_shapes_are_asked_about() {
    let mut wide = SmallModel::new();
    wide.node_with(("", "Concat"), &["x", "x"], &["a"], &[("axis", Int(0))]);
    wide.output("a");
    let model = choice(wide, chain("x", &["Relu"], "b"));
    let expected = "ONNX: 1 dimension has no size: \"y.0\" (depends on the data of If (y))";
    assert_eq!(graph_at(&model, &[]).unwrap_err().to_string(), expected);
    let graph = graph_at(&model, &[("y.0", 2048)]).unwrap();
    assert_eq!(plan(&graph).peak().get() / X, 3);
}

#[test]
fn a_branch_that_contradicts_the_sizes_is_not_the_one_that_runs() {
    let mut wrong = SmallModel::new();
    wrong.node_with(("", "Squeeze"), &["x"], &["a"], &[]);
    wrong.ints("axis", &[0]);
    wrong.node("Squeeze", &["x", "axis"], &["b"]);
    wrong.output("b");
    let model = choice(wrong.clone(), chain("x", &["Relu"], "b"));
    assert_eq!(layout(&graph(&model), "y"), "f32[1024]");
    let model = choice(wrong.clone(), wrong);
    assert!(matches!(graph_at(&model, &[]), Err(OnnxError::Shape { .. })));
}

/// Returns a model of a `Loop` of 3 turns: `s` is handed on, `all` collects.
fn repeat(body: SmallModel, results: &[&str]) -> SmallModel {
    let mut model = with_x();
    model.ints("three", &[3]);
    model.node_with(("", "Loop"), &["three", "", "x"], results, &[("body", inside(body))]);
    results.iter().for_each(|result| model.output(result));
    model
}

/// Returns a body that goes on and on: `s` becomes `next`.
fn body(dims: &[&str]) -> SmallModel {
    let mut body = SmallModel::new();
    body.input("i", DataType::INT64, &[]);
    body.input("c", DataType::BOOL, &[]);
    body.input("s", FLOAT, dims);
    body
}

#[test]
fn a_loop_needs_what_a_turn_needs() {
    let mut simple = body(&["1024"]);
    simple.node("Transpose", &["s"], &["next"]);
    simple.node_with(("", "Constant"), &[], &["go"], &[("value", Tensor(vec![1]))]);
    ["go", "next"].iter().for_each(|name| simple.output(name));
    // The state before and after the turn, beside what the step reads and writes.
    assert_eq!(peak(&repeat(simple.clone(), &["last"])), 4);
    simple.node("Transpose", &["next"], &["more"]);
    simple.output("more");
    let model = repeat(simple, &["last", "all"]);
    let graph = graph(&model);
    assert_eq!((layout(&graph, "last"), layout(&graph, "all")), ("f32[1024]".into(), "f32[3,1024]".into()));
    // What a turn adds to the collection is written where its state was.
    assert_eq!(plan(&graph).peak().get() / X, 1 + 1 + 3 + 2);
    // Names inside are not those of the model.
    assert!(graph.layouts().all(|(name, _)| name != "more"));
}

#[test]
fn how_often_a_loop_turns_is_asked_if_the_data_decide() {
    let mut ends = body(&["1024"]);
    ends.node("IsNaN", &["s"], &["go"]);
    ends.node("Relu", &["s"], &["next"]);
    ends.node("Relu", &["s"], &["more"]);
    ["go", "next", "more"].iter().for_each(|name| ends.output(name));
    let model = repeat(ends, &["last", "all"]);
    let expected = "ONNX: 1 dimension has no size: \"all.0\" (depends on the data of Loop (last))";
    assert_eq!(graph_at(&model, &[]).unwrap_err().to_string(), expected);
    assert_eq!(layout(&graph_at(&model, &[("all.0", 7)]).unwrap(), "all"), "f32[7,1024]");
}

#[test]
fn a_condition_that_is_handed_on_is_true_in_every_turn() {
    let mut goes_on = body(&["1024"]);
    goes_on.node("Identity", &["c"], &["go"]);
    goes_on.node("Relu", &["s"], &["next"]);
    goes_on.node("Neg", &["s"], &["more"]);
    ["go", "next", "more"].iter().for_each(|name| goes_on.output(name));
    assert_eq!(layout(&graph(&repeat(goes_on, &["last", "all"])), "all"), "f32[3,1024]");
}

/// Two states that change places: neither output may have bytes of an input, as it is the other's.
#[test]
fn states_that_change_places_have_bytes_of_their_own() {
    let mut swaps = body(&["1024"]);
    swaps.input("t", FLOAT, &["1024"]);
    swaps.node("Identity", &["t"], &["next"]);
    swaps.node("Add", &["s", "t"], &["other"]);
    ["c", "next", "other"].iter().for_each(|name| swaps.output(name));
    let mut model = with_x();
    model.input("z", FLOAT, &["1024"]);
    model.ints("three", &[3]);
    let results = ["last", "latest"];
    model.node_with(("", "Loop"), &["three", "", "x", "z"], &results, &[("body", inside(swaps))]);
    results.iter().for_each(|result| model.output(result));
    // What the step reads and writes, and two states before and after a turn.
    assert_eq!(peak(&model), 4 + 4);
}

#[test]
fn a_list_has_no_lists() {
    let mut model = with_x();
    model.node("SequenceConstruct", &["x"], &["list"]);
    model.node("SequenceConstruct", &["list", "list"], &["lists"]);
    model.output("lists");
    assert!(graph_at(&model, &[]).unwrap_err().to_string().contains("expected tensors, got a list"));
}

#[test]
fn a_dimension_that_grows_from_turn_to_turn_is_asked_for() {
    let mut grows = body(&["n"]);
    grows.node_with(("", "Concat"), &["s", "x"], &["next"], &[("axis", Int(0))]);
    grows.node_with(("", "Constant"), &[], &["go"], &[("value", Tensor(vec![1]))]);
    ["go", "next"].iter().for_each(|name| grows.output(name));
    let model = repeat(grows, &["last"]);
    let expected = "ONNX: 1 dimension has no size: \"last.0\" (depends on the data of Loop (last))";
    assert_eq!(graph_at(&model, &[]).unwrap_err().to_string(), expected);
    let graph = graph_at(&model, &[("last.0", 4096)]).unwrap();
    assert_eq!(layout(&graph, "last"), "f32[4096]");
    plan(&graph);
    // Also a rank that grows, of which nobody can give the size.
    let mut deeper = body(&[]);
    deeper.ints("axis", &[0]);
    deeper.node("Unsqueeze", &["s", "axis"], &["next"]);
    ["c", "next"].iter().for_each(|name| deeper.output(name));
    assert!(matches!(graph_at(&repeat(deeper, &["last"]), &[]), Err(OnnxError::UnknownSizes { .. })));
}

#[test]
fn a_scan_takes_its_inputs_apart_and_puts_its_outputs_together() {
    let model = |version: u64, dims: &[&str], inputs: &[&str]| {
        let mut body = SmallModel::new();
        body.input("s", FLOAT, &["64"]);
        body.input("row", FLOAT, &["64"]);
        body.node("Add", &["s", "row"], &["next"]);
        body.node("Neg", &["next"], &["out"]);
        ["next", "out"].iter().for_each(|name| body.output(name));
        let mut model = SmallModel::new();
        model.opset(version);
        model.input("rows", FLOAT, dims);
        model.input("start", FLOAT, if version < 9 { &["2", "64"] } else { &["64"] });
        let attributes = [("num_scan_inputs", Int(1)), ("body", inside(body))];
        model.node_with(("", "Scan"), inputs, &["last", "all"], &attributes);
        ["last", "all"].iter().for_each(|name| model.output(name));
        model
    };
    let new = graph(&model(11, &["5", "64"], &["start", "rows"]));
    assert_eq!((layout(&new, "last"), layout(&new, "all")), ("f32[64]".into(), "f32[5,64]".into()));
    plan(&new);
    // The first version had a batch in front of everything, and the lengths of sequences as an input.
    let old = graph(&model(8, &["2", "5", "64"], &["", "start", "rows"]));
    assert_eq!((layout(&old, "last"), layout(&old, "all")), ("f32[2,64]".into(), "f32[2,5,64]".into()));
    let none = model(11, &["5", "64"], &[]);
    assert!(graph_at(&none, &[]).unwrap_err().to_string().contains("num_scan_inputs: expected at most 0 inputs"));
}

#[test]
fn functions_are_computed_in_the_place_of_each_call() {
    let mut body = SmallModel::new();
    body.node_with(("", "Concat"), &["a", "a"], &["wide"], &[("axis", Reference("along".into()))]);
    body.node("Transpose", &["wide"], &["b"]);
    let mut model = SmallModel::new();
    model.input("x", FLOAT, &["2", "3"]);
    model.function("Widen", &["a"], &["b"], &body);
    model.node_with(("own", "Widen"), &["x"], &["y"], &[("along", Int(0))]);
    model.node_with(("own", "Widen"), &["y"], &["z"], &[("along", Int(1))]);
    model.output("z");
    let graph = graph(&model);
    assert_eq!((layout(&graph, "y"), layout(&graph, "z")), ("f32[3,4]".into(), "f32[8,3]".into()));
    assert_eq!(names(&graph, graph.nodes()), ["Widen/wide", "y", "Widen/wide", "z"]);
    plan(&graph);
}

#[test]
fn another_shape_of_the_same_bytes_is_a_view() {
    let mut model = SmallModel::new();
    model.input("x", FLOAT, &["1", "1024"]);
    model.ints("flat", &[-1]);
    model.ints("axis", &[0]);
    model.node("Reshape", &["x", "flat"], &["a"]);
    model.node("Unsqueeze", &["a", "axis"], &["b"]);
    model.node("Squeeze", &["b", "axis"], &["c"]);
    model.node("Identity", &["c"], &["d"]);
    model.node_with(("", "Flatten"), &["d"], &["e"], &[("axis", Int(0))]);
    model.output("e");
    let graph = graph(&model);
    assert_eq!((graph.nodes().count(), plan(&graph).peak().get()), (0, X));
    // In place through views: the last reader may write over the source.
    let mut model = with_x();
    model.ints("square", &[32, 32]);
    model.node("Transpose", &["x"], &["own"]);
    model.node("Reshape", &["own", "square"], &["view"]);
    model.node("Relu", &["view"], &["y"]);
    model.output("y");
    assert_eq!(peak(&model), 2);
    // Not while the source is still read.
    model.node("Add", &["own", "x"], &["z"]);
    model.output("z");
    assert!(peak(&model) >= 3);
}

#[test]
fn lists_take_what_is_in_them() {
    let mut model = with_x();
    model.ints("zero", &[0]);
    model.node("SequenceConstruct", &["x", "x"], &["two"]);
    model.node("SequenceInsert", &["two", "x"], &["three"]);
    model.node_with(("", "SequenceErase"), &["three", "zero"], &["again"], &[]);
    model.node_with(("", "ConcatFromSequence"), &["again"], &["y"], &[("axis", Int(0))]);
    model.node("SequenceAt", &["three", "zero"], &["item"]);
    model.output("y");
    let graph = graph(&model);
    assert_eq!(layout(&graph, "three"), "list of 3 tensors");
    assert_eq!((layout(&graph, "y"), layout(&graph, "item")), ("f32[2048]".into(), "f32[1024]".into()));
    plan(&graph);
    let mut model = SmallModel::new();
    model.list_input("many", FLOAT, &["4"]);
    model.node_with(("", "ConcatFromSequence"), &["many"], &["y"], &[("axis", Int(0))]);
    let expected = "\"many\": list of tensors, how many is not known";
    assert!(graph_at(&model, &[]).unwrap_err().to_string().contains(expected));
    let mut model = with_x();
    model.node_with(("", "SplitToSequence"), &["x"], &["parts"], &[("axis", Int(0)), ("keepdims", Int(1))]);
    model.node_with(("", "Constant"), &[], &["none"], &[("value_ints", Ints(vec![]))]);
    assert_eq!(layout(&graph_at(&model, &[]).unwrap(), "parts"), "list of 1024 tensors");
}
