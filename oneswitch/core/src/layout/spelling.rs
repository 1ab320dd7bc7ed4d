//! Normalises instructions and buckets, so that a switch's report can be compared with what was written to it.
//!
//! Open vSwitch decodes messages and encodes them again on request (lib/ofp-actions.c): instructions are reordered, empty ones vanish,
//! padding becomes zeros, deprecated actions become set-fields. Most content is reported unchanged. A difference not known here counts as
//! another rule, which is rewritten once; `sync` then accepts it.

use super::translate::set_by;
use super::{spelled_controller, spelled_fields};
use openflow13::openflow10::ends_idle_enqueue;
use openflow13::{ActionList, Bucket, Buckets, Instructions, Match, MeterBand, OxmField};

const GOTO_TABLE: u16 = 1;
const WRITE_METADATA: u16 = 2;
const WRITE_ACTIONS: u16 = 3;
const APPLY_ACTIONS: u16 = 4;
const CLEAR_ACTIONS: u16 = 5;
const METER: u16 = 6;
/// The order of Open vSwitch (ofpacts_put_openflow_instructions() of sorted ofpacts).
const ORDER: [u16; 6] = [
    METER,
    APPLY_ACTIONS,
    CLEAR_ACTIONS,
    WRITE_ACTIONS,
    WRITE_METADATA,
    GOTO_TABLE,
];
const HEADER: usize = 8;
const BUCKET_HEADER: usize = 16;
const SET_FIELD: u16 = 25;
/// Nicira's.
const POP_QUEUE: u16 = 5;

/// Returns the instructions of a rule as a switch reports them.
pub fn spelled_instructions(written: &Instructions, matching: &Match) -> Instructions {
    let ports = first_port_field(matching);
    let spelled = Instructions::from_bytes(instructions(written.as_bytes(), ports));
    spelled.unwrap_or_else(|_| written.clone())
}

/// Returns the buckets of a group as a switch describes them, over OpenFlow 1.0 or a later version. Those of 1.0 keep the setters that
/// later versions say by other actions.
pub fn spelled_buckets(written: &Buckets, is_openflow10: bool) -> Buckets {
    let spelled = |bucket: Bucket<'_>| {
        let mut list = Vec::new();
        for item in items(bucket.actions.as_bytes(), 2) {
            let is_kept = || set_by(item).is_some() || ends_idle_enqueue(item);
            match is_openflow10 && is_kept() {
                true => list.extend(item),
                false => action(item, None, &mut list),
            }
        }
        ActionList::from_bytes(list)
    };
    let lists: Result<Vec<_>, _> = written.iter().map(spelled).collect();
    let Ok(lists) = lists else {
        return written.clone();
    };
    let places = written.iter().zip(&lists);
    Buckets::with_ids(places.map(|(bucket, list)| Bucket {
        actions: list.as_actions(),
        ..bucket
    }))
}

/// Returns OXM's field of the source port of the protocol that a rule matches on.
fn first_port_field(matching: &Match) -> Option<u8> {
    let is_protocol = |f: &OxmField<'_>| matches!((f.class, f.field), (0x8000, 10) | (0, 6));
    let protocol = matching.fields().find(is_protocol)?;
    match protocol.value {
        [6] => Some(13),
        [17] => Some(15),
        [132] => Some(17),
        _ => None,
    }
}

/// Tells whether both have the same effect on a switch.
pub fn same_instructions(one: &Instructions, other: &Instructions) -> bool {
    one == other || instructions(one.as_bytes(), None) == instructions(other.as_bytes(), None)
}

/// Tells whether Open vSwitch takes them for the same (`ofpacts_equal`): it keeps an empty list of actions to write, but does not report it.
pub fn equal_instructions(one: &Instructions, other: &Instructions) -> bool {
    let writes = |list: &Instructions| {
        let mut kinds = items(list.as_bytes(), 2).map(|item| u16_at(item, 0));
        kinds.any(|kind| kind == Some(WRITE_ACTIONS))
    };
    same_instructions(one, other) && writes(one) == writes(other)
}

/// Does the same as [`same_instructions`] for buckets.
pub fn same_buckets(one: &Buckets, other: &Buckets) -> bool {
    one == other || buckets(one.as_bytes()) == buckets(other.as_bytes())
}

/// Does the same as [`same_instructions`] for a meter's bands. A burst of size 0 becomes one of a second.
pub fn same_bands(one: &[u8], other: &[u8]) -> bool {
    let filled = |mut band: MeterBand| {
        if band.burst_size == 0 {
            band.burst_size = band.rate;
        }
        band
    };
    one == other
        || MeterBand::iter(one)
            .map(filled)
            .eq(MeterBand::iter(other).map(filled))
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let two = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes(two.try_into().ok()?))
}

/// Splits a list of items with their length at `at`; an unsplittable rest is one item.
fn items(mut list: &[u8], at: usize) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        if list.is_empty() {
            return None;
        }
        let length = u16_at(list, at).map_or(list.len(), usize::from);
        let fits = length > 0 && length <= list.len();
        let (item, rest) = list.split_at(if fits { length } else { list.len() });
        list = rest;
        Some(item)
    })
}

/// `ports`: the field that sets the source port; the next one sets the destination port.
fn instructions(list: &[u8], ports: Option<u8>) -> Vec<u8> {
    let mut result = Vec::with_capacity(list.len());
    for wanted in ORDER {
        for item in items(list, 2).filter(|item| u16_at(item, 0) == Some(wanted)) {
            instruction(wanted, item, ports, &mut result);
        }
    }
    let unknown = |item: &&[u8]| u16_at(item, 0).is_none_or(|kind| !ORDER.contains(&kind));
    items(list, 2)
        .filter(unknown)
        .for_each(|item| result.extend(item));
    result
}

fn instruction(kind: u16, item: &[u8], ports: Option<u8>, out: &mut Vec<u8>) {
    let body = item.get(HEADER..).unwrap_or_default();
    match kind {
        WRITE_ACTIONS | APPLY_ACTIONS => {
            let actions = actions(body, ports);
            if actions.is_empty() {
                return;
            }
            out.extend(kind.to_be_bytes());
            out.extend((HEADER as u16 + actions.len() as u16).to_be_bytes());
            out.extend([0; 4]);
            out.extend(actions);
        }
        GOTO_TABLE => put_padded(item, 5, out),
        CLEAR_ACTIONS => put_padded(item, 4, out),
        _ => out.extend(item),
    }
}

fn buckets(list: &[u8]) -> Vec<u8> {
    let mut result = Vec::with_capacity(list.len());
    for bucket in items(list, 0) {
        let (header, list) = bucket.split_at(BUCKET_HEADER.min(bucket.len()));
        let actions = actions(list, None);
        result.extend((BUCKET_HEADER as u16 + actions.len() as u16).to_be_bytes());
        result.extend(header.get(2..12).unwrap_or_default());
        result.extend([0; 4]);
        result.extend(actions);
    }
    result
}

fn actions(list: &[u8], ports: Option<u8>) -> Vec<u8> {
    let mut result = Vec::with_capacity(list.len());
    items(list, 2).for_each(|item| action(item, ports, &mut result));
    result
}

/// OpenFlow 1.1's setters of addresses: kind, bytes of the address, field of OXM's basic class.
const SETTERS: [(u16, usize, u8); 4] = [(3, 6, 4), (4, 6, 3), (5, 4, 11), (6, 4, 12)];

fn action(item: &[u8], ports: Option<u8>, out: &mut Vec<u8>) {
    let kind = u16_at(item, 0).unwrap_or_default();
    if let Some((_, size, field)) = SETTERS.iter().find(|(setter, ..)| *setter == kind) {
        if let Some(address) = item.get(4..4 + size) {
            return put_set_field(0x8000, *field, address, out);
        }
    }
    let port = item.get(4..6).zip(ports);
    match (kind, item.get(4), port) {
        // OpenFlow 1.1's setters of the DSCP, of ECN, of a label and its class, and of ports.
        (7, Some(tos), _) => return put_set_field(0x8000, 8, &[tos >> 2], out),
        (8, Some(ecn), _) => return put_set_field(0x8000, 9, &[*ecn], out),
        (13, ..) => {
            let label = item.get(4..8).unwrap_or_default();
            return put_set_field(0x8000, 34, label, out);
        }
        (14, Some(class), _) => return put_set_field(0x8000, 35, &[*class], out),
        (9, _, Some((port, first))) => return put_set_field(0x8000, first, port, out),
        (10, _, Some((port, first))) => return put_set_field(0x8000, first + 1, port, out),
        _ => {}
    }
    match kind {
        0 => put_padded(item, 10, out),                          // OUTPUT
        15 | 23 => put_padded(item, 5, out),                     // SET_MPLS_TTL, SET_NW_TTL
        17 | 19 | 20 | 26 => put_padded(item, 6, out), // PUSH_VLAN, PUSH_MPLS, POP_MPLS, PUSH_PBB
        11 | 12 | 16 | 18 | 24 | 27 => put_padded(item, 4, out), // COPY_TTL_*, DEC_*_TTL, POP_*
        SET_FIELD => set_field(item, out),
        0xffff => experimenter(item, out),
        _ => out.extend(item),
    }
}

/// Copies the first bytes, then zeros.
fn put_padded(item: &[u8], meaning: usize, out: &mut Vec<u8>) {
    let end = out.len() + item.len();
    out.extend(item.get(..meaning).unwrap_or(item));
    out.resize(end, 0);
}

fn set_field(item: &[u8], out: &mut Vec<u8>) {
    let header = (u16_at(item, 4), item.get(6), item.get(7));
    let (Some(class), Some(field), Some(size)) = header else {
        return out.extend(item);
    };
    let Some(value) = item.get(8..8 + usize::from(*size)) else {
        return out.extend(item);
    };
    // NXM spells some fields of OpenFlow in a separate class (Open vSwitch, meta-flow.h).
    let oxm = match (class, field >> 1) {
        (0, 1) => Some(3),   // eth_dst
        (0, 2) => Some(4),   // eth_src
        (0, 7) => Some(11),  // ip_src
        (0, 8) => Some(12),  // ip_dst
        (1, 16) => Some(38), // tun_id
        _ => None,
    };
    match oxm {
        Some(oxm) => put_set_field(0x8000, oxm, value, out),
        None => put_padded(item, 8 + value.len(), out),
    }
}

/// Converts NXAST_SET_TUNNEL and NXAST_SET_TUNNEL64 to a set-field of the tunnel id, and spells fields and `controller` again; also fields in ONF's copies.
fn experimenter(item: &[u8], out: &mut Vec<u8>) {
    const TUN_ID: u8 = 38;
    let subtype = u16_at(item, 8);
    let short = item.get(12..16).filter(|_| subtype == Some(2));
    let long = item.get(16..24).filter(|_| subtype == Some(9));
    match (item.get(4..8), short, long) {
        (Some([0, 0, 0x23, 0x20]), Some(id), _) => {
            put_set_field(0x8000, TUN_ID, &[&[0; 4], id].concat(), out)
        }
        (Some([0, 0, 0x23, 0x20]), ..) if subtype == Some(POP_QUEUE) => put_padded(item, 10, out),
        (Some([0, 0, 0x23, 0x20]), _, Some(id)) => put_set_field(0x8000, TUN_ID, id, out),
        (Some([0, 0, 0x23, 0x20]), _, _) => {
            match spelled_fields::spelled(item).or_else(|| spelled_controller::spelled(item)) {
                Some(spelled) => out.extend(spelled),
                None => out.extend(item),
            }
        }
        (Some([0x4f, 0x4e, 0x46, 0]), _, _) => match spelled_fields::spelled_copy(item) {
            Some(spelled) => out.extend(spelled),
            None => out.extend(item),
        },
        _ => out.extend(item),
    }
}

fn put_set_field(class: u16, field: u8, value: &[u8], out: &mut Vec<u8>) {
    let length = (8 + value.len()).next_multiple_of(8);
    let end = out.len() + length;
    out.extend(SET_FIELD.to_be_bytes());
    out.extend((length as u16).to_be_bytes());
    out.extend(class.to_be_bytes());
    out.extend([field << 1, value.len() as u8]);
    out.extend(value);
    out.resize(end, 0);
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{
        equal_instructions, instructions, same_bands, same_buckets, same_instructions,
        spelled_buckets,
    };
    use openflow13::Instructions;
    use openflow13::{group_no, port_no, Buckets};

    fn bytes(hex: &str) -> Vec<u8> {
        let digits = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        (0..hex.len()).step_by(2).map(digits).collect()
    }

    /// Texts written to Open vSwitch 3.1, and its reports of them.
    const REPORTED: [(&str, &str, &str); 21] = [
        (
            "fields of a copy",
            "0004002800000000ffff00204f4e46000c8000000030000000000000000004060000020600000000",
            "0004002800000000ffff00204f4e46000c8000000030000000000000800008068000060600000000",
        ),
        (
            "field of a load",
            "0004002000000000ffff0018000023200007021780002e0400000000000a0000",
            "0004002000000000ffff001800002320000702170000220400000000000a0000",
        ),
        (
            "a default property of controller",
            "0004003000000000ffff002800002320002500000000000000010006000000000003000c757365726461746100000000",
            "0004002800000000ffff00200000232000250000000000000003000c757365726461746100000000",
        ),
        (
            "another property of controller",
            "0004002000000000ffff00180000232000250000000000000001000600050000",
            "0004002000000000ffff00180000232000250000000000000001000800050000",
        ),
        (
            "fields of learn",
            "0004006800000000ffff00600000232000100258000001f6fffffffffffffffe00020200000000000030800008060000800006060000001080000a02000080000a020000284000000000000000028000040800000830800006060000800008060000000000000000",
            "0004006800000000ffff00600000232000100258000001f6fffffffffffffffe000202000000000000300000040600000000020600000010000006020000000006020000284000000000000000028000040800000830000002060000000004060000000000000000",
        ),
        (
            "OpenFlow 1.1's set_nw_tos",
            "00040010000000000007000828000000",
            "000400180000000000190010800010010a00000000000000",
        ),
        (
            "padding of an output",
            "000400180000000000000010000000020000616263646566",
            "000400180000000000000010000000020000000000000000",
        ),
        (
            "order",
            "00010008050000000002001800000000000000000000000100000000000000030003001800000000000000100000000300090000000000000005000800000000000400180000000000000010000000020000000000000000",
            "00040018000000000000001000000002000000000000000000050008000000000003001800000000000000100000000300090000000000000002001800000000000000000000000100000000000000030001000805000000",
        ),
        ("nothing to apply", "0004000800000000", ""),
        ("nothing to write", "0003000800000000", ""),
        ("padding of a goto", "0001000804010203", "0001000804000000"),
        (
            "OpenFlow 1.1's set_dl_src",
            "000400180000000000030010010203040506000000000000",
            "000400180000000000190010800008060102030405060000",
        ),
        (
            "padding of a push",
            "000400300000000000110008810012340019001080000c02100700000000000000000010000000010000000000000000",
            "000400300000000000110008810000000019001080000c02100700000000000000000010000000010000000000000000",
        ),
        (
            "NXM's class",
            "000400180000000000190010000002060102030405060000",
            "000400180000000000190010800006060102030405060000",
        ),
        (
            "meter after actions",
            "0004001800000000000000100000000200000000000000000006000800000001",
            "0006000800000001000400180000000000000010000000020000000000000000",
        ),
        (
            "set_tunnel64",
            "0004002000000000ffff00180000232000090000000000000000000000000003",
            "00040018000000000019001080004c080000000000000003",
        ),
        (
            "set_tunnel",
            "0004001800000000ffff0010000023200002000000000005",
            "00040018000000000019001080004c080000000000000005",
        ),
        (
            "padding of a TTL",
            "0004001000000000001700080578797a",
            "00040010000000000017000805000000",
        ),
        (
            "padding of a decrement",
            "00040010000000000018000861626364",
            "00040010000000000018000800000000",
        ),
        (
            "padding of a pop",
            "00040010000000000014000808000009",
            "00040010000000000014000808000000",
        ),
        (
            "padding of a pop of a tag",
            "0004002000000000001200080000000700000010000000010000000000000000",
            "0004002000000000001200080000000000000010000000010000000000000000",
        ),
    ];

    #[test]
    fn what_open_vswitch_reports_equals_what_was_written() {
        for (what, written, reported) in REPORTED {
            let (written, reported) = (bytes(written), bytes(reported));
            assert_eq!(
                instructions(&written, None),
                instructions(&reported, None),
                "{what}"
            );
            assert_eq!(
                instructions(&reported, None),
                reported,
                "{what}: a fixed point"
            );
        }
    }

    #[test]
    fn bursts_that_open_vswitch_fills_in_are_the_same() {
        let band = |burst: &str| bytes(&format!("00010010000003e8{burst}00000000"));
        assert!(same_bands(&band("00000000"), &band("000003e8")));
        assert!(!same_bands(&band("00000000"), &band("00000064")));
        assert!(!same_bands(&band("00000064"), &band("000003e8")));
    }

    #[test]
    fn only_openflow10_tells_an_enqueue_from_three_actions() {
        let pop = |padding: &[u8; 6]| {
            let head = [0xff, 0xff, 0, 16, 0, 0, 0x23, 0x20, 0, 5];
            let list = openflow13::ActionList::from_bytes([&head[..], padding].concat()).unwrap();
            Buckets::build([(0, port_no::ANY, group_no::ANY, &list)])
        };
        let (marked, plain) = (pop(b"set/10"), pop(&[0; 6]));
        assert_eq!(spelled_buckets(&marked, false), plain);
        assert_eq!(spelled_buckets(&marked, true), marked);
        assert_eq!(spelled_buckets(&pop(&[1; 6]), true), plain);
    }

    #[test]
    fn padding_of_buckets_is_nothing() {
        let bucket = |pad: &str, port: &str| {
            let action = format!("000000100000000{port}004d{pad}0000");
            let bytes = bytes(&format!("00200005ffffffffffffffff{pad}{action}"));
            openflow13::Buckets::from_bytes(bytes).unwrap()
        };
        assert!(same_buckets(
            &bucket("78797a77", "2"),
            &bucket("00000000", "2")
        ));
        assert!(!same_buckets(
            &bucket("00000000", "3"),
            &bucket("00000000", "2")
        ));
    }

    #[test]
    fn an_empty_list_to_write_is_kept_but_not_reported() {
        let of = |hex: &str| Instructions::from_bytes(bytes(hex)).unwrap();
        let goto = "0001000805000000";
        let (with, without) = (of(&format!("0003000800000000{goto}")), of(goto));
        assert!(same_instructions(&with, &without));
        assert!(!equal_instructions(&with, &without));
        let applied = of(&format!("0004000800000000{goto}"));
        assert!(equal_instructions(&applied, &without));
    }

    #[test]
    fn what_differs_stays_different() {
        for (one, other) in [
            ("0001000804000000", "0001000805000000"),
            ("0005000800000000", ""),
            (
                "000400180000000000000010000000020000000000000000",
                "000400180000000000000010000000030000000000000000",
            ),
            (
                "000400180000000000000010000000020009000000000000",
                "000400180000000000000010000000020000000000000000",
            ),
        ] {
            assert_ne!(
                instructions(&bytes(one), None),
                instructions(&bytes(other), None)
            );
        }
    }
}
