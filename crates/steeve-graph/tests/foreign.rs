//! An id of another context or graph, or from before a rewind, is refused although its number exists.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use steeve_graph::{
    AssignedGraph, Bytes, Context, Convolution, CustomOp, DataType, Flags, FlashAttention, Glu, Graph, GraphError, Id,
    Interpolation, Layout, Op, PlanOptions, Pool, Rope, SoftMax, SortOrder, Tensor, TensorId, Unary, View, Window,
    plan_graph, replay,
};

const F32: DataType = DataType::F32;

/// Tensors of shapes that the operations below take.
struct Tensors {
    a: TensorId,
    b: TensorId,
    rows: TensorId,
    long_rows: TensorId,
    positions: TensorId,
    halves: TensorId,
    experts: TensorId,
    expert_ids: TensorId,
    kernel: TensorId,
}

fn context() -> (Context, Tensors) {
    let mut context = Context::new();
    let tensors = Tensors {
        a: context.input(F32, &[16, 4]).unwrap(),
        b: context.input(F32, &[16, 4]).unwrap(),
        rows: context.input(DataType::I32, &[2]).unwrap(),
        long_rows: context.input(DataType::I64, &[4]).unwrap(),
        positions: context.input(DataType::I32, &[1]).unwrap(),
        halves: context.external(DataType::F16, &[16, 8]).unwrap(),
        experts: context.external(F32, &[16, 8, 4]).unwrap(),
        expert_ids: context.input(DataType::I32, &[4, 1]).unwrap(),
        kernel: context.external(DataType::F16, &[3, 1, 1, 4]).unwrap(),
    };
    (context, tensors)
}

type Call = fn(&mut Context, &Tensors) -> Result<(), GraphError>;

/// Every function of a context that takes an id.
const CALLS: &[(&str, Call)] = &[
    ("tensor", |c, t| c.tensor(t.a).map(drop)),
    ("set_name", |c, t| c.set_name(t.a, "a")),
    ("set_input", |c, t| c.set_input(t.a)),
    ("set_output", |c, t| c.set_output(t.a)),
    ("keep", |c, t| c.keep(t.a)),
    ("set_param", |c, t| c.set_param(t.a)),
    ("set_loss", |c, t| c.set_loss(t.a)),
    ("set_external", |c, t| c.set_external(t.a)),
    ("apply", |c, t| c.apply(Op::Sqr, &[Some(t.a)], &[]).map(drop)),
    ("add_tensor", |c, t| c.add_tensor(Tensor::new(Layout::contiguous(F32, &[4])?), &[Some(t.a)], &[]).map(drop)),
    ("add_tensor, a view", |c, t| {
        let view = Some(View { root: t.a, offset: Bytes(0) });
        c.add_tensor(Tensor { view, ..Tensor::new(Layout::contiguous(F32, &[4])?) }, &[], &[]).map(drop)
    }),
    ("unary", |c, t| c.unary(Unary::Neg, t.a).map(drop)),
    ("add", |c, t| c.add(t.a, t.b).map(drop)),
    ("glu", |c, t| c.glu(Glu::Swiglu, t.a).map(drop)),
    ("glu_split", |c, t| c.glu_split(Glu::Swiglu, t.a, t.b).map(drop)),
    ("scale", |c, t| c.scale(t.a, 2.0).map(drop)),
    ("clamp", |c, t| c.clamp(t.a, 0.0, 1.0).map(drop)),
    ("norm", |c, t| c.norm(t.a, 1e-5).map(drop)),
    ("group_norm", |c, t| c.group_norm(t.a, 1, 1e-5).map(drop)),
    ("diag_mask_inf", |c, t| c.diag_mask_inf(t.a, 1).map(drop)),
    ("mul_mat", |c, t| c.mul_mat(t.a, t.b).map(drop)),
    ("mul_mat_id", |c, t| {
        let b = c.input(F32, &[16, 4, 1])?;
        c.mul_mat_id(t.experts, b, t.expert_ids).map(drop)
    }),
    ("sum", |c, t| c.sum(t.a).map(drop)),
    ("get_rows", |c, t| c.get_rows(t.a, t.rows).map(drop)),
    ("set_rows", |c, t| c.set_rows(t.a, t.b, t.long_rows).map(drop)),
    ("concat", |c, t| c.concat(t.a, t.b, 0).map(drop)),
    ("repeat", |c, t| c.repeat(t.a, &[16, 8]).map(drop)),
    ("cont", |c, t| c.cont(t.a).map(drop)),
    ("cont_shaped", |c, t| c.cont_shaped(t.a, &[64]).map(drop)),
    ("argsort", |c, t| c.argsort(t.a, SortOrder::Ascending).map(drop)),
    ("top_k", |c, t| c.top_k(t.a, 2).map(drop)),
    ("custom", |c, t| c.custom(&CustomOp::elementwise("F"), &[t.a], &[]).map(drop)),
    ("view_1d", |c, t| c.view_1d(t.a, 4, Bytes(0)).map(drop)),
    ("view_2d", |c, t| c.view_2d(t.a, [16, 2], 64, Bytes(0)).map(drop)),
    ("reshape", |c, t| c.reshape(t.a, &[64]).map(drop)),
    ("permute", |c, t| c.permute(t.a, [1, 0, 2, 3]).map(drop)),
    ("transpose", |c, t| c.transpose(t.a).map(drop)),
    ("cpy", |c, t| c.cpy(t.a, t.b).map(drop)),
    ("soft_max", |c, t| c.soft_max(t.a, Some(t.b), SoftMax::default()).map(drop)),
    ("rope", |c, t| c.rope(t.a, t.positions, None, Rope { dims: 4, ..Rope::default() }).map(drop)),
    ("flash_attn_ext", |c, t| c.flash_attn_ext(t.a, t.halves, t.halves, None, FlashAttention::default()).map(drop)),
    ("conv_2d", |c, t| c.conv_2d(t.kernel, t.a, Convolution { padding: [1, 0], ..Convolution::default() }).map(drop)),
    ("pool_1d", |c, t| c.pool_1d(t.a, Pool::Max, 2, 2, 0).map(drop)),
    ("pool_2d", |c, t| c.pool_2d(t.a, Pool::Max, Window { size: [2, 1], stride: [2, 1], padding: [0.0; 2] }).map(drop)),
    ("upscale", |c, t| c.upscale(t.a, 2, Interpolation::Nearest).map(drop)),
    ("pad", |c, t| c.pad(t.a, [1, 0, 0, 0]).map(drop)),
    ("from_outputs", |c, t| Graph::from_outputs(c, &[t.a]).map(drop)),
    ("from_nodes", |c, t| Graph::from_nodes(c, &[t.a]).map(drop)),
    ("expand", |c, t| Graph::from_outputs(c, &[])?.expand(c, &[t.a])),
];

#[test]
fn no_function_of_a_context_takes_an_id_of_another() {
    for (name, call) in CALLS {
        let (mut own, tensors) = context();
        call(&mut own, &tensors).unwrap_or_else(|error| panic!("{name} of its own: {error}"));
        let (mut other, _) = context();
        let before = other.tensors().len();
        let refused = call(&mut other, &tensors);
        assert!(matches!(refused, Err(GraphError::Foreign { .. })), "{name}: {refused:?}");
        assert!(other.tensors().len() <= before + 1, "{name} has built something");
        // A number that means no particular context is taken by its number.
        let bare = |id: TensorId| TensorId::from_index(id.index()).unwrap();
        let Tensors { a, b, rows, long_rows, positions, halves, experts, expert_ids, kernel } = tensors;
        let [a, b, rows, long_rows, positions, halves, experts, expert_ids, kernel] =
            [a, b, rows, long_rows, positions, halves, experts, expert_ids, kernel].map(bare);
        let tensors = Tensors { a, b, rows, long_rows, positions, halves, experts, expert_ids, kernel };
        call(&mut other, &tensors).unwrap_or_else(|error| panic!("{name} by number: {error}"));
    }
}

#[test]
fn an_id_from_before_a_rewind_is_refused_though_its_number_is_used_again() {
    let mut context = Context::new();
    let weight = context.external(F32, &[4]).unwrap();
    let mark = context.mark();
    let old = context.input(F32, &[4]).unwrap();
    let old_graph = Graph::from_outputs(&context, &[old]).unwrap();
    context.rewind(mark).unwrap();
    let new = context.input(F32, &[4]).unwrap();
    assert_eq!(old, new);
    let error = context.add(weight, old).unwrap_err();
    assert_eq!(
        error.to_string(),
        "tensor 1: foreign id: expected one of this context or graph, got one of another or from before a rewind"
    );
    assert!(context.add(weight, new).is_ok());
    // The graph that was made before knows the old one, and not the new.
    assert!(old_graph.tensors().get(old).is_some() && old_graph.tensors().get(new).is_none());
    assert!(old_graph.tensors().get(weight).is_some());
}

#[test]
fn clones_share_what_they_had_and_nothing_that_came_later() {
    let mut one = Context::new();
    let shared = one.input(F32, &[4]).unwrap();
    let mut other = one.clone();
    let (mine, yours) = (one.neg(shared).unwrap(), other.sqr(shared).unwrap());
    assert_eq!(mine, yours);
    assert!(one.neg(yours).is_err() && other.neg(mine).is_err());
    assert!(one.neg(mine).is_ok() && other.neg(yours).is_ok());
    // Making a graph is no reason to forget what was built before or after.
    let graph = Graph::from_outputs(&one, &[mine]).unwrap();
    let later = one.neg(mine).unwrap();
    assert!(one.neg(shared).is_ok() && one.neg(mine).is_ok() && one.neg(later).is_ok());
    assert!(graph.tensors().get(later).is_none() && graph.tensors().get(yours).is_none());
}

#[test]
fn a_mark_of_another_context_is_refused() {
    let (mut one, mut other) = (Context::new(), Context::new());
    let empty = one.mark();
    let x = one.input(F32, &[4]).unwrap();
    other.input(F32, &[4]).unwrap();
    let mark = one.mark();
    assert!(other.rewind(mark).is_err());
    one.neg(x).unwrap();
    one.rewind(mark).unwrap();
    assert_eq!(one.tensors().len(), 1);
    // Also one from before anything was built.
    assert!(other.rewind(empty).is_err() && other.rewind(Context::new().mark()).is_err());
    assert_eq!(other.tensors().len(), 1);
    assert!(one.rewind(empty).is_ok() && one.rewind(mark).is_err());
    let error = one.rewind(mark).unwrap_err().to_string();
    assert!(error.contains("mark: not of this context, or from before a rewind"), "{error}");
}

#[test]
fn parts_refuse_what_is_none_of_theirs() {
    let parse = |text: &str| text.parse::<Graph>().unwrap();
    let (graph, other) = (parse("x = input 4; y = neg x"), parse("x = input 4; y = neg x"));
    let (x, y) = (graph.leafs()[0], graph.nodes()[0]);
    let parts = || other.clone().into_parts();
    let foreign = |error: Result<Graph, GraphError>| matches!(error, Err(GraphError::Foreign { .. }));
    assert!(matches!(parts().set_source(y, 0, other.leafs()[0]), Err(GraphError::Foreign { .. })));
    assert!(matches!(parts().add_flags(y, Flags::OUTPUT), Err(GraphError::Foreign { .. })));
    assert!(matches!(parts().set_name(y, "stolen"), Err(GraphError::Foreign { .. })));
    let mut wrong = parts();
    wrong.set_source(other.nodes()[0], 0, x).unwrap();
    assert!(foreign(wrong.finish()));
    let mut wrong = parts();
    wrong.set_nodes(vec![y]);
    assert!(foreign(wrong.finish()));
    let mut wrong = parts();
    wrong.leaf(x);
    assert!(foreign(wrong.finish()));
    let mut wrong = parts();
    let view = Some(View { root: x, offset: Bytes(0) });
    wrong.push(Tensor { view, ..Tensor::new(Layout::contiguous(F32, &[4]).unwrap()) }, &[]).unwrap();
    assert!(foreign(wrong.finish()));
    // Detached parts go by numbers, and so does their graph.
    let mut parts = parts();
    parts.detach();
    parts.set_nodes(vec![y]);
    let detached = parts.finish().unwrap();
    assert!(detached.tensors().get(x).is_some() && detached.tensors().get(other.leafs()[0]).is_some());
}

#[test]
fn a_graph_grows_from_its_own_context_alone() {
    let build = |context: &mut Context| {
        let x = context.input(F32, &[4]).unwrap();
        context.neg(x).unwrap()
    };
    let (mut one, mut other) = (Context::new(), Context::new());
    let (mark, y) = (one.mark(), build(&mut one));
    let mut graph = Graph::from_outputs(&one, &[y]).unwrap();
    // Another one that looks alike, and the own one built again.
    let z = build(&mut other);
    assert!(matches!(graph.expand(&other, &[z]), Err(GraphError::OtherContext { .. })));
    one.rewind(mark).unwrap();
    let again = build(&mut one);
    assert!(matches!(graph.expand(&one, &[again]), Err(GraphError::OtherContext { .. })));
    assert!(graph.nodes().iter().all(|node| graph.tensors().get(*node).is_some()));
}

#[test]
fn ids_that_a_graph_gives_out_are_its_own() {
    let parse = |text: &str| text.parse::<AssignedGraph>().unwrap();
    let text = "x = input 4; y = neg x; v = view 2+0 y; z = sqr v !output";
    let (graph, other) = (parse(text), parse(text));
    let (graph, other) = (graph.graph(), other.graph());
    let mut given: Vec<TensorId> = graph.leafs().iter().chain(graph.nodes()).copied().collect();
    given.extend(graph.tensors().ids());
    given.extend(graph.tensors().pairs().map(|(id, _)| id));
    given.extend(graph.nodes().iter().flat_map(|node| graph.sources(*node).iter().flatten()));
    given.extend(graph.nodes().iter().map(|node| graph.root(*node)));
    for id in given {
        assert!(graph.tensors().get(id).is_some() && other.tensors().get(id).is_none(), "{id}");
    }
}

#[test]
fn where_an_id_comes_from_takes_no_part_in_plans() {
    let build = |rows: u64| {
        let mut context = Context::new();
        let x = context.input(F32, &[8, rows]).unwrap();
        let y = context.neg(x).unwrap();
        context.set_output(y).unwrap();
        (AssignedGraph::from(Graph::from_outputs(&context, &[y]).unwrap()), x, y)
    };
    let ((one, x, y), (same, other_x, other_y), (smaller, ..)) = (build(4), build(4), build(2));
    assert_eq!(one, same);
    assert!(one.graph().is_like(same.graph()));
    assert_eq!(one.fingerprint(), same.fingerprint());
    let plan = plan_graph(&one, &PlanOptions::default()).unwrap();
    plan.fits(&same).unwrap();
    plan.fits(&smaller).unwrap();
    replay(&same, &plan.places()).unwrap();
    assert_eq!((plan.place(x), plan.place(y)), (plan.place(other_x), plan.place(other_y)));
    assert!(plan.place(other_x).is_some() && x == other_x);
    assert!(x.is_same(x) && !x.is_same(other_x) && x.is_same(TensorId::from_index(0).unwrap()));
}

#[test]
fn an_id_is_small_and_says_nothing_of_its_origin() {
    assert_eq!(size_of::<Option<TensorId>>(), 8);
    let mut context = Context::new();
    let x = context.input(F32, &[4]).unwrap();
    assert_eq!((format!("{x}"), format!("{x:?}")), ("0".into(), "TensorId(0)".into()));
}
