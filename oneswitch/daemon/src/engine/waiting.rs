//! Answers that must wait: for a move, for switches, for the state file.

use std::collections::BTreeMap;
use std::time::Instant;

use oneswitch_core::{BridgeAudit, BridgeState, Core, MarkersSent, PortError, PortView};
use serde_json::{json, Value};
use tokio::sync::oneshot;
use tracing::debug;

use crate::events::{Answer, Problem, Reply};
use crate::state::{Job, Saver};

/// Work of switches that a client waits for.
pub enum Pending {
    Markers(MarkersSent),
    /// A requested audit, as the core names it.
    Audit(u64),
}

impl Pending {
    /// Returns the answer if all switches have confirmed, or if the time is over.
    fn answer(&self, core: &Core, is_over: bool, now: Instant) -> Option<Reply> {
        match self {
            Self::Markers(sent) => match core.silent_about(sent) {
                None => Some(Ok(Answer::Markers(sent.from.clone()))),
                Some(silent) => is_over.then(|| Err(PortError::SwitchSilent(silent).into())),
            },
            Self::Audit(since) => {
                let audits = core.audited(*since, now);
                let has_ended =
                    |each: &BridgeAudit<'_>| each.is_audited || each.state != BridgeState::Up;
                (is_over || audits.iter().all(has_ended)).then(|| {
                    let shown = audits.iter().map(|each| shown(each, now));
                    Ok(Answer::Audit(shown.collect()))
                })
            }
        }
    }
}

/// Returns `Audit` of the contract.
fn shown(audit: &BridgeAudit<'_>, now: Instant) -> Value {
    let found = audit.found.map(|found| {
        json!({
            "age_s": now.saturating_duration_since(found.at).as_secs(),
            "changes": found.changes.count,
            "named": found.changes.named,
            "again": found.again,
        })
    });
    json!({
        "switch": audit.switch,
        "bridge": audit.bridge.name(),
        "state": audit.state.name(),
        "audited": audit.is_audited,
        "found": found,
    })
}

/// Pending answers.
pub struct Waiting {
    /// By port: clients that wait for its move to reach a stage.
    pub(super) moves: BTreeMap<u32, oneshot::Sender<Reply>>,
    /// Clients that wait for all switches, and for how many controllers.
    pub(super) up: Vec<(usize, oneshot::Sender<Reply>)>,
    /// Work that switches have not confirmed, and until when they may.
    pub(super) pending: Vec<(Pending, Instant, oneshot::Sender<Reply>)>,
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
            pending: Vec::new(),
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

    /// Checks which moves have arrived, or have failed. The next request about the port drops the outcome.
    pub fn collect_outcomes(&mut self, core: &mut Core) {
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
    }

    /// Collects outcomes, saves changed ports, and only then releases the answers.
    pub fn finish_round(&mut self, core: &mut Core) {
        self.collect_outcomes(core);
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
        self.pending.iter().map(|(_, deadline, _)| *deadline).min()
    }

    /// Answers requests that all switches have confirmed, and those whose time is over.
    pub fn answer_pending(&mut self, core: &Core, now: Instant) {
        for (pending, deadline, reply) in std::mem::take(&mut self.pending) {
            match pending.answer(core, deadline <= now, now) {
                Some(result) => answer(reply, result),
                None => self.pending.push((pending, deadline, reply)),
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
