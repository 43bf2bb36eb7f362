//! Tensors without elements.

use steeve_cpu::CpuBackend;
use steeve_device::Backend;
use steeve_graph::{Bytes, DataType, Op, SoftMax, TensorId};

use crate::frame::on_each_gpu;
use crate::proof::{Outcome, run_whole};
use crate::reference::{Case, CaseBuilder, Values, named, plan_variants};

const F32: DataType = DataType::F32;

/// A graph of no tokens, most of whose nodes have nothing to do; some make something of nothing.
fn no_tokens() -> Case {
    let mut sketch = CaseBuilder::new(1);
    let mut input = |dtype: DataType, shape: &[u64]| sketch.input(dtype, shape, Values::Within(1.0)).unwrap();
    let (x, y, some) = (input(F32, &[64, 0]), input(F32, &[64, 0]), input(F32, &[64, 3]));
    let (row, mask, halves) = (input(F32, &[64]), input(F32, &[64, 0]), input(DataType::F16, &[64, 9]));
    let (weights, blocks) = (input(F32, &[64, 9]), input(DataType::Q8_0, &[64, 9]));
    let (thin, ids) = (input(F32, &[0, 5]), input(DataType::I32, &[0]));
    let c = &mut sketch.context;
    let sum = c.add(x, y).unwrap();
    // A view of no bytes is never out of range, of an empty tensor or of another.
    let far = c.view_2d(x, [64, 0], 256, Bytes(8192)).unwrap();
    let behind = c.view_2d(some, [64, 0], 256, Bytes(u64::MAX)).unwrap();
    let outputs = [
        c.silu(far),
        c.add(far, behind),
        c.mul_mat(weights, behind),
        c.cpy(far, behind),
        c.add(sum, row),
        c.silu(sum),
        c.mul_mat(weights, sum),
        c.mul_mat(halves, sum),
        c.mul_mat(blocks, x),
        c.rms_norm(sum, 1e-5),
        c.soft_max(sum, None, SoftMax::default()),
        c.soft_max(sum, Some(mask), SoftMax::default()),
        c.get_rows(weights, ids),
        c.concat(x, y, 1),
        c.cont(x),
        // And these have elements.
        c.concat(sum, some, 1),
        c.concat(some, sum, 1),
        c.sum_rows(thin),
        c.apply(Op::Sum, &[Some(x)], &[]),
    ];
    let outputs: Vec<TensorId> = outputs.into_iter().map(Result::unwrap).collect();
    sketch.case(&outputs).unwrap()
}

/// What the graph makes in every plan, run by run.
fn outcomes(backend: &dyn Backend, case: &Case) -> Vec<Outcome> {
    for node in case.graph.nodes() {
        let refused = backend.supports(&case.graph, *node);
        refused.unwrap_or_else(|error| panic!("{}: {error}", named(&case.graph, *node)));
    }
    let run = |way| run_whole(backend, case, way, 3).unwrap().unwrap_or_default();
    plan_variants().iter().flat_map(run).collect()
}

#[test]
fn a_graph_without_tokens_makes_what_it_makes_on_the_processor() {
    let case = no_tokens();
    let wanted = outcomes(&CpuBackend::new(1), &case);
    assert!(!wanted.is_empty());
    assert!(wanted.iter().all(|it| it.outputs.iter().filter(|(_, bytes)| !bytes.is_empty()).count() == 4));
    on_each_gpu(0, |proof| {
        assert!(outcomes(&*proof.backend, &case) == wanted);
    });
}
