//! The offload tables of `edge` (docs/architecture.md, "Offload").
//!
//! Open vSwitch caches a flow with the bits that decided about it. An exact match on ports makes it look at the ports of every packet that
//! the same table sees with the same mask, so that each small flow would get a cache entry of its own. The flows are therefore spread over
//! tables by 6 bits of the clients' address, and in a table over masks by 4 more: a packet whose client shares these bits with no flow is
//! cached without its ports, and others with few bits of them.

use crate::layout::encoding::{resubmit, set_field, UNTAGGED};
use crate::layout::messages::group_removal;
use crate::model::tables::ALL_TABLES;
use crate::offload::adoption::Found;
use crate::offload::flows::Flow;
use crate::offload::ports::Ways;
use crate::offload::requests::{
    Clients, FlowEnd, FlowKey, FlowProtocol, OffloadRewrite, OffloadTarget,
};
use openflow13::{
    group_no, group_type, meter_flags, oxm_class, port_no, Action, ActionList, Buckets, FlowMod,
    FlowModCommand, FlowStats, FlowStatsRequest, GroupDesc, GroupMod, GroupModCommand, Instruction,
    Instructions, Match, MeterBand, MeterMod, MeterModCommand,
};
use std::net::IpAddr;

/// Tables of each direction.
const SPREAD: u8 = 64;
/// Masks in each of these tables.
const MASKS: u8 = 16;
/// Chooses by the source; its tables follow.
const BY_SOURCE: u8 = 2;
/// Chooses by the destination what no rule of a source's table has matched; its tables follow.
const BY_DESTINATION: u8 = BY_SOURCE + 1 + SPREAD;
/// Delivers to the interface.
const LAST: u8 = BY_DESTINATION + 1 + SPREAD;
/// Priority of a flow's rule.
const RULE_PRIORITY: u16 = 200;
/// NXM_NX_REG1, the port's number.
const REGISTER: [u8; 4] = [0, 1, 1 << 1, 4];
/// NXM_NX_REG2, the bits of the client's address that choose the mask.
const MASK: [u8; 4] = [0, 1, 2 << 1, 4];
/// NXM_NX_REG3, which is always 0: rules match different bits of it, so that Open vSwitch keeps them apart.
const ZERO: [u8; 4] = [0, 1, 3 << 1 | 1, 8];
/// NXM_NX_REG4, the port as which packets leave unchanged. Nothing matches it: it tells a restarted oneswitchd.
const LEAVES_AS: [u8; 4] = [0, 1, 4 << 1, 4];
/// The addresses of IPv4 and IPv6, as Open vSwitch names them in NXAST_REG_MOVE.
const NXM_SRC: [[u8; 4]; 2] = [[0, 0, 7 << 1, 4], [0, 1, 19 << 1, 16]];
const NXM_DST: [[u8; 4]; 2] = [[0, 0, 8 << 1, 4], [0, 1, 20 << 1, 16]];
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

/// Tells whether rules of this table and priority are flows' rules.
pub fn is_ours(table: u8, priority: u16) -> bool {
    (BY_SOURCE..LAST).contains(&table) && priority == RULE_PRIORITY
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
    let mut actions = set_field(&register_of(number));
    actions.extend(resubmit(BY_SOURCE));
    actions
}

/// Returns the match of the rule that delivers to a port's interface, and its table.
pub fn delivery(number: u32) -> (u8, Match) {
    (LAST, of_port(number))
}

/// Matches every offload rule of a port, and its packets.
fn of_port(number: u32) -> Match {
    match_of(register_of(number))
}

fn register_of(number: u32) -> Vec<u8> {
    [&REGISTER[..], &number.to_be_bytes()].concat()
}

/// Returns the rules that choose a flow's table: table, match and actions of each.
pub fn choosers() -> Vec<(u8, Match, ActionList)> {
    let mut rules = Vec::new();
    for (chooser, v4, v6, nxm) in [
        (BY_SOURCE, field::IPV4_SRC, field::IPV6_SRC, &NXM_SRC),
        (BY_DESTINATION, field::IPV4_DST, field::IPV6_DST, &NXM_DST),
    ] {
        for bits in 0..SPREAD {
            let table = chooser + 1 + bits;
            for (version, number, length, nxm) in [(IPV4, v4, 4, nxm[0]), (IPV6, v6, 16, nxm[1])] {
                let mut value = vec![0; length];
                let mut mask = value.clone();
                (value[length - 1], mask[length - 1]) = (bits, SPREAD - 1);
                let mut oxm = UNTAGGED.to_vec();
                oxm.extend(basic(field::ETH_TYPE, &version.to_be_bytes()));
                oxm.extend(masked(number, &value, &mask));
                let mut actions = choose_mask(nxm);
                actions.extend(resubmit(table));
                rules.push((chooser, match_of(oxm), list(actions)));
            }
        }
    }
    rules
}

/// Encodes NXAST_REG_MOVE: the bits of an address that follow those which choose the table, to the register.
fn choose_mask(address: [u8; 4]) -> Vec<u8> {
    let (bits, skipped) = (MASKS.trailing_zeros() as u8, SPREAD.trailing_zeros() as u8);
    let mut action = vec![0xff, 0xff, 0, 24, 0, 0, 0x23, 0x20, 0, 6];
    action.extend([0, bits, 0, skipped, 0, 0]);
    action.extend(address);
    action.extend(MASK);
    action
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

/// Returns the last 16 bits of a client's address.
fn client_of(key: &FlowKey, clients: Clients) -> u16 {
    let client = match clients {
        Clients::Source => key.source.0,
        Clients::Destination => key.destination.0,
    };
    match client {
        IpAddr::V4(address) => address.to_bits() as u16,
        IpAddr::V6(address) => address.to_bits() as u16,
    }
}

/// Returns the table of a flow's rule.
fn table_of(key: &FlowKey, clients: Clients) -> u8 {
    let chooser = match clients {
        Clients::Source => BY_SOURCE,
        Clients::Destination => BY_DESTINATION,
    };
    chooser + 1 + (client_of(key, clients) % u16::from(SPREAD)) as u8
}

fn address_field(address: IpAddr, v4: u8, v6: u8) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => basic(v4, &address.octets()),
        IpAddr::V6(address) => basic(v6, &address.octets()),
    }
}

fn matching(number: u32, key: &FlowKey, clients: Clients) -> Match {
    let (version, protocol) = match key.source.0 {
        IpAddr::V4(_) => (IPV4, key.protocol as u8),
        IpAddr::V6(_) => (IPV6, key.protocol as u8),
    };
    let (from, to) = match key.protocol {
        FlowProtocol::Tcp => (field::TCP_SRC, field::TCP_DST),
        FlowProtocol::Udp => (field::UDP_SRC, field::UDP_DST),
    };
    let mut oxm = register_of(number);
    let mask = u32::from(client_of(key, clients) / u16::from(SPREAD) % u16::from(MASKS));
    oxm.extend([&MASK[..], &mask.to_be_bytes()].concat());
    oxm.extend([&ZERO[..], &[0; 4], &(mask + 1).to_be_bytes()].concat());
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
    let group = ActionList::new().group(within(number, flow.target));
    let mut instructions = vec![0, 6, 0, 8]; // OFPIT_METER
    instructions.extend(within(number, flow.counter).to_be_bytes());
    instructions.extend(Instructions::apply(&group).as_bytes());
    FlowMod {
        cookie: rule,
        instructions: Instructions::from_bytes(instructions).unwrap_or_default(),
        ..FlowMod::new(
            FlowModCommand::Add,
            table_of(&flow.key, flow.clients),
            RULE_PRIORITY,
            matching(number, &flow.key, flow.clients),
        )
    }
}

/// Builds the meter of a counter, which counts in the data path. Open vSwitch credits packets that the data path has not reported yet to
/// the rules that lead now, so counts of rules are inexact while rules change under traffic.
pub fn meter(number: u32, counter: u16) -> MeterMod {
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
        meter_id: within(number, counter),
        bands: bands.into(),
    }
}

pub fn meter_removal(meter_id: u32) -> MeterMod {
    MeterMod {
        command: MeterModCommand::Delete,
        flags: 0,
        meter_id,
        bands: Box::default(),
    }
}

/// Builds the removal of a flow's rule.
pub fn removal(number: u32, rule: u64) -> FlowMod {
    FlowMod {
        cookie: rule,
        cookie_mask: u64::MAX,
        ..removal_of_all(number)
    }
}

/// Builds the removal of all rules of a port.
pub fn removal_of_all(number: u32) -> FlowMod {
    FlowMod::new(FlowModCommand::Delete, ALL_TABLES, 0, of_port(number))
}

/// Builds a request for the rules of a port.
pub fn request(number: u32) -> FlowStatsRequest {
    FlowStatsRequest {
        table_id: ALL_TABLES,
        out_port: port_no::ANY,
        out_group: group_no::ANY,
        cookie: 0,
        cookie_mask: 0,
        matching: of_port(number),
    }
}

/// Returns the id of a port's target among the groups, or of its counter among the meters.
fn within(number: u32, own: u16) -> u32 {
    number << 16 | u32::from(own)
}

/// Returns the meter of a port's counter.
pub fn meter_id(number: u32, counter: u16) -> u32 {
    within(number, counter)
}

/// Returns the port and its counter that a meter counts for.
pub fn counter_of(meter_id: u32) -> (u32, u16) {
    (meter_id >> 16, meter_id as u16)
}

/// Builds the group of a target. `ways`: the last actions.
pub fn group(number: u32, target: u16, treatment: &OffloadTarget, ways: &Ways) -> GroupMod {
    let actions = match treatment {
        OffloadTarget::Rewrite(rewrite) => {
            let mut actions = rewriting(rewrite);
            actions.extend(ways.own.as_bytes());
            actions
        }
        OffloadTarget::Pass(peer) => passing(*peer, ways),
        OffloadTarget::Deny => Vec::new(),
    };
    let actions = list(actions);
    GroupMod {
        command: GroupModCommand::AddOrModify,
        group_type: group_type::INDIRECT,
        group_id: within(number, target),
        buckets: Buckets::build([(0, port_no::ANY, group_no::ANY, &actions)]),
        selection: None,
    }
}

/// Returns actions that let a packet leave as if another port had sent it. Where that port is at another switch, the function gets the packet.
fn passing(peer: u32, ways: &Ways) -> Vec<u8> {
    let mut actions = set_field(&[&LEAVES_AS[..], &peer.to_be_bytes()].concat());
    match ways.peers.get(&peer) {
        Some(way) => actions.extend(way.as_bytes()),
        None => actions.extend(resubmit(LAST)),
    }
    actions
}

fn rewriting(rewrite: &OffloadRewrite) -> Vec<u8> {
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
    actions
}

pub fn target_removal(number: u32, target: u16) -> GroupMod {
    group_removal(within(number, target))
}

/// Reads a reported rule; `None` if it is not as oneswitchd would have written it.
pub fn reported(flow: &FlowStats) -> Option<Found> {
    let number = register(&flow.matching)?;
    let key = key_of(&flow.matching)?;
    let clients = match flow.table_id {
        table if table > BY_DESTINATION => Clients::Destination,
        _ => Clients::Source,
    };
    let group = flow.instructions.iter().find_map(|i| match i {
        Instruction::ApplyActions(actions) => actions.iter().find_map(|item| match item.action {
            Action::Group(group) => Some(group),
            _ => None,
        }),
        _ => None,
    });
    let meter = flow.instructions.iter().find_map(|i| match i {
        Instruction::Meter(meter) => Some(meter),
        _ => None,
    });
    let own = |id: Option<u32>| Some(id.filter(|id| id >> 16 == number)? as u16);
    let is_ours = flow.priority == RULE_PRIORITY
        && table_of(&key, clients) == flow.table_id
        && matching(number, &key, clients).canonical() == flow.matching.canonical();
    let (target, counter) = own(group).zip(own(meter)).filter(|_| is_ours)?;
    Some(Found {
        number,
        rule: flow.cookie,
        key,
        clients,
        target,
        counter,
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

/// Reads a reported target: its port's number, its own, and the treatment.
pub fn reported_target(group: &GroupDesc) -> Option<(u32, u16, OffloadTarget)> {
    let bucket = group.buckets.iter().next()?;
    let mut fields = bucket.actions.iter().filter_map(|item| match item.action {
        Action::SetField(set) => Some(set),
        _ => None,
    });
    let is_peer = |set: &openflow13::OxmField<'_>| {
        (set.class, set.field) == (oxm_class::NXM_1, LEAVES_AS[2] >> 1)
    };
    let treatment = if bucket.actions.is_empty() {
        OffloadTarget::Deny
    } else if let Some(peer) = fields.clone().find(is_peer) {
        OffloadTarget::Pass(u32::from_be_bytes(peer.value.try_into().ok()?))
    } else {
        OffloadTarget::Rewrite(reported_rewrite(&mut fields)?)
    };
    Some((group.group_id >> 16, group.group_id as u16, treatment))
}

fn reported_rewrite<'a>(
    fields: &mut dyn Iterator<Item = openflow13::OxmField<'a>>,
) -> Option<OffloadRewrite> {
    let (mut macs, mut ends) = ([None; 2], [(None, None); 2]);
    for set in fields {
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
    Some(OffloadRewrite {
        eth_src: macs[0]?,
        eth_dst: macs[1]?,
        source: end(ends[0]),
        destination: end(ends[1]),
    })
}
