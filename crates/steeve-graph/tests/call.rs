//! Typed calls: what was passed to a builder is what `Graph::call` gives back.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use steeve_graph::fuzz::{Choices, random_graph};
use steeve_graph::{
    AssignedGraph, CallError, Context, DataType, Directions, Gated, Glu, Graph, GraphError, Id, Layout, Op, OpCall,
    Param, Rope, RopeMode, ShapeError, SoftMax, SwigluOai, Tensor, TensorId, View,
};

mod recordings;

use recordings::each_graph;

/// Applies the operation of a call once more, to the same operands.
fn rebuilt(
    c: &mut Context,
    call: OpCall,
    layout: Layout,
    sources: &[Option<TensorId>],
) -> Result<TensorId, GraphError> {
    let shape = layout.ne();
    match call {
        OpCall::Dup { a } => c.dup(a),
        OpCall::Add { a, b } => c.add(a, b),
        OpCall::Sub { a, b } => c.sub(a, b),
        OpCall::Mul { a, b } => c.mul(a, b),
        OpCall::Div { a, b } => c.div(a, b),
        OpCall::Sqr { a } => c.sqr(a),
        OpCall::Sqrt { a } => c.sqrt(a),
        OpCall::Log { a } => c.log(a),
        OpCall::Sum { a } => c.sum(a),
        OpCall::SumRows { a } => c.sum_rows(a),
        OpCall::Mean { a } => c.mean(a),
        OpCall::Repeat { a } => c.repeat(a, &shape),
        OpCall::Concat { a, b, dim } => c.concat(a, b, dim as u32),
        OpCall::SiluBack { gradient, a } => c.apply(Op::SiluBack, &[Some(gradient), Some(a)], &[]),
        OpCall::Norm { a, epsilon } => c.norm(a, epsilon),
        OpCall::RmsNorm { a, epsilon } => c.rms_norm(a, epsilon),
        OpCall::RmsNormBack { gradient, a, epsilon } => {
            c.apply(Op::RmsNormBack, &[Some(gradient), Some(a)], &[epsilon.into()])
        }
        OpCall::GroupNorm { a, groups, epsilon } => c.group_norm(a, groups, epsilon),
        OpCall::L2Norm { a, epsilon } => c.l2_norm(a, epsilon),
        OpCall::MulMat { a, b } => c.mul_mat(a, b),
        OpCall::MulMatId { experts, b, ids } => c.mul_mat_id(experts, b, ids),
        OpCall::Scale { a, factor, bias } => c.scale_bias(a, factor, bias),
        OpCall::Cpy { a, b } => c.cpy(a, b),
        OpCall::Cont { a } => c.cont_shaped(a, &shape),
        OpCall::Reshape { a } => c.reshape(a, &shape),
        OpCall::View { a, offset } => {
            let [_, strides @ ..] = layout.nb();
            c.view_4d(a, shape, strides, offset)
        }
        OpCall::Permute { a, axes } => c.permute(a, axes.map(|axis| axis as u32)),
        OpCall::Transpose { a } => c.transpose(a),
        OpCall::GetRows { a, ids } => c.get_rows(a, ids),
        OpCall::SetRows { rows, ids, target } => c.set_rows(target, rows, ids),
        OpCall::DiagMaskInf { a, past } => c.diag_mask_inf(a, past),
        OpCall::DiagMaskZero { a, past } => c.diag_mask_zero(a, past),
        OpCall::SoftMax { a, mask, sinks: None, soft_max } => c.soft_max(a, mask, soft_max),
        OpCall::Rope { a, positions, factors, rope } => c.rope(a, positions, factors, rope),
        OpCall::Clamp { a, min, max } => c.clamp(a, min, max),
        OpCall::LeakyRelu { a, slope } => c.leaky_relu(a, slope),
        OpCall::Im2col { kernel, image, convolution, directions: Directions::Two, dtype } => {
            c.im2col(kernel, image, convolution, dtype)
        }
        OpCall::Im2col { kernel, image, convolution, directions: Directions::One, .. } => {
            // A convolution of rows is patches, two reshapes, a product and a reshape.
            let before = c.tensors().len();
            c.conv_1d(kernel, image, convolution)?;
            Ok(c.tensors().ids().nth(before).unwrap())
        }
        OpCall::Pool1d { a, pool, size, stride, padding } => c.pool_1d(a, pool, size, stride, padding),
        OpCall::Pool2d { a, pool, window } => c.pool_2d(a, pool, window),
        OpCall::Upscale { a, interpolation } => c.upscale(a, 2, interpolation),
        OpCall::Pad { a, before: [0, 0, 0, 0], behind } => c.pad(a, behind),
        OpCall::Argsort { a, order } => c.argsort(a, order),
        OpCall::TopK { a, k } => c.top_k(a, k),
        OpCall::Fill { like, value } => c.apply(Op::Fill, &[like], &[value.into()]),
        OpCall::FlashAttnExt { q, k, v, mask, sinks: None, attention } => c.flash_attn_ext(q, k, v, mask, attention),
        OpCall::Unary { kind, a } => c.unary(kind, a),
        OpCall::Xielu { a, numbers } => c.xielu(a, numbers),
        OpCall::Glu { kind, gated: Gated::Halves { a }, .. } => c.glu(kind, a),
        OpCall::Glu { kind, gated: Gated::Split { a, b }, .. } => c.glu_split(kind, a, b),
        OpCall::Custom {} => c.add_tensor(Tensor { op: Op::Custom, ..Tensor::new(layout) }, sources, &[]),
        call => panic!("no random graph has {call:?}"),
    }
}

#[test]
fn a_call_has_what_was_passed_to_the_builder() {
    let mut seen = std::collections::BTreeMap::new();
    for seed in 0..600 {
        let random = random_graph(&mut Choices::from_seed(seed));
        // These tensors in a context that can grow.
        let (random, mut context, mut ids) = (random.graph(), Context::new(), Vec::new());
        for id in random.tensors().ids() {
            let here = |id: TensorId| ids[id.index()];
            let sources: Vec<_> = random.sources(id).iter().map(|source| source.map(here)).collect();
            let tensor = *random.tensor(id);
            let view = tensor.view.map(|view| View { root: here(view.root), ..view });
            ids.push(context.add_tensor(Tensor { view, ..tensor }, &sources, random.params(id)).unwrap());
        }
        let nodes: Vec<_> = random.nodes().iter().map(|node| ids[node.index()]).collect();
        let graph = Graph::from_nodes(&context, &nodes).unwrap();
        for &node in nodes.iter().filter(|&&node| !matches!(graph.tensor(node).op, Op::None | Op::Other(_))) {
            let (tensor, sources) = (graph.tensor(node), graph.sources(node));
            let call = graph.call(node).unwrap_or_else(|error| panic!("{error}: {tensor:?}"));
            let again = rebuilt(&mut context, call, tensor.layout, sources).unwrap();
            let made = context.tensors();
            assert_eq!((made[again].op, made[again].layout), (tensor.op, tensor.layout), "{call:?}");
            assert_eq!(made.params(again), graph.params(node), "{call:?}");
            assert_eq!(made.sources(again), sources, "{call:?}");
            *seen.entry(tensor.op.name()).or_insert(0) += 1;
        }
    }
    assert!(seen.len() >= 42, "{} operations: {seen:?}", seen.len());
}

fn node(text: &str) -> (Graph, TensorId) {
    let graph = text.parse::<AssignedGraph>().unwrap().graph().clone();
    let node = *graph.nodes().last().unwrap();
    (graph, node)
}

fn called(text: &str) -> Result<OpCall, CallError> {
    let (graph, node) = node(text);
    graph.call(node)
}

#[test]
fn operands_that_may_be_missing_are_options() {
    let mut context = Context::new();
    let a = context.input(DataType::F32, &[8, 4, 2]).unwrap();
    let mask = context.input(DataType::F32, &[8, 4]).unwrap();
    let sinks = context.input(DataType::F32, &[2]).unwrap();
    let params = [Param::Float(0.5), Param::Float(0.0)];
    let with = context.apply(Op::SoftMax, &[Some(a), None, Some(sinks)], &params).unwrap();
    let masked = context.soft_max(a, Some(mask), SoftMax { scale: 0.5, max_bias: 0.0 }).unwrap();
    let graph = Graph::from_outputs(&context, &[with, masked]).unwrap();
    let soft_max = SoftMax { scale: 0.5, max_bias: 0.0 };
    assert_eq!(graph.call(with), Ok(OpCall::SoftMax { a, mask: None, sinks: Some(sinks), soft_max }));
    assert_eq!(graph.call(masked), Ok(OpCall::SoftMax { a, mask: Some(mask), sinks: None, soft_max }));
}

#[test]
fn every_mode_of_a_rope_comes_back() {
    for mode in RopeMode::ALL {
        let mut context = Context::new();
        let dims = if mode == RopeMode::Vision { 8 } else { 16 };
        let a = context.input(DataType::F32, &[16, 2, 3]).unwrap();
        let positions = context.input(DataType::I32, &[3 * mode.parts()]).unwrap();
        let factors = context.input(DataType::F32, &[8]).unwrap();
        let rope = Rope { dims, mode, context: 512, ext_factor: 1.0, sections: [1, 2, 3, 4], ..Rope::default() };
        let made = context.rope(a, positions, Some(factors), rope).unwrap();
        let graph = Graph::from_outputs(&context, &[made]).unwrap();
        assert_eq!(graph.call(made), Ok(OpCall::Rope { a, positions, factors: Some(factors), rope }));
        assert_eq!(RopeMode::from_ggml_id(mode.ggml_id().into()), Some(mode));
    }
    assert_eq!((RopeMode::from_ggml_id(4), RopeMode::from_ggml_id(-1)), (None, None));
}

#[test]
fn the_halves_of_a_row_come_in_either_order() {
    let (graph, y) = node("x = input f32[8,2]; y = swiglu_oai(1, 1.25, 1.5) x");
    let a = graph.leafs()[0];
    let swiglu = SwigluOai { alpha: 1.25, limit: 1.5 };
    assert_eq!(graph.call(y), Ok(OpCall::Glu { kind: Glu::SwigluOai, gated: Gated::SwappedHalves { a }, swiglu }));
}

#[test]
fn what_is_missing_or_does_not_fit_is_said() {
    let error = |text: &str| called(text).unwrap_err().to_string();
    assert_eq!(error("x = input f32[8]; y = rms_norm x"), "parameter 0 (epsilon): missing or out of range");
    assert_eq!(error("x = input f32[8]; y = group_norm(0, 0.5) x"), "parameter 0 (groups): missing or out of range");
    assert_eq!(error("x = input f32[8]; y = add f32[8] x -"), "source 1: missing");
    assert_eq!(
        error("x = input f32[8]; z = input f32[3]; y = add f32[8] x z"),
        "the second must fill the first when it is repeated"
    );
    assert_eq!(
        error("x = input f32[8]; y = sqr f32[4] x"),
        "result: another shape than the operation makes: expected [8, 1, 1, 1], got [4, 1, 1, 1]"
    );
    assert_eq!(error("x = input f32[8]; y = ?MY_RELU f32[8] x"), "MY_RELU: no rule that says what it makes");
    assert_eq!(called("x = input f32[8]; y = argsort(2) x"), Err(CallError::Param { index: 0, name: "order" }));
    assert_eq!(
        called("x = input f32[8]; y = mul_mat f32[8,8] x"),
        Err(CallError::Refused(ShapeError::Missing { slot: 1 }))
    );
}

/// Strides of a result are for kernels to check: ggml builds a node in place as a view of its source, with all its
/// gaps.
#[test]
fn strides_of_a_result_are_for_kernels_to_look_at() {
    let mut context = Context::new();
    let a = context.input(DataType::F32, &[4, 8]).unwrap();
    let turned = context.transpose(a).unwrap();
    let layout = context.tensor(turned).unwrap().layout;
    let node = context.add_tensor(Tensor { op: Op::Sqr, ..Tensor::new(layout) }, &[Some(turned)], &[]).unwrap();
    let graph = Graph::from_outputs(&context, &[node]).unwrap();
    assert_eq!(graph.call(node), Ok(OpCall::Sqr { a: turned }));
}

#[test]
fn a_view_of_other_bytes_is_no_call() {
    let (graph, view) = node("x = input f32[8]; y = view(8) f32[2]+8 x");
    assert!(graph.call(view).is_ok());
    let (graph, view) = node("x = input f32[8]; y = view(8) f32[2]+16 x");
    assert_eq!(graph.call(view), Err(CallError::View { slot: 0 }));
}

#[test]
fn ids_of_other_graphs_are_refused() {
    let (graph, _) = node("x = input f32[8]; y = sqr x");
    let mut context = Context::new();
    let other = context.input(DataType::F32, &[8]).unwrap();
    assert!(matches!(graph.call(other), Ok(_) | Err(CallError::Unknown(_))));
    let mut far = other;
    for _ in 0..4 {
        far = context.sqr(far).unwrap();
    }
    assert!(matches!(graph.call(far), Err(CallError::Unknown(_))));
}

/// Recordings have no parameters: a node that needs none is a call, any other is an error, and nothing panics.
#[test]
fn recorded_nodes_are_calls_or_errors() {
    let (mut calls, mut lacking, mut others) = (0, 0, std::collections::BTreeMap::new());
    each_graph(|path, recorded| {
        let graph = recorded.assigned.graph();
        for &node in graph.nodes() {
            match graph.call(node) {
                Ok(_) => calls += 1,
                Err(CallError::Param { .. } | CallError::NoRule { .. }) => lacking += 1,
                Err(error) => {
                    let op = graph.tensors().op_title(graph.tensor(node).op);
                    others.entry(format!("{op}: {error}")).or_insert_with(|| path.to_owned());
                }
            }
        }
    });
    println!("{calls} calls, {lacking} without parameters or rule");
    assert!(others.is_empty(), "{others:#?}");
    assert!(calls > 0 && lacking > 0);
}

/// A tensor with a dimension of 0 spans no bytes, so no kernel may read it on the strength of the other dimensions.
#[test]
fn operands_without_bytes_are_no_rows_to_read() {
    for text in [
        "a = input f32[8,2,3]; b = input f32[8,4]; i = input i32[2,3,0]; y = ?NONE f32[1] a; z = add_id f32[8,2,3] a b i !output",
        "a = input f32[8,2,3]; b = input f32[8,4,0]; i = input i32[2,3]; y = ?NONE f32[1] a; z = add_id f32[8,2,3] a b i !output",
        "x = input f32[8,1,2]; p = input i32[2]; f = input f32[4,0]; z = rope(8,0,0,10000.0,1.0,0.0,1.0,32.0,1.0) f32[8,1,2] x p f !output",
    ] {
        // The text may refuse it already; a recording does not look.
        let Ok(graph) = text.parse::<AssignedGraph>() else { continue };
        let graph = graph.graph();
        assert!(graph.call(*graph.nodes().last().unwrap()).is_err(), "{text}");
    }
}
