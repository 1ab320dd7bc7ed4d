//! Which kinds of network functions there are.

use nf_l4lb::L4lb;
use nf_limiter::Limiter;
use nf_runtime::NetworkFunction;

use crate::{
    failure::Failure,
    forward::Forward,
    replay::{replay, Files},
    run::{run, Running},
};

/// A kind of network function, and how it is run.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) schema: u32,
    pub(crate) run: fn(&Running<'_>) -> Result<(), Failure>,
    pub(crate) replay: fn(&Files<'_>) -> Result<(), Failure>,
}

impl Kind {
    const fn of<N: NetworkFunction>() -> Self {
        Self {
            name: N::KIND,
            summary: N::SUMMARY,
            schema: N::SCHEMA,
            run: run::<N>,
            replay: replay::<N>,
        }
    }
}

/// All of them. A new one is one more line here.
pub(crate) const KINDS: &[Kind] = &[
    Kind::of::<L4lb>(),
    Kind::of::<Limiter>(),
    Kind::of::<Forward>(),
];

/// # Errors
/// There is none of this name; says which there are.
pub(crate) fn find(name: &str) -> Result<&'static Kind, Failure> {
    let known = || {
        KINDS
            .iter()
            .map(|kind| kind.name)
            .collect::<Vec<_>>()
            .join(", ")
    };
    KINDS.iter().find(|kind| kind.name == name).ok_or_else(|| {
        Failure::new(format!(
            "no kind of network function {name:?}; there are: {}",
            known()
        ))
    })
}
