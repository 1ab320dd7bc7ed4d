//! The kinds of network functions in this binary.

use std::path::Path;

use nf_assets::Assets;
use nf_firewall::{Firewall, Ndpi};
use nf_ipsec::Ipsec;
use nf_l4lb::L4lb;
use nf_l7lb::L7lb;
use nf_limiter::Limiter;
use nf_runtime::NetworkFunction;
use nf_tiara::{TnicFunction, Tswitch};

use crate::{
    check::check,
    failure::Failure,
    forward::Forward,
    replay::{replay, Files},
    run::{run, Running},
};

/// A kind of network function, with the ways to run it.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) schema: u32,
    pub(crate) offloaded_ports: usize,
    /// The places of its configuration that name files or sockets; `[]` stands for each element of a list. Those who may not open all files may not name
    /// them either.
    pub(crate) files: &'static [&'static str],
    pub(crate) run: fn(&Running<'_>) -> Result<(), Failure>,
    pub(crate) check: fn(&Path, usize) -> Result<(), Failure>,
    pub(crate) replay: fn(&Files<'_>) -> Result<(), Failure>,
}

impl Kind {
    const fn of<N: NetworkFunction>(files: &'static [&'static str]) -> Self {
        Self {
            name: N::KIND,
            summary: N::SUMMARY,
            schema: N::SCHEMA,
            offloaded_ports: N::OFFLOADED_PORTS,
            files,
            run: run::<N>,
            check: check::<N>,
            replay: replay::<N>,
        }
    }
}

/// All kinds. Add a new one by adding a line, with the places of its configuration that name files.
pub(crate) const KINDS: &[Kind] = &[
    Kind::of::<L4lb>(&[]),
    Kind::of::<L7lb>(&[
        "log.path",
        "listeners[].tls.certificate",
        "listeners[].tls.key",
        "listeners[].tls.signer",
        "listeners[].tls.certificates[].certificate",
        "listeners[].tls.certificates[].key",
        "listeners[].tls.certificates[].signer",
    ]),
    Kind::of::<Limiter>(&[]),
    Kind::of::<Assets>(&["signatures", "log"]),
    Kind::of::<Firewall<Ndpi>>(&["log", "inspection.helper"]),
    Kind::of::<Ipsec>(&[
        "tunnels[].outbound[].secret_file",
        "tunnels[].inbound[].secret_file",
    ]),
    Kind::of::<Tswitch>(&[]),
    Kind::of::<TnicFunction>(&["tswitch.control", "muxes[].socket"]),
    Kind::of::<Forward>(&[]),
];

/// # Errors
/// If no kind has this name; lists the kinds.
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
            "unknown kind of network function {name:?}; expected one of {}",
            known()
        ))
    })
}
