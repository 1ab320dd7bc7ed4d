//! Messages, shortly.

use crate::lab::GRACE;
use oneswitch_core::{ExecutorRequest, MoveRequest, MoveUntil, PortRequest};
use openflow13::{
    group_no, group_type, port_no, ActionList, Buckets, FlowMod, FlowModCommand, FlowStatsRequest,
    GroupMod, GroupModCommand, Instructions, Match, Message, MeterBand, MeterMod, MeterModCommand,
    Multipart, MultipartRequest, PacketOut, ALL_TABLES, NO_BUFFER,
};
use std::time::Duration;

pub fn any() -> Match {
    Match::any()
}

pub fn from(port: u32) -> Match {
    any().with_in_port(port)
}

pub fn output(port: u32) -> ActionList {
    ActionList::new().output(port, 0)
}

/// An addition to table 0 at priority 10.
pub fn add(cookie: u64, matching: Match, actions: &ActionList) -> FlowMod {
    FlowMod {
        cookie,
        instructions: Instructions::apply(actions),
        ..FlowMod::new(FlowModCommand::Add, 0, 10, matching)
    }
}

/// A non-strict deletion from all tables.
pub fn delete(matching: Match) -> FlowMod {
    FlowMod {
        command: FlowModCommand::Delete,
        table_id: ALL_TABLES,
        ..add(0, matching, &ActionList::new())
    }
}

/// Adds a fast-failover group whose buckets watch ports, and output to them.
pub fn failover(id: u32, ports: &[u32]) -> Message {
    let buckets: Vec<_> = ports.iter().map(|p| (*p, group_no::ANY, *p)).collect();
    watching(GroupModCommand::Add, id, &buckets)
}

/// A fast-failover group; of each bucket: the port and the group that it watches, and the port that it outputs to.
pub fn watching(command: GroupModCommand, id: u32, buckets: &[(u32, u32, u32)]) -> Message {
    let outputs: Vec<ActionList> = buckets.iter().map(|(_, _, to)| output(*to)).collect();
    let buckets = buckets.iter().zip(&outputs);
    let buckets = buckets.map(|((port, group, _), output)| (0, *port, *group, output));
    Message::GroupMod(GroupMod {
        command,
        group_type: group_type::FAST_FAILOVER,
        group_id: id,
        buckets: Buckets::build(buckets),
        selection: None,
    })
}

pub fn group(command: GroupModCommand, id: u32, outputs: &[u32]) -> Message {
    let lists: Vec<ActionList> = outputs.iter().map(|p| output(*p)).collect();
    let buckets = lists
        .iter()
        .map(|list| (0, port_no::ANY, group_no::ANY, list));
    Message::GroupMod(GroupMod {
        command,
        group_type: group_type::ALL,
        group_id: id,
        buckets: Buckets::build(buckets),
        selection: None,
    })
}

pub fn meter(command: MeterModCommand, id: u32, rate: u32) -> Message {
    let mut bands = Vec::new();
    if command != MeterModCommand::Delete {
        let band = MeterBand {
            kind: 1,
            rate,
            burst_size: 0,
            prec_level: 0,
        };
        band.put(&mut bands);
    }
    Message::MeterMod(MeterMod {
        command,
        flags: openflow13::meter_flags::PKTPS,
        meter_id: id,
        bands: bands.into(),
    })
}

pub fn packet_out(in_port: u32, actions: ActionList) -> Message {
    Message::PacketOut(PacketOut {
        packet_type: 0,
        buffer_id: NO_BUFFER,
        in_port,
        actions,
        data: vec![0xab; 60].into(),
    })
}

pub fn request(body: MultipartRequest) -> Message {
    Message::MultipartRequest(Multipart::last(body))
}

pub fn everything() -> FlowStatsRequest {
    FlowStatsRequest {
        table_id: ALL_TABLES,
        out_port: port_no::ANY,
        out_group: group_no::ANY,
        cookie: 0,
        cookie_mask: 0,
        matching: any(),
    }
}

pub fn flow_stats() -> Message {
    request(MultipartRequest::Flow(everything()))
}

/// NXAST_REG_LOAD of NXM_OF_IN_PORT, then a look at the next table.
pub fn writes_in_port(port: u8) -> ActionList {
    let bytes = vec![
        0xff, 0xff, 0, 24, 0, 0, 0x23, 0x20, 0, 7, 0, 15, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, port,
    ];
    ActionList::from_bytes(bytes).unwrap()
}

/// A request to map a port to interface ifN of a switch.
pub fn port_request(number: u32, switch: &str, executor: Option<&str>) -> PortRequest {
    PortRequest {
        number: Some(number),
        name: None,
        switch: switch.into(),
        interface: format!("if{number}"),
        executor: executor.map(Into::into),
        owner: None,
    }
}

pub fn move_request(switch: &str, interface: &str, until: MoveUntil) -> MoveRequest {
    MoveRequest {
        switch: switch.into(),
        interface: interface.into(),
        until,
        settle: Duration::ZERO,
        grace: GRACE,
        force: false,
        owner: None,
    }
}

pub fn executor_request(executor: &str, until: MoveUntil) -> ExecutorRequest {
    ExecutorRequest {
        executor: executor.into(),
        until,
        settle: Duration::ZERO,
        grace: GRACE,
        force: false,
    }
}
