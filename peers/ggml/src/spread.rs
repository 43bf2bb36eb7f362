//! Graph in, a device for each of its external tensors out: the same for both sides.

use steeve_graph::{Graph, Id, TensorId};

/// How many devices there are, the processor last, and how often they take turns.
///
/// External tensors are cut into `parts` of equal count, in the order in which nodes first touch them: so a layer's
/// weights and caches stay together. The first part is on the processor, the second on the first device, and so on in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    /// How many devices there are. ggml takes 16 at most.
    pub devices: usize,
    /// How many parts there are.
    pub parts: usize,
}

/// Where an external tensor stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Home {
    pub(crate) tensor: TensorId,
    pub(crate) device: usize,
    pub(crate) holds: Holds,
}

/// What the memory of an external tensor is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    /// No node writes it.
    Weights,
    /// Some node does: a cache, say.
    State,
}

impl Spread {
    /// One device: nothing to split.
    pub const ONE: Self = Self { devices: 1, parts: 1 };

    pub(crate) fn homes(self, graph: &Graph) -> Vec<Home> {
        let touched = touched(graph);
        let written = written(graph);
        let (devices, parts, count) = (self.devices.max(1), self.parts.max(1), touched.len());
        let home = |(index, tensor): (usize, TensorId)| {
            let part = index * parts / count;
            let holds = if written[tensor.index()] { Holds::State } else { Holds::Weights };
            Home { tensor, device: (part + devices - 1) % devices, holds }
        };
        touched.into_iter().enumerate().map(home).collect()
    }
}

/// All external tensors: first those that nodes touch, in that order.
fn touched(graph: &Graph) -> Vec<TensorId> {
    let mut seen = vec![false; graph.tensors().len()];
    let of_nodes = graph.nodes().iter().flat_map(|&node| graph.sources(node).iter().copied().flatten().chain([node]));
    let roots = of_nodes.map(|tensor| graph.root(tensor)).chain(graph.tensors().ids());
    roots
        .filter(|tensor| graph.tensor(*tensor).external && !std::mem::replace(&mut seen[tensor.index()], true))
        .collect()
}

/// By tensor, whether some node writes into it.
fn written(graph: &Graph) -> Vec<bool> {
    let mut written = vec![false; graph.tensors().len()];
    for &node in graph.nodes().iter().filter(|node| !graph.tensor(**node).op.writes_nothing()) {
        written[graph.root(node).index()] = true;
    }
    written
}

#[cfg(test)]
mod tests {
    use steeve_graph::AssignedGraph;

    use super::*;

    #[test]
    fn parts_follow_the_nodes_from_the_processor_on() {
        let graph: AssignedGraph =
            "b = external f32[4,4]; a = external f32[4,4]; c = external f32[4]; x = input f32[4]; \
                                    p = mul_mat a x; q = mul_mat b p; r = cpy q c !output"
                .parse()
                .unwrap();
        let homes = Spread { devices: 3, parts: 3 }.homes(graph.graph());
        let found: Vec<_> = homes.iter().map(|home| (home.tensor.index(), home.device, home.holds)).collect();
        assert_eq!(found, [(1, 2, Holds::Weights), (0, 0, Holds::Weights), (2, 1, Holds::State)]);
    }
}
