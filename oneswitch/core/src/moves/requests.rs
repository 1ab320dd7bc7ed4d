//! Moving a virtual port to another interface, or its pipeline to another switch, make-before-break (UNO 3.3.2; docs/architecture.md, "A
//! move").
//!
//! Each stage sends its messages, notes the batch they are in, and is reached when that batch is settled, the flood generation that
//! belongs to it is in force, and every bridge that it rests on has confirmed it (stages.rs). While a port moves, both interfaces work in
//! both directions.

use crate::api::{
    Bridge, Claim, ExecutorRequest, MoveRequest, MoveStage, MoveUntil, PortError, SwitchIndex,
};
use crate::model::rule::Rule;
use crate::server::ports::{Executor, Location, Move, VirtualPort};
use crate::switch_set::SwitchSet;
use crate::switches::fold::TRIES;
use crate::switches::reads::Purpose;
use crate::Core;
use openflow13::{ErrorCode, MultipartRequest, PortStats};
use std::time::Instant;
use tracing::{info, warn};

impl Core {
    /// Starts a move; it goes on by itself with the switches' answers and `tick`. See [`Core::move_outcome`].
    ///
    /// # Errors
    /// `PortUnknown`, `PortOwned`, `SwitchUnknown`, `MoveInProgress`, `InterfaceTaken`, `SwitchDown`, `InterfaceMissing`, `PatchMissing`,
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
        let owner = request.owner.clone();
        port.check_claim(&Claim {
            owner,
            force: false,
        })?;
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
                forced: request.force,
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
            self.release_retired_ids(now);
            self.ports.allocate_ingress(number)?;
        }
        self.start_move(
            number,
            Move {
                forced: request.force,
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
        self.retry_goal(number, now);
    }

    /// Writes the copies again that the executor to be has refused, so that the move soon goes on or fails.
    fn retry_goal(&mut self, number: u32, now: Instant) {
        let port = self.ports.get(number);
        let Some(goal) = port.and_then(VirtualPort::executor_to_be) else {
            return;
        };
        let virt = &mut self.switches[goal].virt;
        if virt.refusal.is_some() {
            virt.retries = 0;
            self.retry_resync(goal, Bridge::Virt, now);
        }
    }

    /// Asks what is not known yet of the interfaces of `switch` that ports move to.
    pub(crate) fn read_baselines(&mut self, switch: SwitchIndex) {
        let is_before_flip = |m: &Move| m.to.switch == switch && m.stage <= MoveStage::Prepared;
        let moving = self.ports.iter();
        let moving = moving.filter(|p| p.moving.as_ref().is_some_and(is_before_flip));
        let numbers: Vec<u32> = moving.map(|p| p.number).collect();
        numbers.into_iter().for_each(|n| self.read_baseline(n));
    }

    /// Asks what the new interface has counted before it carries the port, if that is not known. The move waits for the answer.
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
            let purpose = Purpose::MoveBaseline(number, goal);
            let question = self.read(purpose, Bridge::Edge, from, request);
            if let Some(moving) = self.moving_mut(number) {
                moving.baseline_asked = Some(question);
            }
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
        moving.told_waiting = false;
        self.journal.unsettled = true;
        let arrived = moving.is_where_it_was_told();
        self.move_outcomes.remove(&number);
        if arrived {
            self.move_outcomes.insert(number, Ok(()));
        }
        self.advance_move(number, now);
        Ok(())
    }

    /// From now on a move does not wait for bridges that have not confirmed their rules, because their switch is known to be dead. Before
    /// the flip it fails where it rests on one of them.
    ///
    /// # Errors
    /// `PortUnknown`, `NoMove`.
    pub fn force_move(&mut self, number: u32) -> Result<(), PortError> {
        let port = self.ports.get_mut(number);
        let port = port.ok_or(PortError::PortUnknown(number))?;
        let moving = port.moving.as_mut().ok_or(PortError::NoMove(number))?;
        moving.forced = true;
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
        let patch = crate::layout::edge::patch_name(number);
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

    /// Statistics of the new interface from before it carried the port; `None` where its bridge went away, or refused with `error`.
    pub(crate) fn baseline_answered(
        &mut self,
        number: u32,
        goal: &Location,
        question: u64,
        stats: Option<PortStats>,
        error: Option<ErrorCode>,
    ) {
        let answered = |m: &&mut Move| m.baseline_asked == Some(question) && m.to == *goal;
        let Some(moving) = self.moving_mut(number).filter(answered) else {
            return;
        };
        moving.baseline_asked = None;
        moving.counted_before = stats.filter(|_| error.is_none());
        let Some(error) = error else {
            self.journal.unsettled = true;
            return;
        };
        moving.refusals += 1;
        if moving.refusals < TRIES {
            return self.read_baseline(number);
        }
        warn!(target: "core", port = number, %error, "move: the new interface does not tell what it has counted before; that will count for the port");
    }
}
