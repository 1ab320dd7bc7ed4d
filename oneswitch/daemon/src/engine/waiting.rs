//! Answers that must wait: for a move, for markers, for the state file.

use std::collections::BTreeMap;
use std::time::Instant;

use oneswitch_core::{Core, MarkersSent, PortError, PortView};
use tokio::sync::oneshot;
use tracing::debug;

use crate::events::{Answer, Problem, Reply};
use crate::state::{Job, Saver};

/// Pending answers.
pub struct Waiting {
    /// By port: clients that wait for its move to reach a stage.
    pub(super) moves: BTreeMap<u32, oneshot::Sender<Reply>>,
    /// Clients that wait for all switches, and for how many controllers.
    pub(super) up: Vec<(usize, oneshot::Sender<Reply>)>,
    /// Markers that switches have not confirmed, and until when they may.
    pub(super) markers: Vec<(MarkersSent, Instant, oneshot::Sender<Reply>)>,
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

    pub fn settle(&mut self, reply: oneshot::Sender<Reply>, result: Reply) {
        self.settled.push((reply, result));
    }

    /// Answers clients that wait for a move that ended without arriving.
    pub fn release(&mut self, core: &mut Core, number: u32) {
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

pub(super) fn view(core: &Core, number: u32) -> Result<PortView, Problem> {
    let found = core.ports().into_iter().find(|port| port.number == number);
    found.ok_or_else(|| PortError::PortUnknown(number).into())
}

pub(super) fn port(core: &Core, number: u32) -> Reply {
    view(core, number).map(Answer::Port)
}

/// Answers a request, unless the client has disconnected.
pub(super) fn answer(reply: oneshot::Sender<Reply>, result: Reply) {
    if reply.send(result).is_err() {
        debug!(target: "api", "a client disconnected before its answer");
    }
}
