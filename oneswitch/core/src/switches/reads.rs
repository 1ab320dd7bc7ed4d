//! Questions to switches: those of controllers, whose answers are merged (merge.rs), and our own.

use crate::api::{Bridge, ControllerId, Destination, SwitchIndex};
use crate::controllers::controller::Controller;
use crate::core::northbound::Incoming;
use crate::layout::messages::key_of;
use crate::model::rule::RuleKey;
use crate::mutants::{mutant, Fault};
use crate::server::executors::Executors;
use crate::server::ports::Location;
use crate::switch_set::SwitchSet;
use crate::switches::fold::{Fold, Folded};
use crate::switches::verdict::Origin;
use crate::wire::wire;
use crate::Core;
use foldhash::{HashMap, HashMapExt};
use openflow13::{
    encode_error, group_no, meter_no, ErrorCode, FlowStats, Header, Message, Multipart,
    MultipartReply, MultipartRequest, PortStats,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// Messages of an answer, and whose they are.
pub type Parts = Vec<(SwitchIndex, MultipartReply)>;

/// What is merged into one answer.
#[derive(Debug)]
pub struct Answers {
    pub parts: Parts,
    /// The executors are those of the time of the request.
    pub steady: bool,
    /// [`FlowTables::begin_reading`] of the request.
    ///
    /// [`FlowTables::begin_reading`]: crate::model::tables::FlowTables::begin_reading
    pub since: u64,
}

/// Why switches were asked.
#[derive(Debug)]
pub enum Purpose {
    Controller {
        origin: Origin,
        frame: Box<[u8]>,
        slot: u64,
        request: MultipartRequest,
        since: u64,
        /// Bytes of the controller's budget that are reserved for the answer.
        reserved: usize,
    },
    /// A bridge came up.
    Inventory,
    /// What a new interface counted before it became this virtual port.
    MoveBaseline(u32, Location),
    /// What the old interface of a moving port counted.
    FoldPort(u32),
    /// What copies counted that `new` has no more.
    FoldRules {
        moving: Option<u32>,
        old: Executors,
        new: Executors,
    },
    /// What copies of groups or meters counted where there are none any more; the port whose move waits for it.
    FoldCounters(Option<u32>),
    /// Which rules with several copies are idle.
    IdlePoll,
}

#[derive(Debug)]
pub struct Read {
    purpose: Purpose,
    /// Questions are numbered in the order in which they were asked.
    pub number: u64,
    bridge: Bridge,
    pub asked: SwitchSet,
    waiting: SwitchSet,
    /// Bytes of the answers so far.
    answered: usize,
    /// `executors_epoch` when it was asked.
    epoch: u64,
    parts: Parts,
    /// Asked, and went away or refused to answer.
    missed: SwitchSet,
    /// Counters that moved from the copies to the rules meanwhile.
    pub folded: Vec<Arc<Folded>>,
    error: Option<ErrorCode>,
}

impl Core {
    /// Asks `bridge` of every switch in `from`; the question's number.
    pub(crate) fn read(
        &mut self,
        purpose: Purpose,
        bridge: Bridge,
        from: SwitchSet,
        request: MultipartRequest,
    ) -> u64 {
        let xid = self.fresh_xid();
        let frame = wire(xid, &Message::MultipartRequest(Multipart::last(request)));
        for switch in from.iter() {
            self.outbox.put(Destination::Switch(switch, bridge), &frame);
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
                answered: 0,
                epoch: self.executors_epoch,
                parts: Vec::new(),
                missed: SwitchSet::EMPTY,
                folded: Vec::new(),
                error: None,
            },
        );
        self.questions
    }

    pub(crate) fn read_reply(
        &mut self,
        switch: SwitchIndex,
        bridge: Bridge,
        header: Header,
        reply: Multipart<MultipartReply>,
        now: Instant,
    ) {
        let xid = header.xid;
        let Some(read) = self.reads.get_mut(&xid) else {
            return;
        };
        if read.bridge != bridge || !read.waiting.contains(switch) {
            return;
        }
        read.answered += usize::from(header.length);
        if read.is_wanted(&mut self.controllers) {
            read.parts.push((switch, reply.body));
        }
        if !reply.more || mutant(Fault::MoreFlagLost) {
            self.read_answered(xid, switch, now);
        }
    }

    pub(crate) fn read_failed(
        &mut self,
        switch: SwitchIndex,
        bridge: Bridge,
        xid: u32,
        error: ErrorCode,
        now: Instant,
    ) {
        let Some(read) = self.reads.get_mut(&xid) else {
            return;
        };
        if read.bridge == bridge {
            read.error.get_or_insert(error);
            read.missed.insert(switch);
            self.read_answered(xid, switch, now);
        }
    }

    fn read_answered(&mut self, xid: u32, switch: SwitchIndex, now: Instant) {
        let Some(read) = self.reads.get_mut(&xid) else {
            return;
        };
        read.waiting.remove(switch);
        if read.waiting.is_empty() {
            if let Some(read) = self.reads.remove(&xid) {
                self.finish_read(read, switch, now);
            }
        }
    }

    /// A controller is gone: what switches have answered for it is of no use.
    pub(crate) fn forget_answers_for(&mut self, id: ControllerId) {
        for read in self.reads.values_mut() {
            if matches!(&read.purpose, Purpose::Controller { origin, .. } if origin.controller == id)
            {
                read.parts = Vec::new();
            }
        }
    }

    /// A bridge is gone: what it owed is not coming.
    pub(crate) fn forget_reads(&mut self, switch: SwitchIndex, bridge: Bridge, now: Instant) {
        let mut owed = Vec::new();
        for (xid, read) in &mut self.reads {
            if read.bridge == bridge && read.waiting.contains(switch) {
                // Half an answer could not be told from a whole one.
                read.parts.retain(|(from, _)| *from != switch);
                read.missed.insert(switch);
                owed.push(*xid);
            }
        }
        owed.into_iter()
            .for_each(|xid| self.read_answered(xid, switch, now));
    }

    fn finish_read(&mut self, read: Read, last: SwitchIndex, now: Instant) {
        let Read {
            purpose,
            number: question,
            bridge,
            asked,
            missed,
            epoch,
            mut parts,
            folded,
            error,
            ..
        } = read;
        match purpose {
            Purpose::Controller {
                origin,
                frame,
                slot,
                request,
                since,
                reserved,
            } => {
                let reply = match error {
                    Some(error) => {
                        self.refused += 1;
                        encode_error(origin.xid, error, &frame).into()
                    }
                    None => {
                        folded
                            .iter()
                            .for_each(|f| f.take_from(&request, &mut parts));
                        let steady = epoch == self.executors_epoch;
                        let answers = Answers {
                            parts,
                            steady,
                            since,
                        };
                        self.merge(&request, answers, origin.xid, now)
                    }
                };
                self.truth.tables.end_reading();
                if let Some(controller) = self.controllers.get_mut(&origin.controller) {
                    controller.give_back(reserved);
                }
                self.fill_reply(origin.controller, slot, reply);
            }
            Purpose::Inventory => self.inventory_part(last, bridge, parts, error, now),
            Purpose::MoveBaseline(number, goal) => {
                let stats = first_port_stats(parts);
                self.baseline_answered(number, &goal, question, stats, error);
            }
            Purpose::FoldPort(number)
            | Purpose::FoldRules {
                moving: Some(number),
                ..
            }
            | Purpose::FoldCounters(Some(number))
                if !missed.is_empty() =>
            {
                self.fold_missed(number, error, now)
            }
            Purpose::FoldPort(number) => {
                let stats = first_port_stats(parts);
                let stats = stats.filter(|_| !mutant(Fault::PortStatsLostOnMove));
                self.folded(number, stats.map(Fold::Port), now);
            }
            Purpose::FoldRules { moving, old, new } => match moving {
                Some(number) => {
                    let fold = Fold::Rules {
                        switch: last,
                        parts,
                        old,
                        new,
                    };
                    self.folded(number, Some(fold), now);
                }
                // The copies were removed right after the question.
                None => self.fold_rules(last, parts, &old, &new, question),
            },
            Purpose::FoldCounters(Some(number)) => {
                self.folded(number, Some(Fold::Counted(parts)), now)
            }
            Purpose::FoldCounters(None) => self.fold_counted(parts),
            Purpose::IdlePoll => {
                let heard = asked.minus(missed);
                self.idle_polled(&count_by_rule(flows(parts)), heard, now);
            }
        }
    }

    /// A controller's multipart request.
    pub(crate) fn multipart_request(
        &mut self,
        incoming: Incoming<'_>,
        request: Multipart<MultipartRequest>,
        now: Instant,
    ) {
        if request.more {
            // Only table features could need several parts, and Open vSwitch takes none either.
            return self.refuse(incoming, ErrorCode::BAD_REQUEST_MULTIPART_BUFFER_OVERFLOW);
        }
        let request = request.body;
        if let Some(error) = self.unknown_subject(&request) {
            return self.refuse(incoming, error);
        }
        let origin = incoming.origin;
        let Some(slot) = self.reserve_reply(origin.controller) else {
            return;
        };
        let (bridge, from) = self.sources(&request);
        if from.is_empty() {
            let answers = Answers {
                parts: Vec::new(),
                steady: true,
                since: u64::MAX,
            };
            let reply = self.merge(&request, answers, origin.xid, now);
            return self.fill_reply(origin.controller, slot, reply);
        }
        let reserved = self.answer_size(&request) + incoming.frame.len();
        if let Some(controller) = self.controllers.get_mut(&origin.controller) {
            controller.reserve_bytes(reserved);
        }
        let since = self.truth.tables.begin_reading();
        let asked = self.physical_request(&request);
        self.read(
            Purpose::Controller {
                origin,
                frame: incoming.frame.into(),
                slot,
                request,
                since,
                reserved,
            },
            bridge,
            from,
            asked,
        );
    }
}

impl Read {
    /// Whether somebody waits for the answer; if a controller does, its budget pays for what has come.
    fn is_wanted(&mut self, controllers: &mut BTreeMap<ControllerId, Controller>) -> bool {
        let Purpose::Controller {
            origin, reserved, ..
        } = &mut self.purpose
        else {
            return true;
        };
        let Some(controller) = controllers.get_mut(&origin.controller) else {
            return false;
        };
        let more = self.answered.saturating_sub(*reserved);
        *reserved += more;
        controller.reserve_bytes(more);
        true
    }
}

/// Flow statistics of all parts, in order.
pub(crate) fn flows(parts: Parts) -> impl Iterator<Item = FlowStats> {
    parts.into_iter().flat_map(|(_, part)| match part {
        MultipartReply::Flow(flows) => flows,
        _ => Vec::new(),
    })
}

/// Packets counted per rule, over all copies.
fn count_by_rule(flows: impl Iterator<Item = FlowStats>) -> HashMap<RuleKey, u64> {
    let mut counts = HashMap::new();
    for flow in flows {
        if let Some(key) = key_of(&flow) {
            *counts.entry(key).or_insert(0u64) += flow.packet_count;
        }
    }
    counts
}

fn first_port_stats(parts: Parts) -> Option<PortStats> {
    parts.into_iter().find_map(|(_, part)| match part {
        MultipartReply::PortStats(stats) => stats.into_iter().next(),
        _ => None,
    })
}

/// All ones: this counter is not kept (OpenFlow 1.3.5, 7.3.5.6).
const UNSUPPORTED: u64 = u64::MAX;

/// `base` + what an interface counted, modulo 2^64: a base of all ones is -1. A counter that is not kept there adds nothing.
pub(crate) fn plus(base: u64, counted: u64) -> u64 {
    match counted {
        UNSUPPORTED => base,
        counted => base.wrapping_add(counted),
    }
}

/// As [`plus`], the difference.
pub(crate) fn minus(base: u64, counted: u64) -> u64 {
    match counted {
        UNSUPPORTED => base,
        counted => base.wrapping_sub(counted),
    }
}

/// As [`plus`], for a controller: the port does not keep a counter that its interface does not keep.
pub(crate) fn shown(base: u64, counted: u64) -> u64 {
    match counted {
        UNSUPPORTED => UNSUPPORTED,
        counted => base.wrapping_add(counted),
    }
}

/// Combines two ports' counters field by field with [`plus`], [`minus`] or [`shown`].
pub(crate) fn combine_ports(
    a: &PortStats,
    b: &PortStats,
    combine: fn(u64, u64) -> u64,
) -> PortStats {
    PortStats {
        port_no: a.port_no,
        rx_packets: combine(a.rx_packets, b.rx_packets),
        tx_packets: combine(a.tx_packets, b.tx_packets),
        rx_bytes: combine(a.rx_bytes, b.rx_bytes),
        tx_bytes: combine(a.tx_bytes, b.tx_bytes),
        rx_dropped: combine(a.rx_dropped, b.rx_dropped),
        tx_dropped: combine(a.tx_dropped, b.tx_dropped),
        rx_errors: combine(a.rx_errors, b.rx_errors),
        tx_errors: combine(a.tx_errors, b.tx_errors),
        rx_frame_err: combine(a.rx_frame_err, b.rx_frame_err),
        rx_over_err: combine(a.rx_over_err, b.rx_over_err),
        rx_crc_err: combine(a.rx_crc_err, b.rx_crc_err),
        collisions: combine(a.collisions, b.collisions),
        duration_sec: b.duration_sec,
        duration_nsec: b.duration_nsec,
    }
}

/// Whether a group or meter request asks for `id`.
pub(crate) fn asks_for_group(asked: u32, id: u32) -> bool {
    asked == group_no::ALL || asked == group_no::ANY || asked == id
}

pub(crate) fn asks_for_meter(asked: u32, id: u32) -> bool {
    asked == meter_no::ALL || asked == id
}
