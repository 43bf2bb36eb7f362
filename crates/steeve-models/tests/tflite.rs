//! Small models, made in memory: what is read, when tensors live, what records say, and what is written.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use steeve_graph::{PlanOptions, TensorGraph, Unread, plan_tensor_graph};
use steeve_models::tflite::{
    BuiltinOp, DataType, GraphOptions, HeadPlan, HeadRecord, KernelSet, Model, Options, RecordFault, SmallModel,
    TfliteError, TfliteGraph, TfliteKey, Window, tflm_placement, uniform_scratch,
};

fn read(small: &SmallModel) -> Model {
    Model::read(small.to_bytes()).unwrap()
}

fn reference() -> GraphOptions {
    GraphOptions::default().with_in_place(KernelSet::TflmReference).with_overlap(KernelSet::TflmReference)
}

fn planned(model: &Model, options: GraphOptions) -> HeadPlan {
    let graph = TfliteGraph::new(model, options).unwrap();
    let plan = plan_tensor_graph(&graph, &PlanOptions::default().with_unread(Unread::Free)).unwrap();
    graph.head_plan(|key| plan.place(key).map(|place| place.offset)).unwrap()
}

fn bytes(model: &mut SmallModel, subgraph: usize, name: &str, count: i32) -> usize {
    model.tensor(subgraph, name, DataType::INT8, &[1, count])
}

/// A model whose operator 0 calls subgraphs 1 and 2, each with one operator.
fn branches(op: BuiltinOp, options: Options) -> SmallModel {
    let mut model = SmallModel::new();
    for subgraph in [model.subgraph(), model.subgraph()] {
        let input = bytes(&mut model, subgraph, "in", 32);
        let output = bytes(&mut model, subgraph, "out", 48);
        model.operator(subgraph, BuiltinOp::RELU, &[input], &[output], Options::Other);
        model.io(subgraph, &[input], &[output]);
    }
    let (condition, x, y) =
        (bytes(&mut model, 0, "c", 1), bytes(&mut model, 0, "x", 32), bytes(&mut model, 0, "y", 48));
    model.operator(0, op, &[condition, x], &[y], options);
    model.io(0, &[condition, x], &[y]);
    model
}

#[test]
fn a_file_without_the_identifier_is_no_tflite_file() {
    assert_eq!(Model::read(b"GGUF and more".to_vec()).unwrap_err(), TfliteError::NotTflite);
    assert_eq!(Model::read(Vec::new()).unwrap_err(), TfliteError::NotTflite);
}

#[test]
fn a_file_that_is_cut_off_is_an_error_wherever_it_is_cut() {
    let file = SmallModel::chain(&[64, 32, 16]).to_bytes();
    let whole = Model::read(file.clone()).unwrap();
    for length in 8..file.len() {
        match Model::read(&file[..length]) {
            // Nothing but padding is missing.
            Ok(model) => assert_eq!(model.subgraphs(), whole.subgraphs(), "{length}"),
            Err(error) => assert!(matches!(error, TfliteError::OutOfBounds { .. }), "{length}: {error}"),
        }
    }
}

#[test]
fn a_number_that_refers_to_nothing_is_an_error_that_names_it() {
    let mut small = SmallModel::chain(&[64, 32]);
    small.operator(0, BuiltinOp::ADD, &[0, 7], &[1], Options::Other);
    let error = Model::read(small.to_bytes()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "TFLite: Operator.inputs of operator 1 of subgraph 0: no such number: 7, there are 2"
    );
    let small = branches(BuiltinOp::IF, Options::If { then_subgraph: 1, else_subgraph: 3 });
    let error = Model::read(small.to_bytes()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "TFLite: subgraph to call of operator 0 of subgraph 0: no such number: 3, there are 3"
    );
}

#[test]
fn a_subgraph_that_calls_itself_is_an_error_that_names_the_way() {
    let mut small = branches(BuiltinOp::CALL_ONCE, Options::CallOnce { init: 1 });
    small.operator(1, BuiltinOp::CALL_ONCE, &[], &[], Options::CallOnce { init: 2 });
    small.operator(2, BuiltinOp::CALL_ONCE, &[], &[], Options::CallOnce { init: 1 });
    let model = read(&small);
    let error = TfliteGraph::new(&model, GraphOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), "TFLite: subgraph 1 calls itself: 1 -> 2 -> 1");
}

#[test]
fn a_tensor_without_a_size_is_an_error_unless_it_is_a_constant() {
    let mut small = SmallModel::chain(&[64, -1]);
    let error = tflm_placement(&read(&small), None, &[]).unwrap_err();
    assert_eq!(error.to_string(), "TFLite: tensor 1 (t1): unsupported shape: [1, -1]");
    small = SmallModel::chain(&[64, 32]);
    small.constant(0, "words", DataType(5), &[1], b"abc");
    assert_eq!(tflm_placement(&read(&small), None, &[]).unwrap().head, 96);
    small.tensor(0, "words", DataType(5), &[1]);
    let error = tflm_placement(&read(&small), None, &[]).unwrap_err();
    assert_eq!(error.to_string(), "TFLite: tensor 3 (words): unsupported data type: STRING");
}

#[test]
fn branches_share_bytes_with_each_other_and_not_with_the_operator_that_calls_them() {
    let model = read(&branches(BuiltinOp::IF, Options::If { then_subgraph: 1, else_subgraph: 2 }));
    // c, x and y live through both branches, which have 80 bytes each.
    assert_eq!(tflm_placement(&model, None, &[]).unwrap().head, 16 + 32 + 48 + 80);
    assert_eq!(planned(&model, GraphOptions::default()).head, 16 + 32 + 48 + 80);
}

#[test]
fn a_subgraph_that_is_called_twice_keeps_its_bytes_in_between() {
    let mut small = branches(BuiltinOp::IF, Options::If { then_subgraph: 1, else_subgraph: 2 });
    let z = bytes(&mut small, 0, "z", 48);
    small.operator(0, BuiltinOp::IF, &[0, 1], &[z], Options::If { then_subgraph: 1, else_subgraph: 1 });
    small.io(0, &[0, 1], &[2, z]);
    let model = read(&small);
    let graph = TfliteGraph::new(&model, GraphOptions::default()).unwrap();
    assert_eq!(graph.nodes().filter(|node| graph.op_name(*node) == "subgraph again").count(), 2);
    // Both branches live until the second call: subgraph 2 no longer.
    let head = 16 + 32 + 48 + 80 + 80;
    assert_eq!(tflm_placement(&model, None, &[]).unwrap().head, head);
    assert_eq!(planned(&model, GraphOptions::default()).head, head);
}

#[test]
fn variables_and_constants_take_no_bytes_of_the_head() {
    let mut small = SmallModel::chain(&[64, 32]);
    let (state, weights) = (
        small.variable(0, "state", DataType::INT16, &[100]),
        small.constant(0, "weights", DataType::INT8, &[4], &[1, 2, 3, 4]),
    );
    small.operator(0, BuiltinOp::ADD, &[state, weights], &[1], Options::Other);
    let model = read(&small);
    assert_eq!(tflm_placement(&model, None, &[]).unwrap().head, 96);
    let graph = TfliteGraph::new(&model, GraphOptions::default()).unwrap();
    let external = |tensor| graph.is_external(TfliteKey::Tensor(steeve_models::tflite::TensorIndex::new(0, tensor)));
    assert_eq!([external(0), external(state), external(weights)], [false, true, true]);
    // A record that places the variable keeps its bytes from all others.
    let record = HeadRecord::new(&model, &[Some(0), Some(64), Some(16), None]).unwrap();
    let report = graph.check_record(&record).unwrap();
    assert!(
        matches!(&report.faults[0], RecordFault::Overlap { name, other_name, .. } if name == "t0" && other_name == "state")
    );
    assert_eq!(report.head, Some(224));
}

#[test]
fn a_record_that_was_written_is_read_again_and_nothing_else_changes() {
    let mut small = SmallModel::chain(&[64, 32, 16]);
    small.constant(0, "weights", DataType::INT8, &[33], &[7; 33]);
    small.metadata("min_runtime_version", b"1.5.0");
    let model = read(&small);
    let record = HeadRecord::new(&model, &[Some(0), Some(64), None, None]).unwrap();
    let written = model.with_record(&record).unwrap();
    assert_eq!(
        &written[written.len() - model.bytes().len()..],
        model.bytes(),
        "the old file is the end of the new one"
    );
    let again = Model::read(written.clone()).unwrap();
    assert_eq!(HeadRecord::of(&again).unwrap(), Some(record.clone()));
    assert_eq!((again.subgraphs(), again.operator_codes()), (model.subgraphs(), model.operator_codes()));
    assert_eq!(again.metadata()[0], model.metadata()[0]);
    for range in again.buffers().iter().filter_map(|buffer| buffer.data.clone()) {
        assert_eq!(range.start % 16, 0, "data are aligned as TFLite wants it");
    }
    assert_eq!(again.with_record(&record).unwrap(), written, "the same record gives the same bytes");
    let other = HeadRecord::new(&model, &[Some(32), Some(0), Some(96), None]).unwrap();
    let third = again.with_record(&other).unwrap();
    assert_eq!(third.len(), written.len(), "a record is replaced where it is");
    assert_eq!(HeadRecord::of(&Model::read(third).unwrap()).unwrap(), Some(other));
}

#[test]
fn a_record_of_another_length_is_replaced() {
    let mut small = SmallModel::chain(&[64, 32]);
    small.metadata("OfflineMemoryAllocation", &[1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    let model = read(&small);
    let old = HeadRecord::of(&model).unwrap().unwrap();
    assert_eq!(old.offsets, [0]);
    let graph = TfliteGraph::new(&model, GraphOptions::default()).unwrap();
    let report = graph.check_record(&old).unwrap();
    assert_eq!(report.faults, [RecordFault::Count { expected: 2, got: 1 }]);
    let record = HeadRecord::new(&model, &[Some(0), Some(64)]).unwrap();
    let again = Model::read(model.with_record(&record).unwrap()).unwrap();
    assert_eq!((again.metadata().len(), again.buffers().len()), (1, model.buffers().len()));
    assert_eq!(HeadRecord::of(&again).unwrap(), Some(record));
}

#[test]
fn an_offset_that_no_record_can_have_is_an_error() {
    let model = read(&SmallModel::chain(&[64, 32]));
    let error = HeadRecord::new(&model, &[Some(0), Some(1 << 31)]).unwrap_err();
    assert_eq!(error.to_string(), "TFLite: plan: offset 2147483648 of tensor 1: expected a multiple of 16 below 2^31");
    let error = HeadRecord::new(&model, &[Some(8), None]).unwrap_err();
    assert_eq!(error.to_string(), "TFLite: plan: offset 8 of tensor 0: expected a multiple of 16 below 2^31");
    let error = HeadRecord::new(&model, &[None]).unwrap_err();
    assert_eq!(error.to_string(), "TFLite: plan: 1 offsets, the file has 2 tensors");
}

#[test]
fn data_behind_the_tables_stay_where_their_offsets_say() {
    let small = SmallModel::large(&[64, 32], &[5; 100]);
    let model = Model::read(small).unwrap();
    let weights = model.subgraphs()[0].tensors.last().unwrap();
    assert_eq!(model.data(weights), Some(&[5; 100][..]));
    let record = HeadRecord::new(&model, &[Some(0), Some(64), None]).unwrap();
    let again = Model::read(model.with_record(&record).unwrap()).unwrap();
    assert_eq!(again.data(weights), Some(&[5; 100][..]));
    assert_eq!(again.with_record(&record).unwrap(), again.bytes());
}

#[test]
fn the_runtime_looks_up_tensors_of_all_subgraphs_from_the_start_of_a_record() {
    let model = read(&branches(BuiltinOp::IF, Options::If { then_subgraph: 1, else_subgraph: 2 }));
    // By the format, the last tensors are those of subgraph 2; the runtime puts them where c and x are.
    let record = HeadRecord::new(&model, &[0, 16, 48, 96, 128, 96, 128].map(Some)).unwrap();
    let graph = TfliteGraph::new(&model, GraphOptions::default()).unwrap();
    let report = graph.check_record(&record).unwrap();
    let twice = report.faults.iter().filter(|fault| matches!(fault, RecordFault::TwoReadings { .. })).count();
    let overlaps = report.faults.iter().filter(|fault| matches!(fault, RecordFault::Overlap { .. })).count();
    assert!(twice == 4 && overlaps > 0, "{report:?}");
    // What is made here is right by either reading: tensors that would collide are left to the runtime.
    let head = planned(&model, GraphOptions::default());
    assert!(head.online > 0 && !head.is_tflm, "{head:?}");
    assert!(graph.check_record(&head.record).unwrap().faults.is_empty());
}

#[test]
fn the_judge_finds_what_is_wrong_with_a_record() {
    let model = read(&SmallModel::chain(&[64, 32, 16]));
    let graph = TfliteGraph::new(&model, GraphOptions::default()).unwrap();
    let judge = |offsets: [i32; 3]| {
        let record = HeadRecord { version: 1, subgraphs: 1, offsets: offsets.to_vec() };
        graph.check_record(&record).unwrap().faults.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(judge([0, 64, 0]), [""; 0]);
    assert_eq!(judge([0, 72, 0]), ["record: tensor 1 (t1): misaligned: expected a multiple of 16, got 72"]);
    assert_eq!(judge([-16, 64, 0]), ["record: tensor 0 (t0): negative offset: expected -1 or more, got -16"]);
    let both = "record: tensors 1 (t1) and 2 (t2) share byte 80 while both are needed, at operator 1 (RELU)";
    assert_eq!(judge([0, 64, 80]), [both]);
}

#[test]
fn kernels_that_are_known_allow_what_others_do_not() {
    let model = read(&SmallModel::chain(&[64, 64]));
    let record = HeadRecord::new(&model, &[Some(16), Some(0)]).unwrap();
    let faults = |options| TfliteGraph::new(&model, options).unwrap().check_record(&record).unwrap().faults.len();
    assert_eq!([faults(GraphOptions::default()), faults(reference())], [1, 0]);
    assert_eq!([planned(&model, GraphOptions::default()).head, planned(&model, reference()).head], [128, 64]);
}

#[test]
fn a_convolution_overlaps_its_image_by_what_its_windows_leave() {
    let mut small = SmallModel::new();
    let x = small.tensor(0, "x", DataType::INT8, &[1, 8, 8, 16]);
    let filter = small.constant(0, "filter", DataType::INT8, &[16, 3, 3, 16], &[1; 2304]);
    let y = small.tensor(0, "y", DataType::INT8, &[1, 8, 8, 16]);
    let window = Window { same_padding: true, stride: [1, 1] };
    small.operator(
        0,
        BuiltinOp::CONV_2D,
        &[x, filter],
        &[y],
        Options::Convolution { window, dilation: [1, 1], depth_multiplier: 1 },
    );
    small.io(0, &[x], &[y]);
    let model = read(&small);
    let graph = TfliteGraph::new(&model, reference()).unwrap();
    // The row above is still read, and the pixel before: 8 + 1 pixels, and what is written of the last one.
    let key = |tensor| TfliteKey::Tensor(steeve_models::tflite::TensorIndex::new(0, tensor));
    let distance = graph.overlap(key(y), key(x)).unwrap().get();
    assert_eq!(distance, (8 + 1) * 16 + 15);
    let head = planned(&model, reference());
    assert_eq!(head.head, 1024 + distance.next_multiple_of(16));
    let offsets = graph.check_record(&head.record).unwrap().offsets;
    assert!(graph.replay_overlaps(&offsets).is_empty());
    let closer = [offsets[0].map(|offset| offset - 16), None, offsets[2]];
    assert_eq!(graph.replay_overlaps(&closer).len(), 1);
    let record = HeadRecord::new(&model, &closer.map(|offset| offset.and_then(|it| u64::try_from(it).ok()))).unwrap();
    assert_eq!(graph.check_record(&record).unwrap().faults.len(), 1);
}

#[test]
fn room_for_scratch_buffers_is_left_at_each_operator() {
    let model = read(&SmallModel::chain(&[64, 32, 64]));
    let options = || GraphOptions::default().with_scratch(uniform_scratch(&model, 40));
    let head = planned(&model, options());
    assert_eq!((head.head, head.tflm_head), (64 + 32 + 48, 64 + 32 + 48));
}

#[test]
fn a_plan_is_never_larger_than_the_runtimes_own() {
    for sizes in [&[64, 32, 16][..], &[16, 32, 64], &[16, 160, 32, 160, 16], &[48]] {
        let model = read(&SmallModel::chain(sizes));
        let head = planned(&model, GraphOptions::default());
        assert!(head.head <= head.tflm_head, "{head:?}");
    }
}

/// A model with an operator for an accelerator, which reads x and computes y and z, and an operator behind it that reads `later`.
fn accelerated(later: &str) -> Model {
    let mut small = SmallModel::new();
    let commands = small.constant(0, "commands", DataType::INT8, &[4], &[1; 4]);
    let weights = small.constant(0, "weights", DataType::INT8, &[4], &[1; 4]);
    let arena = bytes(&mut small, 0, "scratch", 512);
    let names = ["x", "y", "z", "out"];
    let [x, y, z, out] = names.map(|name| bytes(&mut small, 0, name, 64));
    small.custom_operator(0, "ethos-u", &[commands, weights, arena, arena, x], &[y, z]);
    let later = [x, y, z][names.iter().position(|name| *name == later).unwrap()];
    small.operator(0, BuiltinOp::RELU, &[later], &[out], Options::Other);
    small.io(0, &[x], &[y, z, out]);
    read(&small)
}

#[test]
fn an_accelerator_may_write_over_what_it_reads_and_over_nothing_else() {
    let judge = |later, offsets: [u64; 4]| {
        let model = accelerated(later);
        let graph = TfliteGraph::new(&model, GraphOptions::default()).unwrap();
        let [x, y, z, out] = offsets.map(Some);
        let record = HeadRecord::new(&model, &[None, None, Some(0), x, y, z, out]).unwrap();
        let report = graph.check_record(&record).unwrap();
        report.faults.len() + graph.replay_overlaps(&report.offsets).len()
    };
    assert_eq!(judge("y", [0, 0, 64, 512]), 0, "y is written over x, which nothing needs any more");
    assert_eq!(judge("y", [16, 0, 64, 512]), 0, "wherever it starts");
    assert_eq!(judge("x", [0, 0, 64, 512]), 1, "x is read again");
    assert_eq!(judge("y", [0, 64, 80, 512]), 1, "y and z are both results");
    assert_eq!(judge("y", [0, 64, 128, 64]), 1, "y is an output, and RELU is no accelerator's");
}

#[test]
fn the_shape_of_a_reshape_needs_no_bytes_when_it_runs() {
    let mut small = SmallModel::new();
    let (x, shape, y) =
        (bytes(&mut small, 0, "x", 64), bytes(&mut small, 0, "shape", 16), bytes(&mut small, 0, "y", 64));
    small.operator(0, BuiltinOp(77), &[x], &[shape], Options::Other);
    small.operator(0, BuiltinOp::RESHAPE, &[x, shape], &[y], Options::Other);
    small.io(0, &[x], &[y]);
    let model = read(&small);
    let graph = TfliteGraph::new(&model, GraphOptions::default()).unwrap();
    let judge = |shape| {
        let report = graph.check_record(&HeadRecord::new(&model, &[Some(0), Some(shape), Some(64)]).unwrap()).unwrap();
        report.faults.len() + graph.replay_overlaps(&report.offsets).len()
    };
    // The judge and the replay find that x is overwritten.
    assert_eq!([judge(64), judge(16)], [0, 2]);
}

#[test]
fn what_was_compiled_for_an_accelerator_keeps_its_plan() {
    let mut small = SmallModel::new();
    let commands = small.constant(0, "commands", DataType::INT8, &[4], &[1; 4]);
    let weights = small.constant(0, "weights", DataType::INT8, &[4], &[1; 4]);
    let arena = bytes(&mut small, 0, "scratch", 512);
    let (x, y) = (bytes(&mut small, 0, "x", 64), bytes(&mut small, 0, "y", 16));
    small.custom_operator(0, "ethos-u", &[commands, weights, arena, arena, x], &[y]);
    small.io(0, &[x], &[y]);
    let model = read(&small);
    let graph = TfliteGraph::new(&model, GraphOptions::default()).unwrap();
    let record = HeadRecord::new(&model, &[None, None, Some(0), Some(64), Some(0)]).unwrap();
    assert_eq!(graph.check_record(&record).unwrap().faults, []);
    let error = graph.head_plan(|_| None).unwrap_err();
    let expected = "TFLite: the plan of the file can't be changed: its operators ethos-u have been compiled for the addresses of its record";
    assert_eq!(error.to_string(), expected);
}
