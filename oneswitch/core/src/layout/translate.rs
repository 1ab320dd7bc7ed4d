//! The few translations of a controller's messages for the switches: floods (flood.rs), watched ports (liveness.rs) and the timers of rules
//! that have several copies.

use crate::model::hidden::{Hidden, HiddenGroups, Watch};
use crate::model::rule::{copy_flags, Rule, MESSAGE_FLAGS};
use openflow13::openflow10::without_idle_enqueues;
use openflow13::{
    port_no, ActionList, FlowMod, FlowModCommand, Instructions, PacketOut, NX_VENDOR,
};
use std::time::Instant;

const APPLY_ACTIONS: u16 = 4;
const OUTPUT: u16 = 0;
const GROUP: u16 = 22;
/// Offsets in OFPT_FLOW_MOD (OpenFlow 1.3.5, 7.3.4.1).
const IDLE_TIMEOUT: usize = 26;
const FLAGS: usize = 44;
const MATCH: usize = 48;
const BUCKET_HEADER: usize = 16;
/// Offsets in a bucket.
const WATCH_PORT: usize = 4;
const WATCH_GROUP: usize = 8;
/// NXAST_REG_LOAD to NXM_OF_IN_PORT, before the last 4 bytes of its value. (OXM_OF_IN_PORT cannot be written.)
const LOAD_IN_PORT: [u8; 20] = [
    0xff, 0xff, 0, 24, 0, 0, 0x23, 0x20, 0, 7, 0, 15, 0, 0, 0, 2, 0, 0, 0, 0,
];
/// Actions and data for which a packet-out has room, with one that sets in_port.
const LONGEST_PACKET_OUT: usize = 65_535 - 24 - 24;

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes
        .get(at..at + 2)
        .map(|b| u16::from_be_bytes([b[0], b[1]]))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes
        .get(at..at + 4)
        .map(|b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]))
}

/// Splits off the first type-length-value item of a validated list.
fn split_tlv(list: &[u8], length_at: usize) -> Option<(&[u8], &[u8])> {
    let length = usize::from(u16_at(list, length_at)?);
    (length > 0 && length <= list.len()).then(|| list.split_at(length))
}

/// Returns the hidden group for an output to FLOOD or ALL.
fn flood_group_for(action: &[u8], hidden: &HiddenGroups) -> Option<u32> {
    match (u16_at(action, 0)?, u32_at(action, 4)?) {
        (OUTPUT, port_no::FLOOD) => Some(hidden.flood()),
        (OUTPUT, port_no::ALL) => Some(hidden.all()),
        _ => None,
    }
}

/// Tells whether an action outputs to FLOOD or ALL.
fn floods(action: &[u8]) -> bool {
    let port = u32_at(action, 4);
    u16_at(action, 0) == Some(OUTPUT) && matches!(port, Some(port_no::FLOOD | port_no::ALL))
}

/// Tells whether an action sends to the hidden group for FLOOD or ALL.
fn is_flood_group(action: &[u8], hidden: &HiddenGroups) -> bool {
    let group = u32_at(action, 4).and_then(|number| hidden.at(number));
    u16_at(action, 0) == Some(GROUP) && matches!(group, Some(Hidden::Flood | Hidden::All))
}

/// Replaces outputs to FLOOD and ALL by their hidden groups.
pub fn actions_with_flood_group(mut list: &[u8], hidden: &HiddenGroups) -> Vec<u8> {
    let mut result = Vec::with_capacity(list.len());
    while let Some((action, rest)) = split_tlv(list, 2) {
        if let Some(group) = flood_group_for(action, hidden) {
            result.extend(GROUP.to_be_bytes());
            result.extend(8u16.to_be_bytes());
            result.extend(group.to_be_bytes());
        } else {
            result.extend(action);
        }
        list = rest;
    }
    result
}

/// Returns the packet-out for the switches. `is_port`: its in_port is a virtual port that receives packets.
///
/// Open vSwitch loses packets that it recirculates on their way from a patch port (`xlate_lookup_ofproto_`, ofproto/ofproto-dpif-xlate.c):
/// their datapath port is none. Those from no port have that of LOCAL, by which it finds the bridge. So the first action sets in_port.
pub fn physical_packet_out(message: PacketOut, is_port: bool, hidden: &HiddenGroups) -> PacketOut {
    let mut actions = actions_with_flood_group(message.actions.as_bytes(), hidden);
    let is_port = is_port && actions.len() + message.data.len() <= LONGEST_PACKET_OUT;
    if is_port {
        let in_port = message.in_port.to_be_bytes();
        actions = [&LOAD_IN_PORT[..], &in_port, &actions].concat();
    }
    PacketOut {
        in_port: if is_port {
            port_no::ANY
        } else {
            message.in_port
        },
        actions: ActionList::from_bytes(actions).unwrap_or_default(),
        ..message
    }
}

/// Tells whether floods in an instruction become groups.
fn is_translated(instruction: &[u8]) -> bool {
    u16_at(instruction, 0) == Some(APPLY_ACTIONS)
}

/// Does so in Apply-Actions only: in an action set a group would take precedence over other outputs.
pub fn instructions_with_flood_group(mut list: &[u8], hidden: &HiddenGroups) -> Vec<u8> {
    let mut result = Vec::with_capacity(list.len());
    while let Some((instruction, rest)) = split_tlv(list, 2) {
        if is_translated(instruction) && instruction.len() >= 8 {
            let actions = actions_with_flood_group(&instruction[8..], hidden);
            result.extend(&instruction[..2]);
            result.extend((8 + actions.len() as u16).to_be_bytes());
            result.extend(&instruction[4..8]);
            result.extend(actions);
        } else {
            result.extend(instruction);
        }
        list = rest;
    }
    result
}

/// Translates buckets for a switch: they flood by the hidden group, watch hidden groups (liveness.rs) instead of ports, and lack what does
/// nothing in them.
///
/// A bucket is an action set: only a lone output to FLOOD, without a group beside it, may become one.
pub fn physical_buckets(mut list: &[u8], hidden: &HiddenGroups) -> Vec<u8> {
    let mut result = Vec::with_capacity(list.len());
    while let Some((bucket, rest)) = split_tlv(list, 0) {
        let (header, actions) = bucket.split_at(BUCKET_HEADER.min(bucket.len()));
        let actions = &without_idle_enqueues(actions)[..];
        let start = result.len();
        if count(actions, OUTPUT) == 1 && count(actions, GROUP) == 0 {
            let actions = actions_with_flood_group(actions, hidden);
            push_bucket(&mut result, header, &actions);
        } else {
            push_bucket(&mut result, header, actions);
        }
        if let Some(instead) = watch_of(header).and_then(|w| hidden.watched_instead(w)) {
            set_watch(&mut result, start, instead);
        }
        list = rest;
    }
    result
}

fn watch_of(bucket: &[u8]) -> Option<Watch> {
    Some((u32_at(bucket, WATCH_PORT)?, u32_at(bucket, WATCH_GROUP)?))
}

/// Sets the watch of the bucket that starts at `start`.
fn set_watch(bytes: &mut [u8], start: usize, (port, group): Watch) {
    set_u32(bytes, start + WATCH_PORT, port);
    set_u32(bytes, start + WATCH_GROUP, group);
}

fn push_bucket(result: &mut Vec<u8>, header: &[u8], actions: &[u8]) {
    result.extend((BUCKET_HEADER as u16 + actions.len() as u16).to_be_bytes());
    result.extend(header.get(2..).unwrap_or_default());
    result.extend(actions);
}

fn set_u32(bytes: &mut [u8], at: usize, value: u32) {
    if let Some(place) = bytes.get_mut(at..at + 4) {
        place.copy_from_slice(&value.to_be_bytes());
    }
}

/// Reverses [`actions_with_flood_group`] for a list that a switch spelled: the outputs in `original` replace the groups.
fn actions_with_floods(mut list: &[u8], mut original: &[u8], hidden: &HiddenGroups) -> Vec<u8> {
    let mut written = std::iter::from_fn(|| {
        while let Some((action, rest)) = split_tlv(original, 2) {
            original = rest;
            if floods(action) {
                return Some(action);
            }
        }
        None
    });
    let mut result = Vec::with_capacity(list.len() + 16);
    while let Some((action, rest)) = split_tlv(list, 2) {
        let flood = match is_flood_group(action, hidden) {
            true => written.next(),
            false => None,
        };
        result.extend(flood.unwrap_or(action));
        list = rest;
    }
    result
}

/// Reverses [`instructions_with_flood_group`], for instructions that a switch spelled.
pub fn instructions_with_floods(list: &[u8], original: &[u8], hidden: &HiddenGroups) -> Vec<u8> {
    with_actions_as_in(list, original, |list, original| {
        actions_with_floods(list, original, hidden)
    })
}

/// Rewrites the lists of Apply-Actions, given those of the same instruction in `original`.
fn with_actions_as_in(
    mut list: &[u8],
    original: &[u8],
    rewrite: impl Fn(&[u8], &[u8]) -> Vec<u8>,
) -> Vec<u8> {
    let written = |kind, mut list| {
        while let Some((instruction, rest)) = split_tlv(list, 2) {
            if u16_at(instruction, 0) == kind {
                return instruction.get(8..).unwrap_or_default();
            }
            list = rest;
        }
        &[]
    };
    let mut result = Vec::with_capacity(list.len() + 16);
    while let Some((instruction, rest)) = split_tlv(list, 2) {
        if is_translated(instruction) && instruction.len() >= 8 {
            let written = written(u16_at(instruction, 0), original);
            let actions = rewrite(&instruction[8..], written);
            result.extend(&instruction[..2]);
            result.extend((8 + actions.len() as u16).to_be_bytes());
            result.extend(&instruction[4..8]);
            result.extend(actions);
        } else {
            result.extend(instruction);
        }
        list = rest;
    }
    result
}

/// Shows Nicira's `set_tunnel` and `set_mpls_*`, and the ports of SCTP, as a controller wrote them: switches report them over OpenFlow 1.3 as set-fields, which
/// OpenFlow 1.0 would show as loads.
pub fn show_setters_as_written(told: &mut Instructions, written: &Instructions) {
    let mut has_setters = false;
    written.for_each_action(&mut |item| has_setters |= set_by(item.raw).is_some());
    if has_setters {
        let shown = with_actions_as_in(told.as_bytes(), written.as_bytes(), actions_with_setters);
        if let Ok(shown) = Instructions::from_bytes(shown) {
            *told = shown;
        }
    }
}

/// Returns the header of the field that a switch names instead of such an action.
pub(super) fn set_by(action: &[u8]) -> Option<u32> {
    const NICIRA: u16 = 0xffff;
    /// OpenFlow 1.1's.
    const SET_TP_SRC: u16 = 9;
    const SET_TP_DST: u16 = 10;
    const SET_MPLS_LABEL: u16 = 13;
    const SET_MPLS_TC: u16 = 14;
    /// `NXAST_SET_TUNNEL` and `NXAST_SET_TUNNEL64`.
    const SUBTYPES: [u16; 2] = [2, 9];
    /// `OXM_OF_TUNNEL_ID`, `OXM_OF_SCTP_SRC` and `OXM_OF_SCTP_DST`.
    const TUNNEL_ID: u32 = 0x8000_4c08;
    const SCTP_SRC: u32 = 0x8000_2202;
    const SCTP_DST: u32 = 0x8000_2402;
    /// `OXM_OF_MPLS_LABEL` and `OXM_OF_MPLS_TC`.
    const MPLS_LABEL: u32 = 0x8000_4404;
    const MPLS_TC: u32 = 0x8000_4601;
    match u16_at(action, 0)? {
        SET_TP_SRC => Some(SCTP_SRC),
        SET_TP_DST => Some(SCTP_DST),
        SET_MPLS_LABEL => Some(MPLS_LABEL),
        SET_MPLS_TC => Some(MPLS_TC),
        NICIRA if u32_at(action, 4) == Some(NX_VENDOR) => {
            let subtype = u16_at(action, 8)?;
            SUBTYPES.contains(&subtype).then_some(TUNNEL_ID)
        }
        _ => None,
    }
}

/// Bytes of `clone` before its actions.
const CLONE_HEADER: usize = 16;

/// Returns the actions inside `clone`.
fn nested(action: &[u8]) -> Option<&[u8]> {
    const CLONE: u16 = 42;
    let is_vendor = u16_at(action, 0) == Some(0xffff) && u32_at(action, 4) == Some(NX_VENDOR);
    let is_clone = is_vendor && u16_at(action, 8) == Some(CLONE);
    action.get(CLONE_HEADER..).filter(|_| is_clone)
}

/// Open vSwitch reports actions in their order, each as one.
fn actions_with_setters(mut list: &[u8], mut original: &[u8]) -> Vec<u8> {
    const SET_FIELD: u16 = 25;
    let mut result = Vec::with_capacity(list.len() + 16);
    while let Some((action, rest)) = split_tlv(list, 2) {
        let (written, others) = split_tlv(original, 2).unwrap_or_default();
        let field = (u16_at(action, 0) == Some(SET_FIELD)).then(|| u32_at(action, 4));
        let is_same = field.flatten().is_some() && field.flatten() == set_by(written);
        match (nested(action), nested(written)) {
            (Some(inside), Some(original)) => {
                let start = result.len();
                result.extend(&action[..CLONE_HEADER]);
                result.extend(actions_with_setters(inside, original));
                let length = (result.len() - start) as u16;
                result[start + 2..start + 4].copy_from_slice(&length.to_be_bytes());
            }
            _ => result.extend(if is_same { written } else { action }),
        }
        (list, original) = (rest, others);
    }
    result
}

fn count(mut actions: &[u8], kind: u16) -> usize {
    let mut found = 0;
    while let Some((action, rest)) = split_tlv(actions, 2) {
        found += usize::from(u16_at(action, 0) == Some(kind));
        actions = rest;
    }
    found
}

/// Translates a complete OFPT_FLOW_MOD: floods become groups.
pub fn flow_mod_with_flood_group(frame: &[u8], hidden: &HiddenGroups) -> Vec<u8> {
    let match_length = usize::from(u16_at(frame, MATCH + 2).unwrap_or(0)).next_multiple_of(8);
    let (head, instructions) = frame.split_at((MATCH + match_length).min(frame.len()));
    with_length([head, &instructions_with_flood_group(instructions, hidden)].concat())
}

fn with_length(mut frame: Vec<u8>) -> Vec<u8> {
    let length = (frame.len() as u16).to_be_bytes(); // translation only shrinks a message
    frame[2..4].copy_from_slice(&length);
    frame
}

/// Patches timers and flags of an added rule for a switch: it must report expiry to us, and with several copies the idle timer runs here.
pub fn patch_added(frame: &mut [u8], idle_timeout: u16, flags: u16) {
    frame[IDLE_TIMEOUT..IDLE_TIMEOUT + 2].copy_from_slice(&idle_timeout.to_be_bytes());
    frame[FLAGS..FLAGS + 2].copy_from_slice(&flags.to_be_bytes());
}

/// Returns the instructions of a rule for the switches.
pub fn physical_instructions(rule: &Rule, hidden: &HiddenGroups) -> Instructions {
    if !rule.facts.floods {
        return rule.instructions.clone();
    }
    let bytes = instructions_with_flood_group(rule.instructions.as_bytes(), hidden);
    Instructions::from_bytes(bytes).unwrap_or_else(|_| rule.instructions.clone())
}

/// Builds the flow-mod that installs a copy of `rule` from the virtual tables.
pub fn copy_of(rule: &Rule, copies: usize, hidden: &HiddenGroups, now: Instant) -> FlowMod {
    FlowMod {
        idle_timeout: if copies > 1 { 0 } else { rule.idle_timeout },
        hard_timeout: rule.hard_timeout_left(now),
        flags: copy_flags(
            rule.flags & !MESSAGE_FLAGS,
            rule.idle_timeout,
            rule.hard_timeout,
        ),
        instructions: physical_instructions(rule, hidden),
        ..of_rule(rule, FlowModCommand::Add)
    }
}

/// Builds the flow-mod that removes a copy of `rule`, and nothing else.
pub fn removal_of(rule: &Rule) -> FlowMod {
    of_rule(rule, FlowModCommand::DeleteStrict)
}

fn of_rule(rule: &Rule, command: FlowModCommand) -> FlowMod {
    FlowMod {
        cookie: rule.cookie,
        ..FlowMod::new(
            command,
            rule.key.table,
            rule.key.priority,
            rule.matching.clone(),
        )
    }
}

#[cfg(test)]
mod tests;
