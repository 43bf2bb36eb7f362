//! What the file declares of a value, and the sizes that are given, in; what is still not known, noted with whose fault it is.

use std::collections::BTreeSet;

use super::error::FreeDim;
use super::fact::{Fact, ListFact};
use super::model::{Declared, DeclaredDim, Node};
use super::program::{Program, Value};
use super::walk::Walk;

/// Whose fault it is that a dimension is not known.
#[derive(Clone, Copy)]
pub(super) enum Blame<'a> {
    /// The caller has to say it.
    Input,
    /// It depends on data.
    Operation(&'a Node),
    /// Something before it is not known.
    Others,
}

impl Walk<'_> {
    /// Notes which values of a program have no size although nothing before them is to blame.
    pub(super) fn check_sizes(&mut self, program: &Program) {
        if !self.unknown.is_empty() || !self.free.is_empty() {
            return;
        }
        let mut seen = BTreeSet::new();
        for id in program.values().filter(|id| seen.insert(*id)) {
            let Value { name, fact, .. } = &self.values[id];
            if !fact.is_complete() {
                self.unknown.push(format!("{name:?}: {fact}"));
            }
        }
    }

    /// Fills in what the file declares, where nothing else is known.
    pub(super) fn complete(&mut self, fact: &mut Fact, declared: Option<&Declared>) {
        let Some(declared) = declared else { return };
        if !fact.data_type.is_known() {
            fact.data_type = declared.data_type;
        }
        if declared.is_sequence {
            if fact.shape.is_none() {
                fact.list.get_or_insert(ListFact::Unknown);
            }
            return;
        }
        let Some(dims) = &declared.shape else { return };
        let shape = fact.shape.get_or_insert_with(|| vec![None; dims.len()]);
        if shape.len() != dims.len() {
            return;
        }
        for (dim, declared) in shape.iter_mut().zip(dims) {
            if dim.is_none() {
                *dim = match declared {
                    DeclaredDim::Known(size) => Some(*size),
                    DeclaredDim::Named(_) | DeclaredDim::Unknown => None,
                };
            }
        }
    }

    /// Looks up the sizes of dimensions that are not known: by the name that the file has for them, or by that of the tensor and the
    /// number of the axis. Those without a size are noted, if they are not the consequence of others.
    pub(super) fn name_free_dims(
        &mut self,
        fact: &mut Fact,
        title: &str,
        declared: Option<&Declared>,
        blame: Blame<'_>,
    ) {
        if fact.list.is_some() {
            return;
        }
        let operation = match blame {
            Blame::Operation(node) => Some(node.title()),
            Blame::Input | Blame::Others => None,
        };
        let Some(shape) = &mut fact.shape else {
            return self.note_unknown(fact, title, &blame);
        };
        let dims = declared.and_then(|declared| declared.shape.as_deref()).filter(|dims| dims.len() == shape.len());
        for (axis, dim) in shape.iter_mut().enumerate().filter(|(_, dim)| dim.is_none()) {
            let point = format!("{title}.{axis}");
            let own = match dims.map(|dims| &dims[axis]) {
                Some(DeclaredDim::Named(name)) => Some(name.as_str()),
                _ => None,
            };
            let name = [own, Some(&point)].into_iter().flatten().find(|name| self.dims.get(name).is_some());
            if let Some(name) = name {
                *dim = self.dims.get(name);
                let names = &mut self.dim_names;
                self.dims.names_in(name, &mut |used| {
                    names.insert(used.to_owned());
                });
                continue;
            }
            if matches!(blame, Blame::Others) {
                continue;
            }
            for name in own.map_or_else(|| vec![point], |own| self.dims.missing(own)) {
                if self.dim_names.insert(name.clone()) {
                    self.free.push(FreeDim { name, tensor: title.to_owned(), operation: operation.clone() });
                }
            }
        }
        self.note_unknown(fact, title, &blame);
    }

    fn note_unknown(&mut self, fact: &Fact, title: &str, blame: &Blame<'_>) {
        if fact.list.is_some() || fact.shape.is_some() && fact.data_type.is_known() {
            return;
        }
        match blame {
            Blame::Others => {}
            Blame::Input => self.unknown.push(format!("input {title:?} has no declared shape: {fact}")),
            Blame::Operation(node) => {
                let domain = if node.domain.is_empty() { "" } else { &format!("{}.", node.domain) };
                self.unknown.push(format!("{title:?}: {fact}, computed by {domain}{}", node.title()));
            }
        }
    }
}
