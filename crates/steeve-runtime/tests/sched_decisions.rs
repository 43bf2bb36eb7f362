//! Laws of assignment, splits and copies. Nothing is computed here.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "sched_decisions/placing.rs"]
mod placing;
#[path = "sched_decisions/pinning.rs"]
mod pinning;
#[path = "sched_decisions/splitting.rs"]
mod splitting;
#[path = "sched_decisions/graphs.rs"]
mod graphs;
#[path = "sched_decisions/random.rs"]
mod random;
#[path = "sched_decisions/judge.rs"]
mod judge;
#[allow(dead_code, reason = "every test uses some of it")]
mod planning_setup;

use std::sync::Arc;

use judge::{ScheduleChecker, judge};
use planning_setup::{PlanningDevice, PlanningSetup, computes, op};
use steeve_device::{BufferType, Bytes, Device, Usage};
use steeve_graph::fuzz::{Choices, random_graph};
use steeve_graph::{
    Context, DataType, Graph, GraphPlan, GraphStrategy, Id, Op, PlanOptions, Reuse, Tensor, TensorId, View, plan_graph,
    replay,
};
use steeve_runtime::sched::{
    AssignReason, Offload, SchedError, SchedOptions, Schedule, Scheduler, SplitReason, TensorLocations, Worker,
    WorkerId,
};

/// Two devices with memory of their own.
const TWO: &str = "gpu; cpu host";
/// Two of the fast ones.
const THREE: &str = "gpu; npu; cpu host";

fn places(devices: &str, graph: &str, expected: &str) {
    assert_eq!(PlanningSetup::new(devices, graph).places(), expected);
}

fn splits(devices: &str, graph: &str, expected: &str) {
    assert_eq!(PlanningSetup::new(devices, graph).splits(), expected);
}

fn refused(devices: &str, graph: &str, expected: &str) {
    assert_eq!(PlanningSetup::new(devices, graph).refusal(), expected);
}

/// Copies of all kinds.
const WITH_EVERYTHING: &str = "
    w = external f32[8,8] @cpu; w1 = external 8 @gpu; wx = external f32[8,4,16] @cpu; i = input i32[1,1]
    k = external f32[8,4] @cpu; x = input f32[8,1,1]
    a = mul_mat w x; v = view [8]+32 k; c = cpy a v; b = add k w1; p = view [4]+0 b; q = view [4]+16 b
    d = ?F f32[8] p q a; e = mul_mat_id wx x i; u = ?F f32[8] w1 d e !output";

fn worker(index: usize) -> WorkerId {
    WorkerId::from_index(index).unwrap()
}
