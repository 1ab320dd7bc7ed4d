//! The hashes of a flow.

use nf_tables::Key;

/// The longest key in bytes: the lanes and the tail of IPv6.
const LONGEST: usize = 4 * 8 + 5;

/// Two independent hashes of a flow. Another initial value would not make a CRC independent: keys that collide with one collide with all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hashes {
    /// CRC32 (IEEE 802.3), the paper's (4.3).
    pub first: u32,
    /// CRC32C, for a choice between two places. Zero if not asked for.
    pub second: u32,
}

impl Hashes {
    #[inline]
    pub fn of<K: Key>(key: &K, second: bool) -> Self {
        let mut bytes = [0; LONGEST];
        let lanes = key.lanes();
        let mut length = 0;
        for lane in lanes.as_ref() {
            bytes[length..length + 8].copy_from_slice(&lane.to_le_bytes());
            length += 8;
        }
        bytes[length..length + 5].copy_from_slice(&key.tail().to_le_bytes()[..5]);
        let bytes = &bytes[..length + 5];
        Self {
            first: crc32fast::hash(bytes),
            second: if second { crc32c::crc32c(bytes) } else { 0 },
        }
    }
}
