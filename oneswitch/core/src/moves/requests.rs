//! Moving a virtual port to another interface, or its pipeline to another switch, make-before-break (UNO 3.3.2; docs/architecture.md, "A
//! move").
//!
//! Each stage sends its messages, records their batch, and is reached when that batch is settled, its flood generation is in force, and
//! every bridge that it depends on has confirmed it (stages.rs). While a port moves, both interfaces work in both directions.

use crate::api::{
    Bridge, Claim, ExecutorRequest, MoveRequest, MoveStage, MoveUntil, PortError, SwitchIndex,
};
use crate::moves::Moves;
use crate::server::ports::{Executor, Location, Move, VirtualPort};
use crate::switch_set::SwitchSet;
use crate::switches::fold::TRIES;
use crate::switches::reads::Purpose;
use crate::switches::Below;
use openflow13::{ErrorCode, MultipartRequest, PortStats};
use tracing::{info, warn};

impl Moves {
    pub fn take_outcome(&mut self, number: u32) -> Option<Result<(), PortError>> {
        self.outcomes.remove(&number)
    }

    /// # Errors
    /// See [`Core::begin_move`](crate::Core::begin_move).
    pub fn begin_move(
        &mut self,
        below: &mut Below<'_>,
        number: u32,
        request: MoveRequest,
    ) -> Result<(), PortError> {
        let port = below.server.ports.get(number);
        let port = port.ok_or(PortError::PortUnknown(number))?;
        let owner = request.owner.clone();
        port.check_claim(&Claim {
            owner,
            force: false,
        })?;
        if port.moving.is_some() {
            return Err(PortError::MoveInProgress(number));
        }
        let to = below.switches.locate(&request.switch, &request.interface)?;
        let own = port.executor;
        if let Some(taken) = below.server.ports.at(&to) {
            let taken = taken.number;
            return Err(PortError::InterfaceTaken {
                switch: request.switch,
                interface: request.interface,
                number: taken,
            });
        }
        below.switches.check_present(&to, number)?;
        let executor = self.executor_beside(below, own, &to);
        self.check_state_stays_whole(below, number, executor.of(&to))?;
        if executor != own {
            below.server.release_retired_ids(below.now);
            below.server.ports.allocate_ingress(number)?;
            if let Some(port) = below.server.ports.get_mut(number) {
                port.gathered_from.get_or_insert(own);
            }
        }
        self.outcomes.remove(&number);
        self.start_move(
            below,
            number,
            Move {
                forced: request.force,
                settle: request.settle,
                grace: request.grace,
                ..Move::new(to, executor, request.until)
            },
        );
        info!(target: "core", port = number, to = %request.switch, interface = %request.interface, "move: preparing");
        Ok(())
    }

    /// # Errors
    /// See [`Core::begin_executor_change`](crate::Core::begin_executor_change).
    pub fn begin_executor_change(
        &mut self,
        below: &mut Below<'_>,
        number: u32,
        request: &ExecutorRequest,
    ) -> Result<(), PortError> {
        let port = below.server.ports.get(number);
        let port = port.ok_or(PortError::PortUnknown(number))?;
        if port.moving.is_some() {
            return Err(PortError::MoveInProgress(number));
        }
        let home = port.home.clone();
        let executor = below.switches.executor_named(&request.executor)?;
        below.switches.check_present(&home, number)?;
        below.switches.check_up(executor.of(&home))?;
        self.check_state_stays_whole(below, number, executor.of(&home))?;
        if let Executor::At(_) = executor {
            below.server.release_retired_ids(below.now);
            below.server.ports.allocate_ingress(number)?;
        }
        let port = below.server.ports.get_mut(number);
        // Its own executor is the one that was asked for.
        let replaced = port.and_then(|port| port.gathered_from.take());
        self.outcomes.remove(&number);
        self.start_move(
            below,
            number,
            Move {
                replaced,
                forced: request.force,
                settle: request.settle,
                grace: request.grace,
                ..Move::new(home, executor, request.until)
            },
        );
        info!(target: "core", port = number, executor = %request.executor, "move of the executor: preparing");
        Ok(())
    }

    /// Prepares the goal of a move: its rules, and the paths to them. The outcome of the port's last move stays for the client that waits
    /// for it.
    pub fn start_move(&mut self, below: &mut Below<'_>, number: u32, moving: Move) {
        if let Some(port) = below.server.ports.get_mut(number) {
            port.moving = Some(moving);
        }
        below.server.ports.revision += 1;
        let (old, new) = below.server.derive_executors();
        self.install_copies(below, &old, &new);
        // Only packets without a mapped ingress port can have left its executor.
        self.retire_copies(below, &old, &new);
        below.switches.refresh_paths(below.server);
        below.switches.apply_port_config(below.server, number);
        self.read_baseline(below, number);
        self.enter_stage(below, number, MoveStage::Preparing);
        self.retry_goal(below, number);
    }

    /// Rewrites the copies that the future executor has refused, so that the move soon proceeds or fails.
    fn retry_goal(&mut self, below: &mut Below<'_>, number: u32) {
        let port = below.server.ports.get(number);
        let Some(goal) = port.and_then(VirtualPort::executor_to_be) else {
            return;
        };
        let virt = &mut below.switches.list[goal].virt;
        if virt.refusal.is_some() {
            virt.retries = 0;
            below.switches.retry_resync(goal, Bridge::Virt, below.now);
        }
    }

    /// Requests the unknown baselines of interfaces of `switch` that ports move to.
    pub fn read_baselines(&mut self, below: &mut Below<'_>, switch: SwitchIndex) {
        let is_before_flip = |m: &Move| m.to.switch == switch && m.stage <= MoveStage::Prepared;
        let moving = below.server.ports.iter();
        let moving = moving.filter(|p| p.moving.as_ref().is_some_and(is_before_flip));
        let numbers: Vec<u32> = moving.map(|p| p.number).collect();
        numbers
            .into_iter()
            .for_each(|n| self.read_baseline(below, n));
    }

    /// Requests the new interface's counters from before it carries the port, if unknown. The move waits for the answer.
    pub fn read_baseline(&mut self, below: &mut Below<'_>, number: u32) {
        let Some(port) = below.server.ports.get(number) else {
            return;
        };
        let unknown = |m: &&Move| m.counted_before.is_none() && m.to != port.home;
        let Some(moving) = port.moving.as_ref().filter(unknown) else {
            return;
        };
        let goal = moving.to.clone();
        let edge = &below.switches.list[goal.switch].edge;
        let interface = edge.number_of(&goal.interface);
        if let Some(interface) = interface.filter(|_| edge.is_up()) {
            let (from, request) = (
                SwitchSet::of(goal.switch),
                MultipartRequest::PortStats { port: interface },
            );
            let purpose = Purpose::MoveBaseline(number, goal);
            let question = below.switches.read(purpose, Bridge::Edge, from, request);
            if let Some(moving) = below.server.moving_mut(number) {
                moving.baseline_asked = Some(question);
            }
        }
    }

    /// # Errors
    /// See [`Core::continue_move`](crate::Core::continue_move).
    pub fn continue_move(
        &mut self,
        below: &mut Below<'_>,
        number: u32,
        until: MoveUntil,
    ) -> Result<(), PortError> {
        let moving = below.server.moving(number)?;
        moving.until = moving.until.max(until);
        moving.told_waiting = false;
        let arrived = moving.is_where_it_was_told();
        below.server.unsettled = true;
        self.outcomes.remove(&number);
        if arrived {
            self.outcomes.insert(number, Ok(()));
        }
        self.advance_move(below, number);
        Ok(())
    }

    /// # Errors
    /// See [`Core::abort_move`](crate::Core::abort_move).
    pub fn abort_move(&mut self, below: &mut Below<'_>, number: u32) -> Result<(), PortError> {
        let port = below.server.ports.get_mut(number);
        let port = port.ok_or(PortError::PortUnknown(number))?;
        let moving = port.moving.as_ref().ok_or(PortError::NoMove(number))?;
        if moving.stage > MoveStage::Prepared {
            return Err(PortError::MovePastAbort(number));
        }
        if moving.replaced.is_some() {
            port.gathered_from = moving.replaced;
        }
        port.moving = None;
        self.end_move(below, number, false);
        info!(target: "core", port = number, "move: aborted");
        Ok(())
    }

    /// # Errors
    /// `StatefulRules`, where one more executor of `number` would split what rules keep for all ports.
    fn check_state_stays_whole(
        &self,
        below: &Below<'_>,
        number: u32,
        executor: SwitchIndex,
    ) -> Result<(), PortError> {
        let all = below.server.executors.all().union(SwitchSet::of(executor));
        if all.len() > 1 && self.needs_one_executor(below) {
            let executor = below.switches.list[executor].name.clone();
            return Err(PortError::StatefulRules { number, executor });
        }
        Ok(())
    }

    /// Handles the new interface's statistics from before it carried the port; `None` if its bridge disconnected, or refused with `error`.
    pub fn baseline_answered(
        &mut self,
        below: &mut Below<'_>,
        number: u32,
        goal: &Location,
        question: u64,
        stats: Option<PortStats>,
        error: Option<ErrorCode>,
    ) {
        let answered = |m: &&mut Move| m.baseline_asked == Some(question) && m.to == *goal;
        let Some(moving) = below.server.moving_mut(number).filter(answered) else {
            return;
        };
        moving.baseline_asked = None;
        moving.counted_before = stats.filter(|_| error.is_none());
        let Some(error) = error else {
            below.server.unsettled = true;
            return;
        };
        moving.refusals += 1;
        if moving.refusals < TRIES {
            return self.read_baseline(below, number);
        }
        warn!(target: "core", port = number, %error, "move: the new interface does not tell what it has counted before; that will count for the port");
    }
}
