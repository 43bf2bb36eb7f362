//! The fuzz bodies, for a moment.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use steeve_graph::fuzz::Choices;
use steeve_models::fuzz;
use steeve_models::tflite::{HeadRecord, Model};

/// How many inputs: `STEEVE_FUZZ` asks for more.
fn inputs() -> u64 {
    std::env::var("STEEVE_FUZZ").ok().and_then(|text| text.parse().ok()).unwrap_or(400)
}

#[test]
fn any_random_model_is_planned_and_written() {
    for number in 0..inputs() {
        let file = fuzz::random_model(&mut Choices::from_seed(number)).to_bytes();
        println!("seed {number}");
        fuzz::valid_tflite(&file);
    }
}

#[test]
fn no_damaged_file_does_harm() {
    for number in 0..inputs() * 5 {
        let mut choices = Choices::from_seed(number);
        let file = fuzz::random_model(&mut choices).to_bytes();
        let damaged = fuzz::mutated(&file, &mut choices);
        fuzz::tflite(&damaged);
        // The same file with a record in it.
        if let Ok(model) = Model::read(file) {
            let record = HeadRecord::new(&model, &vec![None; model.tensor_count()]).unwrap();
            fuzz::tflite(&fuzz::mutated(&model.with_record(&record).unwrap(), &mut choices));
        }
    }
}

#[test]
fn no_random_bytes_do_harm() {
    for number in 0..inputs() {
        let mut choices = Choices::from_seed(number);
        let count = choices.below(400) + 8;
        let mut bytes: Vec<u8> = (0..count).map(|_| u8::try_from(choices.below(12)).unwrap()).collect();
        bytes[4..8].copy_from_slice(b"TFL3");
        fuzz::tflite(&bytes);
    }
}

#[test]
fn no_damaged_real_file_does_harm() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/models");
    let folder = std::env::var("STEEVE_MODELS").unwrap_or_else(|_| root.into());
    for name in ["tflm_hello_world_int8", "tflm_audio_preprocessor_int8", "tflm_trained_lstm_int8", "alexa"] {
        let Ok(file) = std::fs::read(format!("{folder}/tflite/{name}.tflite")) else {
            println!("skipped: {name} is not in {folder}/tflite");
            continue;
        };
        for number in 0..inputs() / 4 {
            fuzz::tflite(&fuzz::mutated(&file, &mut Choices::from_seed(number)));
        }
    }
}

#[test]
fn any_random_onnx_model_is_planned() {
    for number in 0..inputs() {
        println!("seed {number}");
        fuzz::valid_onnx(&fuzz::random_onnx(&mut Choices::from_seed(number)).to_bytes());
    }
}

#[test]
fn no_damaged_onnx_model_does_harm() {
    for number in 0..inputs() * 10 {
        println!("seed {number}");
        let mut choices = Choices::from_seed(number);
        let file = fuzz::random_onnx(&mut choices).to_bytes();
        fuzz::onnx(&fuzz::mutated(&file, &mut choices));
    }
}

#[test]
fn any_random_language_model_is_planned_or_refused() {
    for number in 0..inputs() / 4 {
        fuzz::gguf(&fuzz::random_gguf(&mut Choices::from_seed(number)).to_bytes());
    }
}

#[test]
fn no_damaged_language_model_does_harm() {
    for number in 0..inputs() * 2 {
        let mut choices = Choices::from_seed(number);
        // Most of a file are its weights, which are not read.
        let header = fuzz::random_gguf(&mut choices).header_bytes();
        fuzz::gguf(&fuzz::mutated(&header, &mut choices));
    }
}
