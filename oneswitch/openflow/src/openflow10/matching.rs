//! `ofp_match` of OpenFlow 1.0, and Nicira's spelling of matches (NXM)
//! (lib/ofp-match.c, lib/nx-match.c).

use crate::error::{ErrorCode, Refusal};
use crate::field::{class, word};
use crate::oxm::{put_basic, Match, OxmField, VID_PRESENT};
use crate::port::from_openflow10;
use crate::wire::{padded, Put, Reader};
use crate::ONF_VENDOR;

use super::to_port16;

/// `OFPFW_*`: what a match leaves open.
mod open {
    pub const IN_PORT: u32 = 1;
    pub const DL_VLAN: u32 = 1 << 1;
    pub const DL_SRC: u32 = 1 << 2;
    pub const DL_DST: u32 = 1 << 3;
    pub const DL_TYPE: u32 = 1 << 4;
    pub const NW_PROTO: u32 = 1 << 5;
    pub const TP_SRC: u32 = 1 << 6;
    pub const TP_DST: u32 = 1 << 7;
    pub const NW_SRC_SHIFT: u32 = 8;
    pub const NW_DST_SHIFT: u32 = 14;
    pub const NW_BITS: u32 = 0x3f;
    pub const DL_VLAN_PCP: u32 = 1 << 20;
    pub const NW_TOS: u32 = 1 << 21;
    /// Fields of IP and above, without addresses.
    pub const UPPER: u32 = NW_TOS | NW_PROTO | TP_SRC | TP_DST;
    pub const ALL: u32 = (1 << 22) - 1;
}

/// `OFP_VLAN_NONE`: frames without a tag.
const VLAN_NONE: u16 = 0xffff;
const ETH_ARP: u16 = 0x0806;
const ETH_IP: u16 = 0x0800;
const ETH_IPV6: u16 = 0x86dd;
const ICMPV6: u8 = 58;
const ETH_RARP: u16 = 0x8035;
const PRESENT: u16 = VID_PRESENT;
/// `OXM_OF_PACKET_TYPE` of OpenFlow 1.5, which Open vSwitch has in all versions.
const PACKET_TYPE: u8 = 44;
const VID_MASK: u16 = 0x0fff;

/// The fields of `ofp_match`.
#[derive(Clone, Copy, Debug, Default)]
struct Match10 {
    open: u32,
    in_port: u16,
    dl_src: [u8; 6],
    dl_dst: [u8; 6],
    dl_vlan: u16,
    dl_vlan_pcp: u8,
    dl_type: u16,
    nw_tos: u8,
    nw_proto: u8,
    nw_src: u32,
    nw_dst: u32,
    tp_src: u16,
    tp_dst: u16,
}

impl Match10 {
    fn pull(reader: &mut Reader<'_>) -> Result<Self, Refusal> {
        let open = reader.u32()?;
        let in_port = reader.u16()?;
        let (dl_src, dl_dst) = (reader.array()?, reader.array()?);
        let dl_vlan = reader.u16()?;
        let [dl_vlan_pcp, _] = reader.array()?;
        let dl_type = reader.u16()?;
        let [nw_tos, nw_proto, _, _] = reader.array()?;
        Ok(Self {
            open,
            in_port,
            dl_src,
            dl_dst,
            dl_vlan,
            dl_vlan_pcp,
            dl_type,
            nw_tos,
            nw_proto,
            nw_src: reader.u32()?,
            nw_dst: reader.u32()?,
            tp_src: reader.u16()?,
            tp_dst: reader.u16()?,
        })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_u32(self.open);
        out.put_u16(self.in_port);
        out.put(&self.dl_src);
        out.put(&self.dl_dst);
        out.put_u16(self.dl_vlan);
        out.put(&[self.dl_vlan_pcp, 0]);
        out.put_u16(self.dl_type);
        out.put(&[self.nw_tos, self.nw_proto, 0, 0]);
        out.put_u32(self.nw_src);
        out.put_u32(self.nw_dst);
        out.put_u16(self.tp_src);
        out.put_u16(self.tp_dst);
    }

    fn has(&self, field: u32) -> bool {
        self.open & field == 0
    }

    /// Returns the mask of an address whose number of open bits is at `shift`.
    fn address_mask(&self, shift: u32) -> u32 {
        let bits = (self.open >> shift) & open::NW_BITS;
        u32::MAX.checked_shl(bits).unwrap_or(0)
    }

    /// Tells whether the match fixes all fields, so that the rule's priority
    /// is the highest (OpenFlow 1.0.1, section 3.4).
    fn is_exact(&self) -> bool {
        self.open & open::ALL == 0
    }

    /// Writes OXM fields, without those that lack a prerequisite
    /// (`ofputil_match_from_ofp10_match`, `ofputil_normalize_match`).
    fn to_oxm(self) -> Match {
        let mut oxm = Vec::new();
        if self.has(open::IN_PORT) {
            put_basic(&mut oxm, 0, &from_openflow10(self.in_port).to_be_bytes());
        }
        let metadata = oxm.len();
        self.put_link_layer(&mut oxm);
        if self.has(open::DL_TYPE) {
            match self.dl_type {
                ETH_IP | ETH_IPV6 => self.put_ip(&mut oxm),
                ETH_ARP | ETH_RARP => self.put_arp(&mut oxm),
                _ => {}
            }
        }
        if oxm.len() == metadata && self.names_upper_layers() {
            // All fields of a packet, even those that lack a prerequisite, imply Ethernet.
            put_basic(&mut oxm, PACKET_TYPE, &[0; 4]);
        }
        Match(oxm.into())
    }

    /// Writes all fields, even those that lack a prerequisite.
    fn to_raw_oxm(self) -> Match {
        let mut oxm = Vec::new();
        if self.has(open::IN_PORT) {
            put_basic(&mut oxm, 0, &from_openflow10(self.in_port).to_be_bytes());
        }
        self.put_link_layer(&mut oxm);
        if self.has(open::NW_TOS) {
            put_basic(&mut oxm, 8, &[self.nw_tos >> 2]);
        }
        if self.has(open::NW_PROTO) {
            put_basic(&mut oxm, 10, &[self.nw_proto]);
        }
        self.put_addresses(&mut oxm, 11, 12);
        // Ports of TCP are where those of other protocols are, and types of ICMP (`struct flow`).
        for (field, number, bit) in [
            (13, self.tp_src, open::TP_SRC),
            (14, self.tp_dst, open::TP_DST),
        ] {
            if self.has(bit) {
                put_basic(&mut oxm, field, &number.to_be_bytes());
            }
        }
        Match(oxm.into())
    }

    fn put_link_layer(&self, oxm: &mut Vec<u8>) {
        if self.has(open::DL_DST) {
            put_basic(oxm, 3, &self.dl_dst);
        }
        if self.has(open::DL_SRC) {
            put_basic(oxm, 4, &self.dl_src);
        }
        if self.has(open::DL_TYPE) {
            put_basic(oxm, 5, &self.dl_type.to_be_bytes());
        }
        self.put_vlan(oxm);
    }

    /// Tells whether the match fixes anything of IP, ARP or above.
    fn names_upper_layers(&self) -> bool {
        let addresses = [open::NW_SRC_SHIFT, open::NW_DST_SHIFT];
        self.open & open::UPPER != open::UPPER
            || addresses.iter().any(|shift| self.address_mask(*shift) != 0)
    }

    fn put_vlan(&self, oxm: &mut Vec<u8>) {
        const VLAN_VID: u8 = 6;
        const VLAN_PCP: u8 = 7;
        let pcp = [self.dl_vlan_pcp & 7];
        match (self.has(open::DL_VLAN), self.has(open::DL_VLAN_PCP)) {
            (false, false) => {}
            (true, _) if self.dl_vlan == VLAN_NONE => put_basic(oxm, VLAN_VID, &[0, 0]),
            (true, has_pcp) => {
                let vid = self.dl_vlan & VID_MASK | PRESENT;
                put_basic(oxm, VLAN_VID, &vid.to_be_bytes());
                if has_pcp {
                    put_basic(oxm, VLAN_PCP, &pcp);
                }
            }
            (false, true) => {
                put_masked(
                    oxm,
                    VLAN_VID,
                    &PRESENT.to_be_bytes(),
                    &PRESENT.to_be_bytes(),
                );
                put_basic(oxm, VLAN_PCP, &pcp);
            }
        }
    }

    fn put_addresses(&self, oxm: &mut Vec<u8>, source: u8, destination: u8) {
        for (field, address, shift) in [
            (source, self.nw_src, open::NW_SRC_SHIFT),
            (destination, self.nw_dst, open::NW_DST_SHIFT),
        ] {
            let mask = self.address_mask(shift);
            match mask {
                0 => {}
                u32::MAX => put_basic(oxm, field, &address.to_be_bytes()),
                _ => put_masked(
                    oxm,
                    field,
                    &(address & mask).to_be_bytes(),
                    &mask.to_be_bytes(),
                ),
            }
        }
    }

    fn put_ip(&self, oxm: &mut Vec<u8>) {
        if self.has(open::NW_TOS) {
            put_basic(oxm, 8, &[self.nw_tos >> 2]);
        }
        if self.has(open::NW_PROTO) {
            put_basic(oxm, 10, &[self.nw_proto]);
        }
        // It has no addresses of IPv6, but the rest is said as for IPv4.
        let is_ipv6 = self.dl_type == ETH_IPV6;
        if !is_ipv6 {
            self.put_addresses(oxm, 11, 12);
        }
        if !self.has(open::NW_PROTO) {
            return;
        }
        let (first_field, is_icmp) = match self.nw_proto {
            6 => (13, false),
            17 => (15, false),
            132 => (17, false),
            1 if !is_ipv6 => (19, true),
            ICMPV6 if is_ipv6 => (29, true),
            _ => return,
        };
        for (field, number, bit) in [
            (first_field, self.tp_src, open::TP_SRC),
            (first_field + 1, self.tp_dst, open::TP_DST),
        ] {
            let [_, low] = number.to_be_bytes();
            match is_icmp {
                _ if !self.has(bit) => {}
                true => put_basic(oxm, field, &[low]),
                false => put_basic(oxm, field, &number.to_be_bytes()),
            }
        }
    }

    fn put_arp(&self, oxm: &mut Vec<u8>) {
        if self.dl_type == ETH_RARP {
            return;
        }
        if self.has(open::NW_PROTO) {
            put_basic(oxm, 21, &u16::from(self.nw_proto).to_be_bytes());
        }
        self.put_addresses(oxm, 22, 23);
    }

    /// Reads the fields that OpenFlow 1.0 has; leaves others open
    /// (`ofputil_match_to_ofp10_match`).
    fn of_match(matching: &Match) -> Self {
        let Ok(key) = matching.canonical() else {
            return Self {
                open: open::ALL,
                ..Self::default()
            };
        };
        let mut found = Self::default();
        let mut leave_open = |bit: u32, is_open: bool| {
            if is_open {
                found.open |= bit;
            }
        };
        let (port, port_mask) = key.word(u32::from(word::PORT));
        let (l2, l2_mask) = key.word(u32::from(word::L2));
        let (src, src_mask) = key.word(u32::from(word::ETH_SRC));
        let (dst, dst_mask) = key.word(u32::from(word::ETH_DST));
        let (ip, ip_mask) = key.word(u32::from(word::IPV4));
        let (l4, l4_mask) = key.word(u32::from(word::L4));
        leave_open(open::IN_PORT, port_mask >> 32 == 0);
        leave_open(open::DL_SRC, src_mask >> 16 == 0);
        leave_open(open::DL_DST, dst_mask >> 16 == 0);
        leave_open(open::DL_TYPE, l2_mask >> 16 & 0xffff == 0);
        leave_open(open::NW_TOS, l4_mask >> 16 & 0xfc == 0);
        leave_open(open::NW_PROTO, l4_mask >> 24 & 0xff == 0);
        leave_open(open::TP_SRC, l4_mask >> 48 == 0);
        leave_open(open::TP_DST, l4_mask >> 32 & 0xffff == 0);
        let open_bits = |mask: u64| (mask as u32).trailing_zeros();
        found.open |= open_bits(ip_mask >> 32) << open::NW_SRC_SHIFT;
        found.open |= open_bits(ip_mask) << open::NW_DST_SHIFT;
        found.set_vlan(l2 as u16, l2_mask as u16);
        let unless_open = |bit: u32, value: u64| match found.open & bit {
            0 => value,
            _ => 0,
        };
        let mac = |value: u64| {
            let [_, _, mac @ ..] = value.to_be_bytes();
            mac
        };
        Self {
            in_port: unless_open(open::IN_PORT, u64::from(to_port16((port >> 32) as u32))) as u16,
            dl_src: mac(unless_open(open::DL_SRC, src >> 16)),
            dl_dst: mac(unless_open(open::DL_DST, dst >> 16)),
            dl_type: (l2 >> 16) as u16,
            nw_tos: (l4 >> 16) as u8 & 0xfc,
            nw_proto: (l4 >> 24) as u8,
            nw_src: (ip >> 32) as u32,
            nw_dst: ip as u32,
            tp_src: unless_open(open::TP_SRC, l4 >> 48) as u16,
            tp_dst: unless_open(open::TP_DST, l4 >> 32) as u16,
            ..found
        }
    }

    fn set_vlan(&mut self, tci: u16, mask: u16) {
        if mask == 0 {
            self.open |= open::DL_VLAN | open::DL_VLAN_PCP;
        } else if mask & PRESENT != 0 && tci & PRESENT == 0 {
            self.dl_vlan = VLAN_NONE;
        } else {
            match mask & VID_MASK {
                0 => self.open |= open::DL_VLAN,
                _ => self.dl_vlan = tci & VID_MASK,
            }
            match mask >> 13 {
                0 => self.open |= open::DL_VLAN_PCP,
                _ => self.dl_vlan_pcp = (tci >> 13) as u8,
            }
        }
    }
}

/// A field with a mask, of class OPENFLOW_BASIC.
fn put_masked(out: &mut Vec<u8>, field: u8, value: &[u8], mask: &[u8]) {
    out.put_u16(class::OPENFLOW_BASIC);
    out.put_u8(field << 1 | 1);
    out.put_u8(u8::try_from(2 * value.len()).unwrap_or(u8::MAX));
    out.put(value);
    out.put(mask);
}

/// Reads `ofp_match`; also tells whether it fixes all fields.
pub(super) fn pull(reader: &mut Reader<'_>) -> Result<(Match, bool), Refusal> {
    let found = Match10::pull(reader)?;
    Ok((found.to_oxm(), found.is_exact()))
}

/// Reads the `ofp_match` of a request for statistics. Open vSwitch leaves
/// fields that lack a prerequisite in it (`ofputil_match_from_ofp10_match`):
/// only rules match that have these fields, too.
pub(super) fn pull_asked(reader: &mut Reader<'_>) -> Result<Match, Refusal> {
    let found = Match10::pull(reader)?;
    let (complete, raw) = (found.to_oxm(), found.to_raw_oxm());
    Ok(match complete.canonical()? == raw.canonical()? {
        true => complete,
        false => raw,
    })
}

/// Writes `ofp_match`.
pub(super) fn put(matching: &Match, out: &mut Vec<u8>) {
    Match10::of_match(matching).put(out);
}

/// A match in NXM, with the cookie that it may contain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NxmMatch {
    pub(super) matching: Match,
    pub(super) cookie: u64,
    pub(super) cookie_mask: u64,
}

/// `ONFOXM_ET_TCP_FLAGS` and `NXM_NX_TCP_FLAGS`.
const ONF_TCP_FLAGS: u8 = 42;
const NXM_TCP_FLAGS: u8 = 34;
/// `NXM_NX_COOKIE`, `NXM_OF_VLAN_TCI` and `OXM_OF_VLAN_VID`.
const NXM_COOKIE: u8 = 30;
const NXM_VLAN_TCI: u8 = 4;
const OXM_VLAN_VID: u8 = 6;

/// Reads a match of `length` bytes and its padding (`nx_pull_match`).
pub(super) fn pull_nxm(reader: &mut Reader<'_>, length: u16) -> Result<NxmMatch, Refusal> {
    let length = usize::from(length);
    let short = |_| Refusal::new(ErrorCode::BAD_MATCH_BAD_LEN, "truncated match");
    let whole = reader.bytes(padded(length)).map_err(short)?;
    let mut rest = Reader::new(whole.get(..length).unwrap_or_default());
    let mut found = NxmMatch::default();
    let mut oxm = Vec::with_capacity(length);
    while !rest.is_empty() {
        let start = rest.peek();
        let field = OxmField::pull(&mut rest)?;
        let is_cookie = field.class == class::NXM_1 && field.field == NXM_COOKIE;
        let is_tci = (field.class, field.field) == (class::NXM_0, NXM_VLAN_TCI);
        match <[u8; 8]>::try_from(field.value) {
            // Switches spell it so over OpenFlow 1.3.
            _ if is_tci && field.value == [0, 0] && field.mask.is_none() => {
                put_basic(&mut oxm, OXM_VLAN_VID, &[0, 0]);
            }
            Ok(value) if is_cookie => {
                if found.cookie_mask != 0 {
                    return Err(Refusal::new(ErrorCode::BAD_MATCH_DUP_FIELD, "cookie twice"));
                }
                found.cookie = u64::from_be_bytes(value);
                let mask = field.mask.and_then(|mask| mask.try_into().ok());
                found.cookie_mask = mask.map_or(u64::MAX, u64::from_be_bytes);
                if found.cookie & !found.cookie_mask != 0 {
                    return Err(Refusal::new(
                        ErrorCode::BAD_MATCH_BAD_WILDCARDS,
                        "cookie outside its mask",
                    ));
                }
            }
            _ => oxm.put(start.get(..start.len() - rest.len()).unwrap_or_default()),
        }
    }
    found.matching = Match::from_oxm(oxm)?;
    Ok(found)
}

/// Reads an NXM match that cannot contain a cookie, and checks it as that of a
/// request.
pub(crate) fn pull_checked_nxm(reader: &mut Reader<'_>, length: u16) -> Result<Match, Refusal> {
    let found = pull_nxm(reader, length)?;
    if found.cookie_mask != 0 {
        return Err(Refusal::new(
            ErrorCode::BAD_MATCH_BAD_FIELD,
            "a cookie in a match",
        ));
    }
    Match::checked(found.matching.as_oxm())
}

/// Returns a match's fields in NXM, where they have such names
/// (`nx_put_match`).
pub(crate) fn to_nxm(matching: &Match) -> Vec<u8> {
    let mut nxm = Vec::new();
    let mut tci: Option<(u16, u16)> = None;
    let mut tci_at = 0;
    for field in matching.fields() {
        match (field.class, field.field) {
            (class::OPENFLOW_BASIC, 6 | 7) => {
                let (value, mask) = tci_bits(&field);
                let before = tci.unwrap_or_default();
                if tci.is_none() {
                    tci_at = nxm.len();
                }
                tci = Some((before.0 | value, before.1 | mask));
            }
            _ => put_nxm_field(&mut nxm, &field),
        }
    }
    if let Some((value, mask)) = tci {
        let mut field = Vec::new();
        put_header(&mut field, class::NXM_0, 4, mask != 0xffff, 2);
        field.put_u16(value);
        if mask != 0xffff {
            field.put_u16(mask);
        }
        nxm.splice(tci_at..tci_at, field);
    }
    nxm
}

/// Returns value and mask of a VLAN_VID or VLAN_PCP in the tag's control
/// information.
fn tci_bits(field: &OxmField<'_>) -> (u16, u16) {
    let number = |bytes: &[u8]| {
        let add = |number, byte: &u8| number << 8 | u16::from(*byte);
        bytes.iter().fold(0, add)
    };
    let value = number(field.value);
    if field.field == 7 {
        return (value << 13 | PRESENT, 7 << 13 | PRESENT);
    }
    let mask = field.mask.map_or(VID_MASK | PRESENT, number);
    match (value & PRESENT, field.mask) {
        (0, None) => (0, 0xffff),
        _ => (value, mask),
    }
}

fn put_header(out: &mut Vec<u8>, class: u16, field: u8, has_mask: bool, width: usize) {
    out.put_u16(class);
    out.put_u8(field << 1 | u8::from(has_mask));
    let length = width << usize::from(has_mask);
    out.put_u8(u8::try_from(length).unwrap_or(u8::MAX));
}

/// Returns the NXM class and number of a basic field.
#[must_use]
pub fn nxm_name(field: u8) -> Option<(u16, u8)> {
    Some(match field {
        0 => (class::NXM_0, 0),
        3 => (class::NXM_0, 1),
        4 => (class::NXM_0, 2),
        5 => (class::NXM_0, 3),
        8 => (class::NXM_0, 5),
        9 => (class::NXM_1, 28),
        10..=16 => (class::NXM_0, field - 4),
        19..=23 => (class::NXM_0, field - 6),
        24..=25 => (class::NXM_1, field - 7),
        26..=27 => (class::NXM_1, field - 7),
        28 => (class::NXM_1, 27),
        29..=33 => (class::NXM_1, field - 8),
        38 => (class::NXM_1, 16),
        42 => (class::NXM_1, 34),
        _ => return None,
    })
}

fn put_nxm_field(out: &mut Vec<u8>, field: &OxmField<'_>) {
    let name = match field.class {
        class::OPENFLOW_BASIC => nxm_name(field.field),
        _ => None,
    };
    let (class, number) = name.unwrap_or((field.class, field.field));
    let mask = field.mask.unwrap_or_default();
    match (field.class, field.field, field.value) {
        (class::OPENFLOW_BASIC, 0, &[a, b, c, d]) => {
            put_header(out, class, number, false, 2);
            out.put_u16(to_port16(u32::from_be_bytes([a, b, c, d])));
        }
        (class::OPENFLOW_BASIC, 8, &[dscp]) => {
            put_header(out, class, number, false, 1);
            out.put_u8(dscp << 2);
        }
        (class::EXPERIMENTER, ONF_TCP_FLAGS, value) if field.experimenter == Some(ONF_VENDOR) => {
            put_header(
                out,
                class::NXM_1,
                NXM_TCP_FLAGS,
                field.mask.is_some(),
                value.len(),
            );
            out.put(value);
            out.put(mask);
        }
        (_, _, value) => {
            let id = field.experimenter;
            put_header(out, class, number, field.mask.is_some(), value.len());
            if let Some(id) = id {
                if let Some(length) = out.last_mut() {
                    *length = length.saturating_add(4);
                }
                out.put_u32(id);
            }
            out.put(value);
            out.put(mask);
        }
    }
}
