//! Random models, and the bodies of the fuzz targets. Tests run them for a moment; `cargo fuzz` for as long as it likes.

mod onnx_models;

use steeve_graph::fuzz::Choices;
use steeve_graph::{InputLimit, PlanOptions, Unread, plan_graph, plan_tensor_graph, replay};

pub use onnx_models::{onnx, random_onnx, valid_onnx};

use crate::gguf::{Architecture, GgufHeader, ModelMemory, SessionSize, SmallGguf};
use crate::tflite::{
    BuiltinOp, DataType, GraphOptions, HeadRecord, KernelSet, Model, Options, SmallModel, TfliteError, TfliteGraph,
    Window, reference_scratch, tflm_placement,
};

/// How large a model may be for a fuzz body to plan and replay it.
const MOST_TENSORS: usize = 400;

/// Checks that any file is refused or read; that what is read is refused or planned; that the plan is right, and survives being
/// written and read again.
///
/// # Panics
///
/// If it does not: that is what a fuzzer looks for.
pub fn tflite(bytes: &[u8]) {
    let Ok(model) = Model::read(bytes) else { return };
    if model.tensor_count() > MOST_TENSORS {
        return;
    }
    for kernels in [KernelSet::Any, KernelSet::TflmReference] {
        let options = GraphOptions::default().with_in_place(kernels).with_overlap(kernels);
        let options = options.with_scratch(reference_scratch(&model));
        let Ok(graph) = TfliteGraph::new(&model, options) else { return };
        let Ok(plan) = plan_tensor_graph(&graph, &PlanOptions::default().with_unread(Unread::Free)) else { continue };
        let Ok(head) = graph.head_plan(|key| plan.place(key).map(|place| place.offset)) else { continue };
        assert!(head.head <= head.tflm_head, "{head:?}");
        let report = graph.check_record(&head.record);
        let report = report.unwrap_or_else(|error| unreachable!("{error}"));
        assert_eq!(report.head, Some(head.head));
        assert!(head.is_tflm || report.faults.is_empty(), "{:?}", report.faults);
        if !head.is_tflm && head.head < 1 << 12 {
            assert_eq!(graph.replay_overlaps(&report.offsets), []);
        }
        assert_survives(&model, &head.record);
    }
}

/// Checks that a file is read and planned, and what [`tflite`] checks of any.
///
/// # Panics
///
/// If it is not: that is what a fuzzer looks for.
pub fn valid_tflite(bytes: &[u8]) {
    let model = Model::read(bytes).unwrap_or_else(|error| unreachable!("{error}"));
    let graph = TfliteGraph::new(&model, GraphOptions::default()).unwrap_or_else(|error| unreachable!("{error}"));
    let plan = plan_tensor_graph(&graph, &PlanOptions::default().with_unread(Unread::Free));
    let plan = plan.unwrap_or_else(|error| unreachable!("{}", steeve_graph::ErrorChain(&error)));
    let head = graph.head_plan(|key| plan.place(key).map(|place| place.offset));
    let head = head.unwrap_or_else(|error| unreachable!("{error}"));
    assert!(plan.peak() <= steeve_graph::Bytes(head.tflm_head) || head.is_tflm, "{head:?}");
    tflite(bytes);
}

/// Checks that a record can be written and is then read, or that the file is refused for a reason of its own.
fn assert_survives(model: &Model, record: &HeadRecord) {
    let written = match model.with_record(record) {
        Ok(written) => written,
        Err(TfliteError::SharedBytes | TfliteError::UnknownField { .. } | TfliteError::OutOfBounds { .. }) => return,
        Err(TfliteError::SharedTooOften { .. }) => return,
        Err(error) => unreachable!("{error}"),
    };
    let again = Model::read(written.clone()).unwrap_or_else(|error| unreachable!("{error}"));
    assert_eq!(HeadRecord::of(&again).as_ref().map(Option::as_ref), Ok(Some(record)));
    assert_eq!(again.with_record(record).as_ref(), Ok(&written));
    assert_eq!(tflm_placement(&again, None, &[]), tflm_placement(model, None, &[]));
}

/// Checks that any GGUF file is refused or read, and any model in it refused or planned; that plans are right, what is on two devices is
/// what was on one, and a token needs no more than a batch.
///
/// # Panics
///
/// If it does not: that is what a fuzzer looks for.
pub fn gguf(bytes: &[u8]) {
    let Ok(header) = GgufHeader::read(bytes, InputLimit::DEFAULT) else { return };
    if header.check_data(steeve_graph::Bytes(bytes.len() as u64)).is_ok() {
        assert!(
            header.tensors().iter().all(|tensor| tensor.position.0 + tensor.layout.nbytes().0 <= bytes.len() as u64)
        );
    }
    if header.tensors().len() > MOST_TENSORS {
        return;
    }
    let size = SessionSize::new(96, 16);
    let Ok(one) = ModelMemory::plan(&header, size, 0) else { return };
    let token = ModelMemory::plan(&header, SessionSize::new(96, 1), 0);
    assert!(token.is_ok_and(|token| token.devices[0].compute <= one.devices[0].compute));
    assert_eq!(one.devices[0].weights, header.weights());
    let Ok(two) = ModelMemory::plan(&header, size, 1) else { unreachable!("the model can be planned on one device") };
    for memory in [&one, &two] {
        let plan = plan_graph(&memory.prompt, &PlanOptions::default()).unwrap_or_else(|error| unreachable!("{error}"));
        replay(&memory.prompt, &plan.places()).unwrap_or_else(|error| unreachable!("{error}"));
        let planned: u64 = plan.memories().iter().map(|memory| memory.plan.peak().0).sum();
        assert_eq!(memory.devices.iter().map(|device| device.compute.0).sum::<u64>(), planned);
    }
    let weights: u64 = two.devices.iter().map(|device| device.weights.0).sum();
    assert!(weights >= header.weights().0, "{two:?}");
}

/// Returns a random language model: of any family, with some values and tensors changed or gone.
pub fn random_gguf(choices: &mut Choices<'_>) -> SmallGguf {
    let architecture = Architecture::ALL[choices.below(Architecture::ALL.len())];
    let mut file = SmallGguf::language_model(architecture, choices.below(1 << 16) as u64);
    const KEYS: [&str; 8] = [
        "attention.head_count",
        "attention.head_count_kv",
        "attention.sliding_window",
        "attention.sliding_window_pattern",
        "block_count",
        "expert_used_count",
        "rope.dimension_count",
        "embedding_length",
    ];
    for _ in 0..choices.below(3) {
        let key = format!("{}.{}", architecture.name(), KEYS[choices.below(KEYS.len())]);
        let number = [0, 1, 2, 4, 7, 16, 32, 0x7fff_ffff, u32::MAX][choices.below(9)];
        file.remove_value(&key);
        match choices.below(4) {
            0 => {}
            1 => file.numbers(&key, &[number, number, number]),
            _ => file.number(&key, number),
        }
    }
    file
}

/// Returns a file with some of its bytes changed: single ones, and numbers of 32 bits that become small or large.
pub fn mutated(file: &[u8], choices: &mut Choices<'_>) -> Vec<u8> {
    let mut file = file.to_vec();
    for _ in 0..=choices.below(4) {
        let at = choices.below(file.len().max(1));
        match choices.below(3) {
            0 => {
                if let Some(byte) = file.get_mut(at) {
                    *byte = u8::try_from(choices.below(256)).unwrap_or(0);
                }
            }
            1 => {
                let number = [0, 1, 2, 4, 8, 64, 0x7fff_ffff, 0x8000_0000, 0xffff_fff0, 0xffff_ffff][choices.below(10)];
                if let Some(place) = file.get_mut(at / 4 * 4..at / 4 * 4 + 4) {
                    place.copy_from_slice(&u32::to_le_bytes(number));
                }
            }
            _ if choices.below(8) == 0 => file.truncate(at),
            _ => {}
        }
    }
    file
}

/// Returns a random model: operators of several kinds, constants, variables, and subgraphs that are called.
pub fn random_model(choices: &mut Choices<'_>) -> SmallModel {
    let mut model = SmallModel::new();
    let called: Vec<usize> = (0..choices.below(4)).map(|_| model.subgraph()).collect();
    for subgraph in called.iter().copied().chain([0]) {
        // Only subgraphs behind this one are called, so that none calls itself.
        let later: Vec<usize> = called.iter().copied().filter(|it| *it > subgraph).collect();
        random_subgraph(&mut model, choices, subgraph, &later);
    }
    model
}

fn random_subgraph(model: &mut SmallModel, choices: &mut Choices<'_>, subgraph: usize, later: &[usize]) {
    let dim = |choices: &mut dyn FnMut(usize) -> usize| i32::try_from(choices(5) + 1).unwrap_or(1);
    let mut count = 0;
    let mut image = |model: &mut SmallModel, shape: [i32; 4]| {
        count += 1;
        model.tensor(subgraph, &format!("t{count}"), DataType::INT8, &shape)
    };
    let shape = |choices: &mut dyn FnMut(usize) -> usize| [1, dim(choices), dim(choices), 4 * dim(choices)];
    let mut next = |count: usize| choices.below(count);
    let first = shape(&mut next);
    let mut known = vec![(image(model, first), first)];
    let input = known[0].0;
    for _ in 0..next(8) {
        let (source, from) = known[next(known.len())];
        let [_, height, width, depth] = from;
        match next(6) {
            0 => {
                let to = [1, height, width, 4 * dim(&mut next)];
                let filter = model.constant(subgraph, "f", DataType::INT8, &[to[3], 1, 1, depth], &[1]);
                let result = image(model, to);
                let window = Window { same_padding: true, stride: [1, 1] };
                let options = Options::Convolution { window, dilation: [1, 1], depth_multiplier: 1 };
                model.operator(subgraph, BuiltinOp::CONV_2D, &[source, filter], &[result], options);
                known.push((result, to));
            }
            1 => {
                let (other, to) = known[next(known.len())];
                let result = image(model, from);
                let op = if from == to { BuiltinOp::ADD } else { BuiltinOp::MUL };
                model.operator(subgraph, op, &[source, other], &[result], Options::Other);
                known.push((result, from));
            }
            2 => {
                let results = [image(model, from), image(model, from)];
                model.operator(subgraph, BuiltinOp::SPLIT, &[source], &results, Options::Other);
                known.extend(results.map(|result| (result, from)));
            }
            3 => {
                let state = model.variable(subgraph, "state", DataType::INT8, &from);
                let result = image(model, from);
                model.operator(subgraph, BuiltinOp::SVDF, &[source, source, source, state], &[result], Options::Other);
                known.push((result, from));
            }
            4 if !later.is_empty() => {
                let (first, second) = (later[next(later.len())], later[next(later.len())]);
                let number = |subgraph| i32::try_from(subgraph).unwrap_or(0);
                let (op, options) = match next(3) {
                    0 => (BuiltinOp::CALL_ONCE, Options::CallOnce { init: number(first) }),
                    1 => (BuiltinOp::IF, Options::If { then_subgraph: number(first), else_subgraph: number(second) }),
                    _ => (BuiltinOp::WHILE, Options::While { condition: number(first), body: number(second) }),
                };
                let result = image(model, from);
                model.operator(subgraph, op, &[source], &[result], options);
                known.push((result, from));
            }
            _ => {
                let result = image(model, from);
                model.operator(subgraph, BuiltinOp::RELU, &[source], &[result], Options::Other);
                known.push((result, from));
            }
        }
    }
    if next(4) == 0 {
        let unused = shape(&mut next);
        image(model, unused);
    }
    // A subgraph may return what it was given, and name a tensor more than once.
    let inputs: Vec<usize> = [input].into_iter().chain((0..next(3)).map(|_| known[next(known.len())].0)).collect();
    let outputs: Vec<usize> = (0..=next(3)).map(|_| known[next(known.len())].0).collect();
    model.io(subgraph, &inputs, &outputs);
}
