//! In place is exact: a result with the memory of a source is the one that it would be elsewhere, to the bit.
//!
//! Each operation, each slot that it may overwrite, random shapes, types and strides, one to three threads. Places are laid
//! out here and not by a planner: the result has exactly the memory of the source, that of any other source of its layout
//! (as in ggml's plans), or half of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::collections::BTreeMap;
use steeve_testkit::reference;

use reference::{Case, CaseBuilder, ThreadedBackends, Values, contents_of, judge, named, pack};
use steeve_cpu::CpuBackend;
use steeve_device::{Backend, Bindings, Bytes, DeviceError, Offset, SharedBuffer, Usage};
use steeve_graph::{DataType, Glu, Graph, GraphError, Id, Layout, Op, Param, Rope, RopeMode, Tensor, TensorId, Unary};

/// Returns every operation whose result may have the memory of a source, in all kinds.
fn operations() -> impl Iterator<Item = Op> {
    let unary = Unary::ALL.iter().copied().map(Op::Unary);
    let glu = Glu::ALL.iter().copied().map(Op::Glu);
    Op::PLAIN.iter().copied().chain(unary).chain(glu).filter(|op| slots(*op).next().is_some())
}

fn slots(op: Op) -> impl Iterator<Item = usize> {
    (0..16).filter(move |slot| op.overwrites_slot(*slot))
}

/// An operation with sources of random shapes, types and strides.
struct OpTrial {
    case: Case,
    node: TensorId,
}

/// How a source lies in its root.
#[derive(Clone, Copy)]
enum SourceForm {
    Plain,
    Reshaped,
    /// From the middle of a root on.
    Inner,
    /// With gaps behind the rows.
    Spread,
    /// With the first two dimensions exchanged.
    Turned,
    /// With the second and third dimension exchanged.
    Permuted,
}

const FORMS: &[SourceForm] = &[
    SourceForm::Plain,
    SourceForm::Plain,
    SourceForm::Reshaped,
    SourceForm::Inner,
    SourceForm::Spread,
    SourceForm::Turned,
    SourceForm::Permuted,
];

struct TrialBuilder {
    sketch: CaseBuilder,
    dtype: DataType,
    values: Values,
}

impl TrialBuilder {
    fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        self.sketch.choices.pick(items).expect("there is something to pick from")
    }

    fn shape(&mut self) -> [u64; 4] {
        if self.sketch.choices.once_in(12) {
            // Enough for several units of work.
            return self.pick(&[[1031, 37, 1, 1], [64, 160, 4, 1], [10, 13, 33, 9], [40_000, 1, 1, 1]]);
        }
        let row = self.pick(&[1, 2, 6, 7, 16, 30, 33, 64]);
        [row, self.pick(&[1, 2, 3, 5]), self.pick(&[1, 2, 3]), self.pick(&[1, 1, 2])]
    }

    fn source(&mut self, ne: [u64; 4]) -> Result<TensorId, GraphError> {
        let form = self.pick(FORMS);
        self.source_in(ne, form)
    }

    fn source_in(&mut self, ne: [u64; 4], form: SourceForm) -> Result<TensorId, GraphError> {
        let (dtype, values) = (self.dtype, self.values);
        let [s1, s2, s3] = [1, 2, 3].map(|dim| Layout::contiguous(dtype, &ne).map(|it| it.nb()[dim]));
        let (s1, s2, s3) = (s1?, s2?, s3?);
        let size = dtype.block_bytes();
        let sketch = &mut self.sketch;
        match form {
            SourceForm::Plain => sketch.input(dtype, &ne, values),
            SourceForm::Reshaped => {
                let leaf = sketch.input(dtype, &[ne.iter().product()], values)?;
                sketch.context.reshape(leaf, &ne)
            }
            SourceForm::Inner => {
                let leaf = sketch.input(dtype, &[ne.iter().product::<u64>() + 23], values)?;
                sketch.context.view_4d(leaf, ne, [s1, s2, s3], Bytes(7 * size))
            }
            SourceForm::Spread => {
                let leaf = sketch.input(dtype, &[ne[0] + 3, ne[1], ne[2], ne[3]], values)?;
                let [_, s1, s2, s3] = sketch.layout(leaf).nb();
                sketch.context.view_4d(leaf, ne, [s1, s2, s3], Bytes(size))
            }
            SourceForm::Turned => {
                let leaf = sketch.input(dtype, &[ne[1], ne[0], ne[2], ne[3]], values)?;
                sketch.context.transpose(leaf)
            }
            SourceForm::Permuted => {
                let leaf = sketch.input(dtype, &[ne[0], ne[2], ne[1], ne[3]], values)?;
                sketch.context.permute(leaf, [0, 2, 1, 3])
            }
        }
    }

    /// A shape that fills `ne` when it is repeated.
    fn part_of(&mut self, ne: [u64; 4]) -> [u64; 4] {
        ne.map(|n| {
            let divisors: Vec<u64> = (1..=n).filter(|part| n.is_multiple_of(*part)).collect();
            let part = self.pick(&divisors);
            self.pick(&[n, n, 1, part])
        })
    }
}

/// Sources and parameters of an operation.
fn sources(maker: &mut TrialBuilder, op: Op) -> Result<(Vec<TensorId>, Vec<Param>), GraphError> {
    let float = Param::Float;
    let ne = maker.shape();
    let a = maker.source(ne)?;
    Ok(match op {
        Op::Unary(Unary::Xielu) => (vec![a], [0.8, 0.9, 0.5, -1e-6].map(float).into()),
        Op::Unary(_) | Op::Sqr | Op::Sqrt | Op::Log => (vec![a], vec![]),
        Op::Scale => (vec![a], vec![float(0.7), float(0.3)]),
        Op::Clamp => (vec![a], vec![float(-0.5), float(0.75)]),
        Op::LeakyRelu => (vec![a], vec![float(-0.1)]),
        Op::Fill => (vec![a], vec![float(2.5)]),
        Op::DiagMaskInf | Op::DiagMaskZero => (vec![a], vec![Param::Int(maker.pick(&[0, 1, 3]))]),
        Op::Norm | Op::RmsNorm | Op::L2Norm => (vec![a], vec![float(1e-5)]),
        Op::GroupNorm => (vec![a], vec![Param::Int(maker.pick(&[1, 2, 3])), float(1e-5)]),
        Op::Add | Op::Sub | Op::Mul | Op::Div => {
            let shape = if maker.sketch.choices.once_in(2) { ne } else { maker.part_of(ne) };
            (vec![a, maker.source(shape)?], vec![])
        }
        Op::Glu(_) | Op::SiluBack => (vec![a, maker.source(ne)?], vec![]),
        Op::RmsNormBack => (vec![a, maker.source(ne)?], vec![float(1e-3)]),
        Op::SoftMaxBack => (vec![a, maker.source(ne)?], vec![float(0.5), float(0.0)]),
        Op::Add1 => (vec![a, maker.source([1; 4])?], vec![]),
        Op::AddId => {
            // As many rows as the first source has, so that a layout can be the same.
            let b = maker.source([ne[0], ne[1], 1, 1])?;
            let ids = maker.sketch.input(DataType::I32, &ne[1..3], Values::Below(ne[1]))?;
            (vec![a, b, ids], vec![])
        }
        Op::SoftMax => {
            let numbers = |bias: f32| vec![float(0.5), float(bias)];
            let heads = maker.pick(&[1, ne[2]]);
            let mask_type = maker.pick(&[DataType::F32, DataType::F16]);
            let mask = maker.sketch.input(mask_type, &[ne[0], ne[1], heads, 1], Values::Within(2.0))?;
            match maker.sketch.choices.below(3) {
                0 => (vec![a], numbers(0.0)),
                1 => (vec![a, mask], numbers(8.0)),
                _ => {
                    let sinks = maker.sketch.input(DataType::F32, &[ne[2]], Values::Within(1.0))?;
                    (vec![a, mask, sinks], numbers(0.0))
                }
            }
        }
        Op::Rope | Op::RopeBack => rope(maker, a, ne)?,
        op => panic!("no case for {op:?}"),
    })
}

fn rope(maker: &mut TrialBuilder, a: TensorId, ne: [u64; 4]) -> Result<(Vec<TensorId>, Vec<Param>), GraphError> {
    let mode = maker.pick(&[RopeMode::Normal, RopeMode::Neox, RopeMode::Sections]);
    let positions = ne[2] * mode.parts();
    let positions = maker.sketch.input(DataType::I32, &[positions], Values::Below(50))?;
    let even = (ne[0] / 2 * 2) as u32;
    let numbers = Rope { dims: maker.pick(&[even, even / 4 * 2]), mode, sections: [1, 2, 1, 1], ..Rope::default() };
    // The builder knows the order of the parameters.
    let mut other = maker.sketch.context.clone();
    let built = other.rope(a, positions, None, numbers)?;
    let params = other.tensors().params(built).to_vec();
    if maker.sketch.choices.once_in(2) {
        return Ok((vec![a, positions], params));
    }
    let factors = maker.sketch.input(DataType::F32, &[ne[0]], Values::Positive)?;
    Ok((vec![a, positions, factors], params))
}

/// The result has the layout of the source in `slot`, gaps included; `None` if it can't.
fn trial(op: Op, slot: usize, seed: u64) -> Option<OpTrial> {
    let mut sketch = CaseBuilder::new(seed);
    let dtype = sketch.choices.pick(&[DataType::F32, DataType::F32, DataType::F16, DataType::Bf16])?;
    let values = if matches!(op, Op::Sqrt | Op::Log | Op::Div) { Values::Positive } else { Values::Within(2.0) };
    let mut maker = TrialBuilder { sketch, dtype, values };
    let (sources, params) = sources(&mut maker, op).ok()?;
    let mut context = maker.sketch.context;
    let layout = context.tensor(*sources.get(slot)?).ok()?.layout;
    if layout.ne() != context.tensor(sources[0]).ok()?.layout.ne() {
        return None;
    }
    let all: Vec<Option<TensorId>> = sources.iter().copied().map(Some).collect();
    let node = context.add_tensor(Tensor { op, ..Tensor::new(layout) }, &all, &params).ok()?;
    let graph = Graph::from_outputs(&context, &[node]).ok()?;
    Some(OpTrial { case: Case { context, graph, contents: maker.sketch.contents }, node })
}

/// Where each root starts in one buffer, with room between them.
#[derive(Clone)]
struct RootOffsets {
    starts: Vec<Option<u64>>,
    size: u64,
}

impl RootOffsets {
    fn apart(graph: &Graph) -> Self {
        let mut end = 0;
        let starts = graph.tensors().pairs().map(|(_, tensor)| {
            let start: u64 = end + 64;
            (!tensor.is_view()).then(|| end = (start + tensor.nbytes().get()).next_multiple_of(32)).map(|()| start)
        });
        // The result has the highest id and so the last place: wherever it is moved, it stays within the buffer.
        let starts = starts.collect();
        Self { starts, size: end + 64 }
    }

    /// Where a tensor starts.
    fn of(&self, graph: &Graph, id: TensorId) -> u64 {
        let root = self.starts[graph.root(id).index()].expect("every root has an offset");
        root + graph.tensors().offset(id).get()
    }

    /// Returns these offsets with a root elsewhere.
    fn moved(&self, root: TensorId, start: u64) -> Self {
        let mut places = self.clone();
        places.starts[root.index()] = Some(start);
        places
    }
}

/// Runs a trial in these places. The bytes of the result without gaps; all others must stay what they are.
fn run(trial: &OpTrial, places: &RootOffsets, backend: &CpuBackend) -> Result<Vec<u8>, String> {
    let words = |error: DeviceError| error.to_string();
    let (graph, node) = (&trial.case.graph, trial.node);
    let buffer = SharedBuffer::allocate(&backend.buffer_type(), Bytes(places.size), Usage::Compute).map_err(words)?;
    buffer.clear(0xFF).map_err(words)?;
    let mut bindings = Bindings::new();
    for (id, tensor) in graph.tensors().pairs() {
        bindings.bind(id, &buffer, Offset(places.of(graph, id)), tensor.nbytes()).map_err(words)?;
    }
    for (leaf, bytes) in &trial.case.contents {
        buffer.write(Offset(places.of(graph, *leaf)), bytes).map_err(words)?;
    }
    let image = || -> Result<Vec<u8>, String> {
        let mut bytes = vec![0; places.size as usize];
        buffer.read(Offset(0), &mut bytes).map_err(words)?;
        Ok(bytes)
    };
    let before = image()?;
    let mut prepared = backend.prepare(graph, 0..graph.nodes().len(), &bindings).map_err(words)?;
    backend.submit(&mut *prepared).map_err(words)?;
    let after = image()?;
    // Gaps are none of its bytes either.
    let (start, layout) = (places.of(graph, node) as usize, graph.tensor(node).layout);
    let mut mine = vec![false; before.len()];
    let size = layout.dtype().block_bytes() as usize;
    layout.block_offsets().for_each(|at| mine[start + at as usize..][..size].fill(true));
    match (0..before.len()).find(|at| !mine[*at] && before[*at] != after[*at]) {
        Some(at) => Err(format!("byte {at} of the buffer was {:#04x} and is {:#04x}", before[at], after[at])),
        None => Ok(pack(&layout, &after[start..])),
    }
}

/// What happened to the trials of an operation and a slot.
#[derive(Default)]
struct TrialCounts {
    ran: usize,
    with_gaps: usize,
    refused: Vec<String>,
}

fn check(trial: &OpTrial, slot: usize, backends: &ThreadedBackends, count: &mut TrialCounts) -> Result<(), String> {
    let (graph, node) = (&trial.case.graph, trial.node);
    if let Err(refusal) = backends.one.supports(graph, node) {
        count.refused.push(refusal.to_string());
        return Ok(());
    }
    let apart = RootOffsets::apart(graph);
    let wanted = run(trial, &apart, &backends.one)?;
    judge(graph.tensors(), &contents_of(&trial.case), node, &wanted)?;
    let layout = graph.tensor(node).layout;
    let same = |what: String, places: &RootOffsets, backend: &CpuBackend| -> Result<(), String> {
        let threads = backend.threads();
        let made = run(trial, places, backend).map_err(|why| format!("{what}, {threads} threads: {why}"))?;
        match wanted.iter().zip(&made).position(|(wanted, made)| wanted != made) {
            None => Ok(()),
            Some(at) => {
                let element = at / layout.dtype().block_bytes() as usize;
                Err(format!("{what}, {threads} threads: element {element} is another one than elsewhere"))
            }
        }
    };
    let alone = |slot: usize| {
        let root = |slot: usize| graph.sources(node)[slot].map(|source| graph.root(source));
        (0..graph.sources(node).len()).all(|other| other == slot || root(other) != root(slot))
    };
    for (other, source) in graph.sources(node).iter().enumerate() {
        let Some(source) = *source else { continue };
        let start = apart.of(graph, source);
        if graph.tensor(source).layout == layout && alone(other) {
            let places = apart.moved(node, start);
            for backend in [&backends.one, &backends.two, &backends.three] {
                same(format!("on slot {other}"), &places, backend)?;
            }
        }
        // Half on it and half off: an operation never promises that, and the kernel must not see it.
        let places = apart.moved(node, start + layout.dtype().block_bytes());
        same(format!("beside slot {other}"), &places, &backends.two)?;
    }
    count.ran += usize::from(graph.sources(node)[slot].is_some_and(|source| graph.tensor(source).layout == layout));
    count.with_gaps += usize::from(!layout.is_contiguous());
    Ok(())
}

/// So many trials of each operation and slot, or as many as the environment asks for.
fn trials() -> u64 {
    std::env::var("STEEVE_PROOF").ok().and_then(|text| text.parse().ok()).unwrap_or(40)
}

#[test]
fn a_result_on_a_source_is_what_it_is_elsewhere() {
    let backends = ThreadedBackends::new();
    let mut counts: BTreeMap<(String, usize), TrialCounts> = BTreeMap::new();
    let context = steeve_graph::Context::new();
    for (index, op) in operations().enumerate() {
        for slot in slots(op) {
            let title = context.tensors().op_title(op).to_string();
            let count = counts.entry((title, slot)).or_default();
            for seed in (0..trials()).map(|seed| 10_000 * index as u64 + seed) {
                let Some(trial) = trial(op, slot, seed) else { continue };
                if let Err(what) = check(&trial, slot, &backends, count) {
                    let name = named(&trial.case.graph, trial.node);
                    panic!("seed {seed}, slot {slot}: {name}: {what}\n{}", trial.case.text());
                }
            }
        }
    }
    for ((title, slot), count) in &counts {
        let TrialCounts { ran, with_gaps, refused } = count;
        println!("{title} {slot}: {ran} ran, {with_gaps} with gaps, {} refused {:?}", refused.len(), refused.last());
        assert!(
            *ran as u64 * 3 >= trials() || trials() < 20,
            "only {ran} trials of {title} on slot {slot} ran; {:?}",
            refused.last()
        );
    }
}
