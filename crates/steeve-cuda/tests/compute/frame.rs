//! What all tests here do on each GPU: graphs in, a panic that says which node is wrong, and a list of what was judged.

use std::collections::BTreeMap;
use std::fmt::Display;

use steeve_cuda::CudaDevice;
use steeve_device::{Backend, Device};
use steeve_graph::{DataType, TensorId};

use crate::gpu::{assert_captured, devices};
use crate::proof::{Where, judge_nodes, run_node, run_whole};
use crate::reference::{Case, CaseBuilder, contents_of, named, plan_variants};

pub(crate) const FLOATS: [DataType; 3] = [DataType::F32, DataType::F16, DataType::Bf16];

/// Runs a test on each GPU there is. Afterwards nothing was refused to be captured, and something was captured if the test
/// ran whole graphs.
pub(crate) fn on_each_gpu(first_seed: u64, test: impl Fn(&mut Proof)) {
    for device in devices() {
        let backend = device.backend().unwrap();
        let mut proof = Proof { backend, device, seed: first_seed, tally: Tally::default(), graphs: 0 };
        test(&mut proof);
        proof.tally.print();
        match proof.graphs {
            0 => assert_eq!(proof.device.launches().refused, None),
            _ => assert_captured(&proof.device),
        }
    }
}

/// A GPU, and what was judged on it.
pub(crate) struct Proof {
    pub(crate) backend: Box<dyn Backend>,
    device: CudaDevice,
    seed: u64,
    tally: Tally,
    /// How many ran as a whole.
    graphs: u64,
}

impl Proof {
    /// An empty sketch with a seed of its own.
    pub(crate) fn sketch(&mut self) -> CaseBuilder {
        self.seed += 1;
        CaseBuilder::new(self.seed)
    }

    /// Every node runs here and is right, and every plan gives the same bits.
    pub(crate) fn prove(&mut self, sketch: CaseBuilder, outputs: &[TensorId], what: impl Display) {
        let case = sketch.case(outputs).unwrap();
        let refused = self.prove_supported(&case).unwrap_or_else(|why| panic!("{what}: {why}"));
        assert!(refused.is_empty(), "{what}: {} is refused", named(&case.graph, refused[0]));
    }

    /// The same of a graph some of whose nodes may be refused, which are the answer. With such it does not run as a whole.
    pub(crate) fn prove_supported(&mut self, case: &Case) -> Result<Vec<TensorId>, String> {
        let (tally, mut refused) = (&mut self.tally, Vec::new());
        let memory = judge_nodes(&*self.backend, case, &mut |node, used| {
            refused.extend(used.is_none().then_some(node));
            tally.note(case, node, used);
        })?;
        if !refused.is_empty() {
            return Ok(refused);
        }
        let tensors = case.graph.tensors();
        for way in plan_variants() {
            let ran = run_whole(&*self.backend, case, &way, 3).map_err(|error| format!("{}: {error}", way.name))?;
            let Some(outcomes) = ran else { continue };
            for (time, outcome) in outcomes.iter().enumerate() {
                for (id, bytes) in outcome.outputs.iter().chain(&outcome.externals) {
                    if *bytes != memory.bytes(tensors, *id) {
                        let name = named(&case.graph, *id);
                        return Err(format!("{}, run {time}: {name} is another one than node by node", way.name));
                    }
                }
            }
        }
        self.graphs += 1;
        Ok(refused)
    }

    /// What a node makes of the leafs of a graph, without gaps.
    pub(crate) fn made(&self, case: &Case, node: TensorId) -> Vec<u8> {
        run_node(&*self.backend, &case.graph, node, &contents_of(case), Where::Apart).unwrap()
    }
}

/// What happened to the nodes of each operation and types.
#[derive(Default)]
struct Tally(BTreeMap<String, (usize, usize, f64)>);

impl Tally {
    fn note(&mut self, case: &Case, node: TensorId, used: Option<f64>) {
        let tensors = case.graph.tensors();
        let types: Vec<&str> =
            tensors.sources(node).iter().map(|id| id.map_or("-", |id| tensors[id].layout.dtype().name())).collect();
        let title = format!("{} {}", tensors.op_title(tensors[node].op), types.join(" "));
        let (ran, refused, worst) = self.0.entry(title).or_default();
        match used {
            Some(used) => (*ran, *worst) = (*ran + 1, worst.max(used)),
            None => *refused += 1,
        }
    }

    fn print(&self) {
        for (title, (ran, refused, worst)) in &self.0 {
            println!("{ran:>6} judged, {refused:>4} refused, {:>3.0}% of the tolerance  {title}", 100.0 * worst);
        }
    }
}
