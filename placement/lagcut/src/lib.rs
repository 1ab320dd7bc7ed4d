//! Exact and fast placement of network functions on the host or a smart NIC.
//!
//! The problem is a *program*: each NF takes one of its modes, whole-number rows must not exceed their limits, and a goal
//! is minimised. The parts:
//!
//! - [`dual`]: with one sNIC, the Lagrangian relaxation of all rows is a minimum cut ([`cut`], [`maxflow`]); a small linear
//!   program ([`master`]) steers the rows' weights to the best bound. The cut's flow distributes that bound over the NFs.
//! - [`primal`]: placements that satisfy the rows, derived from the cuts.
//! - [`labels`]: all partial placements that a bound leaves open, NF by NF, with dominance ([`core`], [`table`], [`bucket`]).
//! - [`tree`]: branch and bound, each part with its own multipliers, reduced to its open modes ([`reduce`]).
//! - [`search`]: searches ever further above the bound, until it finds a placement and nothing below it remains.
//!
//! The specification is the plain Python in `placement/labels.py`, `placement/reduce.py`, `placement/proof.py` and
//! `placement/backends/lagcut.py`.

pub mod bucket;
pub mod core;
pub mod cut;
pub mod dual;
pub mod labels;
pub mod lists;
pub mod master;
pub mod maxflow;
pub mod primal;
pub mod program;
pub mod reduce;
pub mod search;
pub mod table;
pub mod tree;

#[cfg(feature = "python")]
mod python;
