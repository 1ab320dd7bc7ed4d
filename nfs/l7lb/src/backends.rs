//! The backends' numbers and health, as laid out in the arena.

use std::sync::atomic::{AtomicU64, Ordering};

use bytemuck::{Pod, Zeroable};
use nf_arena::{Memory, Region};
use nf_balancing::{cells::Array, checks::Checks, health};
use nf_runtime::{state::StateBuilder, CounterSink, Refusal};
use xxhash_rust::xxh3::xxh3_64;

use crate::metrics::Row;

/// The health of a backend, and the progress of its check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
struct Checked {
    probe: health::Probe,
    /// [`UNKNOWN`](health::UNKNOWN), [`UP`](health::UP) or [`DOWN`](health::DOWN).
    health: u8,
    reserved: [u8; 7],
    /// The key of the endpoint that the check connects to; 0: the backend is not checked. It is written last, so that a torn record shows.
    target: u64,
}

/// Returns the key of a backend's row.
pub fn key(pool: &str, backend: &str) -> u64 {
    xxh3_64(format!("{pool}/{backend}").as_bytes()).max(1)
}

/// The numbers of backends: a row of words each, and the health of each.
pub struct Backends {
    region: Region,
    checked: Array<Checked>,
    checks: Checks,
    /// The next local port toward each backend. A move starts over, which costs no more than some tries.
    ports: Vec<AtomicU64>,
}

const _: () = assert!(column::NUMBERS + crate::metrics::COLUMNS <= column::COUNT);

const SECOND: u64 = 1_000_000_000;
/// The time for which the options of a backend are remembered.
const REMEMBERED: u64 = 600 * SECOND;

/// Columns of a backend's row.
mod column {
    /// The hash of its pool's and its own name; 0: the row is free.
    pub const KEY: usize = 0;
    /// Its open legs.
    pub const ACTIVE: usize = 1;
    pub const LEGS: usize = 2;
    pub const FAILED: usize = 3;
    /// The options that it does not support, and in the higher bits the second until which this holds.
    pub const LACKS: usize = 4;
    /// The first of those of [`metrics`](crate::metrics).
    pub const NUMBERS: usize = 5;
    pub const COUNT: usize = 32;
}

impl Backends {
    /// # Errors
    /// If memory runs out, or the adopted state has another shape.
    pub fn declare(count: usize, state: &mut StateBuilder) -> Result<Self, Refusal> {
        let words = count.saturating_mul(column::COUNT);
        let region = state.region("backends", "backends v2", words)?;
        let ports = (0..count).map(|_| AtomicU64::new(0)).collect();
        Ok(Self {
            region,
            checked: Array::declare(state, "health", count)?,
            checks: Checks::default(),
            ports,
        })
    }

    pub fn len(&self) -> usize {
        self.ports.len()
    }

    fn word(&self, row: u16, column: usize) -> &AtomicU64 {
        &self.region.words()[usize::from(row) * column::COUNT + column]
    }

    fn change(&self, row: u16, column: usize, by: i64) {
        let word = self.word(row, column);
        let change = |old: u64| Some(old.saturating_add_signed(by));
        let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
        self.region.touch(usize::from(row) * column::COUNT + column);
    }

    pub fn key(&self, row: u16) -> u64 {
        self.word(row, column::KEY).load(Ordering::Relaxed)
    }

    /// Gives a row to a backend; its numbers start at zero, and its health is unknown.
    pub fn occupy(&self, row: u16, key: u64) {
        for column in 0..column::COUNT {
            self.word(row, column).store(0, Ordering::Relaxed);
            self.region.touch(usize::from(row) * column::COUNT + column);
        }
        self.word(row, column::KEY).store(key, Ordering::Relaxed);
        self.region
            .touch(usize::from(row) * column::COUNT + column::KEY);
        let _lock = self.checks.lock();
        self.checked.put(row.into(), &Checked::zeroed());
    }

    /// Sets the endpoint that a backend's check connects to; 0: none. After a change, its health is unknown.
    pub fn aim(&self, row: u16, target: u64) {
        let _lock = self.checks.lock();
        if self.checked.get(row.into()).target != target {
            let unknown = Checked {
                target,
                ..Checked::zeroed()
            };
            self.checked.put(row.into(), &unknown);
        }
    }

    /// Advances a backend's check by a step. None: by another configuration, the check connects to another endpoint.
    pub fn check(
        &self,
        row: u16,
        target: u64,
        step: impl FnOnce(&mut health::Record<'_>) -> health::Step,
    ) -> Option<(health::Step, health::Probe)> {
        let _lock = self.checks.lock();
        let before = self.checked.get(row.into());
        if before.target != target {
            return None;
        }
        let mut checked = before;
        let step = step(&mut health::Record {
            health: &mut checked.health,
            probe: &mut checked.probe,
        });
        if checked != before {
            self.checked.put(row.into(), &checked);
        }
        Some((step, checked.probe))
    }

    /// Tells whether a backend has failed its checks.
    pub fn is_down(&self, row: u16) -> bool {
        self.checked.get(row.into()).health == health::DOWN
    }

    pub fn opened(&self, row: u16) {
        self.change(row, column::ACTIVE, 1);
        self.change(row, column::LEGS, 1);
    }

    /// Counts an open leg that a client takes over.
    pub fn resumed(&self, row: u16) {
        self.change(row, column::ACTIVE, 1);
    }

    pub fn closed(&self, row: u16) {
        self.change(row, column::ACTIVE, -1);
    }

    pub fn failed(&self, row: u16) {
        self.change(row, column::FAILED, 1);
    }

    /// Returns the numbers of a backend's requests.
    pub fn numbers(&self, row: u16) -> Row<'_> {
        Row {
            region: &self.region,
            at: usize::from(row) * column::COUNT + column::NUMBERS,
        }
    }

    /// Returns the [`options`](crate::record::options) that a backend is known not to support.
    pub fn lacks(&self, row: u16, now: u64) -> u8 {
        let word = self.word(row, column::LACKS).load(Ordering::Relaxed);
        if word >> 8 > now / SECOND {
            word as u8
        } else {
            0
        }
    }

    /// Notes the options that a backend did not accept. They are forgotten after a while, since it may be replaced.
    pub fn learn(&self, row: u16, lacking: u8, now: u64) {
        let lacks = u64::from(self.lacks(row, now) | lacking);
        let end = (now + REMEMBERED) / SECOND;
        self.word(row, column::LACKS)
            .store(end << 8 | lacks, Ordering::Relaxed);
        self.region
            .touch(usize::from(row) * column::COUNT + column::LACKS);
    }

    pub fn active(&self, row: u16) -> u64 {
        self.word(row, column::ACTIVE).load(Ordering::Relaxed)
    }

    /// Returns the number from which the search for a free port starts.
    pub fn next_port(&self, row: u16) -> u32 {
        let next = &self.ports[usize::from(row)];
        next.fetch_add(1, Ordering::Relaxed) as u32
    }

    pub fn report(&self, row: u16, labels: &[(&str, &str)], out: &mut CounterSink) {
        let get = |column| self.word(row, column).load(Ordering::Relaxed);
        let is_up = u8::from(!self.is_down(row));
        out.gauge("backend_up", labels, is_up.into());
        out.gauge("backend_connections", labels, get(column::ACTIVE) as f64);
        out.counter("backend_connections_opened", labels, get(column::LEGS));
        out.counter("backend_connections_failed", labels, get(column::FAILED));
        self.numbers(row).report("backend", labels, out);
    }
}

#[cfg(test)]
mod tests {
    use nf_arena::ArenaBuilder;

    use super::*;

    #[test]
    fn a_check_of_another_endpoint_changes_nothing() {
        let mut state = StateBuilder::new(ArenaBuilder::fresh("test", 1).unwrap());
        let backends = Backends::declare(2, &mut state).unwrap();
        let _arena = state.finish().unwrap();
        backends.aim(1, 8);
        let down = |record: &mut health::Record<'_>| {
            *record.health = health::DOWN;
            health::Step::default()
        };
        assert!(backends.check(1, 7, down).is_none());
        assert!(!backends.is_down(1));
        assert!(backends.check(1, 8, down).is_some());
        assert!(backends.is_down(1));
        assert!(!backends.is_down(0));
    }
}
