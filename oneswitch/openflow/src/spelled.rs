//! The spelling of a match in Open vSwitch's own messages (`nx_put_raw`): the
//! order, the names and the masks of its fields.

use crate::canonical::CanonicalMatch;
use crate::field::{class, lookup, word, Prereq, NSH_VENDOR};
use crate::oxm::Match;
use crate::wire::Put;
use crate::{NX_VENDOR, ONF_VENDOR};

/// Class, number and experimenter of a field.
type Name = (u16, u8, Option<u32>);

const ETH_IP: u64 = 0x0800;
const ETH_ARP: u64 = 0x0806;
const ETH_RARP: u64 = 0x8035;
const ETH_IPV6: u64 = 0x86dd;
const ETH_MPLS: [u64; 2] = [0x8847, 0x8848];
const PACKET_TYPE: Name = openflow(44);
const REGISTERS: u8 = 16;

const fn openflow(field: u8) -> Name {
    (class::OPENFLOW_BASIC, field, None)
}

const fn nicira(field: u8) -> Name {
    (class::NXM_1, field, None)
}

const fn ericsson(field: u8) -> Name {
    (class::ERICSSON, field, None)
}

const fn experimenter(vendor: u32, field: u8) -> Name {
    (class::EXPERIMENTER, field, Some(vendor))
}

impl Match {
    /// Returns the match as Open vSwitch spells it over OpenFlow 1.3; one that
    /// it does not take stays as it is.
    #[must_use]
    pub fn spelled(&self) -> Self {
        let Ok(key) = self.canonical() else {
            return self.clone();
        };
        let mut speller = Speller {
            key: &key,
            out: Vec::with_capacity(self.0.len()),
            is_layered: false,
        };
        speller.put_all(self);
        Self(speller.out.into())
    }
}

/// Value and mask of a field.
#[derive(Clone, Copy)]
struct Bits {
    value: u64,
    mask: u64,
}

struct Speller<'a> {
    key: &'a CanonicalMatch,
    out: Vec<u8>,
    /// Whether a field so far is of an Ethernet frame.
    is_layered: bool,
}

impl Speller<'_> {
    /// Returns the bits of a field of `width` bytes.
    fn bits(&self, word: u8, shift: u8, width: usize) -> Bits {
        let (value, mask) = self.key.word(u32::from(word));
        let all = u64::MAX >> (64 - 8 * width);
        Bits {
            value: value >> shift & all,
            mask: mask >> shift & all,
        }
    }

    /// Returns a part of a field, moved to the right.
    fn part(&self, word: u8, shift: u8, bits: u32) -> Bits {
        let (value, mask) = self.key.word(u32::from(word));
        let all = (1 << bits) - 1;
        Bits {
            value: value >> shift & all,
            mask: mask >> shift & all,
        }
    }

    /// Writes a field that is matched on.
    fn put(&mut self, name: Name, width: usize, bits: Bits) {
        if bits.mask == 0 {
            return;
        }
        let all = u64::MAX >> (64 - 8 * width);
        let tail = |number: u64| number.to_be_bytes().into_iter().skip(8 - width);
        let value: Vec<u8> = tail(bits.value).collect();
        let mask: Option<Vec<u8>> = (bits.mask != all).then(|| tail(bits.mask).collect());
        self.put_raw(name, &value, mask.as_deref());
    }

    /// Writes a field that cannot have a mask, if any bit of it is matched on.
    fn put_whole(&mut self, name: Name, width: usize, bits: Bits) {
        let mask = match bits.mask {
            0 => 0,
            _ => u64::MAX,
        };
        let all = u64::MAX >> (64 - 8 * width);
        let value = bits.value;
        self.put(
            name,
            width,
            Bits {
                value,
                mask: mask & all,
            },
        );
    }

    /// Writes a field at its place in the key.
    fn put_at(&mut self, name: Name, width: usize, word: u8, shift: u8) {
        self.put(name, width, self.bits(word, shift, width));
    }

    /// Writes a field of two words.
    fn put_wide(&mut self, name: Name, word: u8) {
        let (high, low) = (self.bits(word, 0, 8), self.bits(word + 1, 0, 8));
        if (high.mask, low.mask) == (0, 0) {
            return;
        }
        let both = |high: u64, low: u64| [high.to_be_bytes(), low.to_be_bytes()].concat();
        let is_full = (high.mask, low.mask) == (u64::MAX, u64::MAX);
        let mask = (!is_full).then(|| both(high.mask, low.mask));
        self.put_raw(name, &both(high.value, low.value), mask.as_deref());
    }

    fn put_raw(&mut self, (class, field, vendor): Name, value: &[u8], mask: Option<&[u8]>) {
        let length = value.len() + mask.map_or(0, <[u8]>::len) + 4 * usize::from(vendor.is_some());
        self.out.put_u16(class);
        self.out.put_u8(field << 1 | u8::from(mask.is_some()));
        self.out.put_u8(u8::try_from(length).unwrap_or(u8::MAX));
        if let Some(vendor) = vendor {
            self.out.put_u32(vendor);
        }
        self.out.put(value);
        self.out.put(mask.unwrap_or_default());
        let known = lookup(class, field, vendor);
        self.is_layered |= known.is_some_and(|field| field.prereq != Prereq::Nothing);
    }

    fn put_all(&mut self, written: &Match) {
        let packet_type = self.bits(word::L2, 32, 4);
        let is_frame = packet_type.mask != 0 && packet_type.value == 0;
        if !is_frame {
            self.put(PACKET_TYPE, 4, packet_type);
        }
        self.put_at(experimenter(NX_VENDOR, 0), 4, word::HIDDEN, 32);
        self.put_at(nicira(36), 4, word::HIDDEN, 0);
        self.put_at(nicira(37), 4, word::CONJ, 32);
        self.put_at(openflow(0), 4, word::PORT, 32);
        self.put_at(experimenter(ONF_VENDOR, 43), 4, word::PORT, 0);
        self.put_at(openflow(4), 6, word::ETH_SRC, 16);
        self.put_at(openflow(3), 6, word::ETH_DST, 16);
        self.put_at(openflow(5), 2, word::L2, 16);
        self.put_vlan();
        let ethertype = self.ethertype();
        match ethertype {
            mpls if ETH_MPLS.contains(&mpls) => self.put_mpls(),
            ETH_IP | ETH_IPV6 => self.put_ip(ethertype),
            ETH_ARP | ETH_RARP => self.put_arp(),
            _ => {}
        }
        self.put_tunnel(written);
        self.put_nsh();
        for number in 0..REGISTERS {
            let shift = if number % 2 == 0 { 32 } else { 0 };
            self.put_at(nicira(number), 4, word::REGS + number / 2, shift);
        }
        self.put_at(nicira(33), 4, word::CONJ, 0);
        self.put_connection();
        self.put_at(openflow(2), 8, word::METADATA, 0);
        if is_frame && !self.is_layered {
            let rest = std::mem::take(&mut self.out);
            self.put(PACKET_TYPE, 4, packet_type);
            self.out.put(&rest);
        }
    }

    /// `get_dl_type`.
    fn ethertype(&self) -> u64 {
        match self.bits(word::L2, 32, 4).value {
            0 => self.bits(word::L2, 16, 2).value,
            other if other >> 16 == 1 => other & 0xffff,
            _ => 0x05ff,
        }
    }

    fn put_vlan(&mut self) {
        const VID_PRESENT: u64 = 0x1fff;
        let tci = self.bits(word::L2, 0, 2);
        let vid = Bits {
            value: tci.value & VID_PRESENT,
            mask: tci.mask & VID_PRESENT,
        };
        match vid.mask {
            VID_PRESENT => self.put_whole(openflow(6), 2, vid),
            _ => self.put(openflow(6), 2, vid),
        }
        if vid.value != 0 {
            self.put_whole(openflow(7), 1, self.part(word::L2, 13, 3));
        }
    }

    fn put_mpls(&mut self) {
        self.put_whole(openflow(35), 1, self.part(word::MPLS, 32 + 9, 3));
        self.put_whole(openflow(36), 1, self.part(word::MPLS, 32 + 8, 1));
        self.put_whole(nicira(30), 1, self.part(word::MPLS, 32, 8));
        self.put_whole(openflow(34), 4, self.part(word::MPLS, 32 + 12, 20));
    }

    fn put_ip(&mut self, ethertype: u64) {
        if ethertype == ETH_IP {
            self.put_at(openflow(11), 4, word::IPV4, 32);
            self.put_at(openflow(12), 4, word::IPV4, 0);
        } else {
            self.put_wide(openflow(26), word::IPV6_SRC);
            self.put_wide(openflow(27), word::IPV6_DST);
        }
        let fragment = self.part(word::L4, 0, 2);
        match fragment.mask {
            3 => self.put_whole(nicira(26), 1, fragment),
            _ => self.put(nicira(26), 1, fragment),
        }
        self.put_whole(openflow(8), 1, self.part(word::L4, 18, 6));
        self.put_whole(openflow(9), 1, self.part(word::L4, 16, 2));
        self.put_whole(nicira(29), 1, self.bits(word::L4, 8, 1));
        self.put_at(openflow(28), 4, word::MPLS, 0);
        let protocol = self.bits(word::L4, 24, 1);
        if protocol.mask == 0 {
            return;
        }
        self.put_whole(openflow(10), 1, protocol);
        match (protocol.value, ethertype) {
            (6, _) => {
                self.put_ports(13);
                let flags = experimenter(ONF_VENDOR, 42);
                self.put_at(flags, 2, word::ETH_DST, 0);
            }
            (17, _) => self.put_ports(15),
            (132, _) => self.put_ports(17),
            (1, ETH_IP) => self.put_icmp(19),
            (58, ETH_IPV6) => {
                self.put_icmp(29);
                self.put_neighbour();
            }
            _ => {}
        }
    }

    fn put_ports(&mut self, first: u8) {
        self.put_at(openflow(first), 2, word::L4, 48);
        self.put_at(openflow(first + 1), 2, word::L4, 32);
    }

    fn put_icmp(&mut self, first: u8) {
        self.put_whole(openflow(first), 1, self.bits(word::L4, 48, 2));
        self.put_whole(openflow(first + 1), 1, self.bits(word::L4, 32, 2));
    }

    /// Writes the fields of neighbour discovery.
    fn put_neighbour(&mut self) {
        const SOLICIT: u64 = 135;
        const ADVERT: u64 = 136;
        let kind = self.bits(word::L4, 48, 2).value;
        let code = self.bits(word::L4, 32, 2).value;
        if code != 0 || !matches!(kind, SOLICIT | ADVERT) {
            return;
        }
        self.put_whole(ericsson(1), 4, self.bits(word::ND_RESERVED, 32, 4));
        self.put_wide(openflow(31), word::ND_TARGET);
        self.put_whole(ericsson(2), 1, self.bits(word::ETH_DST, 0, 2));
        match kind {
            SOLICIT => self.put_at(openflow(32), 6, word::ARP_SHA, 16),
            _ => self.put_at(openflow(33), 6, word::ARP_THA, 16),
        }
    }

    fn put_arp(&mut self) {
        self.put_whole(openflow(21), 2, self.bits(word::L4, 24, 1));
        self.put_at(openflow(22), 4, word::IPV4, 32);
        self.put_at(openflow(23), 4, word::IPV4, 0);
        self.put_at(openflow(24), 6, word::ARP_SHA, 16);
        self.put_at(openflow(25), 6, word::ARP_THA, 16);
    }

    fn put_tunnel(&mut self, written: &Match) {
        self.put_at(openflow(38), 8, word::TUN_ID, 0);
        self.put_at(nicira(104), 2, word::TUN, 48);
        self.put_at(nicira(31), 4, word::TUN_IPV4, 32);
        self.put_at(nicira(32), 4, word::TUN_IPV4, 0);
        self.put_wide(nicira(109), word::TUN_IPV6_SRC);
        self.put_wide(nicira(110), word::TUN_IPV6_DST);
        self.put_at(nicira(38), 2, word::TUN, 32);
        self.put_at(nicira(39), 1, word::TUN, 24);
        self.put_options(written);
        let more = |field| experimenter(NX_VENDOR, field);
        self.put_at(more(11), 4, word::TUN_MORE, 32);
        self.put_at(more(12), 1, word::TUN, 16);
        self.put_at(more(13), 1, word::TUN, 8);
        self.put_at(more(14), 1, word::TUN, 0);
        self.put_at(more(15), 1, word::TUN_MORE, 24);
        self.put_at(more(16), 1, word::TUN_MORE, 16);
    }

    /// Copies the tunnel's options, whose length the key lacks.
    fn put_options(&mut self, written: &Match) {
        let is_option = |class, field| class == class::NXM_1 && (40..=103).contains(&field);
        let options = written.fields().filter(|f| is_option(f.class, f.field));
        let mut options: Vec<_> = options.collect();
        options.sort_by_key(|option| option.field);
        for option in options {
            let is_partial = |mask: &&[u8]| mask.iter().any(|byte| *byte != 0xff);
            let mask = option.mask.filter(is_partial);
            self.put_raw(nicira(option.field), option.value, mask);
        }
    }

    fn put_nsh(&mut self) {
        let nsh = |field| experimenter(NSH_VENDOR, field);
        self.put_at(nsh(1), 1, word::NSH, 24);
        self.put_at(nsh(10), 1, word::NSH, 0);
        self.put_at(nsh(2), 1, word::NSH, 16);
        self.put_at(nsh(3), 1, word::NSH, 8);
        self.put_whole(nsh(4), 4, self.part(word::NSH, 32 + 8, 24));
        self.put_at(nsh(5), 1, word::NSH, 32);
        for number in 0..4 {
            let shift = if number % 2 == 0 { 32 } else { 0 };
            self.put_at(nsh(6 + number), 4, word::NSH_CONTEXT + number / 2, shift);
        }
    }

    fn put_connection(&mut self) {
        self.put_at(nicira(105), 4, word::CT, 32);
        self.put_at(nicira(106), 2, word::CT_L4, 48);
        self.put_at(nicira(107), 4, word::CT, 0);
        self.put_wide(nicira(108), word::CT_LABEL);
        self.put_at(nicira(120), 4, word::CT_IPV4, 32);
        self.put_wide(nicira(122), word::CT_IPV6_SRC);
        self.put_at(nicira(121), 4, word::CT_IPV4, 0);
        self.put_wide(nicira(123), word::CT_IPV6_DST);
        if self.bits(word::CT_L4, 8, 1).value != 0 {
            self.put_at(nicira(119), 1, word::CT_L4, 8);
            self.put_at(nicira(124), 2, word::CT_L4, 32);
            self.put_at(nicira(125), 2, word::CT_L4, 16);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::oxm::OxmField;
    use crate::wire::Reader;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        (0..hex.len()).step_by(2).map(digits).collect()
    }

    /// Texts written to Open vSwitch 3.1, and its reports of them.
    const REPORTED: [(&str, &str, &str); 8] = [
        ("nothing", "", ""),
        (
            "order",
            "80000a02080080001404c0a8000180000004000000018000060601020304050680000c0211ff",
            "",
        ),
        ("a full mask", "80000904000000000001ffffffff", ""),
        ("an empty mask", "80000204000000000000000000", ""),
        ("a masked tag", "80000d0410001000", "80000d0410001000"),
        (
            "a tag's priority",
            "80000c02100580000e0103",
            "80000c02100580000e0103",
        ),
        ("no tag", "80000c020000", "80000c020000"),
        (
            "NXM",
            "00000a02080000000e040a000001",
            "80000a020800800016040a000001",
        ),
    ];

    #[test]
    fn a_spelled_match_is_the_same_match() {
        for (what, written, reported) in REPORTED {
            let Ok(written) = Match::from_oxm(bytes(written)) else {
                continue;
            };
            let Ok(key) = written.canonical() else {
                continue;
            };
            let spelled = written.spelled();
            assert_eq!(spelled.canonical().unwrap(), key, "{what}");
            assert_eq!(spelled.spelled(), spelled, "{what}: a fixed point");
            if !reported.is_empty() {
                assert_eq!(spelled.as_oxm(), bytes(reported), "{what}");
            }
        }
    }

    #[test]
    fn every_field_is_spelled() {
        let classes = [0, 1, 0x8000];
        for class in classes {
            for field in 0..=127u8 {
                let Some(known) = lookup(class, field, None) else {
                    continue;
                };
                let mut oxm = Vec::new();
                oxm.put_u16(class);
                oxm.put(&[field << 1, known.width]);
                oxm.zeros(usize::from(known.width));
                let mut reader = Reader::new(&oxm);
                OxmField::pull(&mut reader).unwrap();
                let written = Match::from_oxm(oxm).unwrap();
                let Ok(key) = written.canonical() else {
                    continue;
                };
                // Without what it requires, Open vSwitch refuses most.
                if known.prereq == Prereq::Nothing {
                    let same = written.spelled().canonical().unwrap();
                    assert_eq!(same, key, "class {class:#x} field {field}");
                }
            }
        }
    }
}
