//! A captured frame that can be read beyond its end, where it has zeros.

/// A frame's bytes, as far as they were captured.
#[derive(Clone, Copy)]
pub struct Octets<'a>(&'a [u8]);

impl<'a> Octets<'a> {
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns the number of captured bytes.
    #[must_use]
    pub fn len(self) -> usize {
        self.0.len()
    }

    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    #[inline]
    #[must_use]
    pub fn byte(self, at: usize) -> u8 {
        self.0.get(at).copied().unwrap_or(0)
    }

    #[inline]
    #[must_use]
    pub fn array<const N: usize>(self, at: usize) -> [u8; N] {
        let whole = self.0.get(at..).and_then(<[u8]>::first_chunk);
        whole
            .copied()
            .unwrap_or_else(|| std::array::from_fn(|index| self.byte(at + index)))
    }

    /// Reads a number in network byte order.
    #[inline]
    #[must_use]
    pub fn two(self, at: usize) -> u16 {
        u16::from_be_bytes(self.array(at))
    }

    /// Reads a number in network byte order.
    #[inline]
    #[must_use]
    pub fn four(self, at: usize) -> u32 {
        u32::from_be_bytes(self.array(at))
    }

    /// Returns at most `length` bytes from an offset on: those that were captured.
    #[must_use]
    pub fn part(self, at: usize, length: usize) -> &'a [u8] {
        let end = at.saturating_add(length).min(self.0.len());
        self.0.get(at..end).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_follow_the_end() {
        let octets = Octets::new(&[1, 2, 3]);
        assert_eq!(
            (octets.two(1), octets.two(2), octets.four(1)),
            (0x203, 0x300, 0x2030000)
        );
        assert_eq!((octets.byte(3), octets.byte(usize::MAX)), (0, 0));
        assert_eq!(
            (octets.part(1, 1), octets.part(1, usize::MAX)),
            (&[2][..], &[2, 3][..])
        );
        assert_eq!(octets.part(9, 2), b"");
    }
}
