//! Every error is one line, `thing: what is wrong`, without a period at its end, and does not repeat its source.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::error::Error;
use std::sync::Arc;

use steeve_device::{BufferType, Bytes, DeviceError, HostMemory};
use steeve_graph::{
    AssignedGraph, Context, DataType, Graph, GraphError, Named, PlanMismatch, PlanOptions, TensorId, plan_graph,
};
use steeve_runtime::{AllocError, AtPeak, GraphAllocator};

/// Checks an error and all its sources. Returns how many sources there are.
fn check(error: &(dyn Error + 'static)) -> usize {
    let (mut at, mut sources) = (Some(error), 0);
    while let Some(error) = at {
        let message = error.to_string();
        assert!(!message.is_empty() && !message.contains('\n'), "not one line: {message:?}");
        assert!(!message.ends_with('.'), "ends with a period: {message}");
        at = error.source();
        if let Some(source) = at {
            sources += 1;
            assert!(!message.contains(&source.to_string()), "repeats its source: {message}");
        }
    }
    sources
}

fn graph() -> Result<(Graph, TensorId), GraphError> {
    let mut context = Context::new();
    let x = context.input(DataType::F32, &[8])?;
    let y = context.sqr(x)?;
    Ok((Graph::from_outputs(&context, &[y])?, y))
}

#[test]
fn no_message_repeats_its_source_and_each_begins_with_the_thing() {
    let (graph, node) = graph().unwrap();
    let tensor = || Named::new(node, graph.names());
    let device = || DeviceError::unsupported("gpu", &graph, node, "it is not built for that");
    let bytes = Bytes(8);
    let at_peak = AtPeak(vec![(tensor(), Bytes(4))]);
    let memory = || "gpu".to_owned();
    let errors = [
        (AllocError::Buffer { what: "chunk 0 of gpu".into(), size: bytes, error: device().into() }, 1),
        (AllocError::NoBufferType, 0),
        (AllocError::BufferIndex { index: 3, buffers: 2 }, 0),
        (AllocError::Full { tensor: tensor(), needed: bytes, left: bytes }, 0),
        (AllocError::IsView { tensor: tensor(), root: tensor() }, 0),
        (AllocError::AddressSpace { tensor: tensor(), size: bytes }, 0),
        (AllocError::OverBudget { memory: memory(), index: 0, needed: bytes, budget: bytes, at_peak }, 0),
        (AllocError::NeedsReserve { misfit: PlanMismatch::Memories }, 1),
        (AllocError::NothingReserved, 0),
        (AllocError::OtherMemories { planned: "cpu".into(), own: memory() }, 0),
        (AllocError::PlanMisfit(PlanMismatch::Memories), 1),
        (AllocError::Unbound { tensor: tensor() }, 0),
        (AllocError::BoundTooSmall { tensor: tensor(), needed: bytes, bound: bytes }, 0),
        (AllocError::BoundToPlanned { tensor: tensor() }, 0),
        (AllocError::PlanFileUnread { freed: "free", kept: "keep" }, 0),
        (AllocError::NoExtraLifetime { memory: memory(), extra_lifetime: 1 }, 0),
        (AllocError::NotPlaced { tensor: tensor() }, 0),
        (AllocError::Stale, 0),
        (AllocError::Running, 0),
        (AllocError::NotWritten { tensor: tensor() }, 0),
        (AllocError::Consumed { tensor: tensor() }, 0),
        (AllocError::NotComputed { tensor: tensor() }, 0),
        (AllocError::Reused { tensor: tensor() }, 0),
        (AllocError::Lost { tensor: tensor() }, 0),
        (AllocError::Computed { tensor: tensor() }, 0),
        (AllocError::PartOfUnwritten { tensor: tensor(), root: tensor() }, 0),
        (AllocError::ElementType { tensor: tensor(), dtype: DataType::F32, given: DataType::I32 }, 0),
        (AllocError::Length { tensor: tensor(), unit: "bytes", wanted: 8, given: 4 }, 0),
        (AllocError::from(device()), 0),
    ];
    for (error, sources) in errors {
        let message = error.to_string();
        assert!(message.contains(": "), "no thing in front: {message}");
        assert_eq!(check(&error), sources, "{message}");
    }
}

#[test]
fn a_refused_plan_file_has_the_fault_as_its_source() {
    let (graph, _) = graph().unwrap();
    let memory: Arc<dyn BufferType> = Arc::new(HostMemory::new());
    let mut allocator = GraphAllocator::new(&memory);
    let other: AssignedGraph = "memory gpu align=32; x = input i8[8]; y = neg x".parse().unwrap();
    let plan = plan_graph(&other, &PlanOptions::default()).unwrap().to_json();
    for json in ["{}", "", &plan] {
        let error = allocator.load_plan(&graph, json).unwrap_err();
        assert_eq!(error.to_string(), "plan file: not usable for this graph");
        assert!(check(&error) >= 1);
        let AllocError::PlanFile(fault) = &error else { panic!("{error}") };
        assert_eq!(error.source().unwrap().to_string(), fault.get().to_string());
        assert_eq!(error, allocator.load_plan(&graph, json).unwrap_err());
    }
}
