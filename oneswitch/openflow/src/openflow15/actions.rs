//! Actions: OpenFlow 1.5 sets fields in part, copies fields, and meters packets by
//! actions of its own (lib/ofp-actions.c).

use crate::action::{action_kind as k, nicira_action as nx, Action, ActionItem, Actions};
use crate::action_check::ONF_COPY_FIELD;
use crate::error::{ErrorCode, Refusal};
use crate::field::{class, lookup, Kind};
use crate::oxm::OxmField;
use crate::wire::{padded, patch_length, u16_at, Put, Reader};
use crate::{NX_VENDOR, ONF_VENDOR};

use super::fields::{name_of, preferred, put, put_header, Name};

/// Bytes of `ofp15_action_copy_field` before the fields.
const COPY_HEADER: usize = 12;
/// Bytes of `nx_action_reg_move` before the fields.
const MOVE_HEADER: usize = 16;
/// Bytes of `onf_action_copy_field` before the fields.
const ONF_COPY_HEADER: usize = 20;
/// Bytes of `nx_action_reg_load`.
const LOAD: u16 = 24;
/// Bytes of `ext_action_header` before its padding.
const EXTENSION_HEADER: usize = 10;
/// The largest number of bits that one `nx_action_reg_load` sets.
const LOADED_BITS: usize = 64;

/// Translates a list that was checked to OpenFlow 1.3.
///
/// # Errors
/// A meter inside `ct`. Other meters remain (metering.rs).
pub(super) fn to_13(list: &[u8]) -> Result<Vec<u8>, Refusal> {
    let mut out = Vec::with_capacity(list.len());
    for item in Actions::trusted(list, 0) {
        if let Some(nested) = item.nested() {
            let mut inside = Actions::trusted(nested.as_bytes(), 0).iter();
            let is_ct = matches!(
                item.action,
                Action::Nicira {
                    subtype: nx::CT,
                    ..
                }
            );
            if is_ct && inside.any(|item| item.meter().is_some()) {
                let detail = "a meter inside ct";
                return Err(Refusal::new(ErrorCode::BAD_ACTION_BAD_ARGUMENT, detail));
            }
            put_nested(&mut out, &item, &to_13(nested.as_bytes())?);
            continue;
        }
        match u16_at(item.raw, 0) {
            Some(k::SET_FIELD) => set_field_13(&mut out, item.raw),
            Some(k::COPY_FIELD) => {
                let start = begin(&mut out, ONF_VENDOR, ONF_COPY_FIELD);
                out.zeros(2);
                put_copy(&mut out, start, item.raw.get(4..).unwrap_or_default());
            }
            _ => out.put(item.raw),
        }
    }
    Ok(out)
}

/// Appends an action with other actions inside.
fn put_nested(out: &mut Vec<u8>, item: &ActionItem<'_>, nested: &[u8]) {
    let start = out.len();
    let inside = item.nested().map_or(0, |list| list.as_bytes().len());
    let header = item.raw.len() - inside;
    out.put(item.raw.get(..header).unwrap_or_default());
    out.put(nested);
    patch_length(out, start, 2);
}

/// Begins an action of a vendor; returns its place.
fn begin(out: &mut Vec<u8>, vendor: u32, subtype: u16) -> usize {
    let start = out.len();
    out.put_u16(k::EXPERIMENTER);
    out.zeros(2);
    out.put_u32(vendor);
    out.put_u16(subtype);
    start
}

/// Ends an action at a multiple of 8 bytes.
fn end(out: &mut Vec<u8>, start: usize) {
    let length = out.len() - start;
    out.zeros(padded(length) - length);
    patch_length(out, start, 2);
}

/// Appends what follows the header of a copy of a field, from its number of bits on.
fn put_copy(out: &mut Vec<u8>, start: usize, rest: &[u8]) {
    out.put(rest);
    end(out, start);
}

/// Appends the actions that set a field, or bits of it (`encode_SET_FIELD`).
fn set_field_13(out: &mut Vec<u8>, raw: &[u8]) {
    let Ok(field) = OxmField::pull(&mut Reader::new(raw.get(4..).unwrap_or_default())) else {
        return out.put(raw);
    };
    let name = name_of(&field);
    let Some(mask) = field
        .mask
        .filter(|mask| mask.iter().any(|byte| *byte != 0xff))
    else {
        let start = out.len();
        out.put_u16(k::SET_FIELD);
        out.zeros(2);
        put(out, name, field.value, None);
        return end(out, start);
    };
    let bits = Bits::of(mask);
    let (class, number, vendor) = name;
    let loadable = lookup(class, number, vendor)
        .filter(|known| class != class::EXPERIMENTER && known.kind != Kind::TunMetadata)
        .map_or(0, |known| known.bits());
    match bits {
        Some(bits) if bits.count <= LOADED_BITS && bits.offset + bits.count <= loadable => {
            begin(out, NX_VENDOR, nx::REG_LOAD);
            let numbers = bits.offset << 6 | (bits.count - 1);
            out.put_u16(u16::try_from(numbers).unwrap_or(u16::MAX));
            put_header(out, name, false, field.value.len());
            out.put_u64(bits.get(field.value));
            let start = out.len() - usize::from(LOAD);
            patch_length(out, start, 2);
        }
        // Several actions would be as good for the packets, but not be read back as one.
        _ => load_13(out, &field),
    }
}

/// Appends an action that sets the bits of a mask.
pub(super) fn load_13(out: &mut Vec<u8>, field: &OxmField<'_>) {
    let start = begin(out, NX_VENDOR, nx::REG_LOAD2);
    put(out, name_of(field), field.value, field.mask);
    end(out, start);
}

/// The contiguous bits of a field that are set.
struct Bits {
    /// From the lowest bit.
    offset: usize,
    count: usize,
}

impl Bits {
    fn of(mask: &[u8]) -> Option<Self> {
        let is_set = |bit: usize| {
            let byte = mask
                .len()
                .checked_sub(1 + bit / 8)
                .and_then(|at| mask.get(at));
            byte.is_some_and(|byte| byte >> (bit % 8) & 1 != 0)
        };
        let width = mask.len() * 8;
        let offset = (0..width).find(|bit| is_set(*bit))?;
        let end = (offset..width).find(|bit| !is_set(*bit)).unwrap_or(width);
        let count = end - offset;
        (!(end..width).any(is_set)).then_some(Self { offset, count })
    }

    /// Reads at most 64 bits of a value.
    fn get(&self, value: &[u8]) -> u64 {
        let last = value.len().saturating_sub(16);
        let number = value.iter().skip(last);
        let number = number.fold(0u128, |number, byte| number << 8 | u128::from(*byte));
        let mask = u128::MAX >> 128usize.saturating_sub(self.count).min(127);
        (number >> self.offset & mask) as u64
    }

    /// Writes bits into a value of `width` bytes, and its mask.
    fn put(&self, bits: u64, width: usize) -> (Vec<u8>, Vec<u8>) {
        let mask = u128::MAX >> 128usize.saturating_sub(self.count).min(127);
        let bytes = |number: u128| {
            let bytes = (number << self.offset).to_be_bytes();
            bytes
                .get(16usize.saturating_sub(width)..)
                .unwrap_or_default()
                .to_vec()
        };
        (bytes(u128::from(bits) & mask), bytes(mask))
    }
}

/// Translates a list that Open vSwitch has spelled over OpenFlow 1.3.
pub(super) fn to_15(list: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(list.len());
    for item in Actions::trusted(list, 0) {
        if let Some(nested) = item.nested() {
            put_nested(&mut out, &item, &to_15(nested.as_bytes()));
            continue;
        }
        let translated = match item.action {
            Action::SetField(field) => set_field_15(&mut out, &field),
            Action::Nicira {
                subtype: nx::REG_LOAD,
                body,
            } => load_15(&mut out, body),
            Action::Nicira {
                subtype: nx::REG_LOAD2,
                ..
            } => {
                let entry = item.raw.get(EXTENSION_HEADER..).unwrap_or_default();
                let field = OxmField::pull(&mut Reader::new(entry)).ok();
                field.and_then(|field| set_field_15(&mut out, &field))
            }
            Action::Nicira {
                subtype: nx::REG_MOVE,
                body,
            } => copy_15(&mut out, body, item.raw.get(MOVE_HEADER..)),
            Action::Experimenter {
                vendor: ONF_VENDOR,
                body,
            } if u16_at(body, 0) == Some(ONF_COPY_FIELD) => {
                let numbers = body.get(4..).unwrap_or_default();
                copy_15(&mut out, numbers, item.raw.get(ONF_COPY_HEADER..))
            }
            _ => None,
        };
        if translated.is_none() {
            out.put(item.raw);
        }
    }
    out
}

/// Appends OpenFlow 1.5's action that sets a field.
fn set_field_15(out: &mut Vec<u8>, field: &OxmField<'_>) -> Option<()> {
    set_15(out, name_of(field), field.value, field.mask);
    Some(())
}

fn set_15(out: &mut Vec<u8>, name: Name, value: &[u8], mask: Option<&[u8]>) {
    let start = out.len();
    out.put_u16(k::SET_FIELD);
    out.zeros(2);
    put(out, preferred(name), value, mask);
    end(out, start);
}

/// Translates the rest of `nx_action_reg_load`.
fn load_15(out: &mut Vec<u8>, body: &[u8]) -> Option<()> {
    let mut reader = Reader::new(body);
    let numbers = usize::from(reader.u16().ok()?);
    let class = reader.u16().ok()?;
    let [number, width] = reader.array().ok()?;
    let bits = Bits {
        offset: numbers >> 6,
        count: (numbers & 0x3f) + 1,
    };
    // A header with the bit of a mask names the length of both.
    let width = usize::from(width) >> (number & 1);
    if bits.offset + bits.count > 8 * width || width > 16 {
        return None;
    }
    let (value, mask) = bits.put(reader.u64().ok()?, width);
    set_15(out, (class, number >> 1, None), &value, Some(&mask));
    Some(())
}

/// Translates a copy of a field: its numbers, and both fields.
fn copy_15(out: &mut Vec<u8>, numbers: &[u8], fields: Option<&[u8]>) -> Option<()> {
    let numbers = numbers.get(..6)?;
    let mut reader = Reader::new(fields?);
    let (source, target) = (pull_header(&mut reader)?, pull_header(&mut reader)?);
    let start = out.len();
    out.put_u16(k::COPY_FIELD);
    out.zeros(2);
    out.put(numbers);
    out.zeros(COPY_HEADER - 10);
    for (name, width) in [source, target] {
        put_header(out, preferred(name), false, width);
    }
    end(out, start);
    Some(())
}

/// Reads the header of a field; returns the bytes of its value, too.
fn pull_header(reader: &mut Reader<'_>) -> Option<(Name, usize)> {
    let class = reader.u16().ok()?;
    let [field, width] = reader.array().ok()?;
    let vendor = match class {
        class::EXPERIMENTER => Some(reader.u32().ok()?),
        _ => None,
    };
    let width = usize::from(width).checked_sub(vendor.map_or(0, |_| 4))?;
    Some(((class, field >> 1, vendor), width))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::Strictness;
    use crate::action_check::check;

    /// Translates a request to OpenFlow 1.3, and what Open vSwitch tells of it back.
    fn both_ways(action: &[u8]) -> (Vec<u8>, Vec<u8>) {
        check(action, Strictness::Request15).unwrap();
        let old = to_13(action).unwrap();
        check(&old, Strictness::Request).unwrap();
        let back = to_15(&old);
        (old, back)
    }

    #[test]
    fn bits_of_a_field_are_loaded() {
        // set_field:0x120/0x0ff0->reg1
        let set = [0, 25, 0, 16, 0, 1, 3, 8, 0, 0, 1, 0x20, 0, 0, 0x0f, 0xf0];
        let (old, back) = both_ways(&set);
        assert_eq!(old[..12], [0xff, 0xff, 0, 24, 0, 0, 0x23, 0x20, 0, 7, 1, 7]);
        assert_eq!(old[12..], [0, 1, 2, 4, 0, 0, 0, 0, 0, 0, 0, 0x12]);
        assert_eq!(back, set);
    }

    #[test]
    fn scattered_bits_stay_one_action() {
        // set_field:0x1000001/0xff0000ff->ip_src
        let set = [0, 25, 0, 16, 0x80, 0, 0x17, 8, 1, 0, 0, 1, 0xff, 0, 0, 0xff];
        let (old, back) = both_ways(&set);
        assert_eq!(old[8..10], [0, 33]);
        assert_eq!(back, set);
    }

    #[test]
    fn bits_beyond_the_field_stay_in_the_mask() {
        // set_field:0x1000/0x1000->vlan_vid, of a field of 12 bits; set_field:3/0xf->vlan_pcp, of 3
        let vid = [0, 25, 0, 16, 0x80, 0, 0x0d, 4, 0x10, 0, 0x10, 0, 0, 0, 0, 0];
        let priority = [0, 25, 0, 16, 0x80, 0, 0x0f, 2, 3, 0xf, 0, 0, 0, 0, 0, 0];
        let (old, back) = both_ways(&vid);
        assert_eq!((&old[8..10], &back[..]), (&[0, 33][..], &vid[..]));
        let old = to_13(&priority).unwrap();
        assert_eq!(
            (&old[8..10], to_15(&old)),
            (&[0, 33][..], priority.to_vec())
        );
    }

    #[test]
    fn a_mask_of_all_ones_is_none() {
        let set = [0, 25, 0, 16, 0, 1, 3, 8, 0, 0, 0, 7, 0xff, 0xff, 0xff, 0xff];
        let (_, back) = both_ways(&set);
        assert_eq!(back, [0, 25, 0, 16, 0, 1, 2, 4, 0, 0, 0, 7, 0, 0, 0, 0]);
    }

    #[test]
    fn fields_are_copied() {
        // move:NXM_OF_IP_SRC[]->reg0[], as OXM_OF_IPV4_SRC
        let mut copy = vec![0, 28, 0, 24, 0, 32, 0, 0, 0, 0, 0, 0];
        copy.extend([0x80, 0, 0x16, 4, 0, 1, 0, 4, 0, 0, 0, 0]);
        let (old, back) = both_ways(&copy);
        assert_eq!(back, copy);
        assert_eq!(
            old[..10],
            [0xff, 0xff, 0, 32, 0x4f, 0x4e, 0x46, 0, 0x0c, 0x80]
        );
        // Nicira's action is the same over OpenFlow 1.5.
        let mut moved = vec![0xff, 0xff, 0, 24, 0, 0, 0x23, 0x20, 0, 6, 0, 32, 0, 0, 0, 0];
        moved.extend([0, 0, 0x0e, 4, 0, 1, 0, 4]);
        assert_eq!(to_15(&moved), copy);
    }

    #[test]
    fn a_copy_beyond_its_fields_is_refused() {
        let of = |count: u8, from: u8, to: u8, target: u8| {
            let mut copy = vec![0, 28, 0, 24, 0, count, 0, from, 0, to, 0, 0];
            copy.extend([0x80, 0, 0x16, 4, 0x80, 0, target << 1, 4, 0, 0, 0, 0]);
            check(&copy, Strictness::Request15).map_err(|refused| refused.error)
        };
        const IP_DST: u8 = 12;
        assert_eq!(of(32, 0, 0, IP_DST), Ok(()));
        for (count, from, to) in [(0, 0, 0), (33, 0, 0), (8, 25, 0), (8, 0, 25)] {
            let error = of(count, from, to, IP_DST);
            assert_eq!(error, Err(ErrorCode::BAD_ACTION_BAD_SET_LEN));
        }
    }

    #[test]
    fn nested_actions_are_translated() {
        let set = [0, 25, 0, 16, 0, 1, 3, 8, 0, 0, 1, 0x20, 0, 0, 0x0f, 0xf0];
        let mut clone = vec![0xff, 0xff, 0, 32, 0, 0, 0x23, 0x20, 0, 42, 0, 0, 0, 0, 0, 0];
        clone.extend(set);
        let (old, back) = both_ways(&clone);
        assert_eq!((old.len(), old[3], back), (40, 40, clone));
    }

    #[test]
    fn a_meter_inside_ct_is_refused() {
        let meter = [0, 29, 0, 8, 0, 0, 0, 1];
        assert_eq!(to_13(&meter).unwrap(), meter);
        let mut ct = vec![0xff, 0xff, 0, 32, 0, 0, 0x23, 0x20, 0, 35];
        ct.extend([0; 14]);
        ct.extend(meter);
        let refused = to_13(&ct).unwrap_err();
        assert_eq!(refused.error, ErrorCode::BAD_ACTION_BAD_ARGUMENT);
    }

    #[test]
    fn actions_of_earlier_versions_are_unknown() {
        let mut load = vec![0xff, 0xff, 0, 24, 0, 0, 0x23, 0x20, 0, 7, 0, 31];
        load.extend([0, 1, 0, 4, 0, 0, 0, 0, 0, 0, 0, 1]);
        let refused = check(&load, Strictness::Request15).unwrap_err();
        assert_eq!(refused.error, ErrorCode::BAD_ACTION_BAD_EXP_TYPE);
        assert!(check(&load, Strictness::Request).is_ok());
        let copy = [0, 28, 0, 16, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let refused = check(&copy, Strictness::Request).unwrap_err();
        assert_eq!(refused.error, ErrorCode::BAD_ACTION_BAD_TYPE);
    }
}
