//! What the operations compute, as plainly as one can write it.

use steeve_graph::{DataType, Glu, Layout, Op, Param, Unary};

/// A tensor in the order of its indices.
#[derive(Clone, Debug)]
pub(super) struct FloatArray {
    pub(super) ne: [usize; 4],
    pub(super) data: Vec<f32>,
}

impl FloatArray {
    /// From the bytes of a tensor: `f32`, `f16` or `i32`.
    pub(super) fn decode(layout: &Layout, bytes: &[u8]) -> Self {
        let one = |at: usize| match layout.dtype() {
            DataType::F16 => half(u16::from_le_bytes([bytes[at], bytes[at + 1]])),
            dtype => {
                let four = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
                if dtype == DataType::I32 { i32::from_le_bytes(four) as f32 } else { f32::from_le_bytes(four) }
            }
        };
        Self { ne: layout.ne().map(|n| n as usize), data: layout.block_offsets().map(|at| one(at as usize)).collect() }
    }

    /// The element at an index, which is taken modulo the shape.
    fn at(&self, index: [usize; 4]) -> f32 {
        let [i, j, k, l] = [0, 1, 2, 3].map(|dim| index[dim] % self.ne[dim]);
        self.data[i + self.ne[0] * (j + self.ne[1] * (k + self.ne[2] * l))]
    }

    fn indices(&self) -> impl Iterator<Item = [usize; 4]> + use<> {
        let [a, b, c, d] = self.ne;
        (0..a * b * c * d).map(move |n| [n % a, n / a % b, n / (a * b) % c, n / (a * b * c)])
    }
}

fn half(bits: u16) -> f32 {
    let (sign, exponent, mantissa) = (bits >> 15, i32::from(bits >> 10 & 31), f32::from(bits & 0x3FF));
    let value =
        if exponent == 0 { mantissa / 16_777_216.0 } else { (1.0 + mantissa / 1024.0) * 2f32.powi(exponent - 15) };
    if sign == 1 { -value } else { value }
}

/// The elements of the result.
pub(super) fn compute(op: Op, params: &[Param], sources: &[FloatArray]) -> Vec<f32> {
    let a = &sources[0];
    let param = |index: usize| params[index].float();
    let each = |act: &dyn Fn(f32) -> f32| a.data.iter().map(|value| act(*value)).collect::<Vec<f32>>();
    let both = |act: &dyn Fn(f32, f32) -> f32| -> Vec<f32> {
        a.indices().zip(&a.data).map(|(index, value)| act(*value, sources[1].at(index))).collect()
    };
    match op {
        Op::Unary(kind) => each(&|x| unary(kind, x, params)),
        Op::Glu(kind) => both(&|x, gate| glu(kind, x) * gate),
        Op::Add | Op::Add1 => both(&|x, y| x + y),
        Op::Sub => both(&|x, y| x - y),
        Op::Mul => both(&|x, y| x * y),
        Op::Div => both(&|x, y| x / y),
        Op::Sqr => each(&|x| x * x),
        Op::Sqrt => each(&f32::sqrt),
        Op::Log => each(&f32::ln),
        Op::Scale => each(&|x| x * param(0) + param(1)),
        Op::LeakyRelu => each(&|x| if x < 0.0 { x * param(0) } else { x }),
        Op::Clamp => each(&|x| x.clamp(param(0), param(1))),
        Op::Fill => each(&|_| param(0)),
        Op::SiluBack => both(&|dy, x| dy * sigmoid(x) * (1.0 + x * (1.0 - sigmoid(x)))),
        Op::DiagMaskInf => diagonal(a, param(0) as usize, f32::NEG_INFINITY),
        Op::DiagMaskZero => diagonal(a, param(0) as usize, 0.0),
        Op::AddId => {
            let (b, ids) = (&sources[1], &sources[2]);
            let row = |[i, j, k, _]: [usize; 4]| b.at([i, ids.at([j, k, 0, 0]) as usize, 0, 0]);
            a.indices().zip(&a.data).map(|(index, value)| value + row(index)).collect()
        }
        Op::Norm => chunks(a, a.ne[0], &|row| normed(row, param(0))),
        Op::GroupNorm => group_norm(a, params[0].int().unwrap() as usize, param(1)),
        Op::RmsNorm => chunks(a, a.ne[0], &|row| {
            let factor = 1.0 / (dot(row, row) / row.len() as f32 + param(0)).sqrt();
            row.iter().map(|x| x * factor).collect()
        }),
        Op::L2Norm => chunks(a, a.ne[0], &|row| {
            let factor = 1.0 / dot(row, row).sqrt().max(param(0));
            row.iter().map(|x| x * factor).collect()
        }),
        Op::RmsNormBack => rows_of_two(a, &sources[1], |dz, x| {
            let (n, squares) = (x.len() as f32, dot(x, x));
            let (factor, share) = (1.0 / (squares / n + param(0)).sqrt(), -dot(x, dz) / (squares + param(0) * n));
            dz.iter().zip(x).map(|(dz, x)| (x * share + dz) * factor).collect()
        }),
        Op::SoftMaxBack => rows_of_two(a, &sources[1], |dy, y| {
            let sum = dot(dy, y);
            dy.iter().zip(y).map(|(dy, y)| (dy - sum) * y * param(0)).collect()
        }),
        Op::SoftMax => soft_max(a, sources.get(1), sources.get(2), param(0), param(1)),
        Op::Rope => rope(sources, params, 1.0),
        Op::RopeBack => rope(sources, params, -1.0),
        other => panic!("{other:?} is not known here"),
    }
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn chunks(a: &FloatArray, size: usize, act: &dyn Fn(&[f32]) -> Vec<f32>) -> Vec<f32> {
    a.data.chunks(size).flat_map(act).collect()
}

fn rows_of_two(a: &FloatArray, b: &FloatArray, act: impl Fn(&[f32], &[f32]) -> Vec<f32>) -> Vec<f32> {
    a.data.chunks(a.ne[0]).zip(b.data.chunks(a.ne[0])).flat_map(|(a, b)| act(a, b)).collect()
}

fn normed(values: &[f32], epsilon: f32) -> Vec<f32> {
    let n = values.len() as f32;
    let mean = values.iter().sum::<f32>() / n;
    let squares = values.iter().map(|x| (x - mean) * (x - mean)).sum::<f32>() / n;
    values.iter().map(|x| (x - mean) / (squares + epsilon).sqrt()).collect()
}

/// Groups of channels; the last may have fewer.
fn group_norm(a: &FloatArray, groups: usize, epsilon: f32) -> Vec<f32> {
    let [width, height, channels, _] = a.ne;
    let group = channels.div_ceil(groups) * width * height;
    let images = a.data.chunks(width * height * channels);
    images
        .flat_map(|image| image.chunks(group).flat_map(|values| normed(values, epsilon)).collect::<Vec<_>>())
        .collect()
}

fn diagonal(a: &FloatArray, past: usize, value: f32) -> Vec<f32> {
    let masked = |[i, j, ..]: [usize; 4]| i > past + j;
    a.indices().zip(&a.data).map(|(index, x)| if masked(index) { value } else { *x }).collect()
}

fn soft_max(
    a: &FloatArray,
    mask: Option<&FloatArray>,
    sinks: Option<&FloatArray>,
    scale: f32,
    max_bias: f32,
) -> Vec<f32> {
    let [n, rows, heads, _] = a.ne;
    let mut result = Vec::new();
    for (number, row) in a.data.chunks(n).enumerate() {
        let (j, k, l) = (number % rows, number / rows % heads, number / (rows * heads));
        let slope = if max_bias > 0.0 { (-max_bias * (k + 1) as f32 / heads as f32).exp2() } else { 1.0 };
        let bias = |i: usize| mask.map_or(0.0, |mask| slope * mask.at([i, j, k, l]));
        let scores: Vec<f32> = row.iter().enumerate().map(|(i, x)| x * scale + bias(i)).collect();
        let sink = sinks.map(|sinks| sinks.data[k]);
        let most = scores.iter().copied().chain(sink).fold(f32::NEG_INFINITY, f32::max);
        let exps: Vec<f32> = scores.iter().map(|score| (score - most).exp()).collect();
        let sum = exps.iter().sum::<f32>() + sink.map_or(0.0, |sink| (sink - most).exp());
        result.extend(exps.iter().map(|exp| exp / sum));
    }
    result
}

fn rope(sources: &[FloatArray], params: &[Param], direction: f32) -> Vec<f32> {
    let (a, positions) = (&sources[0], &sources[1].data);
    let int = |index: usize| params[index].int().unwrap() as usize;
    let (dims, mode, base) = (int(0), int(1), params[3].float());
    let tokens = a.ne[2];
    let sections: Vec<usize> = (9..13).map(int).collect();
    let mut result = a.data.clone();
    for (number, row) in result.chunks_mut(a.ne[0]).enumerate() {
        let token = number / a.ne[1] % tokens;
        for pair in 0..dims / 2 {
            let position = if mode & 8 == 0 {
                positions[token]
            } else {
                let (mut part, mut rest) = (0, pair % sections.iter().sum::<usize>());
                while rest >= sections[part] {
                    rest -= sections[part];
                    part += 1;
                }
                positions[part * tokens + token]
            };
            let factor = sources.get(2).map_or(1.0, |factors| factors.data[pair]);
            let angle = direction * position * base.powf(-2.0 * pair as f32 / dims as f32) / factor;
            let (first, second) = if mode == 0 { (2 * pair, 2 * pair + 1) } else { (pair, pair + dims / 2) };
            let (x, y) = (row[first], row[second]);
            row[first] = x * angle.cos() - y * angle.sin();
            row[second] = x * angle.sin() + y * angle.cos();
        }
    }
    result
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

fn gelu(x: f32) -> f32 {
    0.5 * x * (1.0 + (0.797_884_6 * x * (1.0 + 0.044_715 * x * x)).tanh())
}

/// By Abramowitz and Stegun, 7.1.26.
fn erf(x: f32) -> f32 {
    let t = 1.0 / (1.0 + 0.327_591_1 * x.abs());
    let terms = [0.254_829_6, -0.284_496_74, 1.421_413_7, -1.453_152, 1.061_405_4];
    let sum = terms.iter().rev().fold(0.0, |sum, term| (sum + term) * t);
    (1.0 - sum * (-x * x).exp()).copysign(x)
}

fn unary(kind: Unary, x: f32, params: &[Param]) -> f32 {
    let hard = |x: f32| ((x + 3.0) / 6.0).clamp(0.0, 1.0);
    match kind {
        Unary::Abs => x.abs(),
        Unary::Sgn => x.signum(),
        Unary::Neg => -x,
        Unary::Step => f32::from(x > 0.0),
        Unary::Tanh => x.tanh(),
        Unary::Elu => {
            if x > 0.0 {
                x
            } else {
                x.exp_m1()
            }
        }
        Unary::Relu => x.max(0.0),
        Unary::Sigmoid => sigmoid(x),
        Unary::Gelu => gelu(x),
        Unary::GeluQuick => x * sigmoid(1.702 * x),
        Unary::GeluErf => 0.5 * x * (1.0 + erf(x / 2f32.sqrt())),
        Unary::Silu => x * sigmoid(x),
        Unary::Hardswish => x * hard(x),
        Unary::Hardsigmoid => hard(x),
        Unary::Exp => x.exp(),
        Unary::Expm1 => x.exp_m1(),
        Unary::Softplus => x.exp().ln_1p(),
        Unary::Xielu => {
            let number = |index: usize| params[index].float();
            let curve = if x > 0.0 { number(1) * x * x } else { (x.min(number(3)).exp_m1() - x) * number(0) };
            curve + number(2) * x
        }
        Unary::Floor => x.floor(),
        Unary::Ceil => x.ceil(),
        Unary::Round => x.round(),
        Unary::Trunc => x.trunc(),
        other => panic!("{other:?} is not known here"),
    }
}

fn glu(kind: Glu, x: f32) -> f32 {
    match kind {
        Glu::Reglu => x.max(0.0),
        Glu::Geglu => gelu(x),
        Glu::GegluErf => unary(Unary::GeluErf, x, &[]),
        Glu::GegluQuick => unary(Unary::GeluQuick, x, &[]),
        Glu::Swiglu => x * sigmoid(x),
        Glu::SwigluOai => x.min(7.0) * sigmoid(1.702 * x),
        other => panic!("{other:?} is not known here"),
    }
}
