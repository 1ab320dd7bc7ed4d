//! Time.

use crate::core::Core;
use std::time::{Duration, Instant};

impl Core {
    /// Returns when `tick` next has work.
    pub fn next_deadline(&self) -> Option<Instant> {
        let ports = self.server.ports.iter();
        let moves = ports.filter_map(|p| p.moving.as_ref()?.deadline);
        moves
            .chain(self.expiry.idle.next())
            .chain(self.expiry.removals.next())
            .chain(self.switches.next_resync())
            .chain(self.switches.next_lasting_doubt())
            .chain(self.switches.next_audit())
            .chain(self.switches.verdicts.deadline())
            .chain(self.server.offload.deadline())
            .chain(self.gathering_deadline())
            .chain(self.learning_deadline())
            .chain(self.controllers.next_given_up())
            .chain(self.bundle_deadline())
            .chain(self.collectors_deadline())
            .chain(self.ages_deadline())
            .chain(self.links_deadline())
            .chain(self.aside_deadline())
            .min()
    }

    pub fn tick(&mut self, now: Instant) {
        self.switches.age_doubts(now);
        self.switches.confirm_retired_ids(&mut self.server, now);
        self.switches.advance_flood(&mut self.server);
        self.with_moves(now, |moves, below| moves.advance_moves(below));
        self.advance_gathering(now);
        self.advance_learning(now);
        self.end_learning(now);
        self.advance_aside(now);
        self.with_expiry(now, |expiry, below| {
            expiry.removals.end_overdue_removals(below);
        });
        self.tick_offload(now);
        self.give_up_partials(now);
        self.time_bundles_out(now);
        self.stop_awaiting_collectors(now);
        self.end_waiting_for_ages(now);
        self.stop_awaiting_links(now);
        self.switches.resync_overdue(now);
        self.switches.audit_overdue(now);
        self.switches.verdicts.hurry_overdue(now);
        self.with_expiry(now, |expiry, below| expiry.idle.poll(below));
    }

    /// Compares every bridge with its wanted state, once per `interval`; zero: never.
    pub fn set_audit(&mut self, interval: Duration, now: Instant) {
        self.switches.set_audit(interval, now);
    }
}
