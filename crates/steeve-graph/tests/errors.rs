//! What every error of the crate looks like: messages on one line, without a period, and causes in `source` alone.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::error::Error;

use steeve_graph::recorded::{RecordLocation, RecordedTensorFault};
use steeve_graph::{
    Align, AssignedGraph, BufferId, Bytes, CallError, Context, DataType, ErrorChain, Graph, GraphError, GraphPlan,
    GraphPlanError, Id, LastWriter, Layout, LayoutError, MatchMemories, MemoryId, Named, Names, Offset, OperandLayouts,
    PlaceFault, PlanFault, PlanFile, PlanMismatch, PlanOptions, RecordError, RecordedGraph, ReplayFault, ShapeError,
    TensorChange, TensorGraphError, TensorId, TextFault, TogetherError, plan_graph, plan_together, replay,
};

/// Walks the causes of an error and checks each message.
fn check(error: &dyn Error) {
    let (mut message, mut source) = (error.to_string(), error.source());
    loop {
        assert!(!message.is_empty() && !message.contains('\n'), "one line: {message:?}");
        assert!(!message.ends_with('.'), "no period: {message}");
        let Some(cause) = source else { return };
        let inner = cause.to_string();
        assert!(!message.contains(&inner), "repeats its cause {inner:?}: {message}");
        (message, source) = (inner, cause.source());
    }
}

/// Checks errors, and that there are some.
fn check_all<E: Error>(errors: impl IntoIterator<Item = E>) {
    let count = errors.into_iter().inspect(|error| check(error)).count();
    assert!(count > 0);
}

fn tensor() -> Named {
    let (id, mut names) = (TensorId::from_index(7).unwrap(), Names::default());
    names.set(id, "kq");
    Named::new(id, &names)
}

fn id() -> TensorId {
    TensorId::from_index(7).unwrap()
}

fn layouts() -> [LayoutError; 3] {
    [
        LayoutError::TooManyDimensions { dimensions: 5 },
        LayoutError::PartialBlock { dtype: DataType::Q4K, row: 4 },
        LayoutError::TooLarge { dtype: DataType::F32, ne: [u64::MAX; 4] },
    ]
}

fn shapes() -> Vec<ShapeError> {
    let refusals = [
        ShapeError::Missing { slot: 1 },
        ShapeError::Param { index: 2 },
        ShapeError::Undetermined,
        ShapeError::Unfit("both shapes must be equal"),
    ];
    refusals.into_iter().chain(layouts().map(ShapeError::from)).collect()
}

fn graphs() -> Vec<GraphError> {
    let operands = || OperandLayouts(vec![Some(("x".into(), Layout::contiguous(DataType::F32, &[4]).unwrap())), None]);
    let (op, bytes, memory) = (String::from("add"), Bytes(64), MemoryId::FIRST);
    let order: GraphError = "y = sqr f32[4] y"
        .parse::<Graph>()
        .map_err(|error| match error.fault {
            TextFault::Graph(error) => error,
            fault => panic!("{fault}"),
        })
        .unwrap_err();
    let mut errors = vec![
        order,
        GraphError::TooMany { tensors: 9 },
        GraphError::Unknown { tensor: id(), tensors: 3 },
        GraphError::Foreign { tensor: id() },
        GraphError::NoRule { op: op.clone() },
        GraphError::CustomShape { op: op.clone(), operands: operands(), reason: "too short".into() },
        GraphError::CustomName { name: op.clone() },
        GraphError::ViewOutside { tensor: tensor(), offset: bytes, bytes, root: tensor(), room: bytes },
        GraphError::ViewOfView { tensor: tensor(), root: tensor() },
        GraphError::UnknownRoot { tensor: tensor(), root: id(), tensors: 3 },
        GraphError::UnknownSource { tensor: tensor(), slot: 1, source_id: id(), tensors: 3 },
        GraphError::ListedTwice { node: tensor(), first: 1, second: 2 },
        GraphError::ExternalView { tensor: tensor(), root: tensor() },
        GraphError::Mark { mark: 1, tensors: 3 },
        GraphError::OtherContext { tensor: tensor() },
        GraphError::AssignmentLength { list: "nodes", given: 1, wanted: 2 },
        GraphError::NoMemory,
        GraphError::UnknownMemory { memory, memories: 1 },
        GraphError::SharedMemory { memory, with: memory },
        GraphError::SizesLength { tensor: id(), given: 1, memories: 2 },
        GraphError::SizeTooSmall { tensor: id(), bytes, size: Bytes(4) },
    ];
    let shape = |reason| GraphError::Shape { op: op.clone(), operands: operands(), reason };
    errors.extend(shapes().into_iter().map(shape));
    errors.extend(layouts().map(GraphError::from));
    errors
}

fn replays() -> Vec<ReplayFault> {
    let (node, reader, memory, buffer, offset) = (3, tensor(), String::from("gpu"), BufferId::FIRST, Offset(64));
    let place = |why| ReplayFault::Place { tensor: tensor(), memory: MemoryId::FIRST, offset, size: Bytes(4), why };
    let overwritten = |by| {
        let (reader, memory) = (reader.clone(), memory.clone());
        ReplayFault::Overwritten { node, reader, tensor: tensor(), by, memory, buffer, offset }
    };
    vec![
        overwritten(LastWriter::Node(2, tensor())),
        overwritten(LastWriter::Caller(tensor())),
        overwritten(LastWriter::Nothing),
        ReplayFault::Fusion {
            node,
            last: 5,
            reader: tensor(),
            tensor: tensor(),
            by: LastWriter::Nothing,
            memory: memory.clone(),
            buffer,
            offset,
        },
        ReplayFault::Unwritten { node, reader: tensor(), tensor: tensor(), byte: offset },
        ReplayFault::InitialOverlap { tensor: tensor(), other: tensor(), memory: memory.clone(), buffer, offset },
        ReplayFault::Lost { tensor: tensor(), by: LastWriter::Nothing, memory, buffer, offset },
        ReplayFault::InPlace { node, writer: tensor(), slot: 1, tensor: tensor(), operation: "ADD".into() },
        place(PlaceFault::NoMemory),
        place(PlaceFault::Misaligned(Align::ONE)),
        place(PlaceFault::TooSmall(Bytes(8))),
        ReplayFault::Unplaced { node, tensor: tensor() },
    ]
}

fn mismatches() -> Vec<PlanMismatch> {
    let changed = |what| PlanMismatch::Changed { tensor: tensor(), what };
    let changes = [
        TensorChange::Identity,
        TensorChange::Operation("ADD".into()),
        TensorChange::Edges,
        TensorChange::View,
        TensorChange::Flags,
        TensorChange::External,
        TensorChange::Memory,
    ];
    let others = [
        PlanMismatch::Count { list: "nodes", planned: 3, given: 4 },
        PlanMismatch::Memories,
        PlanMismatch::Outgrown { tensor: tensor(), needed: Bytes(8), room: Bytes(4) },
        PlanMismatch::NotInPlace { tensor: tensor(), slot: 1 },
    ];
    others.into_iter().chain(changes.map(changed)).collect()
}

/// A graph whose tensors add up to more than the address space has.
const TOO_LARGE: &str = "x = input i8[9223372036854775808]; y = sqr x; z = add x y !output";

fn plans() -> Vec<GraphPlanError> {
    let graph: AssignedGraph = TOO_LARGE.parse().unwrap();
    vec![
        plan_graph(&graph, &PlanOptions::default()).unwrap_err(),
        GraphPlanError::GgmlFrees { tensor: tensor() },
        GraphPlanError::AddressSpace { memory: "gpu".into(), tensor: tensor(), size: Bytes(8) },
    ]
}

#[test]
fn graph_errors_are_one_line_and_do_not_repeat_their_causes() {
    check_all(layouts());
    check_all(shapes());
    check_all(graphs());
    check_all([DataType::F32.name().to_uppercase().parse::<DataType>().unwrap_err()]);
    let mut context = Context::new();
    let x = context.input(DataType::F32, &[8]).unwrap();
    check(&context.mul_mat(x, id()).unwrap_err());
}

#[test]
fn call_errors_are_one_line_and_do_not_repeat_their_causes() {
    let op = || String::from("ADD");
    let mut errors = vec![
        CallError::NoRule { op: op() },
        CallError::Param { index: 1, name: "scale" },
        CallError::OtherOp { expected: op(), found: op() },
        CallError::Custom { op: op(), reason: "the result is a view".into() },
        CallError::Result { expected: [1; 4], found: [2; 4] },
        CallError::View { slot: 1 },
    ];
    errors.extend(shapes().into_iter().map(CallError::from));
    errors.extend(graphs().into_iter().map(CallError::Unknown));
    for mode in [7, 8] {
        let rope = format!("x = input f32[8,2,3]; p = input i32[12]; y = rope({mode}) f32[8,2,3] x p");
        let rope =
            rope.replace(&format!("rope({mode})"), &format!("rope(8,{mode},0,1.0,1.0,0.0,1.0,32.0,1.0,0,0,0,0)"));
        let graph: Graph = rope.parse().unwrap();
        errors.push(graph.call(graph.nodes()[0]).unwrap_err());
    }
    check_all(errors);
}

#[test]
fn text_errors_are_one_line_and_do_not_repeat_their_causes() {
    let texts = [
        "x = input 16\ny = neg z",
        "x = input 4; x = input 4",
        "x = nag y",
        "x = neg y; y = input 4",
        "x = input f32[4",
        "x = input f33[4]",
        "x = input q4_K[4]",
        "x = input f32[1,1,1,1,1]",
        "x = input 4 !red",
        "x = input 4 @gpu",
        "x = input 4 color=3",
        "x = input 99999999999999999999",
        "x = input 4 \"",
        "x = $",
        "x = leaf f32[4]+0",
        "x = input 4; v = view f32[4]+8 x",
        "x = input 4; y = input 3; z = add x y",
        "x = input 4 size=3",
        "y = sqr f32[4] y",
    ];
    for text in texts {
        check(&text.parse::<AssignedGraph>().unwrap_err());
    }
}

#[test]
fn plan_errors_are_one_line_and_do_not_repeat_their_causes() {
    check_all(plans());
    check_all(replays());
    check_all(mismatches());
    let graph: AssignedGraph = TOO_LARGE.parse().unwrap();
    check(&plan_together(&[&graph], &PlanOptions::default()).unwrap_err());
    check(&TogetherError::Memories { graph: 1 });
    let small: AssignedGraph = "x = input 4; y = sqr x; z = add x y !output".parse().unwrap();
    let mut places = plan_graph(&small, &PlanOptions::default()).unwrap().places();
    let nodes = small.graph().nodes();
    places.places[nodes[0]] = places.places[small.graph().leafs()[0]];
    check(&replay(&small, &places).unwrap_err());
}

#[test]
fn errors_of_callers_graphs_are_one_line_and_do_not_repeat_their_causes() {
    let name = || String::from("kq");
    let plan = plans().swap_remove(0);
    let mut errors = vec![
        TensorGraphError::UnknownSource { node: name(), slot: 1, tensor: name() },
        TensorGraphError::UnknownOutput { tensor: name() },
        TensorGraphError::UnknownTensor { tensor: name() },
        TensorGraphError::UnknownRoot { tensor: name(), root: name() },
        TensorGraphError::ViewCycle { tensor: name() },
        TensorGraphError::InputAndNode { tensor: name() },
        TensorGraphError::UnknownMemory { tensor: name(), memory: MemoryId::FIRST, memories: 1 },
        TensorGraphError::TooLarge { tensor: name(), size: Bytes(8), source: Box::new(plan) },
    ];
    errors.extend(graphs().into_iter().map(TensorGraphError::from));
    errors.extend(plans().into_iter().map(TensorGraphError::from));
    errors.extend(mismatches().into_iter().map(TensorGraphError::from));
    check_all(errors);
}

#[test]
fn errors_of_plan_files_are_one_line_and_do_not_repeat_their_causes() {
    let graph: AssignedGraph = "x = input 64; a = sqr x; b = neg a; c = add a b !output".parse().unwrap();
    let text = plan_graph(&graph, &PlanOptions::default()).unwrap().to_json();
    let edits = [
        ("steeve-plan", "other"),
        ("\"fast\"", "\"faster\""),
        ("\"more\"", "\"most\""),
        ("\"free-inputs\"", "\"never\""),
        ("\"name\":\"memory\"", "\"name\":\"other\""),
        ("\"offset\":256", "\"offset\":128"),
        ("\"offset\":256", "\"offset\":18446744073709551615"),
        ("\"buffer\":0", "\"buffer\":9"),
        ("\"size\":256", "\"size\":255"),
        ("\"peak\":512", "\"peak\":511"),
        ("\"live\":[0,2]", "\"live\":[0,1]"),
        ("\"id\":1", "\"id\":99"),
        ("\"id\":1", "\"id\":2"),
    ];
    let mut refused = 0;
    for (from, to) in edits {
        if let Err(error) = GraphPlan::from_json(&text.replacen(from, to, 1), &graph) {
            check(&error);
            refused += 1;
        }
        let file = PlanFile::from_json(&text.replacen(from, to, 1));
        let faults = file.map(|file| steeve_graph::check_plan_file(&file, &graph, MatchMemories::ByName).err());
        faults.into_iter().flatten().flatten().for_each(|fault| check(&fault));
    }
    assert!(refused > 10, "{refused}");
    let memory = || String::from("gpu");
    check_all([
        PlanFault::NoGraph,
        PlanFault::Fingerprint { plan: memory(), graph: graph.fingerprint() },
        PlanFault::Sharing { memory: memory(), plan: memory(), graph: memory() },
        PlanFault::Alignment { memory: memory(), plan: Align::ONE, graph: Align::ONE },
        PlanFault::ExtraLifetime { memory: memory(), plan: 1, graph: 2 },
        PlanFault::Fusion { memory: memory(), plan: "none", graph: "kept" },
        PlanFault::BufferSize { memory: memory(), buffer: 1, size: Bytes(8), max_buffer: Bytes(4) },
        PlanFault::UnknownTensor { memory: memory(), block: 1, name: memory(), tensor: None, tensors: 3 },
        PlanFault::Unneeded { memory: memory(), tensor: tensor() },
        PlanFault::Duplicate { memory: memory(), tensor: tensor() },
        PlanFault::Unplaced { tensor: tensor() },
        PlanFault::Elsewhere { memory: memory(), tensor: tensor(), belongs_to: memory() },
        PlanFault::SizedBy { memory: memory(), tensor: tensor(), sized_by: memory() },
        PlanFault::Invalid { memory: memory(), tensors: vec![tensor()], violation: Box::new(None) },
        PlanFault::InPlace { reuse: "more", tensor: tensor(), slot: 1, overwritten: tensor(), operation: memory() },
    ]);
    check_all(mismatches().into_iter().map(PlanFault::from));
    check_all(replays().into_iter().map(|fault| PlanFault::Replay(Box::new(fault))));
}

#[test]
fn errors_of_recordings_are_one_line_and_do_not_repeat_their_causes() {
    let tensor_fault = |fault| RecordError::Tensor { id: 7, name: "kq".into(), fault };
    let place = RecordLocation::Placement(7);
    let align = r#"{"schema":"galloc-dump-1","buffers":[{"name":"CPU","alignment":3,"max_size":1}],"leafs":[],"nodes":[],"tensors":[]}"#;
    let mut errors = vec![
        RecordedGraph::from_json("{").unwrap_err(),
        RecordedGraph::from_json("[]").unwrap_err(),
        RecordedGraph::from_json(align).unwrap_err(),
        RecordError::Schema { found: "other".into() },
        RecordError::SameId { id: 7 },
        RecordError::UnknownId { place, id: -3 },
        RecordError::UnknownBuffer { place, buffer: 3, buffers: 1 },
        tensor_fault(RecordedTensorFault::Type("f31".into())),
        tensor_fault(RecordedTensorFault::HalfView),
        tensor_fault(RecordedTensorFault::Chunk(-7)),
        tensor_fault(RecordedTensorFault::Bytes {
            recorded: 17,
            computed: Bytes(16),
            dtype: DataType::F32,
            ne: [4, 1, 1, 1],
            nb: [4, 16, 16, 16],
        }),
    ];
    errors.extend(layouts().map(|error| tensor_fault(error.into())));
    errors.extend(graphs().into_iter().map(RecordError::from));
    check_all(errors);
}

#[test]
fn a_chain_has_the_message_and_its_causes() {
    let error = plans().swap_remove(0);
    let (chain, message) = (ErrorChain(&error).to_string(), error.to_string());
    let cause = error.source().unwrap().to_string();
    assert_eq!(chain, format!("{message}: {cause}"));
    let foreign = GraphError::Foreign { tensor: id() };
    assert_eq!(ErrorChain(&foreign).to_string(), foreign.to_string());
}
