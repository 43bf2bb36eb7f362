//! Results as bytes and back, for `pickle` and `copy`. What can't be changed is its own copy.

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use steeve_plan::csv::{Table, read_within, write};
use steeve_plan::{Bytes, Clipped, Id, IdVec, InputLimit, Plan, certify};

use crate::blocks::{PyBlocks, PyViolation};
use crate::compare::PyChange;
use crate::error::{invalid_argument, invalid_input, unlocked};
use crate::fit::PyFitStep;
use crate::graph::{PyFault, PyTensor};
use crate::plan::{BlockNames, Planned, PyAlive, PyMemoryPlan, PyPlace, PyPlan};
use crate::search::Progress;

/// What `__reduce__` returns: a function, and with what to call it.
pub(crate) type Reduced<'py> = (Bound<'py, PyAny>, (&'static str, Bound<'py, PyTuple>));

fn reduced<'py>(py: Python<'py>, kind: &'static str, fields: Bound<'py, PyTuple>) -> PyResult<Reduced<'py>> {
    Ok((py.import("steeve._steeve")?.getattr("_restore")?, (kind, fields)))
}

/// Makes values of their fields, and the other way round.
macro_rules! values {
    ($($class:ident { $($field:ident),* })*) => {
        $(impl $class {
            pub(crate) fn reduce<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py>> {
                reduced(py, stringify!($class), ($(self.$field.clone(),)*).into_pyobject(py)?)
            }
        })*

        /// Restores what `__reduce__` has taken apart.
        #[pyfunction(name = "_restore")]
        pub(crate) fn restore<'py>(
            py: Python<'py>,
            kind: &str,
            fields: Bound<'py, PyTuple>,
        ) -> PyResult<Bound<'py, PyAny>> {
            match kind {
                $(stringify!($class) => {
                    let ($($field,)*) = fields.extract()?;
                    Ok(Bound::new(py, $class { $($field),* })?.into_any())
                })*
                "PyBlocks" => {
                    let (csv, title): (String, String) = fields.extract()?;
                    Ok(Bound::new(py, PyBlocks::new(table(py, csv)?, title, None))?.into_any())
                }
                "PyPlan" => Ok(Bound::new(py, plan(py, &fields)?)?.into_any()),
                _ => {
                    let what = format!("unknown: expected what this version has written, got {:?}", Clipped(kind));
                    Err(invalid_argument(py, "kind", None, what))
                }
            }
        }
    };
}

values! {
    PyPlace { memory, buffer, offset, size }
    PyAlive { name, memory, size, offset, lower, upper, op, why }
    PyMemoryPlan { name, peak, bound, buffers }
    PyViolation { kind, blocks, step, offset, message }
    PyFitStep { action, bytes, read_again, more_nodes }
    PyFault { kind, tensors, message }
    PyChange { kind, name, memory, before, after }
    PyTensor { index, name, size, kind, op, layout, memory, is_output, sources, view_of }
    Progress { nodes, peak, bound, seconds }
}

/// Takes apart the plan of blocks: a list of numbered blocks with offsets, and what that does not say.
pub(crate) fn reduce_plan<'py>(
    py: Python<'py>,
    plan: &Plan,
    (names, title): (&BlockNames, &str),
    (strategy, at_least, seconds): (&str, Bytes, f64),
) -> PyResult<Reduced<'py>> {
    let numbers: IdVec<_, String> = plan.problem().blocks().ids().map(|id| id.index().to_string()).collect();
    let table = Table::of_plan(plan, numbers).map_err(|error| invalid_input(py, &error))?;
    let fields = (write(&table), names.given(), title, strategy, at_least.0, seconds);
    reduced(py, "PyPlan", fields.into_pyobject(py)?)
}

/// Takes apart blocks that were read.
pub(crate) fn reduce_blocks<'py>(py: Python<'py>, table: &Table, title: &str) -> PyResult<Reduced<'py>> {
    reduced(py, "PyBlocks", (write(table), title).into_pyobject(py)?)
}

/// Reads a list that was written here, however long it is.
fn table(py: Python<'_>, csv: String) -> PyResult<Table> {
    let limit = InputLimit::new(Bytes(u64::MAX));
    unlocked(py, || read_within(&csv, limit))?.map_err(|error| invalid_input(py, &error))
}

/// Restores the plan of blocks, and proves it again.
fn plan(py: Python<'_>, fields: &Bound<'_, PyTuple>) -> PyResult<PyPlan> {
    let (csv, names, title, strategy, at_least, seconds): (String, Option<Vec<String>>, String, String, u64, f64) =
        fields.extract()?;
    let table = table(py, csv)?;
    let problem = table.problem().map_err(|error| invalid_input(py, &error))?;
    let placement = table.placement().map_err(|error| invalid_input(py, &error))?;
    let plan = unlocked(py, || certify(problem, placement))?.map_err(|error| invalid_input(py, &error))?;
    let names = BlockNames::new(names.map(IdVec::from));
    Ok(PyPlan::new(Planned::Blocks { plan, names, at_least: Bytes(at_least), strategy }, title, seconds))
}
