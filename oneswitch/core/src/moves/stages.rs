//! The stages of a move, each of which begins when the bridges that it rests on have confirmed the one before.
//!
//! A bridge that is away, or refused its rules, has confirmed nothing (doubt.rs). Before the flip a move waits for such a bridge, and fails
//! where its switch is gone; after the flip it waits, unless the switch is gone. A forced move waits for none of them.

use crate::api::{Bridge, MoveStage, MoveUntil, PortError, SwitchIndex};
use crate::server::ports::{Move, VirtualPort};
use crate::switch_set::SwitchSet;
use crate::switches::fold::{Fold, PAUSE, TRIES};
use crate::switches::reads::{combine_ports, minus, Purpose};
use crate::Core;
use openflow13::{ErrorCode, MultipartRequest};
use std::time::Instant;
use tracing::{info, warn};

/// Whether a stage may be left.
enum Footing {
    /// Every bridge that it rests on has confirmed it.
    Firm,
    Waits,
    /// It will never be, and the move can be undone.
    Lost(String),
}

impl Core {
    pub(crate) fn enter_stage(&mut self, number: u32, stage: MoveStage) {
        let (after_batch, flood) = (self.verdicts.current_batch(), self.flood.current().number);
        if let Some(moving) = self.moving_mut(number) {
            moving.stage = stage;
            moving.after_batch = after_batch;
            moving.flood = flood;
            self.journal.unsettled = true;
        }
    }

    pub(crate) fn moving_mut(&mut self, number: u32) -> Option<&mut Move> {
        self.ports.get_mut(number)?.moving.as_mut()
    }

    pub(crate) fn advance_moves(&mut self, now: Instant) {
        let moving: Vec<u32> = self
            .ports
            .iter()
            .filter(|p| p.moving.is_some())
            .map(|p| p.number)
            .collect();
        moving
            .into_iter()
            .for_each(|number| self.advance_move(number, now));
    }

    pub(crate) fn advance_move(&mut self, number: u32, now: Instant) {
        while let Some(moving) = self.moving_mut(number) {
            if moving.deadline.is_some_and(|d| d <= now) {
                moving.deadline = None;
            }
            if moving.is_at_rest() {
                return;
            }
            let stage = moving.stage;
            match self.footing(number) {
                Footing::Firm => self.leave_stage(number, stage, now),
                Footing::Lost(reason) => return self.fail_move(number, reason, now),
                Footing::Waits => return self.tell_waiting(number),
            }
        }
    }

    /// Begins what follows a stage that is reached and confirmed.
    fn leave_stage(&mut self, number: u32, stage: MoveStage, now: Instant) {
        match stage {
            MoveStage::Preparing => self.reach(number, MoveStage::Prepared, now),
            MoveStage::Prepared => self.flip(number, now),
            MoveStage::Flipping => self.reach(number, MoveStage::Flipped, now),
            MoveStage::Flipped => {
                self.enter_stage(number, MoveStage::Quiescing);
                if let Some(moving) = self.moving_mut(number) {
                    moving.deadline = Some(now + moving.grace);
                }
            }
            MoveStage::Quiescing => self.fold_counters(number, now),
        }
    }

    /// Notes that a stage which a client can wait for is reached.
    fn reach(&mut self, number: u32, stage: MoveStage, now: Instant) {
        self.enter_stage(number, stage);
        let Some(moving) = self.moving_mut(number) else {
            return;
        };
        if stage == MoveStage::Prepared {
            moving.deadline = Some(now + moving.settle);
        }
        if moving.is_where_it_was_told() {
            self.move_outcomes.insert(number, Ok(()));
        }
    }

    fn footing(&self, number: u32) -> Footing {
        let port = self.ports.get(number);
        let Some((port, moving)) = port.and_then(|p| Some((p, p.moving.as_ref()?))) else {
            return Footing::Waits;
        };
        let awaited = self.unconfirmed(port, moving);
        let sent = match moving.stage {
            MoveStage::Preparing | MoveStage::Flipping if !moving.forced => {
                self.verdicts.is_settled(moving.after_batch) && self.flood.is_in_force(moving.flood)
            }
            MoveStage::Preparing => !self.owes_answers(port, moving),
            _ => true,
        };
        if moving.stage < MoveStage::Flipping {
            let lost = |(s, _): &&(SwitchIndex, Bridge)| moving.forced || self.is_gone(*s);
            if let Some(lost) = awaited.iter().find(lost) {
                return Footing::Lost(format!("{} is not in step", self.bridge_names(&[*lost])));
            }
        }
        match sent && awaited.is_empty() {
            true => Footing::Firm,
            false => Footing::Waits,
        }
    }

    /// The bridges that the stage of a move rests on and that have not confirmed it, but for those that it does not wait for.
    fn unconfirmed(&self, port: &VirtualPort, moving: &Move) -> Vec<(SwitchIndex, Bridge)> {
        let has_flipped = moving.stage >= MoveStage::Flipping;
        let is_excused = |s: SwitchIndex| has_flipped && (moving.forced || self.is_gone(s));
        let is_ready = |s: SwitchIndex, bridge| match moving.stage {
            // It is asked what it has counted, whatever else it lacks.
            MoveStage::Quiescing => self.switches[s].session(bridge).is_up(),
            _ => self.is_confirmed(s, bridge),
        };
        port.rests_on(moving)
            .filter(|(s, bridge)| !is_ready(*s, *bridge) && !is_excused(*s))
            .collect()
    }

    /// Whether a bridge that the stage rests on has not answered the barrier behind it.
    fn owes_answers(&self, port: &VirtualPort, moving: &Move) -> bool {
        let owes = |(s, bridge)| self.verdicts.is_awaited(s, bridge, moving.after_batch);
        port.rests_on(moving).any(owes)
    }

    /// Answers whoever waits for a move that a bridge has held up for long. The move itself goes on when that bridge has confirmed.
    fn tell_waiting(&mut self, number: u32) {
        let port = self.ports.get(number);
        let Some((port, moving)) = port.and_then(|p| Some((p, p.moving.as_ref()?))) else {
            return;
        };
        let mut awaited = self.unconfirmed(port, moving);
        awaited.retain(|(s, bridge)| self.is_given_up(*s, *bridge));
        if awaited.is_empty() || moving.told_waiting {
            return;
        }
        let waiting = PortError::MoveWaits {
            number,
            bridges: self.bridge_names(&awaited),
        };
        warn!(target: "core", port = number, "{waiting}");
        self.move_outcomes.insert(number, Err(waiting));
        if let Some(moving) = self.moving_mut(number) {
            moving.told_waiting = true;
        }
    }

    fn bridge_names(&self, bridges: &[(SwitchIndex, Bridge)]) -> String {
        let name = |(switch, bridge): &(SwitchIndex, Bridge)| {
            format!("{} of {}", bridge.name(), self.switches[*switch].name)
        };
        bridges.iter().map(name).collect::<Vec<_>>().join(", ")
    }

    /// Points the paths toward the port to its new interface, one atomic bundle per switch; undoes the move where that is not there any more.
    fn flip(&mut self, number: u32, now: Instant) {
        let Some(to) = self.moving_mut(number).map(|m| m.to.clone()) else {
            return;
        };
        if let Err(error) = self.check_present(&to, number) {
            return self.fail_move(number, error.to_string(), now);
        }
        if let Some(port) = self.ports.get_mut(number) {
            port.awaits_live |= to != port.home;
        }
        // Twice: the stage decides what `edge` must do, and only after that was sent is the batch known.
        self.enter_stage(number, MoveStage::Flipping);
        self.update_edges();
        self.enter_stage(number, MoveStage::Flipping);
        info!(target: "core", port = number, "move: flipped, waiting for the data paths");
    }

    fn fail_move(&mut self, number: u32, reason: String, now: Instant) {
        let failure = PortError::MoveFailed { number, reason };
        warn!(target: "core", port = number, "{failure}");
        let outcome = self.abort_move(number, now).and(Err(failure));
        self.move_outcomes.insert(number, outcome);
    }

    /// A switch that does not take the copies of accepted rules cannot become the executor.
    pub(crate) fn fail_moves_to(&mut self, switches: SwitchSet, error: ErrorCode, now: Instant) {
        let failed: Vec<u32> = self
            .ports
            .iter()
            .filter(|p| {
                let moving = p.moving.as_ref();
                moving.is_some_and(|m| m.stage <= MoveStage::Prepared)
                    && p.executor_to_be().is_some_and(|s| switches.contains(s))
            })
            .map(|p| p.number)
            .collect();
        for number in failed {
            let names = self.switch_names(switches);
            self.fail_move(
                number,
                format!("{names} refused a copy of a rule, group or meter: {error}"),
                now,
            );
        }
    }

    /// Reads what the old copies counted, then removes them.
    fn fold_counters(&mut self, number: u32, now: Instant) {
        let Some(port) = self.ports.get_mut(number) else {
            return;
        };
        let Some(moving) = port.moving.as_mut() else {
            return;
        };
        let (old, to, executor) = (port.home.clone(), moving.to.clone(), moving.executor);
        moving.folding = 1;
        if old != to && self.switches[old.switch].edge.is_up() {
            if let Some(interface) = self.switches[old.switch].edge.number_of(&old.interface) {
                self.expect_fold(number);
                let request = MultipartRequest::PortStats { port: interface };
                self.read(
                    Purpose::FoldPort(number),
                    Bridge::Edge,
                    SwitchSet::of(old.switch),
                    request,
                );
            }
        }
        let (before, after) = (
            self.executors.clone(),
            self.executors
                .moved(number, executor.of(&to), self.default_executor),
        );
        let questions = self.read_lost_counters(&before, &after, Some(number));
        (0..questions).for_each(|_| self.expect_fold(number));
        self.folded(number, None, now);
    }

    fn expect_fold(&mut self, number: u32) {
        if let Some(moving) = self.moving_mut(number) {
            moving.folding += 1;
        }
    }

    /// One awaited statistic does not come: its bridge went away, or refused with `error`.
    pub(crate) fn fold_missed(&mut self, number: u32, error: Option<ErrorCode>, now: Instant) {
        let Some(moving) = self.moving_mut(number) else {
            return;
        };
        moving.fold_missed = true;
        if let Some(error) = error {
            moving.refusals += 1;
            moving.deadline = Some(now + PAUSE);
            let is_lost = moving.refusals >= TRIES;
            warn!(target: "core", port = number, %error, is_lost, "move: the old home does not tell what it has counted");
        }
        self.folded(number, None, now);
    }

    /// One awaited statistic is in. With the last one the move ends, or begins to ask once more where one is missing.
    pub(crate) fn folded(&mut self, number: u32, fold: Option<Fold>, now: Instant) {
        let Some(moving) = self.moving_mut(number) else {
            return;
        };
        moving.folds.extend(fold);
        moving.folding = moving.folding.saturating_sub(1);
        if moving.folding > 0 {
            return;
        }
        let may_ask = !moving.forced && moving.refusals < TRIES;
        if std::mem::take(&mut moving.fold_missed) && may_ask {
            // The counters go on until the copies are removed, so all are asked again.
            return moving.folds.clear();
        }
        moving.deadline = None;
        let (to, executor) = (moving.to.clone(), moving.executor);
        let (folds, before) = (std::mem::take(&mut moving.folds), moving.counted_before);
        for fold in folds {
            self.fold(number, fold);
        }
        let Some(port) = self.ports.get_mut(number) else {
            return;
        };
        if let Some(before) = before {
            port.base = combine_ports(&port.base, &before, minus);
        }
        port.arrive(to, executor);
        let done = port.moving.take();
        self.end_move(number, true, now);
        let revision = self.ports.revision;
        if let Some(port) = self.ports.get_mut(number) {
            port.unsaved = done.map(|moving| (revision, moving));
        }
        self.move_outcomes.insert(number, Ok(()));
        info!(target: "core", port = number, "move: done");
    }

    /// After `moving` was cleared: what only the other interface needed goes. `folded`: its counters are known.
    pub(crate) fn end_move(&mut self, number: u32, folded: bool, now: Instant) {
        self.ports.retire_ingress(number);
        let (old, new) = self.derive_executors(self.executors.is_everywhere());
        // What enters at no mapped port may have another executor by now.
        self.install_copies(&old, &new, now);
        if folded {
            self.remove_copies(&old, &new, now);
        } else {
            self.retire_copies(&old, &new, now);
        }
        self.ports.revision += 1;
        self.journal.unsettled = true;
        self.refresh_paths();
        self.apply_port_config(number);
        self.announce_ports(None);
    }
}

impl Move {
    /// Whether a client decides when it goes on, or a statistic that is on its way.
    fn is_at_rest(&self) -> bool {
        let waits_for_time = self.deadline.is_some();
        let waits_for_counters = self.folding > 0 || self.baseline_asked.is_some();
        waits_for_time || waits_for_counters || self.is_where_it_was_told()
    }

    /// Whether the stage that it was to reach is reached.
    pub fn is_where_it_was_told(&self) -> bool {
        match self.stage {
            MoveStage::Prepared => self.until == MoveUntil::Prepared,
            MoveStage::Flipped => self.until == MoveUntil::Flipped,
            _ => false,
        }
    }
}

impl VirtualPort {
    /// The bridges whose rules the stage of its move rests on. A packet for it that crosses PCIe passes the hypervisor; what other switches do
    /// with its packets, the move does not change.
    fn rests_on(&self, moving: &Move) -> impl Iterator<Item = (SwitchIndex, Bridge)> {
        let (from, to) = (&self.home, &moving.to);
        let executors = (self.executor.of(from), moving.executor.of(to));
        let old: SwitchSet = [from.switch, executors.0].into_iter().collect();
        let new: SwitchSet = [to.switch, executors.1].into_iter().collect();
        let hub = match old.union(new).len() {
            1 => SwitchSet::EMPTY,
            _ => SwitchSet::of(crate::server::executors::HUB),
        };
        let (edge, virt) = match moving.stage {
            MoveStage::Preparing | MoveStage::Prepared => {
                (new.union(hub), self.executor_to_be().into_iter().collect())
            }
            MoveStage::Flipping => (old.union(new).union(hub), SwitchSet::EMPTY),
            // It was reached: all have confirmed the flip.
            MoveStage::Flipped => (SwitchSet::EMPTY, SwitchSet::EMPTY),
            // What has counted until now is asked.
            MoveStage::Quiescing => (SwitchSet::of(from.switch), SwitchSet::of(executors.0)),
        };
        let edges: Vec<_> = edge.iter().map(|s| (s, Bridge::Edge)).collect();
        let virts: Vec<_> = virt.iter().map(|s| (s, Bridge::Virt)).collect();
        edges.into_iter().chain(virts)
    }
}
