//! The laws of one operation, on all of its cases.
//!
//! A case runs in memory where no two tensors share a byte, and again with the result on each source that it may
//! overwrite. All memory around the tensors is filled with `0xFF`, which are no numbers, so that reads out of bounds
//! show.

use steeve_graph::{Context, CustomOp, DataType, GraphError, Op, TensorId};

use super::bound_graph::{BoundGraph, Contents, PlacedTensor, TensorPlaces};
use super::op_case::{CaseBuilder, Dependence, LeafValues, OpCase};
use super::op_cases::cases;
use super::report::{Findings, LawAbort, Report, with_causes};
use crate::{Backend, DeviceError};

/// The law that a backend prepares no node that it does not support.
pub(super) const PREPARES_SUPPORTED: &str = "what it does not support it does not prepare";

/// What the free memory holds, and what it holds when that must not matter.
const FILL: u8 = 0xFF;
const OTHER_FILL: u8 = 0x11;

/// The findings about an operation of one type.
#[derive(Default)]
pub(super) struct OpFindings {
    separate: LawFindings,
    aliased: Vec<(usize, LawFindings)>,
    /// The slot of the source that a caller's own operation writes into.
    writes_into: Option<usize>,
    /// Writes beside the elements of that source.
    target: LawFindings,
    /// Cases that are not supported, and yet can be prepared.
    pub(super) contradictions: Vec<String>,
    /// How many cases ran.
    pub(super) ran: usize,
}

#[derive(Default)]
struct LawFindings {
    findings: Findings,
    ran: usize,
}

/// Runs all cases of an operation, and records the findings.
pub(super) fn check_operation(
    backend: &dyn Backend,
    op: Op,
    dtype: DataType,
    title: &str,
    report: &mut Report,
) -> OpFindings {
    let mut found = OpFindings::new(|slot| op.overwrites_slot(slot));
    match cases(op, dtype) {
        Ok(cases) => cases.iter().for_each(|case| found.check(backend, case)),
        Err(error) => found.separate.findings.report_violation(format!("the suite itself has a fault: {error}")),
    }
    found.record(&format!("{title} {dtype}"), report);
    found
}

/// Checks a caller's own operation on a backend that has a kernel of it: the result is the same where it has the memory of each
/// source that the operation may overwrite, depends on its sources alone, and nothing else is written. An operation that writes
/// into a source writes only elements of it: the rest of the memory around them, gaps included, keeps its contents.
///
/// `build` makes some inputs and applies the operation to them. Call it with several shapes, and with every data type that
/// the kernel takes.
///
/// ```
/// use steeve_device::conformance::check_custom_op;
/// use steeve_device::Backend;
/// use steeve_graph::{CustomOp, DataType};
/// fn conforms(backend: &dyn Backend, relu: &CustomOp) {
///     let report = check_custom_op(backend, relu, |context| {
///         let x = context.input(DataType::F32, &[33, 5])?;
///         context.custom(relu, &[x], &[])
///     });
///     report.assert();
/// }
/// ```
pub fn check_custom_op(
    backend: &dyn Backend,
    op: &CustomOp,
    build: impl FnOnce(&mut Context) -> Result<TensorId, GraphError>,
) -> Report {
    let mut report = Report::new(format!("operation {} on {}", op.name(), backend.name()));
    let mut found = OpFindings { writes_into: op.writes_into(), ..OpFindings::new(|slot| op.overwrites(slot)) };
    match CaseBuilder::built(build) {
        Ok(Some(case)) => match op.check(&case.graph, case.node) {
            Ok(()) => found.check(backend, &case),
            Err(error) => {
                found.separate.findings.report_violation(format!("the graph is not one of the operation: {error}"))
            }
        },
        Ok(None) => found.separate.findings.omit("there are no values for inputs of blocks"),
        Err(error) => found.separate.findings.report_violation(format!("the graph can't be built: {error}")),
    }
    found.record(op.name(), &mut report);
    // A law of its own only where it does not hold: what is not supported must not pass.
    if !found.contradictions.is_empty() {
        let mut contradictions = Findings::default();
        found.contradictions.into_iter().for_each(|what| contradictions.report_violation(what));
        report.record(PREPARES_SUPPORTED, contradictions, Ok(()));
    }
    report
}

impl OpFindings {
    fn new(overwrites: impl Fn(usize) -> bool) -> Self {
        let aliased = (0..16).filter(|slot| overwrites(*slot)).map(|slot| (slot, LawFindings::default())).collect();
        Self { aliased, ..Self::default() }
    }

    /// Records the laws of an operation in the report.
    fn record(&mut self, title: &str, report: &mut Report) {
        let laws = std::mem::take(&mut self.aliased);
        let laws = laws.into_iter().map(|(slot, law)| (format!("{title} over source {slot}"), law));
        let separate = (format!("{title} apart"), std::mem::take(&mut self.separate));
        let into = self.writes_into.map(|slot| format!("{title} writes only into source {slot}"));
        let into = into.map(|name| (name, std::mem::take(&mut self.target)));
        for (name, law) in [separate].into_iter().chain(into).chain(laws) {
            let end = if law.ran > 0 { Ok(()) } else { Err(LawAbort::Skip(String::from("no case can run"))) };
            report.record(&name, law.findings, end);
        }
    }

    fn check(&mut self, backend: &dyn Backend, case: &OpCase) {
        if let Some(refusal) = refusal(backend, case) {
            let refusal = with_causes(&refusal);
            self.omit(case, refusal.clone());
            let places = TensorPlaces::separate(&case.graph, &*backend.buffer_type());
            let bound = BoundGraph::new(backend, &case.graph, places, &Contents::new(), FILL);
            if bound.is_ok_and(|bound| bound.prepare(0..case.graph.nodes().len()).is_ok()) {
                self.contradictions.push(format!("{} is not supported ({refusal}), but can be prepared", case.title()));
            }
            return;
        }
        match SeparateRun::run(backend, case) {
            Ok(separate) => {
                self.ran += 1;
                let mut checked = separate.check(backend);
                if self.writes_into.is_some() {
                    let strays =
                        checked.as_mut().map_or_else(|_| Vec::new(), |checked| std::mem::take(&mut checked.strays));
                    self.target.note(case, Ok(strays));
                }
                self.separate.note(case, checked.map(CaseViolations::all));
                for (slot, law) in &mut self.aliased {
                    if case.slots().contains(slot) {
                        law.note(case, separate.check_aliased(backend, *slot));
                    }
                }
            }
            Err(LawAbort::Skip(why)) => self.omit(case, format!("{}: {why}", case.title())),
            Err(failed) => {
                self.omit(case, format!("{}: it does not even run apart", case.title()));
                self.separate.note(case, Err(failed));
            }
        }
    }

    fn omit(&mut self, case: &OpCase, why: String) {
        self.separate.findings.omit(why.clone());
        if self.writes_into.is_some() {
            self.target.findings.omit(why.clone());
        }
        for (slot, law) in &mut self.aliased {
            if case.slots().contains(slot) {
                law.findings.omit(why.clone());
            }
        }
    }
}

impl LawFindings {
    fn note(&mut self, case: &OpCase, violations: Result<Vec<String>, LawAbort>) {
        match violations {
            Ok(violations) => violations
                .into_iter()
                .for_each(|what| self.findings.report_violation(format!("{}: {what}", case.title()))),
            Err(LawAbort::Failed(what)) => self.findings.report_violation(format!("{}: {what}", case.title())),
            Err(LawAbort::Skip(why)) => return self.findings.omit(format!("{}: {why}", case.title())),
        }
        self.ran += 1;
    }
}

/// Returns why the backend does not run a case, if it does not.
fn refusal(backend: &dyn Backend, case: &OpCase) -> Option<DeviceError> {
    case.graph.nodes().iter().find_map(|node| backend.supports(&case.graph, *node).err())
}

/// A case that has run with no two tensors sharing a byte.
struct SeparateRun<'a> {
    case: &'a OpCase,
    places: TensorPlaces,
    contents: Contents,
    result: Vec<u8>,
    strays: Vec<String>,
}

/// What a case violates.
#[derive(Default)]
struct CaseViolations {
    /// Writes beside the result.
    strays: Vec<String>,
    others: Vec<String>,
}

impl CaseViolations {
    fn all(mut self) -> Vec<String> {
        self.strays.append(&mut self.others);
        self.strays
    }
}

impl<'a> SeparateRun<'a> {
    fn run(backend: &dyn Backend, case: &'a OpCase) -> Result<Self, LawAbort> {
        let (places, contents) = (TensorPlaces::separate(&case.graph, &*backend.buffer_type()), case.contents());
        let mut strays = Vec::new();
        let result = run(backend, case, &places, &contents, FILL, &mut strays)?;
        Ok(Self { case, places, contents, result, strays })
    }

    /// Checks that the result depends on the sources, on nothing else, and on each element only where it should.
    fn check(&self, backend: &dyn Backend) -> Result<CaseViolations, LawAbort> {
        let (case, places, mut strays, mut violations) = (self.case, &self.places, self.strays.clone(), Vec::new());
        let again = run(backend, case, places, &self.contents, OTHER_FILL, &mut strays)?;
        if let Some(differs) = self.differs(&again) {
            violations.push(format!("the result depends on bytes that are none of its sources: {differs}"));
        }
        for leaf in 0..case.leafs.len() {
            let changed = run(backend, case, places, &case.changed_contents(leaf), FILL, &mut strays)?;
            self.check_change(leaf, &changed, &mut violations);
        }
        for slot in case.slots() {
            if let Some(contents) = self.perturbed_contents(slot) {
                let changed = run(backend, case, places, &contents, FILL, &mut strays)?;
                self.check_dependence(slot, &changed, &mut violations);
            }
        }
        Ok(CaseViolations { strays, others: violations })
    }

    /// Checks that the result is equal where it has the memory of the source in `slot`.
    fn check_aliased(&self, backend: &dyn Backend, slot: usize) -> Result<Vec<String>, LawAbort> {
        let (case, mut violations) = (self.case, Vec::new());
        let source = self.source_root(slot).ok_or_else(|| LawAbort::Failed(String::from("the source is missing")))?;
        let Some(places) = self.places.aliased(case.node, source) else {
            return Err(LawAbort::Skip(String::from("the result takes more bytes than the source")));
        };
        let result = run(backend, case, &places, &self.contents, FILL, &mut violations)?;
        if let Some(differs) = self.differs(&result) {
            violations.push(format!("the result is another one than apart: {differs}"));
        }
        Ok(violations)
    }

    fn source_root(&self, slot: usize) -> Option<TensorId> {
        let source = self.case.graph.sources(self.case.node).get(slot).copied().flatten()?;
        Some(self.case.graph.root(source))
    }

    /// Returns the elements in which another result differs.
    fn differing<'b>(&'b self, other: &'b [u8]) -> impl Iterator<Item = (u64, usize)> + 'b {
        let layout = self.case.graph.tensor(self.case.node).layout;
        let size = layout.dtype().block_bytes() as usize;
        let differs = move |(_, at): &(u64, usize)| self.result[*at..][..size] != other[*at..][..size];
        (0..).zip(layout.block_offsets().map(|at| at as usize)).filter(differs)
    }

    fn differs(&self, other: &[u8]) -> Option<String> {
        let (index, at) = self.differing(other).next()?;
        let layout = self.case.graph.tensor(self.case.node).layout;
        let size = layout.dtype().block_bytes() as usize;
        let (one, two) = (&self.result[at..][..size], &other[at..][..size]);
        let (count, all) = (self.differing(other).count(), layout.elements());
        Some(format!("element {index} has the bytes {two:02x?} instead of {one:02x?}; {count} of {all} differ"))
    }

    /// Checks that other values give another result, unless they are not read.
    fn check_change(&self, leaf: usize, changed: &[u8], violations: &mut Vec<String>) {
        let (case, differs) = (self.case, self.differing(changed).next().is_some());
        let few = case.graph.tensor(case.node).layout.elements() < 16;
        match (case.reach, differs) {
            (Dependence::Nothing, true) => {
                violations.push(format!("the result depends on leaf {leaf}, which gives the shape only"))
            }
            (Dependence::Nothing, false) | (Dependence::Unknown, _) | (_, true) => {}
            // Among a few elements a step may well be the same.
            (_, false) if few => {}
            (_, false) => violations.push(format!("the result is the same, whatever leaf {leaf} holds")),
        }
    }

    /// Returns the contents with one element of the source in `slot` changed, if that source is a leaf or all of one.
    fn perturbed_contents(&self, slot: usize) -> Option<Contents> {
        let source = self.case.graph.sources(self.case.node).get(slot).copied().flatten()?;
        let (root, layout) = (self.source_root(slot)?, self.case.graph.tensor(source).layout);
        let at = layout.block_offsets().nth(self.perturbed_element() as usize)? as usize;
        let mut contents = self.contents.clone();
        let (_, bytes) = contents.iter_mut().find(|(id, _)| *id == root)?;
        let last = bytes.get_mut(at + layout.dtype().block_bytes() as usize - 1)?;
        // A bit of the exponent of a little-endian number, and its sign where it has one.
        let (_, values) = self.case.leafs.iter().find(|(id, _)| *id == root)?;
        *last ^= if layout.dtype() == DataType::F16 { 0x04 } else { 0x01 };
        *last ^= if matches!(values, LeafValues::Any) { 0x80 } else { 0 };
        Some(contents)
    }

    /// Returns which element is changed: one in the middle.
    fn perturbed_element(&self) -> u64 {
        self.case.graph.tensor(self.case.node).layout.elements() / 2
    }

    fn check_dependence(&self, slot: usize, changed: &[u8], violations: &mut Vec<String>) {
        let ne = self.case.graph.tensor(self.case.node).layout.ne();
        let (per_row, per_cube) = (ne[0], ne[0] * ne[1] * ne[2]);
        let perturbed_element = self.perturbed_element();
        let reached = |index: u64| match self.case.reach {
            Dependence::Nothing => false,
            Dependence::Unknown => true,
            Dependence::Element => index == perturbed_element,
            Dependence::Row => index / per_row == perturbed_element / per_row,
            Dependence::Cube => index / per_cube == perturbed_element / per_cube,
        };
        if let Some((index, _)) = self.differing(changed).find(|(index, _)| !reached(*index)) {
            let reach = self.case.reach;
            violations.push(format!(
                "element {perturbed_element} of source {slot} reaches element {index}, beyond its {reach:?}"
            ));
        }
    }
}

/// Runs a case. Returns the bytes of its result, and records what else has changed in memory.
fn run(
    backend: &dyn Backend,
    case: &OpCase,
    places: &TensorPlaces,
    contents: &Contents,
    fill: u8,
    strays: &mut Vec<String>,
) -> Result<Vec<u8>, LawAbort> {
    let bound = BoundGraph::new(backend, &case.graph, places.clone(), contents, fill)?;
    let before = bound.image()?;
    bound.run()?;
    let after = bound.image()?;
    if let Some(what) = stray_write(case, places, &before, &after) {
        strays.push(what);
    }
    Ok(bound.part(&after, case.node).to_vec())
}

/// Returns what was written outside the result, in words. What a tensor has behind its elements is for the kernels.
fn stray_write(case: &OpCase, places: &TensorPlaces, before: &[u8], after: &[u8]) -> Option<String> {
    let tensors = case.graph.tensors();
    let mut free = vec![true; before.len()];
    for (id, place) in places.iter() {
        let spanned = tensors[id].nbytes().0;
        let padding = PlacedTensor { offset: place.offset + spanned, size: place.size.saturating_sub(spanned) };
        free[padding.range()].fill(false);
    }
    let result = places.of_tensor(&case.graph, case.node)?;
    if tensors[case.node].is_view() {
        // The gaps between the elements of a view belong to its root.
        let layout = tensors[case.node].layout;
        for at in layout.block_offsets() {
            free[(result.offset + at) as usize..][..layout.dtype().block_bytes() as usize].fill(false);
        }
    } else {
        free[result.range()].fill(false);
    }
    let at = (0..before.len()).find(|at| free[*at] && before[*at] != after[*at])?;
    let hit = places.iter().find(|(_, place)| place.range().contains(&at));
    let whose = hit.map_or("of no tensor".into(), |(id, place)| {
        format!("{} of tensor {id} ({})", at - place.offset as usize, case.graph.name(id))
    });
    Some(format!("byte {at} of the buffer, byte {whose}, has become {:#04x}", after[at]))
}
