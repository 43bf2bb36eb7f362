//! Formats a schedule as a table of its splits, and as a drawing.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use steeve_graph::{Bytes, Graph, Id, Named, TensorId};

use crate::sched::schedule::{Schedule, Split, TensorCopy};
use crate::sched::{SplitReason, WorkerId};

/// Writes the splits, one line each, and under each what is copied for it.
impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows: Vec<[String; 6]> = vec![["split", "on", "nodes", "first", "last", "copied in"].map(String::from)];
        for (number, split) in self.splits.iter().enumerate() {
            let copied = Bytes(self.copies[split.copies.clone()].iter().map(|copy| copy.size.0).sum());
            let computing = || self.computing(split);
            let named = |node: Option<TensorId>| node.map_or(String::new(), |node| self.title(node));
            let copied = match split.copies.len() {
                0 => String::new(),
                1 => format!("{copied} bytes, 1 copy"),
                count => format!("{copied} bytes, {count} copies"),
            };
            rows.push([
                number.to_string(),
                self.names[split.worker].clone(),
                computing().count().to_string(),
                named(computing().next()),
                named(computing().next_back()),
                copied,
            ]);
        }
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..5).map(width).collect();
        let mut splits = self.splits.iter();
        for (number, row) in rows.iter().enumerate() {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                write!(line, "{cell:width$}  ")?;
            }
            writeln!(f, "{}", format!("{line}{}", row[5]).trim_end())?;
            let Some(split) = (if number > 0 { splits.next() } else { None }) else { continue };
            for copy in &self.copies[split.copies.clone()] {
                writeln!(f, "       <- {}", self.copy_line(copy))?;
            }
        }
        let count = |count: usize, one: &str, many: &str| format!("{count} {}", if count == 1 { one } else { many });
        let splits = count(self.splits.len(), "split", "splits");
        write!(f, "{splits}, {} of {} bytes", count(self.copies.len(), "copy", "copies"), self.copied())
    }
}

impl Schedule {
    /// Returns each leaf and node that has a worker, with the reason: one line each.
    ///
    /// ```text
    /// x        CPU   the caller writes it
    /// ffn_up   GPU   its weight blk.0.ffn_up is there
    /// ```
    pub fn reasons(&self) -> String {
        let listed = self.graph.leafs().iter().chain(self.graph.nodes());
        let lines: Vec<(String, &str, String)> = listed
            .filter(|tensor| tensor.index() < self.callers())
            .filter(|tensor| {
                let it = self.graph.tensor(**tensor);
                !(it.is_view() && it.op.writes_nothing())
            })
            .filter_map(|tensor| {
                let worker = self.worker(*tensor)?;
                Some((self.title(*tensor), self.names[worker].as_str(), self.why(*tensor)?))
            })
            .collect();
        let width = lines.iter().map(|(title, ..)| title.chars().count()).max().unwrap_or(0);
        let workers = lines.iter().map(|(_, worker, _)| worker.chars().count()).max().unwrap_or(0);
        let line =
            |(title, worker, why): &(String, &str, String)| format!("{title:width$}  {worker:workers$}  {why}\n");
        lines.iter().map(line).collect()
    }

    /// Returns the schedule in the language of Graphviz: one box for each split with its nodes, and the copies that
    /// lead into it with their bytes.
    pub fn to_graphviz(&self) -> String {
        let mut text = String::new();
        // Writing into a string does not fail.
        let _ = self.draw(&mut text);
        text
    }

    fn draw(&self, text: &mut String) -> fmt::Result {
        text.write_str("digraph {\n  rankdir=TB;\n  compound=true;\n  node [fontname=monospace,shape=box];\n")?;
        for given in self.given() {
            let shape = if self.graph.tensor(given).external { "folder" } else { "ellipse" };
            writeln!(text, "  t{given} [shape={shape},label={}];", quoted(&self.label(given)))?;
        }
        for (number, split) in self.splits.iter().enumerate() {
            let colour = COLOURS[split.worker.index() % COLOURS.len()];
            let title = format!("split {number} on {}", self.names[split.worker]);
            writeln!(text, "  subgraph cluster_{number} {{")?;
            writeln!(text, "    label={}; style=filled; color=\"{colour}\";", quoted(&title))?;
            for copy in &self.copies[split.copies.clone()] {
                let id = copy.tensors[0];
                let label = format!("copy of {}\n{} bytes", self.title(copy.root), copy.size);
                writeln!(text, "    t{id} [shape=cds,style=\"filled\",fillcolor=white,label={}];", quoted(&label))?;
            }
            for node in self.computing(split) {
                writeln!(text, "    t{node} [style=filled,fillcolor=white,label={}];", quoted(&self.label(node)))?;
            }
            writeln!(text, "  }}")?;
        }
        // The node that has written each root last, if that is not the root itself.
        let mut writers: BTreeMap<TensorId, TensorId> = BTreeMap::new();
        let last = |writers: &BTreeMap<TensorId, TensorId>, root: TensorId| writers.get(&root).copied().unwrap_or(root);
        for split in &self.splits {
            for copy in &self.copies[split.copies.clone()] {
                let from = last(&writers, copy.root);
                writeln!(text, "  t{from} -> t{} [style=bold,label=\"{} B\"];", copy.tensors[0], copy.size)?;
            }
            for node in self.computing(split) {
                for source in self.graph.sources(node).iter().flatten() {
                    writeln!(text, "  t{} -> t{node};", last(&writers, self.graph.root(*source)))?;
                }
                if self.graph.tensor(node).is_view() {
                    writers.insert(self.graph.root(node), node);
                }
            }
        }
        text.write_str("}\n")
    }

    /// Returns what the caller provides: leafs, and roots that nodes read but no node computes or lists.
    fn given(&self) -> Vec<TensorId> {
        let computes = |tensor: &TensorId| !self.graph.tensor(*tensor).op.writes_nothing();
        let nodes = self.graph.nodes().iter().filter(|node| computes(node));
        let read = nodes.flat_map(|node| self.graph.sources(*node)).flatten().map(|source| self.graph.root(*source));
        let mut given: Vec<TensorId> = self.graph.leafs().iter().copied().chain(read).collect();
        given.retain(|tensor| !computes(tensor));
        given.sort_unstable();
        given.dedup();
        given
    }

    /// Returns the nodes of a split that compute something.
    pub(crate) fn computing(&self, split: &Split) -> impl DoubleEndedIterator<Item = TensorId> {
        let nodes = self.graph.nodes()[split.nodes.clone()].iter().copied();
        nodes.filter(|node| !self.graph.tensor(*node).op.writes_nothing())
    }

    fn copy_line(&self, copy: &TensorCopy) -> String {
        let named = Named::new(copy.root, self.graph.names());
        let mut line = format!("{named} from {}, {} bytes", copy.from_memory, copy.size);
        if copy.size < self.graph.tensor(copy.root).nbytes() {
            let _ = write!(line, " at {}", copy.start);
        }
        if !copy.ids.is_empty() {
            line.push_str(", the experts that are asked for");
        }
        if copy.tensors.len() > 1 {
            let _ = write!(line, ", {} in turn", copy.tensors.len());
        }
        line
    }

    /// Returns the name of a tensor, or its number and operation.
    fn title(&self, tensor: TensorId) -> String {
        match self.graph.name(tensor) {
            "" => format!("{tensor} {}", op(&self.graph, tensor)),
            name => name.into(),
        }
    }

    fn label(&self, tensor: TensorId) -> String {
        let (name, layout) = (self.graph.name(tensor), self.graph.tensor(tensor).layout);
        let name = if name.is_empty() { tensor.to_string() } else { name.to_string() };
        format!("{name}\n{}\n{layout}", op(&self.graph, tensor))
    }
}

fn op(graph: &Graph, tensor: TensorId) -> String {
    graph.tensors().op_title(graph.tensor(tensor).op).to_ascii_lowercase()
}

/// Pale, so that text can be read on them, and told apart without them by the title of each split.
const COLOURS: [&str; 6] = ["#cfe8ff", "#ffe3c2", "#d5f0d0", "#f3d6ee", "#fff3b8", "#dedede"];

fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            '\n' => quoted.push_str("\\n"),
            _ if character.is_control() => quoted.push(' '),
            _ => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}

/// Writes the reason in words, for tables.
impl fmt::Display for SplitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Start => "the graph starts",
            Self::Worker => "another worker",
            Self::Weight => "a weight has to be copied",
        })
    }
}

impl Schedule {
    /// Returns the nodes that a worker computes.
    pub fn nodes_on(&self, worker: WorkerId) -> impl Iterator<Item = TensorId> {
        self.splits.iter().filter(move |split| split.worker == worker).flat_map(|split| self.computing(split))
    }
}
