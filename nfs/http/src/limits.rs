//! Limits on heads.

use crate::Rejection;

/// Limits on a request's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the whole head; 431 beyond.
    pub head_bytes: usize,
    /// Bytes of the target; 414 beyond.
    pub target_bytes: usize,
    /// Header lines; 431 beyond.
    pub headers: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head_bytes: 64 << 10,
            target_bytes: 8 << 10,
            headers: 100,
        }
    }
}

impl Limits {
    pub(crate) fn head_too_long(&self, head: &[u8]) -> Rejection {
        Rejection::new(431, "head", head, "fewer bytes, see the limit of heads")
    }

    pub(crate) fn target_too_long(&self, target: &[u8]) -> Rejection {
        Rejection::new(
            414,
            "target",
            target,
            "fewer bytes, see the limit of targets",
        )
    }
}
