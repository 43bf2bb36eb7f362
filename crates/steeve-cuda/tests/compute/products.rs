//! Products of matrices of all types.

use steeve_graph::{Bytes, DataType};

use crate::frame::{FLOATS, on_each_gpu};
use crate::proof::{Where, judge_node, run_node};
use crate::reference::{Case, CaseBuilder, FORMATS, Values, contents_of};

/// Products of every pair of types, with few columns and many, repeated planes, and strides that no library takes.
#[test]
fn products_of_all_types_and_strides_are_right() {
    on_each_gpu(0, |proof| {
        for (a, b) in FLOATS.into_iter().chain(FORMATS).flat_map(|a| FLOATS.map(|b| (a, b))) {
            for [k, m, n] in [[64, 70, 1], [512, 33, 3], [288, 16, 8], [96, 65, 9], [320, 130, 67], [1024, 5, 40]] {
                let k = u64::next_multiple_of(k, a.block_len());
                let mut sketch = proof.sketch();
                let weights = sketch.external(a, &[k, m, 2], Values::Within(0.5)).unwrap();
                let x = sketch.input(b, &[k, n, 4, 2], Values::Within(1.0)).unwrap();
                // The same seen through another order of dimensions, without a copy.
                let y = sketch.input(b, &[k, 4, n], Values::Within(1.0)).unwrap();
                let y = sketch.context.permute(y, [0, 2, 1, 3]).unwrap();
                // And rows whose elements have gaps between them.
                let z = sketch.input(b, &[n, k], Values::Within(1.0)).unwrap();
                let z = sketch.context.transpose(z).unwrap();
                let row = sketch.layout(weights).nb()[1];
                let c = &mut sketch.context;
                let one = c.view_2d(weights, [k, m], row, Bytes(0)).unwrap();
                let outputs = [c.mul_mat(weights, x), c.mul_mat(weights, y), c.mul_mat(one, z)].map(Result::unwrap);
                proof.prove(sketch, &outputs, format_args!("{a} {b} {k} {m} {n}"));
            }
        }
    });
}

/// Experts, for few tokens and for many, of every type: with rows of their own for each that is used, and one for all. Many get
/// nothing, some more than a block does, and rows are no multiples of what a block does.
#[test]
fn products_with_experts_of_all_formats_are_right() {
    on_each_gpu(500, |proof| {
        let pairs = FLOATS.into_iter().flat_map(|a| FLOATS.map(|b| (a, b)));
        let with_blocks = FORMATS.map(|a| (a, DataType::F32)).into_iter().chain([(DataType::Q8_0, DataType::F16)]);
        for (dtype, b) in pairs.chain(with_blocks) {
            for ([k, m, used, tokens], count) in [
                ([96, 33, 2, 3], 5),
                ([512, 70, 3, 1], 5),
                ([256, 65, 4, 40], 5),
                ([104, 300, 4, 101], 3),
                ([40, 17, 2, 33], 1500),
                ([36, 16, 1, 70], 1),
            ] {
                let k = u64::next_multiple_of(k, dtype.block_len());
                let mut sketch = proof.sketch();
                let experts = sketch.external(dtype, &[k, m, count], Values::Within(0.5)).unwrap();
                let x = sketch.input(b, &[k, used, tokens], Values::Within(1.0)).unwrap();
                let y = sketch.input(b, &[k, 1, tokens], Values::Within(1.0)).unwrap();
                // The same with another order of dimensions.
                let z = sketch.input(b, &[k, tokens, used], Values::Within(1.0)).unwrap();
                let z = sketch.context.permute(z, [0, 2, 1, 3]).unwrap();
                let ids = sketch.input(DataType::I32, &[used, tokens], Values::Below(count)).unwrap();
                let outputs = [x, y, z].map(|it| sketch.context.mul_mat_id(experts, it, ids).unwrap());
                proof.prove(sketch, &outputs, format_args!("{dtype} {b} {k} {m} {tokens} {count}"));
            }
        }
    });
}

/// Ids may be part of a longer list, as those of a router are.
#[test]
fn products_with_experts_that_a_view_names_are_right() {
    on_each_gpu(600, |proof| {
        for tokens in [3, 80] {
            let mut sketch = proof.sketch();
            let experts = sketch.external(DataType::F16, &[64, 40, 6], Values::Within(0.5)).unwrap();
            let x = sketch.input(DataType::F32, &[64, 1, tokens], Values::Within(1.0)).unwrap();
            let all = sketch.input(DataType::I32, &[6, tokens], Values::Below(6)).unwrap();
            let ids = sketch.context.view_2d(all, [2, tokens], 24, Bytes(8)).unwrap();
            let output = sketch.context.mul_mat_id(experts, x, ids).unwrap();
            proof.prove(sketch, &[output], format_args!("{tokens}"));
        }
    });
}

/// Experts that do not exist are named, and everything goes on behind them.
#[test]
fn products_with_experts_that_do_not_exist_are_reported() {
    on_each_gpu(700, |proof| {
        for tokens in [3, 80] {
            let mut sketch = proof.sketch();
            let experts = sketch.external(DataType::F16, &[64, 40, 4], Values::Within(0.5)).unwrap();
            let x = sketch.input(DataType::F32, &[64, 1, tokens], Values::Within(1.0)).unwrap();
            let ids = sketch.input(DataType::I32, &[2, tokens], Values::Below(4)).unwrap();
            let product = sketch.context.mul_mat_id(experts, x, ids).unwrap();
            let right = sketch.case(&[product]).unwrap();
            let mut wrong = Case { contents: right.contents.clone(), ..right };
            let id = wrong.contents.iter_mut().find(|(id, _)| *id == ids).unwrap();
            id.1[4..8].copy_from_slice(&4i32.to_le_bytes());
            let backend = &*proof.backend;
            let error = run_node(backend, &wrong.graph, product, &contents_of(&wrong), Where::Apart).unwrap_err();
            assert!(error.to_string().contains("no such expert: expected an id below 4, got 4"), "{error}");
            backend.synchronise().unwrap();
            wrong.contents.iter_mut().find(|(id, _)| *id == ids).unwrap().1[4..8].copy_from_slice(&3i32.to_le_bytes());
            let made = proof.made(&wrong, product);
            judge_node(wrong.graph.tensors(), &contents_of(&wrong), product, &made).unwrap();
        }
    });
}

/// How large the elements of the other source are.
#[derive(Clone, Copy, Debug)]
enum Far {
    /// Beyond the largest f16.
    Large,
    /// Below the smallest f16 that has all of its bits.
    Small,
    /// Both in one row, so far apart that no f16 holds both, whatever they are scaled by.
    Mixed,
    /// Rows of either kind one after another, and some of zeros.
    InTurn,
}

impl Far {
    /// The largest that an element may be.
    fn most(self, element: usize, row: usize) -> f64 {
        match self {
            Self::Large => 1e6,
            Self::Small => 1e-7,
            Self::Mixed => [1e6, 1e-3][element % 2],
            Self::InTurn => [1e6, 1e-7, 0.0][row % 3],
        }
    }

    fn bytes(self, sketch: &mut CaseBuilder, [k, rows]: [u64; 2]) -> Vec<u8> {
        let places = (0..rows as usize).flat_map(|row| (0..k as usize).map(move |element| (element, row)));
        let unit = |sketch: &mut CaseBuilder| sketch.choices.below(2_000_001) as f64 / 1e6 - 1.0;
        places.flat_map(|(i, row)| ((self.most(i, row) * unit(sketch)) as f32).to_le_bytes()).collect()
    }
}

/// Numbers that f16 does not hold are as good as others where products are made of f16.
#[test]
fn products_with_numbers_far_beyond_f16_are_right() {
    on_each_gpu(900, |proof| {
        for dtype in [DataType::F16, DataType::Q8_0, DataType::Q4_0, DataType::Q4K] {
            for (far, n) in [Far::Large, Far::Small, Far::Mixed, Far::InTurn]
                .into_iter()
                .flat_map(|far| [(far, 3), (far, 9), (far, 40)])
            {
                let (k, m) = (512, 70);
                let mut sketch = proof.sketch();
                let weights = sketch.external(dtype, &[k, m], Values::Within(0.5)).unwrap();
                let mut source = |shape: &[u64]| {
                    let leaf = sketch.input(DataType::F32, shape, Values::Same(0.0)).unwrap();
                    let bytes = far.bytes(&mut sketch, [k, shape[1..].iter().product()]);
                    sketch.contents.last_mut().unwrap().1 = bytes;
                    leaf
                };
                let (x, y) = (source(&[k, n, 2]), source(&[k, 2, n]));
                let c = &mut sketch.context;
                let y = c.permute(y, [0, 2, 1, 3]).unwrap();
                let outputs = [c.mul_mat(weights, x), c.mul_mat(weights, y)].map(Result::unwrap);
                proof.prove(sketch, &outputs, format_args!("{dtype}, {far:?}, {n} columns"));

                let mut sketch = proof.sketch();
                let experts = sketch.external(dtype, &[k, m, 3], Values::Within(0.5)).unwrap();
                let tokens = sketch.input(DataType::F32, &[k, 1, 8 * n], Values::Same(0.0)).unwrap();
                let bytes = far.bytes(&mut sketch, [k, 8 * n]);
                sketch.contents.last_mut().unwrap().1 = bytes;
                let ids = sketch.input(DataType::I32, &[2, 8 * n], Values::Below(3)).unwrap();
                let output = sketch.context.mul_mat_id(experts, tokens, ids).unwrap();
                proof.prove(sketch, &[output], format_args!("{dtype}, {far:?}, experts, {n} columns"));
            }
        }
    });
}
