//! Graph in, text out.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Formatter, Write};

use steeve_plan::{Bytes, Id, IdVec};

use super::lexer::is_word;
use super::{GraphList, SAME_SIZE_MEMORIES, usual_view};
use crate::compact::text_order;
use crate::{AssignedGraph, Flags, Fusion, Graph, Memory, MemoryId, Op, Tensor, TensorId};

pub(super) fn write(f: &mut Formatter<'_>, graph: &Graph, assigned: Option<&AssignedGraph>) -> fmt::Result {
    let memories: &[Memory] = assigned.map_or(&[], |assigned| assigned.memories().as_slice());
    let memories = if *memories == [Memory::default()] { &[] } else { memories };
    let memory_labels = memory_labels(memories);
    for (memory, label) in memories.iter().zip(&memory_labels) {
        write_memory(f, memory, label, &memory_labels)?;
    }
    let order = text_order(graph);
    let mut writer = TextWriter {
        graph,
        assigned,
        labels: labels(graph, &order),
        lines: line_numbers(graph, &order),
        memory_labels,
    };
    writer.lists(f, &order)
}

fn write_memory(f: &mut Formatter<'_>, memory: &Memory, label: &str, labels: &[String]) -> fmt::Result {
    write!(f, "memory {label} align={}", memory.align)?;
    if let Some(max) = memory.max_buffer {
        write!(f, " max={max}")?;
    }
    if memory.extra_lifetime > 0 {
        write!(f, " hold={}", memory.extra_lifetime)?;
    }
    if memory.fusion != Fusion::None {
        write!(f, " fusion={}", memory.fusion.name())?;
    }
    if let Some(with) = memory.shared_with {
        write!(f, " shares={}", labels.get(with.index()).map_or("", |label| label))?;
    }
    if memory.name != *label {
        f.write_char(' ')?;
        quote(f, &memory.name)?;
    }
    f.write_char('\n')
}

/// Returns the label of each memory: the name where it is a label and no other memory has it, else the number.
fn memory_labels(memories: &[Memory]) -> Vec<String> {
    let mut taken = BTreeSet::new();
    let mut labels = Vec::with_capacity(memories.len());
    for (index, memory) in memories.iter().enumerate() {
        let free = is_label(&memory.name) && taken.insert(memory.name.as_str());
        labels.push(if free { memory.name.clone() } else { format!("%{index}") });
    }
    labels
}

/// Returns the label of each tensor: the name where it is a label and no other tensor has it, else the number of the
/// line.
fn labels(graph: &Graph, order: &[TensorId]) -> IdVec<TensorId, String> {
    let mut labels: IdVec<TensorId, String> = graph.tensors().iter().map(|_| String::new()).collect();
    let mut taken = BTreeSet::new();
    for (line, &id) in order.iter().enumerate() {
        let name = graph.name(id);
        let free = is_label(name) && taken.insert(name);
        labels[id] = if free { name.into() } else { format!("%{line}") };
    }
    labels
}

fn line_numbers(graph: &Graph, order: &[TensorId]) -> IdVec<TensorId, usize> {
    let mut lines: IdVec<TensorId, usize> = graph.tensors().iter().map(|_| 0).collect();
    for (line, &id) in order.iter().enumerate() {
        lines[id] = line;
    }
    lines
}

/// Returns whether a name may be a label.
fn is_label(name: &str) -> bool {
    let letter = |first: char| first.is_ascii_alphabetic() || first == '_';
    name.starts_with(letter) && name.chars().all(|character| is_word(character) && character != '%')
}

fn quote(f: &mut Formatter<'_>, name: &str) -> fmt::Result {
    f.write_char('"')?;
    for character in name.chars() {
        match character {
            '"' | '\\' => write!(f, "\\{character}")?,
            '\n' => f.write_str("\\n")?,
            '\r' => f.write_str("\\r")?,
            '\t' => f.write_str("\\t")?,
            _ if character.is_control() => write!(f, "\\u{{{:x}}}", u32::from(character))?,
            _ => f.write_char(character)?,
        }
    }
    f.write_char('"')
}

struct TextWriter<'a> {
    graph: &'a Graph,
    assigned: Option<&'a AssignedGraph>,
    labels: IdVec<TensorId, String>,
    lines: IdVec<TensorId, usize>,
    memory_labels: Vec<String>,
}

impl TextWriter<'_> {
    /// Writes leafs, tensors in neither list, nodes. What has a line already is only named again.
    fn lists(&mut self, f: &mut Formatter<'_>, order: &[TensorId]) -> fmt::Result {
        let graph = self.graph;
        let mut written = alloc::vec![false; graph.tensors().len()];
        let assignment = self.assigned.map(AssignedGraph::assignment);
        let memory = |list: Option<&Vec<MemoryId>>, index: usize| list.and_then(|list| list.get(index)).copied();
        for (index, &leaf) in graph.leafs().iter().enumerate() {
            let memory = memory(assignment.map(|it| &it.leafs), index);
            self.entry(f, leaf, GraphList::Leafs, memory, &mut written)?;
        }
        let nodes: Vec<bool> = listed(graph, graph.nodes());
        for &id in order.iter().filter(|id| !nodes[id.index()]) {
            if !written[id.index()] {
                self.entry(f, id, GraphList::Neither, None, &mut written)?;
            }
        }
        for (index, &node) in graph.nodes().iter().enumerate() {
            let memory = memory(assignment.map(|it| &it.nodes), index);
            self.entry(f, node, GraphList::Nodes, memory, &mut written)?;
        }
        Ok(())
    }

    fn entry(
        &self,
        f: &mut Formatter<'_>,
        id: TensorId,
        list: GraphList,
        memory: Option<MemoryId>,
        written: &mut [bool],
    ) -> fmt::Result {
        if core::mem::replace(&mut written[id.index()], true) {
            write!(f, "{} {}", list.flag(), self.labels[id])?;
        } else {
            self.line(f, id, list)?;
        }
        if let Some(memory) = memory.filter(|&memory| memory != MemoryId::FIRST) {
            write!(f, " @{}", self.memory_labels.get(memory.index()).map_or("", |label| label))?;
        }
        f.write_char('\n')
    }

    fn line(&self, f: &mut Formatter<'_>, id: TensorId, list: GraphList) -> fmt::Result {
        let tensor = self.graph.tensor(id);
        write!(f, "{} = ", self.labels[id])?;
        let said = self.head(f, tensor)?;
        self.params(f, id)?;
        write!(f, " {}", tensor.layout)?;
        self.view(f, id, tensor)?;
        for source in self.graph.sources(id) {
            write!(f, " {}", source.map_or("-", |source| &self.labels[source]))?;
        }
        for name in tensor.flags.names().filter(|&name| name != said) {
            write!(f, " !{name}")?;
        }
        if tensor.external && said != "external" {
            f.write_str(" !external")?;
        }
        if list != GraphList::usual(tensor) {
            write!(f, " !{}", list.flag())?;
        }
        self.sizes(f, id)?;
        self.permissions(f, id)?;
        let name = self.graph.name(id);
        if name != self.labels[id] && !name.is_empty() {
            f.write_char(' ')?;
            quote(f, name)?;
        }
        Ok(())
    }

    /// Writes the operation; answers which flag that says already.
    fn head(&self, f: &mut Formatter<'_>, tensor: &Tensor) -> Result<&'static str, fmt::Error> {
        let tensors = self.graph.tensors();
        let known = tensor.op.name();
        match tensor.op {
            Op::None => {
                let head = match tensor.flags {
                    _ if tensor.external => "external",
                    flags if flags.contains(Flags::INPUT) => "input",
                    flags if flags.is_param() => "param",
                    _ => "leaf",
                };
                f.write_str(head)?;
                return Ok(head);
            }
            Op::Other(_) => {
                f.write_char('?')?;
                odd(f, tensors.op_name(tensor.op))?;
            }
            Op::Unary(crate::Unary::Other(_)) | Op::Glu(crate::Glu::Other(_)) => {
                write!(f, "{}?", known.to_ascii_lowercase())?;
                odd(f, tensors.kind_name(tensor.op).unwrap_or(""))?;
            }
            _ => f.write_str(&tensors.op_title(tensor.op).to_ascii_lowercase())?,
        }
        Ok("")
    }

    fn params(&self, f: &mut Formatter<'_>, id: TensorId) -> fmt::Result {
        for (index, param) in self.graph.params(id).iter().enumerate() {
            let before = if index == 0 { '(' } else { ',' };
            write!(f, "{before}{param}")?;
        }
        if self.graph.params(id).is_empty() { Ok(()) } else { f.write_char(')') }
    }

    fn view(&self, f: &mut Formatter<'_>, id: TensorId, tensor: &Tensor) -> fmt::Result {
        let usual = self.graph.sources(id).get(usual_view(tensor.op)).copied().flatten();
        let usual = usual.filter(|&source| self.lines[source] < self.lines[id]);
        match tensor.view {
            Some(view) => {
                write!(f, "+{}", view.offset)?;
                if usual.map(|source| self.graph.root(source)) != Some(view.root) {
                    write!(f, "^{}", self.labels[view.root])?;
                }
                Ok(())
            }
            None if tensor.op.entry().view_of.is_some() && usual.is_some() => f.write_str(" !owner"),
            None => Ok(()),
        }
    }

    fn sizes(&self, f: &mut Formatter<'_>, id: TensorId) -> fmt::Result {
        let row = self.assigned.and_then(|assigned| assigned.sizes().row(id));
        let Some([first, rest @ ..]) = row else { return Ok(()) };
        write!(f, " size={first}")?;
        if rest.len() >= SAME_SIZE_MEMORIES || rest.iter().any(|size| size != first) {
            rest.iter().try_for_each(|Bytes(size)| write!(f, ",{size}"))?;
        }
        Ok(())
    }

    fn permissions(&self, f: &mut Formatter<'_>, id: TensorId) -> fmt::Result {
        let permitted = self.graph.tensors().permitted_slots(id);
        let mut before = " overwrites=";
        for slot in (0..u16::BITS).filter(|slot| permitted >> slot & 1 == 1) {
            write!(f, "{before}{slot}")?;
            before = ",";
        }
        before = " overlaps=";
        for (slot, distance) in self.graph.tensors().permitted_overlaps(id) {
            write!(f, "{before}{slot}+{distance}")?;
            before = ",";
        }
        before = " results=";
        for slot in self.graph.tensors().own_result_slots(id) {
            write!(f, "{before}{slot}")?;
            before = ",";
        }
        Ok(())
    }
}

fn listed(graph: &Graph, ids: &[TensorId]) -> Vec<bool> {
    let mut listed = alloc::vec![false; graph.tensors().len()];
    ids.iter().for_each(|id| listed[id.index()] = true);
    listed
}

/// Writes a name of ggml's, in quotes if it is no word.
fn odd(f: &mut Formatter<'_>, name: &str) -> fmt::Result {
    if !name.is_empty() && name.chars().all(is_word) { f.write_str(name) } else { quote(f, name) }
}
