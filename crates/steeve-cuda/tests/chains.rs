//! Kernels, copies and products that follow one another at once, in memory that is reused at once: each sees what the one
//! before it has made, however they are launched.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod gpu;

use gpu::{alone, devices};
use steeve_cpu::CpuBackend;
use steeve_cuda::Capture;
use steeve_device::{Backend, Bindings, Bytes, Device, Offset, SharedBuffer, Usage};
use steeve_graph::fuzz::Choices;
use steeve_graph::{Context, DataType, Graph, GraphStrategy, PlanOptions, Reuse, TensorId};
use steeve_runtime::{AllocOptions, GraphAllocator};

/// So many steps in a chain, and runs of it.
const STEPS: usize = 300;
const RUNS: usize = 30;

/// What becomes of a square matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// One more everywhere: a kernel, mostly in place.
    Add,
    /// Times the identity: a product for the library.
    Multiply,
    /// Rows become columns: a kernel that can't be in place.
    Turn,
    /// A row is put behind it, and all others are moved there by one: onto one another, so they are copied away first.
    Down,
    /// The same with a row before it.
    Up,
}

/// Any step may follow any other.
fn steps(seed: u64) -> Vec<Step> {
    let mut choices = Choices::from_seed(seed);
    let all = [Step::Add, Step::Multiply, Step::Turn, Step::Down, Step::Up];
    (0..STEPS).map(|_| choices.pick(&all).unwrap()).collect()
}

/// The chain as a graph of matrices of `n` rows.
struct Chain {
    n: u64,
    graph: Graph,
    input: TensorId,
    identity: TensorId,
    row: TensorId,
    output: TensorId,
    /// Which element of the input each of the output is, and what was added to all of them.
    from: Vec<usize>,
    added: f32,
}

impl Chain {
    fn new(n: u64, steps: &[Step]) -> Self {
        let mut c = Context::new();
        let identity = c.external(DataType::F32, &[n, n]).unwrap();
        let row = c.external(DataType::F32, &[n]).unwrap();
        let input = c.input(DataType::F32, &[n, n]).unwrap();
        let (mut x, mut from, mut added) = (input, (0..(n * n) as usize).collect::<Vec<usize>>(), 0.0);
        for step in steps {
            x = match step {
                Step::Add => {
                    added += 1.0;
                    c.scale_bias(x, 1.0, 1.0).unwrap()
                }
                Step::Multiply => c.mul_mat(identity, x).unwrap(),
                Step::Turn => {
                    let n = n as usize;
                    from = (0..n * n).map(|i| from[i % n * n + i / n]).collect();
                    let turned = c.transpose(x).unwrap();
                    c.cont(turned).unwrap()
                }
                Step::Down | Step::Up => {
                    let (a, b, at) = if *step == Step::Down { (x, row, [0, 1]) } else { (row, x, [1, 0]) };
                    let both = c.concat(a, b, 1).unwrap();
                    let [here, there] = at.map(|row| c.view_2d(both, [n, n], 4 * n, Bytes(4 * n * row)).unwrap());
                    c.cpy(here, there).unwrap()
                }
            };
        }
        let output = c.cont(x).unwrap();
        c.set_output(output).unwrap();
        let graph = Graph::from_outputs(&c, &[output]).unwrap();
        Self { n, graph, input, identity, row, output, from, added }
    }

    /// Runs it again and again without waiting in between, each time with another input, and compares all results.
    fn prove(&self, backend: &dyn Backend, what: &str) {
        let (memory, size) = (backend.buffer_type(), 4 * self.n * self.n);
        let buffer = |size: u64| SharedBuffer::allocate(&memory, Bytes(size), Usage::Any).unwrap();
        let bytes = |numbers: &mut dyn Iterator<Item = f32>| numbers.flat_map(f32::to_le_bytes).collect::<Vec<u8>>();
        let [all, results] = [buffer(RUNS as u64 * size), buffer(RUNS as u64 * size)];
        let [identity, row] = [buffer(size), buffer(4 * self.n)];
        results.clear(0xFF).unwrap();
        // Whoever sees the row that is put there sees what is no number.
        row.clear(0xFF).unwrap();
        let (n, mut choices) = (self.n as usize, Choices::from_seed(self.n));
        let ones = bytes(&mut (0..n * n).map(|i| f32::from(u8::from(i / n == i % n))));
        identity.write(Offset(0), &ones).unwrap();
        let inputs: Vec<f32> = (0..RUNS * n * n).map(|_| choices.below(1000) as f32).collect();
        all.write(Offset(0), &bytes(&mut inputs.iter().copied())).unwrap();

        let mut bindings = Bindings::new();
        bindings.bind(self.identity, &identity, Offset(0), Bytes(size)).unwrap();
        bindings.bind(self.row, &row, Offset(0), Bytes(4 * self.n)).unwrap();
        let plan = PlanOptions::new(GraphStrategy::Fast).with_reuse(Reuse::Extended);
        let mut allocator = GraphAllocator::new(&memory).with_options(AllocOptions::new().with_plan(plan));
        let allocation = allocator.alloc(&self.graph, &bindings).unwrap();
        assert!(allocator.buffer_size(0).unwrap() <= Bytes(4 * size), "memory is not reused at once");
        let mut prepared = backend.prepare(&self.graph, 0..self.graph.nodes().len(), &allocation).unwrap();
        let [input, output] = [self.input, self.output].map(|id| allocation.address(id).unwrap());
        for run in 0..RUNS as u64 {
            backend.copy((input.buffer, input.offset), (&all, Offset(run * size)), Bytes(size)).unwrap();
            backend.submit(&mut *prepared).unwrap();
            backend.copy((&results, Offset(run * size)), (output.buffer, output.offset), Bytes(size)).unwrap();
        }
        let mut made = vec![0; RUNS * size as usize];
        backend.read(&results, Offset(0), &mut made).unwrap();
        for (run, (made, input)) in made.chunks(size as usize).zip(inputs.chunks(n * n)).enumerate() {
            let made = made.as_chunks().0.iter().map(|it| f32::from_le_bytes(*it));
            let wanted = self.from.iter().map(|at| input[*at] + self.added);
            let wrong = made.zip(wanted).enumerate().find(|(_, (made, wanted))| made != wanted);
            assert!(wrong.is_none(), "{what}, {n} rows, run {run}: element, made and wanted are {wrong:?}");
        }
    }
}

/// Small ones, whose kernels are shorter than a launch, and larger ones.
fn chains() -> impl Iterator<Item = Chain> {
    [(13, 1), (64, 2), (200, 3), (512, 4)].into_iter().map(|(n, seed)| Chain::new(n, &steps(seed)))
}

#[test]
fn each_step_sees_what_the_one_before_it_has_made() {
    let _alone = alone();
    for capture in [Capture::Never, Capture::AtOnce] {
        for device in devices() {
            let device = device.with_capture(capture);
            let backend = device.backend().unwrap();
            for chain in chains() {
                chain.prove(&*backend, &format!("{capture:?}"));
            }
            let launches = device.launches();
            assert_eq!(launches.refused, None);
            assert_eq!(launches.whole > 0, capture == Capture::AtOnce, "{launches:?}");
            assert_eq!(launches.apart > 0, capture == Capture::Never, "{launches:?}");
        }
    }
}

/// What is expected is right: the processor makes the same.
#[test]
fn so_it_is_on_the_processor() {
    for chain in chains().take(2) {
        chain.prove(&CpuBackend::new(2), "the processor");
    }
}
