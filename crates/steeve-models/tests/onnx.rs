//! ONNX files: what is refused and why, what is known of each value, and what a plan may do.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::collections::BTreeMap;

use steeve_graph::{KeyedGraph, KeyedPlan, PlanOptions, TensorGraph, Unread, plan_tensor_graph};
use steeve_models::onnx::SmallAttribute::{Graph, Int, Ints, Text, Texts};
use steeve_models::onnx::{DataType, DimSizes, Model, OnnxError, OnnxGraph, OnnxKey, SmallAttribute, SmallModel};

const FLOAT: DataType = DataType::FLOAT;

type Attributes<'a> = &'a [(&'a str, SmallAttribute)];

fn graph_at(model: &SmallModel, dims: &[(&str, u64)]) -> Result<OnnxGraph, OnnxError> {
    let dims = DimSizes::new(dims.iter().map(|(name, size)| ((*name).to_owned(), *size)))?;
    OnnxGraph::new(&Model::read(&model.to_bytes())?, &dims)
}

fn graph(model: &SmallModel) -> OnnxGraph {
    graph_at(model, &[]).unwrap()
}

/// Returns what is said of a model that can't be planned.
fn refusal(model: &SmallModel) -> String {
    graph_at(model, &[]).unwrap_err().to_string()
}

/// Returns type and shape of a value.
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

/// Returns a model with the input `x` of 16 * 64 numbers, which takes 4096 bytes.
fn with_x() -> SmallModel {
    let mut model = SmallModel::new();
    model.input("x", FLOAT, &["16", "64"]);
    model
}

/// Returns the layout of the result `y` of one operation on `x`, with attributes.
fn of_one(op: &str, version: u64, inputs: &[&str], attributes: &[(&str, SmallAttribute)]) -> Result<String, OnnxError> {
    let mut model = SmallModel::new();
    model.opset(version);
    model.input("x", FLOAT, &["2", "1", "6", "1"]);
    for (name, ints) in [
        ("zero", &[0i64][..]),
        ("one", &[1]),
        ("two", &[2]),
        ("big", &[5]),
        ("odd", &[1, 3]),
        ("none", &[]),
        ("before", &[-100]),
        ("far", &[-200]),
        ("back", &[-1]),
    ] {
        model.ints(name, ints);
    }
    model.ints("pads", &[0, 0, 1, 0, 0, 0, 2, 0]);
    model.floats("scales", &[1.0, 1.0, 2.5, 1.0]);
    model.input("tens", FLOAT, &["1", "1", "10", "20"]);
    model.floats("parts", &[1.0, 1.0, 0.7, 0.35]);
    model.node_with(("", op), inputs, &["y"], attributes);
    model.output("y");
    graph_at(&model, &[]).map(|graph| layout(&graph, "y"))
}

#[test]
fn no_cut_of_a_file_is_more_than_refused() {
    let mut model = with_x();
    model.ints("shape", &[-1, 32]);
    model.node("Reshape", &["x", "shape"], &["y"]);
    model.node_with(("", "Softmax"), &["y"], &["z"], &[("axis", Int(1)), ("text", Text("t".into()))]);
    model.output("z");
    let bytes = model.to_bytes();
    for length in 0..bytes.len() {
        if let Ok(model) = Model::read(&bytes[..length]) {
            let _ = OnnxGraph::new(&model, &DimSizes::default());
        }
    }
    assert!(matches!(Model::read(&[]), Err(OnnxError::Missing { .. })));
    assert!(matches!(Model::read(b"not a model"), Err(OnnxError::Damaged { .. } | OnnxError::Missing { .. })));
}

#[test]
fn what_is_damaged_is_named_with_its_place() {
    // A graph of 100 bytes in a file of 4.
    let error = Model::read(&[0x08, 0x08, 0x3a, 100]).unwrap_err().to_string();
    assert_eq!(error, "ONNX: ModelProto: a field that ends outside its message at byte 2, the file has 4 bytes");
    let error = Model::read(&[0x08, 0xff, 0xff]).unwrap_err().to_string();
    assert_eq!(error, "ONNX: ModelProto: a number ends too early at byte 1, the file has 3 bytes");
    assert!(Model::read(&[0x08, 8, 0x3b]).unwrap_err().to_string().contains("a field of an unknown kind at byte 2"));
}

#[test]
fn graphs_inside_each_other_have_a_limit() {
    let mut model = SmallModel::new();
    model.node("Constant", &[], &["y"]);
    model.output("y");
    for _ in 0..200 {
        let mut outer = SmallModel::new();
        outer.input("c", DataType::BOOL, &[]);
        let branch = || Graph(Box::new(model.clone()));
        outer.node_with(("", "If"), &["c"], &["y"], &[("then_branch", branch())]);
        outer.output("y");
        model = outer;
    }
    assert!(matches!(Model::read(&model.to_bytes()), Err(OnnxError::Nested { .. })));
}

#[test]
fn functions_are_neither_recursive_nor_endless() {
    let call = |name: &str, times: usize| {
        let mut body = SmallModel::new();
        let mut from = "a".to_owned();
        for at in 0..times {
            let to = if at + 1 == times { "b".to_owned() } else { format!("t{at}") };
            body.node_with(("own", name), &[&from], &[&to], &[]);
            from = to;
        }
        body
    };
    let model = |functions: &[(String, SmallModel)]| {
        let mut model = with_x();
        functions.iter().for_each(|(name, body)| model.function(name, &["a"], &["b"], body));
        model.node_with(("own", "f0"), &["x"], &["y"], &[]);
        model.output("y");
        model
    };
    let itself = model(&[("f0".into(), call("f1", 1)), ("f1".into(), call("f0", 1))]);
    assert_eq!(refusal(&itself), "ONNX: function f0 calls itself: f0 -> f1 -> f0");
    let chain = |length: usize, times: usize| {
        let mut last = SmallModel::new();
        last.node("Relu", &["a"], &["b"]);
        let calls = (0..length).map(|at| (format!("f{at}"), call(&format!("f{}", at + 1), times)));
        model(&calls.chain([(format!("f{length}"), last)]).collect::<Vec<_>>())
    };
    assert_eq!(layout(&graph(&chain(90, 1)), "y"), "f32[16,64]");
    assert!(matches!(graph_at(&chain(10_000, 1), &[]), Err(OnnxError::Calls { most: 100, .. })));
    // 2 to the power of 60 nodes.
    assert!(matches!(graph_at(&chain(60, 2), &[]), Err(OnnxError::TooLong { .. })));
}

#[test]
fn what_names_and_shapes_would_add_up_to_is_limited() {
    // A shape of many dimensions, that each of many nodes would hand on.
    let mut model = SmallModel::new();
    model.input("x", FLOAT, &["1"]);
    model.ints("shape", &[1; 1 << 15]);
    model.node("Reshape", &["x", "shape"], &["t0"]);
    (0..2000).for_each(|at| model.node("Relu", &[&format!("t{at}")], &[&format!("t{}", at + 1)]));
    assert!(matches!(graph_at(&model, &[]), Err(OnnxError::Rank { most: 64, rank: 32_768, .. })));
    // A list that becomes longer and longer.
    let mut model = with_x();
    model.node("SequenceConstruct", &["x"], &["t0"]);
    (0..4000).for_each(|at| model.node("SequenceInsert", &[&format!("t{at}"), "x"], &[&format!("t{}", at + 1)]));
    assert!(matches!(graph_at(&model, &[]), Err(OnnxError::TooLong { .. })));
    // Names inside functions are long, since they have those of the calls in front.
    let mut model = with_x();
    let mut body = SmallModel::new();
    (0..500).for_each(|at| body.node("Relu", &["a"], &[&format!("b{at}")]));
    let name = "f".repeat(1 << 16);
    model.function(&name, &["a"], &["b0"], &body);
    model.node_with(("own", &name), &["x"], &["y"], &[]);
    assert!(matches!(graph_at(&model, &[]), Err(OnnxError::TooLong { .. })));
}

#[test]
fn sizes_that_cannot_be_counted_are_refused() {
    let mut model = SmallModel::new();
    model.input("x", FLOAT, &["4611686018427387904", "4611686018427387904"]);
    model.node("Relu", &["x"], &["y"]);
    model.output("y");
    let error = refusal(&model);
    assert_eq!(error, "ONNX: y: its bytes can't be counted: f32[4611686018427387904,4611686018427387904]");
    // Each can be counted, both together can't.
    let mut model = SmallModel::new();
    model.input("x", DataType::UINT8, &["n"]);
    model.node("Transpose", &["x"], &["y"]);
    model.output("y");
    let most = i64::MAX.unsigned_abs();
    assert!(matches!(graph_at(&model, &[("n", most + 1)]), Err(OnnxError::DimRange { .. })));
    model.node_with(("", "Concat"), &["x", "y"], &["z"], &[("axis", Int(0))]);
    let graph = graph_at(&model, &[("n", most)]).unwrap();
    assert!(plan_tensor_graph(&graph, &PlanOptions::default().with_unread(Unread::Free)).is_err());
    // Nothing takes nothing.
    let graph = graph_at(&model, &[("n", 0)]).unwrap();
    assert_eq!(plan(&graph).peak().get(), 0);
}

#[test]
fn a_node_reads_what_is_before_it() {
    let mut later = with_x();
    later.node("Relu", &["b"], &["a"]);
    later.node("Relu", &["x"], &["b"]);
    let expected =
        "ONNX: Relu (a): reads \"b\", which no node before it computes and no input or initializer is called";
    assert_eq!(refusal(&later), expected);
    let mut itself = with_x();
    itself.node("Add", &["x", "y"], &["y"]);
    assert!(refusal(&itself).contains("reads \"y\""));
    let mut output = with_x();
    output.output("nothing");
    assert!(refusal(&output).contains("\"nothing\""));
    // What a branch computes is known in it alone.
    let mut branch = SmallModel::new();
    branch.node("Relu", &["x"], &["inside"]);
    branch.output("inside");
    let mut outside = with_x();
    outside.input("c", DataType::BOOL, &[]);
    let branch = || Graph(Box::new(branch.clone()));
    outside.node_with(("", "If"), &["c"], &["y"], &[("then_branch", branch()), ("else_branch", branch())]);
    outside.node("Relu", &["inside"], &["z"]);
    assert!(refusal(&outside).contains("reads \"inside\""));
}

#[test]
fn a_name_is_one_value() {
    let mut twice = with_x();
    twice.node("Relu", &["x"], &["y"]);
    twice.node("Neg", &["x"], &["y"]);
    assert_eq!(refusal(&twice), "ONNX: Neg (y): computes \"y\", which is there already");
    let mut input = with_x();
    input.node("Relu", &["x"], &["x"]);
    assert!(refusal(&input).contains("computes \"x\", which is there already"));
    let mut inputs = with_x();
    inputs.input("x", FLOAT, &["2"]);
    assert!(refusal(&inputs).contains("\"x\", which is there already"));
    let mut results = with_x();
    results.node("Split", &["x"], &["y", "y"]);
    assert!(refusal(&results).contains("computes \"y\", which is there already"));
}

#[test]
fn missing_inputs_are_named() {
    assert_eq!(
        of_one("Relu", 21, &[], &[]).unwrap_err().to_string(),
        "ONNX: Relu (y): input 0 is missing: expected at least 1"
    );
    assert!(
        of_one("Concat", 21, &["x", ""], &[("axis", Int(0))]).unwrap_err().to_string().contains("input 1 is missing")
    );
    assert!(of_one("Reshape", 21, &["x"], &[]).unwrap_err().to_string().contains("the shape is missing"));
    assert!(of_one("If", 21, &["x"], &[]).unwrap_err().to_string().contains("then_branch is missing"));
}

#[test]
fn free_dimensions_are_listed_once_and_follow_from_each_other() {
    let mut model = SmallModel::new();
    model.input("ids", DataType::INT64, &["batch", "sequence"]);
    model.input("mask", DataType::INT64, &["batch", "past + sequence"]);
    model.input("rest", FLOAT, &["", "7"]);
    model.node("Relu", &["rest"], &["y"]);
    let expected = "ONNX: 4 dimensions have no size: \"batch\" (input \"ids\"), \"sequence\" (input \"ids\"), \
                    \"past\" (input \"mask\"), \"rest.0\" (input \"rest\")";
    assert_eq!(refusal(&model), expected);
    let OnnxError::FreeDims { free } = graph_at(&model, &[("batch", 1)]).unwrap_err() else { panic!() };
    let examples: Vec<(&str, u64)> = free.iter().map(|dim| (dim.name.as_str(), dim.example())).collect();
    assert_eq!(examples, [("sequence", 128), ("past", 1), ("rest.0", 1)]);
    let all = [("batch", 2), ("sequence", 3), ("past", 4), ("rest.0", 5)];
    let graph = graph_at(&model, &all).unwrap();
    assert_eq!((layout(&graph, "mask"), layout(&graph, "y")), ("i64[2,7]".to_owned(), "f32[5,7]".to_owned()));
    let wrong = DimSizes::new([("bach".to_owned(), 1)]).unwrap();
    let error = graph.check_dims(&wrong).unwrap_err().to_string();
    assert_eq!(
        error,
        "ONNX: dimension \"bach\": no such dimension: expected one of \"batch\", \"past\", \"rest.0\", \"sequence\""
    );
}

#[test]
fn what_depends_on_data_is_asked_for() {
    let mut model = with_x();
    model.node("NonZero", &["x"], &["found"]);
    model.node("Transpose", &["found"], &["turned"]);
    model.output("turned");
    let expected = "ONNX: 1 dimension has no size: \"found.1\" (depends on the data of NonZero (found))";
    assert_eq!(refusal(&model), expected);
    let graph = graph_at(&model, &[("found.1", 1000)]).unwrap();
    assert_eq!(layout(&graph, "turned"), "i64[1000,2]");
}

#[test]
fn computed_shapes_are_constants_and_no_steps() {
    let mut model = SmallModel::new();
    model.input("x", FLOAT, &["batch", "64"]);
    model.ints("zero", &[0]);
    model.ints("rest", &[-1]);
    model.node("Shape", &["x"], &["shape"]);
    model.node("Gather", &["shape", "zero"], &["batch"]);
    model.node("Mul", &["batch", "batch"], &["square"]);
    model.node("ConstantOfShape", &["square"], &["zeros"]);
    model.node_with(("", "Concat"), &["batch", "rest"], &["to"], &[("axis", Int(0))]);
    model.node("Reshape", &["x", "to"], &["view"]);
    model.node("Transpose", &["view"], &["turned"]);
    model.output("turned");
    let graph = graph_at(&model, &[("batch", 5)]).unwrap();
    assert_eq!(layout(&graph, "zeros"), "f32[25]");
    let nodes: Vec<String> = graph.nodes().map(|node| graph.name(node)).collect();
    assert_eq!(nodes, ["turned"]);
    assert_eq!(plan(&graph).peak().get(), 2 * 4 * 5 * 64);
}

#[test]
fn what_a_file_declares_is_believed_only_where_nothing_else_is_known() {
    let mut stale = with_x();
    stale.node("Transpose", &["x"], &["y"]);
    stale.value_info("y", DataType::INT64, &["1", "2", "3"]);
    stale.output("y");
    assert_eq!(layout(&graph(&stale), "y"), "f32[64,16]");
    let mut foreign = with_x();
    foreign.node_with(("their.own", "Magic"), &["x"], &["y"], &[]);
    foreign.node("Transpose", &["y"], &["z"]);
    foreign.output("z");
    assert_eq!(refusal(&foreign), "ONNX: unknown sizes: \"y\": ?[...], computed by their.own.Magic (y)");
    foreign.value_info("y", FLOAT, &["batch", "2"]);
    assert_eq!(layout(&graph_at(&foreign, &[("batch", 9)]).unwrap(), "z"), "f32[2,9]");
}

#[test]
fn initializers_may_be_inputs_as_well() {
    let mut model = with_x();
    model.input("w", FLOAT, &["64", "8"]);
    model.constant("w", FLOAT, &[64, 8]);
    model.node("MatMul", &["x", "w"], &["y"]);
    model.output("y");
    let graph = graph(&model);
    assert_eq!(graph.inputs().map(|key| graph.name(key)).collect::<Vec<_>>(), ["x"]);
    assert_eq!((graph.weights().stored, plan(&graph).peak().get()), (4 * 64 * 8, 4 * 16 * (64 + 8)));
}

#[test]
fn data_in_other_files_are_sized_and_not_read() {
    let mut model = with_x();
    // 4 * 2^60 bytes: no file has them.
    model.constant("w", FLOAT, &[64, 1 << 54]);
    model.constant("v", DataType::INT4, &[3]);
    model.node("MatMul", &["x", "w"], &["y"]);
    model.output("x");
    let graph = graph(&model);
    assert_eq!((graph.weights().stored, graph.weights().beside), ((1 << 62) + 2, (1 << 62) + 2));
}

#[test]
fn constants_computed_from_constants_are_counted_on_their_own() {
    let mut model = with_x();
    model.constant("w", FLOAT, &[8, 64]);
    model.node("Transpose", &["w"], &["turned"]);
    model.node("MatMul", &["x", "turned"], &["y"]);
    model.output("y");
    let graph = graph(&model);
    assert_eq!((graph.weights().stored, graph.weights().computed), (4 * 64 * 8, 4 * 64 * 8));
    assert_eq!(graph.nodes().count(), 1);
}

#[test]
fn each_version_of_an_operation_has_its_own_form() {
    let table: &[(&str, u64, &[&str], Attributes<'_>, &str)] = &[
        ("Squeeze", 11, &["x"], &[("axes", Ints(vec![1]))], "f32[2,6,1]"),
        ("Squeeze", 13, &["x", "one"], &[], "f32[2,6,1]"),
        ("Squeeze", 13, &["x"], &[], "f32[2,6]"),
        ("Squeeze", 13, &["x", "none"], &[], "f32[2,6]"),
        // A start before the first element is the first one, also backwards.
        ("Slice", 10, &["x", "before", "far", "two", "back"], &[], "f32[2,1,1,1]"),
        // Factors have 32 bits, and so has what they make.
        ("Resize", 13, &["tens", "", "parts"], &[], "f32[1,1,7,7]"),
        ("Unsqueeze", 11, &["x"], &[("axes", Ints(vec![0, -1]))], "f32[1,2,1,6,1,1]"),
        ("Unsqueeze", 13, &["x", "odd"], &[], "f32[2,1,1,1,6,1]"),
        (
            "Slice",
            9,
            &["x"],
            &[("starts", Ints(vec![1])), ("ends", Ints(vec![i64::MAX])), ("axes", Ints(vec![2]))],
            "f32[2,1,5,1]",
        ),
        ("Slice", 10, &["x", "one", "big", "two"], &[], "f32[2,1,4,1]"),
        ("Slice", 10, &["x", "zero", "big", "two", "two"], &[], "f32[2,1,3,1]"),
        ("Split", 11, &["x"], &[("axis", Int(2)), ("split", Ints(vec![6]))], "f32[2,1,6,1]"),
        ("ReduceSum", 11, &["x"], &[("axes", Ints(vec![2])), ("keepdims", Int(0))], "f32[2,1,1]"),
        ("ReduceSum", 13, &["x", "two"], &[("keepdims", Int(0))], "f32[2,1,1]"),
        ("ReduceSum", 13, &["x"], &[("noop_with_empty_axes", Int(1))], "f32[2,1,6,1]"),
        ("Pad", 2, &["x"], &[("pads", Ints(vec![0, 0, 1, 0, 0, 0, 2, 0]))], "f32[2,1,9,1]"),
        ("Pad", 11, &["x", "pads"], &[], "f32[2,1,9,1]"),
        ("Upsample", 9, &["x", "scales"], &[], "f32[2,1,15,1]"),
        ("Resize", 10, &["x", "scales"], &[], "f32[2,1,15,1]"),
        ("Resize", 13, &["x", "", "scales"], &[], "f32[2,1,15,1]"),
        ("Reshape", 1, &["x"], &[("shape", Ints(vec![0, -1]))], "f32[2,6]"),
        ("Concat", 1, &["x", "x"], &[], "f32[2,2,6,1]"),
        ("Add", 6, &["x", "x"], &[("axis", Int(1)), ("broadcast", Int(1))], "f32[2,1,6,1]"),
        ("TopK", 1, &["x"], &[("k", Int(3)), ("axis", Int(2))], "f32[2,1,3,1]"),
        ("TopK", 11, &["x", "two"], &[("axis", Int(2))], "f32[2,1,2,1]"),
        ("AveragePool", 7, &["x"], &[("kernel_shape", Ints(vec![3, 1]))], "f32[2,1,4,1]"),
        (
            "MaxPool",
            10,
            &["x"],
            &[("kernel_shape", Ints(vec![4, 1])), ("strides", Ints(vec![3, 1])), ("ceil_mode", Int(1))],
            "f32[2,1,2,1]",
        ),
        ("GlobalAveragePool", 1, &["x"], &[], "f32[2,1,1,1]"),
        ("LRN", 13, &["x"], &[("size", Int(5))], "f32[2,1,6,1]"),
        ("Cast", 13, &["x"], &[("to", Int(i64::from(DataType::FLOAT16.0)))], "f16[2,1,6,1]"),
        ("ArgMax", 13, &["x"], &[("axis", Int(2)), ("keepdims", Int(0))], "i64[2,1,1]"),
        ("StringNormalizer", 10, &["x"], &[], "f32[2,1,6,1]"),
    ];
    for (op, version, inputs, attributes, expected) in table {
        assert_eq!(of_one(op, *version, inputs, attributes).unwrap(), *expected, "{op} {version}");
    }
    let words = of_one("StringNormalizer", 10, &["x"], &[("stopwords", Texts(vec!["the".into()]))]);
    assert!(matches!(words, Err(OnnxError::FreeDims { .. })));
    // The mask of what is dropped became truth values with version 10.
    for (version, expected) in [(7, "f32[16,64]"), (10, "bool[16,64]")] {
        let mut model = with_x();
        model.opset(version);
        model.node("Dropout", &["x"], &["y", "mask"]);
        assert_eq!(layout(&graph(&model), "mask"), expected);
    }
}

#[test]
fn what_contradicts_itself_is_refused_with_both_numbers() {
    let table: &[(&str, &[&str], Attributes<'_>, &str)] = &[
        ("Squeeze", &["x", "two"], &[], "axis 2: expected a dimension of 1, got 6"),
        ("Squeeze", &["x", "big"], &[], "axis 5: expected one from -4 to 3"),
        ("Unsqueeze", &["x"], &[("axes", Ints(vec![1, 1]))], "axes [1, 1]: expected each once"),
        ("Reshape", &["x", "big"], &[], "12 elements can't be reshaped to [5], which has 5"),
        ("Transpose", &["x"], &[("perm", Ints(vec![0, 0, 1, 2]))], "perm [0, 0, 1, 2]: expected each of 4 axes once"),
        ("MatMul", &["x", "x"], &[], "expected inner dimensions that are equal, got 1 and 6"),
        ("Slice", &["x", "zero", "big", "two", "zero"], &[], "steps: expected none of 0"),
        ("Pad", &["x", "zero"], &[], "pads: expected 8 numbers, got 1"),
        (
            "MaxPool",
            &["x"],
            &[("kernel_shape", Ints(vec![7, 1]))],
            "window of 7: expected an input of at least that, got 6",
        ),
    ];
    for (op, inputs, attributes, expected) in table {
        let error = of_one(op, 21, inputs, attributes).unwrap_err();
        assert!(matches!(error, OnnxError::Shape { .. }), "{op}: {error}");
        assert!(error.to_string().contains(expected), "{op}: {error}");
    }
}

#[test]
fn results_are_written_over_sources_where_kernels_allow_it() {
    let of = |op: (&str, &str), inputs: &[&str], attributes: &[(&str, SmallAttribute)]| {
        let mut model = with_x();
        model.input("other", FLOAT, &["16", "64"]);
        model.input("third", FLOAT, &["16", "64"]);
        model.input("row", FLOAT, &["64"]);
        model.constant("constant", FLOAT, &[64]);
        model.node_with(op, inputs, &["y"], attributes);
        model.output("y");
        let graph = graph(&model);
        let node = graph.nodes().next().unwrap();
        let sources = graph.sources(node).filter(|source| graph.may_overwrite(node, *source));
        let names: Vec<String> = sources.map(|source| graph.name(source)).collect();
        names.join(" ")
    };
    let own = |op: &str, inputs: &[&str]| of(("", op), inputs, &[]);
    for op in ["Relu", "Sigmoid", "Erf", "Clip", "Softmax", "Neg", "LeakyRelu", "HardSwish", "LayerNormalization"] {
        assert_eq!(own(op, &["x"]), "x", "{op}");
    }
    for op in ["Transpose", "LRN", "CumSum", "Hardmax", "ReverseSequence"] {
        assert_eq!(own(op, &["x", "other"]), "", "{op}");
    }
    for op in ["Add", "Mul", "Sub", "Div", "Pow"] {
        assert_eq!(own(op, &["x", "other"]), "x other", "{op}");
        // What is stretched is smaller than the result.
        assert_eq!(own(op, &["row", "x"]), "x", "{op}");
    }
    // Both are one tensor.
    assert_eq!(own("Add", &["x", "x"]), "x x");
    // More than two are added one after the other.
    assert_eq!(own("Sum", &["x", "other", "third"]), "x other");
    assert_eq!(own("Sum", &["x", "other", "x"]), "other");
    assert_eq!(own("PRelu", &["x", "other"]), "x");
    // Elements of another size.
    let cast = |to: DataType| of(("", "Cast"), &["x"], &[("to", Int(i64::from(to.0)))]);
    assert_eq!((cast(DataType::INT32), cast(DataType::FLOAT16)), ("x".to_owned(), String::new()));
    assert_eq!(own("Greater", &["x", "other"]), "");
    assert_eq!(own("Scatter", &["x", "other", "x"]), "");
    assert_eq!(of(("com.microsoft", "QLinearAdd"), &["x", "row", "third", "other", "row", "third"], &[]), "x other");
}

#[test]
fn a_string_takes_its_place_and_its_length() {
    let mut model = SmallModel::new();
    model.input("words", DataType::STRING, &["8"]);
    model.node("Identity", &["words"], &["same"]);
    model.output("same");
    assert_eq!(plan(&graph(&model)).peak().get(), 8 * 16);
}
