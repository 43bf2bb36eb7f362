//! Times of both sides, taken in turn: ggml, steeve, ggml, steeve and so on, so that a machine that is busy for a while
//! is so for both. The median of each counts.

use std::hint::black_box;
use std::time::{Duration, Instant};

use steeve_graph::{AssignedGraph, Bytes, GraphError};

use crate::ggml::{Ggml, GgmlError};
use crate::mirror::ClampRule;
use crate::our_sched::OurSched;
use crate::ours::{OurError, Ours, rebuilt};
use crate::products::{GgmlProducts, OurProductError, OurProducts, Products};
use crate::sched::{Cut, GgmlSched};
use crate::spread::Spread;

/// What was measured on one graph.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// The nodes of the graph.
    pub nodes: usize,
    /// Planning, with buffers that are large enough already.
    pub reserve: Pair,
    /// What is done for every run of a graph that has a plan.
    pub alloc: Pair,
    /// Bytes of all memories: ggml's.
    pub ggml: Bytes,
    /// Bytes of all memories: ours.
    pub ours: Bytes,
}

/// What was measured of the schedulers on one graph.
#[derive(Clone, Copy, Debug)]
pub struct SchedFigures {
    /// The nodes of the graph.
    pub nodes: usize,
    /// Splitting and planning.
    pub reserve: Pair,
    /// What is done for every run of a graph that is as before.
    pub alloc: Pair,
    /// How ggml cuts the graph.
    pub ggml: Cut,
    /// How we do.
    pub ours: Cut,
}

/// What was measured of some matrix products.
#[derive(Clone, Copy, Debug)]
pub struct ProductFigures {
    /// Computing all of them.
    pub times: Pair,
    /// How far the two results are from one another, by the largest element.
    pub difference: f64,
}

/// A time of each side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// ggml's.
    pub ggml: Duration,
    /// Ours.
    pub ours: Duration,
}

/// Why a graph was not measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeasureError {
    /// ggml has no answer.
    #[error(transparent)]
    Ggml(#[from] GgmlError),
    /// We have none.
    #[error(transparent)]
    Ours(#[from] OurError),
    /// Our matrix products did not run.
    #[error(transparent)]
    Products(#[from] OurProductError),
    /// The graph could not be built again.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

/// Measures one graph.
///
/// ```
/// let graph = "x = input f32[64]; y = sqr x; z = add x y !output".parse()?;
/// let figures = peer_ggml::measure::figures(&graph, 3)?;
/// assert_eq!((figures.nodes, figures.ggml.0, figures.ours.0), (2, 512, 512));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn figures(assigned: &AssignedGraph, repeats: usize) -> Result<Figures, MeasureError> {
    let mut ggml = Ggml::new(assigned, ClampRule::Linked)?;
    let mut ours = Ours::new(assigned)?;
    let reserve = in_turn(
        repeats,
        || {
            let mut fresh = ggml.fresh();
            timed(|| Ok(fresh.plan()?))
        },
        || {
            ours.forget()?;
            timed(|| Ok(ours.reserve(assigned)?))
        },
    )?;
    let alloc = in_turn(
        repeats,
        || {
            let fresh = ggml.fresh();
            timed(|| {
                black_box(fresh.alloc()?);
                Ok(())
            })
        },
        || {
            let again = rebuilt(assigned.graph())?;
            timed(|| Ok(ours.alloc(&again)?))
        },
    )?;
    let bytes = Bytes(ggml.sizes().iter().map(|size| size.0).sum());
    let (nodes, ours) = (assigned.graph().nodes().len(), ours.peak(assigned.graph()));
    Ok(Figures { nodes, reserve, alloc, ggml: bytes, ours })
}

/// Measures the schedulers on one graph, with its external tensors spread over devices.
///
/// ```
/// use peer_ggml::{Spread, measure::sched_figures};
/// let graph = "x = input f32[64]; a = external f32[64,64]; b = external f32[64,64]; c = external f32[64,64]; \
///              y = mul_mat a x; z = mul_mat b y; u = mul_mat c z !output".parse()?;
/// let figures = sched_figures(&graph, Spread { devices: 3, parts: 3 }, 3)?;
/// assert_eq!((figures.ggml.splits, figures.ggml.copies), (3, 2));
/// assert_eq!(figures.ggml, figures.ours);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn sched_figures(assigned: &AssignedGraph, spread: Spread, repeats: usize) -> Result<SchedFigures, MeasureError> {
    let graph = assigned.graph();
    let mut ggml = GgmlSched::new(assigned, spread)?;
    let mut ours = OurSched::new(assigned, spread)?;
    let reserve = in_turn(
        repeats,
        || {
            let fresh = ggml.fresh();
            timed(|| Ok(fresh.reserve()?))
        },
        || {
            ours.forget()?;
            timed(|| Ok(ours.reserve(graph)?))
        },
    )?;
    let alloc = in_turn(
        repeats,
        || {
            let fresh = ggml.fresh();
            timed(|| {
                black_box(fresh.alloc()?);
                Ok(())
            })
        },
        || {
            let again = rebuilt(graph)?;
            timed(|| Ok(ours.alloc(&again)?))
        },
    )?;
    let (ggml, ours) = (ggml.fresh().alloc()?.cut(), ours.cut(graph)?);
    Ok(SchedFigures { nodes: graph.nodes().len(), reserve, alloc, ggml, ours })
}

/// Measures matrix products, with one thread each.
///
/// ```
/// use peer_ggml::{Products, measure::product_figures};
/// use steeve_graph::DataType;
/// let products = Products { dtype: DataType::Q4K, k: 256, m: 64, n: 3, count: 2 };
/// assert!(product_figures(&products, 3)?.difference < 0.01);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn product_figures(products: &Products, repeats: usize) -> Result<ProductFigures, MeasureError> {
    let numbers = products.numbers();
    let (mut ggml, mut ours) = (GgmlProducts::new(products, &numbers)?, OurProducts::new(products, &numbers)?);
    let times = in_turn(repeats, || timed(|| Ok(ggml.run()?)), || timed(|| Ok(ours.run()?)))?;
    let (ggml, ours) = (ggml.result(), ours.result()?);
    let most = ggml.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    // What is no number is further away than any.
    let further = |most: f32, (a, b): (&f32, &f32)| {
        let apart = (a - b).abs();
        if apart <= most { most } else { apart }
    };
    let apart = ggml.iter().zip(&ours).fold(0.0f32, further);
    Ok(ProductFigures { times, difference: f64::from(apart) / f64::from(most) })
}

impl Pair {
    /// Ours by ggml's.
    pub fn ratio(&self) -> f64 {
        self.ours.as_secs_f64() / self.ggml.as_secs_f64()
    }
}

/// The middle one of some values; not a number if there is none.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

type Timed = Result<Duration, MeasureError>;

/// The medians of two acts that take turns. The first turn of each is not counted: it makes buffers and warms caches.
fn in_turn(
    repeats: usize,
    mut ggml: impl FnMut() -> Timed,
    mut ours: impl FnMut() -> Timed,
) -> Result<Pair, MeasureError> {
    ggml()?;
    ours()?;
    let (mut of_ggml, mut of_ours) = (Vec::with_capacity(repeats), Vec::with_capacity(repeats));
    for _ in 0..repeats.max(1) {
        of_ggml.push(ggml()?);
        of_ours.push(ours()?);
    }
    let middle = |mut times: Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2]
    };
    Ok(Pair { ggml: middle(of_ggml), ours: middle(of_ours) })
}

fn timed(act: impl FnOnce() -> Result<(), MeasureError>) -> Timed {
    let before = Instant::now();
    act()?;
    Ok(before.elapsed())
}
