//! The stages of a move, each of which starts when the bridges that it depends on have confirmed the previous one.
//!
//! A bridge that is disconnected, or refused its rules, has confirmed nothing (doubt.rs). Before the flip a move waits for such a bridge,
//! and fails if its switch is gone; after the flip it waits, unless the switch is gone. A forced move waits for none of them.

use crate::api::{Bridge, MoveStage, MoveUntil, PortError, SwitchIndex};
use crate::moves::Moves;
use crate::server::ports::{Move, VirtualPort};
use crate::switch_set::SwitchSet;
use crate::switches::Below;
use openflow13::ErrorCode;
use tracing::{info, warn};

/// Whether a stage may be left.
enum Footing {
    /// Every bridge that it depends on has confirmed it.
    Firm,
    Waits,
    /// It will never be confirmed, and the move can be undone.
    Lost(String),
}

impl Moves {
    pub fn enter_stage(&self, below: &mut Below<'_>, number: u32, stage: MoveStage) {
        let batch = below.switches.verdicts.current_batch();
        below.server.enter_stage(number, stage, batch);
    }

    pub fn advance_moves(&mut self, below: &mut Below<'_>) {
        let moving = below.server.ports.iter().filter(|p| p.moving.is_some());
        for number in moving.map(|p| p.number).collect::<Vec<_>>() {
            self.advance_move(below, number);
        }
    }

    pub fn advance_move(&mut self, below: &mut Below<'_>, number: u32) {
        while let Some(moving) = below.server.moving_mut(number) {
            if moving.deadline.is_some_and(|d| d <= below.now) {
                moving.deadline = None;
            }
            if moving.is_at_rest() {
                return;
            }
            let stage = moving.stage;
            match self.footing(below, number) {
                Footing::Firm => self.leave_stage(below, number, stage),
                Footing::Lost(reason) => return self.fail_move(below, number, reason),
                Footing::Waits => return self.tell_waiting(below, number),
            }
        }
    }

    /// Starts the stage after one that is reached and confirmed.
    fn leave_stage(&mut self, below: &mut Below<'_>, number: u32, stage: MoveStage) {
        match stage {
            MoveStage::Preparing => self.reach(below, number, MoveStage::Prepared),
            MoveStage::Prepared => self.flip(below, number),
            MoveStage::Flipping => self.reach(below, number, MoveStage::Flipped),
            MoveStage::Flipped => {
                self.enter_stage(below, number, MoveStage::Quiescing);
                if let Some(moving) = below.server.moving_mut(number) {
                    moving.deadline = Some(below.now + moving.grace);
                }
            }
            MoveStage::Quiescing => self.fold_counters(below, number),
        }
    }

    /// Records a reached stage that a client can wait for.
    fn reach(&mut self, below: &mut Below<'_>, number: u32, stage: MoveStage) {
        self.enter_stage(below, number, stage);
        let Some(moving) = below.server.moving_mut(number) else {
            return;
        };
        if stage == MoveStage::Prepared {
            moving.deadline = Some(below.now + moving.settle);
        }
        if moving.is_where_it_was_told() {
            self.outcomes.insert(number, Ok(()));
        }
    }

    fn footing(&self, below: &Below<'_>, number: u32) -> Footing {
        let port = below.server.ports.get(number);
        let Some((port, moving)) = port.and_then(|p| Some((p, p.moving.as_ref()?))) else {
            return Footing::Waits;
        };
        let awaited = self.unconfirmed(below, port, moving);
        let sent = match moving.stage {
            MoveStage::Preparing | MoveStage::Flipping if !moving.forced => {
                below.switches.verdicts.is_settled(moving.after_batch)
                    && below.server.flood.is_in_force(moving.flood)
            }
            MoveStage::Preparing => !self.owes_answers(below, port, moving),
            _ => true,
        };
        if moving.stage < MoveStage::Flipping {
            let lost =
                |(s, _): &&(SwitchIndex, Bridge)| moving.forced || below.switches.is_gone(*s);
            if let Some(lost) = awaited.iter().find(lost) {
                return Footing::Lost(format!(
                    "{} is not in step",
                    self.bridge_names(below, &[*lost])
                ));
            }
        }
        match sent && awaited.is_empty() {
            true => Footing::Firm,
            false => Footing::Waits,
        }
    }

    /// Returns the bridges that the stage depends on and that have not confirmed it, except those that the move does not wait for.
    fn unconfirmed(
        &self,
        below: &Below<'_>,
        port: &VirtualPort,
        moving: &Move,
    ) -> Vec<(SwitchIndex, Bridge)> {
        let has_flipped = moving.stage >= MoveStage::Flipping;
        let is_excused =
            |s: SwitchIndex| has_flipped && (moving.forced || below.switches.is_gone(s));
        let is_ready = |s: SwitchIndex, bridge| match moving.stage {
            // It is asked for its counters, whatever else it lacks.
            MoveStage::Quiescing => below.switches.list[s].session(bridge).is_up(),
            _ => below.switches.is_confirmed(s, bridge),
        };
        port.rests_on(moving)
            .filter(|(s, bridge)| !is_ready(*s, *bridge) && !is_excused(*s))
            .collect()
    }

    /// Tells whether a bridge that the stage depends on has not answered the barrier after it.
    fn owes_answers(&self, below: &Below<'_>, port: &VirtualPort, moving: &Move) -> bool {
        let verdicts = &below.switches.verdicts;
        let owes = |(s, bridge)| verdicts.is_awaited(s, bridge, moving.after_batch);
        port.rests_on(moving).any(owes)
    }

    /// Answers clients that wait for a move which a bridge has delayed for long. The move itself resumes when that bridge has confirmed.
    fn tell_waiting(&mut self, below: &mut Below<'_>, number: u32) {
        let port = below.server.ports.get(number);
        let Some((port, moving)) = port.and_then(|p| Some((p, p.moving.as_ref()?))) else {
            return;
        };
        let mut awaited = self.unconfirmed(below, port, moving);
        awaited.retain(|(s, bridge)| below.switches.is_given_up(*s, *bridge));
        if awaited.is_empty() || moving.told_waiting {
            return;
        }
        let waiting = PortError::MoveWaits {
            number,
            bridges: self.bridge_names(below, &awaited),
        };
        warn!(target: "core", port = number, "{waiting}");
        self.outcomes.insert(number, Err(waiting));
        if let Some(moving) = below.server.moving_mut(number) {
            moving.told_waiting = true;
        }
    }

    fn bridge_names(&self, below: &Below<'_>, bridges: &[(SwitchIndex, Bridge)]) -> String {
        let name = |(switch, bridge): &(SwitchIndex, Bridge)| {
            format!("{} of {}", bridge.name(), below.switches.list[*switch].name)
        };
        bridges.iter().map(name).collect::<Vec<_>>().join(", ")
    }

    /// Points the paths toward the port to its new interface, one atomic bundle per switch; undoes the move if the interface no longer
    /// exists.
    fn flip(&mut self, below: &mut Below<'_>, number: u32) {
        let Some(to) = below.server.moving_mut(number).map(|m| m.to.clone()) else {
            return;
        };
        if let Err(error) = below.switches.check_present(&to, number) {
            return self.fail_move(below, number, error.to_string());
        }
        if let Some(port) = below.server.ports.get_mut(number) {
            port.awaits_live |= to != port.home;
        }
        // Twice: the stage determines the rules of `edge`, and the batch is known only after sending them.
        self.enter_stage(below, number, MoveStage::Flipping);
        below.switches.update_edges(below.server);
        self.enter_stage(below, number, MoveStage::Flipping);
        info!(target: "core", port = number, "move: flipped, waiting for the data paths");
    }

    fn fail_move(&mut self, below: &mut Below<'_>, number: u32, reason: String) {
        let failure = PortError::MoveFailed { number, reason };
        warn!(target: "core", port = number, "{failure}");
        let port = below.server.ports.get(number);
        if port.is_some_and(|port| port.gathered_from.is_some()) {
            self.gathering_failed(failure.to_string());
        }
        let outcome = self.abort_move(below, number).and(Err(failure));
        self.outcomes.insert(number, outcome);
    }

    /// Fails moves to a switch that refuses copies of accepted rules, which cannot become the executor.
    pub fn fail_moves_to(&mut self, below: &mut Below<'_>, switches: SwitchSet, error: ErrorCode) {
        let names = below.switches.switch_names(switches);
        let fails = |p: &&VirtualPort| {
            let moving = p.moving.as_ref();
            moving.is_some_and(|m| m.stage <= MoveStage::Prepared)
                && p.executor_to_be().is_some_and(|s| switches.contains(s))
        };
        let failed = below.server.ports.iter().filter(fails);
        for number in failed.map(|p| p.number).collect::<Vec<_>>() {
            let reason = format!("{names} refused a copy of a rule, group or meter: {error}");
            self.fail_move(below, number, reason);
        }
    }

    /// Removes what only the other interface needed, after `moving` was cleared. `folded`: its counters are known.
    pub fn end_move(&mut self, below: &mut Below<'_>, number: u32, folded: bool) {
        self.folds.remove(&number);
        below.server.ports.retire_ingress(number);
        let (old, new) = below.server.derive_executors();
        // Packets without a mapped ingress port may have another executor by now.
        self.install_copies(below, &old, &new);
        if folded {
            self.remove_copies(below, &old, &new);
        } else {
            self.retire_copies(below, &old, &new);
        }
        below.server.ports.revision += 1;
        below.server.unsettled = true;
        below.switches.refresh_paths(below.server);
        below.switches.apply_port_config(below.server, number);
        self.ended = true;
    }
}

impl Move {
    /// Tells whether the move waits for a client, or for a statistic in flight.
    fn is_at_rest(&self) -> bool {
        let waits_for_time = self.deadline.is_some();
        let waits_for_counters = self.folding > 0 || self.baseline_asked.is_some();
        waits_for_time || waits_for_counters || self.is_where_it_was_told()
    }

    /// Tells whether the requested stage is reached.
    pub fn is_where_it_was_told(&self) -> bool {
        match self.stage {
            MoveStage::Prepared => self.until == MoveUntil::Prepared,
            MoveStage::Flipped => self.until == MoveUntil::Flipped,
            _ => false,
        }
    }
}

impl VirtualPort {
    /// Iterates over the bridges whose rules the stage depends on. A packet for the port that crosses PCIe passes the hypervisor; the move
    /// does not change the treatment of its packets on other switches.
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
            // Its counters so far are requested.
            MoveStage::Quiescing => (SwitchSet::of(from.switch), SwitchSet::of(executors.0)),
        };
        let edges: Vec<_> = edge.iter().map(|s| (s, Bridge::Edge)).collect();
        let virts: Vec<_> = virt.iter().map(|s| (s, Bridge::Virt)).collect();
        edges.into_iter().chain(virts)
    }
}
