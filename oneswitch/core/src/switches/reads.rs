//! Questions to switches: those of controllers, whose answers are merged (controllers/merge.rs), and our own.

use super::Switches;
use crate::api::{Bridge, ControllerId, Destination, SwitchIndex};
use crate::server::executors::Executors;
use crate::server::ports::Location;
use crate::switch_set::SwitchSet;
use crate::switches::fold::Folded;
use crate::switches::verdict::Origin;
use crate::wire::wire;
use openflow13::{
    ErrorCode, FlowStats, Header, Message, Multipart, MultipartReply, MultipartRequest,
};
use std::sync::Arc;

/// Messages of an answer, and whose they are.
pub type Parts = Vec<(SwitchIndex, MultipartReply)>;

/// Why switches were asked.
#[derive(Debug)]
pub enum Purpose {
    Controller(ControllerQuestion),
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

/// A controller's request, and where its answer goes.
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
    /// Bytes of the controller's budget that are reserved for the answer.
    pub reserved: usize,
    /// [`Server::epoch`] of the request.
    ///
    /// [`Server::epoch`]: crate::server::Server::epoch
    pub epoch: u64,
}

#[derive(Debug)]
pub(in crate::switches) struct Read {
    purpose: Purpose,
    /// Questions are numbered in the order in which they were asked.
    pub number: u64,
    bridge: Bridge,
    pub asked: SwitchSet,
    waiting: SwitchSet,
    /// Bytes of the answers so far.
    answered: usize,
    parts: Parts,
    /// Asked, and went away or refused to answer.
    missed: SwitchSet,
    /// Counters that moved from the copies to the rules meanwhile.
    pub folded: Vec<Arc<Folded>>,
    error: Option<ErrorCode>,
}

/// The answer of all switches that were asked.
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

/// The party that pays for the memory of a part of an answer.
#[derive(Clone, Copy, Debug)]
pub enum Payer {
    Us,
    /// A controller, with so many bytes beyond those that it has reserved.
    Controller(ControllerId, usize),
}

impl Switches {
    /// Asks `bridge` of every switch in `from`; the question's number.
    pub fn read(
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
                parts: Vec::new(),
                missed: SwitchSet::EMPTY,
                folded: Vec::new(),
                error: None,
            },
        );
        self.questions
    }

    /// Questions that are not answered.
    pub fn open_questions(&self) -> usize {
        self.reads.len()
    }

    pub fn is_question(&self, xid: u32) -> bool {
        self.reads.contains_key(&xid)
    }

    /// Counts a part of an answer; `None` if no such part is awaited.
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

    /// Notes that `switch` refused to answer.
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

    /// Notes that `switch` has answered; the answer, if it was the last one.
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

    /// A controller is gone: what switches have answered for it is of no use.
    pub fn forget_answers_for(&mut self, id: ControllerId) {
        for read in self.reads.values_mut() {
            if matches!(&read.purpose, Purpose::Controller(q) if q.origin.controller == id) {
                read.parts = Vec::new();
            }
        }
    }

    /// A bridge is gone: what it owed is not coming. Returns the questions that it owed answers to.
    pub fn forget_reads(&mut self, switch: SwitchIndex, bridge: Bridge) -> Vec<u32> {
        let mut owed = Vec::new();
        for (xid, read) in &mut self.reads {
            if read.bridge == bridge && read.waiting.contains(switch) {
                // Half an answer could not be told from a whole one.
                read.parts.retain(|(from, _)| *from != switch);
                read.missed.insert(switch);
                owed.push(*xid);
            }
        }
        owed
    }
}

/// Flow statistics of all parts, in order.
pub fn flows(parts: Parts) -> impl Iterator<Item = FlowStats> {
    parts.into_iter().flat_map(|(_, part)| match part {
        MultipartReply::Flow(flows) => flows,
        _ => Vec::new(),
    })
}
