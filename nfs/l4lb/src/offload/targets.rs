//! The rewrites that stand for the function: what it would do to a packet of a connection.

use nf_balancing::tuple::Tuple;
use nf_offload::{Direction, FlowKey, Rewrite, Rewrites, Target, TargetId, Tunnel};
use nf_packet::{MacAddress, TunnelKind};

use super::pins::tuple_of;
use crate::{
    config::Mode,
    snapshot::{Backend, Snapshot, Vip},
};

/// Targets of backends have the backend's number, those of answers higher ones.
pub const FIRST_ANSWER: u32 = 1 << 15;

/// The only port of a function whose flows a table can carry.
pub const PORT: u16 = 0;

/// Tells whether a rule of this table can do to the packets of a VIP what the function does.
pub fn is_fit(snapshot: &Snapshot, vip: &Vip, table: Rewrites) -> bool {
    if table == Rewrites::NONE {
        // The function itself rewrites what the table has marked.
        return !vip.has_sessions();
    }
    match vip.mode {
        Mode::Nat => table.source && table.destination && !vip.has_sessions(),
        // Another endpoint's tunnel would be a difference that backends notice.
        Mode::Vxlan => table.destination && table.vxlan && snapshot.vtep.is_some(),
        Mode::Ipip | Mode::Gue => false,
    }
}

/// Returns the treatment of packets to a backend. None: a rule cannot do it, or the backend's MAC address is unknown.
pub fn to_backend(
    snapshot: &Snapshot,
    backend: &Backend,
    own: MacAddress,
    table: Rewrites,
) -> Option<Target> {
    if !is_fit(snapshot, &snapshot.vips[backend.vip], table) {
        return None;
    }
    if table == Rewrites::NONE {
        return Some(Target::MARK);
    }
    Some(Target::Rewrite {
        rewrite: Rewrite {
            source_mac: own,
            destination_mac: backend.way.mac()?,
            source: None,
            destination: Some((backend.inside.unwrap_or(backend.address), backend.port)),
            tunnel: tunnel_to(snapshot, backend),
        },
        port: PORT,
    })
}

fn tunnel_to(snapshot: &Snapshot, backend: &Backend) -> Option<Tunnel> {
    let tunnel = backend.tunnel.as_ref()?;
    let TunnelKind::Vxlan { network, station } = tunnel.kind() else {
        return None;
    };
    Some(Tunnel {
        local: tunnel.source(),
        remote: tunnel.destination(),
        network,
        inner: (snapshot.vtep?, station),
    })
}

/// Returns the treatment of a VIP's answers by way of this station.
pub fn to_client(vip: &Vip, station: MacAddress, own: MacAddress) -> Target {
    Target::Rewrite {
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
