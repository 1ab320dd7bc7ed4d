//! The history: the latest lines, numbered from 1 on, in a ring of bytes in the state. The oldest are overwritten.

use std::sync::atomic::Ordering;

use nf_arena::{Memory, Region};
use nf_runtime::{state::StateBuilder, Refusal};

/// Words before the ring. Offsets count on for ever; their place in the ring is the rest.
const OLDEST: usize = 0;
const END: usize = 1;
const NEXT_NUMBER: usize = 2;
const HEADER: usize = 8;
/// The words before a line: its length in bytes, and its number.
const ENTRY: u64 = 2;

/// The latest lines.
pub struct History {
    region: Region,
    /// The words of the ring.
    words: u64,
}

impl History {
    /// Declares the state.
    ///
    /// # Errors
    /// If it is too large.
    pub fn declare(bytes: usize, state: &mut StateBuilder) -> Result<Self, Refusal> {
        let words = bytes.div_ceil(8);
        let region = state.region("history", "ring of lines v1", words.saturating_add(HEADER))?;
        Ok(Self {
            region,
            words: words as u64,
        })
    }

    fn get(&self, word: usize) -> u64 {
        self.region.words()[word].load(Ordering::Relaxed)
    }

    fn set(&self, word: usize, value: u64) {
        self.region.words()[word].store(value, Ordering::Relaxed);
        self.region.touch(word);
    }

    fn place(&self, offset: u64) -> usize {
        HEADER + (offset % self.words) as usize
    }

    /// Returns how many lines there were ever.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.get(NEXT_NUMBER)
    }

    /// Adds a line without its line break. If this process dies meanwhile, the line is not in the history, or is whole.
    pub fn add(&self, line: &[u8]) {
        let most = ((self.words - ENTRY) * 8).min(u64::from(u32::MAX)) as usize;
        let line = &line[..line.len().min(most)];
        let needed = ENTRY + line.len().div_ceil(8) as u64;
        let (end, number) = (self.get(END), self.count() + 1);
        let mut oldest = self.get(OLDEST);
        while end + needed - oldest > self.words {
            oldest += ENTRY + self.length(oldest).div_ceil(8);
        }
        self.set(OLDEST, oldest);
        self.set(self.place(end), line.len() as u64);
        self.set(self.place(end + 1), number);
        for (offset, bytes) in (end + ENTRY..).zip(line.chunks(8)) {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            self.set(self.place(offset), u64::from_le_bytes(word));
        }
        self.set(NEXT_NUMBER, number);
        self.set(END, end + needed);
    }

    fn length(&self, entry: u64) -> u64 {
        self.get(self.place(entry))
    }

    /// Returns lines with their numbers: those after a number, the oldest first, at most `most`. No line may be added meanwhile.
    #[must_use]
    pub fn after(&self, number: u64, most: usize) -> Vec<(u64, Vec<u8>)> {
        let (mut entry, end) = (self.get(OLDEST), self.get(END));
        let mut lines = Vec::new();
        while entry < end && lines.len() < most {
            let length = self.length(entry);
            let its_number = self.get(self.place(entry + 1));
            if its_number > number {
                lines.push((its_number, self.line(entry + ENTRY, length as usize)));
            }
            entry += ENTRY + length.div_ceil(8);
        }
        lines
    }

    fn line(&self, start: u64, length: usize) -> Vec<u8> {
        let words = (start..).take(length.div_ceil(8));
        let mut line: Vec<u8> = words
            .flat_map(|offset| self.get(self.place(offset)).to_le_bytes())
            .collect();
        line.truncate(length);
        line
    }
}
