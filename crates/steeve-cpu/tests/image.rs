//! Patches, windows, larger images and zeros around them, against the same written down element by element.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod filled_context;

use filled_context::{FilledContext, assert_close};
use steeve_graph::{Convolution, DataType, Interpolation, Op, Param, Pool, TensorId, Window};

const FLOATS: [DataType; 3] = [DataType::F32, DataType::F16, DataType::Bf16];

/// Reads elements of a tensor by position; zero outside.
struct Pixels {
    ne: [u64; 4],
    numbers: Vec<f64>,
}

impl Pixels {
    fn of(trial: &FilledContext, tensor: TensorId) -> Self {
        Self { ne: trial.layout(tensor).ne(), numbers: trial.values(tensor) }
    }

    fn inside(&self, at: [i64; 4]) -> bool {
        at.iter().zip(self.ne).all(|(&at, n)| 0 <= at && at < n as i64)
    }

    fn at(&self, at: [i64; 4]) -> f64 {
        let [n0, n1, n2, _] = self.ne.map(|n| n as i64);
        if self.inside(at) { self.numbers[(at[0] + n0 * (at[1] + n1 * (at[2] + n2 * at[3]))) as usize] } else { 0.0 }
    }
}

/// All positions of a shape, in order.
fn positions(ne: [u64; 4]) -> impl Iterator<Item = [i64; 4]> {
    let [n0, n1, n2, n3] = ne.map(|n| n as i64);
    (0..n0 * n1 * n2 * n3).map(move |i| [i % n0, i / n0 % n1, i / n0 / n1 % n2, i / n0 / n1 / n2])
}

#[test]
fn patches_are_what_a_kernel_sees() {
    for seed in 0..200 {
        let mut trial = FilledContext::new(seed);
        let [kw, kh, channels, images] =
            [1 + trial.below(4), 1 + trial.below(3), 1 + trial.below(3), 1 + trial.below(2)];
        let [w, h] = [trial.below(9) + 10, trial.below(5) + 8];
        let mut two = |least: u64, most: u64| [0; 2].map(|_| (least + trial.below(most)) as u32);
        let way = Convolution { stride: two(1, 3), padding: two(0, 4), dilation: two(1, 3) };
        let from = trial.pick(&FLOATS);
        let image = trial.strided(from, [w, h, channels, images]);
        let kernel = trial.leaf(DataType::F16, &[kw, kh, channels, 2]);
        let to = trial.pick(&FLOATS);
        let patches = trial.context.im2col(kernel, image, way, to).unwrap();
        let pixels = Pixels::of(&trial, image);
        let ([s0, s1], [p0, p1]) = (way.stride.map(i64::from), way.padding.map(i64::from));
        let [d0, d1] = way.dilation.map(i64::from);
        let wanted: Vec<f64> = positions(trial.layout(patches).ne())
            .map(|[at, across, down, image]| {
                let (kw, kh) = (kw as i64, kh as i64);
                let (kx, ky, channel) = (at % kw, at / kw % kh, at / kw / kh);
                pixels.at([across * s0 + kx * d0 - p0, down * s1 + ky * d1 - p1, channel, image])
            })
            .collect();
        let what = format!("{way:?} on {}", trial.layout(image));
        assert_close(&trial.result(patches), &wanted, 0.0, &what);
    }
}

#[test]
fn patches_of_rows_have_no_height() {
    for seed in 0..100 {
        let mut trial = FilledContext::new(seed);
        let [size, channels, count, length] =
            [1 + trial.below(4), 1 + trial.below(3), 1 + trial.below(3), 12 + trial.below(9)];
        let rows = trial.strided(DataType::F32, [length, channels, count, 1]);
        let kernel = trial.leaf(DataType::F16, &[size, channels, 2]);
        let [stride, padding, dilation] = [1 + trial.below(3), trial.below(4), 1 + trial.below(3)].map(|it| it as i64);
        let dtype = i64::from(DataType::F16.ggml_id());
        // The values for the second direction do not count.
        let [other, more] = [trial.below(3) as i64, trial.below(3) as i64];
        let params = [stride, other, padding, more, dilation, other, 0, dtype].map(Param::Int);
        let patches = trial.context.apply(Op::Im2col, &[Some(kernel), Some(rows)], &params).unwrap();
        let pixels = Pixels::of(&trial, rows);
        let size = size as i64;
        let wanted: Vec<f64> = positions(trial.layout(patches).ne())
            .map(|[at, place, n, _]| pixels.at([place * stride + at % size * dilation - padding, at / size, n, 0]))
            .collect();
        assert_close(&trial.result(patches), &wanted, 0.0, &format!("{} {params:?}", trial.layout(rows)));
    }
}

#[test]
fn windows_of_planes_give_their_maximum_or_mean() {
    for seed in 0..150 {
        let mut trial = FilledContext::new(seed);
        let dtype = trial.pick(&FLOATS);
        let [w, h, planes, cubes] = [5 + trial.below(9), 5 + trial.below(5), 1 + trial.below(3), 1 + trial.below(2)];
        let a = trial.strided(dtype, [w, h, planes, cubes]);
        let size = [1 + trial.below(4) as u32, 1 + trial.below(4) as u32];
        let stride = [1 + trial.below(3) as u32, 1 + trial.below(3) as u32];
        let padding = [trial.pick(&[0.0, 0.5, 1.0, 2.0]), trial.pick(&[0.0, 1.0, 1.5])];
        let pool = trial.pick(&[Pool::Max, Pool::Mean]);
        let to = trial.context.pool_2d(a, pool, Window { size, stride, padding }).unwrap();
        let pixels = Pixels::of(&trial, a);
        let ([k0, k1], [s0, s1], [p0, p1]) = (size.map(i64::from), stride.map(i64::from), padding.map(|it| it as i64));
        let wanted: Vec<f64> = positions(trial.layout(to).ne())
            .map(|[x, y, plane, cube]| {
                let window = (0..k0 * k1).map(|i| [x * s0 - p0 + i % k0, y * s1 - p1 + i / k0, plane, cube]);
                match pool {
                    Pool::Max => window
                        .filter(|at| pixels.inside(*at))
                        .fold(f64::from(f32::MIN), |max, at| max.max(pixels.at(at))),
                    Pool::Mean => window.map(|at| pixels.at(at)).sum::<f64>() / (k0 * k1) as f64,
                }
            })
            .collect();
        let what = format!("{pool:?} {size:?} {stride:?} {padding:?} of {}", trial.layout(a));
        assert_close(&trial.result(to), &wanted, 1e-6, &what);
    }
}

#[test]
fn windows_of_rows_give_their_maximum_or_mean() {
    for seed in 0..100 {
        let mut trial = FilledContext::new(seed);
        let dtype = trial.pick(&FLOATS);
        let a = trial.strided(dtype, [9, 4, 3, 2]);
        let [size, stride, padding] = [1 + trial.below(4) as u32, 1 + trial.below(3) as u32, trial.below(3) as u32];
        let pool = trial.pick(&[Pool::Max, Pool::Mean]);
        let to = trial.context.pool_1d(a, pool, size, stride, padding).unwrap();
        let pixels = Pixels::of(&trial, a);
        let wanted: Vec<f64> = positions(trial.layout(to).ne())
            .map(|[x, i1, i2, i3]| {
                let start = x * i64::from(stride) - i64::from(padding);
                let window: Vec<f64> = (start..start + i64::from(size))
                    .map(|x| [x, i1, i2, i3])
                    .filter(|at| pixels.inside(*at))
                    .map(|at| pixels.at(at))
                    .collect();
                match pool {
                    Pool::Max => window.iter().copied().fold(f64::from(f32::MIN), f64::max),
                    Pool::Mean => window.iter().sum::<f64>() / window.len().max(1) as f64,
                }
            })
            .collect();
        let what = format!("{pool:?} {size} {stride} {padding} of {}", trial.layout(a));
        assert_close(&trial.result(to), &wanted, 1e-6, &what);
    }
}

#[test]
fn larger_images_take_the_nearest_or_what_lies_between() {
    for seed in 0..100 {
        let mut trial = FilledContext::new(seed);
        let how = trial.pick(&[Interpolation::Nearest, Interpolation::Bilinear]);
        let dtype = match how {
            Interpolation::Nearest => {
                trial.pick(&[DataType::F32, DataType::F16, DataType::I32, DataType::I8, DataType::I64])
            }
            Interpolation::Bilinear => trial.pick(&FLOATS),
        };
        let shape = [1 + trial.below(7), 1 + trial.below(6), 1 + trial.below(3), 1 + trial.below(2)];
        let a = trial.strided(dtype, shape);
        let factor = 1 + trial.below(4) as u32;
        let to = trial.context.upscale(a, factor, how).unwrap();
        let (pixels, factor) = (Pixels::of(&trial, a), i64::from(factor));
        let [w, h] = [shape[0] as i64, shape[1] as i64];
        let wanted: Vec<f64> = positions(trial.layout(to).ne())
            .map(|[x, y, i2, i3]| match how {
                Interpolation::Nearest => pixels.at([x / factor, y / factor, i2, i3]),
                Interpolation::Bilinear => {
                    let between = |at: i64| (at as f64 + 0.5) / factor as f64 - 0.5;
                    let (x, y) = (between(x).clamp(0.0, (w - 1) as f64), between(y).clamp(0.0, (h - 1) as f64));
                    let (x0, y0) = (x.floor() as i64, y.floor() as i64);
                    let (x1, y1) = ((x0 + 1).min(w - 1), (y0 + 1).min(h - 1));
                    let (dx, dy) = (x - x0 as f64, y - y0 as f64);
                    let across = |y: i64| pixels.at([x0, y, i2, i3]) * (1.0 - dx) + pixels.at([x1, y, i2, i3]) * dx;
                    across(y0) * (1.0 - dy) + across(y1) * dy
                }
            })
            .collect();
        let tolerance = if dtype == DataType::F32 { 1e-6 } else { 8e-3 };
        let what = format!("{how:?} {factor} of {}", trial.layout(a));
        assert_close(&trial.result(to), &wanted, tolerance, &what);
    }
}

#[test]
fn zeros_stand_around_a_padded_tensor() {
    for seed in 0..150 {
        let mut trial = FilledContext::new(seed);
        let dtype =
            trial.pick(&[DataType::F32, DataType::F16, DataType::Bf16, DataType::I32, DataType::I8, DataType::I64]);
        let shape = [0; 4].map(|_| 1 + trial.below(6));
        let a = trial.strided(dtype, shape);
        let zeros: [u64; 8] = [0; 8].map(|_| trial.pick(&[0, 0, 1, 3]));
        let params = zeros.map(|it| Param::Int(it as i64));
        let to = trial.context.apply(Op::Pad, &[Some(a)], &params).unwrap();
        let pixels = Pixels::of(&trial, a);
        let wanted: Vec<f64> = positions(trial.layout(to).ne())
            .map(|at| pixels.at(std::array::from_fn(|dim| at[dim] - zeros[2 * dim] as i64)))
            .collect();
        assert_eq!(trial.result(to), wanted, "{zeros:?} around {}", trial.layout(a));
    }
}

#[test]
fn a_padded_nothing_is_all_zeros() {
    let mut trial = FilledContext::new(1);
    let a = trial.leaf(DataType::F32, &[3, 0]);
    let to = trial.context.pad(a, [1, 2, 0, 0]).unwrap();
    assert_eq!(trial.result(to), [0.0; 8]);
}

#[test]
fn large_images_are_cut_without_a_seam() {
    let mut trial = FilledContext::new(1);
    let image = trial.leaf(DataType::F32, &[60, 50, 8]);
    let kernel = trial.leaf(DataType::F16, &[3, 3, 8, 4]);
    let way = Convolution { padding: [1, 1], ..Convolution::default() };
    let patches = trial.context.im2col(kernel, image, way, DataType::F16).unwrap();
    let pixels = Pixels::of(&trial, image);
    let wanted: Vec<f64> = positions(trial.layout(patches).ne())
        .map(|[at, x, y, n]| pixels.at([x + at % 3 - 1, y + at / 3 % 3 - 1, at / 9, n]))
        .collect();
    assert_close(&trial.result(patches), &wanted, 0.0, "im2col");
    let larger = trial.context.upscale(image, 3, Interpolation::Bilinear).unwrap();
    assert_eq!(trial.result(larger).len(), 60 * 50 * 8 * 9);
    let padded = trial.context.pad(image, [7, 3, 0, 0]).unwrap();
    assert_eq!(trial.result(padded).iter().sum::<f64>(), trial.values(image).iter().sum::<f64>());
}

#[test]
fn what_is_not_supported_is_said_before_anything_runs() {
    let mut trial = FilledContext::new(1);
    let q = trial.leaf(DataType::Q8_0, &[32, 2]);
    let padded = trial.context.pad(q, [32, 0, 0, 0]).unwrap();
    assert!(trial.refusal(padded).ends_with("data type: expected a plain type"));
    let larger = trial.context.upscale(q, 2, Interpolation::Bilinear).unwrap();
    assert!(trial.refusal(larger).ends_with("data type: expected f32, f16 or bf16"));
}
