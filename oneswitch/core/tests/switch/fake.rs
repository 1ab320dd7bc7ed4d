//! One bridge of a fake switch: keeps a real flow table, answers as Open vSwitch does, and can be told to misbehave.

use openflow13::openflow10::PacketInFormat;
use openflow13::tlv_table::TlvMapping;
use openflow13::{
    bucket_no, bundle, config, decode, encode, encode_error, group_no, meter_no, port_no, state,
    Action, Buckets, CanonicalMatch, ErrorCode, Features, FlowMod, FlowModCommand, FlowRemoved,
    GroupMod, GroupModCommand, Instructions, Match, Message, MeterMod, MeterModCommand, PacketOut,
    Port, PortMod, PortStats, PortStatus, QueueStats, ALL_TABLES, NX_VENDOR,
};
use std::collections::{BTreeMap, VecDeque};

#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    pub table: u8,
    pub priority: u16,
    pub key: CanonicalMatch,
    pub matching: Match,
    pub instructions: Instructions,
    pub cookie: u64,
    pub flags: u16,
    pub idle: u16,
    pub hard: u16,
    pub packets: u64,
    pub bytes: u64,
}

pub type Refuser = Box<dyn Fn(&Message) -> Option<ErrorCode>>;

#[derive(Default)]
pub struct FakeBridge {
    pub connected: bool,
    /// Takes messages but does not work on them.
    pub slow: bool,
    pub input: VecDeque<Vec<u8>>,
    pub output: Vec<Vec<u8>>,
    pub ports: BTreeMap<u32, Port>,
    pub port_stats: BTreeMap<u32, PortStats>,
    pub flows: Vec<Flow>,
    pub groups: BTreeMap<u32, (u8, Buckets)>,
    pub group_packets: BTreeMap<u32, u64>,
    pub meters: BTreeMap<u32, (u16, Box<[u8]>)>,
    pub meter_packets: BTreeMap<u32, u64>,
    pub lookups: u64,
    pub queues: Vec<QueueStats>,
    /// The highest meter that it reports.
    pub max_meter: u32,
    pub packet_outs: Vec<PacketOut>,
    /// Packets that were continued here.
    pub resumed: usize,
    pub table_mods: usize,
    pub tlv_table: BTreeMap<u16, TlvMapping>,
    /// The format of packet-ins that its controller has chosen.
    pub packet_in_format: PacketInFormat,
    pub refuse: Option<Refuser>,
    /// Whether a group that is modified counts from 0, as in Open vSwitch.
    pub resets_groups: bool,
    /// As Open vSwitch may with rules of the same bundle.
    pub ignores_overlaps: bool,
    /// Whether it tells of rules that it changes by itself.
    pub is_monitored: bool,
    /// The number of flow dumps of several parts that end with an error behind the first one.
    pub broken_dumps: usize,
    /// Whether flow-removed messages come before the barrier reply.
    pub reports_at_once: bool,
    /// Flow-removed messages otherwise come after the barrier reply, as mostly from Open vSwitch (they wait for an RCU grace period).
    late: Vec<Vec<u8>>,
    /// Reports about what packet-outs have made it learn, which wait for the next flow-mod, as in Open vSwitch.
    pub untold: Vec<Vec<u8>>,
    bundles: BTreeMap<u32, Vec<Vec<u8>>>,
    /// State-changing messages that were accepted.
    pub accepted: usize,
}

/// ONF's number of messages about flow monitors.
const FLOW_MONITOR: u32 = 1870;

const STATE_FLAGS: u16 = FlowMod::SEND_FLOW_REM
    | FlowMod::NO_PKT_COUNTS
    | FlowMod::NO_BYT_COUNTS
    | FlowMod::CHECK_OVERLAP
    | FlowMod::RESET_COUNTS;

impl FakeBridge {
    pub fn work(&mut self) {
        while let Some(frame) = self.input.pop_front() {
            self.handle(&frame);
            if self.reports_at_once {
                self.output.append(&mut self.late);
            }
        }
        self.output.append(&mut self.late);
    }

    pub fn handle(&mut self, frame: &[u8]) {
        let (header, message) = match decode(frame) {
            Ok(decoded) => decoded,
            Err(refusal) => {
                let error = encode_error(0, refusal.error, frame);
                return self.output.push(error);
            }
        };
        let xid = header.xid;
        let refused = self.refuse.as_ref().and_then(|refuse| refuse(&message));
        let result = match refused {
            Some(error) => Err(error),
            None => self.act(xid, message),
        };
        if let Err(error) = result {
            self.output.push(encode_error(xid, error, frame));
        }
    }

    pub fn reply(&mut self, xid: u32, message: Message) {
        self.output.push(encode(xid, &message).unwrap());
    }

    fn act(&mut self, xid: u32, message: Message) -> Result<(), ErrorCode> {
        match message {
            Message::BarrierRequest => self.reply(xid, Message::BarrierReply),
            Message::FeaturesRequest => {
                let features = Features {
                    datapath_id: 1,
                    n_buffers: 0,
                    n_tables: 254,
                    auxiliary_id: 0,
                    capabilities: 0x4f,
                    reserved: 0,
                };
                self.reply(xid, Message::FeaturesReply(features));
            }
            Message::FlowMod(m) => self.flow_mod(&m)?,
            Message::GroupMod(m) => self.group_mod(&m)?,
            Message::MeterMod(m) => self.meter_mod(&m)?,
            Message::PortMod(m) => self.port_mod(&m)?,
            Message::PacketOut(m) => {
                self.check_groups(m.actions.as_actions().iter().map(|i| i.action))?;
                self.accepted += 1;
                self.packet_outs.push(m);
            }
            Message::MultipartRequest(request) => self.multipart(xid, request)?,
            Message::Experimenter(m) if m.vendor == NX_VENDOR => self.nicira(xid, &m)?,
            Message::Experimenter(m) if m.subtype == FLOW_MONITOR => self.is_monitored = false,
            Message::Experimenter(m) => self.bundle(xid, &m)?,
            Message::TableMod(_) => self.table_mods += 1,
            _ => {}
        }
        Ok(())
    }

    /// Whether a bucket that watches virtual port `port` is live: it watches a hidden group, which is there or not.
    pub fn is_live(&self, port: u32) -> bool {
        self.groups.contains_key(&(0xfffe_0000 | port))
    }

    /// The interface's link comes or goes; whoever is connected is told.
    pub fn carrier(&mut self, number: u32, is_up: bool) {
        let port = self.ports.get_mut(&number).expect("a port that is there");
        port.state = if is_up { 0 } else { state::LINK_DOWN };
        let status = PortStatus {
            reason: PortStatus::MODIFY,
            port: *port,
        };
        self.reply(0, Message::PortStatus(status));
    }

    fn port_mod(&mut self, m: &PortMod) -> Result<(), ErrorCode> {
        let port = self
            .ports
            .get_mut(&m.port)
            .ok_or(ErrorCode::PORT_MOD_FAILED_BAD_PORT)?;
        if port.hw_addr != m.hw_addr {
            return Err(ErrorCode::PORT_MOD_FAILED_BAD_HW_ADDR);
        }
        // Open vSwitch accepts that a patch port goes down, and leaves it up (lib/netdev-vport.c).
        let patch = port.name_str().starts_with("virt-");
        let mask = m.mask & if patch { !config::PORT_DOWN } else { u32::MAX };
        port.config = (port.config & !mask) | (m.config & mask);
        Ok(())
    }

    fn bundle(&mut self, xid: u32, m: &openflow13::Experimenter) -> Result<(), ErrorCode> {
        use bundle::{Bundle, Control, ControlType};
        match bundle::decode(xid, m).expect("a bundle message") {
            Ok(Bundle::Add(add)) => {
                let open = self.bundles.get_mut(&add.bundle_id);
                open.expect("an open bundle").push(add.inner.to_vec());
                if let Err(refusal) = decode(add.inner) {
                    self.bundles.get_mut(&add.bundle_id).unwrap().pop();
                    return Err(refusal.error);
                }
            }
            Ok(Bundle::Control(control)) => {
                let parts = self.bundles.remove(&control.bundle_id);
                match control.control_type {
                    ControlType::OpenRequest => {
                        assert_eq!(parts, None, "opened twice");
                        self.bundles.insert(control.bundle_id, Vec::new());
                    }
                    ControlType::CommitRequest => self.commit(&parts.expect("an open bundle"))?,
                    ControlType::DiscardRequest => drop(parts.expect("an open bundle")),
                    other => panic!("{other:?}"),
                }
                let done = Control {
                    control_type: control.control_type.reply().unwrap(),
                    ..control
                };
                self.output.push(bundle::encode_control(xid, done));
            }
            Err(refusal) => return Err(refusal.error),
        }
        Ok(())
    }

    /// As Open vSwitch: all parts, or none and an error about the first one that fails. A port-mod always fails.
    fn commit(&mut self, parts: &[Vec<u8>]) -> Result<(), ErrorCode> {
        let before = (self.flows.clone(), self.groups.clone());
        let (late, sent) = (self.late.len(), self.packet_outs.len());
        for part in parts {
            let (header, message) = decode(part).unwrap();
            let refused = self.refuse.as_ref().and_then(|refuse| refuse(&message));
            let result = match (refused, message) {
                (Some(error), _) => Err(error),
                (None, Message::PortMod(_)) => Err(ErrorCode::ONF_BUNDLE_MSG_FAILED),
                (None, message) => self.act(header.xid, message),
            };
            if let Err(error) = result {
                (self.flows, self.groups) = before;
                self.late.truncate(late);
                self.packet_outs.truncate(sent);
                self.output.push(encode_error(header.xid, error, part));
                return Err(ErrorCode::ONF_BUNDLE_MSG_FAILED);
            }
        }
        Ok(())
    }

    fn check_groups<'a>(
        &self,
        mut actions: impl Iterator<Item = Action<'a>>,
    ) -> Result<(), ErrorCode> {
        let missing =
            |a: Action<'_>| matches!(a, Action::Group(id) if !self.groups.contains_key(&id));
        match actions.any(missing) {
            true => Err(ErrorCode::BAD_ACTION_BAD_OUT_GROUP),
            false => Ok(()),
        }
    }

    fn check_instructions(&self, instructions: &Instructions) -> Result<(), ErrorCode> {
        let mut result = Ok(());
        instructions.for_each_action(&mut |item| {
            result = result.and(self.check_groups(std::iter::once(item.action)));
        });
        for instruction in instructions.iter() {
            if let openflow13::Instruction::Meter(id) = instruction {
                if !self.meters.contains_key(&id) {
                    return Err(ErrorCode::METER_MOD_FAILED_INVALID_METER);
                }
            }
        }
        result
    }

    fn flow_mod(&mut self, m: &FlowMod) -> Result<(), ErrorCode> {
        let key = m.matching.canonical().map_err(|r| r.error)?;
        match m.command {
            FlowModCommand::Add => self.add(m, key)?,
            FlowModCommand::Modify | FlowModCommand::ModifyStrict => {
                let chosen = self.chosen(m, &key);
                if chosen.contains(&true) {
                    self.check_instructions(&m.instructions)?;
                }
                for (flow, chosen) in self.flows.iter_mut().zip(chosen) {
                    if chosen {
                        flow.instructions = m.instructions.clone();
                        if m.flags & FlowMod::RESET_COUNTS != 0 {
                            (flow.packets, flow.bytes) = (0, 0);
                        }
                    }
                }
            }
            FlowModCommand::Delete | FlowModCommand::DeleteStrict => {
                let chosen = self.chosen(m, &key);
                self.remove(&chosen, FlowRemoved::DELETE);
            }
        }
        self.output.append(&mut self.untold);
        self.accepted += 1;
        Ok(())
    }

    fn add(&mut self, m: &FlowMod, key: CanonicalMatch) -> Result<(), ErrorCode> {
        self.check_instructions(&m.instructions)?;
        let same = self
            .flows
            .iter()
            .position(|f| (f.table, f.priority, &f.key) == (m.table_id, m.priority, &key));
        let overlaps =
            |f: &Flow| f.table == m.table_id && f.priority == m.priority && f.key.overlaps(&key);
        if m.flags & FlowMod::CHECK_OVERLAP != 0
            && same.is_none()
            && !self.ignores_overlaps
            && self.flows.iter().any(overlaps)
        {
            return Err(ErrorCode::FLOW_MOD_FAILED_OVERLAP);
        }
        let mut flow = Flow {
            table: m.table_id,
            priority: m.priority,
            key,
            matching: m.matching.clone(),
            instructions: m.instructions.clone(),
            cookie: m.cookie,
            flags: m.flags & STATE_FLAGS,
            idle: m.idle_timeout,
            hard: m.hard_timeout,
            packets: 0,
            bytes: 0,
        };
        match same {
            Some(index) => {
                if m.flags & FlowMod::RESET_COUNTS == 0 {
                    (flow.packets, flow.bytes) =
                        (self.flows[index].packets, self.flows[index].bytes);
                }
                self.flows[index] = flow;
            }
            None => self.flows.push(flow),
        }
        Ok(())
    }

    fn chosen(&self, m: &FlowMod, key: &CanonicalMatch) -> Vec<bool> {
        let strict = matches!(
            m.command,
            FlowModCommand::ModifyStrict | FlowModCommand::DeleteStrict
        );
        let filtered = m.command.is_delete();
        self.flows
            .iter()
            .map(|f| {
                let by_match = if strict {
                    f.key == *key && f.priority == m.priority
                } else {
                    key.covers(&f.key)
                };
                by_match
                    && (m.table_id == ALL_TABLES || m.table_id == f.table)
                    && (f.cookie ^ m.cookie) & m.cookie_mask == 0
                    && (!filtered || outputs_to(&f.instructions, m.out_port, m.out_group))
            })
            .collect()
    }

    /// Removes the chosen flows, as a timer or a message does.
    pub fn remove(&mut self, chosen: &[bool], reason: u8) {
        let mut chosen = chosen.iter();
        let (gone, kept): (Vec<Flow>, Vec<Flow>) =
            self.flows.drain(..).partition(|_| *chosen.next().unwrap());
        self.flows = kept;
        for flow in gone {
            if flow.flags & FlowMod::SEND_FLOW_REM != 0 {
                let message = Message::FlowRemoved(FlowRemoved {
                    cookie: flow.cookie,
                    priority: flow.priority,
                    reason,
                    table_id: flow.table,
                    duration_sec: 1,
                    duration_nsec: 0,
                    idle_timeout: flow.idle,
                    hard_timeout: flow.hard,
                    packet_count: flow.packets,
                    byte_count: flow.bytes,
                    matching: flow.matching,
                });
                self.late.push(encode(0, &message).unwrap());
            }
        }
    }

    /// The timer of every flow with this cookie fires.
    pub fn expire(&mut self, cookie: u64, reason: u8) {
        let chosen: Vec<bool> = self.flows.iter().map(|f| f.cookie == cookie).collect();
        assert!(chosen.contains(&true), "nothing to expire");
        self.remove(&chosen, reason);
    }

    fn group_mod(&mut self, m: &GroupMod) -> Result<(), ErrorCode> {
        let there = self.groups.contains_key(&m.group_id);
        match m.command {
            GroupModCommand::Add if there => return Err(ErrorCode::GROUP_MOD_FAILED_GROUP_EXISTS),
            GroupModCommand::Modify if !there => {
                return Err(ErrorCode::GROUP_MOD_FAILED_UNKNOWN_GROUP)
            }
            GroupModCommand::Delete => {
                let all = m.group_id == group_no::ALL;
                self.groups.retain(|id, _| !all && *id != m.group_id);
                let orphans: Vec<bool> = self
                    .flows
                    .iter()
                    .map(|f| self.check_instructions(&f.instructions).is_err())
                    .collect();
                self.remove(&orphans, FlowRemoved::GROUP_DELETE);
            }
            GroupModCommand::InsertBucket(_) | GroupModCommand::RemoveBucket(_) => {
                let (_, buckets) = self
                    .groups
                    .get_mut(&m.group_id)
                    .ok_or(ErrorCode::GROUP_MOD_FAILED_UNKNOWN_GROUP)?;
                *buckets = with_buckets(buckets, m)?;
            }
            _ => {
                let group = (m.group_type, m.buckets.clone());
                if self.resets_groups {
                    self.group_packets.remove(&m.group_id);
                }
                self.groups.insert(m.group_id, group);
            }
        }
        self.accepted += 1;
        Ok(())
    }

    fn meter_mod(&mut self, m: &MeterMod) -> Result<(), ErrorCode> {
        let there = self.meters.contains_key(&m.meter_id);
        match m.command {
            MeterModCommand::Add if there => return Err(ErrorCode::METER_MOD_FAILED_METER_EXISTS),
            MeterModCommand::Modify if !there => {
                return Err(ErrorCode::METER_MOD_FAILED_UNKNOWN_METER)
            }
            MeterModCommand::Delete => {
                let all = m.meter_id == meter_no::ALL;
                self.meters.retain(|id, _| !all && *id != m.meter_id);
                self.meter_packets.retain(|id, _| !all && *id != m.meter_id);
                let orphans: Vec<bool> = self
                    .flows
                    .iter()
                    .map(|f| self.check_instructions(&f.instructions).is_err())
                    .collect();
                self.remove(&orphans, FlowRemoved::DELETE);
            }
            _ => {
                self.meters.insert(m.meter_id, (m.flags, m.bands.clone()));
            }
        }
        self.accepted += 1;
        Ok(())
    }
}

/// Inserts buckets before or behind all others, or removes the first one or all.
fn with_buckets(old: &Buckets, m: &GroupMod) -> Result<Buckets, ErrorCode> {
    let (old, new) = (old.iter(), m.buckets.iter());
    Ok(match m.command {
        GroupModCommand::InsertBucket(bucket_no::LAST) => Buckets::with_ids(old.chain(new)),
        GroupModCommand::InsertBucket(bucket_no::FIRST | bucket_no::ALL) => {
            Buckets::with_ids(new.chain(old))
        }
        GroupModCommand::RemoveBucket(bucket_no::ALL) => Buckets::default(),
        GroupModCommand::RemoveBucket(bucket_no::FIRST) => Buckets::with_ids(old.skip(1)),
        _ => return Err(ErrorCode::GROUP_MOD_FAILED_UNKNOWN_BUCKET),
    })
}

pub fn outputs_to(instructions: &Instructions, port: u32, group: u32) -> bool {
    let (mut by_port, mut by_group) = (port == port_no::ANY, group == group_no::ANY);
    instructions.for_each_action(&mut |item| match item.action {
        Action::Output { port: p, .. } => by_port |= p == port,
        Action::Group(g) => by_group |= g == group,
        _ => {}
    });
    by_port && by_group
}
