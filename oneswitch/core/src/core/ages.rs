//! Ages of rules, for Nicira's statistics over OpenFlow 1.0, and those of OpenFlow 1.5: Open vSwitch tells them only there, so the daemon
//! keeps a connection of version 1.0 to each `virt` while a controller speaks one of them.

use crate::api::{Bridge, Destination, SwitchIndex};
use crate::core::Core;
use crate::model::rule::RuleKey;
use crate::switch_set::SwitchSet;
use crate::switches::reads::{ControllerQuestion, Purpose, Shown};
use foldhash::{HashMap, HashMapExt};
use openflow13::openflow10::{self, decode_ages, encode_ages_request, Age, StatsForm};
use openflow13::{openflow15, Header, MultipartRequest};
use std::time::{Duration, Instant};
use tracing::warn;

/// The time that a request waits for ages; then they are those of new rules.
const PATIENCE: Duration = Duration::from_millis(500);

/// The connections, and the requests that wait for ages.
#[derive(Debug, Default)]
pub struct Ages {
    links: SwitchSet,
    waiting: Vec<Waiting>,
    asked: u32,
}

/// A controller's request for statistics, before the switches are asked for all else.
#[derive(Debug)]
struct Waiting {
    xid: u32,
    question: ControllerQuestion,
    from: SwitchSet,
    physical: MultipartRequest,
    /// The message to the switches.
    frame: Vec<u8>,
    /// Switches without a connection yet.
    unasked: SwitchSet,
    /// Switches that have not answered.
    missing: SwitchSet,
    ages: HashMap<RuleKey, u16>,
    since: Instant,
}

impl Core {
    /// Tells whether some controller may ask for the ages of rules.
    pub(in crate::core) fn wants_ages(&self) -> bool {
        self.controllers.speak(openflow10::VERSION) || self.controllers.speak(openflow15::VERSION)
    }

    pub(in crate::core) fn ages_up(&mut self, switch: SwitchIndex) {
        self.ages.links.insert(switch);
        for waiting in &mut self.ages.waiting {
            if waiting.unasked.contains(switch) {
                waiting.unasked.remove(switch);
                let to = Destination::Version10(switch);
                self.switches.outbox.put(to, &waiting.frame);
            }
        }
    }

    pub(in crate::core) fn ages_down(&mut self, switch: SwitchIndex, now: Instant) {
        self.ages.links.remove(switch);
        self.switches.outbox.discard(Destination::Version10(switch));
        for waiting in &mut self.ages.waiting {
            if !waiting.unasked.contains(switch) {
                waiting.missing.remove(switch);
            }
        }
        self.end_waiting_for_ages(now);
    }

    /// Handles a message on such a connection.
    pub(in crate::core) fn ages_told(&mut self, switch: SwitchIndex, frame: &[u8], now: Instant) {
        let xid = Header::parse(frame).map(|header| header.xid);
        let mut waiting = self.ages.waiting.iter_mut();
        let Some(waiting) = waiting.find(|w| Some(w.xid) == xid) else {
            return;
        };
        let has_more = match decode_ages(frame) {
            Ok((ages, has_more)) => {
                ages.into_iter().for_each(|age| waiting.note(age));
                has_more
            }
            Err(refusal) => {
                let switch = &self.switches.list[switch].name;
                warn!(target: "southbound", %switch, detail = %refusal, "does not tell the ages of rules");
                false
            }
        };
        if !has_more {
            waiting.missing.remove(switch);
            self.end_waiting_for_ages(now);
        }
    }

    /// Tells whether the reply to a controller's request shows ages.
    fn shows_ages(&self, question: &ControllerQuestion) -> bool {
        let controller = self.controllers.get(question.origin.controller);
        let controller = controller.filter(|_| self.wants_ages());
        let is_flow = matches!(question.request, MultipartRequest::Flow(_));
        let shows = controller
            .is_some_and(|c| c.form == StatsForm::Nicira || c.version == openflow15::VERSION);
        shows && is_flow
    }

    /// Asks the switches for what a controller has asked for, after the ages of rules if it needs them.
    pub(in crate::core) fn ask_switches(
        &mut self,
        question: ControllerQuestion,
        (bridge, from): (Bridge, SwitchSet),
        physical: MultipartRequest,
        now: Instant,
    ) {
        let is_asked = self.shows_ages(&question);
        let MultipartRequest::Flow(filter) = (match is_asked {
            true => &question.request,
            false => {
                let purpose = Purpose::Controller(question);
                self.switches.read(purpose, bridge, from, physical);
                return;
            }
        }) else {
            return;
        };
        self.ages.asked = self.ages.asked.wrapping_add(1);
        let xid = self.ages.asked;
        let frame = encode_ages_request(xid, filter.table_id, &filter.matching);
        let linked = from.intersection(self.ages.links);
        for switch in linked.iter() {
            self.switches
                .outbox
                .put(Destination::Version10(switch), &frame);
        }
        self.ages.waiting.push(Waiting {
            xid,
            question,
            from,
            physical,
            frame,
            unasked: from.minus(linked),
            missing: from,
            ages: HashMap::new(),
            since: now,
        });
    }

    pub(in crate::core) fn ages_deadline(&self) -> Option<Instant> {
        self.ages.waiting.first().map(|w| w.since + PATIENCE)
    }

    /// Asks for all else when the ages are there, or have taken too long.
    pub(in crate::core) fn end_waiting_for_ages(&mut self, now: Instant) {
        let is_over = |w: &Waiting| w.missing.is_empty() || now >= w.since + PATIENCE;
        let waiting = std::mem::take(&mut self.ages.waiting).into_iter();
        let (over, waiting): (Vec<_>, Vec<_>) = waiting.partition(is_over);
        self.ages.waiting = waiting;
        for waiting in over {
            let controller = self.controllers.get(waiting.question.origin.controller);
            let shown = match controller.is_some_and(|c| c.version == openflow15::VERSION) {
                true => Shown::ImportanceAndIdleAge(waiting.ages),
                false => Shown::Ages(waiting.ages),
            };
            let question = ControllerQuestion {
                shown,
                ..waiting.question
            };
            let from = waiting.from.intersection(self.switches.up());
            if from.is_empty() {
                self.answer_controller(question, Vec::new(), None, now);
            } else {
                let purpose = Purpose::Controller(question);
                let physical = waiting.physical;
                self.switches.read(purpose, Bridge::Virt, from, physical);
            }
        }
    }
}

impl Waiting {
    /// Notes the youngest age of a rule's copies.
    fn note(&mut self, age: Age) {
        let Ok(matching) = age.matching.canonical() else {
            return;
        };
        let key = RuleKey {
            table: age.table_id,
            priority: age.priority,
            matching,
        };
        let youngest = self.ages.entry(key).or_insert(age.idle);
        *youngest = age.idle.min(*youngest);
    }
}
