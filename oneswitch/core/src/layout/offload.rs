//! The offload tables of `edge` (docs/architecture.md, "Offload").
//!
//! Open vSwitch caches a flow with the bits that decided about it. An exact match on ports makes it look at the ports of every packet that
//! the same table sees, so that each small flow would get a cache entry of its own. The flows are therefore spread over tables by 6 bits of
//! the clients' address: a packet whose client shares a table with no flow is cached without its ports.

use crate::layout::encoding::{resubmit, set_field, UNTAGGED};
use crate::layout::messages::group_removal;
use crate::model::tables::ALL_TABLES;
use crate::offload::flows::Flow;
use crate::offload::requests::{Clients, FlowEnd, FlowKey, FlowProtocol, OffloadTarget};
use openflow13::{
    group_no, group_type, meter_flags, oxm_class, port_no, Action, ActionList, Buckets, FlowMod,
    FlowModCommand, FlowStats, FlowStatsRequest, GroupDesc, GroupMod, GroupModCommand,
    Instructions, Match, MeterBand, MeterMod, MeterModCommand,
};
use std::net::IpAddr;

/// Tables of each direction.
const SPREAD: u8 = 64;
/// Chooses by the source; its tables follow.
const BY_SOURCE: u8 = 2;
/// Chooses by the destination what no rule of a source's table has matched; its tables follow.
const BY_DESTINATION: u8 = BY_SOURCE + 1 + SPREAD;
/// Delivers to the interface.
const LAST: u8 = BY_DESTINATION + 1 + SPREAD;
/// Priorities of a flow's rule, and of the shadow that ends it.
const RULE_PRIORITY: u16 = 200;
const SHADOW_PRIORITY: u16 = 300;
/// Set in the register together with the port's number. Only rules match it, so that it selects them in requests, without their shadows.
const CARRIED: u32 = 1 << 31;
/// NXM_NX_REG1, exact and masked.
const REGISTER: [u8; 4] = [0, 1, 1 << 1, 4];
const REGISTER_MASKED: [u8; 4] = [0, 1, 1 << 1 | 1, 8];
/// NXM_NX_IP_FRAG: none.
const UNFRAGMENTED: [u8; 5] = [0, 1, 26 << 1, 1, 0];
/// NXM_NX_TCP_FLAGS: neither FIN, SYN nor RST.
const ESTABLISHED: [u8; 8] = [0, 1, 34 << 1 | 1, 4, 0, 0, 0, 7];
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
/// OFPAT_DEC_NW_TTL.
const DEC_TTL: [u8; 8] = [0, 24, 0, 8, 0, 0, 0, 0];

/// Fields of class OFPXMC_OPENFLOW_BASIC.
mod field {
    pub const ETH_DST: u8 = 3;
    pub const ETH_SRC: u8 = 4;
    pub const ETH_TYPE: u8 = 5;
    pub const IP_PROTO: u8 = 10;
    pub const IPV4_SRC: u8 = 11;
    pub const IPV4_DST: u8 = 12;
    pub const TCP_SRC: u8 = 13;
    pub const TCP_DST: u8 = 14;
    pub const UDP_SRC: u8 = 15;
    pub const UDP_DST: u8 = 16;
    pub const IPV6_SRC: u8 = 26;
    pub const IPV6_DST: u8 = 27;
}

/// Tells whether rules of this table and priority are flows' rules or shadows.
pub fn is_ours(table: u8, priority: u16) -> bool {
    (BY_SOURCE..LAST).contains(&table) && [RULE_PRIORITY, SHADOW_PRIORITY].contains(&priority)
}

/// Tells whether a group of `edge` is a target.
pub fn is_target(group: u32) -> bool {
    group >> 16 != 0
}

fn basic(number: u8, value: &[u8]) -> Vec<u8> {
    let mut oxm = vec![0x80, 0, number << 1, value.len() as u8];
    oxm.extend(value);
    oxm
}

fn masked(number: u8, value: &[u8], mask: &[u8]) -> Vec<u8> {
    let mut oxm = vec![0x80, 0, number << 1 | 1, 2 * value.len() as u8];
    oxm.extend(value);
    oxm.extend(mask);
    oxm
}

fn match_of(oxm: Vec<u8>) -> Match {
    Match::from_oxm(oxm).unwrap_or_default()
}

fn list(actions: Vec<u8>) -> ActionList {
    ActionList::from_bytes(actions).unwrap_or_default()
}

/// Returns actions that give a packet for a port to the offload tables.
pub fn entrance(number: u32) -> Vec<u8> {
    let register = [&REGISTER[..], &(CARRIED | number).to_be_bytes()].concat();
    let mut actions = set_field(&register);
    actions.extend(resubmit(BY_SOURCE));
    actions
}

/// Returns the match of the rule that delivers to a port's interface, and its table.
pub fn delivery(number: u32) -> (u8, Match) {
    (LAST, of_port(number))
}

/// Matches every offload rule of a port, and its packets.
fn of_port(number: u32) -> Match {
    match_of(register_of(number, SHADOW_PRIORITY))
}

/// Encodes the register of a port's packets, as rules of this priority match it.
fn register_of(number: u32, priority: u16) -> Vec<u8> {
    let (value, mask) = (number.to_be_bytes(), (!CARRIED).to_be_bytes());
    match priority {
        RULE_PRIORITY => [&REGISTER[..], &(CARRIED | number).to_be_bytes()].concat(),
        _ => [&REGISTER_MASKED[..], &value, &mask].concat(),
    }
}

/// Returns the rules that choose a flow's table: table, match and actions of each.
pub fn choosers() -> Vec<(u8, Match, ActionList)> {
    let mut rules = Vec::new();
    for (chooser, v4, v6) in [
        (BY_SOURCE, field::IPV4_SRC, field::IPV6_SRC),
        (BY_DESTINATION, field::IPV4_DST, field::IPV6_DST),
    ] {
        for bits in 0..SPREAD {
            let table = chooser + 1 + bits;
            for (version, number, length) in [(IPV4, v4, 4), (IPV6, v6, 16)] {
                let mut value = vec![0; length];
                let mut mask = value.clone();
                (value[length - 1], mask[length - 1]) = (bits, SPREAD - 1);
                let mut oxm = UNTAGGED.to_vec();
                oxm.extend(basic(field::ETH_TYPE, &version.to_be_bytes()));
                oxm.extend(masked(number, &value, &mask));
                rules.push((chooser, match_of(oxm), list(resubmit(table))));
            }
        }
    }
    rules
}

/// Returns the rules for packets that no other rule of a table matches: table and actions of each.
pub fn misses() -> Vec<(u8, ActionList)> {
    let of_sources = (BY_SOURCE + 1..BY_DESTINATION).map(|table| (table, BY_DESTINATION));
    let of_destinations = (BY_DESTINATION + 1..LAST).map(|table| (table, LAST));
    let of_choosers = [(BY_SOURCE, LAST), (BY_DESTINATION, LAST)];
    let all = of_sources.chain(of_destinations).chain(of_choosers);
    all.map(|(table, next)| (table, list(resubmit(next))))
        .collect()
}

/// Returns the table of a flow's rule.
fn table_of(key: &FlowKey, clients: Clients) -> u8 {
    let (chooser, client) = match clients {
        Clients::Source => (BY_SOURCE, key.source.0),
        Clients::Destination => (BY_DESTINATION, key.destination.0),
    };
    let last = match client {
        IpAddr::V4(address) => address.octets()[3],
        IpAddr::V6(address) => address.octets()[15],
    };
    chooser + 1 + last % SPREAD
}

fn address_field(address: IpAddr, v4: u8, v6: u8) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => basic(v4, &address.octets()),
        IpAddr::V6(address) => basic(v6, &address.octets()),
    }
}

fn matching(number: u32, key: &FlowKey, priority: u16) -> Match {
    let (version, protocol) = match key.source.0 {
        IpAddr::V4(_) => (IPV4, key.protocol as u8),
        IpAddr::V6(_) => (IPV6, key.protocol as u8),
    };
    let (from, to) = match key.protocol {
        FlowProtocol::Tcp => (field::TCP_SRC, field::TCP_DST),
        FlowProtocol::Udp => (field::UDP_SRC, field::UDP_DST),
    };
    let mut oxm = register_of(number, priority);
    oxm.extend(basic(field::ETH_TYPE, &version.to_be_bytes()));
    oxm.extend(UNFRAGMENTED);
    oxm.extend(basic(field::IP_PROTO, &[protocol]));
    oxm.extend(address_field(
        key.source.0,
        field::IPV4_SRC,
        field::IPV6_SRC,
    ));
    oxm.extend(address_field(
        key.destination.0,
        field::IPV4_DST,
        field::IPV6_DST,
    ));
    oxm.extend(basic(from, &key.source.1.to_be_bytes()));
    oxm.extend(basic(to, &key.destination.1.to_be_bytes()));
    if key.protocol == FlowProtocol::Tcp {
        oxm.extend(ESTABLISHED);
    }
    match_of(oxm)
}

/// Builds the rule of a flow.
pub fn rule(number: u32, rule: u64, flow: &Flow) -> FlowMod {
    let group = ActionList::new().group(group_of(number, flow.target));
    let mut instructions = vec![0, 6, 0, 8]; // OFPIT_METER
    instructions.extend(number.to_be_bytes());
    instructions.extend(Instructions::apply(&group).as_bytes());
    let instructions = Instructions::from_bytes(instructions).unwrap_or_default();
    built(number, rule, flow, RULE_PRIORITY, instructions)
}

/// Builds the meter that counts the packets which a port's rules carry, as its data path carries them. Open vSwitch credits packets that
/// the data path has not reported yet to the rules that lead now, so counts of rules are inexact while rules change under traffic.
pub fn meter(number: u32) -> MeterMod {
    let mut bands = Vec::new();
    let never = MeterBand {
        kind: 1,
        rate: u32::MAX,
        burst_size: 0,
        prec_level: 0,
    };
    never.put(&mut bands);
    MeterMod {
        command: MeterModCommand::Add,
        flags: meter_flags::PKTPS | meter_flags::STATS,
        meter_id: number,
        bands: bands.into(),
    }
}

pub fn meter_removal(number: u32) -> MeterMod {
    MeterMod {
        command: MeterModCommand::Delete,
        flags: 0,
        meter_id: number,
        bands: Box::default(),
    }
}

/// Builds the rule that ends a flow's rule, which stays below it with its counts.
pub fn shadow(number: u32, rule: u64, flow: &Flow) -> FlowMod {
    built(
        number,
        rule,
        flow,
        SHADOW_PRIORITY,
        Instructions::apply(&list(resubmit(LAST))),
    )
}

fn built(
    number: u32,
    rule: u64,
    flow: &Flow,
    priority: u16,
    instructions: Instructions,
) -> FlowMod {
    let table = table_of(&flow.key, flow.clients);
    FlowMod {
        cookie: rule,
        instructions,
        ..FlowMod::new(
            FlowModCommand::Add,
            table,
            priority,
            matching(number, &flow.key, priority),
        )
    }
}

/// Builds the removal of a flow's rule and of its shadow.
pub fn removal(number: u32, rule: u64) -> FlowMod {
    FlowMod {
        cookie: rule,
        cookie_mask: u64::MAX,
        ..removal_of_all(number)
    }
}

/// Builds the removal of all rules and shadows of a port.
pub fn removal_of_all(number: u32) -> FlowMod {
    FlowMod::new(FlowModCommand::Delete, ALL_TABLES, 0, of_port(number))
}

/// Builds a request for the rules of a port, without their shadows; `rule`: only for this one.
pub fn request(number: u32, rule: Option<u64>) -> FlowStatsRequest {
    FlowStatsRequest {
        table_id: ALL_TABLES,
        out_port: port_no::ANY,
        out_group: group_no::ANY,
        cookie: rule.unwrap_or(0),
        cookie_mask: rule.map_or(0, |_| u64::MAX),
        matching: match_of(register_of(number, RULE_PRIORITY)),
    }
}

fn group_of(number: u32, target: u16) -> u32 {
    number << 16 | u32::from(target)
}

/// Builds the group of a target. `way`: the last actions.
pub fn group(number: u32, target: u16, rewrite: &OffloadTarget, way: &ActionList) -> GroupMod {
    let mut actions = set_field(&basic(field::ETH_SRC, &rewrite.eth_src));
    actions.extend(set_field(&basic(field::ETH_DST, &rewrite.eth_dst)));
    // Open vSwitch sets only the ports of the packet's own protocol.
    if let Some((address, port)) = rewrite.source {
        let address = address_field(address, field::IPV4_SRC, field::IPV6_SRC);
        actions.extend(set_field(&address));
        actions.extend(set_field(&basic(field::TCP_SRC, &port.to_be_bytes())));
        actions.extend(set_field(&basic(field::UDP_SRC, &port.to_be_bytes())));
    }
    if let Some((address, port)) = rewrite.destination {
        let address = address_field(address, field::IPV4_DST, field::IPV6_DST);
        actions.extend(set_field(&address));
        actions.extend(set_field(&basic(field::TCP_DST, &port.to_be_bytes())));
        actions.extend(set_field(&basic(field::UDP_DST, &port.to_be_bytes())));
    }
    actions.extend(DEC_TTL);
    actions.extend(way.as_bytes());
    let actions = list(actions);
    GroupMod {
        command: GroupModCommand::AddOrModify,
        group_type: group_type::INDIRECT,
        group_id: group_of(number, target),
        buckets: Buckets::build([(0, port_no::ANY, group_no::ANY, &actions)]),
    }
}

pub fn target_removal(number: u32, target: u16) -> GroupMod {
    group_removal(group_of(number, target))
}

/// A rule or shadow as a switch reported it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reported {
    pub number: u32,
    pub key: FlowKey,
    pub clients: Clients,
    /// The target's number; `None` for a shadow.
    pub target: Option<u16>,
}

/// Reads a reported rule; `None` if it is not as oneswitchd would have written it.
pub fn reported(flow: &FlowStats) -> Option<Reported> {
    let number = register(&flow.matching)? & !CARRIED;
    let key = key_of(&flow.matching)?;
    let clients = match flow.table_id {
        table if table > BY_DESTINATION => Clients::Destination,
        _ => Clients::Source,
    };
    let group = flow.instructions.iter().find_map(|i| match i {
        openflow13::Instruction::ApplyActions(actions) => {
            actions.iter().find_map(|item| match item.action {
                Action::Group(group) => Some(group),
                _ => None,
            })
        }
        _ => None,
    });
    let is_meter = |i| matches!(i, openflow13::Instruction::Meter(meter) if meter == number);
    let is_metered = flow.instructions.iter().any(is_meter);
    let target = match (flow.priority, group) {
        (RULE_PRIORITY, Some(group)) if group >> 16 == number && is_metered => Some(group as u16),
        (SHADOW_PRIORITY, None) => None,
        _ => return None,
    };
    let is_ours = table_of(&key, clients) == flow.table_id
        && matching(number, &key, flow.priority).canonical() == flow.matching.canonical();
    is_ours.then_some(Reported {
        number,
        key,
        clients,
        target,
    })
}

fn register(matching: &Match) -> Option<u32> {
    matching
        .fields()
        .find(|f| (f.class, f.field) == (oxm_class::NXM_1, 1))
        .and_then(|f| Some(u32::from_be_bytes(f.value.try_into().ok()?)))
}

fn key_of(matching: &Match) -> Option<FlowKey> {
    let value = |numbers: &[u8]| {
        let is_wanted = |f: &openflow13::OxmField<'_>| {
            f.class == oxm_class::OPENFLOW_BASIC && numbers.contains(&f.field) && f.mask.is_none()
        };
        matching.fields().find(is_wanted).map(|f| f.value.to_vec())
    };
    let port = |numbers: &[u8]| Some(u16::from_be_bytes(value(numbers)?.try_into().ok()?));
    let protocol = match value(&[field::IP_PROTO])?.as_slice() {
        [6] => FlowProtocol::Tcp,
        [17] => FlowProtocol::Udp,
        _ => return None,
    };
    Some(FlowKey {
        protocol,
        source: (
            address(&value(&[field::IPV4_SRC, field::IPV6_SRC])?)?,
            port(&[field::TCP_SRC, field::UDP_SRC])?,
        ),
        destination: (
            address(&value(&[field::IPV4_DST, field::IPV6_DST])?)?,
            port(&[field::TCP_DST, field::UDP_DST])?,
        ),
    })
}

fn address(octets: &[u8]) -> Option<IpAddr> {
    match octets.len() {
        4 => Some(IpAddr::from(<[u8; 4]>::try_from(octets).ok()?)),
        _ => Some(IpAddr::from(<[u8; 16]>::try_from(octets).ok()?)),
    }
}

/// Reads a reported target: its port's number, its own, and the rewrite.
pub fn reported_target(group: &GroupDesc) -> Option<(u32, u16, OffloadTarget)> {
    let bucket = group.buckets.iter().next()?;
    let (mut macs, mut ends) = ([None; 2], [(None, None); 2]);
    for item in bucket.actions.iter() {
        let Action::SetField(set) = item.action else {
            continue;
        };
        if set.class != oxm_class::OPENFLOW_BASIC {
            continue;
        }
        let port = || Some(u16::from_be_bytes(set.value.try_into().ok()?));
        match set.field {
            field::ETH_SRC => macs[0] = set.value.try_into().ok(),
            field::ETH_DST => macs[1] = set.value.try_into().ok(),
            field::IPV4_SRC | field::IPV6_SRC => ends[0].0 = address(set.value),
            field::IPV4_DST | field::IPV6_DST => ends[1].0 = address(set.value),
            field::TCP_SRC => ends[0].1 = port(),
            field::TCP_DST => ends[1].1 = port(),
            _ => {}
        }
    }
    let end =
        |(address, port): (Option<IpAddr>, Option<u16>)| -> Option<FlowEnd> { address.zip(port) };
    let rewrite = OffloadTarget {
        eth_src: macs[0]?,
        eth_dst: macs[1]?,
        source: end(ends[0]),
        destination: end(ends[1]),
    };
    Some((group.group_id >> 16, group.group_id as u16, rewrite))
}
