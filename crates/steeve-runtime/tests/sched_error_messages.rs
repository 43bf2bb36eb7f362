//! Every error is one line without a period at its end, and does not repeat the message of its source.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::error::Error;
use std::sync::Arc;

use steeve_device::{Bytes, Device, DeviceError, NullDevice};
use steeve_graph::{Context, DataType, Graph, GraphError, Named, TensorId};
use steeve_runtime::sched::{DeviceRefusals, SchedError, WorkerRefusal};
use steeve_runtime::{AllocError, AtPeak};

/// Checks an error and all its sources.
fn check(error: &(dyn Error + 'static)) {
    let mut at = Some(error);
    while let Some(error) = at {
        let message = error.to_string();
        assert!(!message.is_empty() && !message.contains('\n'), "not one line: {message:?}");
        assert!(!message.ends_with('.'), "ends with a period: {message}");
        at = error.source();
        if let Some(source) = at {
            assert!(!message.contains(&source.to_string()), "repeats its source: {message}");
        }
    }
}

fn graph() -> Result<(Graph, TensorId), GraphError> {
    let mut context = Context::new();
    let x = context.input(DataType::F32, &[8])?;
    let y = context.sqr(x)?;
    Ok((Graph::from_outputs(&context, &[y])?, y))
}

#[test]
fn no_message_repeats_its_source() {
    let (graph, node) = graph().unwrap();
    let named = || Named::new(node, graph.names());
    let device: Arc<dyn Device> = Arc::new(NullDevice::new("gpu"));
    let error = || DeviceError::unsupported(device.name(), &graph, node, "it is not built for that");
    let refusals = || {
        vec![
            WorkerRefusal::Device(error()),
            WorkerRefusal::SharedMemory { other: named(), error: error() },
            WorkerRefusal::PinnedElsewhere { worker: "cpu".into() },
            WorkerRefusal::OutOfReach { root: named() },
        ]
    };
    for refusal in refusals() {
        let error = SchedError::Pinned { tensor: named(), worker: "gpu".into(), refusal: Box::new(refusal) };
        assert!(error.source().is_some(), "{error}");
        check(&error);
    }
    let all = refusals().into_iter().map(|refusal| ("gpu".to_owned(), refusal)).collect();
    let (needed, budget, at_peak) = (Bytes(9), Bytes(8), AtPeak(vec![(named(), Bytes(4))]));
    for error in [
        SchedError::NoWorker,
        SchedError::UnknownWorker { index: 3, workers: 2 },
        SchedError::Unsupported { node: named(), op: "sqr".into(), refusals: DeviceRefusals(all) },
        SchedError::UnknownLocation { tensor: named() },
        SchedError::OverBudget { worker: "gpu".into(), needed, budget, at_peak },
        SchedError::Overlap { one: named(), other: named() },
        SchedError::ResultInWrongMemory { node: named() },
        SchedError::PlanningOnly { worker: "gpu".into() },
        SchedError::UnknownJob,
        SchedError::from(error()),
        SchedError::from(AllocError::from(error())),
    ] {
        check(&error);
    }
}
