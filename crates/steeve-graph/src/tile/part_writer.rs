//! Chains and numbers of parts in, the graph that does them so out. O(tensors + parts * nodes).
//!
//! The table of tensors keeps its numbers, and what parts need is appended. A result of a chain becomes a view of all its rows,
//! made of what the parts write: of a `FILL` that only gives it bytes, or of the input that it is written over.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use steeve_plan::{Bytes, Id};

use super::chain::{RowChain, RowChains};
use super::row_rules::{ImagePart, ImageRows, Need};
use super::split::{RootRows, RowRange, Split};
use crate::shape::{OperandChecks, ShapeInput};
use crate::{
    AllocSizes, AssignedGraph, Assignment, Flags, Graph, GraphError, GraphParts, Layout, LayoutError, MemoryId, Op,
    Param, Tensor, TensorId, Unread, View,
};

/// Why chains can't be done in parts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TileError {
    /// Fewer than one part, or more than the chain has rows.
    #[error("chain of nodes {first} to {last}: number of parts: expected 1 to {rows}, got {parts}")]
    Parts {
        /// The first node.
        first: usize,
        /// The last node.
        last: usize,
        /// How many rows there are.
        rows: u64,
        /// How many parts were demanded.
        parts: u64,
    },
    /// A chain that begins before the one in front of it ends.
    #[error("chains: expected one behind the other, got nodes {first} to {last} and then {next}")]
    Overlap {
        /// The first node of a chain.
        first: usize,
        /// Its last node.
        last: usize,
        /// The first node of the next chain in the list.
        next: usize,
    },
    /// A chain of another graph.
    #[error("chain of nodes {first} to {last}: not one of this graph")]
    Foreign {
        /// The first node.
        first: usize,
        /// The last node.
        last: usize,
    },
    /// More tensors than can be numbered.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// A part that is no tensor.
    #[error(transparent)]
    Layout(#[from] LayoutError),
}

/// Returns the graph with each chain done in so many parts, one part after the other. Chains are listed in the order of their
/// nodes; the results of the graph are the same. Leafs, and what nodes outside of the chains compute, keep their ids; so do
/// the results of chains.
///
/// ```
/// use steeve_graph::{AssignedGraph, PlanOptions, RowChains, Unread, plan_graph, tile};
/// let graph: AssignedGraph = "
///     w = external f32[16,640]; v = external f32[640,16]
///     x = input f32[16,80]
///     up = mul_mat w x
///     act = silu up
///     down = mul_mat v act
///     y = add down x !output
/// "
/// .parse()?;
/// let chain = RowChains::new(&graph, Unread::default()).around(1, 1).unwrap();
/// let tiled = tile(&graph, &[(chain, 4)])?;
/// let peak = |graph| plan_graph(graph, &PlanOptions::default()).map(|plan| plan.peak().get());
/// assert_eq!((peak(&graph)?, peak(&tiled)?), (215040, 62720));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// If a chain has fewer rows than parts, chains overlap, or one is not of this graph.
pub fn tile(assigned: &AssignedGraph, chains: &[(RowChain, u64)]) -> Result<AssignedGraph, TileError> {
    // What lives to the end is for who has found the chains to say.
    let facts = RowChains::new(assigned, Unread::Free);
    let nodes = assigned.graph().nodes().len();
    for (index, (chain, parts)) in chains.iter().enumerate() {
        let (first, last) = (chain.nodes.start, chain.nodes.end - 1);
        if !(1..=chain.rows).contains(parts) {
            return Err(TileError::Parts { first, last, rows: chain.rows, parts: *parts });
        }
        if let Some((next, _)) = chains.get(index + 1).filter(|(next, _)| next.nodes.start <= last) {
            return Err(TileError::Overlap { first, last, next: next.nodes.start });
        }
        let known = facts.without_places(chain.nodes(), chain.rows, &chain.splits);
        let is_over =
            |known: &RowChain| chain.over.is_none_or(|(result, input)| facts.may_be_over(known, result, input));
        if !known.is_some_and(|known| known.is_like(chain) && is_over(&known) && facts.have_bytes(chain)) {
            return Err(TileError::Foreign { first, last });
        }
    }
    let mut writer = TileWriter::new(&facts, chains)?;
    let mut next = 0;
    for (chain, parts) in chains {
        (next..chain.nodes.start).for_each(|at| writer.list_node(at));
        writer.chain(chain, *parts)?;
        next = chain.nodes.end;
    }
    (next..nodes).for_each(|at| writer.list_node(at));
    writer.finish()
}

impl RowChain {
    /// Returns whether both are one chain, wherever their results are written.
    fn is_like(&self, other: &Self) -> bool {
        (&self.splits, &self.results, &self.kept) == (&other.splits, &other.results, &other.kept)
    }
}

/// A tensor of the new graph.
struct NewTensor {
    tensor: Tensor,
    sources: Vec<Option<TensorId>>,
    params: Vec<Param>,
    name: String,
}

struct TileWriter<'a> {
    facts: &'a RowChains<'a>,
    graph: &'a Graph,
    /// Keeps the names of operations that are not in the table.
    parts: GraphParts,
    /// The tensors of the graph, and those of parts behind them.
    table: Vec<NewTensor>,
    sizes: AllocSizes,
    nodes: Vec<TensorId>,
    memories: Vec<MemoryId>,
    /// Of what each result is a view: of an input that it is written over, or of a tensor that has only its bytes.
    moved: BTreeMap<TensorId, View>,
    /// The inputs that results are written over.
    inputs: BTreeMap<TensorId, TensorId>,
    /// What the parts have written of each result, and no node of a part has read.
    joined: BTreeMap<TensorId, Vec<TensorId>>,
}

/// What a part of a chain has so far.
struct PartTensors<'a> {
    chain: &'a RowChain,
    rows: RowRange,
    number: u64,
    memory: MemoryId,
    /// The rows of tensors that the chain computes.
    inside: BTreeMap<TensorId, TensorId>,
    /// The rows of tensors from outside.
    outside: BTreeMap<OutsideRows, TensorId>,
}

/// A tensor from outside, along which dimension it is split, and the first element of it and the one behind the last: a
/// convolution reads other rows of an image than its neighbours do.
type OutsideRows = (TensorId, usize, u64, u64);

impl<'a> TileWriter<'a> {
    fn new(facts: &'a RowChains<'a>, chains: &[(RowChain, u64)]) -> Result<Self, TileError> {
        let graph = facts.graph();
        let mut results: BTreeMap<TensorId, Option<TensorId>> = BTreeMap::new();
        let mut kept: BTreeSet<TensorId> = BTreeSet::new();
        for (chain, _) in chains {
            let input = |result| chain.over.filter(|(it, _)| *it == result).map(|(_, input)| input);
            results.extend(chain.results.iter().map(|result| (*result, input(*result))));
            kept.extend(chain.kept.iter().filter(|it| !graph.tensor(**it).op.writes_nothing()));
        }
        let (nodes, memories, moved, joined) = (Vec::new(), Vec::new(), BTreeMap::new(), BTreeMap::new());
        let inputs = results.iter().filter_map(|(result, input)| Some((*result, plain((*input)?)))).collect();
        let sizes = facts.assigned.sizes().clone();
        let (parts, table) = (GraphParts::default(), Vec::new());
        let mut this = Self { facts, graph, parts, table, sizes, nodes, memories, moved, inputs, joined };
        this.place_results(chains);
        for id in graph.tensors().ids() {
            this.copy(id, results.contains_key(&id), kept.contains(&id))?;
        }
        for result in results.iter().filter(|(_, input)| input.is_none()).map(|(result, _)| *result) {
            this.push_bytes(result)?;
        }
        Ok(this)
    }

    /// Decides of what each result is a view: an input, or a tensor that is appended behind those of the graph.
    fn place_results(&mut self, chains: &[(RowChain, u64)]) {
        let graph = self.graph;
        let mut bytes: BTreeMap<TensorId, TensorId> = BTreeMap::new();
        for (chain, _) in chains {
            let over = chain.over.map(|(result, _)| result);
            let without = chain.results.iter().filter(|result| Some(**result) != over);
            bytes.extend(without.map(|result| (*result, *result)));
        }
        for (index, (&result, _)) in bytes.iter().enumerate() {
            let root = TensorId::from_index(graph.tensors().len() + index).unwrap_or(result);
            self.moved.insert(result, View { root, offset: Bytes::ZERO });
        }
        for (result, input) in chains.iter().filter_map(|(chain, _)| chain.over) {
            let place = self.place(input);
            self.moved.insert(result, place);
        }
    }

    /// Appends the tensor that a result is a view of.
    fn push_bytes(&mut self, result: TensorId) -> Result<(), TileError> {
        let tensor = Tensor { op: Op::Fill, ..Tensor::new(self.graph.tensor(result).layout) };
        let name = self.graph.name(result);
        let name = if name.is_empty() { String::new() } else { format!("{name} (bytes)") };
        let params = alloc::vec![Param::Float(0.0)];
        let made = self.append(NewTensor { tensor, sources: Vec::new(), params, name })?;
        if let Some(row) = self.facts.assigned.sizes().row(result) {
            self.sizes.set(made, &tensor, row)?;
        }
        Ok(())
    }

    /// Appends a tensor of the graph as it is outside of the chains.
    fn copy(&mut self, id: TensorId, is_result: bool, is_written: bool) -> Result<(), TileError> {
        let (graph, tensors) = (self.graph, self.graph.tensors());
        let tensor = graph.tensor(id);
        // The sources of a result are the parts, which are not there yet.
        let (op, sources, params): (Op, Vec<Option<TensorId>>, Vec<Param>) = if is_result {
            (Op::View, Vec::new(), alloc::vec![Param::Int(0)])
        } else if is_written {
            let offset = Param::count(tensors.offset(id).get());
            (Op::View, alloc::vec![Some(plain(graph.root(id)))], alloc::vec![offset])
        } else {
            let op = self.parts.op(tensors.op_name(tensor.op), tensors.kind_name(tensor.op))?;
            (op, graph.sources(id).iter().map(|it| it.map(plain)).collect(), graph.params(id).to_vec())
        };
        let view = (is_result || tensor.is_view()).then(|| self.place(id));
        let tensor = Tensor { op, view, ..*tensor };
        self.append(NewTensor { tensor, sources, params, name: graph.name(id).into() })?;
        Ok(())
    }

    /// Appends a tensor to the table.
    fn append(&mut self, new: NewTensor) -> Result<TensorId, TileError> {
        let tensors = self.table.len();
        let id = TensorId::from_index(tensors).ok_or(GraphError::TooMany { tensors })?;
        self.table.push(new);
        Ok(id)
    }

    /// Returns a tensor of the new graph, its root and its offset there.
    fn new_place(&self, id: TensorId) -> (Layout, View) {
        let it = &self.table[id.index()].tensor;
        (it.layout, it.view.unwrap_or(View { root: id, offset: Bytes::ZERO }))
    }

    /// Returns the root and the offset of a tensor of the graph, as they are now.
    fn place(&self, id: TensorId) -> View {
        let (root, offset) = (self.graph.root(id), self.graph.tensors().offset(id));
        match self.moved.get(&root) {
            Some(base) => View { root: base.root, offset: Bytes(base.offset.get() + offset.get()) },
            None => View { root: plain(root), offset },
        }
    }

    fn list_node(&mut self, at: usize) {
        let node = self.graph.nodes()[at];
        self.list(node, self.facts.assigned.assignment().nodes[at]);
    }

    fn list(&mut self, node: TensorId, memory: MemoryId) {
        self.nodes.push(plain(node));
        self.memories.push(memory);
    }

    /// Appends the nodes of a chain: those that run once, the bytes of its results, its parts, and views of its results.
    fn chain(&mut self, chain: &RowChain, parts: u64) -> Result<(), TileError> {
        let graph = self.graph;
        for at in chain.nodes.clone() {
            if !chain.splits.contains_key(&graph.root(graph.nodes()[at])) {
                self.list_node(at);
            }
        }
        let over = chain.over.map(|(result, _)| result);
        for &result in chain.results.iter().filter(|it| Some(**it) != over) {
            let at = self.facts.position(result).unwrap_or(chain.nodes.start);
            self.list(self.moved[&result].root, self.facts.assigned.assignment().nodes[at]);
        }
        for number in 0..parts {
            let rows = RowRange::part(chain.rows, number, parts);
            self.part(chain, rows, number)?;
        }
        for &result in chain.results.iter().chain(&chain.kept) {
            self.list_made(result);
        }
        Ok(())
    }

    /// Lists a tensor that is one of the nodes, in its memory.
    fn list_made(&mut self, tensor: TensorId) {
        if let Some(at) = self.facts.position(tensor) {
            self.list_node(at);
        }
    }

    fn part(&mut self, chain: &RowChain, rows: RowRange, number: u64) -> Result<(), TileError> {
        let graph = self.graph;
        let memory = MemoryId::FIRST;
        let (inside, outside) = (BTreeMap::new(), BTreeMap::new());
        let mut part = PartTensors { chain, rows, number, memory, inside, outside };
        for at in chain.nodes.clone() {
            let node = graph.nodes()[at];
            if chain.splits.contains_key(&graph.root(node)) && !graph.tensor(node).op.writes_nothing() {
                part.memory = self.facts.assigned.assignment().nodes[at];
                self.part_node(&mut part, node)?;
            }
        }
        Ok(())
    }

    /// Appends a node on the rows of a part.
    fn part_node(&mut self, part: &mut PartTensors<'_>, node: TensorId) -> Result<(), TileError> {
        let graph = self.graph;
        let old = graph.sources(node);
        let split = self.split_of(part, node)?;
        let needs = self.facts.needs(node, split, part.chain.rows).ok_or_else(|| self.foreign(part))?;
        let image = match needs.iter().position(|need| *need == Need::Image) {
            Some(slot) => self.image_part(part, node, split, slot),
            None => None,
        };
        let mut sources = Vec::with_capacity(old.len());
        for (source, need) in old.iter().zip(needs) {
            sources.push(match *source {
                None => None,
                // A copy that names itself as its destination is its own source.
                Some(source) if source == node => TensorId::from_index(self.table.len()),
                Some(source) => Some(self.source(part, source, need, image)?),
            });
        }
        let (layout, view) = self.part_place(part, node, split)?;
        let mut params = graph.params(node).to_vec();
        if let Some(image) = image {
            let made = self.image_node(part, node, layout, &sources, image, &mut params)?;
            part.inside.insert(node, made);
            return Ok(());
        }
        let op = self.op_of(node)?;
        let new = Tensor { layout, op, flags: Flags::NONE, external: false, view };
        let made = self.push(part, node, new, &sources, &params)?;
        part.inside.insert(node, made);
        if part.chain.results.contains(&graph.root(node)) {
            self.joined.entry(graph.root(node)).or_default().push(made);
        }
        Ok(())
    }

    fn op_of(&mut self, node: TensorId) -> Result<Op, TileError> {
        let tensors = self.graph.tensors();
        let op = tensors[node].op;
        Ok(self.parts.op(tensors.op_name(op), tensors.kind_name(op))?)
    }

    fn foreign(&self, part: &PartTensors<'_>) -> TileError {
        TileError::Foreign { first: part.chain.nodes.start, last: part.chain.nodes.end - 1 }
    }

    fn split_of(&self, part: &PartTensors<'_>, tensor: TensorId) -> Result<Split, TileError> {
        let split = self.facts.split_of(tensor, &part.chain.splits, part.chain.rows);
        split.ok_or_else(|| self.foreign(part))
    }

    /// Returns the layout of the rows of a tensor that the chain computes, and of which tensor they are a view: of the whole
    /// result, or of the root that the part has computed. No view, if they are that root.
    fn part_place(
        &self,
        part: &PartTensors<'_>,
        tensor: TensorId,
        split: Split,
    ) -> Result<(Layout, Option<View>), TileError> {
        let graph = self.graph;
        let (root, layout) = (graph.root(tensor), &graph.tensor(tensor).layout);
        if part.chain.results.contains(&root) {
            let (layout, skipped) = split.row_view(layout, part.rows)?;
            let place = self.place(tensor);
            let offset = Bytes(place.offset.get() + skipped.get());
            return Ok((layout, Some(View { offset, ..place })));
        }
        let lines = RootRows::new(&graph.tensor(root).layout, part.chain.splits[&root], part.chain.rows);
        let lines = lines.ok_or_else(|| self.foreign(part))?;
        let (layout, offset) = lines.own_part(layout, split, graph.tensors().offset(tensor), part.rows)?;
        if root == tensor {
            return Ok((layout, None));
        }
        // The rows of the root may be a view themselves, of a tensor with more of them.
        let made = *part.inside.get(&root).ok_or_else(|| self.foreign(part))?;
        let (_, place) = self.new_place(made);
        Ok((layout, Some(View { root: place.root, offset: Bytes(place.offset.get() + offset.get()) })))
    }

    /// Returns what a part reads instead of a source.
    fn source(
        &mut self,
        part: &mut PartTensors<'_>,
        source: TensorId,
        need: Need,
        image: Option<ImagePart>,
    ) -> Result<TensorId, TileError> {
        if part.chain.splits.contains_key(&self.graph.root(source)) {
            return self.inside(part, source);
        }
        match (need, image) {
            (Need::Whole | Need::Lookup, _) | (Need::Image, None) => Ok(plain(source)),
            (Need::Rows(split), _) => self.outside(part, source, split, part.rows),
            (Need::Image, Some(image)) => {
                let rows = RowRange { start: image.start, end: image.end };
                self.outside(part, source, Split { dim: 1, unit: 1 }, rows)
            }
        }
    }

    /// Returns the rows of a tensor that the chain computes; a view is made when it is first needed.
    fn inside(&mut self, part: &mut PartTensors<'_>, tensor: TensorId) -> Result<TensorId, TileError> {
        if let Some(made) = part.inside.get(&tensor) {
            return Ok(*made);
        }
        let graph = self.graph;
        let split = self.split_of(part, tensor)?;
        let (layout, place) = self.part_place(part, tensor, split)?;
        let view = place.ok_or_else(|| self.foreign(part))?;
        let named = graph.sources(tensor).first().copied().flatten();
        let named = named.filter(|it| graph.root(*it) == graph.root(tensor) && *it != tensor);
        // A view is made of a view as long as that has been split, too, and else of the root.
        let source = match named {
            Some(named) if self.split_of(part, named).is_ok() && self.is_earlier(named, tensor) => {
                self.inside(part, named)?
            }
            _ => part.inside.get(&graph.root(tensor)).copied().ok_or_else(|| self.foreign(part))?,
        };
        let (op, params) = self.view_op(tensor, source, layout, view.offset)?;
        let new = Tensor { layout, op, flags: Flags::NONE, external: false, view: Some(view) };
        let made = self.push(part, tensor, new, &[Some(source)], &params)?;
        part.inside.insert(tensor, made);
        Ok(made)
    }

    /// Returns whether a view may be made of another one: tensors that name each other in turn are made of the root.
    fn is_earlier(&self, named: TensorId, tensor: TensorId) -> bool {
        let at = |id| self.facts.position(id);
        at(named).is_some() && at(named) < at(tensor)
    }

    /// Returns the operation of a view of `source`: its own, if it describes these bytes as well, or a plain view.
    fn view_op(
        &self,
        tensor: TensorId,
        source: TensorId,
        layout: Layout,
        offset: Bytes,
    ) -> Result<(Op, Vec<Param>), TileError> {
        let (op, params) = (self.graph.tensor(tensor).op, self.graph.params(tensor));
        let (from, View { offset: start, .. }) = self.new_place(source);
        if matches!(op, Op::Reshape | Op::Permute | Op::Transpose) && start == offset {
            let input =
                ShapeInput { sources: &[Some(from)], params, wanted: Some(layout), checks: OperandChecks::ShapesOnly };
            let made = op.entry().rule.and_then(|rule| rule(&input).ok());
            let is_known = op == Op::Permute && params.is_empty();
            if is_known || made.is_some_and(|it| it.layout.ne() == layout.ne() && it.layout.nb() == layout.nb()) {
                return Ok((op, params.to_vec()));
            }
        }
        match offset.get().checked_sub(start.get()) {
            Some(behind) => Ok((Op::View, alloc::vec![Param::count(behind)])),
            None => Err(GraphError::Layout(LayoutError::TooLarge { dtype: layout.dtype(), ne: layout.ne() }).into()),
        }
    }

    /// Returns some rows of a tensor from outside; a view is made when it is first needed.
    fn outside(
        &mut self,
        part: &mut PartTensors<'_>,
        tensor: TensorId,
        split: Split,
        rows: RowRange,
    ) -> Result<TensorId, TileError> {
        let key = (tensor, split.dim, rows.start * split.unit, rows.end * split.unit);
        let (layout, skipped) = split.row_view(&self.graph.tensor(tensor).layout, rows)?;
        if let Some(made) = part.outside.get(&key) {
            return Ok(*made);
        }
        let place = self.place(tensor);
        let offset = Bytes(place.offset.get() + skipped.get());
        let view = Some(View { root: place.root, offset });
        let new = Tensor { layout, op: Op::View, flags: Flags::NONE, external: false, view };
        let params = [Param::count(skipped.get())];
        let made = self.push(part, tensor, new, &[Some(plain(tensor))], &params)?;
        part.outside.insert(key, made);
        Ok(made)
    }

    /// Returns which rows of an image a part needs.
    fn image_part(&self, part: &PartTensors<'_>, node: TensorId, split: Split, slot: usize) -> Option<ImagePart> {
        let graph = self.graph;
        let ne = |slot: usize| graph.sources(node).get(slot).copied().flatten().map(|it| graph.tensor(it).layout.ne());
        let (kernel, image) = (ne(0)?, ne(slot)?);
        let lines = RowRange { start: part.rows.start * split.unit, end: part.rows.end * split.unit };
        ImageRows::of(graph.params(node))?.part(lines, image[1], kernel[1])
    }

    /// Appends the patches of some rows of an image; where more rows are made than wanted, a view of these.
    fn image_node(
        &mut self,
        part: &mut PartTensors<'_>,
        node: TensorId,
        wanted: Layout,
        sources: &[Option<TensorId>],
        image: ImagePart,
        params: &mut [Param],
    ) -> Result<TensorId, TileError> {
        if let Some(padding) = params.get_mut(ImageRows::PADDING) {
            *padding = Param::count(image.padding);
        }
        let mut ne = wanted.ne();
        ne[2] = image.made;
        let layout = Layout::contiguous(wanted.dtype(), &ne)?;
        let new = Tensor { op: Op::Im2col, ..Tensor::new(layout) };
        let made = self.push(part, node, new, sources, params)?;
        if layout == wanted {
            return Ok(made);
        }
        let offset = Bytes(image.skipped * layout.nb()[2]);
        let view = Some(View { root: made, offset });
        let new = Tensor { op: Op::View, view, ..Tensor::new(wanted) };
        self.push(part, node, new, &[Some(made)], &[Param::count(offset.get())])
    }

    /// Appends a node of a part, and gives it the name of the tensor that it has rows of.
    fn push(
        &mut self,
        part: &PartTensors<'_>,
        of: TensorId,
        tensor: Tensor,
        sources: &[Option<TensorId>],
        params: &[Param],
    ) -> Result<TensorId, TileError> {
        let name = part_name(self.graph.name(of), part.number);
        let made = self.append(NewTensor { tensor, sources: sources.to_vec(), params: params.to_vec(), name })?;
        if tensor.view.is_none()
            && let Some(row) = self.facts.assigned.sizes().row(of)
        {
            let padding =
                |size: &Bytes| Bytes(size.get() - self.graph.tensor(of).nbytes().get() + tensor.nbytes().get());
            let row: Vec<Bytes> = row.iter().map(padding).collect();
            self.sizes.set(made, &tensor, &row)?;
        }
        self.list(made, part.memory);
        Ok(made)
    }

    /// Makes each result a view of what has been written of it, so that its readers wait for all parts.
    fn join(&mut self) {
        for (result, written) in core::mem::take(&mut self.joined) {
            let first = self.inputs.get(&result).copied().unwrap_or(self.moved[&result].root);
            self.table[result.index()].sources = core::iter::once(first).chain(written).map(Some).collect();
        }
    }

    fn finish(mut self) -> Result<AssignedGraph, TileError> {
        self.join();
        let Self { facts, graph, mut parts, table, sizes, nodes, memories, .. } = self;
        for NewTensor { tensor, sources, params, name } in table {
            let id = parts.push_with(tensor, &sources, &params)?;
            parts.set_name(id, &name)?;
        }
        let tensors = graph.tensors();
        for id in tensors.ids() {
            let permitted = tensors.permitted_slots(id);
            (0..16).filter(|slot| permitted >> slot & 1 == 1).for_each(|slot| parts.permit_overwrite(plain(id), slot));
            tensors.permitted_overlaps(id).for_each(|(slot, distance)| parts.permit_overlap(plain(id), slot, distance));
            tensors.own_result_slots(id).for_each(|slot| parts.mark_own_result(plain(id), slot));
        }
        graph.leafs().iter().for_each(|leaf| parts.leaf(plain(*leaf)));
        parts.set_nodes(nodes);
        // Ids of the graph are valid in the new one.
        parts.detach();
        let assignment = Assignment { leafs: facts.assigned.assignment().leafs.clone(), nodes: memories };
        Ok(AssignedGraph::new(parts.finish()?, facts.assigned.memories().clone(), assignment, sizes)?)
    }
}

/// Returns the same number without where it comes from.
fn plain(id: TensorId) -> TensorId {
    TensorId::from_index(id.index()).unwrap_or(id)
}

/// Returns the name of the rows of a tensor, or none where that has none.
fn part_name(name: &str, part: u64) -> String {
    if name.is_empty() { String::new() } else { format!("{name} (part {part})") }
}
