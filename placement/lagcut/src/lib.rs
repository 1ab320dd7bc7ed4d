//! Which network functions run on the host and which on a smart NIC, exactly and fast.
//!
//! The problem is a *program*: each NF takes one of its modes, whole-number rows must not exceed their limits, and a goal
//! is minimised. Three parts, each a file:
//!
//! - [`dual`]: with one sNIC, the Lagrangian relaxation of all rows is a minimum cut ([`maxflow`]); a small linear program
//!   ([`master`]) steers the rows' weights to the best bound. The cut's flow distributes that bound over the NFs.
//! - [`labels`]: all partial placements that the bound leaves open, NF by NF, with dominance.
//! - [`search`]: looks for placements just above the bound, further and further, until one is found and nothing is left.
//!
//! The specification is the plain Python in `placement/labels.py` and `placement/backends/lagcut.py`.

pub mod core;
pub mod dual;
pub mod labels;
pub mod master;
pub mod maxflow;
pub mod primal;
pub mod program;
pub mod search;

#[cfg(feature = "python")]
mod python;
