//! The names that are known at a node: those of its graph, and those of the graphs around it.

use std::collections::{BTreeMap, HashMap};

use super::call::CallAttributes;
use super::model::{Declared, Graph, Model};
use super::program::ValueId;

/// The names that are known at a node.
pub(super) struct Scope<'m, 's> {
    /// `None` for an input of a function that is left out.
    pub(super) names: HashMap<&'m str, Option<ValueId>>,
    pub(super) declared: HashMap<&'m str, &'m Declared>,
    pub(super) around: Option<&'s CallAttributes<'m>>,
    pub(super) opsets: &'m BTreeMap<String, i64>,
    pub(super) outer: Option<&'s Scope<'m, 's>>,
    /// What is put before the names of values.
    pub(super) prefix: String,
}

impl<'m, 's> Scope<'m, 's> {
    /// Returns the scope of a graph inside another, or of the whole model.
    pub(super) fn inside(graph: &'m Graph, model: &'m Model, outer: Option<&'s Scope<'m, 's>>) -> Self {
        let infos = graph.value_info.iter().chain(&graph.outputs);
        Self {
            names: HashMap::new(),
            declared: infos.map(|info| (info.name.as_str(), &info.declared)).collect(),
            around: outer.and_then(|outer| outer.around),
            opsets: outer.map_or(&model.opsets, |outer| outer.opsets),
            outer,
            prefix: outer.map(|outer| outer.prefix.clone()).unwrap_or_default(),
        }
    }

    pub(super) fn find(&self, name: &str) -> Option<Option<ValueId>> {
        let mut scope = Some(self);
        while let Some(here) = scope {
            if let Some(found) = here.names.get(name) {
                return Some(*found);
            }
            scope = here.outer;
        }
        None
    }

    pub(super) fn version(&self, domain: &str) -> i64 {
        // A file without a version of the standard set is from before there were any.
        self.opsets.get(domain).copied().unwrap_or(1)
    }
}
