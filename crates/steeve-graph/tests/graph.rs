//! Order, growth and checks of graphs and contexts.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use steeve_graph::{
    AllocSizes, AssignedGraph, Assignment, Bytes, Context, DataType, Graph, GraphError, GraphParts, Hazard, Id, Layout,
    Memory, MemoryId, Op, PlanOptions, Tensor, TensorId, Unary, View, plan_graph, replay,
};

fn id(index: usize) -> TensorId {
    TensorId::from_index(index).unwrap()
}

fn f32s(count: u64) -> Tensor {
    Tensor::new(Layout::contiguous(DataType::F32, &[count]).unwrap())
}

fn names(graph: &Graph, ids: &[TensorId]) -> String {
    ids.iter().map(|&id| graph.name(id)).collect::<Vec<_>>().join(" ")
}

/// Returns a small network whose creation order differs from its node order.
fn diamond() -> (Context, Vec<TensorId>) {
    let mut context = Context::new();
    let x = context.input(DataType::F32, &[8]).unwrap();
    let w = context.external(DataType::F32, &[8]).unwrap();
    let right = context.neg(x).unwrap();
    let left = context.mul(x, w).unwrap();
    let out = context.add(left, right).unwrap();
    for (tensor, name) in [(x, "x"), (w, "w"), (right, "right"), (left, "left"), (out, "out")] {
        context.set_name(tensor, name).unwrap();
    }
    (context, vec![x, w, right, left, out])
}

#[test]
fn nodes_stand_in_the_order_in_which_sources_name_them() {
    let (context, ids) = diamond();
    let graph = Graph::from_outputs(&context, &[ids[4]]).unwrap();
    assert_eq!(names(&graph, graph.nodes()), "left right out");
    assert_eq!(names(&graph, graph.leafs()), "x w");
}

#[test]
fn a_view_is_reached_through_its_source() {
    let mut context = Context::new();
    let x = context.input(DataType::F32, &[8]).unwrap();
    let y = context.neg(x).unwrap();
    let view = context.view_1d(y, 4, Bytes(16)).unwrap();
    let z = context.reshape(view, &[2, 2]).unwrap();
    let graph = Graph::from_outputs(&context, &[z]).unwrap();
    assert_eq!(graph.nodes(), [y, view, z]);
    assert_eq!(graph.root(z), y);
    assert_eq!(graph.tensors().offset(z), Bytes(16));
}

#[test]
fn a_parameter_without_operation_is_a_node() {
    let mut context = Context::new();
    let p = context.external(DataType::F32, &[8]).unwrap();
    context.set_param(p).unwrap();
    let y = context.neg(p).unwrap();
    let graph = Graph::from_outputs(&context, &[y]).unwrap();
    assert_eq!((graph.nodes(), graph.leafs()), (&[p, y][..], &[][..]));
}

#[test]
fn expanding_appends_what_is_missing_only() {
    let (mut context, ids) = diamond();
    let mut graph = Graph::from_outputs(&context, &[ids[3]]).unwrap();
    let late = context.relu(ids[3]).unwrap();
    graph.expand(&context, &[ids[4], late]).unwrap();
    assert_eq!(graph.nodes(), [ids[3], ids[2], ids[4], late]);
    let before = graph.clone();
    graph.expand(&context, &[ids[4]]).unwrap();
    assert_eq!(graph, before);
}

#[test]
fn a_cache_write_expanded_first_stands_before_its_readers() {
    let mut context = Context::new();
    let cache = context.external(DataType::F32, &[4, 8]).unwrap();
    let x = context.input(DataType::F32, &[4, 1]).unwrap();
    let place = context.view_2d(cache, [4, 1], 16, Bytes(32)).unwrap();
    let write = context.cpy(x, place).unwrap();
    let all = context.view_2d(cache, [4, 4], 16, Bytes(0)).unwrap();
    let read = context.neg(all).unwrap();
    let mut graph = Graph::from_outputs(&context, &[write]).unwrap();
    graph.expand(&context, &[read]).unwrap();
    assert_eq!(graph.nodes(), [place, write, all, read]);
    let dependencies = graph.dependencies();
    assert_eq!(dependencies.len(), 1);
    assert_eq!((dependencies[0].before, dependencies[0].after), (1, 3));
    assert_eq!(dependencies[0].hazard, Hazard::ReadAfterWrite);
}

#[test]
fn parts_of_a_cache_that_do_not_touch_do_not_wait() {
    let graph: Graph = "
        cache = external 64; x = input 16
        low = view f32[16]+0 cache;   a = cpy x low
        high = view f32[16]+64 cache; b = cpy x high
        c = neg low; d = neg high"
        .parse()
        .unwrap();
    // A copy also reads the view it writes, so the first two have no edge, and each reader has one.
    let edges: Vec<_> = graph.dependencies().iter().map(|it| (it.before, it.after, it.hazard)).collect();
    assert_eq!(edges, [(1, 4, Hazard::ReadAfterWrite), (3, 5, Hazard::ReadAfterWrite)]);
}

#[test]
fn an_explicit_list_is_kept_as_it_is() {
    let (context, ids) = diamond();
    let graph = Graph::from_nodes(&context, &[ids[2], ids[3]]).unwrap();
    assert_eq!((graph.nodes(), graph.leafs()), (&[ids[2], ids[3]][..], &[ids[0], ids[1]][..]));
    // What the nodes of a part read must come from somewhere.
    let cut = Graph::from_nodes(&context, &[ids[4]]).unwrap_err();
    assert!(cut.to_string().contains("reads tensor 3 (left) in slot 0, which no node writes"), "{cut}");
    let turned = Graph::from_nodes(&context, &[ids[4], ids[2], ids[3]]).unwrap_err();
    assert!(turned.to_string().contains("node 0 (tensor 4 (out)): reads tensor 3 (left)"), "{turned}");
    let twice = Graph::from_nodes(&context, &[ids[2], ids[3], ids[2]]).unwrap_err();
    assert_eq!(twice.to_string(), "tensor 2 (right): listed twice, as node 0 and as node 2");
}

#[test]
fn a_part_of_a_graph_reads_what_the_caller_provides() {
    let (mut context, ids) = diamond();
    context.set_external(ids[2]).unwrap();
    context.set_external(ids[3]).unwrap();
    let cut = Graph::from_nodes(&context, &[ids[4]]).unwrap();
    assert_eq!((cut.nodes(), cut.leafs()), (&[ids[4]][..], &[][..]));
}

#[test]
fn an_extension_that_is_refused_changes_nothing() {
    let mut context = Context::new();
    let x = context.input(DataType::F32, &[8]).unwrap();
    let y = context.neg(x).unwrap();
    let mut graph = Graph::from_outputs(&context, &[y]).unwrap();
    let before = graph.clone();
    // A view that does not have its root among its sources, so the root is never reached.
    let hidden = context.sqr(x).unwrap();
    let view = Some(View { root: hidden, offset: Bytes(0) });
    let view = context.add_tensor(Tensor { op: Op::View, view, ..f32s(8) }, &[], &[]).unwrap();
    let late = context.neg(view).unwrap();
    assert!(matches!(graph.expand(&context, &[late]), Err(GraphError::Order(_))));
    assert_eq!(graph, before);
}

#[test]
fn a_deep_graph_does_not_overflow_the_stack() {
    let mut context = Context::new();
    let mut x = context.input(DataType::F32, &[1]).unwrap();
    for _ in 0..300_000 {
        x = context.neg(x).unwrap();
    }
    let graph = Graph::from_outputs(&context, &[x]).unwrap();
    assert_eq!(graph.nodes().len(), 300_000);
    assert_eq!(graph.dependencies().len(), 299_999);
    assert_eq!(graph.compact().unwrap().nodes().len(), 300_000);
}

#[test]
fn many_readers_and_writers_of_one_root_stay_linear() {
    // A naive list of pairs would have 10^10 entries here.
    let mut context = Context::new();
    let cache = context.external(DataType::I8, &[1, 100_000]).unwrap();
    let x = context.input(DataType::I8, &[1]).unwrap();
    let mut graph = Graph::from_outputs(&context, &[]).unwrap();
    let mut writes = Vec::new();
    for place in 0..100_000 {
        let view = context.view_1d(cache, 1, Bytes(place)).unwrap();
        writes.push(context.cpy(x, view).unwrap());
    }
    graph.expand(&context, &writes).unwrap();
    assert_eq!(graph.dependencies().len(), 0);
}

#[test]
fn a_graph_keeps_what_the_context_rewinds() {
    let (mut context, ids) = diamond();
    let mark = context.mark();
    let late = context.relu(ids[4]).unwrap();
    let graph = Graph::from_outputs(&context, &[late]).unwrap();
    context.rewind(mark).unwrap();
    assert_eq!(graph.tensor(late).op, Op::Unary(Unary::Relu));
    let error = context.neg(late).unwrap_err();
    assert_eq!(error, GraphError::Unknown { tensor: late, tensors: 5 });
    assert!(error.to_string().contains("tensor 5"), "{error}");
    assert!(context.set_name(late, "x").is_err());
    assert!(context.set_output(late).is_err());
    assert!(Graph::from_outputs(&context, &[late]).is_err());
}

#[test]
fn a_loop_of_mark_and_rewind_does_not_grow() {
    let (mut context, ids) = diamond();
    let mark = context.mark();
    for _ in 0..3 {
        let y = context.neg(ids[4]).unwrap();
        context.set_name(y, "y").unwrap();
        assert_eq!(y, id(5));
        context.rewind(mark).unwrap();
    }
    assert_eq!(context.tensors().len(), 5);
    context.rewind(mark).unwrap();
}

#[test]
fn a_mark_that_was_passed_is_refused() {
    let mut context = Context::new();
    let early = context.mark();
    context.input(DataType::F32, &[1]).unwrap();
    let late = context.mark();
    context.rewind(early).unwrap();
    assert_eq!(context.rewind(late), Err(GraphError::Mark { mark: 1, tensors: 0 }));
}

#[test]
fn a_graph_does_not_follow_another_context() {
    let (mut context, ids) = diamond();
    let mark = context.mark();
    let first = context.relu(ids[4]).unwrap();
    let mut graph = Graph::from_outputs(&context, &[first]).unwrap();
    context.rewind(mark).unwrap();
    let second = context.neg(ids[4]).unwrap();
    assert_eq!(first, second);
    let error = graph.expand(&context, &[second]).unwrap_err();
    assert!(matches!(error, GraphError::OtherContext { .. }), "{error}");
}

#[test]
fn only_roots_are_external() {
    let mut context = Context::new();
    let x = context.new_tensor(DataType::F32, &[8]).unwrap();
    let view = context.view_1d(x, 4, Bytes(0)).unwrap();
    assert!(matches!(context.set_external(view), Err(GraphError::ExternalView { .. })));
    context.set_external(x).unwrap();
    assert!(context.tensors().is_external(view) && !context.tensor(view).unwrap().external);
}

#[test]
fn parts_with_a_fault_are_refused_by_name() {
    let view = |root, offset| Tensor { view: Some(View { root, offset: Bytes(offset) }), ..f32s(8) };
    let fault = |tensors: &[(Tensor, Vec<Option<TensorId>>)], nodes: &[usize]| {
        let mut parts = GraphParts::default();
        for (index, (tensor, sources)) in tensors.iter().enumerate() {
            let id = parts.push(*tensor, sources).unwrap();
            parts.set_name(id, &format!("t{index}")).unwrap();
        }
        nodes.iter().for_each(|&node| parts.node(id(node)));
        parts.finish().unwrap_err().to_string()
    };
    assert_eq!(
        fault(&[(f32s(8), vec![None, Some(id(3))])], &[]),
        "tensor 0 (t0): unknown source in slot 1: expected one of 1 tensors, got tensor 3"
    );
    assert_eq!(
        fault(&[(view(id(4), 0), vec![])], &[]),
        "tensor 0 (t0): unknown root: expected one of 1 tensors, got tensor 4"
    );
    assert_eq!(
        fault(&[(f32s(8), vec![]), (view(id(0), 0), vec![]), (view(id(1), 0), vec![])], &[]),
        "tensor 2 (t2): view of a view: expected a root that owns memory, got tensor 1 (t1)"
    );
    assert_eq!(
        fault(&[(f32s(8), vec![]), (view(id(0), 4), vec![])], &[]),
        "tensor 1 (t1): view outside of tensor 0 (t0): expected at most 32 bytes, got 32 at offset 4"
    );
    assert!(fault(&[(f32s(8), vec![])], &[1]).starts_with("tensor 1: unknown"));
}

#[test]
fn forms_of_ggmls_recordings_that_do_no_harm_are_graphs() {
    let mut parts = GraphParts::default();
    let x = parts.push(f32s(8), &[]).unwrap();
    // A copy that names itself as its destination.
    let own = parts.push(Tensor { op: Op::Cpy, ..f32s(8) }, &[Some(x), Some(id(1))]).unwrap();
    // A view that is listed after the node that reads it.
    let view = Some(View { root: own, offset: Bytes(0) });
    let late = parts.push(Tensor { op: Op::View, view, ..f32s(8) }, &[Some(own)]).unwrap();
    let read = parts.push(Tensor { op: Op::Unary(Unary::Neg), ..f32s(8) }, &[Some(late)]).unwrap();
    // A leaf that is listed twice and is a node as well.
    for leaf in [x, x] {
        parts.leaf(leaf);
    }
    for node in [x, own, read, late] {
        parts.node(node);
    }
    let graph = parts.finish().unwrap();
    assert_eq!(graph.to_string().parse::<Graph>().unwrap(), graph.compact().unwrap());
    let edges: Vec<_> = graph.dependencies().iter().map(|it| (it.before, it.after, it.hazard)).collect();
    assert_eq!(edges, [(1, 2, Hazard::ReadAfterWrite)]);
    let assigned = AssignedGraph::from(graph);
    let plan = plan_graph(&assigned, &PlanOptions::default()).unwrap();
    replay(&assigned, &plan.places()).unwrap();
}

/// Each line with its error.
#[test]
fn a_node_that_reads_what_is_not_written_yet_is_refused_in_text() {
    for (text, said) in [
        (
            "x = input f32[4]; z = sqr f32[4] y !output; y = sqr f32[4] x",
            "node 0 (tensor 1 (z)): reads tensor 2 (y) in slot 0, which node 1 writes later",
        ),
        ("y = sqr f32[4] y", "node 0 (tensor 0 (y)): reads itself in slot 0, before it is written"),
        (
            "x = input f32[4]; z = add f32[4] x v; y = sqr f32[4] x; v = view f32[4]+0 y",
            "node 0 (tensor 1 (z)): reads tensor 3 (v) in slot 1, a view of tensor 2 (y), which node 1 writes later",
        ),
        ("x = input f32[4]; y = sqr x; node y", "tensor 1 (y): listed twice, as node 0 and as node 1"),
        (
            "x = input f32[4]; w = cpy f32[4]+0^y x; y = sqr f32[4] x",
            "node 0 (tensor 1 (w)): writes into tensor 2 (y), which node 1 writes later",
        ),
        (
            "x = input f32[4]; a = sqr x !aside; b = neg a !output",
            "node 0 (tensor 2 (b)): reads tensor 1 (a) in slot 0, which no node writes",
        ),
    ] {
        match text.parse::<AssignedGraph>() {
            Ok(graph) => panic!("accepted:\n{graph}"),
            Err(error) => assert!(error.to_string().contains(said), "{error}\nwanted: {said}"),
        }
    }
}

#[test]
fn a_view_of_no_bytes_is_never_out_of_range() {
    let mut context = Context::new();
    let (empty, full) =
        (context.input(DataType::F32, &[4, 0]).unwrap(), context.input(DataType::F32, &[4, 2]).unwrap());
    for root in [empty, full] {
        for offset in [0, 1, 32, 33, 8192, u64::MAX] {
            let view = context.view_2d(root, [4, 0], 16, Bytes(offset)).unwrap();
            let again = context.view_1d(view, 0, Bytes(u64::MAX)).unwrap();
            let copy = context.cont(again).unwrap();
            let graph = AssignedGraph::from(Graph::from_outputs(&context, &[copy]).unwrap());
            assert_eq!(graph.to_string().parse::<AssignedGraph>().unwrap(), graph.compact().unwrap());
            let plan = plan_graph(&graph, &PlanOptions::default()).unwrap();
            plan.fits(&graph).unwrap();
            replay(&graph, &plan.places()).unwrap();
            // Where it starts is within its root, so no later stage has to look.
            assert!(graph.graph().tensors().offset(view) <= context.tensor(root).unwrap().nbytes());
        }
    }
    assert!(context.view_1d(full, 1, Bytes(32)).is_err());
}

#[test]
fn parts_can_be_taken_apart_and_used_again() {
    let (context, ids) = diamond();
    let graph = Graph::from_outputs(&context, &[ids[4]]).unwrap();
    let mut parts = graph.clone().into_parts();
    assert_eq!(parts.clone().finish().unwrap(), graph);
    parts.clear();
    assert_eq!(parts, GraphParts::default());
}

#[test]
fn an_assignment_must_be_one_for_the_graph() {
    let graph: Graph = "x = input 4; y = neg x".parse().unwrap();
    let single = Assignment::single(&graph);
    let second = MemoryId::from_index(1).unwrap();
    let new = |memories: Vec<Memory>, assignment: &Assignment, sizes| {
        AssignedGraph::new(graph.clone(), memories, assignment.clone(), sizes).map(|_| ())
    };
    let one = || vec![Memory::default()];
    assert_eq!(new(one(), &single, AllocSizes::new(1)), Ok(()));
    assert_eq!(new(vec![], &single, AllocSizes::new(0)), Err(GraphError::NoMemory));
    let short = Assignment { nodes: vec![], ..single.clone() };
    assert!(matches!(new(one(), &short, AllocSizes::new(1)), Err(GraphError::AssignmentLength { list: "nodes", .. })));
    let far = Assignment { nodes: vec![second], ..single.clone() };
    assert!(matches!(new(one(), &far, AllocSizes::new(1)), Err(GraphError::UnknownMemory { .. })));
    let shared = Memory { shared_with: Some(MemoryId::FIRST), ..Memory::default() };
    assert!(matches!(new(vec![shared], &single, AllocSizes::new(1)), Err(GraphError::SharedMemory { .. })));
    let mut sizes = AllocSizes::new(2);
    sizes.set(id(1), graph.tensor(id(1)), &[Bytes(16), Bytes(32)]).unwrap();
    assert!(matches!(new(one(), &single, sizes), Err(GraphError::SizesLength { .. })));
    let mut sizes = AllocSizes::new(1);
    assert!(matches!(
        sizes.set(id(1), graph.tensor(id(1)), &[Bytes(15)]),
        Err(GraphError::SizeTooSmall { bytes: Bytes(16), size: Bytes(15), .. })
    ));
}

#[test]
fn the_drawing_has_every_tensor_and_edge() {
    let (context, ids) = diamond();
    let graph = Graph::from_outputs(&context, &[ids[4]]).unwrap();
    let drawing = graph.to_graphviz();
    for expected in ["t0 -> t3 [label=0]", "t3 -> t4 [label=0]", "t2 -> t4 [label=1]", "shape=ellipse", "MUL"] {
        assert!(drawing.contains(expected), "{expected} in\n{drawing}");
    }
}
