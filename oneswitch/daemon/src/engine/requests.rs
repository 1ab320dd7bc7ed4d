//! Requests of the REST API to the core, and answers that must wait: for a move, for the state file.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use oneswitch_core::{
    Claim, Core, ExecutorRequest, MarkersRequest, MarkersSent, MoveRequest, MoveUntil, PortError,
    PortRequest, PortView, SwitchIndex,
};
use tokio::sync::oneshot;

use super::{answer, Engine, Link, Session};
use crate::api::{Answer, Problem, Reply};
use crate::session::Peer;
use crate::state::{Job, Saver};

/// The time in which switches confirm markers, unless they hang. The client holds packets meanwhile.
const MARKERS_TIMEOUT: Duration = Duration::from_secs(2);

/// One request of the contract (docs/architecture.md, "REST of oneswitchd").
#[derive(Debug)]
pub enum Request {
    Status,
    /// The status when all switches are in sync and this many controllers are connected.
    AwaitUp {
        controllers: usize,
    },
    Ports,
    Port(u32),
    AddPort(PortRequest),
    RemovePort(u32, Claim),
    /// Sets the owner that the claim names.
    GivePort(u32, Claim),
    Move(u32, MoveRequest),
    Execute(u32, ExecutorRequest),
    ContinueMove {
        number: u32,
        until: MoveUntil,
        force: bool,
    },
    AbortMove(u32),
    SendMarkers(u32, MarkersRequest),
}

/// Pending answers.
pub struct Waiting {
    /// By port: clients that wait for its move to reach a stage.
    moves: BTreeMap<u32, oneshot::Sender<Reply>>,
    /// Clients that wait for all switches, and for how many controllers.
    up: Vec<(usize, oneshot::Sender<Reply>)>,
    /// Markers that switches have not confirmed, and until when they may.
    markers: Vec<(MarkersSent, Instant, oneshot::Sender<Reply>)>,
    /// Results of this round that changed something.
    settled: Vec<(oneshot::Sender<Reply>, Reply)>,
    saver: Option<Saver>,
    saved_revision: u64,
}

impl Waiting {
    pub fn new(core: &Core, saver: Option<Saver>) -> Self {
        Self {
            moves: BTreeMap::new(),
            up: Vec::new(),
            markers: Vec::new(),
            settled: Vec::new(),
            saver,
            saved_revision: match core.has_unsaved_ports() {
                true => 0,
                false => core.ports_revision(),
            },
        }
    }

    /// Returns when the saver has saved something that the core does not know of.
    pub async fn ports_saved(&mut self) {
        match &mut self.saver {
            Some(saver) => saver.saved_more().await,
            None => std::future::pending().await,
        }
    }

    /// Tells the core which port map is saved, before taking its journal, which drops finished moves.
    pub fn tell_saved(&self, core: &mut Core) {
        let revision = core.ports_revision();
        core.ports_are_saved(self.saver.as_ref().map_or(revision, Saver::saved));
    }

    /// Checks which moves have arrived, saves changed ports, and only then releases the answers.
    pub fn finish_round(&mut self, core: &mut Core) {
        let arrived: Vec<_> = self
            .moves
            .keys()
            .filter_map(|number| core.move_outcome(*number).map(|result| (*number, result)))
            .collect();
        for (number, result) in arrived {
            if let Some(reply) = self.moves.remove(&number) {
                let result = result
                    .map_err(Problem::from)
                    .and_then(|()| port(core, number));
                self.settled.push((reply, result));
            }
        }
        let revision = core.ports_revision();
        let changed = revision != self.saved_revision;
        if !changed && self.settled.is_empty() {
            return;
        }
        self.saved_revision = revision;
        let answers = std::mem::take(&mut self.settled);
        match &self.saver {
            Some(saver) => saver.submit(Job {
                ports: changed.then(|| (revision, core.port_configs())),
                answers,
            }),
            None => answers
                .into_iter()
                .for_each(|(reply, result)| answer(reply, result)),
        }
    }

    /// Returns when the next answer is due, whatever happens.
    pub fn deadline(&self) -> Option<Instant> {
        self.markers.iter().map(|(_, deadline, _)| *deadline).min()
    }

    /// Answers requests for markers that all switches have confirmed, and those whose time is over.
    pub fn answer_markers(&mut self, core: &Core, now: Instant) {
        let waiting = std::mem::take(&mut self.markers);
        for (sent, deadline, reply) in waiting {
            match core.silent_about(&sent) {
                None => answer(reply, Ok(Answer::Markers(sent.from))),
                Some(silent) if deadline <= now => {
                    answer(reply, Err(PortError::SwitchSilent(silent).into()));
                }
                Some(_) => self.markers.push((sent, deadline, reply)),
            }
        }
    }

    fn settle(&mut self, reply: oneshot::Sender<Reply>, result: Reply) {
        self.settled.push((reply, result));
    }

    /// Answers clients that wait for a move that ended without arriving.
    fn release(&mut self, core: &mut Core, number: u32) {
        let Some(reply) = self.moves.remove(&number) else {
            return;
        };
        let outcome = core.move_outcome(number).unwrap_or_else(|| {
            Err(PortError::MoveFailed {
                number,
                reason: "another request ended it".into(),
            })
        });
        let result = outcome
            .map_err(Problem::from)
            .and_then(|()| port(core, number));
        self.settle(reply, result);
    }
}

impl Engine {
    pub(super) fn request(
        &mut self,
        request: Request,
        reply: oneshot::Sender<Reply>,
        now: Instant,
    ) {
        let core = &mut self.core;
        let result = match request {
            Request::Status => return answer(reply, Ok(Answer::Status(Box::new(self.status())))),
            Request::AwaitUp { controllers } => return self.waiting.up.push((controllers, reply)),
            Request::Ports => return answer(reply, Ok(Answer::Ports(core.ports()))),
            Request::Port(number) => return answer(reply, port(core, number)),
            Request::AddPort(request) => match core.add_port(request, now) {
                Ok(number) => view(core, number).map(Answer::Added),
                Err(error) => Err(error.into()),
            },
            Request::RemovePort(number, claim) => {
                let removed = core.remove_port(number, &claim, now);
                if removed.is_ok() {
                    self.waiting.release(core, number);
                }
                removed.map(|()| Answer::Nothing).map_err(Problem::from)
            }
            Request::GivePort(number, claim) => match core.give_port(number, claim) {
                Ok(()) => port(core, number),
                Err(error) => Err(error.into()),
            },
            Request::Move(number, request) => match core.begin_move(number, request, now) {
                Ok(()) => return self.await_move(number, reply),
                Err(error) => Err(error.into()),
            },
            Request::Execute(number, request) => {
                match core.begin_executor_change(number, &request, now) {
                    Ok(()) => return self.await_move(number, reply),
                    Err(error) => Err(error.into()),
                }
            }
            Request::ContinueMove {
                number,
                until,
                force,
            } => {
                let forced = if force {
                    core.force_move(number)
                } else {
                    Ok(())
                };
                match forced.and_then(|()| core.continue_move(number, until, now)) {
                    Ok(()) => return self.await_move(number, reply),
                    Err(error) => Err(error.into()),
                }
            }
            Request::AbortMove(number) => match core.abort_move(number, now) {
                Ok(()) => {
                    self.waiting.release(core, number);
                    port(core, number)
                }
                Err(error) => Err(error.into()),
            },
            Request::SendMarkers(number, request) => {
                let bridges = &self.bridges;
                let is_dead = |switch: SwitchIndex| {
                    let edge = bridges.get(switch).map(|[_, edge]| &edge.link);
                    matches!(edge, Some(Link::Dead { .. }))
                };
                match core.send_markers(number, request, is_dead) {
                    Ok(sent) => {
                        let pending = (sent, now + MARKERS_TIMEOUT, reply);
                        return self.waiting.markers.push(pending);
                    }
                    Err(error) => return answer(reply, Err(error.into())),
                }
            }
        };
        self.waiting.settle(reply, result);
    }

    /// Answers clients that wait for a condition that may hold since this round. Drops requests whose client has disconnected.
    pub(super) fn answer_who_awaits_up(&mut self) {
        if self.waiting.up.is_empty() {
            return;
        }
        self.waiting.up.retain(|(_, reply)| !reply.is_closed());
        if !self.core.is_in_step() {
            return;
        }
        let is_controller = |session: &&Session| matches!(session.peer, Peer::Controller { .. });
        let connected = self.sessions.values().filter(is_controller).count();
        let (ready, waiting): (Vec<_>, _) = std::mem::take(&mut self.waiting.up)
            .into_iter()
            .partition(|(controllers, _)| *controllers <= connected);
        self.waiting.up = waiting;
        for (_, reply) in ready {
            answer(reply, Ok(Answer::Status(Box::new(self.status()))));
        }
    }

    fn await_move(&mut self, number: u32, reply: oneshot::Sender<Reply>) {
        if let Some(earlier) = self.waiting.moves.insert(number, reply) {
            // The core accepted a new request, so the earlier one is over.
            answer(earlier, Err(PortError::MoveInProgress(number).into()));
        }
    }
}

fn view(core: &Core, number: u32) -> Result<PortView, Problem> {
    let found = core.ports().into_iter().find(|port| port.number == number);
    found.ok_or_else(|| PortError::PortUnknown(number).into())
}

fn port(core: &Core, number: u32) -> Reply {
    view(core, number).map(Answer::Port)
}
