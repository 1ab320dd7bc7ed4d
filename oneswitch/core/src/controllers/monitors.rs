//! The flow monitors of a controller, and what they report of a change (Open vSwitch, ofproto/connmgr.c).

use crate::api::ControllerId;
use crate::layout::spelling::{equal_instructions, spelled_instructions};
use crate::layout::translate::show_setters_as_written;
use crate::model::happened::{Cause, ChangeKind, Happened, Requester};
use crate::model::rule::{Rule, RuleKey};
use crate::model::tables::{Change, Filter, FlowTables};
use foldhash::{HashMap, HashMapExt};
use openflow13::flow_monitor::{flags, Event, FullUpdate, MonitorCommand, MonitorRequest, Update};
use openflow13::{openflow10, ErrorCode, Instructions};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of reports behind the socket's buffer above which no more changes are reported until all of them are sent, as in Open vSwitch
/// (`ofmonitor_flush`, ofproto/connmgr.c).
const PAUSE: usize = 128 << 10;
/// `OFPRR_EVICTION`.
const EVICTION: u8 = 5;

#[derive(Clone, Debug)]
struct Monitor {
    flags: u16,
    filter: Filter,
}

impl Monitor {
    /// Tells whether it watches a rule, or did before the rule got other actions.
    fn watches(&self, rule: &Rule, before: Option<&Rule>) -> bool {
        if self.filter.selects(rule) {
            return true;
        }
        before.is_some_and(|before| {
            let any_port = Filter {
                out_port: openflow13::port_no::ANY,
                ..self.filter.clone()
            };
            let any_group = Filter {
                out_group: openflow13::group_no::ANY,
                ..self.filter.clone()
            };
            any_port.selects(rule) && any_group.selects(before)
        })
    }
}

/// A rule that was changed while nothing was reported.
#[derive(Debug)]
struct Missed {
    is_new: bool,
    rule: Arc<Rule>,
}

/// The monitors of one controller.
#[derive(Debug, Default)]
pub struct Monitors {
    monitors: BTreeMap<u32, Monitor>,
    /// The changes missed since the notification of a pause, of all rules, as monitors may be made during it. Only rules that are
    /// there have an entry, and share its content with the tables: the rules bound the memory.
    paused: Option<HashMap<RuleKey, Missed>>,
    /// The last operation whose changes were reported or noted.
    pub last: u64,
    /// Bytes of reports that wait for their turn.
    pub waiting: usize,
    /// At most this many bytes of reports are unsent on the connection.
    pub unsent: usize,
    /// Whether the connection's socket takes no more.
    pub is_stuck: bool,
    /// Whether reports go over OpenFlow 1.0, which has setters of its own.
    is_openflow10: bool,
}

impl Monitors {
    /// `version`: of the connection.
    pub fn new(version: u8) -> Self {
        Self {
            is_openflow10: version == openflow10::VERSION,
            ..Self::default()
        }
    }

    pub fn is_empty(&self) -> bool {
        self.monitors.is_empty() && self.paused.is_none()
    }

    /// Carries out an entry of a request; returns the monitor that it has made.
    ///
    /// # Errors
    /// `MONITOR_EXISTS`, `UNKNOWN_MONITOR`.
    pub fn change(&mut self, request: &MonitorRequest) -> Result<Option<u32>, ErrorCode> {
        let id = request.id;
        let is_there = self.monitors.contains_key(&id);
        match (request.command, is_there) {
            (MonitorCommand::Unknown(_), _) => return Ok(None),
            (MonitorCommand::Add, true) => return Err(ErrorCode::NX_MONITOR_EXISTS),
            (MonitorCommand::Modify | MonitorCommand::Delete, false) => {
                return Err(ErrorCode::NX_UNKNOWN_MONITOR)
            }
            (MonitorCommand::Delete, true) => {
                self.monitors.remove(&id);
                return Ok(None);
            }
            (MonitorCommand::Add, false) | (MonitorCommand::Modify, true) => {}
        }
        let matching = request.matching.canonical().map_err(|r| r.error)?;
        let filter = Filter {
            table: request.table_id,
            matching,
            strict: None,
            cookie: 0,
            cookie_mask: 0,
            out_port: request.out_port,
            out_group: request.out_group,
        };
        let flags = request.flags;
        self.monitors.insert(id, Monitor { flags, filter });
        Ok(Some(id))
    }

    /// # Errors
    /// `UNKNOWN_MONITOR`.
    pub fn cancel(&mut self, id: u32) -> Result<(), ErrorCode> {
        let removed = self.monitors.remove(&id);
        removed.map(|_| ()).ok_or(ErrorCode::NX_UNKNOWN_MONITOR)
    }

    /// Reports the rules that are there, for new monitors that ask for it; each rule once.
    pub fn initial(&self, made: &[u32], tables: &FlowTables) -> Vec<Update> {
        let mut rules: Vec<(Arc<Rule>, u16)> = Vec::new();
        let mut places: HashMap<*const Rule, usize> = HashMap::new();
        let made = made.iter().filter_map(|id| self.monitors.get(id));
        for monitor in made.filter(|m| m.flags & flags::INITIAL != 0) {
            for rule in tables.select(&monitor.filter) {
                let place = *places.entry(Arc::as_ptr(&rule)).or_insert(rules.len());
                match rules.get_mut(place) {
                    Some((_, flags)) => *flags |= monitor.flags,
                    None => rules.push((rule, monitor.flags)),
                }
            }
        }
        let report = |(rule, flags): (Arc<Rule>, u16)| self.full(&rule, Event::Initial, 0, flags);
        rules.into_iter().map(report).collect()
    }

    /// Reports the changes by one message to `to`, which has these monitors.
    pub fn report(&mut self, to: ControllerId, happened: &[Happened]) -> Vec<Update> {
        let mut updates = Vec::new();
        let mut last_own = None;
        let mut is_report_sent = false;
        for one in happened {
            self.last = one.number;
            is_report_sent |= one.begins_report;
            let cause = one.cause;
            let own = cause.requester.filter(|r| r.controller == to);
            for change in &one.rules {
                let Some((update, flags)) = self.report_one(cause, change) else {
                    continue;
                };
                match own.filter(|_| flags & flags::OWN == 0 && self.paused.is_none()) {
                    None => updates.push(update),
                    Some(Requester { xid, .. }) => {
                        let is_first = last_own.is_none();
                        // Several operations can carry out one message of a bundle.
                        if is_first || is_report_sent && last_own != Some(xid) {
                            updates.push(Update::Abbreviated(xid));
                            (last_own, is_report_sent) = (Some(xid), false);
                        }
                    }
                }
            }
        }
        updates
    }

    /// Returns the report of one change, with the flags of the monitors that want it; notes it instead during a pause.
    fn report_one(&mut self, cause: Cause, change: &Change) -> Option<(Update, u16)> {
        let (event, reason, rule, before) = seen(cause, change)?;
        if let Some(missed) = &mut self.paused {
            if !is_reported_in_pause(missed, event, rule) {
                return None;
            }
        }
        let wanted = match event {
            Event::Removed => flags::REMOVED,
            Event::Modified => flags::MODIFY,
            Event::Added | Event::Initial => flags::ADD,
        };
        let monitors = self.monitors.values().filter(|m| m.flags & wanted != 0);
        let flags = monitors
            .filter(|m| m.watches(rule, before))
            .fold(0, |flags, monitor| flags | monitor.flags);
        (flags != 0).then(|| (self.full(rule, event, reason, flags), flags))
    }

    /// Begins a pause if too much is unsent; returns whether it does. It does not before the connection has tried to send it.
    pub fn pauses(&mut self) -> bool {
        let is_behind = self.is_stuck && self.waiting + self.unsent > PAUSE;
        let begins = self.paused.is_none() && is_behind;
        if begins {
            self.paused = Some(HashMap::new());
        }
        begins
    }

    pub fn is_paused(&self) -> bool {
        self.paused.is_some()
    }

    /// Ends a pause if everything is sent; returns what was missed.
    pub fn resume(&mut self) -> Option<Vec<Update>> {
        if self.waiting + self.unsent > 0 {
            return None;
        }
        let missed = self.paused.take()?;
        let report = |missed: Missed| {
            let (event, wanted) = match missed.is_new {
                true => (Event::Added, flags::ADD | flags::MODIFY),
                false => (Event::Modified, flags::MODIFY),
            };
            let monitors = self.monitors.values().filter(|m| m.flags & wanted != 0);
            let flags = monitors
                .filter(|m| m.filter.selects(&missed.rule))
                .fold(0, |flags, monitor| flags | monitor.flags);
            (flags != 0).then(|| self.full(&missed.rule, event, 0, flags))
        };
        Some(missed.into_values().filter_map(report).collect())
    }

    fn full(&self, rule: &Rule, event: Event, reason: u8, wanted: u16) -> Update {
        let mut instructions = match wanted & flags::INSTRUCTIONS {
            0 => Instructions::default(),
            _ => spelled_instructions(&rule.instructions, &rule.matching),
        };
        if self.is_openflow10 {
            show_setters_as_written(&mut instructions, &rule.instructions);
        }
        Update::Full(Box::new(FullUpdate {
            event,
            reason,
            table_id: rule.key.table,
            priority: rule.key.priority,
            idle_timeout: rule.idle_timeout,
            hard_timeout: rule.hard_timeout,
            cookie: rule.cookie,
            matching: rule.matching.spelled(),
            instructions,
        }))
    }
}

/// Notes a change during a pause; of these only the removal of rules that are older than the pause is reported.
fn is_reported_in_pause(
    missed: &mut HashMap<RuleKey, Missed>,
    event: Event,
    rule: &Arc<Rule>,
) -> bool {
    if event == Event::Removed {
        return missed.remove(&rule.key).is_none_or(|missed| !missed.is_new);
    }
    let entry = missed.entry(rule.key.clone()).or_insert(Missed {
        is_new: false,
        rule: Arc::clone(rule),
    });
    entry.is_new |= event == Event::Added;
    entry.rule = Arc::clone(rule);
    false
}

/// Returns what Open vSwitch reports of a change: the event, the reason of a removal, the rule, and the rule before if it had other actions.
fn seen(cause: Cause, change: &Change) -> Option<(Event, u8, &Arc<Rule>, Option<&Rule>)> {
    let (before, after) = (change.before.as_ref(), change.after.as_ref());
    let (rule, before) = match (before, after) {
        (Some(rule), None) => {
            let reason = match cause.kind {
                ChangeKind::Removed(reason) => reason,
                // An addition evicts a rule.
                _ => EVICTION,
            };
            return Some((Event::Removed, reason, rule, None));
        }
        (None, Some(rule)) => return Some((Event::Added, 0, rule, None)),
        (Some(before), Some(rule)) => (rule, before),
        (None, None) => return None,
    };
    let has_other_actions = !equal_instructions(&before.instructions, &rule.instructions);
    let former = has_other_actions.then_some(&**before);
    match cause.kind {
        ChangeKind::Modified if has_other_actions || before.cookie != rule.cookie => {
            Some((Event::Modified, 0, rule, former))
        }
        ChangeKind::Modified => None,
        _ => Some((Event::Added, 0, rule, former)),
    }
}
