//! Floods cross each PCIe link once.
//!
//! FLOOD and ALL in rules, groups and packet-outs become two hidden groups per switch: a bucket per local port and one that marks the packet
//! and sends it to `virt-mc`; `edge` converts the mark to a multicast flow-id. The mark also distinguishes such a packet from the copy that
//! a FLOOD in an action set (which cannot be a group without changing its meaning) sends to `virt-mc`: that copy is dropped.
//!
//! The mark names a *generation* of the member list. A change first installs the new list at all receivers, then points each sender's group
//! to it, so that one list floods every packet, even while a port moves.

use crate::api::SwitchIndex;
use crate::server::flow_ids::{FlowId, FIRST_MULTICAST, MULTICASTS};
use crate::server::ports::{Location, PortMap, MULTICAST_PORT};
use openflow13::config;
use std::collections::VecDeque;

/// pkt_mark of a packet to be multicast: this, plus the flow-id.
const MARK_BASE: u32 = 0x6f6e_0000;
/// The port configuration that excludes a port from some floods, or from all.
const UNFLOODED: u32 = config::NO_FWD | config::PORT_DOWN | config::NO_FLOOD;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub port: u32,
    pub location: Location,
    /// Ports that get floods through their own patch port and DELIVER flow-id from everywhere: while they move, to get each packet once
    /// whatever has flipped; if their configuration, which is on the patch ports, forbids floods; and if their pipeline runs elsewhere,
    /// because their own floods come back to their home, where only their patch port recognises them.
    pub unicast: bool,
    /// It gets what is sent to ALL, and not what is sent to FLOOD (NO_FLOOD).
    pub only_all: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Generation {
    pub number: u64,
    pub members: Vec<Member>,
}

impl Generation {
    /// Returns its id in rotation: none is reused while packets of its last use may be in flight.
    pub fn flow_id(&self) -> FlowId {
        FIRST_MULTICAST + (self.number % MULTICASTS) as FlowId
    }

    pub fn mark(&self) -> u32 {
        MARK_BASE | self.flow_id()
    }

    /// Iterates over the interfaces of `switch` that a multicast packet leaves through.
    pub fn local_interfaces(&self, switch: SwitchIndex) -> impl Iterator<Item = &str> {
        self.members
            .iter()
            .filter(move |m| m.location.switch == switch && !m.unicast)
            .map(|m| m.location.interface.as_str())
    }

    pub fn has_members_at(&self, switch: SwitchIndex) -> bool {
        self.local_interfaces(switch).next().is_some()
    }

    fn has_members_beyond(&self, switch: SwitchIndex) -> bool {
        self.members
            .iter()
            .any(|m| m.location.switch != switch && !m.unicast)
    }

    /// Returns the buckets at `switch`, as in OFPT_GROUP_MOD, of the group for FLOOD or, if `to_all`, for ALL.
    pub fn buckets(&self, switch: SwitchIndex, to_all: bool) -> Vec<u8> {
        let mut buckets = Vec::new();
        for member in self
            .members
            .iter()
            .filter(|m| m.unicast || m.location.switch == switch)
            .filter(|m| to_all || !m.only_all)
        {
            put_bucket(&mut buckets, &output(member.port));
        }
        if self.has_members_beyond(switch) {
            let mut actions = set_pkt_mark(self.mark()).to_vec();
            actions.extend(output(MULTICAST_PORT));
            put_bucket(&mut buckets, &actions);
        }
        buckets
    }
}

/// The next step for the newest generation to be in force everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// All receivers know its list: point the senders' groups to it.
    PointSenders,
    /// All senders use it.
    InForce,
}

#[derive(Clone, Copy, Debug)]
enum Progress {
    /// The batch of the receivers' lists.
    Receivers(u64),
    /// The batch of the senders' groups.
    Senders(u64),
    Done,
}

/// The member lists that packets in flight may use, newest last; never empty.
#[derive(Debug)]
pub struct Flood {
    generations: VecDeque<Generation>,
    in_force: u64,
    progress: Progress,
}

impl Flood {
    /// Creates the first list, which is in force before any switch connects.
    pub fn new(ports: &PortMap) -> Self {
        let mut flood = Self {
            generations: VecDeque::from([Generation::default()]),
            in_force: 0,
            progress: Progress::Done,
        };
        flood.refresh(ports);
        flood.in_force();
        flood
    }

    /// Restores the list's number after a restart, as the switches know it, so that nothing on them changes. Some of them may not have had
    /// it yet.
    pub fn resume(&mut self, number: u64) {
        if let Some(mut current) = self.generations.pop_back() {
            current.number = number;
            // The first list, which is empty, stands for the one before: with its own number it could have a later one's flow-id.
            match number.checked_sub(1) {
                Some(before) => self.generations.iter_mut().for_each(|g| g.number = before),
                None => self.generations.clear(),
            }
            self.generations.push_back(current);
        }
        self.in_force = number.saturating_sub(1);
        self.progress = Progress::Senders(0);
    }

    pub fn current(&self) -> &Generation {
        &self.generations[self.generations.len() - 1]
    }

    /// Returns the senders' list: not the newest one before the receivers have it.
    pub fn of_senders(&self) -> &Generation {
        let before = self.generations.iter().rev().nth(1);
        match (self.progress, before) {
            (Progress::Receivers(_), Some(before)) => before,
            _ => self.current(),
        }
    }

    pub fn generations(&self) -> impl Iterator<Item = &Generation> {
        self.generations.iter()
    }

    pub fn is_in_force(&self, generation: u64) -> bool {
        self.in_force >= generation
    }

    /// Derives the member list again.
    pub fn refresh(&mut self, ports: &PortMap) {
        let members: Vec<Member> = ports
            .iter()
            .map(|p| Member {
                port: p.number,
                location: p.home.clone(),
                unicast: p.moving.is_some() || p.config & UNFLOODED != 0 || p.executes_away(),
                only_all: p.config & config::NO_FLOOD != 0,
            })
            .collect();
        if members == self.current().members {
            return;
        }
        if let (Progress::Receivers(_), Some(newest)) = (self.progress, self.generations.back_mut())
        {
            // Senders do not use it yet.
            newest.members = members;
            self.progress = Progress::Receivers(u64::MAX);
            return;
        }
        let number = self.current().number + 1;
        self.generations.push_back(Generation { number, members });
        // Keep one more than is in force, because its packets may be in flight.
        while self.generations.len() > 2
            && (self.generations[1].number < self.in_force
                || self.generations.len() as u64 == MULTICASTS)
        {
            self.generations.pop_front();
        }
        self.progress = Progress::Receivers(u64::MAX);
    }

    /// Records the batch in which the receivers' lists were sent.
    pub fn sent(&mut self, batch: u64) {
        if let Progress::Receivers(_) = self.progress {
            self.progress = Progress::Receivers(batch);
        }
    }

    pub fn senders_pointed(&mut self, batch: u64) {
        self.progress = Progress::Senders(batch);
    }

    pub fn in_force(&mut self) {
        self.in_force = self.current().number;
        self.progress = Progress::Done;
    }

    pub fn next_step(&self, is_settled: impl Fn(u64) -> bool) -> Option<Step> {
        match self.progress {
            Progress::Receivers(batch) if is_settled(batch) => Some(Step::PointSenders),
            Progress::Senders(batch) if is_settled(batch) => Some(Step::InForce),
            _ => None,
        }
    }
}

fn put_bucket(buckets: &mut Vec<u8>, actions: &[u8]) {
    const ANY: [u8; 4] = [0xff; 4];
    buckets.extend((16 + actions.len() as u16).to_be_bytes());
    buckets.extend([0; 2]); // weight: select groups only
    buckets.extend(ANY); // watch_port
    buckets.extend(ANY); // watch_group
    buckets.extend([0; 4]);
    buckets.extend(actions);
}

/// OFPAT_OUTPUT.
fn output(port: u32) -> [u8; 16] {
    let mut action = [0; 16];
    action[3] = 16;
    action[4..8].copy_from_slice(&port.to_be_bytes());
    action
}

/// OFPAT_SET_FIELD of NXM_NX_PKT_MARK.
fn set_pkt_mark(mark: u32) -> [u8; 16] {
    let mut action = [0, 25, 0, 16, 0, 1, PKT_MARK << 1, 4, 0, 0, 0, 0, 0, 0, 0, 0];
    action[8..12].copy_from_slice(&mark.to_be_bytes());
    action
}

/// NXM_NX_PKT_MARK's field number in class NXM_1 (Open vSwitch, meta-flow.h).
const PKT_MARK: u8 = 33;

/// An OXM TLV that matches packets with `mark`.
pub fn pkt_mark_oxm(mark: u32) -> [u8; 8] {
    let mut tlv = [0, 1, PKT_MARK << 1, 4, 0, 0, 0, 0];
    tlv[4..].copy_from_slice(&mark.to_be_bytes());
    tlv
}

#[cfg(test)]
mod tests;
