//! The Python module `placement._lagcut`.

use std::time::{Duration, Instant};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::program::{Dual, Form, Program, Row};
use crate::search::{minimise as search, Effort, Outcome};
use crate::tree::Step;

/// Per NF its coefficients, per arc its coefficient.
type PyForm = (Vec<(usize, Vec<i64>)>, Vec<(usize, i64)>);
/// Weights (the goal's last) and flows.
type PyDual = (Vec<i64>, Vec<i64>);
/// Kind, multipliers, NFs and modes, order: as far as the kind has them.
type PyStep = (&'static str, Option<PyDual>, Vec<(usize, u32)>, Vec<usize>);
/// Outcome, modes, bound, multipliers, proof.
type PyFound = (&'static str, Option<Vec<usize>>, i64, PyDual, Vec<PyStep>);

fn form(given: PyForm) -> Form {
    let (nfs, coefs) = given.0.into_iter().unzip::<_, _, Vec<_>, Vec<_>>();
    Form {
        nfs,
        coefs: coefs.into_iter().collect(),
        cross: given.1,
    }
}

/// Minimise a goal; see `placement.backends.lagcut`.
#[pyfunction]
#[pyo3(signature = (sites, arcs, rows, goal, dual, start, seconds, max_labels, gap))]
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
) -> PyResult<PyFound> {
    let rows = rows
        .into_iter()
        .map(|(left, limit)| Row {
            form: form(left),
            limit,
        })
        .collect();
    let program = Program {
        sites: sites.into_iter().collect(),
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
    let steps = found.proof.into_iter().map(step).collect();
    Ok((outcome, modes, found.bound, multipliers(found.dual), steps))
}

fn multipliers(mut dual: Dual) -> PyDual {
    dual.weights.push(dual.goal);
    (dual.weights, dual.flows)
}

fn step(step: Step) -> PyStep {
    match step {
        Step::Close { dual, closed } => {
            let pairs = closed.into_iter().map(|(nf, mode)| (nf, u32::from(mode)));
            (
                "close",
                Some(multipliers(dual)),
                pairs.collect(),
                Vec::new(),
            )
        }
        Step::Split { nf, modes } => {
            let pairs = modes.into_iter().map(|mode| (nf, u32::from(mode)));
            ("split", None, pairs.collect(), Vec::new())
        }
        Step::Walk { dual, order } => ("walk", Some(multipliers(dual)), Vec::new(), order),
    }
}

/// The module.
#[pymodule]
fn _lagcut(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(minimise, module)?)
}
