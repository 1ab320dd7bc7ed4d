//! The fields that Open vSwitch 3.1 can match, and the position of their bits
//! in a [rule key](crate::CanonicalMatch) (include/openvswitch/meta-flow.h,
//! lib/match.c).
//!
//! A rule key is an array of 64-bit words, like `struct flow` in Open vSwitch:
//! different spellings of one field have the same position, and fields that are
//! usually matched together share a word.

use crate::{NX_VENDOR, ONF_VENDOR};
use Prereq::*;

/// The `oxm_class` values known to Open vSwitch
/// (python/build/extract_ofp_fields.py).
pub mod class {
    /// `NXM_OF_*`.
    pub const NXM_0: u16 = 0x0000;
    /// `NXM_NX_*`.
    pub const NXM_1: u16 = 0x0001;
    /// `ERICOXM_OF_*`.
    pub const ERICSSON: u16 = 0x1000;
    /// `OXM_OF_*`.
    pub const OPENFLOW_BASIC: u16 = 0x8000;
    /// `OXM_OF_PKT_REG*`.
    pub const PACKET_REGS: u16 = 0x8001;
    /// A four-byte experimenter id follows the TLV's header.
    pub const EXPERIMENTER: u16 = 0xffff;
}

/// Experimenter of `NXOXM_NSH_*`.
pub(crate) const NSH_VENDOR: u32 = 0x005a_d650;

/// Words of a rule key; with [`at`], the first bit of a field.
pub(crate) mod word {
    pub(crate) const L2: u8 = 0; // packet_type 32, eth_type 16, vlan_tci 16
    pub(crate) const PORT: u8 = 1; // in_port 32, actset_output 32
    pub(crate) const IPV4: u8 = 2; // nw_src 32, nw_dst 32; ARP too
    pub(crate) const L4: u8 = 3; // tp_src 16, tp_dst 16, nw_proto 8, nw_tos 8, nw_ttl 8, nw_frag 8
    pub(crate) const METADATA: u8 = 4;
    pub(crate) const ETH_DST: u8 = 5; // eth_dst 48, tcp_flags 16
    pub(crate) const ETH_SRC: u8 = 6;
    pub(crate) const CT: u8 = 7; // ct_state 32, ct_mark 32
    pub(crate) const MPLS: u8 = 8; // mpls_lse 32, ipv6_label 32
    pub(crate) const IPV6_SRC: u8 = 9;
    pub(crate) const IPV6_DST: u8 = 11;
    pub(crate) const ND_TARGET: u8 = 13;
    pub(crate) const ARP_SHA: u8 = 15;
    pub(crate) const ARP_THA: u8 = 16;
    pub(crate) const TUN_ID: u8 = 17;
    pub(crate) const TUN_IPV4: u8 = 18; // tun_src 32, tun_dst 32
    pub(crate) const TUN_IPV6_SRC: u8 = 19;
    pub(crate) const TUN_IPV6_DST: u8 = 21;
    pub(crate) const TUN: u8 = 23; // flags 16, gbp_id 16, gbp_flags 8, erspan ver 8, dir 8, hwid 8
    pub(crate) const TUN_MORE: u8 = 24; // erspan_idx 32, gtpu flags 8, gtpu msgtype 8
    pub(crate) const HIDDEN: u8 = 25; // dp_hash 32, recirc_id 32
    pub(crate) const CONJ: u8 = 26; // conj_id 32, pkt_mark 32
    pub(crate) const CT_L4: u8 = 27; // zone 16, tp_src 16, tp_dst 16, nw_proto 8
    pub(crate) const CT_IPV4: u8 = 28;
    pub(crate) const CT_LABEL: u8 = 29;
    pub(crate) const CT_IPV6_SRC: u8 = 31;
    pub(crate) const CT_IPV6_DST: u8 = 33;
    pub(crate) const REGS: u8 = 35; // 16 registers of 32
    pub(crate) const NSH: u8 = 43; // path_hdr 32, flags 8, mdtype 8, np 8, ttl 8
    pub(crate) const NSH_CONTEXT: u8 = 44; // 4 of 32
    pub(crate) const ND_RESERVED: u8 = 46;
    pub(crate) const COUNT: usize = 47;
}

/// The conversion of a TLV's value to bits of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Unchanged; values above the limit are invalid.
    Plain,
    /// 16-bit OpenFlow 1.0 port number.
    Port16,
    /// 32-bit port number: invalid from 0xff00 to below `OFPP_MAX`.
    Port32,
    VlanVid,
    VlanPcp,
    MplsLabel,
    MplsTc,
    MplsBos,
    /// The whole TOS byte, of which the upper six bits count.
    Dscp,
    DscpShifted,
    Ecn,
    Frag,
    /// 16-bit opcode in the 8-bit `nw_proto`.
    ArpOp,
    /// 8 bits in a 16-bit place.
    Widened,
    CtState,
    TunFlags,
    Ipv6Label,
    NshSpi,
    NshSi,
    NshMdtype,
    ErspanVer,
    /// Options of a configurable length, keyed by index.
    TunMetadata,
}

/// The prerequisite of a field (`enum mf_prereqs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prereq {
    Nothing,
    Ethernet,
    Arp,
    Ipv4,
    Ipv6,
    VlanVid,
    Mpls,
    IpAny,
    Nsh,
    CtValid,
    Tcp,
    Udp,
    Sctp,
    Icmpv4,
    Icmpv6,
    Nd,
    NdSolicit,
    NdAdvert,
}

/// A field that Open vSwitch knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    /// Bytes of the value; 0 for those of variable length.
    pub(crate) width: u8,
    pub(crate) kind: Kind,
    /// Word of the key; for [`Kind::TunMetadata`] the option's index.
    pub(crate) word: u8,
    /// Offset of its lowest bit in the word.
    pub(crate) shift: u8,
    /// Largest valid value of up to eight bytes.
    pub(crate) limit: u64,
    pub(crate) maskable: bool,
    pub(crate) writable: bool,
    /// Any prerequisite but `Nothing` also requires Ethernet
    /// (`match_add_ethernet_prereq`).
    pub(crate) prereq: Prereq,
}

impl Field {
    /// Returns the number of bits that actions can address (`n_bits` of `struct mf_field`), of a field of a fixed width.
    pub(crate) fn bits(&self) -> usize {
        const TAG_IDS: usize = 12;
        match (self.kind, self.limit) {
            (Kind::VlanVid, _) => TAG_IDS,
            (_, u64::MAX) => 8 * usize::from(self.width),
            (_, limit) => (u64::BITS - limit.leading_zeros()) as usize,
        }
    }

    const fn no_mask(mut self) -> Self {
        self.maskable = false;
        self
    }

    const fn read_only(mut self) -> Self {
        self.writable = false;
        self
    }

    const fn limit(mut self, limit: u64) -> Self {
        self.limit = limit;
        self
    }

    const fn kind(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }
}

/// A maskable, writable field without prerequisites.
const fn at(width: u8, word: u8, shift: u8) -> Field {
    Field {
        width,
        kind: Kind::Plain,
        word,
        shift,
        limit: u64::MAX,
        maskable: true,
        writable: true,
        prereq: Prereq::Nothing,
    }
}

/// A field of an Ethernet frame, with further prerequisites.
const fn layer(prereq: Prereq, width: u8, word: u8, shift: u8) -> Field {
    let mut field = at(width, word, shift);
    field.prereq = prereq;
    field
}

const IN_PORT: Field = at(4, word::PORT, 32).kind(Kind::Port32).no_mask();
const ACTSET_OUTPUT: Field = at(4, word::PORT, 0)
    .kind(Kind::Port32)
    .no_mask()
    .read_only();
const TUN_ID: Field = at(8, word::TUN_ID, 0);
const ETH_DST: Field = layer(Ethernet, 6, word::ETH_DST, 16);
const ETH_SRC: Field = layer(Ethernet, 6, word::ETH_SRC, 16);
const ETH_TYPE: Field = layer(Ethernet, 2, word::L2, 16).no_mask().read_only();
const IP_PROTO: Field = layer(IpAny, 1, word::L4, 24).no_mask().read_only();
const IP_ECN: Field = layer(IpAny, 1, word::L4, 16)
    .kind(Kind::Ecn)
    .limit(3)
    .no_mask();
const TCP_FLAGS: Field = layer(Tcp, 2, word::ETH_DST, 0).limit(0x0fff).read_only();
const ARP_OP: Field = layer(Arp, 2, word::L4, 24)
    .kind(Kind::ArpOp)
    .limit(0xff)
    .no_mask();
const IPV6_SRC: Field = layer(Ipv6, 16, word::IPV6_SRC, 0);
const IPV6_DST: Field = layer(Ipv6, 16, word::IPV6_DST, 0);
const IPV6_LABEL: Field = layer(Ipv6, 4, word::MPLS, 0)
    .kind(Kind::Ipv6Label)
    .limit(0xf_ffff);
const ND_TARGET: Field = layer(Nd, 16, word::ND_TARGET, 0);

const fn nw_src(prereq: Prereq) -> Field {
    layer(prereq, 4, word::IPV4, 32)
}

const fn nw_dst(prereq: Prereq) -> Field {
    layer(prereq, 4, word::IPV4, 0)
}

const fn tp_src(prereq: Prereq) -> Field {
    layer(prereq, 2, word::L4, 48)
}

const fn tp_dst(prereq: Prereq) -> Field {
    layer(prereq, 2, word::L4, 32)
}

const fn icmp_type(prereq: Prereq) -> Field {
    layer(prereq, 1, word::L4, 48).kind(Kind::Widened).no_mask()
}

const fn icmp_code(prereq: Prereq) -> Field {
    layer(prereq, 1, word::L4, 32).kind(Kind::Widened).no_mask()
}

const fn arp_sha(prereq: Prereq) -> Field {
    layer(prereq, 6, word::ARP_SHA, 16)
}

const fn arp_tha(prereq: Prereq) -> Field {
    layer(prereq, 6, word::ARP_THA, 16)
}

/// Returns the field of a TLV's header, if Open vSwitch has it.
pub(crate) fn lookup(class: u16, field: u8, experimenter: Option<u32>) -> Option<Field> {
    match (class, experimenter) {
        (class::OPENFLOW_BASIC, _) => openflow_basic(field),
        (class::NXM_0, _) => nxm_0(field),
        (class::NXM_1, _) => nxm_1(field),
        (class::PACKET_REGS, _) if field < 8 => Some(at(8, word::REGS + field, 0)),
        (class::ERICSSON, _) => match field {
            1 => Some(layer(Nd, 4, word::ND_RESERVED, 32).no_mask()),
            2 => Some(layer(Nd, 1, word::ETH_DST, 0).kind(Kind::Widened).no_mask()),
            _ => None,
        },
        (class::EXPERIMENTER, Some(ONF_VENDOR)) => match field {
            42 => Some(TCP_FLAGS),
            43 => Some(ACTSET_OUTPUT),
            _ => None,
        },
        (class::EXPERIMENTER, Some(NX_VENDOR)) => nicira_experimenter(field),
        (class::EXPERIMENTER, Some(NSH_VENDOR)) => nsh(field),
        _ => None,
    }
}

/// `OXM_OF_*`.
fn openflow_basic(field: u8) -> Option<Field> {
    Some(match field {
        0 => IN_PORT,
        2 => at(8, word::METADATA, 0),
        3 => ETH_DST,
        4 => ETH_SRC,
        5 => ETH_TYPE,
        6 => layer(Ethernet, 2, word::L2, 0)
            .kind(Kind::VlanVid)
            .limit(0x1fff),
        7 => layer(VlanVid, 1, word::L2, 0)
            .kind(Kind::VlanPcp)
            .limit(7)
            .no_mask(),
        8 => layer(IpAny, 1, word::L4, 16)
            .kind(Kind::DscpShifted)
            .limit(0x3f)
            .no_mask(),
        9 => IP_ECN,
        10 => IP_PROTO,
        11 => nw_src(Ipv4),
        12 => nw_dst(Ipv4),
        13 => tp_src(Tcp),
        14 => tp_dst(Tcp),
        15 => tp_src(Udp),
        16 => tp_dst(Udp),
        17 => tp_src(Sctp),
        18 => tp_dst(Sctp),
        19 => icmp_type(Icmpv4),
        20 => icmp_code(Icmpv4),
        21 => ARP_OP,
        22 => nw_src(Arp),
        23 => nw_dst(Arp),
        24 => arp_sha(Arp),
        25 => arp_tha(Arp),
        26 => IPV6_SRC,
        27 => IPV6_DST,
        28 => IPV6_LABEL,
        29 => icmp_type(Icmpv6),
        30 => icmp_code(Icmpv6),
        31 => ND_TARGET,
        32 => arp_sha(NdSolicit),
        33 => arp_tha(NdAdvert),
        34 => layer(Mpls, 4, word::MPLS, 32)
            .kind(Kind::MplsLabel)
            .limit(0xf_ffff)
            .no_mask(),
        35 => layer(Mpls, 1, word::MPLS, 32)
            .kind(Kind::MplsTc)
            .limit(7)
            .no_mask(),
        36 => layer(Mpls, 1, word::MPLS, 32)
            .kind(Kind::MplsBos)
            .limit(1)
            .no_mask()
            .read_only(),
        38 => TUN_ID,
        // OpenFlow 1.5 added these two; Open vSwitch accepts them over 1.3.
        42 => TCP_FLAGS,
        43 => ACTSET_OUTPUT,
        44 => at(4, word::L2, 32).no_mask().read_only(),
        _ => return None,
    })
}

/// `NXM_OF_*`.
fn nxm_0(field: u8) -> Option<Field> {
    Some(match field {
        0 => at(2, word::PORT, 32).kind(Kind::Port16).no_mask(),
        1 => ETH_DST,
        2 => ETH_SRC,
        3 => ETH_TYPE,
        4 => layer(Ethernet, 2, word::L2, 0),
        5 => layer(IpAny, 1, word::L4, 16).kind(Kind::Dscp).no_mask(),
        6 => IP_PROTO,
        7 => nw_src(Ipv4),
        8 => nw_dst(Ipv4),
        9 => tp_src(Tcp),
        10 => tp_dst(Tcp),
        11 => tp_src(Udp),
        12 => tp_dst(Udp),
        13 => icmp_type(Icmpv4),
        14 => icmp_code(Icmpv4),
        15 => ARP_OP,
        16 => nw_src(Arp),
        17 => nw_dst(Arp),
        _ => return None,
    })
}

/// `NXM_NX_*`.
fn nxm_1(field: u8) -> Option<Field> {
    Some(match field {
        0..=15 => at(
            4,
            word::REGS + field / 2,
            if field % 2 == 0 { 32 } else { 0 },
        ),
        16 => TUN_ID,
        17 => arp_sha(Arp),
        18 => arp_tha(Arp),
        19 => IPV6_SRC,
        20 => IPV6_DST,
        21 => icmp_type(Icmpv6),
        22 => icmp_code(Icmpv6),
        23 => ND_TARGET,
        24 => arp_sha(NdSolicit),
        25 => arp_tha(NdAdvert),
        26 => layer(IpAny, 1, word::L4, 0)
            .kind(Kind::Frag)
            .limit(3)
            .read_only(),
        27 => IPV6_LABEL,
        28 => IP_ECN,
        29 => layer(IpAny, 1, word::L4, 8).no_mask(),
        30 => layer(Mpls, 1, word::MPLS, 32).no_mask(),
        31 => at(4, word::TUN_IPV4, 32),
        32 => at(4, word::TUN_IPV4, 0),
        33 => at(4, word::CONJ, 0),
        34 => TCP_FLAGS,
        35 => at(4, word::HIDDEN, 32).read_only(),
        36 => at(4, word::HIDDEN, 0).no_mask().read_only(),
        37 => at(4, word::CONJ, 32).no_mask().read_only(),
        38 => at(2, word::TUN, 32),
        39 => at(1, word::TUN, 24),
        40..=103 => at(0, field - 40, 0).kind(Kind::TunMetadata),
        104 => at(2, word::TUN, 48).kind(Kind::TunFlags).limit(1),
        105 => at(4, word::CT, 32)
            .kind(Kind::CtState)
            .limit(0xff)
            .read_only(),
        106 => at(2, word::CT_L4, 48).no_mask().read_only(),
        107 => at(4, word::CT, 0),
        108 => at(16, word::CT_LABEL, 0),
        109 => at(16, word::TUN_IPV6_SRC, 0),
        110 => at(16, word::TUN_IPV6_DST, 0),
        111..=114 => at(16, word::REGS + 2 * (field - 111), 0),
        119 => layer(CtValid, 1, word::CT_L4, 8).no_mask().read_only(),
        120 => layer(CtValid, 4, word::CT_IPV4, 32).read_only(),
        121 => layer(CtValid, 4, word::CT_IPV4, 0).read_only(),
        122 => layer(CtValid, 16, word::CT_IPV6_SRC, 0).read_only(),
        123 => layer(CtValid, 16, word::CT_IPV6_DST, 0).read_only(),
        124 => layer(CtValid, 2, word::CT_L4, 32).read_only(),
        125 => layer(CtValid, 2, word::CT_L4, 16).read_only(),
        _ => return None,
    })
}

/// `NXOXM_ET_*`.
fn nicira_experimenter(field: u8) -> Option<Field> {
    Some(match field {
        0 => at(4, word::HIDDEN, 32).read_only(),
        11 => at(4, word::TUN_MORE, 32),
        12 => at(1, word::TUN, 16).kind(Kind::ErspanVer),
        13 => at(1, word::TUN, 8),
        14 => at(1, word::TUN, 0),
        15 => at(1, word::TUN_MORE, 24).read_only(),
        16 => at(1, word::TUN_MORE, 16).read_only(),
        _ => return None,
    })
}

/// `NXOXM_NSH_*`.
fn nsh(field: u8) -> Option<Field> {
    Some(match field {
        1 => layer(Nsh, 1, word::NSH, 24),
        2 => layer(Nsh, 1, word::NSH, 16)
            .kind(Kind::NshMdtype)
            .no_mask()
            .read_only(),
        3 => layer(Nsh, 1, word::NSH, 8).no_mask().read_only(),
        4 => layer(Nsh, 4, word::NSH, 32)
            .kind(Kind::NshSpi)
            .limit(0x00ff_ffff)
            .no_mask(),
        5 => layer(Nsh, 1, word::NSH, 32).kind(Kind::NshSi).no_mask(),
        6..=9 => layer(
            Nsh,
            4,
            word::NSH_CONTEXT + (field - 6) / 2,
            if field % 2 == 0 { 32 } else { 0 },
        ),
        10 => layer(Nsh, 1, word::NSH, 0).limit(63).no_mask(),
        _ => return None,
    })
}
