//! The proof by running: any graph gives the same bits wherever its tensors are located, and the right ones.
//!
//! Random graphs of all operations are run without reuse, in ggml's plan, and in plans of ours, in memory full of `0xFF`.
//! `STEEVE_PROOF=100000` asks for more of them, and `--nocapture` shows what was in them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use reference::{Case, CaseBuilder, CaseSize, OpCoverage, ThreadedBackends, Values, named, prove, random_case};
use steeve_graph::{
    Convolution, DataType, FlashAttention, Glu, Graph, GraphError, Interpolation, Op, Param, Pool, SoftMax, TensorId,
    Unary, Window,
};
use steeve_testkit::reference;

const F32: DataType = DataType::F32;

/// So many seeds, or as many as the environment asks for.
fn seeds(usual: u64) -> u64 {
    std::env::var("STEEVE_PROOF").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// What happened in all graphs of a test.
#[derive(Default)]
struct ProofTotals {
    census: OpCoverage,
    graphs: usize,
    nodes: usize,
    /// Graphs in which ggml's plan loses something that is read.
    without_ggml: usize,
    reordered: usize,
    /// Nodes with the memory of a source in the plan of most reuse.
    take_overs: usize,
    /// The bytes of all plans without reuse, and with most of it.
    peaks: [u64; 2],
}

fn prove_seeds(seeds: u64, size: CaseSize) -> ProofTotals {
    let (backends, mut totals) = (ThreadedBackends::new(), ProofTotals::default());
    for seed in 0..seeds {
        let case = random_case(seed, size, &backends.one, &mut totals.census);
        let mut used = Vec::new();
        let runs = match prove(&case, &backends, &mut |node, part| used.push((node, part))) {
            Ok(runs) => runs,
            Err(what) => panic!("seed {seed}, {size:?}: {what}"),
        };
        for (node, part) in used {
            let count = totals.census.of(&case.graph, node);
            (count.judged, count.worst) = (count.judged + 1, count.worst.max(part));
        }
        let last = runs.last().expect("there is always a run");
        totals.graphs += 1;
        totals.nodes += last.nodes.len();
        totals.without_ggml += 7 - runs.len();
        totals.reordered += usize::from(last.is_reordered);
        totals.take_overs += last.take_overs.len();
        for (sum, ran) in totals.peaks.iter_mut().zip([&runs[0], last]) {
            *sum += ran.peak.get();
        }
    }
    let ProofTotals { graphs, nodes, without_ggml, take_overs, reordered, peaks: [apart, reused], .. } = totals;
    println!("{reordered} in another order");
    assert!(reordered * 20 > graphs, "{reordered} of {graphs}");
    println!("{graphs} graphs, {without_ggml} not in ggml's plan; {nodes} nodes, {take_overs} in place");
    println!("{apart} bytes without reuse, {reused} with");
    for (what, count) in &totals.census.0 {
        let part = 100.0 * count.worst;
        println!("{:>6} judged, {:>4} refused, {part:>3.0}% of the tolerance  {what}", count.judged, count.refused);
    }
    totals
}

/// All operations that make something, by ggml's names.
fn titles() -> impl Iterator<Item = &'static str> {
    let plain = Op::PLAIN.iter().filter(|op| !op.writes_nothing() && **op != Op::Custom).map(|op| op.name());
    plain.chain(Unary::ALL.iter().map(|kind| kind.name())).chain(Glu::ALL.iter().map(|kind| kind.name()))
}

#[test]
fn every_plan_of_a_graph_gives_the_same_bits() {
    let count = seeds(2000);
    let totals = prove_seeds(count, CaseSize::Small);
    if count >= 2000 {
        for title in titles() {
            let judged = totals.census.judged(title);
            assert!(judged >= 10, "only {judged} nodes of {title} were judged");
        }
        assert!(totals.without_ggml * 10 < totals.graphs, "{} graphs without ggml's plan", totals.without_ggml);
        assert!(totals.take_overs * 20 > totals.nodes, "{} of {} in place", totals.take_overs, totals.nodes);
        assert!(totals.peaks[1] < totals.peaks[0], "reuse takes {:?} bytes", totals.peaks);
    }
}

#[test]
fn so_does_one_whose_work_is_cut_into_pieces() {
    let totals = prove_seeds(seeds(72).min(2000), CaseSize::Large);
    assert!(totals.nodes > 2 * totals.graphs, "the graphs are almost empty");
}

/// Returns a graph of nodes in this order, whose results are outputs where no node reads them.
fn case(mut sketch: CaseBuilder, nodes: &[TensorId], outputs: &[TensorId]) -> Result<Case, GraphError> {
    for output in outputs {
        sketch.context.set_output(*output)?;
    }
    let graph = Graph::from_nodes(&sketch.context, nodes)?;
    Ok(Case { context: sketch.context, graph, contents: sketch.contents })
}

/// ggml's plan puts the node of each of these onto a slot that its operation does not give away.
fn on_any_slot() -> Result<Vec<(Case, TensorId, u32)>, GraphError> {
    let mut cases = Vec::new();
    let float = Param::Float;
    // Each: operation, sources made of shapes, parameters, the slot that dies. The others are read once more behind it.
    type Row = (Op, &'static [&'static [u64]], Vec<Param>, u32);
    let rows: [Row; 6] = [
        (Op::SoftMax, &[&[33, 5], &[33, 5]], vec![float(0.5), float(0.0)], 1),
        (Op::RmsNormBack, &[&[33, 5], &[33, 5]], vec![float(1e-3)], 0),
        (Op::SoftMaxBack, &[&[33, 5], &[33, 5]], vec![float(0.5), float(0.0)], 1),
        (Op::Add1, &[&[1], &[1]], vec![], 1),
        (Op::AddId, &[&[9, 4], &[9, 4]], vec![], 1),
        (Op::SoftMax, &[&[1024, 40], &[1024, 40]], vec![float(0.5), float(0.0)], 1),
    ];
    for (seed, (op, shapes, params, dying)) in (0..).zip(rows) {
        let mut sketch = CaseBuilder::new(seed);
        let (mut nodes, mut sources) = (Vec::new(), Vec::new());
        for shape in shapes {
            let leaf = sketch.input(DataType::F32, shape, Values::Within(2.0))?;
            let source = sketch.context.neg(leaf)?;
            nodes.push(source);
            sources.push(source);
        }
        let mut all: Vec<Option<TensorId>> = sources.iter().copied().map(Some).collect();
        if op == Op::AddId {
            all.push(Some(sketch.input(DataType::I32, &[4], Values::Below(4))?));
        }
        let node = sketch.context.apply(op, &all, &params)?;
        let other = sources[1 - dying as usize];
        let again = sketch.context.add(node, other)?;
        nodes.extend([node, again]);
        cases.push((case(sketch, &nodes, &[again])?, node, dying));
    }
    Ok(cases)
}

#[test]
fn ggml_may_put_a_result_on_any_slot() {
    let backends = ThreadedBackends::new();
    for (case, node, slot) in on_any_slot().unwrap() {
        let runs = prove(&case, &backends, &mut |_, _| {}).unwrap_or_else(|what| panic!("{what}"));
        // The order of the ways: without reuse twice, ggml's plan, ggml's reuse, ours.
        for (way, ran) in ["ggml's plan", "ggml's reuse"].iter().zip(&runs[2..4]) {
            let is_aliased = ran.take_overs.contains(&(node, slot));
            assert!(is_aliased, "{way} does not put {} on slot {slot}", named(&case.graph, node));
        }
        assert!(!runs[4].take_overs.contains(&(node, slot)), "{} must keep slot {slot}", named(&case.graph, node));
    }
}

/// Returns a chain in which every result has the memory of the one before, under each kind of reuse.
#[test]
fn a_chain_runs_in_the_bytes_of_its_input() {
    let mut sketch = CaseBuilder::new(7);
    let x = sketch.input(DataType::F32, &[64, 6, 4], Values::Within(2.0)).unwrap();
    let rows = sketch.context.reshape(x, &[64, 24]).unwrap();
    let normed = sketch.context.rms_norm(rows, 1e-5).unwrap();
    let gated = sketch.context.silu(normed).unwrap();
    let limited = sketch.context.clamp(gated, -1.0, 1.0).unwrap();
    let shares = sketch.context.soft_max(limited, None, SoftMax::default()).unwrap();
    let last = sketch.context.scale(shares, 3.0).unwrap();
    let case = sketch.case(&[last]).unwrap();
    let runs = prove(&case, &ThreadedBackends::new(), &mut |_, _| {}).unwrap_or_else(|what| panic!("{what}"));
    let last = runs.last().unwrap();
    assert_eq!((last.take_overs.len(), last.peak.get()), (5, 64 * 24 * 4));
    assert_eq!(runs[0].take_overs, []);
}

/// Any value for the second direction.
#[test]
fn rows_are_convolved_in_one_direction() {
    let mut results = Vec::new();
    for second in [[1, 0, 1], [2, 1, 2]] {
        let mut sketch = CaseBuilder::new(3);
        let rows = sketch.input(DataType::F32, &[9, 2, 2], Values::Within(1.0)).unwrap();
        let kernel = sketch.external(DataType::F16, &[3, 2, 4], Values::Within(1.0)).unwrap();
        let [stride, padding, dilation] = second;
        let way = Convolution { stride: [1, stride], padding: [1, padding], dilation: [1, dilation] };
        let out = sketch.context.conv_1d(kernel, rows, way).unwrap();
        let case = sketch.case(&[out]).unwrap();
        let runs = prove(&case, &ThreadedBackends::new(), &mut |_, _| {}).unwrap_or_else(|what| panic!("{what}"));
        results.push(runs[0].outputs[0].1.clone());
    }
    assert_eq!(results[0], results[1]);
}

/// Numbers that are none, and infinite ones, among others.
fn odd_numbers(sketch: &mut CaseBuilder, shape: &[u64]) -> Result<TensorId, GraphError> {
    let x = sketch.input(F32, shape, Values::Within(2.0))?;
    let bytes = &mut sketch.contents.last_mut().expect("it has just been made").1;
    for (index, value) in [(3, f32::NAN), (17, f32::INFINITY), (30, f32::NEG_INFINITY), (41, -0.0)] {
        bytes[4 * index..][..4].copy_from_slice(&value.to_le_bytes());
    }
    Ok(x)
}

#[test]
fn what_is_no_number_and_what_is_infinite_pass_through() {
    let build = |sketch: &mut CaseBuilder| -> Result<Vec<TensorId>, GraphError> {
        let x = odd_numbers(sketch, &[8, 6, 2])?;
        let y = sketch.input(F32, &[8, 6, 2], Values::Positive)?;
        let w = sketch.external(DataType::F16, &[8, 5], Values::Within(1.0))?;
        let half = sketch.constant(DataType::F16, &[8, 6, 2], Values::Within(1.0))?;
        let short = sketch.constant(DataType::Bf16, &[8, 6, 2], Values::Within(1.0))?;
        let ids = sketch.input(DataType::I32, &[3, 2], Values::Below(6))?;
        let c = &mut sketch.context;
        let turned = c.permute(x, [1, 0, 2, 3])?;
        let window = Window { size: [2, 2], stride: [2, 2], padding: [0.0; 2] };
        Ok(vec![
            c.neg(x)?,
            c.abs(x)?,
            c.sqr(x)?,
            c.exp(x)?,
            c.tanh(x)?,
            c.sigmoid(x)?,
            c.silu(x)?,
            c.floor(x)?,
            c.add(x, y)?,
            c.sub(y, x)?,
            c.mul(x, y)?,
            c.div(y, x)?,
            c.scale_bias(x, -2.0, 0.5)?,
            c.cont(turned)?,
            c.rms_norm(x, 1e-5)?,
            c.norm(x, 1e-5)?,
            c.mul_mat(w, x)?,
            c.sum_rows(x)?,
            c.mean(x)?,
            c.sum(x)?,
            c.cpy(x, half)?,
            c.cpy(x, short)?,
            c.get_rows(x, ids)?,
            c.concat(x, y, 1)?,
            c.repeat(x, &[16, 6, 2])?,
            c.pad(x, [1, 1, 0, 0])?,
            c.upscale(x, 2, Interpolation::Nearest)?,
            c.pool_2d(x, Pool::Mean, window)?,
        ])
    };
    let mut sketch = CaseBuilder::new(1);
    let outputs = build(&mut sketch).unwrap();
    let case = sketch.case(&outputs).unwrap();
    prove(&case, &ThreadedBackends::new(), &mut |_, _| {}).unwrap_or_else(|what| panic!("{what}"));
}

#[test]
fn what_a_mask_hides_is_hidden() {
    let build = |sketch: &mut CaseBuilder| -> Result<Vec<TensorId>, GraphError> {
        let hide = |sketch: &mut CaseBuilder, id: TensorId, infinity: &[u8]| {
            let (known, bytes) = sketch.contents.last_mut().expect("it has just been made");
            assert_eq!(*known, id);
            // Every third element; each row keeps some.
            bytes.chunks_mut(infinity.len()).step_by(3).for_each(|bytes| bytes.copy_from_slice(infinity));
        };
        let x = sketch.input(F32, &[10, 4, 2], Values::Within(2.0))?;
        let mask = sketch.input(F32, &[10, 4], Values::Within(1.0))?;
        hide(sketch, mask, &f32::NEG_INFINITY.to_le_bytes());
        let half = sketch.input(DataType::F16, &[10, 4], Values::Within(1.0))?;
        hide(sketch, half, &[0x00, 0xFC]);
        // The second query sees nothing at all, and makes zeros.
        let nothing = sketch.input(DataType::F16, &[10, 4], Values::Same(0.0))?;
        let row = &mut sketch.contents.last_mut().expect("it has just been made").1[20..40];
        row.chunks_mut(2).for_each(|bytes| bytes.copy_from_slice(&[0x00, 0xFC]));
        let q = sketch.input(F32, &[16, 4, 4], Values::Within(1.0))?;
        let k = sketch.external(DataType::F16, &[16, 10, 2], Values::Within(1.0))?;
        let v = sketch.external(DataType::F16, &[16, 10, 2], Values::Within(1.0))?;
        let c = &mut sketch.context;
        let hidden = c.diag_mask_inf(x, 0)?;
        let attention = FlashAttention { scale: 0.25, ..FlashAttention::default() };
        Ok(vec![
            c.soft_max(x, Some(mask), SoftMax::default())?,
            c.soft_max(x, Some(half), SoftMax { scale: 0.5, max_bias: 4.0 })?,
            c.soft_max(hidden, None, SoftMax::default())?,
            c.flash_attn_ext(q, k, v, Some(half), attention)?,
            c.flash_attn_ext(q, k, v, Some(nothing), attention)?,
        ])
    };
    let mut sketch = CaseBuilder::new(2);
    let outputs = build(&mut sketch).unwrap();
    let case = sketch.case(&outputs).unwrap();
    let runs = prove(&case, &ThreadedBackends::new(), &mut |_, _| {}).unwrap_or_else(|what| panic!("{what}"));
    for (_, bytes) in &runs[0].outputs {
        assert!(bytes.as_chunks().0.iter().all(|it| f32::from_le_bytes(*it).is_finite()));
    }
}

/// Without elements there is nothing to run, and nothing to go wrong.
#[test]
fn tensors_without_elements_run_too() {
    let mut sketch = CaseBuilder::new(3);
    let x = sketch.input(F32, &[8, 0, 2], Values::Within(1.0)).unwrap();
    let w = sketch.external(F32, &[8, 5], Values::Within(1.0)).unwrap();
    let y = sketch.context.mul_mat(w, x).unwrap();
    let z = sketch.context.silu(y).unwrap();
    let sum = sketch.context.apply(Op::Sum, &[Some(w)], &[] as &[Param]).unwrap();
    let case = sketch.case(&[z, sum]).unwrap();
    let runs = prove(&case, &ThreadedBackends::new(), &mut |_, _| {}).unwrap_or_else(|what| panic!("{what}"));
    assert_eq!(runs[0].nodes.len(), 1);
}

/// A gate above zero lets through what is infinite; a shut one does not, as in ggml.
#[test]
fn a_shut_gate_lets_nothing_through() {
    let mut sketch = CaseBuilder::new(4);
    let gate = sketch.input(F32, &[8, 6, 2], Values::Within(2.0)).unwrap();
    let x = odd_numbers(&mut sketch, &[8, 6, 2]).unwrap();
    // The gates in front of what is odd.
    let bytes = &mut sketch.contents[0].1;
    for (index, value) in [(3, -1.0f32), (17, -0.5), (30, 0.0), (41, 1.0)] {
        bytes[4 * index..][..4].copy_from_slice(&value.to_le_bytes());
    }
    let y = sketch.context.glu_split(Glu::Reglu, gate, x).unwrap();
    let runs = prove(&sketch.case(&[y]).unwrap(), &ThreadedBackends::new(), &mut |_, _| {})
        .unwrap_or_else(|what| panic!("{what}"));
    let made = &runs[0].outputs[0].1;
    assert!(made.as_chunks().0.iter().all(|it| f32::from_le_bytes(*it).is_finite()));
}

/// Blocks are those of ggml's reference to the bit, also where nothing but the sign of a zero is at stake.
#[test]
fn blocks_are_rounded_as_in_ggml() {
    let ramp = |scale: f32| (0..32).map(|i| scale * (i as f32 - 15.5)).collect::<Vec<f32>>();
    let with = |row: Vec<f32>, index: usize, value: f32| {
        let mut row = row;
        row[index] = value;
        row
    };
    let rows = [
        vec![0.0; 32],
        vec![-0.0; 32],
        with(vec![0.0; 32], 0, -0.0),
        ramp(1.0),
        ramp(-3e-3),
        ramp(1e-7),
        ramp(2e3),
        // Two that are as far from zero, on either side of it.
        with(with(ramp(0.5), 4, 20.0), 9, -20.0),
        with(with(ramp(0.5), 4, -20.0), 9, 20.0),
        // Halves, which are rounded away from zero in one format and up in the other.
        (0..32).map(|i| if i == 0 { -8.0 } else { i as f32 / 2.0 - 8.0 }).collect(),
        (0..32).map(|i| if i == 0 { 127.0 } else { i as f32 + 0.5 }).collect(),
    ];
    for dtype in [DataType::Q8_0, DataType::Q4_0] {
        let mut sketch = CaseBuilder::new(0);
        let shape = [32, rows.len() as u64];
        let x = sketch.input(F32, &shape, Values::Same(0.0)).unwrap();
        sketch.contents[0].1 = rows.iter().flatten().flat_map(|x| x.to_le_bytes()).collect();
        let place = sketch.external(dtype, &shape, Values::Same(1.0)).unwrap();
        let write = sketch.context.cpy(x, place).unwrap();
        let case = sketch.case(&[write]).unwrap();
        prove(&case, &ThreadedBackends::new(), &mut |_, _| {}).unwrap_or_else(|what| panic!("{what}"));
    }
}

/// Products with blocks share memory between their units, and rows of the other source are rounded into it first.
#[test]
fn blocks_of_every_format_are_multiplied_in_every_plan() {
    for dtype in reference::FORMATS {
        let mut sketch = CaseBuilder::new(dtype.ggml_id().into());
        let x = sketch.input(F32, &[512, 2, 19], Values::Within(1.0)).unwrap();
        let weights = sketch.external(dtype, &[512, 300], Values::Within(0.05)).unwrap();
        let experts = sketch.external(dtype, &[512, 40, 3], Values::Within(0.05)).unwrap();
        let ids = sketch.input(DataType::I32, &[2, 19], Values::Below(3)).unwrap();
        let rows = sketch.input(DataType::I32, &[2], Values::Below(300)).unwrap();
        let normed = sketch.context.rms_norm(x, 1e-5).unwrap();
        let many = sketch.context.mul_mat(weights, normed).unwrap();
        let chosen = sketch.context.mul_mat_id(experts, normed, ids).unwrap();
        let taken = sketch.context.get_rows(weights, rows).unwrap();
        let one = sketch.context.view_1d(taken, 512, steeve_graph::Bytes(2048)).unwrap();
        let one = sketch.context.mul_mat(weights, one).unwrap();
        let case = sketch.case(&[many, chosen, one]).unwrap();
        prove(&case, &ThreadedBackends::new(), &mut |_, _| {}).unwrap_or_else(|what| panic!("{what}"));
    }
}
