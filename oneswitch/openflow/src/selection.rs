//! Netronome's property of a select group: how it selects a bucket for each packet
//! (lib/ofp-group.c). Only OpenFlow 1.5 has it.

use crate::error::{ErrorCode, Refusal};
use crate::field::{class, lookup, Field, Kind, NSH_VENDOR};
use crate::openflow15::{preferred, Name};
use crate::oxm::OxmField;
use crate::properties::{bad_content, EXPERIMENTER};
use crate::wire::{padded, patch_length, u16_at, Put, Reader};
use crate::{NX_VENDOR, ONF_VENDOR};

/// Netronome, and a number that Open vSwitch once took for it.
pub(crate) const NETRONOME: [u32; 2] = [0x154d, 0x1540];
/// `NTRT_SELECTION_METHOD`.
pub(crate) const METHOD: u32 = 1;

/// Bytes of a property's header.
const HEADER: usize = 4;
/// Bytes of `ntr_group_prop_selection_method` behind the header, and of the name in it.
const FIXED: usize = 36;
const NAME: usize = 16;
/// Where the name is.
const NAME_AT: usize = 12;

const BAD_VALUE: ErrorCode = ErrorCode::TABLE_FEATURES_FAILED_BAD_ARGUMENT;

/// A way to select buckets: the property as Open vSwitch spells it, with padding.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Selection(Box<[u8]>);

impl Selection {
    /// Reads the property behind its header (`parse_group_prop_ntr_selection_method`).
    pub(crate) fn parse(content: &[u8]) -> Result<Self, Refusal> {
        let refuse = |detail: &'static str| Err(Refusal::new(BAD_VALUE, detail));
        let Some((fixed, fields)) = content.split_at_checked(FIXED) else {
            return Err(bad_content(EXPERIMENTER, content));
        };
        let name = fixed.get(NAME_AT..NAME_AT + NAME).unwrap_or_default();
        let length = name.iter().position(|byte| *byte == 0);
        let method = name.get(..length.unwrap_or_default()).unwrap_or_default();
        match method {
            b"hash" => {}
            b"dp_hash" if fields.is_empty() => {}
            b"dp_hash" => return refuse("dp_hash with fields"),
            _ => return refuse("unknown way to select buckets"),
        }
        let param = fixed.get(NAME_AT + NAME..).unwrap_or_default();
        Ok(Self::build(method, param, &fields_of(fields)?))
    }

    /// Returns the default hash.
    pub fn hash() -> Self {
        Self::build(b"hash", &[0; 8], &[])
    }

    fn build(method: &[u8], param: &[u8], fields: &[(Name, &[u8])]) -> Self {
        let [netronome, _] = NETRONOME;
        let mut out = Vec::with_capacity(HEADER + FIXED);
        out.put_u16(EXPERIMENTER);
        out.zeros(2);
        out.put_u32(netronome);
        out.put_u32(METHOD);
        out.zeros(4);
        out.put(method);
        out.zeros(NAME - method.len());
        out.put(param);
        fields
            .iter()
            .for_each(|(name, value)| put_field(&mut out, *name, value));
        finish(&mut out);
        Self(out.into_boxed_slice())
    }

    /// Reads the property, with its header.
    pub(crate) fn pull(reader: &mut Reader<'_>) -> Result<Self, Refusal> {
        let length = u16_at(reader.peek(), 2).map_or(0, usize::from);
        let whole = reader.bytes(padded(length))?;
        Self::parse(whole.get(HEADER..length).unwrap_or_default())
    }

    /// Returns what is behind the property.
    pub(crate) fn behind(bytes: &[u8]) -> &[u8] {
        let length = u16_at(bytes, 2).map_or(0, usize::from);
        bytes.get(padded(length)..).unwrap_or_default()
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the property with other names of its fields.
    pub(crate) fn renamed(&self, name_of: impl Fn(Name) -> Name) -> Vec<u8> {
        let length = u16_at(&self.0, 2).map_or(0, usize::from);
        let fixed = self.0.get(..HEADER + FIXED).unwrap_or_default();
        let mut out = fixed.to_vec();
        let fields = fields_of(self.0.get(HEADER + FIXED..length).unwrap_or_default());
        for (name, value) in fields.unwrap_or_default() {
            put_field(&mut out, name_of(name), value);
        }
        finish(&mut out);
        out
    }
}

fn put_field(out: &mut Vec<u8>, (class, field, vendor): Name, value: &[u8]) {
    let length = value.len() + vendor.map_or(0, |_| 4);
    out.put_u16(class);
    out.put(&[field << 1, u8::try_from(length).unwrap_or(u8::MAX)]);
    if let Some(vendor) = vendor {
        out.put_u32(vendor);
    }
    out.put(value);
}

/// Sets the length of a property, and pads it.
fn finish(out: &mut Vec<u8>) {
    patch_length(out, 0, 2);
    out.zeros(padded(out.len()) - out.len());
}

/// Reads the fields of a hash, with the bits that count, and sorts them
/// (`oxm_pull_field_array`, `oxm_put_field_array`).
fn fields_of(list: &[u8]) -> Result<Vec<(Name, &[u8])>, Refusal> {
    let refuse = |error, field: &OxmField<'_>| {
        let detail = format!("field {field} of a hash");
        Err(Refusal::new(error, detail))
    };
    let mut reader = Reader::new(list);
    let mut fields: Vec<(Name, &[u8])> = Vec::new();
    while !reader.is_empty() {
        let field = OxmField::pull(&mut reader)?;
        let known = lookup(field.class, field.field, field.experimenter);
        let fits = |known: &Field| {
            known.kind == Kind::TunMetadata || usize::from(known.width) == field.value.len()
        };
        let Some(known) = known.filter(|known| field.has_mask || fits(known)) else {
            return refuse(ErrorCode::BAD_MATCH_BAD_FIELD, &field);
        };
        if field.has_mask {
            return refuse(ErrorCode::BAD_MATCH_BAD_MASK, &field);
        }
        let name = preferred((field.class, field.field, field.experimenter));
        if fields.iter().any(|(other, _)| *other == name) {
            return refuse(ErrorCode::BAD_MATCH_DUP_FIELD, &field);
        }
        let all = |byte| field.value.iter().all(|each| *each == byte);
        if !known.maskable && !all(0) && !all(0xff) {
            return refuse(ErrorCode::BAD_MATCH_BAD_MASK, &field);
        }
        fields.push((name, field.value));
    }
    fields.sort_by_key(|(name, _)| place_of(*name));
    Ok(fields)
}

/// Fields of one class, from the first number to the last.
type Range = (u16, Option<u32>, u8, u8);

const NX: Option<u32> = Some(NX_VENDOR);
const BASIC: u16 = class::OPENFLOW_BASIC;
const NICIRA: u16 = class::NXM_1;

/// All fields in Open vSwitch's order (`enum mf_field_id`).
const ORDER: &[Range] = &[
    (class::EXPERIMENTER, NX, 0, 0), // dp_hash
    (NICIRA, None, 35, 36),
    (BASIC, None, 44, 44), // packet_type
    (NICIRA, None, 37, 37),
    (BASIC, None, 38, 38), // tunnel_id
    (NICIRA, None, 31, 32),
    (NICIRA, None, 109, 110),
    (NICIRA, None, 104, 104),
    (NICIRA, None, 38, 39), // tun_gbp_id
    (class::EXPERIMENTER, NX, 11, 16),
    (NICIRA, None, 40, 103), // tun_metadata
    (BASIC, None, 2, 2),
    (class::NXM_0, None, 0, 0), // in_port
    (BASIC, None, 0, 0),
    (BASIC, None, 43, 43),
    (class::EXPERIMENTER, Some(ONF_VENDOR), 43, 43),
    (NICIRA, None, 33, 33), // pkt_mark
    (NICIRA, None, 105, 108),
    (NICIRA, None, 119, 125),
    (NICIRA, None, 0, 15), // registers
    (class::PACKET_REGS, None, 0, 7),
    (NICIRA, None, 111, 114),
    (BASIC, None, 4, 4), // eth_src
    (BASIC, None, 3, 3),
    (BASIC, None, 5, 5),
    (class::NXM_0, None, 4, 4), // vlan_tci
    (BASIC, None, 6, 7),
    (BASIC, None, 34, 36), // mpls_label
    (NICIRA, None, 30, 30),
    (BASIC, None, 11, 12), // ipv4_src
    (BASIC, None, 26, 28),
    (BASIC, None, 10, 10),
    (class::NXM_0, None, 5, 5), // ip_dscp
    (BASIC, None, 8, 9),
    (NICIRA, None, 29, 29),
    (NICIRA, None, 26, 26),
    (BASIC, None, 21, 25), // arp_op
    (BASIC, None, 13, 14), // tcp_src
    (BASIC, None, 42, 42),
    (BASIC, None, 15, 20), // udp_src
    (BASIC, None, 29, 33), // icmpv6_type
    (class::ERICSSON, None, 1, 2),
    (class::EXPERIMENTER, Some(NSH_VENDOR), 1, 1),
    (class::EXPERIMENTER, Some(NSH_VENDOR), 10, 10),
    (class::EXPERIMENTER, Some(NSH_VENDOR), 2, 9),
];

fn place_of(name: Name) -> (usize, u8) {
    let (class, number, vendor) = name;
    let holds = |(of, by, first, last): &Range| {
        (*of, *by) == (class, vendor) && (*first..=*last).contains(&number)
    };
    let place = ORDER.iter().position(holds);
    (place.unwrap_or(ORDER.len()), number)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what is behind the header of a property.
    fn content(method: &[u8], fields: &[u8]) -> Vec<u8> {
        let mut name = method.to_vec();
        name.resize(NAME, 0);
        let fixed = [0, 0, 0x15, 0x4d, 0, 0, 0, 1, 0, 0, 0, 0];
        [&fixed[..], &name, &7u64.to_be_bytes(), fields].concat()
    }

    /// A field of `OXM_OF_*`, with all bits.
    fn field(number: u8, width: u8) -> Vec<u8> {
        let mut out = vec![0x80, 0, number << 1, width];
        out.resize(out.len() + usize::from(width), 0xff);
        out
    }

    fn error(content: &[u8]) -> ErrorCode {
        Selection::parse(content).unwrap_err().error
    }

    #[test]
    fn fields_get_the_names_and_the_order_of_open_vswitch() {
        let nxm_eth_src = [&[0, 0, 2 << 1, 6][..], &[0xff; 6]].concat();
        let written = [field(13, 2), field(11, 4), nxm_eth_src].concat();
        let read = Selection::parse(&content(b"hash", &written)).unwrap();
        let sorted = [field(4, 6), field(11, 4), field(13, 2)].concat();
        let sorted = content(b"hash", &sorted);
        assert_eq!(read.as_bytes()[..HEADER], [0xff, 0xff, 0, 64]);
        assert_eq!(read.as_bytes()[HEADER..], sorted);
    }

    #[test]
    fn what_was_written_is_read_again() {
        let read = Selection::parse(&content(b"hash", &field(11, 4))).unwrap();
        let followed = [read.as_bytes(), &[9]].concat();
        let mut reader = Reader::new(&followed);
        assert_eq!(Selection::pull(&mut reader), Ok(read));
        assert_eq!(reader.rest(), [9]);
        assert_eq!(Selection::behind(&followed), [9]);
    }

    #[test]
    fn errors_are_those_of_open_vswitch() {
        let bad_length = ErrorCode::TABLE_FEATURES_FAILED_BAD_LEN;
        assert_eq!(error(&content(b"hash", &[])[..FIXED - 1]), bad_length);
        assert_eq!(error(&content(b"", &[])), BAD_VALUE);
        assert_eq!(error(&content(b"other", &[])), BAD_VALUE);
        assert_eq!(error(&content(&[b'a'; NAME], &[])), BAD_VALUE);
        assert_eq!(error(&content(b"dp_hash", &field(11, 4))), BAD_VALUE);
        let of = |fields: &[u8]| error(&content(b"hash", fields));
        assert_eq!(of(&field(77, 4)), ErrorCode::BAD_MATCH_BAD_FIELD);
        assert_eq!(of(&field(11, 2)), ErrorCode::BAD_MATCH_BAD_FIELD);
        let twice = [field(11, 4), field(11, 4)].concat();
        assert_eq!(of(&twice), ErrorCode::BAD_MATCH_DUP_FIELD);
        let masked = [0x80, 0, 11 << 1 | 1, 8, 1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(of(&masked), ErrorCode::BAD_MATCH_BAD_MASK);
        let partly = [0x80, 0, 10 << 1, 1, 3];
        assert_eq!(of(&partly), ErrorCode::BAD_MATCH_BAD_MASK);
    }
}
