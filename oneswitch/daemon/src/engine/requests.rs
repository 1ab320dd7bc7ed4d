//! Requests of the REST API to the core.

use std::time::{Duration, Instant};

use oneswitch_core::{PortError, SwitchIndex};
use tokio::sync::oneshot;

use super::waiting::{answer, port, view, Pending};
use super::{Engine, Session};
use crate::events::{Answer, Link, Peer, Problem, Reply, Request};

/// The time in which switches confirm markers, unless they hang. The client holds packets meanwhile.
const MARKERS_TIMEOUT: Duration = Duration::from_secs(2);
/// Limit of a requested audit.
const AUDIT_TIMEOUT: Duration = Duration::from_secs(5);

impl Engine {
    pub(super) fn request(
        &mut self,
        request: Request,
        reply: oneshot::Sender<Reply>,
        now: Instant,
    ) {
        let core = &mut self.core;
        // An earlier event of this round may have ended the move that another client waits for.
        self.waiting.collect_outcomes(core);
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
                        let pending = Pending::Markers(sent);
                        let pending = (pending, now + MARKERS_TIMEOUT, reply);
                        return self.waiting.pending.push(pending);
                    }
                    Err(error) => return answer(reply, Err(error.into())),
                }
            }
            Request::Audit => {
                let pending = Pending::Audit(core.request_audit(now));
                let pending = (pending, now + AUDIT_TIMEOUT, reply);
                return self.waiting.pending.push(pending);
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
