//! Rule keys against an oracle that does not know their layout: packets of a
//! few bits, on which every TLV is a predicate. A match is then the set of its
//! packets; equality, `covers` and `overlaps` are those of sets.
#![allow(clippy::unwrap_used, clippy::panic)]

use openflow13::Match;
use proptest::prelude::*;

/// The bits of a packet that the TLVs below examine.
#[derive(Clone, Copy, Default)]
struct Packet {
    ethernet: bool,
    in_port: u32,
    tci: u16,
    nw_src: u32,
    tos: u8,
    nw_proto: u8,
    tp_src: u16,
    regs: [u32; 4],
}

/// A TLV: its bytes, whether it examines an Ethernet frame, and its predicate
/// on packets.
#[derive(Clone)]
struct Tlv {
    bytes: Vec<u8>,
    layered: bool,
    test: std::rc::Rc<dyn Fn(&Packet) -> bool>,
}

impl std::fmt::Debug for Tlv {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:02x?}", self.bytes)
    }
}

/// `mask`: `None` writes no mask, `Some` always one.
fn tlv(
    class: u16,
    field: u8,
    width: usize,
    value: u128,
    mask: Option<u128>,
    layered: bool,
    get: impl Fn(&Packet) -> u128 + 'static,
) -> Tlv {
    let tail = |number: u128| number.to_be_bytes()[16 - width..].to_vec();
    let all = u128::MAX >> (128 - 8 * width);
    let value = value & mask.unwrap_or(all);
    let mut bytes = class.to_be_bytes().to_vec();
    bytes.push(field << 1 | u8::from(mask.is_some()));
    bytes.push((width * if mask.is_some() { 2 } else { 1 }) as u8);
    bytes.extend(tail(value));
    bytes.extend(mask.map(tail).unwrap_or_default());
    let mask = mask.unwrap_or(all);
    Tlv {
        bytes,
        layered,
        test: std::rc::Rc::new(move |packet| get(packet) & mask == value),
    }
}

/// No mask, an empty one, a full one, or one of the bits in `bits`.
fn mask(bits: u128, width: usize) -> impl Strategy<Value = Option<u128>> {
    let all = u128::MAX >> (128 - 8 * width);
    prop_oneof![
        Just(None),
        Just(Some(0)),
        Just(Some(all)),
        any::<u128>().prop_map(move |random| Some(random & bits)),
    ]
}

type Tlvs = BoxedStrategy<Vec<Tlv>>;

/// Spellings of one field: each is (class, field, width).
fn spellings(
    names: &'static [(u16, u8, usize)],
    bits: u128,
    layered: bool,
    maskable: bool,
    get: fn(&Packet) -> u128,
) -> Tlvs {
    (0..names.len(), any::<u128>())
        .prop_flat_map(move |(index, value)| {
            let (class, field, width) = names[index];
            let mask = if maskable {
                mask(bits, width).boxed()
            } else {
                Just(None).boxed()
            };
            mask.prop_map(move |mask| {
                vec![tlv(class, field, width, value & bits, mask, layered, get)]
            })
        })
        .boxed()
}

const OXM: u16 = 0x8000;
const NXM_OF: u16 = 0;
const NXM_NX: u16 = 1;

/// Bits that partial masks use; the packets also vary in `ESCAPE` bits, which
/// only full masks examine.
const TCI_BITS: u128 = 0x3001;
const NW_SRC_BITS: u128 = 3;
const TP_SRC_BITS: u128 = 3;
const REG_BIT: u128 = 1;

fn in_port() -> Tlvs {
    (1u16..3, any::<bool>())
        .prop_map(|(port, nxm)| {
            let get = |packet: &Packet| u128::from(packet.in_port);
            vec![match nxm {
                true => tlv(NXM_OF, 0, 2, u128::from(port), None, false, get),
                false => tlv(OXM, 0, 4, u128::from(port), None, false, get),
            }]
        })
        .boxed()
}

fn local_port() -> Tlvs {
    any::<bool>()
        .prop_map(|nxm| {
            let mut local = tlv(OXM, 0, 4, 0xffff_fffe, None, false, |p| {
                u128::from(p.in_port)
            });
            if nxm {
                local.bytes = vec![0, 0, 0, 2, 0xff, 0xfe];
            }
            vec![local]
        })
        .boxed()
}

fn tci_nxm() -> Tlvs {
    spellings(&[(NXM_OF, 4, 2)], TCI_BITS, true, true, |p| {
        u128::from(p.tci)
    })
}

fn vid() -> Tlvs {
    spellings(&[(OXM, 6, 2)], 0x1001, true, true, |p| {
        u128::from(p.tci & 0x1fff)
    })
}

/// A priority, with the VLAN id that is its prerequisite.
fn vid_and_pcp() -> Tlvs {
    (0u128..2, any::<bool>(), 0u128..2)
        .prop_map(|(vid, masked, pcp)| {
            let mask = masked.then_some(0x1001);
            let vid = tlv(OXM, 6, 2, vid | 0x1000, mask, true, |p| {
                u128::from(p.tci & 0x1fff)
            });
            let pcp = tlv(OXM, 7, 1, pcp, None, true, |p| {
                // No packet has a priority without a tag.
                if p.tci & 0x1000 == 0 {
                    0xff
                } else {
                    u128::from(p.tci >> 13)
                }
            });
            vec![vid, pcp]
        })
        .boxed()
}

fn nw_src() -> Tlvs {
    spellings(
        &[(OXM, 11, 4), (OXM, 22, 4), (NXM_OF, 7, 4), (NXM_OF, 16, 4)],
        NW_SRC_BITS,
        true,
        true,
        |p| u128::from(p.nw_src),
    )
}

fn dscp() -> Tlvs {
    (0u128..2, any::<bool>())
        .prop_map(|(dscp, nxm)| {
            vec![match nxm {
                true => tlv(NXM_OF, 5, 1, dscp << 2, None, true, |p| {
                    u128::from(p.tos & 0xfc)
                }),
                false => tlv(OXM, 8, 1, dscp, None, true, |p| u128::from(p.tos >> 2)),
            }]
        })
        .boxed()
}

fn ecn() -> Tlvs {
    spellings(&[(OXM, 9, 1), (NXM_NX, 28, 1)], 1, true, false, |p| {
        u128::from(p.tos & 3)
    })
}

fn dscp_and_ecn() -> Tlvs {
    (dscp(), ecn()).prop_map(|(a, b)| [a, b].concat()).boxed()
}

fn nw_proto() -> Tlvs {
    spellings(
        &[(OXM, 10, 1), (OXM, 21, 2), (NXM_OF, 6, 1), (NXM_OF, 15, 2)],
        1,
        true,
        false,
        |p| u128::from(p.nw_proto),
    )
}

fn tp_src() -> Tlvs {
    spellings(
        &[
            (OXM, 13, 2),
            (OXM, 15, 2),
            (OXM, 17, 2),
            (NXM_OF, 9, 2),
            (NXM_OF, 11, 2),
        ],
        TP_SRC_BITS,
        true,
        true,
        |p| u128::from(p.tp_src),
    )
}

fn icmp_type() -> Tlvs {
    spellings(
        &[(OXM, 19, 1), (OXM, 29, 1), (NXM_OF, 13, 1), (NXM_NX, 21, 1)],
        1,
        true,
        false,
        |p| {
            // An ICMP packet's type is all of the field.
            if p.tp_src > 0xff {
                0xff
            } else {
                u128::from(p.tp_src)
            }
        },
    )
}

fn reg(index: u8) -> Tlvs {
    let names: &[(u16, u8, usize)] = if index == 0 {
        &[(NXM_NX, 0, 4)]
    } else {
        &[(NXM_NX, 1, 4)]
    };
    let get: fn(&Packet) -> u128 = if index == 0 {
        |p| u128::from(p.regs[0])
    } else {
        |p| u128::from(p.regs[1])
    };
    spellings(names, REG_BIT, false, true, get)
}

fn both_regs() -> Tlvs {
    (reg(0), reg(1)).prop_map(|(a, b)| [a, b].concat()).boxed()
}

fn xreg() -> Tlvs {
    spellings(
        &[(0x8001, 0, 8)],
        REG_BIT << 32 | REG_BIT,
        false,
        true,
        |p| u128::from(p.regs[0]) << 32 | u128::from(p.regs[1]),
    )
}

fn xxreg() -> Tlvs {
    spellings(
        &[(NXM_NX, 111, 16)],
        REG_BIT << 96 | REG_BIT << 64,
        false,
        true,
        |p| p.regs.iter().fold(0, |n, &reg| n << 32 | u128::from(reg)),
    )
}

/// Groups of fields that share bits, each with the packets' values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    InPort,
    Tci,
    NwSrc,
    Tos,
    NwProto,
    TpSrc,
    Regs,
}

impl Group {
    const ALL: [Group; 7] = [
        Group::InPort,
        Group::Tci,
        Group::NwSrc,
        Group::Tos,
        Group::NwProto,
        Group::TpSrc,
        Group::Regs,
    ];

    fn tlvs(self) -> Tlvs {
        let nothing = || Just(Vec::new()).boxed();
        match self {
            Group::InPort => prop_oneof![nothing(), in_port(), local_port()].boxed(),
            Group::Tci => prop_oneof![nothing(), tci_nxm(), vid(), vid_and_pcp()].boxed(),
            Group::NwSrc => prop_oneof![nothing(), nw_src()].boxed(),
            Group::Tos => prop_oneof![nothing(), dscp(), ecn(), dscp_and_ecn()].boxed(),
            Group::NwProto => prop_oneof![nothing(), nw_proto()].boxed(),
            Group::TpSrc => prop_oneof![nothing(), tp_src(), icmp_type()].boxed(),
            Group::Regs => {
                prop_oneof![nothing(), reg(0), reg(1), both_regs(), xreg(), xxreg()].boxed()
            }
        }
    }

    /// Returns all packets that differ from `base` in this group only.
    fn vary(self, base: Packet) -> Vec<Packet> {
        // Every combination of some bits.
        let combine = |bits: &[u32]| -> Vec<u32> {
            (0..1u32 << bits.len())
                .map(|n| {
                    bits.iter()
                        .enumerate()
                        .map(|(i, &b)| (n >> i & 1) << b)
                        .sum()
                })
                .collect()
        };
        let mut packets = Vec::new();
        match self {
            Group::InPort => {
                for in_port in [1, 2, 3, 0xffff_fffe] {
                    packets.push(Packet { in_port, ..base });
                }
            }
            Group::Tci => {
                for bits in combine(&[0, 5, 12, 13, 15]) {
                    packets.push(Packet {
                        tci: bits as u16,
                        ..base
                    });
                }
            }
            Group::NwSrc => {
                for nw_src in combine(&[0, 1, 31]) {
                    packets.push(Packet { nw_src, ..base });
                }
            }
            Group::Tos => {
                for bits in combine(&[0, 1, 2, 7]) {
                    packets.push(Packet {
                        tos: bits as u8,
                        ..base
                    });
                }
            }
            Group::NwProto => {
                for bits in combine(&[0, 1]) {
                    packets.push(Packet {
                        nw_proto: bits as u8,
                        ..base
                    });
                }
            }
            Group::TpSrc => {
                for bits in combine(&[0, 1, 15]) {
                    packets.push(Packet {
                        tp_src: bits as u16,
                        ..base
                    });
                }
            }
            Group::Regs => {
                for bits in combine(&[0, 1, 2, 3, 4]) {
                    let bit = |n: u32, to: u32| (bits >> n & 1) << to;
                    let regs = [bit(0, 0) | bit(1, 31), bit(2, 0) | bit(3, 31), 0, bit(4, 7)];
                    packets.push(Packet { regs, ..base });
                }
            }
        }
        packets
    }
}

/// Three groups, and two lists of TLVs over them.
fn case() -> impl Strategy<Value = (Vec<Group>, Vec<Tlv>, Vec<Tlv>)> {
    proptest::sample::subsequence(Group::ALL.to_vec(), 3).prop_flat_map(|groups| {
        let lists: Vec<Tlvs> = groups.iter().map(|group| group.tlvs()).collect();
        let list = lists.prop_shuffle().prop_map(|lists| lists.concat());
        (Just(groups), list.clone(), list)
    })
}

fn packets_of(tlvs: &[Tlv], universe: &[Packet]) -> Vec<bool> {
    let layered = tlvs.iter().any(|tlv| tlv.layered);
    universe
        .iter()
        .map(|packet| (packet.ethernet || !layered) && tlvs.iter().all(|tlv| (tlv.test)(packet)))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn keys_are_the_sets_of_their_packets((groups, a, b) in case()) {
        let mut universe = vec![Packet::default(), Packet { ethernet: true, ..Packet::default() }];
        for group in &groups {
            universe = universe.iter().flat_map(|&packet| group.vary(packet)).collect();
        }
        let (in_a, in_b) = (packets_of(&a, &universe), packets_of(&b, &universe));
        let key = |tlvs: &[Tlv]| {
            let oxm: Vec<u8> = tlvs.iter().flat_map(|tlv| tlv.bytes.clone()).collect();
            Match::from_oxm(oxm).unwrap().canonical().unwrap()
        };
        let (key_a, key_b) = (key(&a), key(&b));
        let pairs = || in_a.iter().zip(&in_b);
        prop_assert_eq!(key_a == key_b, in_a == in_b);
        prop_assert_eq!(key_a.covers(&key_b), pairs().all(|(a, b)| *a || !b));
        prop_assert_eq!(key_b.covers(&key_a), pairs().all(|(a, b)| *b || !a));
        prop_assert_eq!(key_a.overlaps(&key_b), pairs().any(|(a, b)| *a && *b));
        prop_assert_eq!(key_b.overlaps(&key_a), key_a.overlaps(&key_b));
        prop_assert_eq!(key_a.is_empty(), in_a.iter().all(|inside| *inside));
    }
}
