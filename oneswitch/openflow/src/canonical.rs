//! The rule key of a match: what Open vSwitch compares to identify rules of one
//! table and priority (`match_equal` over `struct flow`).

use crate::error::{ErrorCode, Refusal};
use crate::field::{lookup, word, Field, Kind, Prereq};
use crate::oxm::{Match, OxmField, VID_PRESENT};
use crate::wire::Reader;

/// Set in a key's bitmap when tunnel options follow its words.
const OPTIONS: u64 = 1 << 63;
/// Words of a tunnel option's value or mask: at most 124 bytes, right-aligned.
const OPTION_WORDS: usize = 16;
/// Words of one option in a key: index, value, mask.
const OPTION_ENTRY: usize = 1 + 2 * OPTION_WORDS;

/// Two matches are equal iff an Open vSwitch classifier treats them as the same
/// rule key: the order of fields does not matter, values are masked, full masks
/// count as none, empty masks vanish, and the NXM and OXM spellings of a field,
/// or of its parts, are equal.
///
/// The box holds a bitmap of the words that are matched on, then the value
/// and the mask of each, then the tunnel options.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct CanonicalMatch(Box<[u64]>);

impl CanonicalMatch {
    fn bitmap(&self) -> u64 {
        self.0.first().copied().unwrap_or_default()
    }

    /// Returns value and mask of a word, zeros if it is not matched.
    pub(crate) fn word(&self, index: u32) -> (u64, u64) {
        let bitmap = self.bitmap();
        if bitmap & (1 << index) == 0 {
            return (0, 0);
        }
        let before = (bitmap & ((1 << index) - 1)).count_ones() as usize;
        match self.0.get(1 + 2 * before..) {
            Some(&[value, mask, ..]) => (value, mask),
            _ => (0, 0),
        }
    }

    /// Iterates over the tunnel options: index, value and mask of each.
    fn options(&self) -> impl Iterator<Item = (u64, &[u64], &[u64])> {
        let words = (self.bitmap() & !OPTIONS).count_ones() as usize;
        let tail = self.0.get(1 + 2 * words..).unwrap_or_default();
        tail.chunks_exact(OPTION_ENTRY).filter_map(|entry| {
            let (&index, bits) = entry.split_first()?;
            let (value, mask) = bits.split_at_checked(OPTION_WORDS)?;
            Some((index, value, mask))
        })
    }

    /// Tells whether every packet matches.
    pub fn is_empty(&self) -> bool {
        self.bitmap() == 0
    }

    /// Returns the matched port, in OpenFlow 1.3 numbers.
    pub fn in_port(&self) -> Option<u32> {
        let (value, mask) = self.word(u32::from(word::PORT));
        (mask >> 32 == u64::from(u32::MAX)).then_some((value >> 32) as u32)
    }

    /// Tells whether every packet matches.
    pub fn is_any(&self) -> bool {
        self.bitmap() == 0
    }

    /// Tells whether every packet that matches has a VLAN tag.
    pub fn has_tag(&self) -> bool {
        let (value, mask) = self.word(u32::from(word::L2));
        value & mask & u64::from(VID_PRESENT) != 0
    }

    /// Tells whether this match is equal to or more general than `other`:
    /// whether a non-strict flow-mod with this match affects a rule with the
    /// other.
    pub fn covers(&self, other: &Self) -> bool {
        if self.bitmap() & !other.bitmap() != 0 {
            return false;
        }
        bits(self.bitmap() & !OPTIONS).all(|index| {
            let (value, mask) = self.word(index);
            let (other_value, other_mask) = other.word(index);
            mask & !other_mask == 0 && (value ^ other_value) & mask == 0
        }) && (self.bitmap() & OPTIONS == 0
            || self.options().all(|(index, value, mask)| {
                other
                    .options()
                    .any(|(other_index, other_value, other_mask)| {
                        index == other_index
                            && mask.iter().zip(other_mask).all(|(m, o)| m & !o == 0)
                            && value
                                .iter()
                                .zip(other_value)
                                .zip(mask)
                                .all(|((v, o), m)| (v ^ o) & m == 0)
                    })
            }))
    }

    /// Tells whether some packet can match both.
    pub fn overlaps(&self, other: &Self) -> bool {
        let both = self.bitmap() & other.bitmap();
        bits(both & !OPTIONS).all(|index| {
            let (value, mask) = self.word(index);
            let (other_value, other_mask) = other.word(index);
            (value ^ other_value) & mask & other_mask == 0
        }) && (both & OPTIONS == 0
            || self.options().all(|(index, value, mask)| {
                other
                    .options()
                    .all(|(other_index, other_value, other_mask)| {
                        index != other_index
                            || value
                                .iter()
                                .zip(other_value)
                                .zip(mask.iter().zip(other_mask))
                                .all(|((v, o), (m, n))| (v ^ o) & m & n == 0)
                    })
            }))
    }
}

/// The positions of the one-bits.
fn bits(mut bitmap: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let index = (bitmap != 0).then(|| bitmap.trailing_zeros())?;
        bitmap &= bitmap - 1;
        Some(index)
    })
}

/// Reads a big-endian number of at most eight bytes.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |n, &byte| n << 8 | u64::from(byte))
}

/// A match laid out as words, before it is packed.
pub(crate) struct Storage {
    value: [u64; word::COUNT],
    mask: [u64; word::COUNT],
    bitmap: u64,
    options: Vec<[u64; OPTION_ENTRY]>,
    /// Whether they are checked.
    prerequisites: bool,
}

impl Storage {
    /// Reads OXM TLVs as `nx_pull_raw` does, with the same order of checks;
    /// those of prerequisites are optional.
    pub(crate) fn build(oxm: &[u8], prerequisites: bool) -> Result<Self, Refusal> {
        let mut storage = Self {
            value: [0; word::COUNT],
            mask: [0; word::COUNT],
            bitmap: 0,
            options: Vec::new(),
            prerequisites,
        };
        let mut reader = Reader::new(oxm);
        while !reader.is_empty() {
            let tlv = OxmField::pull(&mut reader)?;
            storage.add(&tlv).map_err(|error| {
                let detail = format!(
                    "OXM class {:#06x} field {}{}",
                    tlv.class,
                    tlv.field,
                    if tlv.has_mask { " with a mask" } else { "" }
                );
                Refusal::new(error, detail)
            })?;
        }
        Ok(storage)
    }

    fn add(&mut self, tlv: &OxmField<'_>) -> Result<(), ErrorCode> {
        if let Some(mask) = tlv.mask {
            if tlv.value.iter().zip(mask).any(|(v, m)| v & !m != 0) {
                return Err(ErrorCode::BAD_MATCH_BAD_WILDCARDS);
            }
        }
        let field = lookup(tlv.class, tlv.field, tlv.experimenter)
            .filter(|field| {
                field.kind == Kind::TunMetadata || usize::from(field.width) == tlv.value.len()
            })
            .ok_or(ErrorCode::BAD_MATCH_BAD_FIELD)?;
        if field.kind == Kind::TunMetadata {
            return self.add_option(field.word, tlv.value, tlv.mask);
        }
        let full = tlv.mask.is_none_or(|m| m.iter().all(|&b| b == 0xff));
        let empty = tlv.mask.is_some_and(|m| m.iter().all(|&b| b == 0));
        if !field.maskable && !full && !empty {
            return Err(ErrorCode::BAD_MATCH_BAD_MASK);
        }
        if field.width == 16 {
            return self.add_wide(&field, tlv, empty);
        }
        let value = number(tlv.value);
        let mask = match tlv.mask {
            Some(mask) if !full => number(mask),
            _ => u64::MAX >> (64 - 8 * u32::from(field.width)),
        };
        let bits = convert(&field, value, mask, full)?;
        self.check_prereq(&field)?;
        if self.is_matched(field.word, bits.owned << field.shift) {
            return Err(ErrorCode::BAD_MATCH_DUP_FIELD);
        }
        if !empty {
            self.put(
                field.word,
                (bits.value & bits.mask) << field.shift,
                bits.mask << field.shift,
            );
        }
        self.imply_ethernet(&field);
        Ok(())
    }

    /// Adds a 128-bit field, in two words.
    fn add_wide(
        &mut self,
        field: &Field,
        tlv: &OxmField<'_>,
        empty: bool,
    ) -> Result<(), ErrorCode> {
        let halves = |bytes: &[u8]| match bytes.split_at_checked(8) {
            Some((high, low)) => (number(high), number(low)),
            None => (0, 0),
        };
        self.check_prereq(field)?;
        if self.is_matched(field.word, u64::MAX) || self.is_matched(field.word + 1, u64::MAX) {
            return Err(ErrorCode::BAD_MATCH_DUP_FIELD);
        }
        let (high, low) = halves(tlv.value);
        let (high_mask, low_mask) = tlv.mask.map_or((u64::MAX, u64::MAX), halves);
        if !empty {
            self.put(field.word, high & high_mask, high_mask);
            self.put(field.word + 1, low & low_mask, low_mask);
        }
        self.imply_ethernet(field);
        Ok(())
    }

    /// Adds a tunnel option. Only the switch knows the table that defines its
    /// length, so the key takes the given bytes, right-aligned; an all-zero
    /// mask still matches on the option's presence.
    fn add_option(
        &mut self,
        index: u8,
        value: &[u8],
        mask: Option<&[u8]>,
    ) -> Result<(), ErrorCode> {
        let index = u64::from(index);
        if self.options.iter().any(|entry| entry[0] == index) {
            return Err(ErrorCode::BAD_MATCH_DUP_FIELD);
        }
        let mut entry = [0; OPTION_ENTRY];
        entry[0] = index;
        let (values, masks) = entry[1..].split_at_mut(OPTION_WORDS);
        for (slot, chunk) in values.iter_mut().rev().zip(value.rchunks(8)) {
            *slot = number(chunk);
        }
        // Without a mask it is exact in all bytes that it is mapped to, whose number may differ (`nx_pull_entry__`).
        let is_partial = |mask: &&[u8]| mask.iter().any(|&byte| byte != 0xff);
        let mask = mask.filter(is_partial).unwrap_or(&[0xff; 8 * OPTION_WORDS]);
        for (slot, chunk) in masks.iter_mut().rev().zip(mask.rchunks(8)) {
            *slot = number(chunk);
        }
        self.options.push(entry);
        Ok(())
    }

    /// Any layer of a packet implies packet_type (0,0), Ethernet
    /// (`match_add_ethernet_prereq`).
    fn imply_ethernet(&mut self, field: &Field) {
        const PACKET_TYPE: u64 = 0xffff_ffff << 32;
        if field.prereq != Prereq::Nothing && !self.is_matched(word::L2, PACKET_TYPE) {
            self.put(word::L2, 0, PACKET_TYPE);
        }
    }

    /// Returns the value of a field so far; zero if it is not matched.
    fn get(&self, word: u8, shift: u8, width: u32) -> u64 {
        let word = self.value.get(usize::from(word)).copied();
        word.unwrap_or_default() >> shift & (u64::MAX >> (64 - width))
    }

    /// `get_dl_type`: the content of the packet type.
    fn ethertype(&self) -> u64 {
        match self.get(word::L2, 32, 32) {
            0 => self.get(word::L2, 16, 16),
            // Name space 1: ethertypes.
            other if other >> 16 == 1 => other & 0xffff,
            _ => 0x05ff,
        }
    }

    /// `mf_are_match_prereqs_ok`.
    fn check_prereq(&self, field: &Field) -> Result<(), ErrorCode> {
        if !self.prerequisites || field.prereq == Prereq::Nothing || self.is_met(field.prereq) {
            return Ok(());
        }
        Err(ErrorCode::BAD_MATCH_BAD_PREREQ)
    }

    fn is_met(&self, prereq: Prereq) -> bool {
        const IPV4: u64 = 0x0800;
        const IPV6: u64 = 0x86dd;
        const SOLICIT: u64 = 135;
        const ADVERT: u64 = 136;
        let ethertype = self.ethertype();
        let is_ip = matches!(ethertype, IPV4 | IPV6);
        let protocol = self.get(word::L4, 24, 8);
        let first_fragment = self.get(word::L4, 0, 8) & 2 == 0;
        let nd_type = || match self.get(word::L4, 32, 16) {
            0 if ethertype == IPV6 && protocol == 58 => self.get(word::L4, 48, 16),
            _ => 0,
        };
        let ethernet = self.get(word::L2, 32, 32) == 0;
        match prereq {
            Prereq::Nothing => true,
            Prereq::Ethernet => ethernet,
            Prereq::Arp => matches!(ethertype, 0x0806 | 0x8035),
            Prereq::Ipv4 => ethertype == IPV4,
            Prereq::Ipv6 => ethertype == IPV6,
            Prereq::VlanVid => ethernet && self.get(word::L2, 12, 1) == 1,
            Prereq::Mpls => matches!(ethertype, 0x8847 | 0x8848),
            Prereq::IpAny => is_ip,
            Prereq::Nsh => ethertype == 0x894f,
            Prereq::CtValid => self.is_tracked(),
            Prereq::Tcp => is_ip && protocol == 6 && first_fragment,
            Prereq::Udp => is_ip && protocol == 17 && first_fragment,
            Prereq::Sctp => is_ip && protocol == 132 && first_fragment,
            Prereq::Icmpv4 => ethertype == IPV4 && protocol == 1,
            Prereq::Icmpv6 => ethertype == IPV6 && protocol == 58,
            Prereq::Nd => matches!(nd_type(), SOLICIT | ADVERT),
            Prereq::NdSolicit => nd_type() == SOLICIT,
            Prereq::NdAdvert => nd_type() == ADVERT,
        }
    }

    /// `is_ct_valid` for a match: new, est, rel, rpl, snat or dnat is set, or
    /// trk is and inv is not.
    fn is_tracked(&self) -> bool {
        let (inv, trk) = (1 << 4, 1 << 5);
        let state = self.get(word::CT, 32, 32);
        state & !(inv | trk) != 0
            || (state & trk != 0 && state & inv == 0 && self.is_matched(word::CT, inv << 32))
    }

    /// Tells whether the addresses of a tracked connection have a different IP
    /// version from the packet (`ofputil_decode_flow_mod`).
    pub(crate) fn mismatches_connection(&self) -> bool {
        let ethertype = self.get(word::L2, 16, 16);
        let wide = [word::CT_IPV6_SRC, word::CT_IPV6_DST];
        let ipv6 = wide
            .iter()
            .any(|&word| self.is_matched(word, u64::MAX) || self.is_matched(word + 1, u64::MAX));
        self.is_matched(word::CT_IPV4, u64::MAX) && ethertype != 0x0800
            || ipv6 && ethertype != 0x86dd
    }

    fn is_matched(&self, word: u8, bits: u64) -> bool {
        self.mask
            .get(usize::from(word))
            .is_some_and(|mask| mask & bits != 0)
    }

    fn put(&mut self, word: u8, value: u64, mask: u64) {
        let index = usize::from(word);
        if let (Some(v), Some(m)) = (self.value.get_mut(index), self.mask.get_mut(index)) {
            *v |= value;
            *m |= mask;
            if mask != 0 {
                self.bitmap |= 1 << word;
            }
        }
    }

    pub(crate) fn into_canonical(mut self) -> CanonicalMatch {
        let count = self.bitmap.count_ones() as usize;
        let mut packed = Vec::with_capacity(1 + 2 * count + OPTION_ENTRY * self.options.len());
        let options = if self.options.is_empty() { 0 } else { OPTIONS };
        packed.push(self.bitmap | options);
        for index in bits(self.bitmap) {
            let index = index as usize;
            if let (Some(&value), Some(&mask)) = (self.value.get(index), self.mask.get(index)) {
                packed.extend([value & mask, mask]);
            }
        }
        self.options.sort_unstable();
        for entry in &self.options {
            packed.extend(entry);
        }
        CanonicalMatch(packed.into_boxed_slice())
    }
}

/// A field's bits before they are shifted into their word.
struct Bits {
    value: u64,
    mask: u64,
    /// The bits that make a second match on the field a duplicate
    /// (`mf_is_all_wild`).
    owned: u64,
}

/// Checks a value (`mf_is_value_valid`) and converts it to its form in `struct
/// flow` (lib/match.c). `mask` is that of the TLV; `full`: the TLV has none.
fn convert(field: &Field, value: u64, mask: u64, full: bool) -> Result<Bits, ErrorCode> {
    const BAD_VALUE: ErrorCode = ErrorCode::BAD_MATCH_BAD_VALUE;
    if value > field.limit {
        return Err(BAD_VALUE);
    }
    let all = u64::MAX >> (64 - 8 * u32::from(field.width));
    let same = |value, mask, owned| Bits { value, mask, owned };
    Ok(match field.kind {
        Kind::Plain | Kind::TunMetadata => same(value, mask, all),
        Kind::Port16 => {
            let port = u64::from(crate::port::from_openflow10(value as u16));
            same(port, 0xffff_ffff, 0xffff_ffff)
        }
        Kind::Port32 => {
            if (0xff00..u64::from(crate::port_no::MAX)).contains(&value) {
                return Err(BAD_VALUE);
            }
            same(value, mask, all)
        }
        Kind::VlanVid => same(value, mask & 0x1fff, 0x1fff),
        // Matching a priority requires a tag.
        Kind::VlanPcp => same(value << 13 | 0x1000, 0xf000, 0xe000),
        Kind::MplsLabel => same(value << 12, 0xffff_f000, 0xffff_f000),
        Kind::MplsTc => same(value << 9, 0xe00, 0xe00),
        Kind::MplsBos => same(value << 8, 0x100, 0x100),
        Kind::Dscp if value & 3 != 0 => return Err(BAD_VALUE),
        Kind::Dscp => same(value, 0xfc, 0xfc),
        Kind::DscpShifted => same(value << 2, 0xfc, 0xfc),
        Kind::Ecn => same(value, 3, 3),
        Kind::Frag => same(value, if full { 3 } else { mask }, 3),
        Kind::ArpOp => same(value, 0xff, 0xff),
        Kind::Widened => same(value, 0xffff, 0xffff),
        Kind::CtState => same(value, mask & 0xff, 0xff),
        Kind::TunFlags => same(value, mask & 1, 1),
        Kind::Ipv6Label if mask & 0xf_ffff == 0xf_ffff => same(value, all, all),
        Kind::Ipv6Label => same(value, mask, all),
        Kind::NshSpi => same(value << 8, 0xffff_ff00, 0xffff_ff00),
        Kind::NshSi => same(value, 0xff, 0xff),
        Kind::NshMdtype if !matches!(value, 1 | 2) => return Err(BAD_VALUE),
        Kind::NshMdtype => same(value, 0xff, 0xff),
        // match_set_tun_erspan_ver_masked() of 3.1 stores the value as mask.
        Kind::ErspanVer => same(value & mask, value, 0xff),
    })
}

/// Tells whether set-field may write a value: the part of
/// `decode_ofpat_set_field` that depends on the value.
pub(crate) fn is_settable(field: &Field, value: &[u8]) -> bool {
    match field.kind {
        Kind::TunMetadata => true,
        _ if field.width > 8 => true,
        Kind::VlanVid if number(value) & 0x1000 == 0 => false,
        _ => convert(field, number(value), u64::MAX, true).is_ok(),
    }
}

impl Match {
    /// Checks TLVs as Open vSwitch checks the match of a request.
    pub fn checked(oxm: &[u8]) -> Result<Self, Refusal> {
        Storage::build(oxm, true)?;
        Ok(Self(oxm.into()))
    }

    /// Tells whether a field lacks its prerequisite.
    pub fn lacks_prerequisite(&self) -> bool {
        Storage::build(&self.0, true).is_err()
    }

    /// Returns the rule key: see [`CanonicalMatch`]. Fails for unknown, invalid
    /// or duplicate fields, but does not check prerequisites.
    pub fn canonical(&self) -> Result<CanonicalMatch, Refusal> {
        Ok(Storage::build(&self.0, false)?.into_canonical())
    }

    /// Reads the match of a request.
    pub(crate) fn pull_checked(reader: &mut Reader<'_>) -> Result<(Self, Storage), Refusal> {
        let oxm = Self::pull_oxm(reader)?;
        let storage = Storage::build(oxm, true)?;
        Ok((Self(oxm.into()), storage))
    }
}
