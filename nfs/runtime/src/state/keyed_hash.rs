//! SipHash-1-3 (Aumasson and Bernstein, 2012) with a key that is part of the state: without the key, an attacker cannot choose keys that collide.
//!
//! It is implemented here because an instance must hash like its predecessor, whatever compiler built either; the standard library does not fix an algorithm.

use std::hash::{BuildHasher, Hasher, RandomState};

/// The secret key of one table.
#[derive(Clone, Copy)]
pub struct HashKey(pub [u64; 2]);

impl HashKey {
    /// Generates a random key.
    #[must_use]
    pub fn random() -> Self {
        let word = || RandomState::new().build_hasher().finish();
        Self([word(), word()])
    }

    #[inline]
    #[must_use]
    pub fn hash(self, bytes: &[u8]) -> u64 {
        let [first, second] = self.0;
        let mut state = [
            first ^ 0x736f_6d65_7073_6575,
            second ^ 0x646f_7261_6e64_6f6d,
            first ^ 0x6c79_6765_6e65_7261,
            second ^ 0x7465_6462_7974_6573,
        ];
        let absorb = |word: u64, state: &mut [u64; 4]| {
            state[3] ^= word;
            round(state);
            state[0] ^= word;
        };
        let mut words = bytes.chunks_exact(8);
        for chunk in &mut words {
            let mut word = [0; 8];
            word.copy_from_slice(chunk);
            absorb(u64::from_le_bytes(word), &mut state);
        }
        // The last word: the remaining bytes and the length.
        let mut last = [0; 8];
        last[..words.remainder().len()].copy_from_slice(words.remainder());
        last[7] = bytes.len() as u8;
        absorb(u64::from_le_bytes(last), &mut state);
        state[2] ^= 0xff;
        (0..3).for_each(|_| round(&mut state));
        state[0] ^ state[1] ^ state[2] ^ state[3]
    }
}

#[inline]
fn round(state: &mut [u64; 4]) {
    let [mut a, mut b, mut c, mut d] = *state;
    a = a.wrapping_add(b);
    b = b.rotate_left(13) ^ a;
    a = a.rotate_left(32);
    c = c.wrapping_add(d);
    d = d.rotate_left(16) ^ c;
    a = a.wrapping_add(d);
    d = d.rotate_left(21) ^ a;
    c = c.wrapping_add(b);
    b = b.rotate_left(17) ^ c;
    c = c.rotate_left(32);
    *state = [a, b, c, d];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_matches_the_standard_library_and_depends_on_the_key() {
        // Today's `DefaultHasher` is SipHash-1-3 with the key 0, 0.
        let bytes: Vec<u8> = (0..100).collect();
        for length in 0..bytes.len() {
            let mut expected = std::hash::DefaultHasher::new();
            expected.write(&bytes[..length]);
            assert_eq!(HashKey([0, 0]).hash(&bytes[..length]), expected.finish());
        }
        let hash = |first, second| HashKey([first, second]).hash(b"some flow");
        assert!(hash(0, 0) != hash(1, 0) && hash(0, 0) != hash(0, 1) && hash(1, 0) != hash(0, 1));
        assert_ne!(HashKey::random().0, HashKey::random().0);
    }
}
