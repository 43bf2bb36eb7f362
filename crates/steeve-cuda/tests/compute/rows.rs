//! Norms and sums: one number, or a few, for each row.

use steeve_graph::{Bytes, DataType, Op, TensorId};

use crate::frame::on_each_gpu;
use crate::reference::Values;

/// Numbers whose squares no f32 holds, in rows that fit into registers and in rows at odd addresses.
#[test]
fn norms_of_very_large_and_very_small_numbers_are_right() {
    on_each_gpu(200, |proof| {
        for dtype in [DataType::F32, DataType::Bf16] {
            for (most, epsilon) in [(1e18, 1e-5), (1e20, 1e-5), (1e-20, 0.0)] {
                for n in [4, 64, 1000, 4096, 16_384, 20_000] {
                    let mut sketch = proof.sketch();
                    let a = sketch.input(dtype, &[n + 2, 3], Values::Within(most)).unwrap();
                    let b = sketch.input(dtype, &[n, 3], Values::Within(most)).unwrap();
                    let (row, size) = (sketch.layout(a).nb()[1], dtype.block_bytes());
                    let c = &mut sketch.context;
                    let askew = c.view_2d(a, [n, 3], row, Bytes(size)).unwrap();
                    let mut outputs = Vec::new();
                    for x in [b, askew] {
                        outputs.extend([c.norm(x, epsilon), c.rms_norm(x, epsilon), c.l2_norm(x, epsilon)]);
                    }
                    let outputs: Vec<TensorId> = outputs.into_iter().map(Result::unwrap).collect();
                    proof.prove(sketch, &outputs, format_args!("{dtype} {most} {n}"));
                }
            }
        }
    });
}

/// Sums that one block would be slow at: of everything and of long rows, in a line and across it, of whole numbers too.
#[test]
fn sums_of_many_elements_are_right_and_the_same_each_time() {
    on_each_gpu(300, |proof| {
        for dtype in [DataType::F32, DataType::F16, DataType::Bf16, DataType::I32] {
            for shape in [[1, 1, 1], [8193, 1, 1], [300_001, 3, 1], [70, 900, 5]] {
                let mut sketch = proof.sketch();
                let values = if dtype == DataType::I32 { Values::Below(90) } else { Values::Within(1.0) };
                let a = sketch.input(dtype, &shape, values).unwrap();
                let c = &mut sketch.context;
                let turned = c.permute(a, [1, 2, 0, 3]).unwrap();
                let mut outputs = Vec::new();
                for x in [a, turned] {
                    outputs.extend([c.apply(Op::Sum, &[Some(x)], &[]), c.apply(Op::SumRows, &[Some(x)], &[])]);
                    if dtype != DataType::I32 {
                        outputs.push(c.apply(Op::Mean, &[Some(x)], &[]));
                    }
                }
                let outputs: Vec<TensorId> = outputs.into_iter().map(Result::unwrap).collect();
                proof.prove(sketch, &outputs, format_args!("{dtype} {shape:?}"));
            }
        }
    });
}

#[test]
fn sums_of_whole_numbers_wrap_around() {
    on_each_gpu(0, |proof| {
        for n in [7, 100_000] {
            let mut sketch = proof.sketch();
            let a = sketch.input(DataType::I32, &[n], Values::Below(9)).unwrap();
            let numbers: Vec<i32> = (0..n as i32).map(|i| i32::MAX - 5 * i).collect();
            sketch.contents[0].1 = numbers.iter().flat_map(|it| it.to_le_bytes()).collect();
            let sum = sketch.context.apply(Op::Sum, &[Some(a)], &[]).unwrap();
            let case = sketch.case(&[sum]).unwrap();
            let wanted = numbers.iter().fold(0i32, |sum, it| sum.wrapping_add(*it));
            assert_eq!(proof.made(&case, sum), wanted.to_le_bytes(), "{n} numbers");
        }
    });
}
