//! Operations of the caller's: declared once, planned, replayed and saved like any other.
#![allow(clippy::unwrap_used, clippy::panic)]

use steeve_graph::{
    AssignedGraph, CallError, Context, CustomOp, DataType, Graph, GraphError, Layout, Param, PlanOptions, TensorId,
    plan_graph, replay,
};

const F32: DataType = DataType::F32;

fn layout(shape: &[u64]) -> Layout {
    Layout::contiguous(F32, shape).unwrap()
}

fn finish(context: &mut Context, output: TensorId) -> AssignedGraph {
    context.set_output(output).unwrap();
    Graph::from_outputs(context, &[output]).unwrap().into()
}

fn peak(graph: &AssignedGraph) -> u64 {
    let plan = plan_graph(graph, &PlanOptions::default()).unwrap();
    replay(graph, &plan.places()).unwrap();
    plan.peak().get()
}

fn chain(apply: impl Fn(&mut Context, TensorId) -> Result<TensorId, GraphError>) -> AssignedGraph {
    let mut context = Context::new();
    let x = context.input(F32, &[64, 4]).unwrap();
    let y = apply(&mut context, x).unwrap();
    let z = apply(&mut context, y).unwrap();
    finish(&mut context, z)
}

#[test]
fn an_elementwise_operation_twice_needs_as_many_bytes_as_relu_twice() {
    let (mine, plain) = (CustomOp::elementwise("MY_RELU"), CustomOp::new("MY_RELU"));
    let relu = peak(&chain(|context, x| context.relu(x)));
    assert_eq!(peak(&chain(|context, x| context.custom(&mine, &[x], &[]))), relu);
    assert_eq!(peak(&chain(|context, x| context.custom_shaped(&plain, layout(&[64, 4]), &[x], &[]))), 2 * relu);
}

#[test]
fn a_graph_that_was_written_as_text_and_read_again_needs_as_many_bytes() {
    let mine = CustomOp::elementwise("my relu?");
    let graph = chain(|context, x| context.custom(&mine, &[x], &[Param::Int(3), Param::Float(0.5)]));
    let again: AssignedGraph = graph.to_string().parse().unwrap();
    assert_eq!(peak(&again), peak(&graph));
    for &node in again.graph().nodes() {
        assert_eq!(mine.check(again.graph(), node), Ok(()));
        assert_eq!(again.graph().params(node), [Param::Int(3), Param::Float(0.5)]);
    }
}

#[test]
fn a_source_of_another_layout_is_never_overwritten() {
    let sum =
        CustomOp::new("SUM2").overwriting(0).overwriting(1).with_rule(|sources, _| sources[0].ok_or_else(String::new));
    let mut context = Context::new();
    let (x, row) = (context.input(F32, &[8, 4]).unwrap(), context.input(F32, &[8]).unwrap());
    let y = context.custom(&sum, &[x, row], &[]).unwrap();
    let graph = finish(&mut context, y);
    assert!(graph.graph().may_overwrite(y, 0) && !graph.graph().may_overwrite(y, 1));
}

#[test]
fn an_operation_that_writes_into_a_source_is_a_view_of_it_and_keeps_it_alive() {
    let append = CustomOp::new("APPEND").writing_into(1);
    let mut context = Context::new();
    let (x, cache) = (context.input(F32, &[8]).unwrap(), context.external(F32, &[8, 16]).unwrap());
    let part = context.view_2d(cache, [8, 4], 32, steeve_graph::Bytes(64)).unwrap();
    let written = context.custom(&append, &[x, part], &[]).unwrap();
    assert_eq!(context.tensors().root(written), cache);
    assert_eq!(context.tensors().offset(written), steeve_graph::Bytes(64));
    let graph = finish(&mut context, written);
    assert_eq!(graph.graph().writes_into(written), Some(1));
    assert_eq!(append.check(graph.graph(), written), Ok(()));
    // Another declaration of the name does not describe it.
    assert!(CustomOp::new("APPEND").writing_into(0).check(graph.graph(), written).is_err());
    let error = CustomOp::new("APPEND").check(graph.graph(), written).unwrap_err();
    assert_eq!(error.to_string(), "APPEND: the result is a view, and the operation writes into no source");
    let again: AssignedGraph = graph.to_string().parse().unwrap();
    let node = *again.graph().nodes().last().unwrap();
    assert_eq!(again.graph().writes_into(node), Some(1), "{graph}");
    peak(&again);
}

#[test]
fn names_of_the_table_and_empty_ones_are_refused() {
    let mut context = Context::new();
    let x = context.input(F32, &[8]).unwrap();
    for name in ["", "ADD", "SILU", "SWIGLU", "UNARY", "GLU", "CUSTOM", "add", "Silu", "unary", "rms_norm"] {
        let error = context.custom(&CustomOp::elementwise(name), &[x], &[]).unwrap_err();
        assert_eq!(error, GraphError::CustomName { name: name.into() });
    }
    assert_eq!(context.tensors().len(), 1);
}

#[test]
fn a_rule_that_refuses_says_why_with_the_operands() {
    let halves = CustomOp::new("HALVES").with_rule(|sources, params| {
        let a = sources.first().copied().flatten().ok_or("source 0: missing")?;
        let by =
            params.first().and_then(|param| param.int()).filter(|by| *by > 0).ok_or("parameter 0 must be above 0")?;
        if a.ne()[0] % by as u64 != 0 {
            return Err(format!("rows of {} can't be cut into {by}", a.ne()[0]));
        }
        Layout::contiguous(a.dtype(), &[a.ne()[0] / by as u64]).map_err(|error| error.to_string())
    });
    let mut context = Context::new();
    let x = context.input(F32, &[9]).unwrap();
    let error = |context: &mut Context, sources: &[TensorId], params: &[Param]| {
        context.custom(&halves, sources, params).unwrap_err().to_string()
    };
    assert_eq!(error(&mut context, &[], &[]), "HALVES of (): source 0: missing");
    assert_eq!(error(&mut context, &[x], &[]), "HALVES of (f32[9]): parameter 0 must be above 0");
    assert_eq!(error(&mut context, &[x], &[2.into()]), "HALVES of (f32[9]): rows of 9 can't be cut into 2");
    let y = context.custom(&halves, &[x], &[3.into()]).unwrap();
    assert_eq!(context.tensor(y).unwrap().layout, layout(&[3]));
    // A layout that the caller gives must be that of the rule.
    let wrong = context.custom_shaped(&halves, layout(&[4]), &[x], &[3.into()]).unwrap_err();
    assert_eq!(wrong.to_string(), "HALVES of (f32[9]): the result does not fit: expected f32[3], got f32[4]");
    let unsaid = context.custom(&CustomOp::new("F"), &[x], &[]).unwrap_err();
    assert_eq!(unsaid, GraphError::NoRule { op: "F".into() });
}

#[test]
fn a_node_that_the_declaration_does_not_describe_is_refused() {
    let relu = CustomOp::elementwise("MY_RELU");
    let check = |text: &str| {
        let graph: AssignedGraph = text.parse().unwrap();
        let node = *graph.graph().nodes().last().unwrap();
        relu.check(graph.graph(), node)
    };
    assert_eq!(check("x = input f32[4]; y = ?MY_RELU f32[4] x"), Ok(()));
    let result = CallError::Result { expected: [4, 1, 1, 1], found: [5, 1, 1, 1] };
    assert_eq!(check("x = input f32[4]; y = ?MY_RELU f32[5] x"), Err(result));
    let of_type = check("x = input f32[4]; y = ?MY_RELU f16[4] x").unwrap_err();
    assert_eq!(of_type.to_string(), "MY_RELU: the result has another type: expected f32[4], got f16[4]");
    let name = CallError::OtherOp { expected: "MY_RELU".into(), found: "YOURS".into() };
    assert_eq!(check("x = input f32[4]; y = ?YOURS f32[4] x"), Err(name));
    assert!(check("x = input f32[4]; y = relu x").is_err());
    assert!(check("x = input f32[4]; y = ?MY_RELU f32[4]").is_err());
}

#[test]
fn slots_beyond_the_last_source_and_beyond_sixteen_change_nothing() {
    let wide = CustomOp::elementwise("WIDE").overwriting(3).overwriting(16).overwriting(usize::MAX);
    assert!(wide.overwrites(3) && !wide.overwrites(16) && !wide.overwrites(usize::MAX));
    let mut context = Context::new();
    let x = context.input(F32, &[8]).unwrap();
    let y = context.custom(&wide, &[x], &[]).unwrap();
    let graph = finish(&mut context, y);
    assert_eq!((0..20).filter(|&slot| graph.graph().may_overwrite(y, slot)).collect::<Vec<_>>(), [0]);
    let missing = context.custom(&CustomOp::new("INTO").writing_into(usize::MAX), &[x], &[]).unwrap_err();
    assert_eq!(
        missing.to_string(),
        format!("INTO of (f32[8]): source {}: missing, though the operation writes into it", usize::MAX)
    );
}

/// A later node writes into a result in a memory with an extra lifetime: that write depends on the result, so it does
/// no harm to what the result was computed from.
#[test]
fn writes_into_a_result_that_took_over_its_source_keep_what_is_held() {
    for write in ["cpy x b", "?H f32[8]+0^b b x"] {
        let text = format!(
            "memory gpu align=4 hold=2\nx = input 8; a = sqr x; b = neg a; c = sqr x; d = {write}; e = add d c !output"
        );
        let graph: AssignedGraph = text.parse().unwrap();
        for options in [PlanOptions::default(), PlanOptions::default().with_reuse(steeve_graph::Reuse::Ggml)] {
            let plan = plan_graph(&graph, &options).unwrap();
            replay(&graph, &plan.places()).unwrap_or_else(|faults| panic!("{write}: {faults}"));
        }
    }
}

/// A declaration says which of two equal sources is the target.
#[test]
fn an_operation_may_write_into_a_source_that_it_has_twice() {
    let mut context = Context::new();
    let x = context.input(F32, &[8]).unwrap();
    let into = CustomOp::new("INTO").writing_into(1);
    let y = context.custom(&into, &[x, x], &[]).unwrap();
    let graph = finish(&mut context, y);
    assert_eq!(into.check(graph.graph(), y), Ok(()));
    assert_eq!(CustomOp::new("INTO").writing_into(0).check(graph.graph(), y), Ok(()));
    let beyond = CustomOp::new("INTO").writing_into(2).check(graph.graph(), y);
    assert!(beyond.is_err(), "{beyond:?}");
    peak(&graph);
}

#[test]
fn declared_parameters_must_all_be_given() {
    let leaky = CustomOp::elementwise("LEAKY").with_params(&["slope", "limit"]);
    assert_eq!(leaky.params(), ["slope", "limit"]);
    assert!(relu_of_any_params().params().is_empty());
    let mut context = Context::new();
    let x = context.input(F32, &[8]).unwrap();
    let error = context.custom(&leaky, &[x], &[1.into()]).unwrap_err();
    assert_eq!(error.to_string(), "LEAKY of (f32[8]): wrong number of parameters: expected 2 (slope, limit), got 1");
    let error = context.custom_shaped(&leaky, layout(&[8]), &[x], &[]).unwrap_err();
    assert!(matches!(error, GraphError::CustomShape { .. }), "{error}");
    let none = CustomOp::elementwise("NONE_OF_THEM").with_params(&[]);
    let error = context.custom(&none, &[x], &[1.into()]).unwrap_err();
    assert!(error.to_string().ends_with("wrong number of parameters: expected none, got 1"), "{error}");
    let y = context.custom(&leaky, &[x], &[1.into(), 0.5.into()]).unwrap();
    let z = context.custom(&relu_of_any_params(), &[y], &[3.into()]).unwrap();
    let graph = finish(&mut context, z);
    assert_eq!(leaky.check(graph.graph(), y), Ok(()));
    let one = CustomOp::elementwise("LEAKY").with_params(&["slope"]).check(graph.graph(), y).unwrap_err();
    assert_eq!(one.to_string(), "LEAKY: wrong number of parameters: expected 1 (slope), got 2");
    assert_eq!(CustomOp::elementwise("LEAKY").check(graph.graph(), y), Ok(()));
}

fn relu_of_any_params() -> CustomOp {
    CustomOp::elementwise("MY_RELU")
}
