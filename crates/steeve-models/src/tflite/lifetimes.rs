//! Live ranges as TensorFlow Lite Micro's own planner sees them. O(model).
//!
//! Scopes are numbered as the planner walks through a model: the inputs are there at 0, each operator is the next scope, and so
//! is the start of each subgraph that is called. Both ends of a live range are inclusive. Where a subgraph is called several
//! times, its tensors live from the first call to the last. A tensor that an operator reads and that nothing has computed
//! lives from -1, and one that nothing uses lives at -1 alone.

use super::error::TfliteError;
use super::model::{Model, TensorIndex};
use super::program::Program;
use super::sizes::FlatIndex;

/// First and last scope of each tensor; -1 for what the planner never sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TflmLifetimes {
    /// By tensor, in the order of records.
    pub(crate) tensors: Vec<(i64, i64)>,
    /// By subgraph: the scopes of each of its operators, from its start to the end of its calls.
    pub(crate) operators: Vec<Vec<(i64, i64)>>,
}

/// A subgraph with scopes counted from its own start.
struct Relative {
    /// By tensor: when it is created and used last; `None` for never.
    tensors: Vec<(Option<u64>, Option<u64>)>,
    operators: Vec<(u64, u64)>,
    /// Which subgraphs are called, and when.
    calls: Vec<(usize, u64)>,
    /// The last scope.
    end: u64,
}

impl TflmLifetimes {
    /// Computes the live ranges.
    ///
    /// # Errors
    ///
    /// If there are more scopes than TensorFlow Lite Micro can count.
    pub(crate) fn new(model: &Model, program: &Program) -> Result<Self, TfliteError> {
        let mut relatives: Vec<Option<Relative>> = model.subgraphs.iter().map(|_| None).collect();
        // What is called comes before what calls it.
        for subgraph in &program.finished {
            let relative = relative(model, *subgraph, &relatives)?;
            relatives[*subgraph] = Some(relative);
        }
        // When each subgraph starts for the first and for the last time.
        let mut starts: Vec<Option<(u64, u64)>> = vec![None; model.subgraphs.len()];
        starts[0] = Some((0, 0));
        for subgraph in program.finished.iter().rev() {
            let (Some((first, last)), Some(relative)) = (starts[*subgraph], &relatives[*subgraph]) else { continue };
            for (callee, at) in &relative.calls {
                let (first, last) = (first + at, last.saturating_add(*at));
                if last > i32::MAX as u64 {
                    return Err(TfliteError::TooLong);
                }
                let known = starts[*callee].get_or_insert((first, last));
                *known = (known.0.min(first), known.1.max(last));
            }
        }
        let mut lifetimes = Self {
            tensors: vec![(-1, -1); FlatIndex::new(model).len()],
            operators: model.subgraphs.iter().map(|_| Vec::new()).collect(),
        };
        let flat = FlatIndex::new(model);
        for (subgraph, relative) in relatives.iter().enumerate() {
            let (Some(relative), Some((first_start, last_start))) = (relative, starts[subgraph]) else { continue };
            let at = |start: u64, scope: u64| i64::try_from(start.saturating_add(scope)).unwrap_or(i64::MAX);
            for (tensor, (first, last)) in relative.tensors.iter().enumerate() {
                let first = first.map_or(-1, |scope| at(first_start, scope));
                let last = last.map_or(-1, |scope| at(last_start, scope));
                lifetimes.tensors[flat.of(TensorIndex::new(subgraph, tensor))] = (first, last);
            }
            let operators = relative.operators.iter();
            lifetimes.operators[subgraph] =
                operators.map(|(start, end)| (at(first_start, *start), at(last_start, *end))).collect();
        }
        Ok(lifetimes)
    }
}

fn relative(model: &Model, subgraph: usize, done: &[Option<Relative>]) -> Result<Relative, TfliteError> {
    let it = &model.subgraphs[subgraph];
    let mut out = Relative {
        tensors: vec![(None, None); it.tensors.len()],
        operators: Vec::with_capacity(it.operators.len()),
        calls: Vec::new(),
        end: 0,
    };
    let mut scope = 0u64;
    it.inputs.iter().for_each(|tensor| out.tensors[*tensor] = (Some(0), Some(0)));
    for op in &it.operators {
        scope += 1;
        let start = scope;
        op.outputs.iter().for_each(|tensor| {
            out.tensors[*tensor].0.get_or_insert(start);
        });
        for callee in model.called(op) {
            let callee = usize::try_from(callee).unwrap_or(0);
            scope += 1;
            out.calls.push((callee, scope));
            scope = scope.saturating_add(done[callee].as_ref().map_or(0, |callee| callee.end));
            if scope > i32::MAX as u64 {
                return Err(TfliteError::TooLong);
            }
        }
        op.inputs.iter().flatten().chain(&op.outputs).for_each(|tensor| out.tensors[*tensor].1 = Some(scope));
        out.operators.push((start, scope));
    }
    for tensor in &it.outputs {
        let (first, last) = &mut out.tensors[*tensor];
        first.get_or_insert(scope);
        *last = Some(scope);
    }
    out.end = scope;
    Ok(out)
}
