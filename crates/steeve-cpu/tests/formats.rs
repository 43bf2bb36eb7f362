//! Block formats: what is read from blocks is what their descriptions and another implementation say.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod filled_context;

use std::path::PathBuf;

use filled_context::FilledContext;
use filled_context::formats::{FORMATS, parts, random_blocks};
use steeve_graph::DataType;

fn golden(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A leaf with one of these blocks in each row, all rows of which are taken.
fn taken(trial: &mut FilledContext, dtype: DataType, blocks: Vec<u8>) -> Vec<u8> {
    let count = blocks.len() as u64 / dtype.block_bytes();
    let a = trial.blocks(dtype, &[dtype.block_len(), count], blocks);
    let all: Vec<f64> = (0..count).map(|row| row as f64).collect();
    let ids = trial.given(DataType::I32, &[count], &all);
    let rows = trial.context.get_rows(a, ids).unwrap();
    trial.run(&[rows], 1, 0).unwrap().remove(0)
}

/// The golden values are those of `gguf`, in f32 arithmetic; they are the same to the bit, but for the sign of a zero.
#[test]
fn golden_blocks_are_read_as_gguf_reads_them() {
    for dtype in FORMATS {
        let made = taken(&mut FilledContext::new(1), dtype, golden(&format!("{dtype}.blocks")));
        let wanted = golden(&format!("{dtype}.f32"));
        assert_eq!(made.len(), wanted.len(), "{dtype}");
        for (i, (a, b)) in made.as_chunks().0.iter().zip(wanted.as_chunks().0).enumerate() {
            let (a, b) = (f32::from_le_bytes(*a), f32::from_le_bytes(*b));
            assert!(a == b, "{dtype}, element {i}: {a:e}, and gguf says {b:e}");
        }
    }
}

#[test]
fn rows_become_the_blocks_that_gguf_makes() {
    for dtype in [DataType::Q8_0, DataType::Q4_0] {
        let mut trial = FilledContext::new(1);
        let rows = trial.blocks(DataType::F32, &[64, 8], golden("rows.f32"));
        let place = trial.leaf(dtype, &[64, 8]);
        let copy = trial.context.cpy(rows, place).unwrap();
        assert!(trial.run(&[copy], 1, 0).unwrap().remove(0) == golden(&format!("{dtype}.blocks")), "{dtype}");
    }
}

#[test]
fn random_blocks_are_read_as_their_description_says() {
    for dtype in FORMATS {
        let mut trial = FilledContext::new(dtype.ggml_id().into());
        let blocks = random_blocks(dtype, 40, 1.0, || trial.below(256) as u8);
        let made = taken(&mut FilledContext::new(1), dtype, blocks.clone());
        let size = dtype.block_bytes() as usize;
        let wanted = blocks
            .chunks(size)
            .flat_map(|block| (0..dtype.block_len() as usize).map(move |i| parts(dtype, block, i).expect("a format")));
        for (i, (made, parts)) in made.as_chunks().0.iter().zip(wanted).enumerate() {
            let made = f64::from(f32::from_le_bytes(*made));
            let near = (made - parts.value()).abs() <= 2e-7 * parts.size();
            assert!(near, "{dtype}, element {i} is {made:e} and should be {:e}", parts.value());
        }
    }
}

#[test]
fn blocks_of_every_format_become_floats_by_a_copy() {
    for dtype in FORMATS {
        let mut trial = FilledContext::new(5);
        let a = trial.leaf(dtype, &[2 * dtype.block_len(), 3]);
        let place = trial.leaf(DataType::F32, &[2 * dtype.block_len(), 3]);
        let copy = trial.context.cpy(a, place).unwrap();
        filled_context::assert_close(&trial.result(copy), &trial.values(a), 1e-6, dtype.name());
    }
}

#[test]
fn what_nobody_rounds_to_is_named() {
    for dtype in FORMATS.into_iter().filter(|dtype| ![DataType::Q8_0, DataType::Q4_0].contains(dtype)) {
        let mut trial = FilledContext::new(1);
        let (a, b) = (trial.leaf(DataType::F32, &[256, 2]), trial.leaf(dtype, &[256, 2]));
        let copy = trial.context.cpy(a, b).unwrap();
        let why = trial.refusal(copy);
        assert!(why.ends_with(&format!("no conversion of f32 to {dtype}")), "{why}");
        let ids = trial.given(DataType::I32, &[2], &[0.0, 1.0]);
        let written = trial.context.set_rows(b, a, ids).unwrap();
        let why = trial.refusal(written);
        assert!(why.ends_with(&format!("no rounding to {dtype}")), "{why}");
    }
}
