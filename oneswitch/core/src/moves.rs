//! Moving a virtual port to another interface, or its pipeline to another switch, make-before-break (UNO 3.3.2; docs/architecture.md, "A
//! move").
//!
//! Each stage sends its messages, notes the batch they are in, and is reached when that batch is settled and the flood generation that
//! belongs to it is in force. While a port moves, both interfaces work in both directions.

use crate::api::{
    Bridge, ExecutorRequest, MoveRequest, MoveStage, MoveUntil, PortError, SwitchIndex,
};
use crate::fold::Fold;
use crate::ports::{Executor, Location, Move};
use crate::reads::{combine_ports, minus, Purpose};
use crate::rule::Rule;
use crate::switch_set::SwitchSet;
use crate::Core;
use openflow13::{ErrorCode, MultipartRequest, PortStats};
use std::time::Instant;
use tracing::{info, warn};

impl Core {
    /// Starts a move; it goes on by itself with the switches' answers and `tick`. See [`Core::move_outcome`].
    ///
    /// # Errors
    /// `PortUnknown`, `SwitchUnknown`, `MoveInProgress`, `InterfaceTaken`, `SwitchDown`, `InterfaceMissing`, `PatchMissing`,
    /// `StatefulRules`.
    pub fn begin_move(
        &mut self,
        number: u32,
        request: MoveRequest,
        now: Instant,
    ) -> Result<(), PortError> {
        let port = self
            .ports
            .get(number)
            .ok_or(PortError::PortUnknown(number))?;
        if port.moving.is_some() {
            return Err(PortError::MoveInProgress(number));
        }
        let port_executor = port.executor;
        let to = self.locate(&request.switch, &request.interface)?;
        if let Some(taken) = self.ports.at(&to) {
            let taken = taken.number;
            return Err(PortError::InterfaceTaken {
                switch: request.switch,
                interface: request.interface,
                number: taken,
            });
        }
        self.check_present(&to, number)?;
        self.check_state_stays_whole(number, port_executor.of(&to))?;
        self.start_move(
            number,
            Move {
                settle: request.settle,
                grace: request.grace,
                ..Move::new(to, port_executor, request.until)
            },
            now,
        );
        info!(target: "core", port = number, to = %request.switch, interface = %request.interface, "move: preparing");
        Ok(())
    }

    /// Starts to run the port's pipeline elsewhere: a move whose interface stays. See [`Core::begin_move`].
    ///
    /// # Errors
    /// `PortUnknown`, `SwitchUnknown`, `MoveInProgress`, `SwitchDown`, `InterfaceMissing`, `PatchMissing`, `StatefulRules`,
    /// `FlowIdsExhausted`.
    pub fn begin_executor_change(
        &mut self,
        number: u32,
        request: &ExecutorRequest,
        now: Instant,
    ) -> Result<(), PortError> {
        let port = self
            .ports
            .get(number)
            .ok_or(PortError::PortUnknown(number))?;
        if port.moving.is_some() {
            return Err(PortError::MoveInProgress(number));
        }
        let home = port.home.clone();
        let executor = self.executor_named(&request.executor)?;
        self.check_present(&home, number)?;
        self.check_up(executor.of(&home))?;
        self.check_state_stays_whole(number, executor.of(&home))?;
        if let Executor::At(_) = executor {
            self.ports.allocate_ingress(number)?;
        }
        self.start_move(
            number,
            Move {
                settle: request.settle,
                grace: request.grace,
                ..Move::new(home, executor, request.until)
            },
            now,
        );
        info!(target: "core", port = number, executor = %request.executor, "move of the executor: preparing");
        Ok(())
    }

    /// Prepares the goal of a move: its rules, and the paths to them.
    fn start_move(&mut self, number: u32, moving: Move, now: Instant) {
        self.move_outcomes.remove(&number);
        if let Some(port) = self.ports.get_mut(number) {
            port.moving = Some(moving);
        }
        self.ports.revision += 1;
        let (old, new) = self.derive_executors(self.executors.is_everywhere());
        self.install_copies(&old, &new, now);
        // Only what enters at no mapped port can have left its executor.
        self.retire_copies(&old, &new, now);
        self.refresh_paths();
        self.apply_port_config(number);
        self.read_baseline(number);
        self.enter_stage(number, MoveStage::Preparing);
    }

    /// Asks what the new interface has counted before it carries the port, if that is not known. The answer comes before that to the
    /// barrier of the batch that is open then.
    pub(crate) fn read_baseline(&mut self, number: u32) {
        let Some(port) = self.ports.get(number) else {
            return;
        };
        let unknown = |m: &&Move| m.counted_before.is_none() && m.to != port.home;
        let Some(moving) = port.moving.as_ref().filter(unknown) else {
            return;
        };
        let goal = moving.to.clone();
        let edge = &self.switches[goal.switch].edge;
        let interface = edge.number_of(&goal.interface);
        if let Some(interface) = interface.filter(|_| edge.is_up()) {
            let (from, request) = (
                SwitchSet::of(goal.switch),
                MultipartRequest::PortStats { port: interface },
            );
            self.verdicts.touch(goal.switch, Bridge::Edge);
            let purpose = Purpose::MoveBaseline(number, goal);
            self.read(purpose, Bridge::Edge, from, request);
        }
    }

    /// Lets a move that waits go on.
    ///
    /// # Errors
    /// `PortUnknown`, `NoMove`.
    pub fn continue_move(
        &mut self,
        number: u32,
        until: MoveUntil,
        now: Instant,
    ) -> Result<(), PortError> {
        let port = self
            .ports
            .get_mut(number)
            .ok_or(PortError::PortUnknown(number))?;
        let moving = port.moving.as_mut().ok_or(PortError::NoMove(number))?;
        moving.until = moving.until.max(until);
        self.journal.unsettled = true;
        let arrived = match moving.stage {
            MoveStage::Prepared => moving.until == MoveUntil::Prepared,
            MoveStage::Flipped => moving.until == MoveUntil::Flipped,
            _ => false,
        };
        self.move_outcomes.remove(&number);
        if arrived {
            self.move_outcomes.insert(number, Ok(()));
        }
        self.advance_move(number, now);
        Ok(())
    }

    /// Undoes a move that has not flipped.
    ///
    /// # Errors
    /// `PortUnknown`, `NoMove`, `MovePastAbort`.
    pub fn abort_move(&mut self, number: u32, now: Instant) -> Result<(), PortError> {
        let port = self
            .ports
            .get_mut(number)
            .ok_or(PortError::PortUnknown(number))?;
        let moving = port.moving.as_ref().ok_or(PortError::NoMove(number))?;
        if moving.stage > MoveStage::Prepared {
            return Err(PortError::MovePastAbort(number));
        }
        port.moving = None;
        self.end_move(number, false, now);
        info!(target: "core", port = number, "move: aborted");
        Ok(())
    }

    /// `None` while the move is under way toward its `until`; then once `Some` with how that ended
    /// (reaching `prepared`/`flipped`/`done`, or failing). Callers poll it after every round.
    pub fn move_outcome(&mut self, number: u32) -> Option<Result<(), PortError>> {
        self.move_outcomes.remove(&number)
    }

    /// Whether `rule` has left `switch` with its port, though its copy is still there.
    pub(crate) fn flipped_away(&self, rule: &Rule, switch: SwitchIndex) -> bool {
        let port = rule.in_port().and_then(|n| self.ports.get(n));
        port.is_some_and(|p| {
            p.moving
                .as_ref()
                .is_some_and(|m| m.stage >= MoveStage::Flipping && m.executor.of(&m.to) != switch)
                && p.executes_at() == switch
        })
    }

    pub(crate) fn enter_stage(&mut self, number: u32, stage: MoveStage) {
        let (after_batch, flood) = (self.verdicts.current_batch(), self.flood.current().number);
        if let Some(moving) = self.ports.get_mut(number).and_then(|p| p.moving.as_mut()) {
            moving.stage = stage;
            moving.after_batch = after_batch;
            moving.flood = flood;
            self.journal.unsettled = true;
        }
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

    fn advance_move(&mut self, number: u32, now: Instant) {
        self.take_up(number, now);
        while let Some(moving) = self.ports.get(number).and_then(|p| p.moving.as_ref()) {
            let reached = self.verdicts.is_settled(moving.after_batch)
                && self.flood.is_in_force(moving.flood);
            let (stage, until, deadline) = (moving.stage, moving.until, moving.deadline);
            let (settle, grace) = (moving.settle, moving.grace);
            match stage {
                MoveStage::Preparing if reached => {
                    self.enter_stage(number, MoveStage::Prepared);
                    if let Some(moving) = self.ports.get_mut(number).and_then(|p| p.moving.as_mut())
                    {
                        moving.deadline = Some(now + settle);
                    }
                    if until == MoveUntil::Prepared {
                        self.move_outcomes.insert(number, Ok(()));
                    }
                }
                MoveStage::Prepared if deadline.is_some_and(|d| d <= now) => {
                    if let Some(moving) = self.ports.get_mut(number).and_then(|p| p.moving.as_mut())
                    {
                        moving.deadline = None;
                    }
                }
                MoveStage::Prepared if until > MoveUntil::Prepared && deadline.is_none() => {
                    if !self.flip(number, now) {
                        return;
                    }
                }
                MoveStage::Flipping if reached => {
                    self.enter_stage(number, MoveStage::Flipped);
                    if until == MoveUntil::Flipped {
                        self.move_outcomes.insert(number, Ok(()));
                    }
                }
                MoveStage::Flipped if until > MoveUntil::Flipped => {
                    self.enter_stage(number, MoveStage::Quiescing);
                    if let Some(moving) = self.ports.get_mut(number).and_then(|p| p.moving.as_mut())
                    {
                        moving.deadline = Some(now + grace);
                    }
                }
                MoveStage::Quiescing if deadline.is_some_and(|d| d <= now) => {
                    if let Some(moving) = self.ports.get_mut(number).and_then(|p| p.moving.as_mut())
                    {
                        moving.deadline = None;
                    }
                    self.fold_counters(number, now);
                    return;
                }
                _ => return,
            }
        }
    }

    /// Points the paths toward the port to its new interface, one atomic bundle per switch. False if the move had to be undone.
    fn flip(&mut self, number: u32, now: Instant) -> bool {
        let port = self.ports.get(number);
        let goal = port.and_then(|p| p.moving.as_ref());
        let goal = goal.map(|m| (m.to.clone(), m.executor.of(&m.to)));
        let ready = goal.map(|(to, executor)| {
            self.check_present(&to, number)?;
            self.check_up(executor)
        });
        if let Some(Err(error)) = ready {
            self.fail_move(number, error.to_string(), now);
            return false;
        }
        if let Some(port) = self.ports.get_mut(number) {
            port.awaits_live |= port.moving.as_ref().is_some_and(|m| m.to != port.home);
        }
        // Twice: the stage decides what `edge` must do, and only after that was sent is the batch known.
        self.enter_stage(number, MoveStage::Flipping);
        self.update_edges();
        self.enter_stage(number, MoveStage::Flipping);
        info!(target: "core", port = number, "move: flipped, waiting for the data paths");
        true
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
                moving.is_some_and(|m| {
                    let executor = m.executor.of(&m.to);
                    m.stage <= MoveStage::Prepared
                        && executor != p.executes_at()
                        && switches.contains(executor)
                })
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
        if let Some(moving) = self.ports.get_mut(number).and_then(|p| p.moving.as_mut()) {
            moving.folding += 1;
        }
    }

    /// One awaited statistic is in; with the last one the move ends.
    pub(crate) fn folded(&mut self, number: u32, fold: Option<Fold>, now: Instant) {
        let port = self.ports.get_mut(number);
        let Some(moving) = port.and_then(|p| p.moving.as_mut()) else {
            return;
        };
        moving.folds.extend(fold);
        moving.folding = moving.folding.saturating_sub(1);
        if moving.folding > 0 {
            return;
        }
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
    fn end_move(&mut self, number: u32, folded: bool, now: Instant) {
        if let Some(port) = self.ports.get_mut(number) {
            if port.executor == Executor::Home {
                port.ingress_id = None;
            }
        }
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

    /// # Errors
    /// `StatefulRules`, where one more executor of `number` would split what rules keep for all ports.
    fn check_state_stays_whole(&self, number: u32, executor: SwitchIndex) -> Result<(), PortError> {
        let all = self.executors.all().union(SwitchSet::of(executor));
        if all.len() > 1 && self.truth.is_stateful() {
            let executor = self.switches[executor].name.clone();
            return Err(PortError::StatefulRules { number, executor });
        }
        Ok(())
    }

    /// # Errors
    /// `SwitchDown`.
    pub(crate) fn check_up(&self, switch: SwitchIndex) -> Result<(), PortError> {
        let switch = &self.switches[switch];
        if !switch.edge.is_up() || !switch.virt.is_up() {
            return Err(PortError::SwitchDown(switch.name.clone()));
        }
        Ok(())
    }

    /// The interface and the patch ports of `number` must be there, as far as switches are connected.
    pub(crate) fn check_present(&self, location: &Location, number: u32) -> Result<(), PortError> {
        let home = &self.switches[location.switch];
        self.check_up(location.switch)?;
        if home.edge.number_of(&location.interface).is_none() {
            return Err(PortError::InterfaceMissing {
                switch: home.name.clone(),
                interface: location.interface.clone(),
            });
        }
        let patch = crate::edge::patch_name(number);
        for switch in self.switches.iter().filter(|s| s.edge.is_up()) {
            if switch.edge.number_of(&patch).is_none() {
                return Err(PortError::PatchMissing {
                    switch: switch.name.clone(),
                    patch,
                });
            }
        }
        for switch in self.switches.iter().filter(|s| s.virt.is_up()) {
            if !switch.virt.ports.contains_key(&number) {
                return Err(PortError::PatchMissing {
                    switch: switch.name.clone(),
                    patch: format!("virt-{number}"),
                });
            }
        }
        Ok(())
    }

    /// Statistics of the new interface from before it carried the port.
    pub(crate) fn move_baseline(&mut self, number: u32, goal: &Location, stats: PortStats) {
        let port = self.ports.get_mut(number);
        if let Some(moving) = port.and_then(|p| p.moving.as_mut()) {
            if moving.to == *goal {
                moving.counted_before = Some(stats);
                self.journal.unsettled = true;
            }
        }
    }
}
