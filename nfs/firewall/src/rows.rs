//! Counters of rules, in rows that keep their rule by its name: over new configurations, and over moves.

use bytemuck::{Pod, Zeroable};
use nf_arena::Region;
use nf_runtime::{state::StateBuilder, Refusal};
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    config::Rate,
    words::{read, write},
};

/// The most rules of a configuration.
pub const MOST_RULES: usize = 1000;
/// The rows: one of the default, those of the rules, and some of rules that are gone.
pub const ROWS: usize = 2048;
const WORDS: usize = 8;
/// The row of the default.
pub const DEFAULT: u16 = 0;
const SECOND: u64 = 1_000_000_000;

/// The counters of a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Row {
    /// The hash of the rule's name. Zero: the row is free.
    name: u64,
    pub packets: u64,
    pub bytes: u64,
    pub connections: u64,
    /// Packets above the rate.
    pub above_rate: u64,
    /// Connections about whose application no answer came.
    pub undecided: u64,
    /// The time at which the whole burst of the rate is available again.
    rested_at: u64,
    reserved: u64,
}

/// All rows.
pub struct Rows(Region);

impl Rows {
    /// # Errors
    /// If memory runs out.
    pub fn declare(state: &mut StateBuilder) -> Result<Self, Refusal> {
        Ok(Self(state.region(
            "rules",
            "counters by name v1",
            ROWS * WORDS,
        )?))
    }

    #[inline]
    pub fn get(&self, row: u16) -> Row {
        bytemuck::cast::<[u64; WORDS], Row>(read(&self.0, Self::at(row)))
    }

    #[inline]
    pub fn change(&self, row: u16, change: impl FnOnce(&mut Row)) {
        let mut counters = self.get(row);
        change(&mut counters);
        write(
            &self.0,
            Self::at(row),
            &bytemuck::cast::<Row, [u64; WORDS]>(counters),
        );
    }

    fn at(row: u16) -> usize {
        usize::from(row) % ROWS * WORDS
    }

    /// Adds packets to a rule's counters.
    #[inline]
    pub fn count(&self, row: u16, packets: u64, bytes: u64) {
        self.change(row, |counters| {
            counters.packets += packets;
            counters.bytes += bytes;
        });
    }

    /// Returns the rows of rules by their names: those that they had, or free ones.
    /// `is_named`: the row must keep its meaning. `clear`: forgets what else counts for a row.
    pub fn assign<'a>(
        &self,
        names: impl Iterator<Item = &'a str>,
        is_named: impl Fn(u16) -> bool,
        clear: impl Fn(u16),
    ) -> Vec<u16> {
        let hashes: Vec<u64> = names.map(|name| xxh3_64(name.as_bytes()).max(1)).collect();
        let mut used: Vec<u64> = (0..ROWS as u16).map(|row| self.get(row).name).collect();
        let mut rows = Vec::with_capacity(hashes.len());
        for hash in &hashes {
            let found = used
                .iter()
                .skip(1)
                .position(|name| name == hash)
                .map(|place| place + 1);
            // Rows of rules that are gone are the last to be taken.
            let free = || {
                used.iter()
                    .skip(1)
                    .position(|name| *name == 0)
                    .map(|place| place + 1)
            };
            let gone = || {
                let rows = used.iter().enumerate().skip(1);
                let mut gone = rows.filter(|(_, name)| !hashes.contains(name));
                gone.find(|(row, _)| !is_named(*row as u16))
                    .map(|(row, _)| row)
            };
            let row = found.or_else(free).or_else(gone).unwrap_or(0) as u16;
            if found.is_none() {
                let fresh = Row {
                    name: *hash,
                    ..Row::default()
                };
                self.change(row, |counters| *counters = fresh);
                clear(row);
                used[usize::from(row)] = *hash;
            }
            rows.push(row);
        }
        rows
    }

    /// Tells whether one more packet or connection is within a rate: the generic cell rate algorithm (ITU-T I.371) with a burst of a second.
    pub fn admits(&self, row: u16, rate: Rate, now: u64) -> bool {
        let (Rate::Packets(number) | Rate::Connections(number)) = rate;
        let interval = SECOND / u64::from(number.get());
        let mut admitted = false;
        self.change(row, |counters| {
            let next = counters.rested_at.clamp(now, now + SECOND) + interval;
            admitted = next <= now + SECOND;
            if admitted {
                counters.rested_at = next;
            } else {
                counters.above_rate += 1;
            }
        });
        admitted
    }
}
