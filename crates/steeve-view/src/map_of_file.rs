//! Converts a plan file to a map, right or wrong.

use steeve_graph::Flags;
use steeve_plan::Id;
use steeve_plan::file::{FileBlock, FileMemory, FileTensor, FileView, PlanFile};

use crate::layer::layer_of;
use crate::{LastUse, MemoryMap, NestedTensor, PlanMap, Role, StepUnit, Tile};

impl PlanMap {
    /// Creates the map of what a plan file claims, under a name. Nothing is checked: blocks that exceed the end of
    /// their buffer make it larger, and those in a buffer that does not exist get one of their own.
    ///
    /// ```
    /// use steeve_graph::{AssignedGraph, PlanOptions, plan_graph};
    /// use steeve_view::PlanMap;
    /// let graph: AssignedGraph = "x = input f32[64,32]; y = silu x; z = add y x !output".parse()?;
    /// let plan = plan_graph(&graph, &PlanOptions::default())?;
    /// let map = PlanMap::of_file("plan", &plan.to_file());
    /// assert_eq!(map.peak(), plan.peak());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn of_file(name: impl Into<String>, file: &PlanFile) -> Self {
        let own = file.memories.iter().filter(|memory| memory.shared_with.is_none());
        let mut map = Self::new(name, own.map(memory_of).collect());
        if file.is_of_graph() {
            map.unit = StepUnit::Node;
            map.nodes = nodes(file);
            // Names alone say less than the graph did.
            if !is_described(file) {
                map = map.with_spread_roles();
            }
        }
        map
    }

    /// Writes the role and the layer of each tensor into the file of the same plan, so that its pictures and summaries are those
    /// of the graph.
    pub fn describe(&self, file: &mut PlanFile) {
        let own = file.memories.iter_mut().filter(|memory| memory.shared_with.is_none());
        for (memory, map) in own.zip(&self.memories) {
            for (block, tile) in memory.blocks.iter_mut().zip(&map.tiles) {
                if let Some(tensor) = &mut block.tensor {
                    (tensor.role, tensor.layer) = (Some(tile.role.title().to_owned()), tile.layer);
                }
            }
        }
    }
}

/// Returns the nodes as far as blocks name them: a tensor with an operation is computed where its live range starts.
/// The others, such as views, have neither a name nor an operation.
fn nodes(file: &PlanFile) -> Vec<(String, String)> {
    // A graph has far fewer, and a file may claim any step.
    const MOST: u64 = 1 << 18;
    let blocks = || file.memories.iter().flat_map(|memory| &memory.blocks);
    // The longest-lived tensor ends with the run, one step after the last node.
    let count = blocks().map(|block| block.live.end().0.saturating_sub(1)).max().unwrap_or(0);
    let Some(count) = usize::try_from(count).ok().filter(|_| count <= MOST) else { return Vec::new() };
    let mut nodes = vec![(String::new(), String::new()); count];
    for (block, tensor) in blocks().filter_map(|block| Some((block, block.tensor.as_ref()?))) {
        let node = block.live.start().0.checked_sub(1).and_then(|node| usize::try_from(node).ok());
        if let Some(node) = node.and_then(|node| nodes.get_mut(node)).filter(|_| !tensor.op.is_empty()) {
            *node = (label(&block.name, Some(tensor.id)), tensor.op.clone());
        }
    }
    nodes
}

/// Returns whether the file says what tensors are for.
fn is_described(file: &PlanFile) -> bool {
    let mut tensors = file.memories.iter().flat_map(|memory| &memory.blocks).filter_map(|block| block.tensor.as_ref());
    tensors.any(|tensor| tensor.role.is_some())
}

fn memory_of(it: &FileMemory) -> MemoryMap {
    let mut buffers = it.buffers.clone();
    for (index, used) in it.used_sizes().into_iter().enumerate() {
        match buffers.get_mut(index) {
            Some(size) => *size = used.max(*size),
            None => buffers.push(used),
        }
    }
    let tile = |block: &FileBlock| {
        let tile = tile_of(it, block);
        Tile { buffer: tile.buffer.min(buffers.len().saturating_sub(1)), ..tile }
    };
    let tiles = it.blocks.iter().map(tile).collect();
    let mut memory = MemoryMap::new(&it.name, buffers, tiles);
    // A search may have found a better bound than the live bytes. It counts if it can be true.
    if (memory.bound..=memory.peak()).contains(&it.lower_bound) {
        memory.bound = it.lower_bound;
    }
    memory
}

fn tile_of(memory: &FileMemory, block: &FileBlock) -> Tile {
    let align = block.alignment.unwrap_or(memory.alignment);
    let id = block.tensor.as_ref().map(|tensor| tensor.id);
    let tile = Tile::new(label(&block.name, id), block.live, block.offset, block.size);
    let tile = Tile {
        buffer: block.buffer.index(),
        align: align.get(),
        occupied: align.round_up(block.size).unwrap_or(block.size),
        follows: block.follows.map(Id::index).filter(|before| *before < memory.blocks.len()),
        ..tile
    };
    let Some(FileTensor { op, r#type, flags, last_reader, kept, role, layer, views, .. }) = &block.tensor else {
        return tile;
    };
    let named = |name: &&str| flags.iter().any(|flag| flag == name);
    let flags = Flags::ALL.into_iter().filter(|(_, name)| named(name)).fold(Flags::NONE, |all, (flag, _)| all | flag);
    let last_use = match last_reader {
        _ if *kept => LastUse::Output,
        Some(node) => LastUse::Read { node: *node as usize },
        None => LastUse::Unread,
    };
    let guess = Role::guess(flags, &block.name, op);
    Tile {
        id,
        role: Role::ALL.iter().find(|it| Some(it.title()) == role.as_deref()).copied().unwrap_or(guess),
        layer: if role.is_some() { *layer } else { layer_of(&block.name) },
        operation: op.clone(),
        layout: r#type.clone(),
        last_use,
        nested: views.iter().map(nested_tensor).collect(),
        ..tile
    }
}

fn nested_tensor(view: &FileView) -> NestedTensor {
    NestedTensor::new(label(&view.name, Some(view.id)), view.offset, view.size)
}

fn label(name: &str, id: Option<u32>) -> String {
    match id {
        Some(id) if name.trim().is_empty() => format!("#{id}"),
        _ => name.to_owned(),
    }
}
