//! Blocks in, a proven plan out, or everything that is wrong with one.

use std::path::PathBuf;

use pyo3::buffer::PyUntypedBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyString, PyTuple};
use steeve_plan::csv::Table;
use steeve_plan::{
    Align, Block, BlockId, BufferId, Bytes, Id, IdVec, Lifetime, Offset, Overlap, Place, Placement, Problem, Verdict,
    Violation, certify, place_watched,
};

use crate::copies::{Reduced, reduce_blocks};
use crate::error::{exception, invalid_argument, invalid_input, locked, unlocked, wrong_type};
use crate::numbers::{check_length, number, numbers, optional_number, optional_numbers};
use crate::plan::{BlockNames, ONLY_MEMORY, Planned, PyPlan};
use crate::search::{SearchSettings, SearchWatcher};
use crate::text::text_of;

/// Plan memory for blocks, each alive from step `lower` until just before step `upper`, and prove the plan.
///
/// All arguments are sequences, or buffers such as NumPy arrays, with an item for each block.
///
/// - `align`: what offsets are a multiple of, for all blocks or for each. A block occupies its size rounded up to it.
/// - `follows`: the block (by number; None or -1 for none) whose bytes it takes over in place, where and when that one ends.
/// - `overlaps`: the block that dies as this one is born, and how many bytes below it this one may start, as a pair (None for
///   none): what a kernel needs that reads ahead of what it writes.
/// - `pinned`: the offset that it must have (None or -1 for any), or a pair of buffer and offset.
/// - `names`: for errors and pictures; else blocks are numbered.
/// - `capacity`: the bytes that there are. A plan above it is `steeve.DoesNotFit`.
/// - `max_buffer`: the most bytes of one buffer; then there may be several.
/// - `strategy`: 'fast' (default), 'best', which searches within `budget` (seconds, a timedelta, '500ms' or '20000nodes'; one
///   second by default) on `threads` threads, or 'best-fit', which is what simple allocators do.
/// - `progress`: True for a line on stderr, or a function that is called with a `steeve.Progress` about 20 times a second; if it
///   returns False the search ends, and the best plan so far is the result.
///
/// Ctrl-C ends a search within a tenth of a second, with KeyboardInterrupt.
///
/// >>> import steeve
/// >>> plan = steeve.plan([0, 1, 2], [2, 3, 4], [1000, 500, 1000], align=64)
/// >>> plan.peak, plan.offsets, plan.optimal
/// (1536, (0, 1024, 0), True)
///
/// A block that follows another has its place:
///
/// >>> steeve.plan([0, 2], [2, 3], [1000, 800], follows=[None, 0]).offsets
/// (0, 0)
///
/// A result of 128 bytes may start 80 bytes below its source of 64:
///
/// >>> steeve.plan([0, 1], [2, 3], [64, 128], overlaps=[None, (0, 80)]).offsets
/// (80, 0)
#[pyfunction]
#[pyo3(signature = (lower, upper, size, *, align=None, follows=None, overlaps=None, pinned=None, names=None, capacity=None, max_buffer=None, strategy=None, budget=None, threads=None, progress=None))]
#[allow(clippy::too_many_arguments, reason = "they are the keywords of a Python function")]
pub(crate) fn plan(
    py: Python<'_>,
    lower: &Bound<'_, PyAny>,
    upper: &Bound<'_, PyAny>,
    size: &Bound<'_, PyAny>,
    align: Option<&Bound<'_, PyAny>>,
    follows: Option<&Bound<'_, PyAny>>,
    overlaps: Option<&Bound<'_, PyAny>>,
    pinned: Option<&Bound<'_, PyAny>>,
    names: Option<&Bound<'_, PyAny>>,
    capacity: Option<&Bound<'_, PyAny>>,
    max_buffer: Option<&Bound<'_, PyAny>>,
    strategy: Option<&Bound<'_, PyAny>>,
    budget: Option<&Bound<'_, PyAny>>,
    threads: Option<&Bound<'_, PyAny>>,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<PyPlan> {
    let settings = SearchSettings::new(py, strategy, budget, threads)?;
    let blocks = read_blocks(py, [lower, upper, size], align, follows, overlaps, pinned)?;
    let names = read_names(py, names, blocks.len())?;
    let limits = BlockLimits::new(capacity, max_buffer)?;
    let problem = Problem::new(blocks).map_err(|error| invalid_input(py, &error))?;
    solve(py, limits.on(problem), names, ("blocks", Vec::new()), settings, progress)
}

/// Check where blocks are located. Return everything that is wrong; nothing if the placement is right.
///
/// `buffers` says in which buffer each block is, if there are several. The other arguments are those of `steeve.plan`.
///
/// >>> import steeve
/// >>> steeve.check([0, 1], [2, 3], [64, 64], offsets=[0, 64])
/// []
/// >>> [wrong] = steeve.check([0, 1], [2, 3], [64, 64], offsets=[0, 32])
/// >>> wrong.kind, wrong.blocks, wrong.step, wrong.offset
/// ('overlap', (0, 1), 1, 32)
/// >>> print(wrong)
/// blocks 0 and 1 share byte 32 of buffer 0 at step 1
#[pyfunction]
#[pyo3(signature = (lower, upper, size, offsets, *, buffers=None, align=None, follows=None, overlaps=None, pinned=None, capacity=None, max_buffer=None))]
#[allow(clippy::too_many_arguments, reason = "they are the keywords of a Python function")]
pub(crate) fn check(
    py: Python<'_>,
    lower: &Bound<'_, PyAny>,
    upper: &Bound<'_, PyAny>,
    size: &Bound<'_, PyAny>,
    offsets: &Bound<'_, PyAny>,
    buffers: Option<&Bound<'_, PyAny>>,
    align: Option<&Bound<'_, PyAny>>,
    follows: Option<&Bound<'_, PyAny>>,
    overlaps: Option<&Bound<'_, PyAny>>,
    pinned: Option<&Bound<'_, PyAny>>,
    capacity: Option<&Bound<'_, PyAny>>,
    max_buffer: Option<&Bound<'_, PyAny>>,
) -> PyResult<Vec<PyViolation>> {
    let blocks = read_blocks(py, [lower, upper, size], align, follows, overlaps, pinned)?;
    let offsets = numbers("offsets", offsets)?;
    check_length(py, "offsets", offsets.len(), "lower", blocks.len())?;
    let buffers = match buffers {
        None => vec![0; offsets.len()],
        Some(buffers) => numbers("buffers", buffers)?,
    };
    check_length(py, "buffers", buffers.len(), "lower", blocks.len())?;
    let mut places = Vec::with_capacity(offsets.len());
    for (index, (offset, buffer)) in offsets.into_iter().zip(buffers).enumerate() {
        places.push(Place { buffer: buffer_id(py, "buffers", index, buffer)?, offset: Offset(offset) });
    }
    let problem = Problem::new(blocks).map_err(|error| invalid_input(py, &error))?;
    let problem = BlockLimits::new(capacity, max_buffer)?.on(problem);
    violations(py, problem, Placement::new(IdVec::from(places)))
}

/// One thing that is wrong with a placement.
#[pyclass(frozen, module = "steeve", name = "Violation")]
pub(crate) struct PyViolation {
    /// One word for it.
    #[pyo3(get)]
    pub(crate) kind: String,
    /// The blocks that it is about, by number.
    pub(crate) blocks: Vec<usize>,
    /// The step at which two blocks share a byte.
    #[pyo3(get)]
    pub(crate) step: Option<u64>,
    /// The first byte that they share, or where a misplaced block is.
    #[pyo3(get)]
    pub(crate) offset: Option<u64>,
    /// A sentence.
    #[pyo3(get)]
    pub(crate) message: String,
}

#[pymethods]
impl PyViolation {
    /// The blocks that it is about, by number.
    #[getter]
    fn blocks<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.blocks)
    }

    fn __str__(&self) -> &str {
        &self.message
    }

    fn __repr__(&self) -> String {
        format!("<steeve.Violation {}: {}>", self.kind, self.message)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py>> {
        self.reduce(py)
    }
}

impl PyViolation {
    fn new(violation: &Violation) -> Self {
        let (step, offset) = match violation {
            Violation::Overlap { offset, step, .. } => (Some(step.0), Some(offset.0)),
            Violation::Misaligned { offset, .. } | Violation::OutOfRange { offset, .. } => (None, Some(offset.0)),
            _ => (None, None),
        };
        let blocks = violation.blocks().map(|block| block.index()).collect();
        Self { kind: violation.kind().to_owned(), blocks, step, offset, message: violation.to_string() }
    }
}

/// Blocks that were read from a file. `plan` plans them; `lower`, `upper`, `size`, ... have an item for each.
#[pyclass(frozen, module = "steeve", name = "Blocks")]
pub(crate) struct PyBlocks {
    table: Table,
    title: String,
    /// The file that they are from.
    file: Option<PathBuf>,
}

impl PyBlocks {
    pub(crate) fn new(table: Table, title: String, file: Option<PathBuf>) -> Self {
        Self { table, title, file }
    }

    fn each<'py, T: IntoPyObject<'py>>(
        &self,
        py: Python<'py>,
        value: impl Fn(&Block) -> T,
    ) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.table.blocks().iter().map(value).collect::<Vec<T>>())
    }
}

#[pymethods]
impl PyBlocks {
    /// The first step at which each block is alive.
    #[getter]
    fn lower<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        self.each(py, |block| block.life.start().0)
    }

    /// The first step at which each block is not alive any more.
    #[getter]
    fn upper<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        self.each(py, |block| block.life.end().0)
    }

    /// The bytes of each block.
    #[getter]
    fn size<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        self.each(py, |block| block.size.0)
    }

    /// What the offset of each block is a multiple of.
    #[getter]
    fn align<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        self.each(py, |block| block.align.get())
    }

    /// The block whose bytes each block takes over in place, by number.
    #[getter]
    fn follows<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        self.each(py, |block| block.follows.map(Id::index))
    }

    /// The block that each block may overlap as that one dies, by number, and how far below it starts; None for none.
    #[getter]
    fn overlaps<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        self.each(py, |block| block.overlaps.map(|it| (it.source.index(), it.distance.0)))
    }

    /// The name of each block.
    #[getter]
    fn names<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.table.ids().as_slice())
    }

    /// The offset that the file gives to each block; None where it gives none.
    #[getter]
    fn offsets<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let offsets = self.table.places().iter().map(|place| place.map(|place| place.offset.0));
        PyTuple::new(py, offsets.collect::<Vec<Option<u64>>>())
    }

    /// Plan memory for these blocks; places that the file gives count if `pinned`. The other arguments are those of `steeve.plan`.
    #[pyo3(signature = (*, pinned=false, align=None, capacity=None, max_buffer=None, strategy=None, budget=None, threads=None, progress=None))]
    #[allow(clippy::too_many_arguments, reason = "they are the keywords of a Python function")]
    fn plan(
        &self,
        py: Python<'_>,
        pinned: bool,
        align: Option<&Bound<'_, PyAny>>,
        capacity: Option<&Bound<'_, PyAny>>,
        max_buffer: Option<&Bound<'_, PyAny>>,
        strategy: Option<&Bound<'_, PyAny>>,
        budget: Option<&Bound<'_, PyAny>>,
        threads: Option<&Bound<'_, PyAny>>,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyPlan> {
        let settings = SearchSettings::new(py, strategy, budget, threads)?;
        let least = align.map(|align| read_align(py, number("align", align)?)).transpose()?.unwrap_or(Align::ONE);
        let problem = if pinned { self.table.pinned_problem() } else { self.table.problem() };
        let aligned = |block: &Block| Block { align: block.align.max(least), ..*block };
        let problem = problem
            .and_then(|problem| Problem::new(problem.blocks().iter().map(aligned).collect::<IdVec<_, _>>()))
            .map_err(|error| invalid_input(py, &error))?;
        let limits = BlockLimits::new(capacity, max_buffer)?;
        let names = BlockNames::new(Some(self.table.ids().clone()));
        let inputs = self.file.clone().into_iter().collect();
        solve(py, limits.on(problem), names, (&self.title, inputs), settings, progress)
    }

    /// Check the places that the file gives. Return everything that is wrong.
    fn check(&self, py: Python<'_>) -> PyResult<Vec<PyViolation>> {
        let placement = self.table.placement().map_err(|error| invalid_input(py, &error))?;
        let problem = self.table.problem().map_err(|error| invalid_input(py, &error))?;
        violations(py, problem, placement)
    }

    fn __len__(&self) -> usize {
        self.table.ids().len()
    }

    fn __repr__(&self) -> String {
        format!("<steeve.Blocks {:?}: {} blocks>", self.title, self.table.ids().len())
    }

    fn __copy__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (_memo, /))]
    fn __deepcopy__<'py>(slf: Bound<'py, Self>, _memo: &Bound<'py, PyAny>) -> Bound<'py, Self> {
        slf
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py>> {
        reduce_blocks(py, &self.table, &self.title)
    }
}

fn violations(py: Python<'_>, problem: Problem, placement: Placement) -> PyResult<Vec<PyViolation>> {
    let wrong = unlocked(py, || certify(problem, placement).err())?;
    Ok(wrong.iter().flat_map(|wrong| wrong.list()).map(PyViolation::new).collect())
}

/// The limits of a memory.
struct BlockLimits {
    capacity: Option<u64>,
    max_buffer: Option<u64>,
}

impl BlockLimits {
    fn new(capacity: Option<&Bound<'_, PyAny>>, max_buffer: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let read = |argument, value: Option<&Bound<'_, PyAny>>| value.map(|value| number(argument, value)).transpose();
        Ok(Self { capacity: read("capacity", capacity)?, max_buffer: read("max_buffer", max_buffer)? })
    }

    fn on(&self, mut problem: Problem) -> Problem {
        if let Some(capacity) = self.capacity {
            problem = problem.with_capacity(Bytes(capacity));
        }
        if let Some(limit) = self.max_buffer {
            problem = problem.with_max_buffer(Bytes(limit));
        }
        problem
    }
}

/// Places blocks and proves the plan. Fails with `DoesNotFit` where it is above the capacity.
fn solve(
    py: Python<'_>,
    problem: Problem,
    names: BlockNames,
    (title, inputs): (&str, Vec<PathBuf>),
    settings: SearchSettings,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<PyPlan> {
    let strategy = settings.for_blocks(py)?;
    let mut watcher = SearchWatcher::new(py, progress)?;
    let solved = unlocked(py, || {
        let outcome = place_watched(&problem, &strategy, &mut |now| watcher.watch(now))?;
        // Where it does not fit, the plan tells why.
        let plan = match certify(problem.clone().without_capacity(), outcome.placement) {
            Ok(plan) => plan,
            Err(wrong) => unreachable!("a strategy made a wrong placement: {wrong}"),
        };
        Ok((plan, outcome.verdict, outcome.at_least))
    })?;
    let seconds = watcher.finish(py)?;
    let (plan, verdict, at_least) = solved.map_err(|error: steeve_plan::PlaceError| invalid_input(py, &error))?;
    let planned = Planned::Blocks { plan, names, at_least, strategy: strategy.to_string() };
    let made = PyPlan::new(planned, title.to_owned(), seconds).made_of(inputs);
    match (problem.capacity(), verdict.fits()) {
        (Some(capacity), false) => {
            let proof = if verdict == Verdict::CannotFit { Proof::Complete } else { Proof::Missing };
            let (memory, needs, capacity) = (ONLY_MEMORY.to_owned(), at_least.0, capacity.0);
            Err(Misfit { memory, needs, capacity, proof }.error(py, made))
        }
        _ => Ok(made),
    }
}

/// A memory whose plan is above its capacity.
pub(crate) struct Misfit {
    pub(crate) memory: String,
    pub(crate) needs: u64,
    pub(crate) capacity: u64,
    pub(crate) proof: Proof,
}

/// What is proved of a plan that does not fit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Proof {
    /// Nothing: another plan may fit.
    Missing,
    /// No plan fits.
    Complete,
    /// Nothing of another order of the nodes, or of other in-place results: with these, no plan takes fewer bytes than are needed.
    OfThisOrder,
}

impl Misfit {
    /// Returns the exception, with the smallest plan that was found.
    pub(crate) fn error(self, py: Python<'_>, plan: PyPlan) -> PyErr {
        let Self { memory, needs, capacity, proof } = self;
        let made = || {
            let plan = Py::new(py, plan)?;
            let alive = locked(py, || plan.get().at_peak_of(&memory))?;
            let found = plan.get().peak_of(&memory);
            let condition = if proof == Proof::OfThisOrder { " in this order with these in-place results" } else { "" };
            let is_below = proof == Proof::Complete || proof == Proof::OfThisOrder && needs > capacity;
            let message = match is_below {
                true => format!("does not fit: needs at least {needs} bytes{condition}"),
                false => format!(
                    "no plan found that fits: the smallest has {found} bytes, at least {needs} are needed{condition}"
                ),
            };
            let message = format!("{memory}: {message}, got a capacity of {capacity}");
            Ok(exception(py, "DoesNotFit", message, |fields| {
                fields.set_item("memory", memory)?;
                fields.set_item("needs", needs)?;
                fields.set_item("capacity", capacity)?;
                fields.set_item("proved", proof == Proof::Complete)?;
                fields.set_item("alive", PyTuple::new(py, alive)?)?;
                fields.set_item("plan", plan)
            }))
        };
        made().unwrap_or_else(|error: PyErr| error)
    }
}

fn read_blocks(
    py: Python<'_>,
    [lower, upper, size]: [&Bound<'_, PyAny>; 3],
    align: Option<&Bound<'_, PyAny>>,
    follows: Option<&Bound<'_, PyAny>>,
    overlaps: Option<&Bound<'_, PyAny>>,
    pinned: Option<&Bound<'_, PyAny>>,
) -> PyResult<Vec<Block>> {
    let (lower, upper, size) = (numbers("lower", lower)?, numbers("upper", upper)?, numbers("size", size)?);
    let count = lower.len();
    check_length(py, "upper", upper.len(), "lower", count)?;
    check_length(py, "size", size.len(), "lower", count)?;
    let mut blocks = Vec::with_capacity(count);
    for (index, ((lower, upper), size)) in lower.into_iter().zip(upper).zip(size).enumerate() {
        let life = Lifetime::new(lower, upper).map_err(|_| {
            let what = format!("not above lower[{index}]: expected more than {lower}, got {upper}");
            invalid_argument(py, "upper", Some(index), what)
        })?;
        blocks.push(Block::new(Bytes(size), life));
    }
    for (block, align) in blocks.iter_mut().zip(read_aligns(py, align, count)?) {
        block.align = align;
    }
    if let Some(follows) = follows {
        let follows = optional_numbers("follows", follows)?;
        check_length(py, "follows", follows.len(), "lower", count)?;
        for (index, (block, before)) in blocks.iter_mut().zip(follows).enumerate() {
            block.follows = match before {
                None => None,
                Some(before) if before < count as u64 => BlockId::from_index(before as usize),
                Some(before) => {
                    let what = format!("no such block: expected one of the {count} blocks, None or -1, got {before}");
                    return Err(invalid_argument(py, "follows", Some(index), what));
                }
            };
        }
    }
    if let Some(overlaps) = overlaps {
        let overlaps = read_overlaps(py, overlaps, count)?;
        check_length(py, "overlaps", overlaps.len(), "lower", count)?;
        for (block, overlap) in blocks.iter_mut().zip(overlaps) {
            block.overlaps = overlap;
        }
    }
    if let Some(pinned) = pinned {
        let places = read_pins(py, pinned)?;
        check_length(py, "pinned", places.len(), "lower", count)?;
        for (block, place) in blocks.iter_mut().zip(places) {
            block.pinned = place;
        }
    }
    Ok(blocks)
}

/// Reads one alignment for all blocks, or one for each.
fn read_aligns(py: Python<'_>, align: Option<&Bound<'_, PyAny>>, count: usize) -> PyResult<Vec<Align>> {
    let Some(align) = align else { return Ok(vec![Align::ONE; count]) };
    if align.is_instance_of::<PyInt>() || align.extract::<i128>().is_ok() {
        return Ok(vec![read_align(py, number("align", align)?)?; count]);
    }
    let aligns = numbers("align", align)?;
    check_length(py, "align", aligns.len(), "lower", count)?;
    let mut all = Vec::with_capacity(count);
    for (index, align) in aligns.into_iter().enumerate() {
        all.push(Align::new(align).map_err(|_| not_an_alignment(py, Some(index), align))?);
    }
    Ok(all)
}

pub(crate) fn read_align(py: Python<'_>, align: u64) -> PyResult<Align> {
    Align::new(align).map_err(|_| not_an_alignment(py, None, align))
}

fn not_an_alignment(py: Python<'_>, index: Option<usize>, align: u64) -> PyErr {
    invalid_argument(py, "align", index, format!("not an alignment: expected a power of two, got {align}"))
}

/// Reads which blocks overlap another: pairs of its number and the distance, or None.
fn read_overlaps(py: Python<'_>, overlaps: &Bound<'_, PyAny>, count: usize) -> PyResult<Vec<Option<Overlap>>> {
    const EXPECTED: &str = "a sequence of pairs of block and distance, or None";
    let items = match overlaps.try_iter() {
        Ok(items) if !overlaps.is_instance_of::<PyString>() => items,
        _ => return Err(wrong_type("overlaps", None, EXPECTED, overlaps)),
    };
    let mut all = Vec::with_capacity(count);
    for (index, item) in items.enumerate() {
        let item = item?;
        if item.is_none() {
            all.push(None);
            continue;
        }
        let (source, distance) = item.extract::<(u64, u64)>().map_err(|_| {
            let shown = item.repr().map_or_else(|_| "something else".to_owned(), |it| it.to_string());
            let what = format!("not an overlap: expected (block, distance) or None, got {shown}");
            invalid_argument(py, "overlaps", Some(index), what)
        })?;
        let block = usize::try_from(source).ok().filter(|source| *source < count).and_then(BlockId::from_index);
        let Some(source) = block else {
            let what = format!("no such block: expected one of the {count} blocks, got {source}");
            return Err(invalid_argument(py, "overlaps", Some(index), what));
        };
        all.push(Some(Overlap { source, distance: Bytes(distance) }));
    }
    Ok(all)
}

/// Reads where blocks are pinned: nowhere (None or -1), at an offset, or at a pair of buffer and offset.
fn read_pins(py: Python<'_>, pinned: &Bound<'_, PyAny>) -> PyResult<Vec<Option<Place>>> {
    let at = |offset: Option<u64>| offset.map(|offset| Place::first(Offset(offset)));
    if PyUntypedBuffer::get(pinned).is_ok() {
        return Ok(optional_numbers("pinned", pinned)?.into_iter().map(at).collect());
    }
    // Of an iterator there is one pass alone.
    let items: Vec<Bound<'_, PyAny>> = match pinned.try_iter() {
        Ok(items) if !pinned.is_instance_of::<PyString>() => items.collect::<PyResult<_>>()?,
        _ => return Err(wrong_type("pinned", None, "a sequence of offsets, or of pairs of buffer and offset", pinned)),
    };
    let place = |(index, item): (usize, &Bound<'_, PyAny>)| {
        if !item.is_instance_of::<PyTuple>() {
            return optional_number("pinned", index, item).map(at);
        }
        let (buffer, offset) = item.extract::<(u64, u64)>().map_err(|_| {
            let shown = item.repr().map_or_else(|_| "another tuple".to_owned(), |it| it.to_string());
            let what = format!("not a place: expected an offset or (buffer, offset), got {shown}");
            invalid_argument(py, "pinned", Some(index), what)
        })?;
        Ok(Some(Place { buffer: buffer_id(py, "pinned", index, buffer)?, offset: Offset(offset) }))
    };
    items.iter().enumerate().map(place).collect()
}

fn buffer_id(py: Python<'_>, argument: &str, index: usize, buffer: u64) -> PyResult<BufferId> {
    usize::try_from(buffer).ok().and_then(BufferId::from_index).ok_or_else(|| {
        invalid_argument(
            py,
            argument,
            Some(index),
            format!("buffer index too large: expected below 2^32 - 1, got {buffer}"),
        )
    })
}

/// Reads names, if there are any.
fn read_names(py: Python<'_>, names: Option<&Bound<'_, PyAny>>, count: usize) -> PyResult<BlockNames> {
    let Some(names) = names else { return Ok(BlockNames::new(None)) };
    if names.is_instance_of::<PyString>() {
        return Err(wrong_type("names", None, "a sequence of str", names));
    }
    let items = names.try_iter().map_err(|_| wrong_type("names", None, "a sequence of str", names))?;
    let mut all = Vec::with_capacity(count);
    for (index, item) in items.enumerate() {
        let item = item?;
        all.push(text_of("names", Some(index), &item)?);
    }
    check_length(py, "names", all.len(), "lower", count)?;
    Ok(BlockNames::new(Some(IdVec::from(all))))
}
