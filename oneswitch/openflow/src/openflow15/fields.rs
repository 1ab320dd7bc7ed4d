//! Fields of matches and actions: OpenFlow 1.5 has standard numbers for some that
//! OpenFlow 1.3 lacks, and registers in pairs.

use crate::field::class;
use crate::oxm::{Match, OxmField};
use crate::wire::Put;
use crate::ONF_VENDOR;

/// The name of a field: class, number, and experimenter.
pub(crate) type Name = (u16, u8, Option<u32>);

pub(super) fn name_of(field: &OxmField<'_>) -> Name {
    (field.class, field.field, field.experimenter)
}

/// Returns the name that Open vSwitch gives a field over OpenFlow 1.5
/// (`mf_oxm_header`).
pub(crate) fn preferred(name: Name) -> Name {
    let basic = match name {
        (class::NXM_0, field, _) => from_nxm_0(field),
        (class::NXM_1, field, _) => from_nxm_1(field),
        (class::EXPERIMENTER, field @ 42..=43, Some(ONF_VENDOR)) => Some(field),
        _ => None,
    };
    basic.map_or(name, |field| (class::OPENFLOW_BASIC, field, None))
}

/// Returns the field of `OXM_OF_*` that one of `NXM_OF_*` is.
fn from_nxm_0(field: u8) -> Option<u8> {
    Some(match field {
        1..=3 => field + 2,
        6..=12 => field + 4,
        13..=17 => field + 6,
        _ => return None,
    })
}

/// Does the same for `NXM_NX_*`.
fn from_nxm_1(field: u8) -> Option<u8> {
    Some(match field {
        16 => 38,
        17..=20 => field + 7,
        21..=25 => field + 8,
        27 => 28,
        28 => 9,
        34 => 42,
        _ => return None,
    })
}

/// Appends the header of a field whose value and mask have `width` bytes together.
pub(super) fn put_header(out: &mut Vec<u8>, name: Name, has_mask: bool, width: usize) {
    let (class, field, vendor) = name;
    let width = width + vendor.map_or(0, |_| 4);
    out.put_u16(class);
    out.put_u8(field << 1 | u8::from(has_mask));
    out.put_u8(u8::try_from(width).unwrap_or(u8::MAX));
    if let Some(vendor) = vendor {
        out.put_u32(vendor);
    }
}

/// Appends a field; without its mask if that is all ones.
pub(super) fn put(out: &mut Vec<u8>, name: Name, value: &[u8], mask: Option<&[u8]>) {
    let mask = mask.filter(|mask| mask.iter().any(|byte| *byte != 0xff));
    let width = value.len() + mask.map_or(0, <[u8]>::len);
    put_header(out, name, mask.is_some(), width);
    out.put(value);
    out.put(mask.unwrap_or_default());
}

/// Translates a match that Open vSwitch has spelled over OpenFlow 1.3.
pub(crate) fn matching(matching: &Match) -> Match {
    let mut out = Vec::with_capacity(matching.as_oxm().len() + 16);
    let mut pairs = Pairs::of(matching);
    for field in matching.fields() {
        match register_of(&field) {
            Some(_) => pairs.put(&mut out),
            None => put(
                &mut out,
                preferred(name_of(&field)),
                field.value,
                field.mask,
            ),
        }
    }
    Match(out.into())
}

/// Returns the number of a register of 32 bits.
fn register_of(field: &OxmField<'_>) -> Option<usize> {
    let is_register = field.class == class::NXM_1 && field.field < 16;
    is_register.then(|| usize::from(field.field))
}

/// The registers of a match in pairs, each with its value and mask.
#[derive(Default)]
struct Pairs([(u64, u64); 8]);

impl Pairs {
    fn of(matching: &Match) -> Self {
        let mut pairs = Self::default();
        for field in matching.fields() {
            let Some(register) = register_of(&field) else {
                continue;
            };
            let shift = if register % 2 == 0 { 32 } else { 0 };
            let number = |bytes: &[u8]| {
                let four = bytes.first_chunk::<4>().copied().unwrap_or_default();
                u64::from(u32::from_be_bytes(four)) << shift
            };
            if let Some((value, mask)) = pairs.0.get_mut(register / 2) {
                *value |= number(field.value);
                *mask |= field.mask.map_or(0xffff_ffff << shift, number);
            }
        }
        pairs
    }

    /// Appends them at the place of the first register, and nothing later.
    fn put(&mut self, out: &mut Vec<u8>) {
        for (number, (value, mask)) in (0..).zip(std::mem::take(self).0) {
            if mask != 0 {
                let name = (class::PACKET_REGS, number, None);
                let (value, mask) = (value.to_be_bytes(), mask.to_be_bytes());
                put(out, name, &value, Some(&mask));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::lookup;

    #[test]
    fn preferred_names_are_of_the_same_fields() {
        let names = (0..128).flat_map(|field| {
            [
                (class::NXM_0, field, None),
                (class::NXM_1, field, None),
                (class::EXPERIMENTER, field, Some(ONF_VENDOR)),
            ]
        });
        let place = |(class, field, vendor): Name| {
            let known = lookup(class, field, vendor)?;
            Some((known.word, known.shift, known.width, known.kind))
        };
        for name in names.filter(|name| place(*name).is_some()) {
            assert_eq!(place(name), place(preferred(name)), "{name:?}");
        }
    }

    #[test]
    fn registers_are_matched_in_pairs() {
        let registers = [
            [0, 1, 2, 4].as_slice(),
            &[0, 0, 0, 1],
            &[0, 1, 9, 8],
            &[0, 0, 0, 2, 0, 0, 0, 3],
            &[0, 1, 10, 4],
            &[0, 0, 0, 5],
        ];
        let translated = matching(&Match::from_oxm(registers.concat()).unwrap());
        let pairs = [
            [0x80, 1, 1, 16].as_slice(),
            &[0, 0, 0, 0, 0, 0, 0, 1],
            &[0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff],
            &[0x80, 1, 5, 16],
            &[0, 0, 0, 2, 0, 0, 0, 5],
            &[0, 0, 0, 3, 0xff, 0xff, 0xff, 0xff],
        ];
        assert_eq!(translated.as_oxm(), pairs.concat());
    }
}
