//! Functions of single elements against the same written down in double precision.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod filled_context;

use filled_context::{FilledContext, assert_close, encode, read};
use steeve_graph::{Bytes, DataType, Glu, Layout, Op, Param, Tensor, TensorId, Unary};

/// What an operation does to single elements.
type BinaryOp<T> = (Op, fn(T, T) -> T);
type UnaryOp<T> = (Op, fn(T) -> T);
type OpWithParams<'a> = (Op, &'a [f32], fn(f64) -> f64);

const FLOATS: [DataType; 3] = [DataType::F32, DataType::F16, DataType::Bf16];

/// How exact a result of this type can be.
fn tolerance(dtype: DataType) -> f64 {
    match dtype {
        DataType::F16 => 1e-3,
        DataType::Bf16 => 8e-3,
        _ => 2e-6,
    }
}

/// As a tensor of this type would keep it.
fn kept(dtype: DataType, x: f64) -> f64 {
    read(&Layout::contiguous(dtype, &[1]).unwrap(), &encode(dtype, x))[0]
}

/// Element `index` of `shape`, in a tensor of `part` that is repeated.
fn repeated(shape: [u64; 4], part: [u64; 4], index: u64) -> usize {
    let (mut rest, mut at, mut step) = (index, 0, 1);
    for (n, part) in shape.into_iter().zip(part) {
        at += rest % n % part * step;
        rest /= n;
        step *= part;
    }
    at as usize
}

/// A node that no rule has looked at, with a result that may have gaps.
fn by_hand(trial: &mut FilledContext, op: Op, layout: Layout, sources: &[TensorId], params: &[Param]) -> TensorId {
    let sources: Vec<_> = sources.iter().copied().map(Some).collect();
    trial.context.add_tensor(Tensor { op, ..Tensor::new(layout) }, &sources, params).unwrap()
}

/// A layout with gaps behind elements, rows and planes.
fn with_gaps(trial: &mut FilledContext, dtype: DataType, ne: [u64; 4]) -> Layout {
    let mut nb = [dtype.block_bytes() * (1 + trial.below(2)); 4];
    for dim in 1..4 {
        nb[dim] = nb[dim - 1] * ne[dim - 1] + dtype.block_bytes() * trial.below(3);
    }
    Layout::new(dtype, ne, nb).unwrap()
}

#[test]
fn sums_and_products_repeat_the_second_source_in_every_dimension() {
    let ops: [BinaryOp<f32>; 4] =
        [(Op::Add, |a, b| a + b), (Op::Sub, |a, b| a - b), (Op::Mul, |a, b| a * b), (Op::Div, |a, b| a / b)];
    for seed in 0..400 {
        let mut trial = FilledContext::new(seed);
        let (op, function) = trial.pick(&ops);
        let part = [0; 4].map(|_| trial.pick(&[1, 1, 2, 3, 5, 17]));
        let shape = part.map(|n| n * trial.pick(&[1, 1, 2, 3]));
        let (a_type, b_type) = (trial.pick(&FLOATS), trial.pick(&FLOATS));
        let (a, b) = (trial.strided(a_type, shape), trial.strided(b_type, part));
        let to = if seed % 2 == 0 {
            trial.context.apply(op, &[Some(a), Some(b)], &[]).unwrap()
        } else {
            let dtype = trial.pick(&FLOATS);
            let layout = with_gaps(&mut trial, dtype, shape);
            by_hand(&mut trial, op, layout, &[a, b], &[])
        };
        let (x, y, dtype) = (trial.values(a), trial.values(b), trial.layout(to).dtype());
        let wanted =
            (0..).zip(&x).map(|(i, x)| kept(dtype, function(*x as f32, y[repeated(shape, part, i)] as f32).into()));
        let what = format!("{} of {} and {}", op.name(), trial.layout(a), trial.layout(b));
        assert_close(&trial.result(to), &wanted.collect::<Vec<_>>(), 0.0, &what);
    }
}

#[test]
fn whole_numbers_wrap() {
    let numbers = [i32::MAX, i32::MIN, -1, 1, 2, 65_537, -7, 46_341];
    let ops: [BinaryOp<i32>; 4] = [
        (Op::Add, i32::wrapping_add),
        (Op::Sub, i32::wrapping_sub),
        (Op::Mul, i32::wrapping_mul),
        (Op::Div, i32::wrapping_div),
    ];
    for (op, function) in ops {
        let mut trial = FilledContext::new(1);
        let all = numbers.map(f64::from);
        let a: Vec<f64> = all.iter().flat_map(|x| [*x; 8]).collect();
        let (a, b) = (trial.given(DataType::I32, &[8, 8], &a), trial.given(DataType::I32, &[8], &all));
        let to = trial.context.apply(op, &[Some(a), Some(b)], &[]).unwrap();
        let wanted: Vec<f64> = numbers.iter().flat_map(|x| numbers.map(|y| f64::from(function(*x, y)))).collect();
        assert_eq!(trial.result(to), wanted, "{}", op.name());
    }
    let unary: [UnaryOp<i32>; 6] = [
        (Op::Sqr, |x| x.wrapping_mul(x)),
        (Op::Unary(Unary::Abs), i32::wrapping_abs),
        (Op::Unary(Unary::Neg), i32::wrapping_neg),
        (Op::Unary(Unary::Sgn), i32::signum),
        (Op::Unary(Unary::Step), |x| i32::from(x > 0)),
        (Op::Unary(Unary::Relu), |x| x.max(0)),
    ];
    for (op, function) in unary {
        let mut trial = FilledContext::new(1);
        let a = trial.given(DataType::I32, &[8], &numbers.map(f64::from));
        let to = trial.context.apply(op, &[Some(a)], &[]).unwrap();
        assert_eq!(trial.result(to), numbers.map(|x| f64::from(function(x))), "{}", op.name());
    }
}

/// By its series.
fn erf(x: f64) -> f64 {
    let (mut term, mut sum) = (x, x);
    for n in 1..400 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    if x.abs() > 5.0 { x.signum() } else { sum * std::f64::consts::FRAC_2_SQRT_PI }
}

const XIELU: [f32; 4] = [0.8, 0.3, 0.5, -1e-6];

fn exact(kind: Unary, x: f64) -> f64 {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let softplus = |x: f64| (1.0 + x.exp()).ln();
    match kind {
        Unary::Abs => x.abs(),
        Unary::Sgn if x == 0.0 => 0.0,
        Unary::Sgn => x.signum(),
        Unary::Neg => -x,
        Unary::Step => f64::from(u8::from(x > 0.0)),
        Unary::Tanh => x.tanh(),
        Unary::Elu if x > 0.0 => x,
        Unary::Elu => x.exp() - 1.0,
        Unary::Relu => x.max(0.0),
        Unary::Sigmoid => sigmoid(x),
        Unary::Gelu => 0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).tanh()),
        Unary::GeluQuick => x * sigmoid(1.702 * x),
        Unary::Silu => x * sigmoid(x),
        Unary::Hardswish => x * ((x + 3.0) / 6.0).clamp(0.0, 1.0),
        Unary::Hardsigmoid => ((x + 3.0) / 6.0).clamp(0.0, 1.0),
        Unary::Exp => x.exp(),
        Unary::Expm1 => x.exp_m1(),
        Unary::Softplus => softplus(x),
        Unary::GeluErf => 0.5 * x * (1.0 + erf(x / 2.0f64.sqrt())),
        Unary::Xielu => {
            let [negative, positive, beta, epsilon] = XIELU.map(f64::from);
            let (negative, positive) = (beta + softplus(negative), softplus(positive));
            if x > 0.0 { positive * x * x + beta * x } else { (x.min(epsilon).exp_m1() - x) * negative + beta * x }
        }
        Unary::Floor => x.floor(),
        Unary::Ceil => x.ceil(),
        Unary::Round => x.round(),
        Unary::Trunc => x.trunc(),
        _ => panic!("{kind} is not written down"),
    }
}

#[test]
fn every_function_of_one_element_is_what_it_is() {
    let numbers: Vec<f64> = (-400..=400).map(|i| f64::from(i) / 32.0).chain([0.0, 25.0, -25.0]).collect();
    for &kind in Unary::ALL {
        let params: Vec<Param> = if kind == Unary::Xielu { XIELU.map(Param::Float).into() } else { Vec::new() };
        for dtype in FLOATS {
            let mut trial = FilledContext::new(1);
            let count = numbers.len() as u64;
            let a = trial.given(dtype, &[count], &numbers);
            let to = trial.context.apply(Op::Unary(kind), &[Some(a)], &params).unwrap();
            // Some grow beyond what a half can hold.
            let wanted: Vec<f64> = trial.values(a).iter().map(|x| kept(dtype, exact(kind, *x))).collect();
            assert_close(&trial.result(to), &wanted, tolerance(dtype), &format!("{kind} {dtype}"));
        }
    }
}

#[test]
fn squares_roots_logarithms_scales_and_limits_are_what_they_are() {
    let cases: [OpWithParams<'_>; 7] = [
        (Op::Sqr, &[], |x| x * x),
        (Op::Sqrt, &[], f64::sqrt),
        (Op::Log, &[], f64::ln),
        (Op::Scale, &[-2.5, 0.0], |x| x * -2.5),
        (Op::Scale, &[0.5, 3.0], |x| x * 0.5 + 3.0),
        (Op::Clamp, &[-0.25, 0.5], |x| x.clamp(-0.25, 0.5)),
        (Op::Fill, &[1.5], |_| 1.5),
    ];
    for seed in 0..60 {
        for (op, params, function) in cases {
            let mut trial = FilledContext::new(seed);
            let dtype = trial.pick(&FLOATS);
            let shape = [0; 4].map(|_| trial.pick(&[1, 2, 3, 7, 40]));
            let a = trial.strided(dtype, shape);
            let params: Vec<Param> = params.iter().copied().map(Param::Float).collect();
            let layout = with_gaps(&mut trial, dtype, shape);
            let to = by_hand(&mut trial, op, layout, &[a], &params);
            let wanted: Vec<f64> = trial.values(a).iter().map(|x| function(*x)).collect();
            let what = format!("{} of {}", op.name(), trial.layout(a));
            assert_close(&trial.result(to), &wanted, tolerance(dtype), &what);
        }
    }
}

#[test]
fn whole_numbers_can_be_filled() {
    let mut trial = FilledContext::new(1);
    let a = trial.leaf(DataType::I32, &[5]);
    let to = trial.context.apply(Op::Fill, &[Some(a)], &[Param::Float(-7.0)]).unwrap();
    assert_eq!(trial.result(to), [-7.0; 5]);
}

#[test]
fn large_tensors_are_cut_without_a_seam() {
    let shapes: [([u64; 4], [u64; 4]); 7] = [
        ([100_003, 1, 1, 1], [100_003, 1, 1, 1]),
        ([1, 70_001, 1, 1], [1, 1, 1, 1]),
        ([3, 40_000, 1, 1], [3, 1, 1, 1]),
        ([3, 40_000, 1, 1], [1, 40_000, 1, 1]),
        ([33_000, 3, 1, 1], [11_000, 1, 1, 1]),
        ([1, 1, 1, 50_000], [1, 1, 1, 50]),
        ([640, 20, 5, 1], [1, 20, 1, 1]),
    ];
    for (shape, part) in shapes {
        for dtype in [DataType::F32, DataType::F16] {
            let mut trial = FilledContext::new(shape[0]);
            let (a, b) = (trial.leaf(dtype, &shape), trial.leaf(DataType::F32, &part));
            let to = trial.context.sub(a, b).unwrap();
            let (x, y) = (trial.values(a), trial.values(b));
            let wanted: Vec<f64> = (0..).zip(&x).map(|(i, x)| kept(dtype, x - y[repeated(shape, part, i)])).collect();
            assert_close(&trial.result(to), &wanted, 0.0, &format!("{shape:?} {dtype}"));
        }
    }
}

#[test]
fn an_added_number_is_the_same_everywhere() {
    for dtype in [DataType::F32, DataType::F16, DataType::I32] {
        let mut trial = FilledContext::new(3);
        let (a, b) = (trial.leaf(dtype, &[7, 3, 2]), trial.given(dtype, &[1], &[5.0]));
        let to = trial.context.apply(Op::Add1, &[Some(a), Some(b)], &[]).unwrap();
        let wanted: Vec<f64> = trial.values(a).iter().map(|x| kept(dtype, x + 5.0)).collect();
        assert_eq!(trial.result(to), wanted);
        let both = trial.leaf(dtype, &[7]);
        let error = trial.context.apply(Op::Add1, &[Some(a), Some(both)], &[]).unwrap_err().to_string();
        assert!(error.ends_with("the second must be one number"), "{error}");
    }
}

#[test]
fn rows_are_added_by_their_ids() {
    for seed in 0..60 {
        let mut trial = FilledContext::new(seed);
        let (n, used, tokens, rows) = (1 + trial.below(40), 1 + trial.below(4), 1 + trial.below(5), 1 + trial.below(6));
        let dtype = trial.pick(&FLOATS);
        let (a, b) = (trial.strided(dtype, [n, used, tokens, 1]), trial.strided(DataType::F32, [n, rows, 1, 1]));
        let ids: Vec<f64> = (0..used * tokens).map(|_| trial.below(rows) as f64).collect();
        let list = trial.given(DataType::I32, &[used, tokens], &ids);
        let to = trial.context.apply(Op::AddId, &[Some(a), Some(b), Some(list)], &[]).unwrap();
        let (x, y) = (trial.values(a), trial.values(b));
        let wanted: Vec<f64> = x
            .iter()
            .enumerate()
            .map(|(i, x)| kept(dtype, x + y[i % n as usize + ids[i / n as usize] as usize * n as usize]))
            .collect();
        assert_close(&trial.result(to), &wanted, 0.0, &format!("{n} {used} {tokens} {rows}"));
    }
}

#[test]
fn an_id_that_names_no_row_is_an_error_with_its_number() {
    for id in [4.0, -1.0] {
        let mut trial = FilledContext::new(1);
        let (a, b) = (trial.leaf(DataType::F32, &[8, 2, 1]), trial.leaf(DataType::F32, &[8, 4]));
        let ids = trial.given(DataType::I32, &[2, 1], &[0.0, id]);
        let to = trial.context.apply(Op::AddId, &[Some(a), Some(b), Some(ids)], &[]).unwrap();
        assert!(trial.refusal(to).contains(&format!("expected an id below 4, got {id}")), "{}", trial.refusal(to));
    }
}

#[test]
fn the_gradient_of_silu_is_its_slope() {
    let mut trial = FilledContext::new(5);
    let (gradient, x) = (trial.strided(DataType::F32, [33, 5, 2, 1]), trial.strided(DataType::F32, [33, 5, 2, 1]));
    let to = trial.context.apply(Op::SiluBack, &[Some(gradient), Some(x)], &[]).unwrap();
    let slope = |x: f64| {
        let step = 1e-6;
        (exact(Unary::Silu, x + step) - exact(Unary::Silu, x - step)) / (2.0 * step)
    };
    let wanted: Vec<f64> = trial.values(gradient).iter().zip(trial.values(x)).map(|(dy, x)| dy * slope(x)).collect();
    assert_close(&trial.result(to), &wanted, 1e-6, "silu_back");
}

fn gated(kind: Glu, x: f64, y: f64) -> f64 {
    match kind {
        Glu::Reglu => exact(Unary::Relu, x) * y,
        Glu::Geglu => exact(Unary::Gelu, x) * y,
        Glu::Swiglu => exact(Unary::Silu, x) * y,
        Glu::GegluErf => exact(Unary::GeluErf, x) * y,
        Glu::GegluQuick => exact(Unary::GeluQuick, x) * y,
        Glu::SwigluOai => {
            let (x, y) = (x.min(7.0), y.clamp(-7.0, 7.0));
            x / (1.0 + (-1.702 * x).exp()) * (y + 1.0)
        }
        _ => panic!("{kind} is not written down"),
    }
}

#[test]
fn gates_take_two_sources_or_the_halves_of_one() {
    for &kind in Glu::ALL {
        for seed in 0..30 {
            let mut trial = FilledContext::new(seed);
            let dtype = trial.pick(&FLOATS);
            let shape = [1 + trial.below(40), 1 + trial.below(5), 1 + trial.below(3), 1 + trial.below(2)];
            let (a, b) = (trial.strided(dtype, shape), trial.strided(dtype, shape));
            let layout = with_gaps(&mut trial, dtype, shape);
            let two = by_hand(&mut trial, Op::Glu(kind), layout, &[a, b], &[]);
            let wanted: Vec<f64> =
                trial.values(a).iter().zip(trial.values(b)).map(|(x, y)| gated(kind, *x, y)).collect();
            let tolerance = tolerance(dtype);
            assert_close(&trial.result(two), &wanted, tolerance, &format!("{kind} of {} and another", trial.layout(a)));

            let whole = trial.strided(dtype, [2 * shape[0], shape[1], shape[2], shape[3]]);
            let numbers = trial.values(whole);
            let n = shape[0] as usize;
            let rows = || numbers.chunks(2 * n).map(|row| row.split_at(n));
            let wanted: Vec<f64> =
                rows().flat_map(|(x, y)| x.iter().zip(y).map(|(x, y)| gated(kind, *x, *y))).collect();
            let one = by_hand(&mut trial, Op::Glu(kind), layout, &[whole], &[]);
            let what = format!("{kind} of halves of {}", trial.layout(whole));
            assert_close(&trial.result(one), &wanted, tolerance, &what);
            let swapped = by_hand(&mut trial, Op::Glu(kind), layout, &[whole], &[Param::Int(1)]);
            let wanted: Vec<f64> =
                rows().flat_map(|(x, y)| x.iter().zip(y).map(|(x, y)| gated(kind, *y, *x))).collect();
            assert_close(&trial.result(swapped), &wanted, tolerance, &what);
        }
    }
}

#[test]
fn what_is_not_supported_is_said_before_anything_runs() {
    let mut trial = FilledContext::new(1);
    let (f, i) = (trial.leaf(DataType::F32, &[32]), trial.leaf(DataType::I32, &[32]));
    let q = trial.leaf(DataType::Q8_0, &[32]);
    let sum = trial.context.add(f, i).unwrap();
    assert!(trial.refusal(sum).ends_with("data type: expected f32, f16 or bf16"), "{}", trial.refusal(sum));
    let sum = trial.context.add(i, f).unwrap();
    assert!(trial.refusal(sum).ends_with("data types: expected i32 with i32"));
    let relu = trial.context.relu(q).unwrap();
    assert!(trial.refusal(relu).ends_with("data type: expected f32, f16 or bf16"));
    let silu = trial.context.silu(i).unwrap();
    assert!(trial.refusal(silu).ends_with("data type: expected f32, f16 or bf16"));
    let short = trial.leaf(DataType::F32, &[31]);
    let layout = trial.layout(f);
    let wrong = by_hand(&mut trial, Op::Add, layout, &[f, short], &[]);
    assert!(trial.refusal(wrong).ends_with("the second must fill the first when it is repeated"));
    let wrong = by_hand(&mut trial, Op::Sqr, layout, &[short], &[]);
    assert!(trial.refusal(wrong).contains("result: another shape than the operation makes"));
    let zero = trial.given(DataType::I32, &[1], &[0.0]);
    let quotient = trial.context.div(i, zero).unwrap();
    assert!(trial.refusal(quotient).contains("division by zero"));
}

#[test]
fn nothing_is_done_for_nothing() {
    let mut trial = FilledContext::new(1);
    let a = trial.leaf(DataType::F32, &[4, 0, 3]);
    let b = trial.leaf(DataType::F32, &[4, 0, 1]);
    let (sum, relu, glu) = (trial.context.add(a, b), trial.context.relu(a), trial.context.glu(Glu::Swiglu, a));
    for node in [sum, relu, glu] {
        assert!(trial.result(node.unwrap()).is_empty());
    }
}

#[test]
fn a_transposed_source_with_an_offset_is_read_where_it_stands() {
    let mut trial = FilledContext::new(9);
    let leaf = trial.leaf(DataType::F32, &[6, 5]);
    let part = trial.context.view_2d(leaf, [4, 3], 24, Bytes(28)).unwrap();
    let turned = trial.context.transpose(part).unwrap();
    let to = by_hand(&mut trial, Op::Sqr, Layout::contiguous(DataType::F32, &[3, 4]).unwrap(), &[turned], &[]);
    let all = trial.values(leaf);
    let wanted: Vec<f64> = (0..12).map(|i| all[7 + i / 3 + i % 3 * 6].powi(2)).collect();
    assert_close(&trial.result(to), &wanted, 0.0, "transposed");
}
