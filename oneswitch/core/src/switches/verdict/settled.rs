//! The consequences of a batch when all its switches have answered.

use super::{Operation, Origin};
use crate::journal::records::Journal;
use crate::model::facts::Facts;
use crate::model::groups::Group;
use crate::model::happened::{Cause, ChangeKind, Happened, Requester};
use crate::model::rule::Rule;
use crate::model::truth::{Changes, Request};
use crate::switch_set::SwitchSet;
use foldhash::HashMap;
use openflow13::{ErrorCode, GroupMod, GroupModCommand, Message, MeterMod, MeterModCommand};
use std::sync::Arc;

/// A message that the switches refused.
#[derive(Debug)]
pub struct Refused {
    /// The number of the operation that it was.
    pub number: u64,
    pub origin: Option<Origin>,
    pub error: ErrorCode,
    /// The message as the controller wrote it.
    pub message: Box<[u8]>,
    pub by: SwitchSet,
    /// The number of the bundle's part that it was.
    pub part: Option<u64>,
    /// Whether it was only checked.
    pub is_check: bool,
}

/// The consequences of a settled batch.
#[derive(Debug, Default)]
pub struct Settled {
    pub refused: Vec<Refused>,
    /// Changes of rules, if someone wants to know them.
    pub happened: Vec<Happened>,
    /// Switches that have what another one refused, or lack what was accepted.
    pub repair: SwitchSet,
    /// Rules that were believed to be removed, and were not, or were never there.
    pub not_removed: Vec<Arc<Rule>>,
    /// Rules that were removed, which was not believed.
    pub removed_too: Vec<Arc<Rule>>,
    /// Accepted changes of groups and meters, which other controllers may want to know of.
    pub forwarded: Vec<(Origin, Forwarded)>,
    /// The changes that large messages had kept for being taken back.
    pub discarded: Vec<Changes>,
}

/// Bytes of `ofp_meter_band_drop`, the only kind of bands.
const BAND: usize = 16;
/// Freeing many rules, which are scattered in memory, takes as long as a round trip.
pub const MANY: usize = 1_000;

impl Settled {
    pub(super) fn compare_removed(&mut self, believed: Vec<Arc<Rule>>, removed: Vec<Arc<Rule>>) {
        let mut removed: HashMap<_, _> = removed.into_iter().map(|r| (r.identity(), r)).collect();
        for rule in believed {
            if removed.remove(&rule.identity()).is_none() {
                self.not_removed.push(rule);
            }
        }
        self.removed_too = removed.into_values().collect();
    }

    pub(super) fn add(
        &mut self,
        number: u64,
        mut operation: Operation,
        is_watched: bool,
        journal: &mut Journal,
    ) {
        let Some(refusal) = operation.refusal else {
            if operation.in_part {
                self.repair = SwitchSet::ALL;
            }
            if let Some(origin) = operation.origin {
                let forwarded = Forwarded::of(&operation.request, &operation.changes);
                self.forwarded
                    .extend(forwarded.map(|forwarded| (origin, forwarded)));
            }
            let cause = operation.cause();
            journal.accepted(operation.request, &operation.changes, operation.at);
            if is_watched && !operation.changes.flows.is_empty() {
                self.happened.push(Happened {
                    number,
                    message: operation.message,
                    begins_report: operation.is_joined && !operation.executed.is_empty(),
                    cause,
                    rules: std::mem::take(&mut operation.changes.flows),
                });
            }
            if operation.changes.flows.len() >= MANY {
                self.discarded.push(operation.changes);
            }
            return operation.folded.into_iter().for_each(|f| f.tell(journal));
        };
        // Of what is there without it.
        operation.folded.into_iter().for_each(|f| f.tell(journal));
        let accepted_by = operation.targets.minus(operation.refused_by);
        self.repair = self.repair.union(accepted_by).union(operation.copied_to);
        if operation.follows_refusal {
            return;
        }
        let part = match operation.request {
            Request::Part(number) => Some(number),
            _ => None,
        };
        self.refused.push(Refused {
            number,
            is_check: matches!(operation.request, Request::Check),
            origin: operation.origin,
            error: refusal.error,
            message: operation.original.unwrap_or(refusal.data),
            by: operation.refused_by,
            part,
        });
    }
}

/// An accepted change of groups or meters as Open vSwitch encodes it for other controllers.
#[derive(Debug)]
pub struct Forwarded {
    pub request: Message,
    /// Before OpenFlow 1.5, the whole group instead of its new or removed buckets.
    pub whole: Option<Message>,
}

impl Forwarded {
    fn of(request: &Request, changes: &Changes) -> Option<Self> {
        match request {
            Request::Group { message, facts } => {
                let command = match message.command {
                    GroupModCommand::InsertBucket(_) | GroupModCommand::RemoveBucket(_) => {
                        return Self::of_buckets(message, *facts, changes);
                    }
                    // Open vSwitch no longer knows then whether there was such a group.
                    GroupModCommand::AddOrModify => GroupModCommand::Add,
                    command => command,
                };
                Some(Self::alike(Message::GroupMod(GroupMod {
                    command,
                    ..message.clone()
                })))
            }
            Request::Meter(message) => {
                let is_delete = message.command == MeterModCommand::Delete;
                let flags = if is_delete { 0 } else { message.flags };
                let mut bands = if is_delete {
                    Box::default()
                } else {
                    message.bands.clone()
                };
                bands.chunks_exact_mut(BAND).for_each(set_burst);
                Some(Self::alike(Message::MeterMod(MeterMod {
                    flags,
                    bands,
                    ..message.clone()
                })))
            }
            _ => None,
        }
    }

    /// Encodes buckets that come or go. They do not change the type of the group (`modify_group_start()`).
    fn of_buckets(message: &GroupMod, facts: Facts, changes: &Changes) -> Option<Self> {
        let (_, old) = changes.groups.first()?;
        let old = old.as_deref()?;
        let whole = Group::after(Some(old), message, facts, old.created).ok()?;
        let group_type = old.group_type;
        let request = GroupMod {
            group_type,
            selection: old.selection.clone(),
            ..message.clone()
        };
        let whole = GroupMod {
            command: GroupModCommand::Modify,
            group_type,
            group_id: old.id,
            buckets: whole.buckets,
            selection: None,
        };
        Some(Self {
            request: Message::GroupMod(request),
            whole: Some(Message::GroupMod(whole)),
        })
    }

    fn alike(request: Message) -> Self {
        let whole = None;
        Self { request, whole }
    }
}

/// Gives a band without a burst size its rate, as the data path does.
fn set_burst(band: &mut [u8]) {
    let (rate, burst) = (4..8, 8..12);
    if band[burst.clone()] == [0; 4] {
        band.copy_within(rate, burst.start);
    }
}

impl Operation {
    /// Returns why it changes rules.
    fn cause(&self) -> Cause {
        let requester = self.origin.map(|origin| Requester {
            controller: origin.controller,
            xid: origin.xid,
        });
        let mut cause = Cause::of_request(&self.request, requester);
        if let Some(reason) = self.expired {
            cause.kind = ChangeKind::Removed(reason);
        }
        if self.is_modification && cause.kind == ChangeKind::Added {
            cause.kind = ChangeKind::Modified;
        }
        cause
    }
}
