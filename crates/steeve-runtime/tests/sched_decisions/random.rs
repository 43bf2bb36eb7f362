//! Random graphs.

use super::*;

// Random graphs.

#[test]
fn every_random_graph_is_scheduled_so_that_everyone_can_run_and_read_what_it_needs() {
    judge_random(|graph, _| graph);
}

#[test]
fn and_so_is_every_random_graph_whose_nodes_are_written_into_later() {
    judge_random(with_writers);
}

fn judge_random(change: fn(Graph, &mut Choices<'_>) -> Graph) {
    let (mut made, mut copies) = (0, 0);
    for seed in 0..600 {
        let setup = random_setup(seed, change);
        match setup.try_schedule() {
            Ok(schedule) => {
                (made, copies) = (made + 1, copies + schedule.copies().len());
                judge(setup, 1 + usize::try_from(seed % 3).unwrap(), PlanOptions::default());
            }
            Err(error) => check_refusal(&setup, seed, &error),
        }
    }
    assert!(made > 400 && copies > 2000, "only {made} graphs had a schedule, with {copies} copies");
}

#[test]
fn every_reason_is_true() {
    for seed in 0..600 {
        let setup = random_setup(seed, |graph, _| graph);
        let Ok(schedule) = setup.try_schedule() else { continue };
        let plan = plan_graph(&setup.assigned(&schedule), &PlanOptions::default()).unwrap();
        let judge = ScheduleChecker::new(&setup, &schedule, &plan);
        let listed = setup.graph.leafs().iter().chain(setup.graph.nodes()).copied();
        for tensor in listed.filter(|tensor| schedule.worker(*tensor).is_some()) {
            let why = schedule.why(tensor);
            assert!(judge.explains(tensor), "{seed}: {tensor}, because {why:?}\n{}", schedule.reasons());
        }
    }
}

/// Returns two to five devices that read each other's memory or share it, with missing operations, locations and pins
/// of any kind.
fn random_setup(seed: u64, change: fn(Graph, &mut Choices<'_>) -> Graph) -> PlanningSetup {
    let choices = &mut Choices::from_seed(seed);
    let graph = change(random_graph(choices).into_graph(), choices);
    let ops: Vec<String> =
        graph.nodes().iter().filter(|node| computes(&graph, **node)).map(|node| op(&graph, *node)).collect();
    let count = 2 + choices.below(4);
    let mut text = String::from("memory disk host\n");
    for index in 0..count {
        text += &format!("d{index}");
        if index > 0 && choices.once_in(4) {
            text += &format!(" shares {}", if choices.once_in(4) { "disk" } else { "d0" });
        }
        if choices.once_in(3) {
            text += " host";
        }
        for (word, times) in [("lacks", if index + 1 == count { 12 } else { 3 }), ("offloads", 4)] {
            for _ in 0..4 {
                if choices.once_in(times) && !ops.is_empty() {
                    text += &format!(" {word} {}", ops[choices.below(ops.len())]);
                }
            }
        }
        for other in (0..count).filter(|other| *other != index) {
            if choices.once_in(5) {
                text += &format!(" reads d{other}");
            }
        }
        text += if choices.once_in(4) || index + 1 == count { " reads disk\n" } else { "\n" };
    }
    let mut setup = PlanningSetup::new(&text, "");
    setup.graph = graph;
    for tensor in setup.graph.tensors().ids().filter(|tensor| setup.graph.tensor(*tensor).external).collect::<Vec<_>>()
    {
        let usage = if choices.once_in(3) { Usage::Any } else { Usage::Weights };
        setup.put(tensor, choices.below(setup.memories.len()), usage);
    }
    let pins = if choices.once_in(2) { 0 } else { choices.below(6) };
    for _ in 0..pins {
        let tensor = TensorId::from_index(choices.below(setup.graph.tensors().len())).unwrap();
        setup.pin_id(tensor, WorkerId::from_index(choices.below(count)).unwrap());
    }
    setup
}

/// Returns a graph in which some nodes are written into once more, later.
fn with_writers(graph: Graph, choices: &mut Choices<'_>) -> Graph {
    let mut nodes = graph.nodes().to_vec();
    let mut parts = graph.clone().into_parts();
    for kind in ["SET", "ACC", "SET"].into_iter().take(choices.below(4)) {
        let index = choices.below(nodes.len());
        let Some(&root) = nodes.get(index) else { continue };
        let it = parts.tensors()[root];
        if it.is_planned() && !it.op.writes_nothing() {
            let (op, view) = (parts.op(kind, None).unwrap(), Some(View { root, offset: Bytes::ZERO }));
            let writer = parts.push(Tensor { op, view, ..Tensor::new(it.layout) }, &[Some(root)]).unwrap();
            nodes.insert(index + 1 + choices.below(nodes.len() - index), writer);
        }
    }
    parts.set_nodes(nodes);
    parts.finish().unwrap()
}

/// Checks that no device could have done it.
fn check_refusal(setup: &PlanningSetup, seed: u64, error: &SchedError) {
    let graph = &setup.graph;
    let unit = |tensor: TensorId| {
        let root = graph.root(tensor);
        let shares = |node: &TensorId| computes(graph, *node) && graph.root(*node) == root;
        let together: Vec<TensorId> = graph.nodes().iter().copied().filter(shares).collect();
        if graph.tensor(root).external { vec![tensor] } else { together }
    };
    let supports = |worker: &Arc<PlanningDevice>, node| !computes(graph, node) || worker.supports(graph, node).is_ok();
    // Any worker that reaches the memory may write into a root with others.
    let runs = |worker: &Arc<PlanningDevice>, tensor: TensorId| {
        let reaches = setup.memory_of.get(&graph.root(tensor)).is_none_or(|home| worker.reads(home));
        let beside = || setup.devices.iter().filter(|other| other.reads(worker.own()));
        let unit = unit(tensor);
        reaches
            && (unit.len() > 1 || unit.iter().all(|node| supports(worker, *node)))
            && unit.iter().all(|node| beside().any(|other| supports(other, *node)))
    };
    match error {
        SchedError::Unsupported { node, .. } => {
            assert!(!setup.devices.iter().any(|worker| runs(worker, node.id)), "{seed}: {error}");
        }
        SchedError::Pinned { tensor, worker, .. } => {
            let device = setup.devices.iter().find(|device| device.name() == worker).unwrap();
            let pinned = |other: &(&TensorId, &WorkerId)| graph.root(*other.0) == graph.root(tensor.id);
            let others: Vec<WorkerId> = setup.pins.iter().filter(pinned).map(|(_, worker)| *worker).collect();
            let contradicts = others.iter().any(|other| *other != others[0]);
            let holds = contradicts || !runs(device, tensor.id) || !supports(device, tensor.id);
            assert!(holds, "{seed}: {error}");
        }
        other => panic!("{seed}: {other}"),
    }
}
