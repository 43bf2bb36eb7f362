//! A graph to be allocated, perhaps with the memory of each of its leafs and nodes.

use std::borrow::Cow;

use steeve_graph::{Assignment, Graph};

/// A graph to be reserved or allocated, with the memory of each of its leafs and nodes where there are several.
///
/// Made from `&graph`, or from `(&graph, &assignment)`.
#[derive(Clone, Copy, Debug)]
pub struct GraphRequest<'a> {
    pub(crate) graph: &'a Graph,
    pub(crate) assignment: Option<&'a Assignment>,
}

impl<'a> GraphRequest<'a> {
    /// Returns the assignment; the first memory for everything where none was given.
    pub(crate) fn assignment(&self) -> Cow<'a, Assignment> {
        self.assignment.map_or_else(|| Cow::Owned(Assignment::single(self.graph)), Cow::Borrowed)
    }
}

impl<'a> From<&'a Graph> for GraphRequest<'a> {
    fn from(graph: &'a Graph) -> Self {
        Self { graph, assignment: None }
    }
}

impl<'a> From<(&'a Graph, &'a Assignment)> for GraphRequest<'a> {
    fn from((graph, assignment): (&'a Graph, &'a Assignment)) -> Self {
        Self { graph, assignment: Some(assignment) }
    }
}
