//! Changes of rules that have come into force, and their causes: what flow monitors report.

use crate::api::ControllerId;
use crate::model::tables::Change;
use crate::model::truth::Request;
use openflow13::{FlowModCommand, FlowRemoved};

/// The sender of a message that changed rules, and the message's xid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requester {
    pub controller: ControllerId,
    pub xid: u32,
}

/// The kind of a change, as Open vSwitch tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// Rules were added, perhaps in place of others.
    Added,
    Modified,
    /// Rules were removed, for this `ofp_flow_removed_reason`.
    Removed(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cause {
    /// `None`: no controller asked for it, as when a rule times out or goes with its group.
    pub requester: Option<Requester>,
    pub kind: ChangeKind,
}

impl Cause {
    /// Returns the cause of the changes that a controller's request makes, or a request of ours.
    pub fn of_request(request: &Request, requester: Option<Requester>) -> Self {
        const METER_DELETE: u8 = 4;
        let of_flow_mod = |command| match command {
            FlowModCommand::Add => ChangeKind::Added,
            FlowModCommand::Modify | FlowModCommand::ModifyStrict => ChangeKind::Modified,
            FlowModCommand::Delete | FlowModCommand::DeleteStrict => {
                ChangeKind::Removed(FlowRemoved::DELETE)
            }
        };
        let by_itself = |reason| Self {
            requester: None,
            kind: ChangeKind::Removed(reason),
        };
        match request {
            Request::Flow { message, .. } => Self {
                requester,
                kind: of_flow_mod(message.command),
            },
            // Learning a rule again changes nothing unless its actions differ.
            Request::Rule(_) => Self {
                requester: None,
                kind: ChangeKind::Modified,
            },
            Request::Meter(_) => by_itself(METER_DELETE),
            _ => by_itself(FlowRemoved::GROUP_DELETE),
        }
    }
}

/// Changes by one operation.
#[derive(Clone, Debug)]
pub struct Happened {
    /// The number of the operation.
    pub number: u64,
    /// The number of the first operation of the same message, or bundle: monitors report these together.
    pub message: u64,
    /// Whether its switch has sent what it reported of the bundle before. Open vSwitch does so when learned rules end with the rule that made
    /// it learn them (`delete_flows__`, ofproto/ofproto.c).
    pub begins_report: bool,
    pub cause: Cause,
    pub rules: Vec<Change>,
}

/// Splits changes by the message that they are reported with.
pub fn by_message(happened: &[Happened]) -> impl Iterator<Item = &[Happened]> {
    happened.chunk_by(|one, next| one.message == next.message)
}
