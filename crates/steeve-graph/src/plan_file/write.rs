//! A plan as a file.

use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use steeve_plan::file::{FileMemory, FileTensor, FileView, PlanFile};
use steeve_plan::{Id, IdVec};

use crate::compact::text_order;
use crate::{Fusion, GraphPlan, Memory, MemoryId, MemoryPlan, Op, TensorId};

impl GraphPlan {
    /// Returns the plan as a file. The graph is not part of it, only its fingerprint and what helps people to read it: names,
    /// operations, types and views.
    pub fn to_file(&self) -> PlanFile {
        let described = PlanDescription::new(self);
        // Both are in the order of memories.
        let mut plans = self.memories.iter().peekable();
        let memory = |(id, memory): (MemoryId, &Memory)| {
            let plan = plans.next_if(|it| it.memory == id);
            // What was loaded from a file may have been planned for a memory that demands more.
            let Memory { name, align, max_buffer, extra_lifetime, fusion, shared_with } =
                plan.map_or(memory, |it| &it.planned_for);
            FileMemory {
                name: name.clone(),
                alignment: *align,
                max_buffer: *max_buffer,
                hold: *extra_lifetime,
                fusion: (*fusion != Fusion::None).then(|| fusion.name().to_owned()),
                shared_with: shared_with.map(|with| with.index() as u32),
                ..plan.map(|it| described.memory(it)).unwrap_or_default()
            }
        };
        let memories = self.assigned.memories().pairs().map(memory).collect();
        let mut file = PlanFile::new(self.options.strategy.name(), memories);
        file.reuse = Some(self.options.reuse.name().to_owned());
        file.unread = Some(self.options.unread.name().to_owned());
        file.order = self.order().map(|order| order.positions().to_vec());
        let own = self.assigned.fingerprint();
        file.graph = Some(own.to_string());
        let text = self.assigned.compact().ok().map(|compact| compact.fingerprint());
        file.text = text.filter(|text| *text != own).map(|text| text.to_string());
        file
    }

    /// Returns the text of [`to_file`](Self::to_file), the same for the same plan.
    ///
    /// ```
    /// use steeve_graph::{AssignedGraph, GraphPlan, PlanOptions, plan_graph};
    /// let graph: AssignedGraph = "x = input f32[64]; a = sqr x; b = neg a; c = add a b !output".parse()?;
    /// let plan = plan_graph(&graph, &PlanOptions::default())?;
    /// let json = plan.to_json();
    /// assert!(json.starts_with(r#"{"schema":"steeve-plan","version":3,"strategy":"fast""#));
    /// assert_eq!(GraphPlan::from_json(&json, &graph)?, plan);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn to_json(&self) -> String {
        self.to_file().to_json()
    }
}

/// A plan with what a file says of each tensor.
struct PlanDescription<'a> {
    plan: &'a GraphPlan,
    /// The number of each tensor in the text of the graph.
    lines: IdVec<TensorId, Option<u32>>,
    /// The last node that uses each root, in the order in which they run.
    last_users: IdVec<TensorId, Option<usize>>,
    /// Whether each root, or a view of it, is an output.
    kept: Vec<bool>,
    /// The views of each root.
    views: Vec<Vec<FileView>>,
}

impl<'a> PlanDescription<'a> {
    fn new(plan: &'a GraphPlan) -> Self {
        let graph = plan.assigned.graph();
        let mut numbers: IdVec<TensorId, Option<u32>> = graph.tensors().ids().map(|_| None).collect();
        for (line, tensor) in (0..).zip(text_order(graph)) {
            numbers[tensor] = Some(line);
        }
        let mut kept = vec![false; graph.tensors().len()];
        for tensor in graph.tensors().ids().filter(|tensor| graph.tensor(*tensor).flags.is_output()) {
            kept[graph.root(tensor).index()] = true;
        }
        let mut views: Vec<Vec<FileView>> = vec![Vec::new(); graph.tensors().len()];
        for view in graph.tensors().ids().filter(|tensor| graph.tensor(*tensor).is_view()) {
            let Some(place) = plan.place(view) else { continue };
            let (id, name) = (view.index() as u32, graph.name(view).to_owned());
            views[graph.root(view).index()].push(FileView { id, name, offset: place.offset, size: place.size });
        }
        Self { plan, lines: numbers, last_users: plan.in_run_order().graph().last_users(), kept, views }
    }

    fn memory(&self, it: &MemoryPlan) -> FileMemory {
        let mut memory = FileMemory::of_plan("", &it.plan, it.at_least);
        // Prefixes that outlive their block are derived again.
        let own = it.tensors.ids().take_while(|block| self.plan.is_own_block(it, *block)).count();
        memory.blocks.truncate(own);
        memory.ggml_layout = !it.keeps_extra_lifetime;
        for (block, tensor) in memory.blocks.iter_mut().zip(&it.tensors) {
            block.alignment = None;
            self.plan.assigned.graph().name(*tensor).clone_into(&mut block.name);
            block.tensor = Some(self.tensor(it, *tensor));
        }
        memory
    }

    fn tensor(&self, memory: &MemoryPlan, tensor: TensorId) -> FileTensor {
        let graph = self.plan.assigned.graph();
        let it = graph.tensor(tensor);
        let sized_by = self.plan.sized_by(tensor).filter(|asked| *asked != memory.memory);
        let op = if it.op == Op::None { "".into() } else { graph.tensors().op_title(it.op).to_lowercase() };
        FileTensor {
            id: tensor.index() as u32,
            line: self.lines[tensor].filter(|line| *line != tensor.index() as u32),
            sized_by: sized_by.map(|memory| memory.index() as u32),
            op,
            r#type: it.layout.to_string(),
            flags: it.flags.names().map(ToOwned::to_owned).collect(),
            last_reader: self.last_users[tensor].map(|node| node as u32),
            kept: self.kept[tensor.index()],
            role: None,
            layer: None,
            views: self.views[tensor.index()].clone(),
        }
    }
}
