//! Ethernet II with up to two VLAN tags (IEEE 802.1Q, 802.1ad).

use crate::{field, Malformed};

pub mod ethertype {
    pub const IPV4: u16 = 0x0800;
    pub const ARP: u16 = 0x0806;
    pub const VLAN: u16 = 0x8100;
    pub const IPV6: u16 = 0x86dd;
    pub const SERVICE_VLAN: u16 = 0x88a8;
}

pub const VLAN_TAG_BYTES: usize = 4;
const HEADER: usize = 14;

/// A 48-bit MAC address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    pub const BROADCAST: Self = Self([0xff; 6]);

    #[must_use]
    #[inline]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Returns the address as a number below 2^48.
    #[must_use]
    #[inline]
    pub const fn to_bits(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_be_bytes([0, 0, a, b, c, d, e, f])
    }

    #[must_use]
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        let [_, _, a, b, c, d, e, f] = bits.to_be_bytes();
        Self([a, b, c, d, e, f])
    }
}

impl std::fmt::Display for MacAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl std::fmt::Debug for MacAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for MacAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a MAC address such as 02:00:00:00:00:01");
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().filter(|part| part.len() == 2);
            *byte = part
                .and_then(|part| u8::from_str_radix(part, 16).ok())
                .ok_or_else(wrong)?;
        }
        parts
            .next()
            .is_none()
            .then_some(Self(bytes))
            .ok_or_else(wrong)
    }
}

/// View of an Ethernet frame.
#[derive(Clone, Copy, Debug)]
pub struct Ethernet<T> {
    buffer: T,
    payload: u8,
}

impl<T: AsRef<[u8]>> Ethernet<T> {
    /// # Errors
    /// [`Malformed::Truncated`] if it is too short for its header and tags.
    #[inline]
    pub fn new_checked(buffer: T) -> Result<Self, Malformed> {
        let bytes = buffer.as_ref();
        let mut payload = HEADER;
        for _ in 0..2 {
            if bytes.len() < payload {
                return Err(Malformed::Truncated);
            }
            match field::get16(bytes, payload - 2) {
                ethertype::VLAN | ethertype::SERVICE_VLAN => payload += VLAN_TAG_BYTES,
                _ => break,
            }
        }
        if bytes.len() < payload {
            return Err(Malformed::Truncated);
        }
        Ok(Self {
            buffer,
            payload: payload as u8,
        })
    }

    #[must_use]
    #[inline]
    pub fn destination(&self) -> MacAddress {
        MacAddress(field::get(self.buffer.as_ref(), 0))
    }

    #[must_use]
    #[inline]
    pub fn source(&self) -> MacAddress {
        MacAddress(field::get(self.buffer.as_ref(), 6))
    }

    /// Returns the EtherType after the tags. A third tag counts as payload.
    #[must_use]
    #[inline]
    pub fn ethertype(&self) -> u16 {
        field::get16(self.buffer.as_ref(), usize::from(self.payload) - 2)
    }

    /// Returns the offset of the payload: 14, 18 or 22.
    #[must_use]
    #[inline]
    pub fn payload_offset(&self) -> usize {
        usize::from(self.payload)
    }

    #[must_use]
    #[inline]
    pub fn payload(&self) -> &[u8] {
        &self.buffer.as_ref()[usize::from(self.payload)..]
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Ethernet<T> {
    #[inline]
    pub fn set_destination(&mut self, address: MacAddress) {
        field::set(self.buffer.as_mut(), 0, address.0);
    }

    #[inline]
    pub fn set_source(&mut self, address: MacAddress) {
        field::set(self.buffer.as_mut(), 6, address.0);
    }
}
