//! The cases of every operation whose result may have the memory of a source.
//!
//! They are made of the table of operations itself, so that one that is added to it and has no case here fails a test.

use steeve_graph::{Context, DataType, Glu, GraphError, Op, Param, Rope, RopeMode, TensorId, Unary};

use super::op_case::{CaseBuilder, Dependence, LeafValues, OpCase, SourceForm};

/// Returns every operation whose result may have the memory of a source, in all kinds.
pub(crate) fn operations() -> impl Iterator<Item = Op> {
    let unary = Unary::ALL.iter().copied().map(Op::Unary);
    let glu = Glu::ALL.iter().copied().map(Op::Glu);
    Op::PLAIN.iter().copied().chain(unary).chain(glu).filter(|op| (0..16).any(|slot| op.overwrites_slot(slot)))
}

/// The types that cases are made of.
pub(crate) const TYPES: [DataType; 3] = [DataType::F32, DataType::F16, DataType::Bf16];

/// Returns all cases of an operation; none if it has none here.
pub(crate) fn cases(op: Op, dtype: DataType) -> Result<Vec<OpCase>, GraphError> {
    let float = Param::Float;
    match op {
        Op::Unary(Unary::Xielu) => one_source(op, dtype, &[0.8, 0.9, 0.5, -1e-6].map(float), Dependence::Element),
        Op::Unary(_) | Op::Sqr | Op::Sqrt | Op::Log => one_source(op, dtype, &[], Dependence::Element),
        Op::Scale => one_source(op, dtype, &[float(0.7), float(0.3)], Dependence::Element),
        Op::Clamp => one_source(op, dtype, &[float(-1.5), float(1.25)], Dependence::Element),
        Op::LeakyRelu => one_source(op, dtype, &[float(0.1)], Dependence::Element),
        Op::Fill => one_source(op, dtype, &[float(2.5)], Dependence::Nothing),
        Op::DiagMaskInf | Op::DiagMaskZero => one_source(op, dtype, &[Param::Int(2)], Dependence::Element),
        Op::Norm | Op::RmsNorm | Op::L2Norm => one_source(op, dtype, &[float(1e-5)], Dependence::Row),
        Op::GroupNorm => group_norm(dtype),
        Op::Add | Op::Sub | Op::Mul | Op::Div => {
            let mut cases = two_sources(op, dtype, &[], Dependence::Element)?;
            cases.extend(broadcasts(op, dtype)?);
            Ok(cases)
        }
        Op::Add1 => add_one(dtype),
        Op::AddId => add_id(dtype),
        Op::Glu(_) | Op::SiluBack => two_sources(op, dtype, &[], Dependence::Element),
        Op::RmsNormBack => two_sources(op, dtype, &[float(1e-5)], Dependence::Row),
        Op::SoftMaxBack => two_sources(op, dtype, &[float(0.5), float(0.0)], Dependence::Row),
        Op::SoftMax => soft_max(dtype),
        Op::Rope | Op::RopeBack => rope(op, dtype),
        _ => Ok(Vec::new()),
    }
}

/// Rows of odd length and of one element, several dimensions, and one that is worth more than one thread.
const SHAPES: &[&[u64]] = &[&[1], &[7], &[64], &[33, 5], &[8, 3, 2], &[5, 2, 3, 2], &[1031, 13]];

/// Shapes for sources with gaps.
const VIEWED: &[&[u64]] = &[&[33, 5], &[5, 2, 3, 2]];

fn values(op: Op) -> LeafValues {
    match op {
        Op::Sqrt | Op::Log => LeafValues::Positive,
        _ => LeafValues::Any,
    }
}

fn one_source(op: Op, dtype: DataType, params: &[Param], reach: Dependence) -> Result<Vec<OpCase>, GraphError> {
    let mut cases = Vec::new();
    for shape in SHAPES {
        let mut builder = CaseBuilder::new(dtype);
        let a = builder.leaf(shape, values(op))?;
        cases.push(builder.finish(op, &[a], params, reach)?);
    }
    for shape in VIEWED {
        for form in [SourceForm::Reshaped, SourceForm::Part, SourceForm::Spread, SourceForm::Turned] {
            let mut builder = CaseBuilder::new(dtype);
            let a = builder.source(shape, form, values(op))?;
            cases.push(builder.finish_alike(op, &[a], params, reach)?);
        }
    }
    Ok(cases)
}

/// Two sources of one shape, of which one may have another form.
fn two_sources(op: Op, dtype: DataType, params: &[Param], reach: Dependence) -> Result<Vec<OpCase>, GraphError> {
    let mut cases = Vec::new();
    for shape in SHAPES {
        let mut builder = CaseBuilder::new(dtype);
        let sources = [builder.leaf(shape, values(op))?, builder.leaf(shape, values(op))?];
        cases.push(builder.finish(op, &sources, params, reach)?);
    }
    // A GLU reads whole rows, so it takes no source whose rows have gaps.
    let turned = if matches!(op, Op::Glu(_)) { SourceForm::Spread } else { SourceForm::Turned };
    for shape in VIEWED {
        for forms in [
            [SourceForm::Plain, SourceForm::Spread],
            [SourceForm::Plain, turned],
            [SourceForm::Spread, SourceForm::Plain],
            [turned, SourceForm::Plain],
            [SourceForm::Reshaped, SourceForm::Part],
        ] {
            let mut builder = CaseBuilder::new(dtype);
            let sources = [builder.source(shape, forms[0], values(op))?, builder.source(shape, forms[1], values(op))?];
            cases.push(builder.finish(op, &sources, params, reach)?);
        }
        for form in [SourceForm::Spread, SourceForm::Turned] {
            let mut builder = CaseBuilder::new(dtype);
            let sources = [builder.source(shape, form, values(op))?, builder.source(shape, form, values(op))?];
            cases.push(builder.finish_alike(op, &sources, params, reach)?);
        }
    }
    Ok(cases)
}

/// A second source that is repeated: it must not be overwritten, and the first may.
fn broadcasts(op: Op, dtype: DataType) -> Result<Vec<OpCase>, GraphError> {
    let pairs: &[(&[u64], &[u64])] = &[
        (&[33, 5], &[33]),
        (&[33, 5], &[1]),
        (&[33, 5], &[1, 5]),
        (&[33, 5], &[11]),
        (&[8, 3, 2], &[8, 1, 2]),
        (&[6, 4, 3, 2], &[3, 2, 3, 1]),
        (&[1031, 13], &[1031]),
    ];
    let mut cases = Vec::new();
    for (a, b) in pairs {
        let mut builder = CaseBuilder::new(dtype);
        let sources = [builder.leaf(a, values(op))?, builder.leaf(b, values(op))?];
        cases.push(builder.finish(op, &sources, &[], Dependence::Element)?);
    }
    let mut builder = CaseBuilder::new(dtype);
    let sources = [builder.leaf(&[33, 5], values(op))?, builder.source(&[1, 5], SourceForm::Turned, values(op))?];
    cases.push(builder.finish(op, &sources, &[], Dependence::Element)?);
    Ok(cases)
}

fn add_one(dtype: DataType) -> Result<Vec<OpCase>, GraphError> {
    let mut cases = Vec::new();
    for shape in SHAPES {
        let mut builder = CaseBuilder::new(dtype);
        let sources = [builder.leaf(shape, LeafValues::Any)?, builder.leaf(&[1], LeafValues::Any)?];
        cases.push(builder.finish(Op::Add1, &sources, &[], Dependence::Element)?);
    }
    Ok(cases)
}

/// `[row, used, token]`, one row of `[row, expert]` for each by `[used, token]`.
fn add_id(dtype: DataType) -> Result<Vec<OpCase>, GraphError> {
    let mut cases = Vec::new();
    for (shape, experts) in [([7, 2, 3], 4), ([33, 3, 5], 2), ([1, 1, 1], 3), ([1031, 2, 7], 5)] {
        let mut builder = CaseBuilder::new(dtype);
        let a = builder.leaf(&shape, LeafValues::Any)?;
        let b = builder.leaf(&[shape[0], experts], LeafValues::Any)?;
        let ids = builder.typed(DataType::I32, &shape[1..], LeafValues::Below(experts))?;
        cases.push(builder.finish(Op::AddId, &[a, b, ids], &[], Dependence::Element)?);
    }
    // As many experts as rows: even an equal layout does not let the result have their memory.
    let mut builder = CaseBuilder::new(dtype);
    let (a, b) = (builder.leaf(&[9, 4], LeafValues::Any)?, builder.leaf(&[9, 4], LeafValues::Any)?);
    let ids = builder.typed(DataType::I32, &[4], LeafValues::Below(4))?;
    cases.push(builder.finish(Op::AddId, &[a, b, ids], &[], Dependence::Element)?);
    Ok(cases)
}

fn group_norm(dtype: DataType) -> Result<Vec<OpCase>, GraphError> {
    let mut cases = Vec::new();
    for (shape, groups) in [([5, 3, 6, 1], 3), ([7, 1, 4, 2], 4), ([3, 5, 5, 2], 2), ([31, 17, 6, 3], 2)] {
        let params = [Param::Int(groups), Param::Float(1e-5)];
        let mut builder = CaseBuilder::new(dtype);
        let a = builder.leaf(&shape, LeafValues::Any)?;
        cases.push(builder.finish(Op::GroupNorm, &[a], &params, Dependence::Cube)?);
        let mut builder = CaseBuilder::new(dtype);
        let a = builder.source(&shape, SourceForm::Spread, LeafValues::Any)?;
        cases.push(builder.finish_alike(Op::GroupNorm, &[a], &params, Dependence::Cube)?);
    }
    Ok(cases)
}

/// Without and with a mask of either type, one for all heads or for each, slopes, and sinks.
fn soft_max(dtype: DataType) -> Result<Vec<OpCase>, GraphError> {
    let mut cases = Vec::new();
    let numbers = |bias: f32| [Param::Float(0.5), Param::Float(bias)];
    for shape in SHAPES {
        let mut builder = CaseBuilder::new(dtype);
        let a = builder.leaf(shape, LeafValues::Any)?;
        cases.push(builder.finish(Op::SoftMax, &[a], &numbers(0.0), Dependence::Row)?);
    }
    for mask_type in [DataType::F32, DataType::F16] {
        for (shape, mask, bias) in [
            ([33, 5, 1, 1], [33, 5, 1, 1], 0.0),
            ([33, 5, 1, 1], [33, 8, 1, 1], 0.0),
            ([17, 3, 4, 1], [17, 3, 1, 1], 0.0),
            ([17, 3, 4, 2], [17, 3, 2, 2], 0.0),
            ([17, 3, 4, 1], [17, 3, 1, 1], 8.0),
        ] {
            let mut builder = CaseBuilder::new(dtype);
            let a = builder.leaf(&shape, LeafValues::Any)?;
            let mask = builder.typed(mask_type, &mask, LeafValues::Any)?;
            cases.push(builder.finish(Op::SoftMax, &[a, mask], &numbers(bias), Dependence::Row)?);
        }
    }
    let mut builder = CaseBuilder::new(dtype);
    let a = builder.leaf(&[17, 3, 4], LeafValues::Any)?;
    let mask = builder.typed(DataType::F32, &[17, 3], LeafValues::Any)?;
    let sinks = builder.typed(DataType::F32, &[4], LeafValues::Any)?;
    cases.push(builder.finish(Op::SoftMax, &[a, mask, sinks], &numbers(0.0), Dependence::Row)?);
    Ok(cases)
}

/// Neighbours and halves, whole rows and parts of them, with and without factors, and positions of four parts.
fn rope(op: Op, dtype: DataType) -> Result<Vec<OpCase>, GraphError> {
    let mut cases = Vec::new();
    let factors = [FreqFactors::Without, FreqFactors::With];
    for (shape, dims) in [([16, 3, 5, 1], 16), ([20, 1, 3, 2], 12), ([64, 3, 13, 1], 64)] {
        for (mode, factors) in
            [RopeMode::Normal, RopeMode::Neox].into_iter().flat_map(|mode| factors.map(|factors| (mode, factors)))
        {
            cases.push(rope_case(op, dtype, shape, factors, Rope { dims, mode, ..Rope::default() })?);
        }
    }
    let sections = Rope { dims: 16, mode: RopeMode::Sections, sections: [2, 2, 2, 2], ..Rope::default() };
    cases.push(rope_case(op, dtype, [16, 3, 5, 1], FreqFactors::Without, sections)?);
    Ok(cases)
}

/// Whether a rope has a factor for each frequency.
#[derive(Clone, Copy)]
enum FreqFactors {
    With,
    Without,
}

fn rope_case(
    op: Op,
    dtype: DataType,
    shape: [u64; 4],
    factors: FreqFactors,
    numbers: Rope,
) -> Result<OpCase, GraphError> {
    let mut builder = CaseBuilder::new(dtype);
    // Sources of a rope are mostly products seen as heads.
    let a = builder.source(&shape, SourceForm::Reshaped, LeafValues::Any)?;
    let parts = numbers.mode.parts();
    let positions = builder.typed(DataType::I32, &[shape[2] * parts], LeafValues::Below(100))?;
    let factors = match factors {
        FreqFactors::With => {
            Some(builder.typed(DataType::F32, &[u64::from(numbers.dims) / 2], LeafValues::Positive)?)
        }
        FreqFactors::Without => None,
    };
    let params = rope_params(builder.context.clone(), a, positions, numbers)?;
    let sources: Vec<TensorId> = [a, positions].into_iter().chain(factors).collect();
    builder.finish(op, &sources, &params, Dependence::Row)
}

/// Returns the parameters in the order in which the builder gives them.
fn rope_params(
    mut context: Context,
    a: TensorId,
    positions: TensorId,
    numbers: Rope,
) -> Result<Vec<Param>, GraphError> {
    let rope = context.rope(a, positions, None, numbers)?;
    Ok(context.tensors().params(rope).to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns in how many cases of an operation the result may have the memory of the source in `slot`.
    fn covered(op: Op, dtype: DataType, slot: usize) -> usize {
        cases(op, dtype).unwrap().iter().filter(|case| case.slots().contains(&slot)).count()
    }

    #[test]
    fn every_operation_that_overwrites_has_cases_for_every_slot() {
        let mut slots = 0;
        for (op, dtype) in operations().flat_map(|op| TYPES.map(|dtype| (op, dtype))) {
            for slot in (0..16).filter(|slot| op.overwrites_slot(*slot)) {
                let count = covered(op, dtype, slot);
                assert!(count >= 3, "{op:?} of {dtype} over source {slot} has {count} cases");
                slots += 1;
            }
        }
        assert!(slots >= TYPES.len() * (29 + Unary::ALL.len() + 2 * Glu::ALL.len()), "only {slots} slots");
    }

    #[test]
    fn no_case_overwrites_what_the_table_keeps() {
        for op in operations() {
            for case in cases(op, DataType::F32).unwrap() {
                for slot in case.slots() {
                    assert!(op.overwrites_slot(slot), "{}", case.title());
                }
            }
        }
        let case = &broadcasts(Op::Add, DataType::F32).unwrap()[0];
        assert_eq!((case.slots(), case.title()), (vec![0], "add of (f32[33,5], f32[33]) to f32[33,5]".into()));
    }

    #[test]
    fn cases_have_odd_rows_gaps_and_repeated_sources() {
        for op in operations() {
            let cases = cases(op, DataType::F32).unwrap();
            let rows = |case: &OpCase| case.graph.tensor(case.node).layout.ne()[0];
            let rope = matches!(op, Op::Rope | Op::RopeBack);
            assert!(rope || cases.iter().any(|case| rows(case) % 2 == 1 && rows(case) > 1), "{op:?}");
            assert!(cases.iter().any(|case| case.graph.tensor(case.node).layout.elements() > 2000), "{op:?}");
        }
        let gaps = |op: Op| {
            let viewed = |case: &OpCase| {
                let sources = case.graph.sources(case.node).iter().flatten();
                sources.filter(|id| !case.graph.tensor(**id).layout.is_contiguous()).count()
            };
            cases(op, DataType::F32).unwrap().iter().map(viewed).sum::<usize>()
        };
        for op in [Op::Add, Op::Norm, Op::SiluBack, Op::Glu(Glu::Swiglu), Op::Unary(Unary::Silu), Op::GroupNorm] {
            assert!(gaps(op) >= 4, "{op:?}");
        }
    }

    #[test]
    fn other_values_are_other_values() {
        for (values, dtype) in [
            (LeafValues::Any, DataType::F32),
            (LeafValues::Any, DataType::F16),
            (LeafValues::Positive, DataType::Bf16),
            (LeafValues::Below(2), DataType::I32),
            (LeafValues::Below(300), DataType::I32),
        ] {
            let (one, other) = (values.bytes(dtype, 50, 7), values.other_bytes(dtype, 50, 7));
            let size = dtype.block_bytes() as usize;
            assert_eq!((one.len(), other.len()), (50 * size, 50 * size));
            let same = one.chunks(size).zip(other.chunks(size)).filter(|(one, other)| one == other).count();
            assert!(same <= 1, "{values:?} {dtype}: {same} are the same");
        }
    }

    #[test]
    fn halves_are_what_they_stand_for() {
        let half = LeafValues::Positive.bytes(DataType::F16, 100, 3);
        let full = LeafValues::Positive.bytes(DataType::F32, 100, 3);
        for (half, full) in half.chunks(2).zip(full.chunks(4)) {
            let (half, full) = (u16::from_le_bytes([half[0], half[1]]), f32::from_le_bytes(full.try_into().unwrap()));
            let value = f32::from(half >> 10).exp2() / 32768.0 * (1.0 + f32::from(half & 0x3FF) / 1024.0);
            assert!((value - full).abs() <= full / 1024.0, "{value} stands for {full}");
        }
    }
}
