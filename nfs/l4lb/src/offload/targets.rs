//! The rewrites that stand for the function: what it would do to a packet of a connection.

use nf_balancing::tuple::Tuple;
use nf_offload::{Direction, FlowKey, Rewrite, Target, TargetId};
use nf_packet::MacAddress;

use super::pins::tuple_of;
use crate::{
    config::Mode,
    snapshot::{Backend, Snapshot, Vip},
};

/// Targets of backends have the backend's number, those of answers higher ones.
pub const FIRST_ANSWER: u32 = 1 << 15;

/// The only port of a function whose flows a table can carry.
const PORT: u16 = 0;

/// Tells whether a rule can do to the packets of a VIP what the function does.
pub fn is_fit(vip: &Vip) -> bool {
    vip.mode == Mode::Nat && !vip.has_sessions()
}

/// Returns the treatment of packets to a backend. None: a rule cannot do it, or the backend's MAC address is unknown.
pub fn to_backend(snapshot: &Snapshot, backend: &Backend, own: MacAddress) -> Option<Target> {
    if !is_fit(&snapshot.vips[backend.vip]) {
        return None;
    }
    Some(Target {
        rewrite: Rewrite {
            source_mac: own,
            destination_mac: backend.way.mac()?,
            source: None,
            destination: Some((backend.address, backend.port)),
            tunnel: None,
        },
        port: PORT,
    })
}

/// Returns the treatment of a VIP's answers by way of this station.
pub fn to_client(vip: &Vip, station: MacAddress, own: MacAddress) -> Target {
    Target {
        rewrite: Rewrite {
            source_mac: own,
            destination_mac: station,
            source: Some((vip.address, vip.port)),
            destination: None,
            tunnel: None,
        },
        port: PORT,
    }
}

pub fn id_of(backend: u16) -> TargetId {
    TargetId(backend.into())
}

/// Returns the flow of the answers to a connection's packets.
pub fn answers_to(flow: &FlowKey, backend: &Backend) -> FlowKey {
    let requests = tuple_of(flow);
    super::pins::key_of(&Tuple {
        source: backend.address.into(),
        destination: requests.source,
        source_port: backend.port,
        destination_port: requests.source_port,
        protocol: requests.protocol,
    })
}

/// Returns the flow of a connection's packets in the client's direction.
pub fn requests_of(flow: &FlowKey, direction: Direction, vip: &Vip) -> FlowKey {
    if direction == Direction::ToBackend {
        return *flow;
    }
    let answers = tuple_of(flow);
    super::pins::key_of(&Tuple {
        source: answers.destination,
        destination: vip.address.into(),
        source_port: answers.destination_port,
        destination_port: vip.port,
        protocol: answers.protocol,
    })
}
