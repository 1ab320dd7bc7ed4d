//! Messages of controllers that go to the switches over OpenFlow 1.5 (switches/newer.rs): they wait until they are alone.

use crate::api::{Bridge, SwitchIndex};
use crate::controllers::Incoming;
use crate::core::links::Link;
use crate::core::Core;
use crate::model::truth::Request;
use crate::switch_set::SwitchSet;
use crate::switches::verdict::NOT_AN_OPERATION;
use openflow13::openflow15::decode_error;
use openflow13::{kind, Header};
use std::time::Instant;

impl Core {
    pub fn properties_down(&mut self, switch: SwitchIndex, now: Instant) {
        if self.switches.properties_down(switch) {
            // It may have got the messages.
            self.forget_trial(switch);
            self.switches.doubt(switch, Bridge::Virt, now);
            self.switches.request_resync(switch, Bridge::Virt, now);
        }
        self.table_changes_lost(switch, now);
        self.settle(now);
    }

    /// Handles a message on such a connection.
    pub fn properties_told(&mut self, switch: SwitchIndex, frame: &[u8], now: Instant) {
        if self.table_change_answered(switch, frame, now) {
            return self.settle(now);
        }
        let Some(header) = Header::parse(frame) else {
            return;
        };
        let xid = header.xid;
        if self.switches.is_question(xid) {
            self.counters_told((switch, Bridge::Virt), header, frame, now);
            return self.settle(now);
        }
        let error = decode_error(frame);
        let is_barrier = frame.get(1) == Some(&kind::BARRIER_REPLY);
        match error {
            Some(error) if xid & NOT_AN_OPERATION == 0 => {
                self.switches.verdicts.refuse(xid, switch, error);
            }
            Some(error) if self.bundle_error(switch, Bridge::Virt, xid, &error) => {}
            None if is_barrier && self.trial_answered(switch, xid) => {}
            _ => {
                if is_barrier {
                    self.switches.verdicts.newer_reply(xid, switch);
                }
                self.switches
                    .properties_told(&self.truth, &self.server, switch, frame);
            }
        }
        self.settle(now);
    }

    /// Holds a message that goes to the switches over OpenFlow 1.5 until they can get it and no other message is in flight. Returns false if
    /// it can be handled, or refused, now.
    pub(in crate::core) fn holds_until_alone(
        &mut self,
        incoming: Incoming<'_>,
        now: Instant,
    ) -> bool {
        if self.holds_until_linked(incoming, Link::Version15, now) {
            return true;
        }
        let is_alone = self.switches.verdicts.in_flight() == 0;
        let waits = self.commit.is_none() && !is_alone && self.unlinked(Link::Version15).is_empty();
        if waits {
            let batch = self.switches.verdicts.current_batch();
            self.hold_until_settled(incoming, batch);
        }
        waits
    }

    /// Does `send`, whose messages go over OpenFlow 1.5. All other messages of controllers wait for their verdict; those of a bundle, for the
    /// bundle's.
    pub(in crate::core) fn speaking_newer(&mut self, send: impl FnOnce(&mut Self)) {
        let is_part = self.switches.is_collecting();
        self.switches.speak_newer(true);
        send(self);
        self.switches.speak_newer(is_part);
        if !is_part {
            self.hold_behind_operation();
        }
    }

    /// As [`Self::operate`], over OpenFlow 1.5 if the switches can get it so.
    pub(in crate::core) fn operate_newer(
        &mut self,
        incoming: Incoming<'_>,
        changed: Option<Vec<u8>>,
        request: Request,
        targets: SwitchSet,
        now: Instant,
    ) {
        if self.unlinked(Link::Version15).is_empty() {
            return self.speaking_newer(|core| {
                core.operate(incoming, changed, request, targets, now);
            });
        }
        self.operate(incoming, changed, request, targets, now);
        self.switches.require_properties(targets);
    }
}
