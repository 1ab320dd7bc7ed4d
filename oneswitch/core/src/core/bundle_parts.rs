//! The messages in a bundle.

use crate::controllers::bundles::Part;
use crate::core::aside::{named_by_group, named_by_packet, named_by_rule};
use crate::model::facts::Facts;
use crate::switches::verdict::Origin;
use crate::wire::wire;
use openflow13::openflow10::{decode_later_flow_mod, Modify, Request};
use openflow13::{
    decode, kind, openflow14, ErrorCode, FlowMod, GroupModCommand, Header, Message, PacketOut,
};

/// Returns the error of a message that cannot be in a bundle; Open vSwitch's own comes first, if it finds one. `sent`: as the controller
/// added it.
pub(in crate::core) fn unacceptable(message: &[u8], sent: &[u8]) -> Option<ErrorCode> {
    match decode(message) {
        Ok((
            _,
            Message::FlowMod(_)
            | Message::GroupMod(_)
            | Message::PortMod(_)
            | Message::PacketOut(_),
        )) => None,
        Ok((_, Message::Experimenter(_))) => {
            match sent_inner_of(sent).and_then(decode_later_flow_mod) {
                Some(Ok(_)) => None,
                // Open vSwitch does not tell the error of a message that it cannot decode.
                Some(Err(refusal)) if refusal.error != ErrorCode::BAD_REQUEST_BAD_LEN => {
                    Some(refusal.error)
                }
                _ => Some(ErrorCode::ONF_BUNDLE_MSG_UNSUP),
            }
        }
        Ok(_) => Some(ErrorCode::ONF_BUNDLE_MSG_UNSUP),
        Err(refusal) => Some(refusal.error),
    }
}

/// Returns what the hypervisor can check of a message with meters that OpenFlow 1.3 cannot say; `None`: it can check the message itself.
pub(in crate::core) fn checkable(message: &[u8]) -> Option<Vec<u8>> {
    let (header, message) = match decode(message) {
        Ok((header, Message::FlowMod(rule))) if rule.instructions.have_meter_inside() => {
            let instructions = rule.instructions.without_meters_inside();
            let rule = FlowMod {
                instructions,
                ..rule
            };
            (header, Message::FlowMod(rule))
        }
        Ok((header, Message::PacketOut(packet))) if packet.actions.has_meter() => {
            let actions = packet.actions.without_meters();
            (header, Message::PacketOut(PacketOut { actions, ..packet }))
        }
        _ => return None,
    };
    Some(wire(header.xid, &message))
}

/// Tells whether it is a packet-out of a packet without an Ethernet header, which only OpenFlow 1.5 can say.
pub(in crate::core) fn lacks_header(message: &[u8]) -> bool {
    matches!(decode(message), Ok((_, Message::PacketOut(packet))) if packet.packet_type != 0)
}

/// Tells whether a part is a packet-out, which may make a switch learn rules.
pub(in crate::core) fn is_packet_out(part: &Part) -> bool {
    let message = inner_of(&part.frame).and_then(|inner| decode(inner).ok());
    matches!(message, Some((_, Message::PacketOut(_))))
}

/// Returns the message inside the one that adds it to a bundle.
pub(in crate::core) fn inner_of(frame: &[u8]) -> Option<&[u8]> {
    /// Of `ofp_experimenter_header` and `ofp14_bundle_ctrl_msg`.
    const HEAD: usize = 24;
    within(frame, HEAD)
}

/// As [`inner_of`], in the controller's version.
pub(in crate::core) fn sent_inner_of(frame: &[u8]) -> Option<&[u8]> {
    /// Of `ofp_header` and `ofp14_bundle_ctrl_msg`.
    const HEAD: usize = 16;
    match frame.get(1) {
        Some(&kind::EXPERIMENTER) => inner_of(frame),
        Some(&openflow14::BUNDLE_ADD) => within(frame, HEAD),
        _ => None,
    }
}

fn within(frame: &[u8], head: usize) -> Option<&[u8]> {
    let rest = frame.get(head..)?;
    rest.get(..usize::from(Header::parse(rest)?.length))
}

pub(in crate::core) fn facts_of(message: &Message) -> Option<Facts> {
    match message {
        Message::FlowMod(message) => Some(Facts::of_instructions(&message.instructions)),
        Message::GroupMod(message) => Some(Facts::of_buckets(&message.buckets)),
        Message::PacketOut(message) => Some(Facts::of_actions(message.actions.as_actions())),
        _ => None,
    }
}

/// Returns the groups that a message names, except one that it deletes.
pub(in crate::core) fn named_by(message: &Message) -> Vec<u32> {
    match message {
        Message::FlowMod(message) => named_by_rule(message),
        Message::GroupMod(message) if message.command == GroupModCommand::Delete => Vec::new(),
        Message::GroupMod(message) => named_by_group(message),
        Message::PacketOut(message) => named_by_packet(message),
        _ => Vec::new(),
    }
}

/// Returns the message of a part; of a modification of all tables, one of the messages that it becomes.
pub(in crate::core) fn carried_out(part: &Part) -> Option<Message> {
    match decode(inner_of(&part.frame)?).ok()?.1 {
        Message::Experimenter(_) => {
            match decode_later_flow_mod(sent_inner_of(part.sent())?)?.ok()? {
                Request::Modify(Modify { flow_mod, .. }) => Some(Message::FlowMod(flow_mod)),
                Request::Message(message) => Some(message),
                _ => None,
            }
        }
        message => Some(message),
    }
}

/// Tells whether OpenFlow 1.3 cannot say all of a part.
pub(in crate::core) fn needs_openflow15(part: &Part) -> bool {
    let decoded = inner_of(&part.frame).and_then(|inner| decode(inner).ok());
    match decoded {
        Some((_, Message::GroupMod(group))) => group.needs_openflow15(),
        Some((_, Message::FlowMod(rule))) => rule.instructions.have_meter_inside(),
        Some((_, Message::PacketOut(packet))) => {
            packet.packet_type != 0 || packet.actions.has_meter()
        }
        _ => false,
    }
}

/// Returns the origin of a part, whose xid is its own.
pub(in crate::core) fn part_origin(commit: Origin, frame: &[u8]) -> Origin {
    let xid = Header::parse(frame).map_or(commit.xid, |header| header.xid);
    Origin { xid, ..commit }
}
