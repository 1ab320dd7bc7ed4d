//! The value of an entry.

/// A load balancer's decision for a flow: the real server (RS), as its index in the switch's table, and the port there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Decision {
    pub rs_index: u32,
    pub rs_port: u16,
}

impl Decision {
    #[inline]
    pub(crate) fn word(self) -> u64 {
        u64::from(self.rs_index) | u64::from(self.rs_port) << 32
    }

    #[inline]
    pub(crate) fn of_word(word: u64) -> Self {
        Self {
            rs_index: word as u32,
            rs_port: (word >> 32) as u16,
        }
    }
}
