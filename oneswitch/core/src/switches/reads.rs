//! Requests to switches: those of controllers, whose answers are merged (controllers/merge.rs), and our own.

use super::Switches;
use crate::api::{Bridge, ControllerId, Destination, SwitchIndex};
use crate::layout::translate::show_setters_as_written;
use crate::model::rule::{Rule, RuleKey};
use crate::model::truth::Existing;
use crate::server::executors::Executors;
use crate::server::ports::Location;
use crate::switch_set::SwitchSet;
use crate::switches::fold::Folded;
use crate::switches::port_counters::AskedNewer;
use crate::switches::verdict::Origin;
use crate::wire::wire;
use foldhash::{HashMap, HashSet};
use openflow13::{openflow10, openflow14};
use openflow13::{
    ErrorCode, FlowStats, Header, Message, Multipart, MultipartReply, MultipartRequest,
};
use std::sync::Arc;
use std::time::Instant;

/// Messages of an answer, and their switch.
pub type Parts = Vec<(SwitchIndex, MultipartReply)>;

/// The purpose of a request.
#[derive(Debug)]
pub enum Purpose {
    Controller(ControllerQuestion),
    /// A bridge came up.
    Inventory,
    /// The counters of a new interface from before it became this virtual port.
    MoveBaseline(u32, Location),
    /// The counters of a moving port's old interface.
    FoldPort(u32),
    /// The counters of copies that `new` no longer has.
    FoldRules {
        moving: Option<u32>,
        old: Executors,
        new: Executors,
    },
    /// The counters of removed copies of groups or meters; the port whose move waits for them.
    FoldCounters(Option<u32>),
    /// Finding idle rules with several copies.
    IdlePoll,
    /// The counters of the interfaces, for the choice of the switch where ports are gathered.
    Traffic,
    /// The beginning of a flow monitor.
    Watch,
    /// Rules that a switch has written, read before operation number `since`.
    Learned {
        keys: HashSet<RuleKey>,
        since: u64,
    },
    /// The counts of a port's offload rules, for its writer.
    OffloadCounts(u32),
    /// The meters of a port, for its writer.
    OffloadMeters(u32),
    /// The meters of a port, before its rules are listed.
    OffloadList(u32),
    /// The meters of a port, once the cached flows of rules have ended.
    OffloadDrain(u64),
    /// The packets that a port's offload rules carried, for a controller's question about ports.
    OffloadSum {
        question: u64,
        number: u32,
    },
}

impl Purpose {
    /// Tells whether the counters of ports that only OpenFlow 1.4 has are for it, too.
    fn shows_all_counters(&self) -> bool {
        match self {
            Self::Controller(question) => matches!(question.shown, Shown::Importance),
            purpose => matches!(purpose, Self::MoveBaseline(..) | Self::FoldPort(_)),
        }
    }
}

/// What a controller's version shows beside what OpenFlow 1.3 does: of rules, and the counters of ports that only OpenFlow 1.4 has.
#[derive(Clone, Debug)]
pub enum Shown {
    Nothing,
    /// The actions that only OpenFlow 1.0 shows as they were written.
    Written,
    /// The importance of rules, and all counters of ports.
    Importance,
    /// The ages, in the form of Nicira's statistics; those of rules that no switch has told are unknown.
    Ages(HashMap<RuleKey, u16>),
    /// The same times since the last packets.
    ImportanceAndIdleAge(HashMap<RuleKey, u16>),
}

impl Shown {
    pub fn in_version(version: u8) -> Self {
        match version {
            openflow10::VERSION => Self::Written,
            openflow14::VERSION.. => Self::Importance,
            _ => Self::Nothing,
        }
    }

    /// Adds it to the statistics of a rule.
    pub fn apply(&self, flow: &mut FlowStats, rule: &Rule, now: Instant) {
        let since = |then| now.saturating_duration_since(then).as_secs();
        let idle = |ages: &HashMap<RuleKey, u16>| {
            // A rule that the switches did not have yet when they were asked is new.
            let idle = ages.get(&rule.key).copied();
            idle.unwrap_or_else(|| shown(since(rule.created)))
        };
        if matches!(self, Self::Written | Self::Ages(_)) {
            show_setters_as_written(&mut flow.instructions, &rule.instructions);
        }
        (flow.importance, flow.idle_age) = match self {
            Self::Nothing | Self::Written => (0, 0),
            Self::Importance => (rule.importance, 0),
            Self::Ages(ages) => (shown(since(rule.modified)), idle(ages)),
            Self::ImportanceAndIdleAge(ages) => (rule.importance, idle(ages)),
        };
    }

    /// Adds it to the statistics of a rule that a switch has made by itself; only its switch knows when it last changed.
    pub fn apply_learned(&self, flow: &mut FlowStats, key: Option<&RuleKey>) {
        if let Self::Ages(ages) | Self::ImportanceAndIdleAge(ages) = self {
            let idle = key.and_then(|key| ages.get(key)).copied();
            flow.idle_age = idle.unwrap_or_else(|| shown(flow.duration_sec.into()));
        }
    }
}

/// Returns an age in seconds as on the wire, where 0 is an unknown one.
fn shown(age: u64) -> u16 {
    u16::try_from(age + 1).unwrap_or(u16::MAX)
}

/// A controller's request, and the place of its reply.
#[derive(Debug)]
pub struct ControllerQuestion {
    pub origin: Origin,
    pub frame: Box<[u8]>,
    pub slot: u64,
    pub request: MultipartRequest,
    /// [`FlowTables::begin_reading`] of the request.
    ///
    /// [`FlowTables::begin_reading`]: crate::model::tables::FlowTables::begin_reading
    pub since: u64,
    pub existing: Existing,
    /// The batch of the messages before it: their effect is known once it is settled.
    pub behind: u64,
    /// Bytes of the controller's budget reserved for the answer.
    pub reserved: usize,
    /// [`Server::epoch`] of the request.
    ///
    /// [`Server::epoch`]: crate::server::Server::epoch
    pub epoch: u64,
    /// The sums of offload rules that are asked for with it.
    pub offloaded: Option<u64>,
    pub shown: Shown,
}

#[derive(Debug)]
pub(in crate::switches) struct Read {
    purpose: Purpose,
    /// Requests are numbered in their order.
    pub number: u64,
    bridge: Bridge,
    pub asked: SwitchSet,
    waiting: SwitchSet,
    /// Those that are asked over OpenFlow 1.4.
    newer: Option<AskedNewer>,
    /// Bytes of the answers so far.
    answered: usize,
    parts: Parts,
    /// Switches that disconnected or refused to answer.
    missed: SwitchSet,
    /// Counters that moved from the copies to the rules meanwhile.
    pub folded: Vec<Arc<Folded>>,
    error: Option<ErrorCode>,
}

/// The complete answer of all switches.
#[derive(Debug)]
pub struct Answer {
    pub purpose: Purpose,
    pub number: u64,
    pub bridge: Bridge,
    pub asked: SwitchSet,
    pub missed: SwitchSet,
    pub parts: Parts,
    pub folded: Vec<Arc<Folded>>,
    pub error: Option<ErrorCode>,
    /// The switch that answered last.
    pub last: SwitchIndex,
}

/// The payer of a partial answer's memory.
#[derive(Clone, Copy, Debug)]
pub enum Payer {
    Us,
    /// A controller, with this many bytes beyond those reserved.
    Controller(ControllerId, usize),
}

impl Switches {
    /// Sends a request to `bridge` of every switch in `from`; returns its number.
    pub fn read(
        &mut self,
        purpose: Purpose,
        bridge: Bridge,
        from: SwitchSet,
        request: MultipartRequest,
    ) -> u64 {
        let xid = self.fresh_xid();
        let newer = match purpose.shows_all_counters() {
            true => self.ask_newer(xid, (bridge, from), &request),
            false => None,
        };
        let others = newer.map_or(from, |newer| from.minus(newer.switches));
        let messages = in_messages(request);
        for message in messages.map(|part| wire(xid, &Message::MultipartRequest(part))) {
            for switch in others.iter() {
                self.outbox
                    .put(Destination::Switch(switch, bridge), &message);
            }
        }
        self.questions += 1;
        self.reads.insert(
            xid,
            Read {
                purpose,
                number: self.questions,
                bridge,
                asked: from,
                waiting: from,
                newer,
                answered: 0,
                parts: Vec::new(),
                missed: SwitchSet::EMPTY,
                folded: Vec::new(),
                error: None,
            },
        );
        self.questions
    }

    /// Keeps an answer for a controller until the messages before its request are settled; returns others.
    pub fn keep_early(&mut self, answer: Answer) -> Option<Answer> {
        if self.is_early(&answer) {
            self.early.push(answer);
            return None;
        }
        Some(answer)
    }

    /// Returns the answers that have been kept for long enough.
    pub fn take_settled_answers(&mut self) -> Vec<Answer> {
        let answers = std::mem::take(&mut self.early);
        let (early, settled) = answers
            .into_iter()
            .partition(|answer| self.is_early(answer));
        self.early = early;
        settled
    }

    fn is_early(&self, answer: &Answer) -> bool {
        matches!(&answer.purpose, Purpose::Controller(question) if !self.verdicts.is_settled(question.behind))
    }

    /// Counts unanswered requests.
    pub fn open_questions(&self) -> usize {
        self.reads.len()
    }

    /// Tells whether the counters of copies are being read, for controllers or to be kept.
    pub fn counts_copies(&self) -> bool {
        let counts = |read: &Read| {
            matches!(
                read.purpose,
                Purpose::Controller(_) | Purpose::FoldRules { .. } | Purpose::FoldCounters(_)
            )
        };
        !self.early.is_empty() || self.reads.values().any(counts)
    }

    pub fn is_question(&self, xid: u32) -> bool {
        self.reads.contains_key(&xid)
    }

    /// Counts a part of an answer; `None` if none is awaited.
    pub fn part_arrives(
        &mut self,
        switch: SwitchIndex,
        bridge: Bridge,
        header: Header,
    ) -> Option<Payer> {
        let read = self.reads.get_mut(&header.xid)?;
        if read.bridge != bridge || !read.waiting.contains(switch) {
            return None;
        }
        read.answered += usize::from(header.length);
        let Purpose::Controller(question) = &mut read.purpose else {
            return Some(Payer::Us);
        };
        let more = read.answered.saturating_sub(question.reserved);
        question.reserved += more;
        Some(Payer::Controller(question.origin.controller, more))
    }

    pub fn keep_part(&mut self, xid: u32, switch: SwitchIndex, part: MultipartReply) {
        if let Some(read) = self.reads.get_mut(&xid) {
            read.parts.push((switch, part));
        }
    }

    /// Records that `switch` refused to answer.
    pub fn read_failed(
        &mut self,
        switch: SwitchIndex,
        bridge: Bridge,
        xid: u32,
        error: ErrorCode,
    ) -> Option<Answer> {
        let read = self.reads.get_mut(&xid)?;
        if read.bridge != bridge {
            return None;
        }
        read.error.get_or_insert(error);
        read.missed.insert(switch);
        self.read_answered(xid, switch)
    }

    /// Records that `switch` has answered; returns the answer, if it was the last one.
    pub fn read_answered(&mut self, xid: u32, switch: SwitchIndex) -> Option<Answer> {
        let read = self.reads.get_mut(&xid)?;
        read.waiting.remove(switch);
        if !read.waiting.is_empty() {
            return None;
        }
        let read = self.reads.remove(&xid)?;
        Some(Answer {
            purpose: read.purpose,
            number: read.number,
            bridge: read.bridge,
            asked: read.asked,
            missed: read.missed,
            parts: read.parts,
            folded: read.folded,
            error: read.error,
            last: switch,
        })
    }

    /// Returns the requests that a bridge is to answer over OpenFlow 1.4 or 1.5.
    pub(super) fn asked_newer(&self, switch: SwitchIndex, bridge: Bridge) -> Vec<u32> {
        let is_asked = |read: &Read| {
            let newer = read.newer.filter(|newer| newer.switches.contains(switch));
            newer.is_some() && read.bridge == bridge && read.waiting.contains(switch)
        };
        let reads = self.reads.iter();
        let asked = reads.filter(|(_, read)| is_asked(read));
        asked.map(|(xid, _)| *xid).collect()
    }

    /// Drops what a switch has told over OpenFlow 1.4 or 1.5; returns the bridge, and the number of the port that it is asked for.
    pub(super) fn takes_back_newer(
        &mut self,
        switch: SwitchIndex,
        xid: u32,
    ) -> Option<(Bridge, u32)> {
        let read = self.reads.get_mut(&xid)?;
        let newer = read.newer.as_mut()?;
        let was_asked = newer.switches.contains(switch) && read.waiting.contains(switch);
        newer.switches.remove(switch);
        let asked = (read.bridge, newer.port);
        if was_asked {
            read.parts.retain(|(from, _)| *from != switch);
        }
        was_asked.then_some(asked)
    }

    /// Drops switches' answers for a disconnected controller.
    pub fn forget_answers_for(&mut self, id: ControllerId) {
        for read in self.reads.values_mut() {
            if matches!(&read.purpose, Purpose::Controller(q) if q.origin.controller == id) {
                read.parts = Vec::new();
            }
        }
    }

    /// Drops the pending answers of a disconnected bridge; returns their requests.
    pub fn forget_reads(&mut self, switch: SwitchIndex, bridge: Bridge) -> Vec<u32> {
        let mut owed = Vec::new();
        for (xid, read) in &mut self.reads {
            if read.bridge == bridge && read.waiting.contains(switch) {
                // A partial answer could not be distinguished from a complete one.
                read.parts.retain(|(from, _)| *from != switch);
                read.missed.insert(switch);
                owed.push(*xid);
            }
        }
        owed
    }
}

/// Iterates over the flow statistics of all parts, in order.
pub fn flows(parts: Parts) -> impl Iterator<Item = FlowStats> {
    parts.into_iter().flat_map(|(_, part)| match part {
        MultipartReply::Flow(flows) => flows,
        _ => Vec::new(),
    })
}

/// Splits a request that does not fit into one message. Only table features, a list of entries, can be so long.
pub(in crate::switches) fn in_messages(
    request: MultipartRequest,
) -> impl Iterator<Item = Multipart<MultipartRequest>> {
    /// Bytes of the longest message, without its header.
    const ROOM: usize = 65_535 - 16;
    let mut parts = Vec::new();
    match request {
        MultipartRequest::TableFeatures(list) if list.len() > ROOM => {
            let (mut begin, mut end) = (0, 0);
            while let Some(Ok(length)) = list.get(end..end + 2).map(<[u8; 2]>::try_from) {
                let next = end + usize::from(u16::from_be_bytes(length)).max(8);
                if next - begin > ROOM {
                    parts.push(list[begin..end].into());
                    begin = end;
                }
                end = next.min(list.len());
            }
            parts.push(list[begin..].into());
            let features = parts.into_iter().map(MultipartRequest::TableFeatures);
            parts_of(features.collect())
        }
        one => parts_of(vec![one]),
    }
}

fn parts_of(bodies: Vec<MultipartRequest>) -> impl Iterator<Item = Multipart<MultipartRequest>> {
    let last = bodies.len() - 1;
    let numbered = bodies.into_iter().enumerate();
    numbered.map(move |(index, body)| Multipart {
        more: index < last,
        body,
    })
}

#[cfg(test)]
mod tests;
