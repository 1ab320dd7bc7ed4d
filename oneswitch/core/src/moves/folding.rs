//! The counters of what a move takes away: its old interface, and copies that no switch needs there any more.
//!
//! They are read before the end of the move, and added with it. Several moves may wait for counters at once: which copies go with which of
//! them depends on the one that ends first.

use crate::api::Bridge;
use crate::moves::Moves;
use crate::server::counters::{combine_ports, minus, plus};
use crate::server::executors::Executors;
use crate::switch_set::SwitchSet;
use crate::switches::fold::{Fold, LostCopies, PAUSE, TRIES};
use crate::switches::reads::Purpose;
use crate::switches::Below;
use openflow13::{ErrorCode, Match, MultipartRequest};
use tracing::{info, warn};

/// The statistics that a move waits for.
#[derive(Debug, Default)]
pub struct Folding {
    received: Vec<Fold>,
    /// The change that they were asked for.
    asked: Option<Going>,
    /// The change that they were asked for once more.
    again: Option<Going>,
}

/// The executors before and after the end of a move.
type Going = (Executors, Executors);

impl Moves {
    /// Reads the old copies' counters, then removes the copies.
    pub fn fold_counters(&mut self, below: &mut Below<'_>, number: u32) {
        let Some(port) = below.server.ports.get_mut(number) else {
            return;
        };
        let Some(moving) = port.moving.as_mut() else {
            return;
        };
        let (old, to, executor) = (port.home.clone(), moving.to.clone(), moving.executor);
        moving.folding = 1;
        if old != to && below.switches.list[old.switch].edge.is_up() {
            let edge = &below.switches.list[old.switch].edge;
            if let Some(port) = edge.number_of(&old.interface) {
                self.expect_fold(below, number);
                let request = MultipartRequest::PortStats { port };
                let (purpose, from) = (Purpose::FoldPort(number), SwitchSet::of(old.switch));
                below.switches.read(purpose, Bridge::Edge, from, request);
            }
        }
        let server = &*below.server;
        // Ports that leave a switch at the same time take its copies away together: the last one takes those that they share.
        let mut before = server.executors.clone();
        for other in server.ports.iter().filter(|other| other.number != number) {
            if let Some(moving) = other.moving.as_ref().filter(|moving| moving.folding > 0) {
                let executor = moving.executor.of(&moving.to);
                before = before.moved(other.number, executor, server.default_executor);
            }
        }
        let after = before.moved(number, executor.of(&to), server.default_executor);
        let (truth, switches) = (&*below.truth, &mut below.switches);
        let questions = switches.read_lost_counters(truth, &before, &after, Some(number));
        (0..questions).for_each(|_| self.expect_fold(below, number));
        self.folds.entry(number).or_default().asked = Some((before, after));
        self.folded(below, number, None);
    }

    fn expect_fold(&mut self, below: &mut Below<'_>, number: u32) {
        if let Some(moving) = below.server.moving_mut(number) {
            moving.folding += 1;
        }
    }

    /// Handles a missing statistic: its bridge disconnected, or refused with `error`.
    pub fn fold_missed(&mut self, below: &mut Below<'_>, number: u32, error: Option<ErrorCode>) {
        let Some(moving) = below.server.moving_mut(number) else {
            return;
        };
        moving.fold_missed = true;
        if let Some(error) = error {
            moving.refusals += 1;
            moving.deadline = Some(below.now + PAUSE);
            let is_lost = moving.refusals >= TRIES;
            warn!(target: "core", port = number, %error, is_lost, "move: the old home does not tell what it has counted");
        }
        self.folded(below, number, None);
    }

    /// Handles a received statistic. With the last one the move ends, or asks once more if one is missing.
    pub fn folded(&mut self, below: &mut Below<'_>, number: u32, fold: Option<Fold>) {
        let default = below.server.default_executor;
        let Some(moving) = below.server.moving_mut(number) else {
            return;
        };
        let folding = self.folds.entry(number).or_default();
        folding.received.extend(fold);
        moving.folding = moving.folding.saturating_sub(1);
        if moving.folding > 0 {
            return;
        }
        let may_ask = !moving.forced && moving.refusals < TRIES;
        if std::mem::take(&mut moving.fold_missed) && may_ask {
            // The counters advance until the copies are removed, so all are requested again.
            return folding.received.clear();
        }
        let (to, executor) = (moving.to.clone(), moving.executor);
        let before = &below.server.executors;
        let after = before.moved(number, executor.of(&to), default);
        let going = (before.clone(), after);
        if may_ask && folding.lacks(&going) {
            // Another move has ended first, and left copies to this one that it has not asked for.
            return self.fold_counters(below, number);
        }
        self.fold_and_end(below, number, &going);
    }

    fn fold_and_end(&mut self, below: &mut Below<'_>, number: u32, going: &Going) {
        let received = self.folds.remove(&number).unwrap_or_default().received;
        for fold in received {
            self.fold(below, number, fold, going);
        }
        let Some(port) = below.server.ports.get_mut(number) else {
            return;
        };
        let Some(done) = port.moving.take() else {
            return;
        };
        if let Some(before) = &done.counted_before {
            port.base = combine_ports(&port.base, before, minus);
        }
        port.arrive(done.to.clone(), done.executor);
        port.executor_chosen |= done.replaced.is_some();
        self.end_move(below, number, true);
        let revision = below.server.ports.revision;
        if let Some(port) = below.server.ports.get_mut(number) {
            port.unsaved = Some((revision, done));
        }
        self.outcomes.insert(number, Ok(()));
        info!(target: "core", port = number, "move: done");
    }

    /// Adds an awaited statistic, right before the old copies are removed.
    fn fold(&self, below: &mut Below<'_>, number: u32, fold: Fold, (old, new): &Going) {
        let (truth, journal) = (&mut *below.truth, &mut *below.journal);
        match fold {
            Fold::Port(stats) => {
                if let Some(port) = below.server.ports.get_mut(number) {
                    port.base = combine_ports(&port.base, &stats, plus);
                }
            }
            Fold::Rules(switch, parts) => {
                let (old, new) = (old.clone(), new.clone());
                let lost = LostCopies {
                    switch,
                    parts,
                    old,
                    new,
                };
                below.switches.fold_rules(truth, journal, lost, u64::MAX)
            }
            Fold::Counted(mut parts) => {
                parts.retain(|(switch, _)| !new.all().contains(*switch));
                below.switches.fold_counted(truth, journal, parts)
            }
        }
    }
}

impl Folding {
    /// Tells whether copies go that were not asked for; only once for the same ones.
    fn lacks(&mut self, going: &Going) -> bool {
        let is_missing = |asked: &Going| !takes_all(asked, going);
        if !self.asked.as_ref().is_some_and(is_missing) || self.again.as_ref() == Some(going) {
            return false;
        }
        self.received.clear();
        self.again = Some(going.clone());
        true
    }
}

/// Tells whether the counters of all copies that go between the executors of `going` were asked for.
fn takes_all(asked: &Going, going: &Going) -> bool {
    let (old, new) = going;
    old.all().iter().all(|switch| {
        let matches = asked.0.losses(&asked.1, switch);
        let is_covered = |lost: &Match| matches.iter().any(|m| *m == Match::any() || m == lost);
        let rules = old.losses(new, switch).iter().all(is_covered);
        let is_left =
            |(old, new): &Going| old.all().contains(switch) && !new.all().contains(switch);
        rules && (is_left(asked) || !is_left(going))
    })
}
