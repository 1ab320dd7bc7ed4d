//! OXM TLVs and `ofp_match` (OpenFlow 1.3.5, section 7.2.3; lib/nx-match.c).

use crate::error::{ErrorCode, Refusal};
use crate::field::class;
use crate::wire::{padded, Put, Reader};
use std::fmt;
use std::net::Ipv6Addr;
use std::sync::Arc;

/// Bit of a VLAN_VID value that means "tag present" (`OFPVID_PRESENT`).
pub const VID_PRESENT: u16 = 0x1000;

const OXM_IN_PORT: u8 = 0;
const OXM_VLAN_VID: u8 = 6;
/// `OFPMT_STANDARD`, OpenFlow 1.1's, and its only length.
const MATCH_TYPE_STANDARD: u16 = 0;
const STANDARD_LENGTH: usize = 88;
/// `OFPMT_OXM`.
pub(crate) const MATCH_TYPE_OXM: u16 = 1;

/// One OXM TLV.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OxmField<'a> {
    /// One of [`class`].
    pub class: u16,
    /// Field within the class, 7 bits.
    pub field: u8,
    /// Whether a mask follows the value.
    pub has_mask: bool,
    /// The experimenter id of class 0xffff.
    pub experimenter: Option<u32>,
    /// The value, big-endian.
    pub value: &'a [u8],
    /// The mask, as long as the value; one-bits must match.
    pub mask: Option<&'a [u8]>,
}

impl<'a> OxmField<'a> {
    /// Reads one TLV from the front, checking only that it fits.
    pub(crate) fn pull(reader: &mut Reader<'a>) -> Result<Self, Refusal> {
        const BAD_LEN: ErrorCode = ErrorCode::BAD_MATCH_BAD_LEN;
        let short = |_| Refusal::new(BAD_LEN, "truncated OXM field");
        let class = reader.u16().map_err(short)?;
        let [field, length] = reader.array::<2>().map_err(short)?;
        let mut length = usize::from(length);
        let experimenter = if class == class::EXPERIMENTER {
            let id = reader.u32().map_err(short)?;
            length = length
                .checked_sub(4)
                .ok_or_else(|| Refusal::new(BAD_LEN, "experimenter OXM shorter than its id"))?;
            Some(id)
        } else {
            None
        };
        let payload = reader.bytes(length).map_err(short)?;
        let has_mask = field & 1 != 0;
        // As in Open vSwitch, an odd masked length loses its last byte.
        let (value, mask) = match payload.split_at_checked(length / 2) {
            Some((value, mask)) if has_mask => (value, mask.get(..length / 2)),
            _ => (payload, None),
        };
        Ok(Self {
            class,
            field: field >> 1,
            has_mask,
            experimenter,
            value,
            mask,
        })
    }
}

/// Open vSwitch's names of the fields of `OXM_OF_*`, by number.
const BASIC_NAMES: &str = "in_port in_phy_port metadata eth_dst eth_src eth_type vlan_vid vlan_pcp ip_dscp ip_ecn \
    nw_proto nw_src nw_dst tcp_src tcp_dst udp_src udp_dst sctp_src sctp_dst icmp_type icmp_code arp_op arp_spa arp_tpa \
    arp_sha arp_tha ipv6_src ipv6_dst ipv6_label icmpv6_type icmpv6_code nd_target nd_sll nd_tll mpls_label mpls_tc \
    mpls_bos pbb_isid tun_id ipv6_exthdr";

/// Writes the field as an operator reads it, nearly as ovs-ofctl does.
impl fmt::Display for OxmField<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let basic = BASIC_NAMES.split(' ').nth(self.field.into());
        let basic = basic.filter(|_| self.class == class::OPENFLOW_BASIC);
        match (self.class, self.field) {
            (class::NXM_1, number @ 0..=15) => write!(f, "reg{number}=")?,
            (class::NXM_1, 33) => f.write_str("pkt_mark=")?,
            (class, number) => match basic {
                Some(name) => write!(f, "{name}=")?,
                None => write!(f, "oxm({class:#06x},{number})=")?,
            },
        }
        let is_address = matches!(basic, Some("nw_src" | "nw_dst" | "arp_spa" | "arp_tpa"));
        let is_hex = matches!(basic, None | Some("eth_type" | "vlan_vid" | "metadata"));
        let write_value = |f: &mut fmt::Formatter<'_>, value: &[u8]| match *value {
            [a, b, c, d] if is_address => write!(f, "{a}.{b}.{c}.{d}"),
            [a, b, c, d, e, g] => write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}"),
            _ => {
                let bytes = value.iter().take(16);
                let number = bytes.fold(0, |number, byte| number << 8 | u128::from(*byte));
                match value.len() {
                    16 => write!(f, "{}", Ipv6Addr::from(number)),
                    _ if is_hex || self.mask.is_some() => write!(f, "{number:#x}"),
                    _ => write!(f, "{number}"),
                }
            }
        };
        write_value(f, self.value)?;
        self.mask.map_or(Ok(()), |mask| {
            f.write_str("/")?;
            write_value(f, mask)
        })
    }
}

/// The TLVs of a match or another OXM list, in order.
#[derive(Clone, Debug)]
pub struct OxmFields<'a> {
    reader: Reader<'a>,
}

impl<'a> Iterator for OxmFields<'a> {
    type Item = OxmField<'a>;

    fn next(&mut self) -> Option<OxmField<'a>> {
        if self.reader.is_empty() {
            return None;
        }
        let field = OxmField::pull(&mut self.reader).ok();
        if field.is_none() {
            self.reader = Reader::new(&[]);
        }
        field
    }
}

/// The raw OXM TLVs of an `ofp_match` exactly as received, without the match's
/// header and padding. The TLVs are known to cover the bytes exactly. Clones share
/// them: a rule has the match of the message that adds it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Match(pub(crate) Arc<[u8]>);

impl fmt::Display for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("any packet");
        }
        self.fields().enumerate().try_for_each(|(index, field)| {
            let comma = if index > 0 { "," } else { "" };
            write!(f, "{comma}{field}")
        })
    }
}

impl Match {
    /// Matches every packet.
    pub fn any() -> Self {
        Self::default()
    }

    /// Checks the lengths of TLVs; fields may be unknown.
    pub fn from_oxm(oxm: impl AsRef<[u8]> + Into<Arc<[u8]>>) -> Result<Self, Refusal> {
        let mut reader = Reader::new(oxm.as_ref());
        while !reader.is_empty() {
            OxmField::pull(&mut reader)?;
        }
        Ok(Self(oxm.into()))
    }

    /// Returns the TLVs.
    pub fn as_oxm(&self) -> &[u8] {
        &self.0
    }

    /// Iterates over the TLVs.
    pub fn fields(&self) -> OxmFields<'_> {
        OxmFields {
            reader: Reader::new(&self.0),
        }
    }

    /// Tells whether there are no TLVs.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the bytes of the whole `ofp_match`, including header and
    /// padding.
    pub fn wire_len(&self) -> usize {
        padded(4 + self.0.len())
    }

    /// Returns the matched port, in OpenFlow 1.3 numbers.
    pub fn in_port(&self) -> Option<u32> {
        self.fields().find_map(|field| {
            let wildcarded = field
                .mask
                .is_some_and(|mask| mask.iter().any(|&b| b != 0xff));
            match (field.class, field.field, field.value) {
                _ if wildcarded => None,
                (class::OPENFLOW_BASIC, OXM_IN_PORT, &[a, b, c, d]) => {
                    Some(u32::from_be_bytes([a, b, c, d]))
                }
                (class::NXM_0, OXM_IN_PORT, &[a, b]) => {
                    Some(crate::port::from_openflow10(u16::from_be_bytes([a, b])))
                }
                _ => None,
            }
        })
    }

    /// Adds a match on the ingress port.
    #[must_use]
    pub fn with_in_port(self, port: u32) -> Self {
        self.with_basic(OXM_IN_PORT, &port.to_be_bytes())
    }

    /// Adds a match on a tag with this VLAN id, 0 to 4095.
    #[must_use]
    pub fn with_vlan_vid(self, vid: u16) -> Self {
        self.with_basic(OXM_VLAN_VID, &(vid | VID_PRESENT).to_be_bytes())
    }

    fn with_basic(self, field: u8, value: &[u8]) -> Self {
        let mut oxm = self.0.to_vec();
        put_basic(&mut oxm, field, value);
        Self(oxm.into())
    }

    /// Reads the raw TLVs of an `ofp_match` (`oxm_pull_match__`).
    pub(crate) fn pull_oxm<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], Refusal> {
        const BAD_LEN: ErrorCode = ErrorCode::BAD_MATCH_BAD_LEN;
        let whole = reader.peek();
        let short = |_| Refusal::new(BAD_LEN, "truncated match");
        let kind = reader.u16().map_err(short)?;
        let length = usize::from(reader.u16().map_err(short)?);
        if kind == MATCH_TYPE_STANDARD && (length != STANDARD_LENGTH || whole.len() < length) {
            return Err(Refusal::new(BAD_LEN, "standard match with a wrong length"));
        }
        if kind != MATCH_TYPE_OXM {
            return Err(Refusal::new(
                ErrorCode::BAD_MATCH_BAD_TYPE,
                format!("match of type {kind} is not OXM"),
            ));
        }
        if length < 4 {
            return Err(Refusal::new(BAD_LEN, "match shorter than its header"));
        }
        reader.skip(padded(length) - 4).map_err(short)?;
        Ok(whole.get(4..length).unwrap_or_default())
    }

    /// Reads the match of a message from a switch, accepting unknown fields.
    pub(crate) fn pull(reader: &mut Reader<'_>) -> Result<Self, Refusal> {
        Self::from_oxm(Self::pull_oxm(reader)?)
    }

    /// Writes the whole `ofp_match`.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        let length = 4 + self.0.len();
        out.put_u16(MATCH_TYPE_OXM);
        out.put_u16(u16::try_from(length).unwrap_or(u16::MAX));
        out.put(&self.0);
        out.zeros(padded(length) - length);
    }
}

/// Appends an unmasked TLV of class OPENFLOW_BASIC.
pub(crate) fn put_basic(out: &mut Vec<u8>, field: u8, value: &[u8]) {
    out.put_u16(class::OPENFLOW_BASIC);
    out.put_u8(field << 1);
    out.put_u8(u8::try_from(value.len()).unwrap_or(u8::MAX));
    out.put(value);
}

/// Appends the set-field TLV for a VLAN id.
pub(crate) fn put_vlan_vid(out: &mut Vec<u8>, vid: u16) {
    put_basic(out, OXM_VLAN_VID, &(vid | VID_PRESENT).to_be_bytes());
}
