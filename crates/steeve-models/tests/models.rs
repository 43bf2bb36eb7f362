//! Real models: what TensorFlow Lite Micro takes for them, as its own runtime has printed it, and what a plan takes.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::path::PathBuf;

use steeve_graph::{PlanOptions, Unread, plan_tensor_graph};
use steeve_models::tflite::{
    GraphOptions, HeadRecord, KernelSet, Model, TfliteGraph, reference_scratch, tflm_placement,
};

/// What the runtime of the package tflite-micro 0.dev20261023182759 prints as "Arena allocation head": without a plan, with one,
/// and with one that overlaps as its reference kernels allow. At most that much is allowed of ours.
const HEADS: &[(&str, u64, u64, u64)] = &[
    ("alexa", 3648, 3200, 3200),
    ("hey_jarvis", 3424, 3248, 3248),
    ("iris_landmark", 786_432, 786_432, 524_416),
    ("mlperf_ad01_int8", 768, 768, 768),
    ("mlperf_pretrainedResnet_quant", 49_152, 49_152, 33_312),
    ("mlperf_str_ww_ref_model", 6656, 6656, 3840),
    ("mlperf_vww_96_int8", 73_728, 55_296, 36_880),
    ("nmp", 5_388_416, 4_843_520, 4_177_536),
    ("tflm_audio_preprocessor_int8", 3040, 3040, 3040),
    ("tflm_hello_world_int8", 32, 32, 32),
    ("tflm_keyword_scrambled_8bit", 672, 672, 672),
    ("tflm_micro_speech_quantized", 5968, 5968, 4176),
    ("tflm_person_detect", 55_296, 55_296, 36_880),
    ("tflm_trained_lstm_int8", 1536, 1536, 1536),
    ("tfmicro_magic_wand", 13_824, 13_824, 12_304),
];

/// Returns `STEEVE_MODELS`, else `../shared/models` beside the workspace root.
fn folder() -> PathBuf {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    std::env::var_os("STEEVE_MODELS").map_or_else(|| root.join("../shared/models"), PathBuf::from).join("tflite")
}

fn each(check: impl Fn(&Model, (&str, u64, u64, u64))) {
    for entry in HEADS {
        let file = folder().join(format!("{}.tflite", entry.0));
        match std::fs::read(&file) {
            Ok(bytes) => check(&Model::read(bytes).unwrap(), *entry),
            Err(error) => println!("skipped: {}: {error}", file.display()),
        }
    }
}

#[test]
fn the_simulated_head_is_the_one_that_the_runtime_prints() {
    each(|model, (name, head, ..)| {
        let placement = tflm_placement(model, None, &reference_scratch(model)).unwrap();
        assert_eq!(placement.head, head, "{name}");
    });
}

#[test]
fn plans_are_right_and_no_larger_than_they_were() {
    each(|model, (name, tflm_head, without, overlapping)| {
        for (kernels, most) in [(KernelSet::Any, without), (KernelSet::TflmReference, overlapping)] {
            let options = GraphOptions::default().with_in_place(kernels).with_overlap(kernels);
            let graph = TfliteGraph::new(model, options.with_scratch(reference_scratch(model))).unwrap();
            let plan = plan_tensor_graph(&graph, &PlanOptions::default().with_unread(Unread::Free)).unwrap();
            plan.replay(&graph).unwrap();
            let head = graph.head_plan(|key| plan.place(key).map(|place| place.offset)).unwrap();
            assert!(head.head <= most && head.tflm_head == tflm_head, "{name}: {head:?}");
            let report = graph.check_record(&head.record).unwrap();
            assert_eq!((report.faults.as_slice(), report.head), (&[][..], Some(head.head)), "{name}");
            let written = Model::read(model.with_record(&head.record).unwrap()).unwrap();
            assert_eq!(HeadRecord::of(&written).unwrap(), Some(head.record));
        }
    });
}

#[test]
fn operators_that_overlap_read_no_byte_that_they_have_overwritten() {
    each(|model, (name, ..)| {
        // The largest ones take seconds each.
        if model.bytes().len() > 1 << 20 || name == "nmp" {
            return;
        }
        let kernels = KernelSet::TflmReference;
        let graph =
            TfliteGraph::new(model, GraphOptions::default().with_in_place(kernels).with_overlap(kernels)).unwrap();
        let plan = plan_tensor_graph(&graph, &PlanOptions::default().with_unread(Unread::Free)).unwrap();
        let head = graph.head_plan(|key| plan.place(key).map(|place| place.offset)).unwrap();
        let offsets = graph.check_record(&head.record).unwrap().offsets;
        assert_eq!(graph.replay_overlaps(&offsets), [], "{name}");
    });
}
