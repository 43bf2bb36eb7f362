//! Memories that take more than `--capacity` allows, each with what is alive where it is fullest.

use steeve_view::{Map, MemoryMap, Tile};

use crate::capacity::Capacities;
use crate::fault::Fault;
use crate::figures::memory_called;
use crate::peak::{Alive, Moment, alive_at_peak, short, why_alive};

/// A fault for each memory of a plan that is above its capacity. The largest tensors at its peak are named: they are the
/// ones to look at first.
pub(crate) fn over_capacity(map: &Map, capacities: Capacities<'_>) -> Vec<Fault> {
    let fault = |memory: &MemoryMap| {
        const NAMED: usize = 5;
        let (bytes, capacity) = (memory.peak(), capacities.of(&memory.name)?);
        let more = bytes.0.checked_sub(capacity.0).filter(|more| *more > 0)?;
        let mut largest = alive_at_peak(memory);
        largest.truncate(NAMED);
        let names = largest.iter().map(|tile| told(map, tile)).collect::<Vec<_>>().join(", ");
        let at_peak = match Moment::of(map, memory).told(map) {
            Some(when) => format!("; the largest {when}: {names}"),
            None => String::new(),
        };
        let name = memory_called(&memory.name);
        let message = format!("{name} has {bytes} bytes, {more} more than the capacity of {capacity}{at_peak}");
        let alive = largest.into_iter().map(|tile| Alive::new(map.unit, tile, None)).collect();
        Some(Fault::of_memory("capacity", memory.name.clone(), alive, message))
    };
    map.memories.iter().filter_map(fault).collect()
}

/// `kq-3 (33554432 bytes, attention, last read by node 14 (kq_soft_max-3))`; of a block its size alone.
fn told(map: &Map, tile: &Tile) -> String {
    let mut about = vec![format!("{} bytes", tile.size)];
    if map.unit == steeve_view::Unit::Node {
        about.push(tile.role.title().to_owned());
    }
    about.extend(Some(why_alive(map, tile)).filter(|why| !why.is_empty()));
    format!("{} ({})", short(&tile.name), about.join(", "))
}
