//! Memories that take more than `--capacity` allows, each with what is alive where it is fullest.

use steeve_plan::Bytes;
use steeve_view::{MemoryMap, PlanMap, Tile, human_size, short_name};

use crate::capacity::Capacities;
use crate::check_fault::{CapacityExcess, CheckFault};
use crate::peak_step::{LiveAtPeak, step_phrase};
use crate::plan_figures::memory_phrase;

/// Returns a fault for each memory of a plan that is above its capacity. The largest tensors at its peak are named: they are
/// the ones to look at first.
pub(crate) fn over_capacity(map: &PlanMap, capacities: Capacities<'_>) -> Vec<CheckFault> {
    let fault = |memory: &MemoryMap| {
        const NAMED: usize = 5;
        let (bytes, capacity) = (memory.peak(), capacities.of(&memory.name)?);
        let more = bytes.0.checked_sub(capacity.0).filter(|more| *more > 0)?;
        let mut largest = memory.alive_at_peak();
        largest.truncate(NAMED);
        let named = |tile: &&Tile| format!("{} {}", short_name(&tile.name), human_size(tile.occupied));
        let names = largest.iter().map(named).collect::<Vec<_>>().join(", ");
        let at_peak =
            memory.fullest.map_or_else(String::new, |step| format!("; largest {}: {names}", step_phrase(map, step)));
        let (name, more) = (memory_phrase(&memory.name), human_size(Bytes(more)));
        let message = format!(
            "{name} has {}, {more} more than its capacity of {}{at_peak}",
            human_size(bytes),
            human_size(capacity)
        );
        let alive = largest.into_iter().map(|tile| LiveAtPeak::new(map.unit, tile, tile.id.map(u64::from))).collect();
        Some(CheckFault::of_memory(
            "capacity",
            CapacityExcess { memory: memory.name.clone(), bytes, capacity, alive },
            message,
        ))
    };
    map.memories.iter().filter_map(fault).collect()
}
