//! Gathering: all ports execute at one switch as long as something keeps state that they share (NORMAL, ct), and go home afterwards.
//!
//! Each port's executor changes make-before-break. Messages that need the state wait (core/held.rs) until no packet can be executed elsewhere.

use crate::api::{MoveUntil, PortError, SwitchIndex};
use crate::model::truth::Truth;
use crate::moves::Moves;
use crate::server::executors::HUB;
use crate::server::ports::{Executor, Location, Move, VirtualPort};
use crate::server::Server;
use crate::switches::Below;
use std::fmt;
use std::time::{Duration, Instant};
use tracing::info;

/// The time for which a message waits at most; then it is refused.
const LIMIT: Duration = Duration::from_secs(10);
/// The time from the last use of shared state until the ports go home.
const REST: Duration = Duration::from_secs(30);
/// The time until ports that could not go home are told again, while changes are in flight.
const AGAIN: Duration = Duration::from_millis(100);
/// The time for which data paths may use old flows, before the flip and after it: those of a client's change.
const SETTLE: Duration = Duration::from_millis(100);
const GRACE: Duration = Duration::from_millis(500);

/// The policy, and the present state.
#[derive(Debug, Default)]
pub struct Gathering {
    /// Whether ports are gathered at all; otherwise what needs it is refused.
    pub is_allowed: bool,
    /// The configured switch; `None`: the one where most of the measured traffic enters, or else the one that executes for most ports.
    pub chosen: Option<SwitchIndex>,
    /// Whether meters need it.
    pub includes_meters: bool,
    /// Where the ports are, or are to be, and why there. It holds until they are home again.
    goal: Option<(SwitchIndex, Choice)>,
    /// The last time at which something needed it.
    used: Option<Instant>,
    /// Not before this time are ports moved again, after a failure.
    pause: Option<Instant>,
    /// The reason why the change of a gathered port has failed since the last round.
    failed: Option<String>,
}

/// The reason for the switch where the ports are gathered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    Configured,
    /// The share of the bytes that entered there.
    Traffic {
        percent: u64,
    },
    /// The number of ports that it executed for.
    Ports {
        there: usize,
        all: usize,
    },
    /// Ports were there when oneswitchd started.
    Kept,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Configured => write!(f, "gather_at names it"),
            Self::Traffic { percent } => write!(f, "{percent} % of the traffic entered there"),
            Self::Ports { there, all } => write!(f, "it executed for {there} of {all} ports"),
            Self::Kept => write!(f, "they were there before oneswitchd restarted"),
        }
    }
}

impl Gathering {
    /// Tells whether the measured traffic can still change where ports would be gathered.
    pub fn is_to_be_chosen(&self) -> bool {
        self.is_allowed && self.chosen.is_none() && self.goal.is_none()
    }

    /// Tells whether something in the virtual tables needs all ports at one switch.
    pub fn is_needed_by(&self, truth: &Truth) -> bool {
        truth.is_stateful() || self.includes_meters && !truth.meters.is_empty()
    }
}

/// Where the ports execute.
#[derive(Debug, PartialEq, Eq)]
pub enum Gathered {
    Together,
    /// They are on their way.
    Apart,
    Failed(String),
}

impl Moves {
    pub fn needs_one_executor(&self, below: &Below<'_>) -> bool {
        self.gathering.is_needed_by(below.truth)
    }

    /// Returns the executor for a port that is to be executed by `wanted`: another one, if it would leave the others.
    pub fn executor_beside(
        &self,
        below: &Below<'_>,
        wanted: Executor,
        home: &Location,
    ) -> Executor {
        let gathers = self.gathering.is_allowed && self.needs_one_executor(below);
        match below.server.executors.all().only() {
            Some(only) if gathers && wanted.of(home) != only => Executor::At(only),
            _ => wanted,
        }
    }

    /// Starts to move all executors to one switch.
    ///
    /// # Errors
    /// `SwitchDown`, `FlowIdsExhausted`.
    pub fn gather(&mut self, below: &mut Below<'_>) -> Result<Gathered, PortError> {
        self.gathering.used = Some(below.now);
        if below.server.executors.all().len() == 1 {
            return Ok(Gathered::Together);
        }
        for port in below.server.ports.iter() {
            below.switches.check_up(port.home.switch)?;
        }
        if self.gathering.is_to_be_chosen() && !self.traffic.is_ready(below) {
            return Ok(Gathered::Apart);
        }
        let (goal, why) = self.choose(below);
        below.switches.check_up(goal)?;
        if self.gathered_at() != Some(goal) {
            let at = &below.switches.list[goal].name;
            info!(target: "core", %at, %why, "all ports execute at one switch from now on: they share state");
            self.gathering.goal = Some((goal, why));
        }
        self.bring(below, goal)?;
        Ok(Gathered::Apart)
    }

    fn choose(&self, below: &Below<'_>) -> (SwitchIndex, Choice) {
        let is_cut_off = |switch: SwitchIndex| below.switches.link_dead(switch);
        let before = self.gathering.goal.or_else(|| kept(below.server));
        if let Some(chosen) = self.gathering.chosen {
            return (chosen, Choice::Configured);
        }
        if let Some(before) = before.filter(|(goal, _)| !is_cut_off(*goal)) {
            return before;
        }
        let entered = self.traffic.by_switch(below);
        let connected = entered.iter().map(|(switch, bytes)| (*switch, *bytes));
        let (at, bytes) = most(connected.filter(|(switch, _)| !is_cut_off(*switch)));
        let all: u128 = entered.values().map(|bytes| u128::from(*bytes)).sum();
        if let Some(share) = (u128::from(bytes) * 100).checked_div(all) {
            let percent = share as u64;
            return (at, Choice::Traffic { percent });
        }
        let executed = |switch| {
            let ports = below.server.ports.iter();
            ports.filter(|p| p.executes_at() == switch).count() as u64
        };
        let executors = below.server.executors.all().iter();
        let connected = executors.filter(|switch| !is_cut_off(*switch));
        let (at, there) = most(connected.map(|switch| (switch, executed(switch))));
        let (there, all) = (there as usize, below.server.ports.len());
        (at, Choice::Ports { there, all })
    }

    /// Changes the executors of the ports that are elsewhere and not moving.
    fn bring(&mut self, below: &mut Below<'_>, goal: SwitchIndex) -> Result<(), PortError> {
        let is_elsewhere = |p: &&VirtualPort| p.moving.is_none() && p.executes_at() != goal;
        let elsewhere = below.server.ports.iter().filter(is_elsewhere);
        for number in elsewhere.map(|p| p.number).collect::<Vec<_>>() {
            below.server.release_retired_ids(below.now);
            below.server.ports.allocate_ingress(number)?;
            if let Some(port) = below.server.ports.get_mut(number) {
                port.gathered_from.get_or_insert(port.executor);
            }
            self.change_executor(below, number, Executor::At(goal));
        }
        Ok(())
    }

    fn change_executor(&mut self, below: &mut Below<'_>, number: u32, executor: Executor) {
        let Some(home) = below.server.ports.get(number).map(|p| p.home.clone()) else {
            return;
        };
        let change = Move {
            settle: SETTLE,
            grace: GRACE,
            ..Move::new(home, executor, MoveUntil::Done)
        };
        self.start_move(below, number, change);
    }

    /// Continues what was started. `waits_since`: when the oldest message came that waits for it.
    pub fn advance_gathering(
        &mut self,
        below: &mut Below<'_>,
        waits_since: Option<Instant>,
    ) -> Gathered {
        self.measure_traffic(below);
        let failed = self.gathering.failed.take();
        let is_together = below.server.executors.all().len() == 1;
        if waits_since.is_none() && !self.needs_one_executor(below) {
            self.traffic.end_choice();
            self.go_home(below);
            return Gathered::Apart;
        }
        self.gathering.used = Some(below.now);
        if is_together {
            return Gathered::Together;
        }
        let pauses = self.gathering.pause.is_some_and(|p| p > below.now);
        // A client that waits learns at once whether it fails again.
        if !self.gathering.is_allowed || pauses && waits_since.is_none() {
            return Gathered::Apart;
        }
        let failed = match (failed, waits_since) {
            (Some(failure), _) => failure,
            (None, Some(since)) if since + LIMIT <= below.now => {
                format!("it took longer than {} s", LIMIT.as_secs())
            }
            _ => match self.gather(below) {
                Ok(gathered) => return gathered,
                Err(error) => error.to_string(),
            },
        };
        self.gathering.pause = Some(below.now + LIMIT);
        self.traffic.end_choice();
        Gathered::Failed(failed)
    }

    /// Notes that the change of a gathered port has failed. Its outcome is for the client that waits for it.
    pub fn gathering_failed(&mut self, reason: String) {
        self.gathering.failed = Some(reason);
    }

    /// Returns the ports to their own executors, once nothing has needed one for all for a while.
    fn go_home(&mut self, below: &mut Below<'_>) {
        if below.server.ports.gathered().next().is_none() {
            if self.gathering.goal.take().is_some() {
                info!(target: "core", "all ports execute at their own executors again");
            }
            return;
        }
        // A restart does not keep the time of the last use.
        let used = *self.gathering.used.get_or_insert(below.now);
        if used + REST > below.now {
            return;
        }
        // If a port cannot leave now, it is told again later.
        self.gathering.used = Some(below.now);
        if below.switches.verdicts.changes_in_flight() {
            self.gathering.used = below.now.checked_sub(REST - AGAIN).or(Some(below.now));
            return;
        }
        let gathered = below.server.ports.gathered();
        let still = gathered.filter(|port| port.moving.is_none());
        let own = still.filter_map(|p| Some((p.number, p.gathered_from?, p.home.clone())));
        for (number, executor, home) in own.collect::<Vec<_>>() {
            let is_up = |switch| below.switches.check_up(switch).is_ok();
            let port = below.server.ports.get_mut(number);
            if let Some(port) = port.filter(|port| port.executor == executor) {
                // It never left.
                port.gathered_from = None;
                below.server.ports.revision += 1;
            } else if is_up(home.switch) && is_up(executor.of(&home)) {
                self.change_executor(below, number, executor);
            }
        }
    }

    /// Returns when [`Self::advance_gathering`] next has work. `is_resting`: ports are away from their own executors, and need not be.
    pub fn gathering_deadline(
        &self,
        is_resting: bool,
        waits_since: Option<Instant>,
    ) -> Option<Instant> {
        let limit = waits_since.map(|since| since + LIMIT);
        let rest = self.gathering.used.filter(|_| is_resting);
        let rest = rest.map(|used| used + REST);
        let deadlines = [limit, rest, self.traffic.deadline()];
        deadlines.into_iter().flatten().min()
    }

    /// Returns where the ports are gathered, or are to be.
    pub fn gathered_at(&self) -> Option<SwitchIndex> {
        self.gathering.goal.map(|(at, _)| at)
    }

    /// Returns where the ports are, or are to be, and why there.
    pub fn gathering_place(&self, server: &Server) -> Option<(SwitchIndex, String)> {
        let place = self.gathering.goal.or_else(|| kept(server));
        place.map(|(at, why)| (at, why.to_string()))
    }
}

/// Returns where ports are already, after a restart.
fn kept(server: &Server) -> Option<(SwitchIndex, Choice)> {
    let place = |port: &VirtualPort| match port.gathered_from? {
        own if own == port.executor => port.executor_to_be(),
        _ => Some(port.executes_at()),
    };
    let at = server.ports.iter().find_map(place)?;
    Some((at, Choice::Kept))
}

/// Returns the first of those with the most: the hypervisor comes before the sNICs.
fn most(counts: impl Iterator<Item = (SwitchIndex, u64)>) -> (SwitchIndex, u64) {
    let first = |best: (SwitchIndex, u64), next: (SwitchIndex, u64)| match next.1 > best.1 {
        true => next,
        false => best,
    };
    counts.reduce(first).unwrap_or((HUB, 0))
}
