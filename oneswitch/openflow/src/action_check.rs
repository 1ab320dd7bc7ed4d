//! The checks of Open vSwitch 3.1 when it decodes actions (`ofpact_pull_raw`,
//! build-aux/extract-ofp-actions).

use crate::action::{
    action_kind, nested_header, nicira_action, Action, ActionList, Actions, Strictness,
};
use crate::error::{ErrorCode, Refusal};
use crate::field::{class, lookup, Kind};
use crate::learn_check;
use crate::oxm::OxmField;
use crate::port::is_output;
use crate::wire::{u16_at, u32_at, Reader};
use crate::{NX_VENDOR, ONF_VENDOR};

/// The largest action length that is a multiple of 8.
const MAX: usize = 65_528;

impl<'a> Actions<'a> {
    /// Checks a list as Open vSwitch checks that of a request.
    pub fn from_bytes(bytes: &'a [u8]) -> Result<Self, Refusal> {
        check(bytes, Strictness::Request)?;
        Ok(Self::trusted(bytes, 0))
    }
}

impl ActionList {
    /// Checks a list as Open vSwitch checks that of a request.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, Refusal> {
        check(&bytes, Strictness::Request)?;
        Ok(Self(bytes))
    }
}

/// `ONFACT_RAW13_COPY_FIELD`.
pub(crate) const ONF_COPY_FIELD: u16 = 3200;

/// Returns the smallest and largest length of a standard action, `None` if
/// unknown.
fn standard_lengths(kind: u16, is_15: bool) -> Option<(usize, usize)> {
    use action_kind as k;
    Some(match kind {
        k::OUTPUT => (16, 16),
        // Deprecated since OpenFlow 1.2: set_dl_src, set_dl_dst.
        3 | 4 => (16, 16),
        // Deprecated since OpenFlow 1.2: the other set_*.
        1 | 2 | 5..=10 | 13 | 14 => (8, 8),
        k::SET_FIELD => (8, MAX),
        k::COPY_FIELD if is_15 => (16, MAX),
        // Only OpenFlow 1.5 has it (metering.rs).
        k::METER => (8, 8),
        k::SET_MPLS_TTL
        | k::DEC_MPLS_TTL
        | k::PUSH_VLAN
        | k::POP_VLAN
        | k::PUSH_MPLS
        | k::POP_MPLS
        | k::SET_QUEUE
        | k::GROUP
        | k::SET_NW_TTL
        | k::DEC_NW_TTL => (8, 8),
        // Open vSwitch supports neither PBB nor copying of TTLs.
        _ => return None,
    })
}

/// Does the same for Nicira's actions.
fn nicira_lengths(subtype: u16, is_15: bool) -> Option<(usize, usize)> {
    use nicira_action as n;
    Some(match subtype {
        // OpenFlow 1.5 has standard actions for these.
        n::REG_MOVE | n::REG_LOAD | n::REG_LOAD2 if is_15 => return None,
        // resubmit, set_tunnel, pop_queue, resubmit_table, exit, fin_timeout,
        // controller, conjunction, output_trunc, ct_clear, resubmit_table_ct,
        // dec_nsh_ttl and two debugging actions.
        1 | 2 | 5 | 14 | 17 | 19 | 20 | 34 | 39 | 43 | 44 | 48 | 254 | 255 => (16, 16),
        // reg_load, set_tunnel64, output_reg, stack_push, stack_pop, sample,
        // output_reg2, delete_field.
        7 | 9 | 15 | 27 | 28 | 29 | 32 | 50 => (24, 24),
        // multipath, write_metadata, sample2, sample3.
        10 | 22 | 38 | 41 => (32, 32),
        // reg_move, note, dec_ttl_cnt_ids, reg_load2, nat, controller2,
        // clone, encap, decap.
        6 | 8 | 21 | 33 | 36 | 37 | n::CLONE | 46 | 47 => (16, MAX),
        // ct, check_pkt_larger.
        n::CT | 49 => (24, MAX),
        // bundle, bundle_load, learn.
        12 | 13 | n::LEARN => (32, MAX),
        n::LEARN2 => (40, MAX),
        _ => return None,
    })
}

/// Returns the lengths of the action at the start of `rest`, or the error of an
/// unknown one (`ofpact_decode_raw`).
fn lengths(rest: &[u8], is_15: bool) -> Result<(usize, usize), ErrorCode> {
    let (Some(kind), Some(vendor)) = (u16_at(rest, 0), u32_at(rest, 4)) else {
        return Err(ErrorCode::BAD_ACTION_BAD_LEN);
    };
    if kind != action_kind::EXPERIMENTER {
        return standard_lengths(kind, is_15).ok_or(ErrorCode::BAD_ACTION_BAD_TYPE);
    }
    if vendor != NX_VENDOR && vendor != ONF_VENDOR {
        return Err(ErrorCode::BAD_ACTION_BAD_EXPERIMENTER);
    }
    let subtype = match rest.get(..16) {
        Some(header) => u16_at(header, 8).unwrap_or_default(),
        None => return Err(ErrorCode::BAD_ACTION_BAD_LEN),
    };
    match vendor {
        NX_VENDOR => nicira_lengths(subtype, is_15),
        _ => (subtype == ONF_COPY_FIELD && !is_15).then_some((24, MAX)),
    }
    .ok_or(ErrorCode::BAD_ACTION_BAD_EXP_TYPE)
}

/// Checks a list of actions, including nested ones, in the order in which Open
/// vSwitch decodes them.
pub(crate) fn check(list: &[u8], strictness: Strictness) -> Result<(), Refusal> {
    let mut lists = Vec::new();
    let mut rest = list;
    loop {
        if rest.is_empty() {
            match lists.pop() {
                Some(outer) => rest = outer,
                None => return Ok(()),
            }
            continue;
        }
        let (raw, after) = pull(rest, strictness)?;
        let header = match (u16_at(raw, 0), u32_at(raw, 4), u16_at(raw, 8)) {
            (Some(action_kind::EXPERIMENTER), Some(NX_VENDOR), Some(subtype)) => {
                nested_header(&Action::Nicira { subtype, body: &[] })
            }
            _ => None,
        };
        match header.and_then(|header| raw.get(header..)) {
            Some(nested) => {
                lists.push(after);
                rest = nested;
            }
            None => rest = after,
        }
    }
}

/// Splits the first action off (`ofpact_pull_raw`).
fn pull(rest: &[u8], strictness: Strictness) -> Result<(&[u8], &[u8]), Refusal> {
    let is_15 = strictness == Strictness::Request15;
    let (min, max) = match lengths(rest, is_15) {
        Ok(range) => range,
        Err(ErrorCode::BAD_ACTION_BAD_LEN) => {
            return Err(Refusal::new(
                ErrorCode::BAD_ACTION_BAD_LEN,
                "truncated action",
            ))
        }
        Err(_) if strictness == Strictness::Reply => (8, MAX),
        Err(error) => {
            let (kind, vendor) = (u16_at(rest, 0), u32_at(rest, 4));
            return Err(Refusal::new(
                error,
                format!(
                    "unknown action of type {:#x}, {:#x} after its header",
                    kind.unwrap_or_default(),
                    vendor.unwrap_or_default()
                ),
            ));
        }
    };
    let length = usize::from(u16_at(rest, 2).unwrap_or_default());
    let bad_length = || {
        Refusal::new(
            ErrorCode::BAD_ACTION_BAD_LEN,
            format!(
                "action of type {:#x} has length {length}",
                u16_at(rest, 0).unwrap_or_default()
            ),
        )
    };
    if length < min || length > max || length % 8 != 0 {
        return Err(bad_length());
    }
    let (raw, after) = rest.split_at_checked(length).ok_or_else(bad_length)?;
    if strictness != Strictness::Reply {
        match u16_at(raw, 0) {
            Some(action_kind::SET_FIELD) => set_field(raw, is_15)?,
            Some(action_kind::COPY_FIELD) => copy_field(raw, 4)?,
            Some(action_kind::OUTPUT) => output(raw)?,
            Some(action_kind::EXPERIMENTER)
                if (u32_at(raw, 4), u16_at(raw, 8)) == (Some(ONF_VENDOR), Some(ONF_COPY_FIELD)) =>
            {
                copy_field(raw, 12)?;
            }
            Some(action_kind::EXPERIMENTER) => nicira(raw)?,
            Some(action_kind::PUSH_VLAN) => push(raw, [0x8100, 0x88a8])?,
            Some(action_kind::PUSH_MPLS) => push(raw, [0x8847, 0x8848])?,
            _ => {}
        }
    }
    Ok((raw, after))
}

/// Checks what switches would find too late, because something else in the message is wrong as well.
fn nicira(raw: &[u8]) -> Result<(), Refusal> {
    match (u32_at(raw, 4), u16_at(raw, 8)) {
        (Some(NX_VENDOR), Some(subtype @ (nicira_action::LEARN | nicira_action::LEARN2))) => {
            learn_check::check(raw, subtype)
        }
        _ => Ok(()),
    }
}

/// `ofpact_check_output_port`.
fn output(raw: &[u8]) -> Result<(), Refusal> {
    let port = u32_at(raw, 4).unwrap_or_default();
    if is_output(port) {
        return Ok(());
    }
    Err(Refusal::new(
        ErrorCode::BAD_ACTION_BAD_OUT_PORT,
        format!("output to port {port:#x}"),
    ))
}

/// `decode_OFPAT_RAW11_PUSH_VLAN`, `decode_OFPAT_RAW11_PUSH_MPLS`: before errors of later actions.
fn push(raw: &[u8], ethertypes: [u16; 2]) -> Result<(), Refusal> {
    let ethertype = u16_at(raw, 4).unwrap_or_default();
    if ethertypes.contains(&ethertype) {
        return Ok(());
    }
    Err(Refusal::new(
        ErrorCode::BAD_ACTION_BAD_ARGUMENT,
        format!("push of a tag or label of type {ethertype:#06x}"),
    ))
}

/// `decode_ofpat_set_field`.
fn set_field(raw: &[u8], may_mask: bool) -> Result<(), Refusal> {
    let bytes = raw.get(4..).unwrap_or_default();
    let mut reader = Reader::new(bytes);
    let refuse = |error, detail: &'static str| Err(Refusal::new(error, detail));
    let known = known_field(bytes)?;
    let tlv = OxmField::pull(&mut reader)?;
    if let Some(mask) = tlv.mask {
        if tlv.value.iter().zip(mask).any(|(v, m)| v & !m != 0) {
            return refuse(
                ErrorCode::BAD_MATCH_BAD_WILDCARDS,
                "set-field of masked-out bits",
            );
        }
    }
    if tlv.has_mask && !may_mask {
        return refuse(ErrorCode::ONF_BAD_SET_MASK, "set-field with a mask");
    }
    if reader.rest().iter().any(|&byte| byte != 0) {
        return refuse(
            ErrorCode::BAD_ACTION_BAD_SET_ARGUMENT,
            "set-field with non-zero padding",
        );
    }
    let is_in_port = tlv.class == class::OPENFLOW_BASIC && tlv.field == 0;
    // A tag's id is set together with its presence.
    let hides_presence = known.kind == Kind::VlanVid
        && tlv
            .mask
            .is_some_and(|mask| mask.first().is_none_or(|byte| byte & 0x10 == 0));
    let is_settable = known.writable && crate::canonical::is_settable(&known, tlv.value);
    if is_in_port || !is_settable || hides_presence {
        return refuse(
            ErrorCode::BAD_ACTION_BAD_SET_ARGUMENT,
            "set-field of a read-only field or to an invalid value",
        );
    }
    Ok(())
}

/// Checks whether the bits of a copy are within their fields (`nxm_reg_move_check`), as
/// far as these have whole bytes: switches find the rest, but after other actions. The
/// number of bits is at `bits`.
fn copy_field(raw: &[u8], bits: usize) -> Result<(), Refusal> {
    let numbers = [0, 2, 4].map(|at| u16_at(raw, bits + at).unwrap_or_default());
    let [count, from, to] = numbers.map(u32::from);
    let source = raw.get(bits + 8..).unwrap_or_default();
    let Ok(first) = known_field(source) else {
        return Ok(());
    };
    let is_experimenter = u16_at(source, 0) == Some(class::EXPERIMENTER);
    let target = source.get(if is_experimenter { 8 } else { 4 }..);
    let Ok(second) = known_field(target.unwrap_or_default()) else {
        return Ok(());
    };
    for (field, offset) in [(first, from), (second, to)] {
        let is_whole = matches!(field.kind, Kind::Plain | Kind::Port32) && field.limit == u64::MAX;
        let width = 8 * u32::from(field.width);
        if count == 0 || is_whole && offset + count > width {
            let detail = format!("copy of {count} bits from {offset} of a field of {width}");
            return Err(Refusal::new(ErrorCode::BAD_ACTION_BAD_SET_LEN, detail));
        }
    }
    match second.writable {
        true => Ok(()),
        false => {
            let detail = "copy to a read-only field";
            Err(Refusal::new(ErrorCode::BAD_ACTION_BAD_SET_ARGUMENT, detail))
        }
    }
}

/// Returns the field that a set-field names (`nx_pull_header__`).
fn known_field(bytes: &[u8]) -> Result<crate::field::Field, Refusal> {
    let cut_off = || Refusal::new(ErrorCode::BAD_MATCH_BAD_LEN, "truncated set-field");
    let &[c0, c1, field, length] = bytes.first_chunk::<4>().ok_or_else(cut_off)?;
    let class = u16::from_be_bytes([c0, c1]);
    let mut length = usize::from(length);
    let mut experimenter = None;
    if class == class::EXPERIMENTER {
        experimenter = Some(u32_at(bytes, 4).ok_or_else(cut_off)?);
        length = length.checked_sub(4).ok_or_else(cut_off)?;
    }
    if field & 1 != 0 {
        length /= 2;
    }
    let refuse = |error| Refusal::new(error, format!("set-field of class {class:#06x} {field:#x}"));
    let known = lookup(class, field >> 1, experimenter)
        .ok_or_else(|| refuse(ErrorCode::BAD_ACTION_BAD_SET_TYPE))?;
    if known.kind == Kind::TunMetadata || usize::from(known.width) == length {
        return Ok(known);
    }
    Err(refuse(match length {
        0 => ErrorCode::BAD_ACTION_BAD_SET_TYPE,
        _ => ErrorCode::BAD_ACTION_BAD_SET_LEN,
    }))
}
