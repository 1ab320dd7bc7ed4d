//! The journal, from which a restarted daemon restores the virtual switch (docs/architecture.md, "Restarts").
//!
//! A log of changes to the virtual tables, in the order of settling. The core produces bytes to append, the daemon stores them.
//!
//! ```text
//! journal = magic record*
//! record  = length !length checksum kind time payload      u32 u32 u32 u8 u64 bytes; length: of kind, time and payload
//! ```
//!
//! Numbers are big-endian, times nanoseconds since 1970. The complement of the length distinguishes a truncated record, which is normal
//! after a kill, from a damaged length.

use crate::journal::moves::{self, array};
use crate::journal::port_counters;
use crate::layout::messages::messages_of_group;
use crate::layout::translate::removal_of;
use crate::model::groups::Group;
use crate::model::rule::{Counters, Rule, RuleKey};
use crate::model::truth::{Changes, Meter, Request, Truth};
use crate::offload::flows::{Counted, Totals};
use crate::server::counters::counters;
use crate::server::flow_ids::FlowId;
use crate::server::ports::VirtualPort;
use crate::server::Server;
use openflow13::{
    FlowMod, FlowModCommand, GroupMod, GroupModCommand, GroupStats, Message, MeterMod,
    MeterModCommand, Multipart, MultipartReply,
};
use std::fmt;
use std::time::{Duration, Instant};

/// The last byte is the format's version.
pub const MAGIC: [u8; 8] = *b"1switch\x04";
/// Bytes of a record before its kind.
pub const FRAMING: usize = 12;
/// Kind and time.
pub const HEAD: usize = 9;
/// Limit of a record's length: neither an OpenFlow message with its record header nor the settings of all ports is longer.
pub const LENGTH_MAX: usize = 1 << 24;

/// Kinds of records.
pub mod kind {
    /// An accepted flow-mod, group-mod or meter-mod; the time is when it was applied.
    pub const CHANGE: u8 = 1;
    /// A current rule: time of the last change, packets, bytes, then a flow-mod; the time is its creation.
    pub const RULE: u8 = 2;
    /// Counters of removed copies: packets, bytes, then the flow-mod that would remove the rule.
    pub const FOLD: u8 = 3;
    /// Everything except rules, groups and meters; see [`super::Settings`].
    pub const SETTINGS: u8 = 4;
    /// Counters of removed copies of groups or meters: a multipart reply with their statistics.
    pub const COUNTED: u8 = 5;
    /// The current moves; see [`crate::journal::moves`].
    pub const MOVES: u8 = 6;
    /// Quarantined flow-ids.
    pub const RETIRED: u8 = 7;
    /// The number of bytes of the next records, which count only together: a bundle's.
    pub const JOINED: u8 = 8;
    /// The configurations of tables.
    pub const TABLES: u8 = 9;
    /// As [`RULE`], for a rule that a switch has learned.
    pub const LEARNED: u8 = 10;
    /// Counters of ports that only OpenFlow 1.4 has; see [`crate::journal::port_counters`].
    pub const PORT_COUNTERS: u8 = 11;
    /// The numbers of hidden groups that are in use; see [`crate::model::hidden`].
    pub const HIDDEN: u8 = 12;
    /// The identities of `virt` bridges; see [`crate::journal::bridges`].
    pub const BRIDGES: u8 = 13;
}

/// A damaged journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalError {
    /// Offset of the damaged record.
    pub offset: usize,
    pub reason: String,
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "damaged at byte {}: {}", self.offset, self.reason)
    }
}

impl std::error::Error for JournalError {}

/// One instant on both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    pub now: Instant,
    /// Since 1970.
    pub unix: Duration,
}

impl Clock {
    fn unix_nanos(&self, at: Instant) -> u64 {
        let unix = match at.checked_duration_since(self.now) {
            Some(later) => self.unix.saturating_add(later),
            None => self.unix.saturating_sub(self.now.duration_since(at)),
        };
        u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Converts; future times become now, because the wall clock was set back.
    pub fn instant(&self, unix_nanos: u64) -> Instant {
        let age = self.unix.saturating_sub(Duration::from_nanos(unix_nanos));
        self.now.checked_sub(age).unwrap_or(self.now)
    }
}

/// Records waiting to be taken.
#[derive(Debug, Default)]
pub struct Journal {
    /// `None`: no journal is kept.
    pub clock: Option<Clock>,
    pub bytes: Vec<u8>,
    pub settings: Vec<u8>,
    pub moves: Vec<u8>,
    pub retired: Vec<u8>,
    pub tables: Vec<u8>,
    pub port_counters: Vec<u8>,
    pub hidden: Vec<u8>,
    pub bridges: Vec<u8>,
}

impl Journal {
    /// Records a message accepted everywhere, if it changed anything.
    pub fn accepted(&mut self, request: Request, changes: &Changes, at: Instant) {
        let Some(clock) = &self.clock else {
            return;
        };
        if changes.is_empty() {
            return;
        }
        let message = match request {
            Request::Flow { message, .. } => Message::FlowMod(*message),
            Request::Group { message, .. } => Message::GroupMod(message),
            Request::Meter(message) => Message::MeterMod(message),
            Request::TlvTable(message) => message.message(),
            Request::Rule(rule) => return put_rule(&mut self.bytes, clock, &rule),
            Request::PacketOut | Request::Part(_) | Request::Check | Request::Other => return,
        };
        put_change(&mut self.bytes, clock, at, &message);
    }

    /// Returns the bytes that wait to be taken.
    pub fn length(&self) -> usize {
        self.bytes.len()
    }

    /// Makes the records since `begun` count only together.
    pub fn join(&mut self, begun: usize) {
        let Some(clock) = &self.clock else {
            return;
        };
        let now = clock.unix_nanos(clock.now);
        let records = self.bytes.split_off(begun);
        if !records.is_empty() {
            let length = records.len() as u64;
            put_record(&mut self.bytes, kind::JOINED, now, |out| {
                out.extend(length.to_be_bytes());
            });
            self.bytes.extend(records);
        }
    }

    pub fn folded(&mut self, rule: &Rule, more: Counters) {
        let Some(clock) = &self.clock else {
            return;
        };
        let now = clock.unix_nanos(clock.now);
        put_record(&mut self.bytes, kind::FOLD, now, |out| {
            put_counters(out, more);
            put_message(out, &Message::FlowMod(removal_of(rule)));
        });
    }

    /// Records statistics of groups or meters.
    pub fn counted(&mut self, reply: MultipartReply) {
        if let Some(clock) = &self.clock {
            put_counted(&mut self.bytes, clock, reply);
        }
    }

    /// Records the settings, the current moves, the quarantined flow-ids, the configurations of tables, counters of ports, the numbers of
    /// hidden groups and the identities of bridges, if they have changed.
    pub fn settle(
        &mut self,
        truth: &Truth,
        server: &Server,
        settings: &Settings,
        bridges: Vec<u8>,
        switch_name: impl Fn(usize) -> String,
    ) {
        let Some(clock) = &self.clock else {
            return;
        };
        let now = clock.unix_nanos(clock.now);
        let moves = moves::of_server(server, &switch_name);
        let retired = server.ports.quarantine.ids();
        let retired = retired.flat_map(FlowId::to_be_bytes).collect();
        let port_counters = port_counters::of_server(server);
        let kept = [
            (kind::SETTINGS, settings.encode(), &mut self.settings),
            (kind::MOVES, moves, &mut self.moves),
            (kind::RETIRED, retired, &mut self.retired),
            (kind::TABLES, truth.table_configs.encode(), &mut self.tables),
            (kind::PORT_COUNTERS, port_counters, &mut self.port_counters),
            (kind::HIDDEN, server.hidden.encode(), &mut self.hidden),
            (kind::BRIDGES, bridges, &mut self.bridges),
        ];
        for (kind, is, was) in kept {
            if is != *was {
                put_record(&mut self.bytes, kind, now, |out| out.extend(&is));
                *was = is;
            }
        }
    }
}

pub fn put_change(out: &mut Vec<u8>, clock: &Clock, at: Instant, message: &Message) {
    put_record(out, kind::CHANGE, clock.unix_nanos(at), |out| {
        put_message(out, message)
    });
}

pub fn put_rule(out: &mut Vec<u8>, clock: &Clock, rule: &Rule) {
    let kind = match rule.learned {
        true => kind::LEARNED,
        false => kind::RULE,
    };
    put_record(out, kind, clock.unix_nanos(rule.created), |out| {
        out.extend(clock.unix_nanos(rule.modified).to_be_bytes());
        put_counters(out, rule.base);
        put_message(out, &Message::FlowMod(addition_of(rule)));
    });
}

/// Counters of a group begin at 0 when buckets come or go, while those of the others go on.
fn has_counted_nothing(group: &GroupStats) -> bool {
    let buckets = group.buckets.iter();
    group.packet_count == 0 && buckets.fold(0, |sum, bucket| sum | bucket.packet_count) == 0
}

fn put_counted(out: &mut Vec<u8>, clock: &Clock, reply: MultipartReply) {
    let nothing = match &reply {
        MultipartReply::Group(groups) => groups.iter().all(has_counted_nothing),
        MultipartReply::Meter(meters) => meters.iter().all(|m| m.packet_in_count == 0),
        _ => true,
    };
    if !nothing {
        let message = Message::MultipartReply(Multipart::last(reply));
        let now = clock.unix_nanos(clock.now);
        put_record(out, kind::COUNTED, now, |out| put_message(out, &message));
    }
}

/// Writes a group as the messages that add it, with its counters.
pub fn put_group(out: &mut Vec<u8>, clock: &Clock, group: &Group) {
    let message = GroupMod {
        command: GroupModCommand::Add,
        group_type: group.group_type,
        group_id: group.id,
        buckets: group.buckets.clone(),
        selection: group.selection.clone(),
    };
    for message in messages_of_group(message) {
        put_change(out, clock, group.created, &Message::GroupMod(message));
    }
    let base = group.base.iter().cloned().collect();
    put_counted(out, clock, MultipartReply::Group(base));
}

/// Does the same as [`put_group`] for a meter.
pub fn put_meter(out: &mut Vec<u8>, clock: &Clock, meter: &Meter) {
    let message = MeterMod {
        command: MeterModCommand::Add,
        flags: meter.flags,
        meter_id: meter.id,
        bands: meter.bands.clone(),
    };
    put_change(out, clock, meter.created, &Message::MeterMod(message));
    let base = meter.base.iter().cloned().collect();
    put_counted(out, clock, MultipartReply::Meter(base));
}

/// Returns the flow-mod as the controller wrote it, not as a switch gets it.
fn addition_of(rule: &Rule) -> FlowMod {
    FlowMod {
        command: FlowModCommand::Add,
        idle_timeout: rule.idle_timeout,
        hard_timeout: rule.hard_timeout,
        flags: rule.flags,
        importance: rule.importance,
        instructions: rule.instructions.clone(),
        ..removal_of(rule)
    }
}

fn put_record(out: &mut Vec<u8>, kind: u8, unix_nanos: u64, payload: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend([0; FRAMING]);
    out.push(kind);
    out.extend(unix_nanos.to_be_bytes());
    payload(out);
    let body = start + FRAMING;
    let length = (out.len() - body) as u32;
    let sum = checksum(&out[body..]);
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    out[start + 4..start + 8].copy_from_slice(&(!length).to_be_bytes());
    out[start + 8..body].copy_from_slice(&sum.to_be_bytes());
}

fn put_counters(out: &mut Vec<u8>, counters: Counters) {
    out.extend(counters.packets.to_be_bytes());
    out.extend(counters.bytes.to_be_bytes());
}

fn put_message(out: &mut Vec<u8>, message: &Message) {
    out.extend(crate::wire::wire(0, message));
}

/// Mixes eight bytes at a time, because every flow-mod is journalled. Detects damage, not malice.
pub fn checksum(bytes: &[u8]) -> u32 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |hash: u64, word: u64| {
        let product = (hash ^ word).wrapping_mul(ODD);
        product ^ product >> 32
    };
    let (words, rest) = bytes.split_at(bytes.len() & !7);
    let mut hash = bytes.len() as u64;
    for word in words.chunks_exact(8) {
        hash = mix(
            hash,
            u64::from_le_bytes(word.try_into().unwrap_or_default()),
        );
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    mix(hash, u64::from_le_bytes(last)) as u32
}

/// The journalled state of a virtual port, in addition to the port map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortSettings {
    pub number: u32,
    pub config: u32,
    pub flow_id: FlowId,
    /// Zero in the file if unset.
    pub ingress_id: Option<FlowId>,
    pub hw_addr: Option<[u8; 6]>,
    /// In the order of `ofp_port_stats`.
    pub base: [u64; 12],
    pub offloaded: Totals,
    pub name: String,
}

impl PortSettings {
    pub fn of(port: &VirtualPort) -> Self {
        Self {
            number: port.number,
            config: port.config,
            flow_id: port.flow_id,
            ingress_id: port.ingress_id,
            hw_addr: port.hw_addr,
            base: counters(&mut port.base.clone()).map(|counter| *counter),
            offloaded: port.offloaded.clone(),
            name: port.name.clone(),
        }
    }

    /// Restores a port, except its flow-ids.
    pub fn restore(&self, port: &mut VirtualPort) {
        port.config = self.config;
        port.hw_addr = self.hw_addr;
        for (counter, value) in counters(&mut port.base).into_iter().zip(self.base) {
            *counter = value;
        }
        port.offloaded.clone_from(&self.offloaded);
    }
}

/// Fragment flags, the flood generation's number, and the ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    pub fragment_flags: u16,
    pub flood: u64,
    pub ports: Vec<PortSettings>,
}

impl Settings {
    pub fn of(server: &Server, fragment_flags: u16) -> Self {
        Self {
            fragment_flags,
            flood: server.flood.current().number,
            ports: server.ports.iter().map(PortSettings::of).collect(),
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(10 + 140 * self.ports.len());
        out.extend(self.fragment_flags.to_be_bytes());
        out.extend(self.flood.to_be_bytes());
        for port in &self.ports {
            out.extend(port.number.to_be_bytes());
            out.extend(port.config.to_be_bytes());
            out.extend(port.flow_id.to_be_bytes());
            out.extend(port.ingress_id.unwrap_or(0).to_be_bytes());
            out.push(port.hw_addr.is_some().into());
            out.extend(port.hw_addr.unwrap_or_default());
            port.base
                .iter()
                .for_each(|count| out.extend(count.to_be_bytes()));
            out.push(port.name.len() as u8); // at most 15
            out.extend(port.name.as_bytes());
            out.extend((port.offloaded.len() as u16).to_be_bytes()); // at most COUNTERS
            for (counter, counted) in &port.offloaded {
                out.extend(counter.to_be_bytes());
                out.extend(counted.packets.to_be_bytes());
                out.extend(counted.bytes.to_be_bytes());
            }
        }
        out
    }

    /// Decodes; `None`: not the format of [`Self::encode`].
    pub fn decode(mut bytes: &[u8]) -> Option<Self> {
        let input = &mut bytes;
        let mut settings = Self {
            fragment_flags: u16::from_be_bytes(array(input)?),
            flood: u64::from_be_bytes(array(input)?),
            ports: Vec::new(),
        };
        while !input.is_empty() {
            let (number, config) = (array(input)?, array(input)?);
            let flow_id = FlowId::from_be_bytes(array(input)?);
            let ingress_id = FlowId::from_be_bytes(array(input)?);
            let [has_address] = array(input)?;
            let address = array(input)?;
            let mut base = [0; 12];
            for count in &mut base {
                *count = u64::from_be_bytes(array(input)?);
            }
            let [length] = array(input)?;
            let (name, rest) = input.split_at_checked(length.into())?;
            *input = rest;
            let mut offloaded = Totals::new();
            for _ in 0..u16::from_be_bytes(array(input)?) {
                let counter = u16::from_be_bytes(array(input)?);
                let packets = u64::from_be_bytes(array(input)?);
                let bytes = u64::from_be_bytes(array(input)?);
                offloaded.insert(counter, Counted { packets, bytes });
            }
            settings.ports.push(PortSettings {
                number: u32::from_be_bytes(number),
                config: u32::from_be_bytes(config),
                flow_id,
                ingress_id: (ingress_id != 0).then_some(ingress_id),
                hw_addr: (has_address != 0).then_some(address),
                base,
                offloaded,
                name: std::str::from_utf8(name).ok()?.into(),
            });
        }
        Some(settings)
    }
}

/// Returns the rule that a flow-mod of the journal names.
pub fn key_of(message: &FlowMod) -> Option<RuleKey> {
    Some(RuleKey::of_flow_mod(
        message,
        message.matching.canonical().ok()?,
    ))
}
