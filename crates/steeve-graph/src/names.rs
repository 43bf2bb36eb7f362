//! What the caller calls the tensors, apart from the tensors: a graph can do without.

use alloc::boxed::Box;
use alloc::vec::Vec;

use steeve_plan::Id;

use crate::TensorId;

/// Names of some tensors. A tensor without one has the empty name.
///
/// ```
/// use steeve_graph::{Id, Names, TensorId};
/// let mut names = Names::default();
/// let third = TensorId::from_index(2).unwrap();
/// names.set(third, "kq");
/// assert_eq!(names.get(third), "kq");
/// assert_eq!(names.get(TensorId::from_index(7).unwrap()), "");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Names {
    names: Vec<Box<str>>,
    is_keyed: bool,
}

impl Names {
    /// Returns the name, or an empty one.
    pub fn get(&self, id: TensorId) -> &str {
        self.names.get(id.index()).map_or("", |name| name)
    }

    /// Gives a tensor a name.
    pub fn set(&mut self, id: TensorId, name: &str) {
        if name.is_empty() && id.index() >= self.names.len() {
            return;
        }
        if id.index() >= self.names.len() {
            self.names.resize(id.index() + 1, Box::default());
        }
        self.names[id.index()] = name.into();
    }

    /// Makes errors say the names alone: the caller has keys for its tensors and does not know our numbers.
    pub(crate) fn set_keyed(&mut self) {
        self.is_keyed = true;
    }

    /// Returns whether errors say names alone.
    pub(crate) const fn is_keyed(&self) -> bool {
        self.is_keyed
    }

    pub(crate) fn truncate(&mut self, tensors: usize) {
        self.names.truncate(tensors);
    }
}

/// Equal names for all tensors, however long the tables are.
impl PartialEq for Names {
    fn eq(&self, other: &Self) -> bool {
        let shorter = self.names.len().min(other.names.len());
        let (common, rest) = self.names.split_at(shorter);
        let (other_common, other_rest) = other.names.split_at(shorter);
        common == other_common && rest.iter().chain(other_rest).all(|name| name.is_empty())
    }
}

impl Eq for Names {}
