//! The formats of weights, read as what they are.

use steeve_graph::{Bytes, DataType};

use crate::frame::{FLOATS, on_each_gpu};
use crate::reference::{FORMATS, Values, contents_of};

/// Blocks as they are, as rows that ids name and as floats of each type; some rows of them, and across planes.
#[test]
fn blocks_of_all_formats_are_read_right() {
    on_each_gpu(600, |proof| {
        for (dtype, row) in FORMATS.into_iter().flat_map(|it| [(it, it.block_len()), (it, 5 * it.block_len())]) {
            let mut sketch = proof.sketch();
            let a = sketch.external(dtype, &[row, 7, 2], Values::Within(2.0)).unwrap();
            let ids = sketch.input(DataType::I32, &[9, 2], Values::Below(7)).unwrap();
            let nb = sketch.layout(a).nb();
            let some = sketch.context.view_3d(a, [row, 4, 2], [nb[1], nb[2]], Bytes(nb[1])).unwrap();
            let turned = sketch.context.permute(a, [0, 2, 1, 3]).unwrap();
            let mut outputs = vec![sketch.context.get_rows(a, ids).unwrap()];
            for (source, shape) in [(a, [row, 7, 2]), (some, [row, 4, 2]), (turned, [row, 2, 7])] {
                for to in FLOATS {
                    let place = sketch.input(to, &shape, Values::Within(1.0)).unwrap();
                    outputs.push(sketch.context.cpy(source, place).unwrap());
                }
            }
            proof.prove(sketch, &outputs, format_args!("{dtype} {row}"));
        }
    });
}

#[test]
fn copies_of_blocks_are_the_same_bytes() {
    on_each_gpu(600, |proof| {
        for (dtype, row) in FORMATS.into_iter().flat_map(|it| [(it, it.block_len()), (it, 5 * it.block_len())]) {
            let mut sketch = proof.sketch();
            let a = sketch.external(dtype, &[row, 7, 2], Values::Within(2.0)).unwrap();
            let turned = sketch.context.permute(a, [0, 2, 1, 3]).unwrap();
            let copies = [sketch.context.dup(a).unwrap(), sketch.context.cont(turned).unwrap()];
            let case = sketch.case(&copies).unwrap();
            for (source, copy) in [a, turned].into_iter().zip(copies) {
                let wanted = contents_of(&case).bytes(case.graph.tensors(), source);
                assert!(proof.made(&case, copy) == wanted, "{dtype} {row}");
            }
        }
    });
}

/// Blocks are read in words of four bytes where their size allows it, and they may start between those.
#[test]
fn blocks_that_start_between_words_are_read_right() {
    on_each_gpu(700, |proof| {
        for dtype in FORMATS.into_iter().filter(|dtype| dtype.block_bytes().is_multiple_of(2)) {
            let mut sketch = proof.sketch();
            let all = sketch.external(dtype, &[256, 7], Values::Within(1.0)).unwrap();
            let x = sketch.input(DataType::F32, &[256, 2], Values::Within(1.0)).unwrap();
            let ids = sketch.input(DataType::I32, &[2], Values::Below(6)).unwrap();
            // Two bytes that are no part of it come first.
            let bytes = &mut sketch.contents[0].1;
            bytes.rotate_right(2);
            let row = sketch.layout(all).nb()[1];
            let c = &mut sketch.context;
            let askew = c.view_2d(all, [256, 6], row, Bytes(2)).unwrap();
            let outputs = [c.mul_mat(askew, x), c.get_rows(askew, ids)].map(Result::unwrap);
            proof.prove(sketch, &outputs, dtype);
        }
    });
}

/// What is not supported is refused by name: nothing is rounded to the formats of weights, and no cache has them.
#[test]
fn nothing_is_rounded_to_the_formats_of_weights() {
    on_each_gpu(0, |proof| {
        let mut sketch = proof.sketch();
        let floats = sketch.input(DataType::F32, &[256, 2], Values::Within(1.0)).unwrap();
        let place = sketch.external(DataType::Q4K, &[256, 2], Values::Within(1.0)).unwrap();
        let ids = sketch.input(DataType::I64, &[2], Values::Distinct(2)).unwrap();
        let copied = sketch.context.cpy(floats, place).unwrap();
        let set = sketch.context.set_rows(place, floats, ids).unwrap();
        let case = sketch.case(&[copied, set]).unwrap();
        for node in [copied, set] {
            let error = proof.backend.supports(&case.graph, node).unwrap_err().to_string();
            assert!(error.contains("q4_K"), "{error}");
        }
    });
}
