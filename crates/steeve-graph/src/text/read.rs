//! Text in, graph out: tokens to lines, then lines to tensors, because a source may be listed behind its reader.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use steeve_plan::{Align, Bytes, Id};

use super::cursor::{Cursor, Reference, WrittenLayout};
use super::lexer::{Statements, Token, TokenKind};
use super::{GraphList, SAME_SIZE_MEMORIES, TextError, TextFault, usual_view};
use crate::shape::{OperandChecks, ShapeInput};
use crate::{
    AllocSizes, AssignedGraph, Assignment, DataType, Flags, Fusion, Glu, GraphError, GraphParts, Layout, Memory,
    MemoryId, Op, Param, ShapeError, Tensor, TensorId, Unary, View,
};

pub(super) fn read(text: &str) -> Result<AssignedGraph, TextError> {
    let mut reader = TextReader::default();
    let mut statements = Statements::new(text);
    while let Some(tokens) = statements.next()? {
        reader.statement(Cursor { tokens, at: 0 })?;
    }
    reader.finish()
}

/// A line that describes a tensor.
struct TensorLine {
    token: Token,
    name: String,
    op: OpName,
    params: Vec<Param>,
    layout: Option<WrittenLayout>,
    view: Option<(Bytes, Option<Reference>)>,
    sources: Vec<Option<Reference>>,
    flags: Flags,
    external: bool,
    owner: bool,
    list: Option<GraphList>,
    memory: Option<Reference>,
    sizes: Vec<Bytes>,
    /// The slots that it may overwrite, and where that is said.
    overwrites: Option<(Vec<u64>, Token)>,
    /// The slots that its result may overlap, how far below, and where that is said.
    overlaps: Option<(Vec<(u64, u64)>, Token)>,
    /// The slots whose sources it computes as well, and where that is said.
    results: Option<(Vec<u64>, Token)>,
}

/// An operation by its names, because only the table can keep unknown ones.
struct OpName {
    name: String,
    kind: Option<String>,
}

/// One entry of the lists of the graph.
struct ListEntry {
    tensor: Reference,
    list: GraphList,
    memory: Option<Reference>,
}

#[derive(Default)]
struct TextReader {
    memories: Vec<Memory>,
    memory_labels: BTreeMap<String, MemoryId>,
    labels: BTreeMap<String, TensorId>,
    lines: Vec<TensorLine>,
    entries: Vec<ListEntry>,
}

impl TextReader {
    fn statement(&mut self, mut cursor: Cursor<'_>) -> Result<(), TextError> {
        let first = cursor.reference("a label")?;
        if cursor.symbol('=') {
            return self.tensor(first, cursor);
        }
        match first.label.as_str() {
            "memory" => self.memory(cursor),
            "leaf" => self.again(cursor, GraphList::Leafs),
            "node" => self.again(cursor, GraphList::Nodes),
            _ => Err(cursor.expected("=")),
        }
    }

    fn memory(&mut self, mut cursor: Cursor<'_>) -> Result<(), TextError> {
        let label = cursor.reference("the name of the memory")?;
        let mut memory = Memory::new(name_of(&label.label), Align::ONE);
        while let Some(token) = cursor.next() {
            match &token.kind {
                TokenKind::Quoted(name) => memory.name.clone_from(name),
                TokenKind::Word(key) => {
                    cursor.demand('=')?;
                    self.memory_attribute(key, token, &mut memory, &mut cursor)?;
                }
                TokenKind::Symbol(_) => {
                    return Err(token.error(TextFault::Expected("align=, max=, hold=, fusion= or shares=")));
                }
            }
        }
        let id = MemoryId::from_index(self.memories.len());
        let id = id.ok_or(label.token.error(TextFault::Expected("fewer memories")))?;
        self.memories.push(memory);
        match self.memory_labels.insert(label.label.clone(), id) {
            Some(_) => Err(label.token.error(TextFault::Duplicate(label.label))),
            None => Ok(()),
        }
    }

    fn memory_attribute(
        &self,
        key: &str,
        token: &Token,
        memory: &mut Memory,
        cursor: &mut Cursor<'_>,
    ) -> Result<(), TextError> {
        match key {
            "align" => {
                let (value, token) = cursor.number()?;
                memory.align = Align::new(value).map_err(|_| token.error(TextFault::Expected("a power of two")))?;
            }
            "max" => memory.max_buffer = Some(Bytes(cursor.number()?.0)),
            "hold" => {
                let (value, token) = cursor.number()?;
                memory.extra_lifetime = u32::try_from(value).map_err(|_| token.error(number_fault(value)))?;
            }
            "fusion" => {
                let word = cursor.reference("none, checked or kept")?;
                memory.fusion = Fusion::from_name(&word.label)
                    .ok_or_else(|| word.token.error(TextFault::Expected("none, checked or kept")))?;
            }
            "shares" => memory.shared_with = Some(self.memory_id(&cursor.reference("a memory")?)?),
            _ => return Err(token.error(TextFault::Attribute(key.into()))),
        }
        Ok(())
    }

    fn again(&mut self, mut cursor: Cursor<'_>, list: GraphList) -> Result<(), TextError> {
        let tensor = cursor.reference("a tensor")?;
        let memory = if cursor.symbol('@') { Some(cursor.reference("a memory")?) } else { None };
        cursor.end()?;
        self.entries.push(ListEntry { tensor, list, memory });
        Ok(())
    }

    fn tensor(&mut self, label: Reference, mut cursor: Cursor<'_>) -> Result<(), TextError> {
        let id = TensorId::from_index(self.lines.len());
        let id = id.ok_or(label.token.error(GraphError::TooMany { tensors: self.lines.len() }))?;
        if self.labels.insert(label.label.clone(), id).is_some() {
            return Err(label.token.error(TextFault::Duplicate(label.label)));
        }
        let line = line(&label, &mut cursor)?;
        let list = line.list;
        let usual = if line.op.name == "NONE" && !line.flags.is_param() { GraphList::Leafs } else { GraphList::Nodes };
        let list = list.unwrap_or(usual);
        self.entries.push(ListEntry { tensor: label, list, memory: line.memory.clone() });
        self.lines.push(line);
        Ok(())
    }

    fn tensor_id(&self, reference: &Reference) -> Result<TensorId, TextError> {
        let known = self.labels.get(&reference.label).copied();
        known.ok_or_else(|| reference.token.error(TextFault::Tensor(reference.label.clone())))
    }

    fn memory_id(&self, reference: &Reference) -> Result<MemoryId, TextError> {
        let known = self.memory_labels.get(&reference.label).copied();
        known.ok_or_else(|| reference.token.error(TextFault::Memory(reference.label.clone())))
    }

    fn finish(mut self) -> Result<AssignedGraph, TextError> {
        let last = Token { kind: TokenKind::Symbol(' '), line: 1, column: 1 };
        let memories =
            if self.memories.is_empty() { alloc::vec![Memory::default()] } else { core::mem::take(&mut self.memories) };
        let mut parts = GraphParts::default();
        let mut sizes = AllocSizes::new(memories.len());
        for line in &self.lines {
            let id = self.push(&mut parts, line)?;
            let row: &[Bytes] = match line.sizes.as_slice() {
                [] => continue,
                [all] if memories.len() <= SAME_SIZE_MEMORIES => &alloc::vec![*all; memories.len()],
                [_] => {
                    return Err(line
                        .token
                        .error(TextFault::Expected("size= with a size for each of so many memories")));
                }
                row => row,
            };
            sizes.set(id, &parts.tensors()[id], row).map_err(|error| line.token.error(error))?;
        }
        let assignment = self.lists(&mut parts)?;
        let whole = parts.finish().and_then(|graph| AssignedGraph::new(graph, memories, assignment, sizes));
        whole.map_err(|error| self.blame(&error).unwrap_or(&last).error(error))
    }

    /// Returns the line of the tensor that an error names.
    fn blame(&self, error: &GraphError) -> Option<&Token> {
        let tensor = match error {
            GraphError::ViewOutside { tensor, .. }
            | GraphError::ViewOfView { tensor, .. }
            | GraphError::UnknownRoot { tensor, .. }
            | GraphError::UnknownSource { tensor, .. }
            | GraphError::ListedTwice { node: tensor, .. } => tensor.id,
            GraphError::Order(fault) => fault.node.id,
            _ => return None,
        };
        self.lines.get(tensor.index()).map(|line| &line.token)
    }

    fn lists(&self, parts: &mut GraphParts) -> Result<Assignment, TextError> {
        let mut assignment = Assignment::default();
        for entry in &self.entries {
            let id = self.tensor_id(&entry.tensor)?;
            let memory = match &entry.memory {
                Some(memory) => self.memory_id(memory)?,
                None => MemoryId::FIRST,
            };
            match entry.list {
                GraphList::Leafs => {
                    parts.leaf(id);
                    assignment.leafs.push(memory);
                }
                GraphList::Nodes => {
                    parts.node(id);
                    assignment.nodes.push(memory);
                }
                GraphList::Neither => {}
            }
        }
        Ok(assignment)
    }

    fn push(&self, parts: &mut GraphParts, line: &TensorLine) -> Result<TensorId, TextError> {
        let wrong = |error: GraphError| line.token.error(error);
        let op = parts.op(&line.op.name, line.op.kind.as_deref()).map_err(wrong)?;
        let source = |source: &Option<Reference>| source.as_ref().map(|it| self.tensor_id(it)).transpose();
        let sources: Vec<_> = line.sources.iter().map(source).collect::<Result<_, _>>()?;
        let (layout, view) = match &line.layout {
            Some(written) => {
                let view = self.written_view(parts, line, op, &sources)?;
                let root = view.and_then(|view| parts.tensors().get(view.root));
                (written.layout(root.map_or(DataType::F32, |root| root.layout.dtype()))?, view)
            }
            None => inferred(parts, line, op, &sources)?,
        };
        let view = if line.owner { None } else { view };
        let tensor = Tensor { layout, op, flags: line.flags, external: line.external, view };
        let id = parts.push_with(tensor, &sources, &line.params).map_err(wrong)?;
        parts.set_name(id, &line.name).map_err(wrong)?;
        permit(parts, line, id, op, sources.len())?;
        Ok(id)
    }

    /// Returns the view that a line with a shape describes: what it says, or what its operation does by itself.
    fn written_view(
        &self,
        parts: &GraphParts,
        line: &TensorLine,
        op: Op,
        sources: &[Option<TensorId>],
    ) -> Result<Option<View>, TextError> {
        let usual = sources.get(usual_view(op)).copied().flatten();
        let usual = usual.filter(|&source| parts.tensors().get(source).is_some());
        Ok(match (&line.view, usual) {
            (Some((offset, Some(root))), _) => Some(View { root: self.tensor_id(root)?, offset: *offset }),
            (Some((offset, None)), Some(source)) => Some(View { root: parts.tensors().root(source), offset: *offset }),
            (Some((_, None)), None) => return Err(line.token.error(TextFault::NoRoot)),
            (None, Some(source)) if op.entry().view_of.is_some() => {
                Some(View { root: parts.tensors().root(source), offset: parts.tensors().offset(source) })
            }
            (None, _) => None,
        })
    }
}

/// Gives a tensor the permissions of its line, which only operations that are not in the table have.
fn permit(parts: &mut GraphParts, line: &TensorLine, id: TensorId, op: Op, sources: usize) -> Result<(), TextError> {
    let results = line.results.as_ref().map(|it| &it.1);
    let said = [line.overwrites.as_ref().map(|it| &it.1), line.overlaps.as_ref().map(|it| &it.1), results];
    if let Some(token) = said.into_iter().flatten().next()
        && !matches!(op, Op::Other(_))
    {
        let expected = "overwrites=, overlaps= and results= only where the table does not have the operation";
        return Err(token.error(TextFault::Expected(expected)));
    }
    let checked = |slot: u64, token: &Token| {
        let slot = usize::try_from(slot).ok().filter(|slot| *slot < sources.min(u16::BITS as usize));
        slot.ok_or_else(|| token.error(TextFault::Expected("slots of sources, each below 16")))
    };
    if let Some((slots, token)) = &line.overwrites {
        for slot in slots {
            parts.permit_overwrite(id, checked(*slot, token)?);
        }
    }
    if let Some((slots, token)) = &line.overlaps {
        for (slot, distance) in slots {
            parts.permit_overlap(id, checked(*slot, token)?, Bytes(*distance));
        }
    }
    if let Some((slots, token)) = &line.results {
        for slot in slots {
            let slot = usize::try_from(*slot).ok().filter(|slot| *slot < sources);
            parts.mark_own_result(id, slot.ok_or_else(|| token.error(TextFault::Expected("slots of sources")))?);
        }
    }
    Ok(())
}

/// Infers layout and view by the rule of the operation, from sources that are listed before.
fn inferred(
    parts: &GraphParts,
    line: &TensorLine,
    op: Op,
    sources: &[Option<TensorId>],
) -> Result<(Layout, Option<View>), TextError> {
    let unsaid = |refusal| line.token.error(TextFault::UnknownShape(refusal));
    let tensors = parts.tensors();
    let mut layouts = Vec::with_capacity(sources.len());
    for source in sources {
        layouts.push(match *source {
            Some(source) => Some(tensors.get(source).ok_or_else(|| unsaid(ShapeError::Undetermined))?.layout),
            None => None,
        });
    }
    let rule = op.entry().rule.ok_or_else(|| unsaid(ShapeError::Undetermined))?;
    let inferred =
        rule(&ShapeInput { sources: &layouts, params: &line.params, wanted: None, checks: OperandChecks::Ggml })
            .map_err(unsaid)?;
    let view = inferred.shares.and_then(|(slot, offset)| {
        let source = sources.get(slot).copied().flatten()?;
        let offset = tensors.offset(source).checked_add(offset)?;
        Some(View { root: tensors.root(source), offset })
    });
    Ok((inferred.layout, view))
}

/// Returns the name that a label says: none for one with a percent sign.
fn name_of(label: &str) -> &str {
    if label.starts_with('%') { "" } else { label }
}

fn number_fault(value: u64) -> TextFault {
    TextFault::Number(alloc::format!("{value}"))
}

fn line(label: &Reference, cursor: &mut Cursor<'_>) -> Result<TensorLine, TextError> {
    let (op, flags, external) = head(cursor)?;
    let params = cursor.params()?;
    let layout = cursor.layout()?;
    let view = if layout.is_some() { cursor.view()? } else { None };
    let mut line = TensorLine {
        token: label.token.clone(),
        name: name_of(&label.label).into(),
        op,
        params,
        layout,
        view,
        sources: Vec::new(),
        flags,
        external,
        owner: false,
        list: None,
        memory: None,
        sizes: Vec::new(),
        overwrites: None,
        overlaps: None,
        results: None,
    };
    while let Some(token) = cursor.next() {
        match &token.kind {
            TokenKind::Quoted(name) => line.name.clone_from(name),
            TokenKind::Symbol('!') => flag(&mut line, cursor)?,
            TokenKind::Symbol('@') => line.memory = Some(cursor.reference("a memory")?),
            TokenKind::Word(word) if word == "-" => line.sources.push(None),
            TokenKind::Word(word) if cursor.symbol('=') => match word.as_str() {
                "size" => line.sizes = cursor.numbers()?.into_iter().map(Bytes).collect(),
                "overwrites" => line.overwrites = Some((cursor.numbers()?, token.clone())),
                "overlaps" => line.overlaps = Some((cursor.distances()?, token.clone())),
                "results" => line.results = Some((cursor.numbers()?, token.clone())),
                _ => return Err(token.error(TextFault::Attribute(word.clone()))),
            },
            TokenKind::Word(word) => line.sources.push(Some(Reference { label: word.clone(), token: token.clone() })),
            TokenKind::Symbol(_) => {
                return Err(token.error(TextFault::Expected("a source, a flag or the end of the line")));
            }
        }
    }
    Ok(line)
}

/// Takes the operation, and the flags that its word says.
fn head(cursor: &mut Cursor<'_>) -> Result<(OpName, Flags, bool), TextError> {
    let plain = |name: &str| OpName { name: name.into(), kind: None };
    if cursor.symbol('?') {
        return Ok((plain(&cursor.name()?), Flags::NONE, false));
    }
    let Reference { label: word, token } = cursor.reference("an operation")?;
    Ok(match word.as_str() {
        "input" => (plain("NONE"), Flags::INPUT, false),
        "param" => (plain("NONE"), Flags::PARAM, false),
        "external" => (plain("NONE"), Flags::NONE, true),
        "leaf" => (plain("NONE"), Flags::NONE, false),
        "unary" | "glu" => {
            cursor.demand('?')?;
            let head = OpName { name: word.to_ascii_uppercase(), kind: Some(cursor.name()?) };
            (head, Flags::NONE, false)
        }
        _ => {
            let upper = word.to_ascii_uppercase();
            let lower = !word.contains(|character: char| character.is_ascii_uppercase());
            let head = match () {
                () if !lower => None,
                () if Op::plain(&upper).is_some() => Some(plain(&upper)),
                () if Unary::from_name(&upper).is_some() => Some(OpName { name: "UNARY".into(), kind: Some(upper) }),
                () if Glu::from_name(&upper).is_some() => Some(OpName { name: "GLU".into(), kind: Some(upper) }),
                () => None,
            };
            (head.ok_or_else(|| token.error(TextFault::Op(word)))?, Flags::NONE, false)
        }
    })
}

fn flag(line: &mut TensorLine, cursor: &mut Cursor<'_>) -> Result<(), TextError> {
    let Reference { label: name, token } = cursor.reference("a flag")?;
    match name.as_str() {
        "external" => line.external = true,
        "owner" => line.owner = true,
        "leaf" => line.list = Some(GraphList::Leafs),
        "node" => line.list = Some(GraphList::Nodes),
        "aside" => line.list = Some(GraphList::Neither),
        _ => match Flags::ALL.into_iter().find(|&(_, known)| known == name) {
            Some((flag, _)) => line.flags |= flag,
            None => return Err(token.error(TextFault::Flag(name))),
        },
    }
    Ok(())
}
