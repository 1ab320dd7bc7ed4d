//! The hashes of a flow.

use nf_tables::Key;

use crc::{Crc, Table, CRC_32_ISO_HDLC};

/// The longest key in bytes: the lanes and the tail of IPv6.
const LONGEST: usize = 5 * 8;

/// CRC32 of Ethernet.
static ETHERNET: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISO_HDLC);

/// Two independent hashes of a flow. Another initial value would not make a CRC independent: keys that collide with one collide with all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hashes {
    /// CRC32C, the CRC32 of DPDK (`rte_hash_crc`), on which the paper's prototype is built (4.3): processors and hardware compute it.
    pub first: u32,
    /// CRC32 of Ethernet, for a choice between two places. Zero if not asked for.
    pub second: u32,
}

impl Hashes {
    #[inline]
    pub fn of<K: Key>(key: &K, second: bool) -> Self {
        let mut bytes = [0; LONGEST];
        let lanes = key.lanes();
        let mut length = 0;
        for word in lanes.as_ref().iter().chain([&key.tail()]) {
            bytes[length..length + 8].copy_from_slice(&word.to_le_bytes());
            length += 8;
        }
        let bytes = &bytes[..length];
        Self {
            first: crc32c::crc32c(bytes),
            second: if second { ETHERNET.checksum(bytes) } else { 0 },
        }
    }
}
