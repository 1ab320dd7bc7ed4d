//! Changes of the features of tables over OpenFlow 1.5, which has commands and errors of its own for them: the hypervisor gets them in this
//! version, and its answers are those to the controllers.

use crate::api::SwitchIndex;
use crate::controllers::Incoming;
use crate::core::links::Link;
use crate::core::Core;
use crate::server::executors::HUB;
use crate::switches::reads::ControllerQuestion;
use foldhash::HashMap;
use openflow13::openflow15::{self, decode_error};
use openflow13::{set_xid, Header, MultipartRequest};
use std::time::Instant;

/// The requests without a complete answer, by the xid to the hypervisor.
#[derive(Debug, Default)]
pub struct TableChanges(HashMap<u32, Asked>);

#[derive(Debug)]
struct Asked {
    question: ControllerQuestion,
    answer: Vec<Vec<u8>>,
}

impl Core {
    /// Holds a change until the hypervisor can get it over OpenFlow 1.5. Returns false for another request, and if it never can.
    pub(in crate::core) fn holds_table_change(
        &mut self,
        incoming: Incoming<'_>,
        request: &MultipartRequest,
        now: Instant,
    ) -> bool {
        incoming.version() == openflow15::VERSION
            && is_change(request)
            && !self.tells_hub_newer()
            && self.holds_until_linked(incoming, Link::Version15, now)
    }

    fn tells_hub_newer(&self) -> bool {
        self.switches.properties.rounds.links().contains(HUB)
    }

    /// Sends a change to the hypervisor over OpenFlow 1.5, and a request for the features behind it. Returns others, which go over 1.3.
    pub(in crate::core) fn change_tables(
        &mut self,
        version: u8,
        question: ControllerQuestion,
    ) -> Option<ControllerQuestion> {
        let is_change = is_change(&question.request);
        let is_behind = matches!(question.request, MultipartRequest::TableFeatures(_))
            && !self.table_changes.0.is_empty();
        let is_newer = version == openflow15::VERSION && self.tells_hub_newer();
        if !is_newer || !is_change && !is_behind {
            return Some(question);
        }
        let xid = self.switches.request_newer(HUB, question.request.clone());
        let answer = Vec::new();
        self.table_changes.0.insert(xid, Asked { question, answer });
        None
    }

    /// Handles a part of the hypervisor's answer. Returns false for another message.
    pub(in crate::core) fn table_change_answered(
        &mut self,
        switch: SwitchIndex,
        frame: &[u8],
        now: Instant,
    ) -> bool {
        /// Offset of `ofp_multipart_reply.flags`, and OFPMPF_REPLY_MORE.
        const FLAGS: usize = 10;
        const MORE: [u8; 2] = [0, 1];
        let xid = Header::parse(frame).filter(|_| switch == HUB);
        let xid = xid.map(|header| header.xid);
        let Some((xid, asked)) =
            xid.and_then(|xid| Some((xid, self.table_changes.0.get_mut(&xid)?)))
        else {
            return false;
        };
        let error = decode_error(frame).map(|told| told.error);
        if error.is_none() {
            let origin = asked.question.origin;
            asked.question.reserved += frame.len();
            if self.controllers.pay(origin.controller, frame.len()) {
                let mut part = frame.to_vec();
                set_xid(&mut part, origin.xid);
                asked.answer.push(part);
            }
        }
        let has_more = frame.get(FLAGS..FLAGS + 2) == Some(&MORE[..]);
        if error.is_some() || !has_more {
            let asked = self.table_changes.0.remove(&xid);
            if let Some(Asked { question, answer }) = asked {
                match error {
                    Some(_) => self.answer_controller(question, Vec::new(), error, now),
                    None => {
                        let place = (question.origin.controller, question.slot);
                        self.give_answer(place, question.reserved, answer.into());
                    }
                }
            }
        }
        true
    }

    /// Repeats over OpenFlow 1.3 the changes that a connection of 1.5 has lost: a change that is made twice is made once.
    pub(in crate::core) fn table_changes_lost(&mut self, switch: SwitchIndex, now: Instant) {
        if switch != HUB {
            return;
        }
        for asked in std::mem::take(&mut self.table_changes.0).into_values() {
            let question = asked.question;
            let (bridge, from) = self.view().sources(&question.request);
            if from.is_empty() {
                self.answer_controller(question, Vec::new(), None, now);
            } else {
                let request = question.request.clone();
                self.ask_switches(question, (bridge, from), request, now);
            }
        }
    }
}

fn is_change(request: &MultipartRequest) -> bool {
    matches!(request, MultipartRequest::TableFeatures(list) if !list.is_empty())
}
