//! Random chains of row-wise nodes, to be done in random parts.

use steeve_graph::{AssignedGraph, RowChain, RowChains, Unread};

/// Returns chains of a graph, one behind the other, each with a number of parts; all of it random.
pub fn random_chains(assigned: &AssignedGraph, seed: u64) -> Vec<(RowChain, u64)> {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let chains = RowChains::new(assigned, Unread::default());
    let nodes = assigned.graph().nodes().len();
    let mut found: Vec<(RowChain, u64)> = Vec::new();
    for _ in 0..12 {
        let Some(chain) = chains.around(random.below(nodes), random.below(4)) else { continue };
        let all = chain.nodes();
        let (start, end) = (all.start + random.below(all.len()), all.end - random.below(all.len()));
        let chain = if random.below(3) == 0 { Some(chain) } else { chains.within(&chain, start..end) };
        let Some(chain) = chain else { continue };
        let is_free = |(other, _): &(RowChain, u64)| {
            chain.nodes().end <= other.nodes().start || other.nodes().end <= chain.nodes().start
        };
        if !found.iter().all(is_free) {
            continue;
        }
        let most = chain.rows();
        let parts = [1, 2, 3, most, 1 + random.below(most as usize) as u64][random.below(5)].min(most);
        found.push((chain, parts));
    }
    found.sort_by_key(|(chain, _)| chain.nodes().start);
    found
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end.max(1)
    }
}
