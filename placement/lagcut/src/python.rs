//! The Python module `placement._lagcut`.

use std::time::{Duration, Instant};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::program::{Dual, Form, Program, Row};
use crate::search::{minimise as search, Effort, Outcome};

/// Per NF its coefficients, per arc its coefficient.
type PyForm = (Vec<(usize, Vec<i64>)>, Vec<(usize, i64)>);
/// Weights (the goal's last) and flows.
type PyDual = (Vec<i64>, Vec<i64>);
/// Outcome, modes, bound, multipliers, order.
type PyFound = (
    &'static str,
    Option<Vec<usize>>,
    i64,
    Vec<PyDual>,
    Vec<usize>,
);

fn form(given: PyForm) -> Form {
    Form {
        choice: given.0,
        cross: given.1,
    }
}

/// Minimise a goal; see `placement.backends.lagcut`.
#[pyfunction]
#[pyo3(signature = (sites, arcs, rows, goal, dual, start, seconds, max_labels, gap, cutoff))]
#[allow(clippy::too_many_arguments)] // the signature that Python calls
fn minimise(
    py: Python<'_>,
    sites: Vec<Vec<u32>>,
    arcs: Vec<(usize, usize, u32)>,
    rows: Vec<(PyForm, i64)>,
    goal: PyForm,
    dual: Option<(Vec<i64>, i64, Vec<i64>)>,
    start: Option<Vec<u16>>,
    seconds: f64,
    max_labels: usize,
    gap: f64,
    cutoff: i64,
) -> PyResult<PyFound> {
    let rows = rows
        .into_iter()
        .map(|(left, limit)| Row {
            form: form(left),
            limit,
        })
        .collect();
    let program = Program {
        sites,
        arcs,
        rows,
        goal: form(goal),
    };
    let given = dual.map(|(weights, goal, flows)| Dual {
        weights,
        goal,
        flows,
    });
    let start = start.map(|modes| modes.into_iter().map(|m| m as u8).collect());
    let budget = Duration::try_from_secs_f64(seconds.clamp(0.0, 1e6)).unwrap_or_default();
    let effort = Effort {
        deadline: Instant::now() + budget,
        max_labels,
        gap,
        cutoff,
    };
    let found = py
        .detach(|| search(&program, given, start, effort))
        .map_err(|error| PyValueError::new_err(error.to_string()))?;
    let outcome = match found.outcome {
        Outcome::Optimal => "optimal",
        Outcome::Feasible => "feasible",
        Outcome::Infeasible => "infeasible",
        Outcome::Unknown => "unknown",
    };
    let modes = found
        .modes
        .map(|modes| modes.into_iter().map(usize::from).collect());
    let duals = found
        .duals
        .into_iter()
        .map(|mut dual| {
            dual.weights.push(dual.goal);
            (dual.weights, dual.flows)
        })
        .collect();
    Ok((outcome, modes, found.bound, duals, found.order))
}

/// The module.
#[pymodule]
fn _lagcut(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(minimise, module)?)
}
