//! Bundles of controllers: all of their messages come into force, on all switches, or none does.
//!
//! Everything else waits during a commit, as in Open vSwitch. First the switches try the bundle (switches/bundles.rs); it is sent for good only
//! if all of them would accept it. If it has packet-outs and is for one switch only, that one decides: Open vSwitch 3.1 keeps the
//! rules that packet-outs of a trial made it learn, and the packet-outs would meet them at the commit. If a switch refuses the commit nevertheless,
//! oneswitchd takes the bundle back everywhere, as it does with a message that one switch refused.

use crate::api::{Bridge, ControllerRole, SwitchIndex};
use crate::controllers::bundles::Part;
use crate::controllers::Incoming;
use crate::core::bundle_parts::{
    carried_out, facts_of, inner_of, is_packet_out, lacks_header, named_by, needs_openflow15,
    part_origin, sent_inner_of, unacceptable,
};
use crate::core::links::Link;
use crate::core::Core;
use crate::model::facts::Facts;
use crate::model::truth::{Changes, Request};
use crate::server::executors::HUB;
use crate::switch_set::SwitchSet;
use crate::switches::bundles::{Collected, Trial};
use crate::switches::verdict::Origin;
use openflow13::bundle::{self, Add, Bundle, Control, ControlType};
use openflow13::openflow10::decode_later_flow_mod;
use openflow13::{
    config, decode, ErrorCode, ErrorMessage, Experimenter, Message, PortMod, Refusal,
};
use std::ops::Range;
use std::time::Instant;
use tracing::{info, warn};

/// A bundle that is being committed.
#[derive(Debug)]
pub struct Commit {
    origin: Origin,
    /// The commit as the controller sent it.
    sent: Box<[u8]>,
    control: Control,
    parts: Vec<Part>,
    is_atomic: bool,
    /// The number of the first operation of each part so far.
    begins: Vec<u64>,
    /// The error of the latest part, if no switch has to refuse it.
    refused: Option<ErrorCode>,
    port_mods: Vec<(Origin, PortMod)>,
    /// The groups that its parts name.
    named: Vec<u32>,
    operations: Range<u64>,
    collected: Collected,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// Its parts are being handled.
    Collecting,
    Trying(Trial),
    /// Waits for this batch: refused, or sent with this xid.
    Settling {
        batch: u64,
        commit: Option<u32>,
        outcome: Result<(), Failure>,
        is_tried: bool,
    },
}

/// The reason why a bundle does not come into force.
#[derive(Debug)]
enum Failure {
    /// A part, and its error.
    Part(usize, ErrorCode),
    /// A switch refused all of it, or has disconnected.
    Whole,
}

impl Commit {
    /// Tells whether its parts name a group.
    pub(in crate::core) fn names(&self, group: u32) -> bool {
        self.named.contains(&group)
    }
}

impl Core {
    /// Handles a message about a bundle; `None`: it is not one.
    pub(in crate::core) fn bundle_message(
        &mut self,
        incoming: Incoming<'_>,
        message: &Experimenter,
        now: Instant,
    ) -> Option<()> {
        let decoded = bundle::decode(incoming.origin.xid, message)?;
        let role = self.controllers.role(incoming.origin.controller);
        match decoded {
            // Open vSwitch checks the length before the role, and that before the content.
            Err(refusal) if refusal.error == ErrorCode::BAD_REQUEST_BAD_LEN => {
                self.refuse_bundle_message(incoming, refusal)
            }
            _ if role == Some(ControllerRole::Slave) => {
                self.refuse(incoming, ErrorCode::BAD_REQUEST_IS_SLAVE)
            }
            Err(refusal) => self.refuse_bundle_message(incoming, refusal),
            Ok(Bundle::Control(Control { bundle_id, .. }))
                if self.holds_until_opened(incoming, bundle_id) => {}
            Ok(Bundle::Add(add)) => self.add_to_bundle(incoming, add, now),
            Ok(Bundle::Control(control)) => self.control_bundle(incoming, control, now),
        }
        Some(())
    }

    /// Holds a message about a bundle that an addition opened, until the switches have read that. Returns whether it does: Open vSwitch opens
    /// no bundle for an addition that it refuses (handle_bundle_add()).
    fn holds_until_opened(&mut self, incoming: Incoming<'_>, id: u32) -> bool {
        let controller = self.controllers.get_mut(incoming.origin.controller);
        let opened_by = controller.and_then(|c| c.bundles.implicitly_opened_by(id));
        let verdicts = &self.switches.verdicts;
        let undecided = opened_by.filter(|batch| !verdicts.is_settled(*batch));
        if let Some(batch) = undecided {
            self.hold_until_settled(incoming, batch);
        }
        undecided.is_some()
    }

    fn refuse_bundle_message(&mut self, incoming: Incoming<'_>, refusal: Refusal) {
        info!(target: "northbound", controller = incoming.origin.controller.0, detail = %refusal.detail, "cannot take a message about a bundle");
        self.refuse(incoming, refusal.error)
    }

    fn control_bundle(&mut self, incoming: Incoming<'_>, control: Control, now: Instant) {
        let Some(controller) = self.controllers.get_mut(incoming.origin.controller) else {
            return;
        };
        let bundles = &mut controller.bundles;
        let result = match control.control_type {
            ControlType::OpenRequest => bundles.open(control, incoming.sent, now),
            ControlType::CloseRequest => bundles.close(control, now),
            ControlType::DiscardRequest => bundles.discard(control.bundle_id),
            ControlType::CommitRequest => return self.commit_bundle(incoming, control, now),
            _ => Err(ErrorCode::ONF_BUNDLE_BAD_TYPE),
        };
        self.answer_control(incoming, control, result);
    }

    fn answer_control(
        &mut self,
        incoming: Incoming<'_>,
        control: Control,
        result: Result<(), ErrorCode>,
    ) {
        match (result, control.control_type.reply()) {
            (Ok(()), Some(control_type)) => {
                let (bundle_id, flags) = (control.bundle_id, 0);
                let reply = Control {
                    bundle_id,
                    control_type,
                    flags,
                };
                let frame = bundle::encode_control(incoming.origin.xid, reply);
                self.reply_with(incoming, frame.into());
            }
            (Ok(()), None) => self.refuse(incoming, ErrorCode::ONF_BUNDLE_BAD_TYPE),
            (Err(error), _) => self.refuse(incoming, error),
        }
    }

    /// Adds a message to a bundle, if the hypervisor can read it: Open vSwitch finds most errors of a message now, and not at the commit.
    fn add_to_bundle(&mut self, incoming: Incoming<'_>, add: Add<'_>, now: Instant) {
        if lacks_header(add.inner) && self.holds_until_alone(incoming, now) {
            return;
        }
        let checked = self.switches.verdicts.next_batch();
        let Some(controller) = self.controllers.get_mut(incoming.origin.controller) else {
            return;
        };
        let bundles = &mut controller.bundles;
        let added = unacceptable(add.inner, incoming.sent).map_or_else(
            || {
                let sent = incoming.is_translated().then_some(incoming.sent);
                let bundle = (add.bundle_id, add.flags);
                bundles.add(bundle, incoming.frame, sent, checked, now)
            },
            Err,
        );
        let request = added.map_or(Request::Other, Request::Part);
        let targets = SwitchSet::of(HUB).intersection(self.switches.up());
        let (origin, sent) = (Some(incoming.origin), Some(incoming.sent.into()));
        let verdicts = &mut self.switches.verdicts;
        let xid = verdicts.push(origin, sent, request, Changes::default(), targets, now);
        if !targets.is_empty() {
            self.check_at_hub(add.inner, xid);
        }
        if let Err(error) = added {
            self.switches.verdicts.expect_refusal(error);
        }
    }

    fn commit_bundle(&mut self, incoming: Incoming<'_>, control: Control, now: Instant) {
        let Some(controller) = self.controllers.get_mut(incoming.origin.controller) else {
            return;
        };
        let bundle = match controller.bundles.committable(control) {
            Ok(bundle) => bundle,
            Err(error) => return self.refuse(incoming, error),
        };
        if !self.switches.verdicts.is_settled(bundle.checked) {
            let checked = bundle.checked;
            return self.hold_until_settled(incoming, checked);
        }
        let (mut facts, mut named): (Vec<Facts>, Vec<u32>) = Default::default();
        for message in bundle.parts.iter().filter_map(carried_out) {
            facts.extend(facts_of(&message));
            named.extend(named_by(&message));
        }
        let is_newer = bundle.parts.iter().any(needs_openflow15);
        let is_stateful = facts.iter().any(|facts| facts.stateful.is_some());
        if self.holds_until_aside(incoming, &named, now) {
            return;
        }
        if is_stateful && self.holds(incoming, now) {
            return;
        }
        if is_newer && self.holds_until_alone(incoming, now) {
            return;
        }
        if facts.iter().any(|facts| facts.moves_in_port) {
            self.enter_everywhere(now);
        }
        let controller = self.controllers.get_mut(incoming.origin.controller);
        let bundle = controller.and_then(|c| c.bundles.remove(control.bundle_id));
        let Some(bundle) = bundle else { return };
        let begin = self.switches.verdicts.sequence();
        self.commit = Some(Commit {
            origin: incoming.origin,
            sent: incoming.sent.into(),
            control,
            parts: bundle.parts,
            is_atomic: control.flags & bundle::ATOMIC != 0,
            begins: Vec::new(),
            refused: None,
            port_mods: Vec::new(),
            named,
            operations: begin..begin,
            collected: Collected::default(),
            stage: Stage::Collecting,
        });
        self.switches
            .speak_newer(is_newer && self.unlinked(Link::Version15).is_empty());
        self.collect_parts(now);
        self.switches.speak_newer(false);
        self.advance_commit(now);
    }

    /// Handles the parts as if they came alone, up to one that is refused here; the messages to the switches are only tried.
    fn collect_parts(&mut self, now: Instant) {
        self.switches.verdicts.begin_joining();
        self.switches.begin_bundle();
        let mut index = 0;
        while let Some(commit) = self.commit.as_mut().filter(|c| c.refused.is_none()) {
            let Some(part) = commit.parts.get(index) else {
                break;
            };
            let (frame, sent) = (part.frame.clone(), Box::<[u8]>::from(part.sent()));
            commit.begins.push(self.switches.verdicts.sequence());
            let origin = part_origin(commit.origin, &frame);
            self.handle_part(origin, &frame, &sent, now);
            index += 1;
        }
        let collected = self.switches.end_bundle();
        let is_decided_there = self.commit.as_ref().is_some_and(|commit| {
            let sends = commit.parts.iter().any(is_packet_out);
            sends && commit.refused.is_none() && collected.is_for_one_switch()
        });
        let trial = match is_decided_there {
            true => Trial::default(),
            false => self.switches.try_bundle(&collected),
        };
        if let Some(commit) = &mut self.commit {
            commit.operations.end = self.switches.verdicts.sequence();
            commit.collected = collected;
            commit.stage = Stage::Trying(trial);
        }
    }

    fn handle_part(&mut self, origin: Origin, frame: &[u8], sent: &[u8], now: Instant) {
        let Some(inner) = inner_of(frame) else {
            return;
        };
        let incoming = Incoming {
            origin,
            frame: inner,
            sent,
        };
        if let Some(sent) = sent_inner_of(sent) {
            // Its errors are about the part.
            if let Some(Ok(request)) = decode_later_flow_mod(sent) {
                return self.openflow10_request(incoming, request, now);
            }
        }
        match decode(inner) {
            Ok((_, Message::PortMod(message))) => self.port_mod_in_bundle(incoming, message),
            Ok((_, message)) => self.dispatch(incoming, message, now),
            Err(refusal) => self.refuse(incoming, refusal.error),
        }
    }

    /// Port-mods are not atomic in Open vSwitch, so atomic bundles cannot have them (do_bundle_commit()).
    fn port_mod_in_bundle(&mut self, incoming: Incoming<'_>, message: PortMod) {
        let known = self.port_of_mod(&message);
        let Some(commit) = &mut self.commit else {
            return;
        };
        match known {
            _ if commit.is_atomic => commit.refused = Some(ErrorCode::ONF_BUNDLE_MSG_FAILED),
            Ok(()) => {
                let mask = message.mask & config::ALL;
                let message = PortMod { mask, ..message };
                commit.port_mods.push((incoming.origin, message))
            }
            Err(error) => commit.refused = Some(error),
        }
    }

    /// Takes an error as that of a bundle's part, if one is being handled.
    pub(in crate::core) fn is_refused_part(&mut self, error: ErrorCode) -> bool {
        let commit = self.commit.as_mut();
        let Some(commit) = commit.filter(|c| matches!(c.stage, Stage::Collecting)) else {
            return false;
        };
        commit.refused = Some(error);
        true
    }

    /// Handles an error of a switch about a bundle as a whole; returns whether it is one.
    pub(in crate::core) fn bundle_error(
        &mut self,
        switch: SwitchIndex,
        bridge: Bridge,
        xid: u32,
        error: &ErrorMessage,
    ) -> bool {
        let Some(commit) = self.commit.as_mut().filter(|_| bridge == Bridge::Virt) else {
            return false;
        };
        match &mut commit.stage {
            Stage::Trying(trial) => trial.vote(xid, switch),
            Stage::Settling {
                commit: Some(sent),
                outcome,
                is_tried,
                ..
            } if *sent == xid => {
                if *is_tried {
                    let switch_name = &self.switches.list[switch].name;
                    warn!(target: "southbound", switch = %switch_name, error = %error.error, "refused a bundle that it would have accepted; taking it back everywhere");
                }
                let verdicts = &mut self.switches.verdicts;
                let first = verdicts.first_refused(&commit.operations);
                *outcome =
                    Err(first.map_or(Failure::Whole, |first| part_of(&commit.begins, first)));
                verdicts.refuse_all(&commit.operations, switch);
                true
            }
            _ => false,
        }
    }

    /// Counts a barrier behind a trial; returns whether it is one.
    pub(in crate::core) fn trial_answered(&mut self, switch: SwitchIndex, xid: u32) -> bool {
        match self.commit.as_mut().map(|commit| &mut commit.stage) {
            Some(Stage::Trying(trial)) => trial.barrier_reply(xid, switch),
            _ => false,
        }
    }

    /// A switch that has disconnected cannot say whether it would accept a bundle.
    pub(in crate::core) fn forget_trial(&mut self, switch: SwitchIndex) {
        if let Some(Stage::Trying(trial)) = self.commit.as_mut().map(|commit| &mut commit.stage) {
            trial.forget(switch);
        }
    }

    /// Goes on with a commit as far as the switches have answered.
    pub(in crate::core) fn advance_commit(&mut self, now: Instant) {
        self.conclude_trial(now);
        let verdicts = &self.switches.verdicts;
        let is_told = !self.switches.tells_properties();
        let is_over = |commit: &mut Commit| matches!(commit.stage, Stage::Settling { batch, .. } if is_told && verdicts.is_settled(batch));
        if let Some(commit) = self.commit.take_if(is_over) {
            self.end_commit(commit);
        }
        self.handle_settled_holds(now);
    }

    fn conclude_trial(&mut self, now: Instant) {
        let Some(commit) = &mut self.commit else {
            return;
        };
        let Stage::Trying(trial) = &commit.stage else {
            return;
        };
        let Some(is_accepted) = trial.outcome() else {
            return;
        };
        let verdicts = &mut self.switches.verdicts;
        let refused = verdicts.first_refused(&commit.operations);
        let failure = match (refused, commit.refused) {
            (Some(first), _) => Some(part_of(&commit.begins, first)),
            (None, Some(error)) => Some(Failure::Part(commit.begins.len() - 1, error)),
            (None, None) => (!is_accepted).then_some(Failure::Whole),
        };
        // Messages of ours have overtaken it: only a comparison tells what they came to.
        let is_overtaken = verdicts.sequence() != commit.operations.end;
        let asked = trial.asked;
        let sent = match &failure {
            Some(_) => {
                verdicts.withdraw(&commit.operations);
                None
            }
            None => Some(self.switches.commit_bundle(&commit.collected)),
        };
        commit.collected = Collected::default();
        commit.stage = Stage::Settling {
            batch: self.switches.verdicts.end_joining(),
            commit: sent,
            outcome: failure.map_or(Ok(()), Err),
            is_tried: !asked.is_empty(),
        };
        if is_overtaken {
            for switch in asked.intersection(self.switches.up()).iter() {
                self.switches.request_resync(switch, Bridge::Virt, now);
            }
        }
    }

    fn end_commit(&mut self, commit: Commit) {
        let Stage::Settling { outcome, .. } = commit.stage else {
            return;
        };
        let incoming = Incoming {
            origin: commit.origin,
            frame: &commit.sent,
            sent: &commit.sent,
        };
        let result = match outcome {
            Ok(()) => {
                for (origin, message) in &commit.port_mods {
                    self.change_port(origin.controller, message);
                }
                Ok(())
            }
            Err(Failure::Part(index, error)) => {
                if let Some(part) = commit.parts.get(index) {
                    let part = Incoming {
                        origin: part_origin(commit.origin, &part.frame),
                        frame: &part.frame,
                        sent: part.sent(),
                    };
                    self.refuse(part, error);
                }
                Err(ErrorCode::ONF_BUNDLE_MSG_FAILED)
            }
            Err(Failure::Whole) => Err(ErrorCode::ONF_BUNDLE_MSG_FAILED),
        };
        self.answer_control(incoming, commit.control, result);
    }

    /// Returns when the next bundle times out; `None`: none does while messages are held, which may be for it.
    pub(in crate::core) fn bundle_deadline(&self) -> Option<Instant> {
        let deadline = self.controllers.bundle_deadline();
        deadline.filter(|_| !self.is_holding())
    }

    /// Refuses the bundles that have been idle for too long.
    pub(in crate::core) fn time_bundles_out(&mut self, now: Instant) {
        self.follow_hold(now);
        if self.is_holding() {
            return;
        }
        for (controller, opener) in self.controllers.take_idle_bundles(now) {
            let Some(place) = self.controllers.get(controller).map(|c| c.place()) else {
                continue;
            };
            let origin = Origin {
                controller,
                xid: 0,
                place,
            };
            let incoming = Incoming {
                origin: part_origin(origin, &opener),
                frame: &opener,
                sent: &opener,
            };
            self.refuse(incoming, ErrorCode::ONF_BUNDLE_TIMEOUT);
        }
    }
}

/// Returns the part of an operation that was refused.
fn part_of(begins: &[u64], (number, error): (u64, ErrorCode)) -> Failure {
    let behind = begins.partition_point(|begin| *begin <= number);
    Failure::Part(behind.saturating_sub(1), error)
}
