//! Actions of OpenFlow 1.0 and Nicira's that only 1.0 has, as actions of
//! OpenFlow 1.3, and back (lib/ofp-actions.c).
//!
//! | OpenFlow 1.0 | as OpenFlow 1.3 |
//! |---|---|
//! | set_vlan_vid, set_vlan_pcp | a load of the bits and of CFI: like them, it pushes a tag if there is none |
//! | strip_vlan | a load of CFI, then pop_vlan, which thus needs no match on a tag |
//! | set_nw_*, set_tp_*, set_mpls_* | the actions of OpenFlow 1.1, which Open vSwitch still takes |
//! | enqueue | set_queue, output, pop_queue |

use crate::action::{action_kind as k, nicira_action, Action, ActionItem, Actions};
use crate::error::{ErrorCode, Refusal};
use crate::field::class;
use crate::instruction::{Instruction, Instructions};
use crate::load_check;
use crate::oxm::OxmField;
use crate::port::{from_openflow10, port_no};
use crate::wire::{patch_length, u16_at, u32_at, Put, Reader};
use crate::NX_VENDOR;

use super::enqueue::{ends_idle_enqueue, enqueue, mark, put_enqueue, ENQUEUED, POP_QUEUE};
use super::matching::nxm_name;
use super::moves::as_move;
use super::padding::put_nicira;
use super::to_port16;

/// `ofp_action_type` of OpenFlow 1.0.
mod kind10 {
    pub const OUTPUT: u16 = 0;
    pub const SET_VLAN_VID: u16 = 1;
    pub const SET_VLAN_PCP: u16 = 2;
    pub const STRIP_VLAN: u16 = 3;
    pub const SET_DL_SRC: u16 = 4;
    pub const SET_DL_DST: u16 = 5;
    pub const SET_NW_SRC: u16 = 6;
    pub const SET_NW_DST: u16 = 7;
    pub const SET_NW_TOS: u16 = 8;
    pub const SET_TP_SRC: u16 = 9;
    pub const SET_TP_DST: u16 = 10;
    pub(super) use crate::openflow10::enqueue::KIND as ENQUEUE;
    pub(super) use crate::openflow10::padding::VENDOR;
}

/// The actions of OpenFlow 1.1 for those of 1.0 from SET_DL_SRC to SET_TP_DST.
const KIND11: [u16; 7] = [3, 4, 5, 6, 7, 9, 10];

/// The actions of OpenFlow 1.1 that Nicira has for OpenFlow 1.0.
const SET_MPLS_LABEL_11: u16 = 13;
const SET_MPLS_TC_11: u16 = 14;

/// Subtypes of Nicira's actions that Open vSwitch takes over 1.0 only, and
/// those used to say in 1.0 what 1.3 has actions for.
mod nicira10 {
    pub const SET_QUEUE: u16 = 4;
    pub const REG_LOAD: u16 = 7;
    pub const RESUBMIT_TABLE: u16 = 14;
    pub const DEC_TTL: u16 = 18;
    pub const WRITE_METADATA: u16 = 22;
    pub const PUSH_MPLS: u16 = 23;
    pub const POP_MPLS: u16 = 24;
    pub const SET_MPLS_TTL: u16 = 25;
    pub const DEC_MPLS_TTL: u16 = 26;
    pub const SET_MPLS_LABEL: u16 = 30;
    pub const SET_MPLS_TC: u16 = 31;
    pub const REG_LOAD2: u16 = 33;
    pub const GROUP: u16 = 40;
}

/// `NXM_OF_VLAN_TCI`.
const VLAN_TCI: u32 = 0x0000_0802;
/// The bits of VLAN id and CFI, and of CFI and priority, as offset and number.
const VID_BITS: (u16, u16) = (0, 13);
const PCP_BITS: (u16, u16) = (12, 4);
const CFI_BIT: (u16, u16) = (12, 1);
const CFI: u16 = 0x1000;

fn bad(error: ErrorCode, detail: &'static str) -> Refusal {
    Refusal::new(error, detail)
}

/// Translates a list of actions of OpenFlow 1.0. The result is checked by
/// whoever takes it as OpenFlow 1.3.
pub(super) fn to_13(list: &[u8]) -> Result<Vec<u8>, Refusal> {
    let mut out = Vec::with_capacity(2 * list.len());
    for action in split(list) {
        translate(action?, &mut out)?;
    }
    Ok(out)
}

/// Splits a list into its actions.
fn split(mut list: &[u8]) -> impl Iterator<Item = Result<&[u8], Refusal>> {
    std::iter::from_fn(move || {
        if list.is_empty() {
            return None;
        }
        let length = u16_at(list, 2).map_or(0, usize::from);
        let parts = list.split_at_checked(length);
        let Some((action, rest)) = parts.filter(|_| length >= 8 && length % 8 == 0) else {
            list = &[];
            let detail = "action with a wrong length";
            return Some(Err(bad(ErrorCode::BAD_ACTION_BAD_LEN, detail)));
        };
        list = rest;
        Some(Ok(action))
    })
}

/// As [`to_13`] for a bucket, whose actions are checked, in the order in which Open vSwitch decodes them. A `pop_vlan` needs no tag
/// there, and an action set executes the load that would stand before it behind it.
pub(super) fn to_bucket(list: &[u8]) -> Result<Vec<u8>, Refusal> {
    let mut translated = Vec::with_capacity(2 * list.len());
    for action in split(list) {
        let (action, start) = (action?, translated.len());
        translate(action, &mut translated)?;
        let added = translated.get_mut(start..).unwrap_or_default();
        load_check::check(Actions::from_bytes(added)?)?;
        if u16_at(action, 0) == Some(kind10::ENQUEUE) {
            mark(added);
        }
    }
    let mut out = Vec::with_capacity(translated.len());
    let mut rest = Actions::trusted(&translated, 0).iter();
    while let Some(item) = rest.next() {
        let is_popped = rest.clone().next().is_some_and(|next| is_pop(&next));
        if !(is_popped && is_load_of_cfi(&item)) {
            out.put(item.raw);
        }
    }
    Ok(out)
}

fn translate(action: &[u8], out: &mut Vec<u8>) -> Result<(), Refusal> {
    let kind = u16_at(action, 0).unwrap_or_default();
    let fixed = match kind {
        kind10::SET_DL_SRC | kind10::SET_DL_DST | kind10::ENQUEUE => 16,
        kind10::VENDOR => return vendor(action, out),
        0..=10 => 8,
        _ => return Err(bad(ErrorCode::BAD_ACTION_BAD_TYPE, "unknown action")),
    };
    if action.len() != fixed {
        return Err(bad(
            ErrorCode::BAD_ACTION_BAD_LEN,
            "action with a wrong length",
        ));
    }
    let number = u16_at(action, 4).unwrap_or_default();
    let byte = action.get(4).copied().unwrap_or_default();
    match kind {
        kind10::OUTPUT => {
            let max_len = u16_at(action, 6).unwrap_or_default();
            put_output(out, from_openflow10(number), max_len);
        }
        kind10::SET_VLAN_VID if number > 0x0fff => {
            return Err(bad(
                ErrorCode::BAD_ACTION_BAD_ARGUMENT,
                "VLAN id above 4095",
            ))
        }
        kind10::SET_VLAN_VID => put_load(out, VLAN_TCI, VID_BITS, u64::from(number | CFI)),
        kind10::SET_VLAN_PCP if byte > 7 => {
            return Err(bad(
                ErrorCode::BAD_ACTION_BAD_ARGUMENT,
                "VLAN priority above 7",
            ))
        }
        kind10::SET_NW_TOS if byte & 3 != 0 => {
            return Err(bad(
                ErrorCode::BAD_ACTION_BAD_ARGUMENT,
                "type of service with bits of ECN",
            ))
        }
        kind10::SET_VLAN_PCP => put_load(out, VLAN_TCI, PCP_BITS, u64::from(byte) << 1 | 1),
        // A load of 0 would keep the tag's Ethernet type for the next tag, and lose an inner tag.
        kind10::STRIP_VLAN => {
            put_load(out, VLAN_TCI, CFI_BIT, 1);
            put_number(out, k::POP_VLAN, 0);
        }
        kind10::ENQUEUE => {
            put_number(out, k::SET_QUEUE, u32_at(action, 12).unwrap_or_default());
            // As Open vSwitch shows it to later versions.
            put_output(out, from_openflow10(number), ENQUEUED);
            put_nicira(out, POP_QUEUE, &[0; 6]);
        }
        _ => {
            let index = usize::from(kind - kind10::SET_DL_SRC);
            out.put_u16(KIND11.get(index).copied().unwrap_or_default());
            out.put(action.get(2..).unwrap_or_default());
        }
    }
    Ok(())
}

/// Translates an experimenter's action: those of 1.0 only, and those with
/// actions inside.
fn vendor(action: &[u8], out: &mut Vec<u8>) -> Result<(), Refusal> {
    let subtype = match (u32_at(action, 4), u16_at(action, 8)) {
        (Some(NX_VENDOR), Some(subtype)) if action.len() >= 16 => subtype,
        _ => {
            out.put(action);
            return Ok(());
        }
    };
    let item = ActionItem::parse(action, 0);
    if let Some(nested) = item.nested() {
        let start = out.len();
        let header = action.len() - nested.as_bytes().len();
        out.put(action.get(..header).unwrap_or_default());
        out.extend(to_13(nested.as_bytes())?);
        patch_length(out, start, 2);
        return Ok(());
    }
    let number = u16_at(action, 10).unwrap_or_default();
    let byte = action.get(10).copied().unwrap_or_default();
    let wide = u32_at(action, 12).unwrap_or_default();
    match subtype {
        nicira10::SET_QUEUE => put_number(out, k::SET_QUEUE, wide),
        nicira10::DEC_TTL => put_number(out, k::DEC_NW_TTL, 0),
        nicira10::PUSH_MPLS => put_number(out, k::PUSH_MPLS, u32::from(number) << 16),
        nicira10::POP_MPLS => put_number(out, k::POP_MPLS, u32::from(number) << 16),
        nicira10::SET_MPLS_TTL => put_number(out, k::SET_MPLS_TTL, u32::from(byte) << 24),
        nicira10::DEC_MPLS_TTL => put_number(out, k::DEC_MPLS_TTL, 0),
        nicira10::SET_MPLS_LABEL => put_number(out, SET_MPLS_LABEL_11, wide),
        nicira10::SET_MPLS_TC => put_number(out, SET_MPLS_TC_11, u32::from(byte) << 24),
        nicira10::GROUP => put_number(out, k::GROUP, wide),
        _ => out.put(action),
    }
    Ok(())
}

fn put_output(out: &mut Vec<u8>, port: u32, max_len: u16) {
    out.put_u16(k::OUTPUT);
    out.put_u16(16);
    out.put_u32(port);
    out.put_u16(max_len);
    out.zeros(6);
}

/// An action of eight bytes.
fn put_number(out: &mut Vec<u8>, kind: u16, number: u32) {
    out.put_u16(kind);
    out.put_u16(8);
    out.put_u32(number);
}

/// `NXAST_REG_LOAD` of some bits of a field.
fn put_load(out: &mut Vec<u8>, header: u32, (offset, bits): (u16, u16), value: u64) {
    let mut body = Vec::with_capacity(14);
    body.put_u16(offset << 6 | (bits - 1));
    body.put_u32(header);
    body.put_u64(value);
    put_nicira(out, nicira10::REG_LOAD, &body);
}

/// The reader of a list of actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    /// A controller, which gets the actions of OpenFlow 1.0 that it has written.
    Controller,
    /// The same, about a bucket.
    OfBucket,
    /// A switch, which says the same actions over OpenFlow 1.3 as a rule has here.
    Switch,
}

/// Translates instructions to a list of actions of OpenFlow 1.0, which lacks
/// meters and action sets.
pub(crate) fn of_instructions(instructions: &Instructions) -> Vec<u8> {
    translated(instructions, Reading::Controller)
}

/// As [`of_instructions`], for a switch.
pub(super) fn for_switch(instructions: &Instructions) -> Vec<u8> {
    translated(instructions, Reading::Switch)
}

fn translated(instructions: &Instructions, reading: Reading) -> Vec<u8> {
    let mut out = Vec::new();
    for instruction in instructions.iter() {
        if let Instruction::ApplyActions(list) = instruction {
            out.extend(to_10(list, reading));
        }
    }
    for instruction in instructions.iter() {
        if let Instruction::WriteMetadata { metadata, mask } = instruction {
            let mut body = vec![0; 6];
            body.put_u64(metadata);
            body.put_u64(mask);
            put_nicira(&mut out, nicira10::WRITE_METADATA, &body);
        }
    }
    for instruction in instructions.iter() {
        if let Instruction::GotoTable(table) = instruction {
            let mut body = Vec::new();
            body.put_u16(to_port16(port_no::IN_PORT));
            body.put(&[table, 0, 0, 0]);
            put_nicira(&mut out, nicira10::RESUBMIT_TABLE, &body);
        }
    }
    out
}

/// Translates the actions of a bucket.
pub(super) fn of_bucket(list: Actions<'_>) -> Vec<u8> {
    to_10(list, Reading::OfBucket)
}

/// Translates a list of actions of OpenFlow 1.3.
fn to_10(list: Actions<'_>, reading: Reading) -> Vec<u8> {
    let mut out = Vec::with_capacity(list.as_bytes().len());
    let mut rest = list.iter();
    while let Some(item) = rest.next() {
        let enqueued = enqueue(&item, &rest)
            .filter(|(.., pop, _)| reading != Reading::OfBucket || ends_idle_enqueue(pop.raw));
        if let Some((port, queue, _, after)) = enqueued {
            put_enqueue(&mut out, port, queue);
            rest = after;
            continue;
        }
        let is_popped = || rest.clone().next().is_some_and(|next| is_pop(&next));
        if reading != Reading::Switch && is_load_of_cfi(&item) && is_popped() {
            // The strip_vlan that follows needs no tag.
            continue;
        }
        put_10(&item, reading, &mut out);
    }
    out
}

fn is_pop(item: &ActionItem<'_>) -> bool {
    matches!(item.action, Action::PopVlan)
}

/// Tells whether it is the load that stands before pop_vlan in place of strip_vlan.
fn is_load_of_cfi(item: &ActionItem<'_>) -> bool {
    let mut load = Vec::new();
    put_load(&mut load, VLAN_TCI, CFI_BIT, 1);
    item.raw == load
}

/// An action of OpenFlow 1.0 of eight bytes.
fn put_short(out: &mut Vec<u8>, kind: u16, first: u16, second: u16) {
    out.put_u16(kind);
    out.put_u16(8);
    out.put_u16(first);
    out.put_u16(second);
}

fn put_10(item: &ActionItem<'_>, reading: Reading, out: &mut Vec<u8>) {
    let with_u16 = |out: &mut Vec<u8>, subtype, number: u16| {
        let [high, low] = number.to_be_bytes();
        put_nicira(out, subtype, &[high, low, 0, 0, 0, 0]);
    };
    let with_u32 = |out: &mut Vec<u8>, subtype, number: u32| {
        let [a, b, c, d] = number.to_be_bytes();
        put_nicira(out, subtype, &[0, 0, a, b, c, d]);
    };
    match item.action {
        Action::Output { port, max_len } => {
            put_short(out, kind10::OUTPUT, to_port16(port), max_len);
        }
        Action::Group(group) => with_u32(out, nicira10::GROUP, group),
        Action::SetQueue(queue) => with_u32(out, nicira10::SET_QUEUE, queue),
        // A side effect of setting the tag's fields, which follows.
        Action::PushVlan(_) => {}
        Action::PopVlan => put_short(out, kind10::STRIP_VLAN, 0, 0),
        Action::PushMpls(kind) => with_u16(out, nicira10::PUSH_MPLS, kind),
        Action::PopMpls(kind) => with_u16(out, nicira10::POP_MPLS, kind),
        Action::SetMplsTtl(ttl) => with_u16(out, nicira10::SET_MPLS_TTL, u16::from(ttl) << 8),
        Action::DecMplsTtl => with_u16(out, nicira10::DEC_MPLS_TTL, 0),
        Action::SetNwTtl(ttl) => put_load(out, 0x0001_3a01, (0, 8), u64::from(ttl)),
        Action::DecNwTtl => with_u16(out, nicira10::DEC_TTL, 0),
        Action::SetField(field) => set_field(&field, item.raw, out),
        Action::Nicira {
            subtype: nicira10::REG_LOAD,
            ..
        } if reading != Reading::Switch => load(item.raw, out),
        Action::Nicira {
            subtype: nicira_action::CT | nicira_action::CLONE,
            ..
        } => {
            let nested = item.nested().map(|list| list.as_bytes().len());
            let header = item.raw.len() - nested.unwrap_or_default();
            let start = out.len();
            out.put(item.raw.get(..header).unwrap_or_default());
            let reading = match reading {
                // The actions inside are a list, not an action set.
                Reading::OfBucket => Reading::Controller,
                other => other,
            };
            if let Some(list) = item.nested() {
                out.extend(to_10(list, reading));
            }
            patch_length(out, start, 2);
        }
        Action::Experimenter { .. } => match as_move(item) {
            Some(moved) => out.put(&moved),
            None => out.put(item.raw),
        },
        Action::Nicira { .. } => out.put(item.raw),
        Action::Other {
            kind: SET_MPLS_LABEL_11,
            body,
        } => with_u32(
            out,
            nicira10::SET_MPLS_LABEL,
            u32_at(body, 0).unwrap_or_default(),
        ),
        Action::Other {
            kind: SET_MPLS_TC_11,
            body,
        } => {
            let class = body.first().copied().unwrap_or_default();
            with_u16(out, nicira10::SET_MPLS_TC, u16::from(class) << 8);
        }
        Action::Other { kind, body } => {
            let index = KIND11.iter().position(|kind11| *kind11 == kind);
            if let Some(index) = index.and_then(|index| u16::try_from(index).ok()) {
                out.put_u16(kind10::SET_DL_SRC + index);
                out.put_u16(u16::try_from(item.raw.len()).unwrap_or_default());
                out.put(body);
            }
        }
        // OpenFlow 1.0 has neither PBB nor copies of TTLs.
        _ => {}
    }
}

/// Writes a load, with the names of OpenFlow 1.0 for those of `translate`.
fn load(raw: &[u8], out: &mut Vec<u8>) {
    let bits = u16_at(raw, 10).unwrap_or_default();
    let (offset, number) = (bits >> 6, (bits & 0x3f) + 1);
    let value = u16_at(raw, 22).unwrap_or_default();
    let is_tci = u32_at(raw, 12) == Some(VLAN_TCI);
    match (offset, number) {
        VID_BITS if is_tci && value & CFI != 0 => {
            put_short(out, kind10::SET_VLAN_VID, value & !CFI, 0)
        }
        PCP_BITS if is_tci && value & 1 != 0 => {
            put_short(out, kind10::SET_VLAN_PCP, value >> 1 << 8, 0)
        }
        _ => out.put(raw),
    }
}

/// `set_field_to_legacy_openflow`.
fn set_field(field: &OxmField<'_>, raw: &[u8], out: &mut Vec<u8>) {
    let basic = (field.class == class::OPENFLOW_BASIC).then_some(field.field);
    let byte = field.value.first().copied().unwrap_or_default();
    let number = u16_at(field.value, 0).unwrap_or_default();
    let mut put_mac = |kind| {
        out.put_u16(kind);
        out.put_u16(16);
        out.put(field.value);
        out.zeros(6);
    };
    match basic {
        Some(3) => put_mac(kind10::SET_DL_DST),
        Some(4) => put_mac(kind10::SET_DL_SRC),
        Some(6) => put_short(out, kind10::SET_VLAN_VID, number & !CFI, 0),
        Some(7) => put_short(out, kind10::SET_VLAN_PCP, u16::from(byte) << 8, 0),
        Some(8) => put_short(out, kind10::SET_NW_TOS, u16::from(byte << 2) << 8, 0),
        Some(11) => put_address(out, kind10::SET_NW_SRC, field.value),
        Some(12) => put_address(out, kind10::SET_NW_DST, field.value),
        Some(13 | 15) => put_short(out, kind10::SET_TP_SRC, number, 0),
        Some(14 | 16) => put_short(out, kind10::SET_TP_DST, number, 0),
        _ => put_loads(field, raw, out),
    }
}

fn put_address(out: &mut Vec<u8>, kind: u16, address: &[u8]) {
    out.put_u16(kind);
    out.put_u16(8);
    out.put(address);
}

/// Writes loads of a field, from its lowest bits on; a copy of the set-field
/// as `NXAST_REG_LOAD2` where there is no such load (`set_field_to_nxast`).
fn put_loads(field: &OxmField<'_>, raw: &[u8], out: &mut Vec<u8>) {
    let named = match field.class {
        class::OPENFLOW_BASIC => nxm_name(field.field).unwrap_or((field.class, field.field)),
        class => (class, field.field),
    };
    if field.experimenter.is_some() || field.value.is_empty() {
        let mut body = vec![0; 6];
        let length = OxmField::pull(&mut Reader::new(raw.get(4..).unwrap_or_default()))
            .map_or(0, |_| {
                4 + usize::from(raw.get(7).copied().unwrap_or_default())
            });
        body.put(raw.get(4..4 + length).unwrap_or_default());
        return put_nicira(out, nicira10::REG_LOAD2, &body);
    }
    let width = u32::try_from(field.value.len()).unwrap_or_default();
    let header = u32::from(named.0) << 16 | u32::from(named.1) << 9 | width;
    let bits = match (field.class, field.field) {
        (class::OPENFLOW_BASIC, 28 | 34) => 20,
        (class::OPENFLOW_BASIC, 35) => 3,
        (class::OPENFLOW_BASIC, 9) => 2,
        _ => 8 * width as u16,
    };
    for (index, chunk) in field.value.rchunks(8).enumerate() {
        let value = chunk.iter().fold(0, |n, &byte| n << 8 | u64::from(byte));
        let offset = 64 * index as u16;
        put_load(out, header, (offset, (bits - offset).min(64)), value);
    }
}
