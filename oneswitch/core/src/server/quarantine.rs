//! Released flow-ids that must not be reused yet.
//!
//! A switch that does not know of a port's removal still sends and delivers by its ids, and packets with them can be on PCIe links or in
//! cached flows. A new port with such an id would receive another port's packets.

use crate::server::flow_ids::FlowId;
use crate::switch_set::SwitchSet;
use std::time::{Duration, Instant};

/// Time for packets in flight, and for cached flows, each of which Open vSwitch checks every 500 ms.
const UNDER_WAY: Duration = Duration::from_secs(1);
const NOT_SENT: u64 = u64::MAX;

#[derive(Debug)]
struct Retired {
    id: FlowId,
    /// The batch of the `edge` rules without it.
    batch: u64,
    /// Switches whose `edge` may still have rules with it.
    held_by: SwitchSet,
    /// When its last packet has arrived; `None` while some switch holds it.
    free_from: Option<Instant>,
    /// Whether only gone switches hold it.
    is_abandoned: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Quarantine {
    retired: Vec<Retired>,
}

impl Quarantine {
    /// Quarantines a released id; the rules without it are not sent yet.
    pub fn retire(&mut self, id: FlowId) {
        self.put(id, NOT_SENT);
    }

    /// Restores the quarantine after a restart: switches may have rules with these ids until they have been compared.
    pub fn restore(&mut self, ids: impl Iterator<Item = FlowId>) {
        ids.for_each(|id| self.put(id, 0));
    }

    fn put(&mut self, id: FlowId, batch: u64) {
        self.retired.push(Retired {
            id,
            batch,
            held_by: SwitchSet::ALL,
            free_from: None,
            is_abandoned: false,
        });
    }

    /// Records the batch of the rules without the released ids.
    pub fn sent(&mut self, batch: u64) {
        for retired in self.retired.iter_mut().filter(|r| r.batch == NOT_SENT) {
            retired.batch = batch;
        }
    }

    /// Records the switches' confirmations: all but those of `unconfirmed`, of which some are `gone`.
    pub fn confirm(
        &mut self,
        unconfirmed: SwitchSet,
        gone: SwitchSet,
        is_settled: impl Fn(u64) -> bool,
        now: Instant,
    ) {
        for retired in self.retired.iter_mut().filter(|r| is_settled(r.batch)) {
            retired.held_by = retired.held_by.intersection(unconfirmed);
            retired.is_abandoned = retired.held_by.minus(gone).is_empty();
            if retired.held_by.is_empty() {
                retired.free_from.get_or_insert(now + UNDER_WAY);
            }
        }
    }

    /// Frees the ids whose last packet has arrived; tells whether there were any.
    pub fn release(&mut self, now: Instant) -> bool {
        let before = self.retired.len();
        self.retired
            .retain(|r| r.free_from.is_none_or(|at| at > now));
        self.retired.len() < before
    }

    pub fn ids(&self) -> impl Iterator<Item = FlowId> + '_ {
        self.retired.iter().map(|r| r.id)
    }

    /// Iterates over ids to reuse only if no others are free: those that only gone switches hold, oldest first.
    pub fn last_resort(&self) -> impl Iterator<Item = FlowId> + '_ {
        let abandoned = self.retired.iter().filter(|r| r.is_abandoned);
        abandoned.map(|r| r.id)
    }

    /// Records the reuse of an id.
    pub fn give(&mut self, id: FlowId) {
        self.retired.retain(|r| r.id != id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_free_when_all_have_confirmed_and_its_packets_have_arrived() {
        let (hub, nobody) = (SwitchSet::of(0), SwitchSet::EMPTY);
        let now = Instant::now();
        let mut ids = Quarantine::default();
        ids.retire(5);
        ids.confirm(nobody, nobody, |batch| batch <= 3, now);
        ids.sent(4);
        ids.confirm(nobody, nobody, |batch| batch <= 3, now);
        ids.confirm(hub, nobody, |batch| batch <= 4, now);
        assert!(!ids.release(now + 9 * UNDER_WAY));
        let later = now + 9 * UNDER_WAY;
        ids.confirm(nobody, nobody, |batch| batch <= 4, later);
        ids.confirm(nobody, nobody, |batch| batch <= 4, later + UNDER_WAY / 2);
        assert!(!ids.release(later + UNDER_WAY / 2));
        assert_eq!(ids.ids().collect::<Vec<_>>(), [5]);
        assert!(ids.release(later + UNDER_WAY));
        assert_eq!(ids.ids().count(), 0);
    }

    #[test]
    fn what_only_a_switch_that_is_gone_holds_is_a_last_resort() {
        let (hub, snic) = (SwitchSet::of(0), SwitchSet::of(1));
        let mut ids = Quarantine::default();
        ids.restore([5, 6].into_iter());
        let now = Instant::now();
        ids.confirm(hub.union(snic), snic, |_| true, now);
        assert_eq!(ids.last_resort().count(), 0);
        ids.confirm(snic, snic, |_| true, now);
        assert_eq!(ids.last_resort().collect::<Vec<_>>(), [5, 6]);
        ids.give(5);
        assert_eq!(ids.ids().collect::<Vec<_>>(), [6]);
        // It is back, and may have the rules.
        ids.confirm(snic, SwitchSet::EMPTY, |_| true, now);
        assert_eq!(ids.last_resort().count(), 0);
    }
}
