//! A graph as a drawing for Graphviz.

use alloc::string::String;
use core::fmt::{self, Write};

use steeve_plan::Id;

use crate::compact::text_order;
use crate::{Graph, Tensor, TensorId};

impl Graph {
    /// Returns the graph in the language of Graphviz: nodes as boxes, leafs as ellipses, views dashed, outputs bold.
    /// A dotted edge goes from a root to a view that reaches it through nothing else.
    ///
    /// ```
    /// let graph: steeve_graph::Graph = "x = input 16; y = neg x !output".parse()?;
    /// assert!(graph.to_graphviz().contains("t0 -> t1"));
    /// # Ok::<(), steeve_graph::TextError>(())
    /// ```
    pub fn to_graphviz(&self) -> String {
        let mut text = String::new();
        // Writing into a string does not fail.
        let _ = self.draw(&mut text);
        text
    }

    fn draw(&self, text: &mut String) -> fmt::Result {
        text.write_str("digraph {\n  rankdir=TB;\n  node [fontname=monospace];\n")?;
        let mut leafs = alloc::vec![false; self.tensors().len()];
        self.leafs().iter().for_each(|leaf| leafs[leaf.index()] = true);
        for id in text_order(self) {
            let shape = if leafs[id.index()] { "ellipse" } else { "box" };
            self.draw_tensor(text, id, shape)?;
        }
        text.write_str("}\n")
    }

    fn draw_tensor(&self, text: &mut String, id: TensorId, shape: &str) -> fmt::Result {
        let tensor = self.tensor(id);
        write!(text, "  t{id} [shape={shape},style={:?},label=\"", style(tensor))?;
        escape(text, self.name(id));
        write!(text, "\\n")?;
        escape(text, self.tensors().op_title(tensor.op));
        writeln!(text, "\\n{}\"];", tensor.layout)?;
        let sources = self.sources(id);
        for (slot, source) in sources.iter().enumerate() {
            if let Some(source) = source {
                writeln!(text, "  t{source} -> t{id} [label={slot}];")?;
            }
        }
        match tensor.view {
            Some(view) if !sources.iter().flatten().any(|&source| self.root(source) == view.root) => {
                writeln!(text, "  t{} -> t{id} [style=dotted];", view.root)
            }
            _ => Ok(()),
        }
    }
}

fn style(tensor: &Tensor) -> &'static str {
    match (tensor.is_view(), tensor.flags.is_output(), tensor.external) {
        (true, ..) => "dashed",
        (_, true, _) => "bold",
        (.., true) => "filled",
        _ => "solid",
    }
}

fn escape(text: &mut String, name: &str) {
    for character in name.chars() {
        match character {
            '"' | '\\' => text.extend(['\\', character]),
            _ if character.is_control() => text.push(' '),
            _ => text.push(character),
        }
    }
}
