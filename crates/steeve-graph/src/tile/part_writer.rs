//! The parts of a chain: each node on the rows of a part, and views of the rows of what it reads. O(tensors + parts * nodes).

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use steeve_plan::{Bytes, Id};

use super::TileError;
use super::chain::RowChain;
use super::row_rules::{ImagePart, ImageRows, Need};
use super::split::{RootRows, RowRange, Split};
use super::table::{NewTensor, TileWriter, plain};
use crate::shape::{OperandChecks, ShapeInput};
use crate::{Flags, GraphError, Layout, LayoutError, Op, Param, Tensor, TensorId, View};

/// What a part of a chain has so far.
struct PartTensors<'a> {
    chain: &'a RowChain,
    rows: RowRange,
    number: u64,
    /// The position of the node of the chain that is done now: what is appended for it is in its memory.
    at: usize,
    /// The rows of tensors that the chain computes.
    inside: BTreeMap<TensorId, TensorId>,
    /// The rows of tensors from outside.
    outside: BTreeMap<OutsideRows, TensorId>,
}

/// A tensor from outside, along which dimension it is split, and the first element of it and the one behind the last: a
/// convolution reads other rows of an image than its neighbours do.
type OutsideRows = (TensorId, usize, u64, u64);

impl TileWriter<'_> {
    /// Appends the nodes of a chain: those that run once, the bytes of its results, its parts, and views of its results.
    pub(super) fn chain(&mut self, chain: &RowChain, parts: u64) -> Result<(), TileError> {
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
        let (inside, outside) = (BTreeMap::new(), BTreeMap::new());
        let mut part = PartTensors { chain, rows, number, at: chain.nodes.start, inside, outside };
        for at in chain.nodes.clone() {
            let node = graph.nodes()[at];
            if chain.splits.contains_key(&graph.root(node)) && !graph.tensor(node).op.writes_nothing() {
                part.at = at;
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
        self.list(made, self.facts.assigned.assignment().nodes[part.at]);
        Ok(made)
    }
}

/// Returns the name of the rows of a tensor, or none where that has none.
fn part_name(name: &str, part: u64) -> String {
    if name.is_empty() { String::new() } else { format!("{name} (part {part})") }
}
