//! Migration: hands a running instance's work to another one. See `nfs/README.md`, "Migration".
//!
//! [`Migration`] is one instance's part: it implements verbs of the control socket. The agent calls those of the old and the new instance in the
//! order of the table there.
//!
//! | file | content |
//! |---|---|
//! | `arguments.rs` | reads the arguments of verbs |
//! | `subject.rs` | the interface of an instance to migration |
//! | `source.rs` | the verbs of the old instance |
//! | `target.rs` | the verbs of the new instance |
//! | `decision.rs` | who may send |
//! | `ends.rs` | the new instance's hand-over to its ports, once the old one's frames have ended |
//! | `markers.rs` | frames that follow all others on a path |
//! | `urgent.rs` | verbs that act while another verb waits |
//! | `ring.rs`, `relay.rs` | waiting frames |
//! | `stream.rs`, `receiver.rs` | both ends of the connection on which state is copied |
//! | `wire.rs` | messages of state and frames |
//! | `secret.rs`, `sealed.rs`, `letter.rs` | keys; an encrypted, authenticated stream, and text |
//! | `socket.rs`, `outcome.rs` | connections and threads, with limits on waits |

mod arguments;
mod decision;
mod ends;
mod letter;
mod markers;
mod namespace;
mod outcome;
mod receiver;
mod relay;
mod ring;
mod sealed;
mod secret;
mod socket;
mod source;
mod stream;
mod subject;
mod target;
mod urgent;
mod wire;

use std::{
    collections::BTreeMap,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError},
    thread,
    time::{Duration, Instant},
};

use serde_json::{json, Value};

pub use self::ring::{Record, Ring, RingFull};
pub use markers::marker;
pub use relay::orphans;
pub use secret::Secret;

use crate::{
    control::{Reply, Verbs},
    gate::Mode,
    Instance, NetworkFunction, Refusal, ORDER_TIMEOUT,
};
use arguments::{milliseconds, missing, number, out_of_turn};
use source::Leaving;
use subject::{Moving, Subject};
use target::Arriving;
use urgent::Urgent;

/// The answer to a verb, with its descriptors.
pub type Answer = Result<(Value, Vec<OwnedFd>), Refusal>;

/// An instance's part in migrations.
///
/// Thread safety: verbs wait for each other, at most as long as an order to the workers may take; `orphaned` does not wait, and `thaw` ends the wait of
/// the verb before it.
pub struct Migration(Arc<Part>);

struct Part {
    subject: Arc<dyn Subject>,
    current: Mutex<Current>,
    urgent: Mutex<Urgent>,
}

struct Current {
    /// The epoch of the current migration, or of the last one.
    epoch: u64,
    phase: Phase,
    /// The answers to the verbs of this epoch, for repeated requests.
    answers: BTreeMap<&'static str, Value>,
}

enum Phase {
    /// It processes packets, without a migration.
    Running,
    /// It was started to take over another's state.
    Waiting,
    Leaving(Box<Leaving>),
    Arriving(Arriving),
    /// It has handed over its work, or was aborted: it can only be stopped.
    Gone,
}

impl Phase {
    fn name(&self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Leaving(leaving) => leaving.name(),
            Self::Arriving(arriving) => arriving.name(),
            Self::Gone => "gone",
        }
    }
}

const VERBS: [&str; 14] = [
    "prepare", "precopy", "mark", "give", "commit", "relayed", "drain", "thaw", "hold", "marked",
    "release", "handover", "abort", "orphaned",
];
/// Verbs that act again on each request: one migration calls them many times.
const REPEATED: [&str; 4] = ["mark", "marked", "relayed", "release"];

impl Migration {
    /// Creates the part of an instance whose workers run or hold.
    #[must_use]
    pub fn of<N: NetworkFunction>(instance: &Arc<Instance<N>>) -> Self {
        let waits = instance.gate().mode() == Mode::Hold;
        let phase = if waits {
            Phase::Waiting
        } else {
            Phase::Running
        };
        let subject: Arc<dyn Subject> = Arc::new(Moving::new(instance));
        Self(Arc::new(Part {
            current: Mutex::new(Current {
                epoch: 0,
                phase,
                answers: BTreeMap::new(),
            }),
            subject,
            urgent: Mutex::default(),
        }))
    }

    /// Adds the verbs to a control socket's verbs.
    pub fn add_to(self, verbs: &mut Verbs) {
        let migration = Arc::new(self);
        for verb in VERBS {
            let migration = Arc::clone(&migration);
            verbs.add(verb, move |request| {
                let arguments = Value::Object(request.arguments);
                let (value, descriptors) =
                    migration.answer(verb, &arguments, request.descriptors)?;
                Ok(Reply {
                    value,
                    descriptors,
                    then: None,
                })
            });
        }
    }

    /// Executes a verb. Takes or closes the descriptors that came with the request.
    ///
    /// # Errors
    /// If the verb is out of turn or fails; the phase stays the same.
    pub fn answer(
        &self,
        verb: &'static str,
        arguments: &Value,
        descriptors: Vec<OwnedFd>,
    ) -> Answer {
        self.0.answer(verb, arguments, descriptors)
    }
}

impl Part {
    /// See [`Migration::answer`].
    fn answer(
        self: &Arc<Self>,
        verb: &'static str,
        arguments: &Value,
        descriptors: Vec<OwnedFd>,
    ) -> Answer {
        let epoch = number(arguments, "epoch")?
            .ok_or_else(|| missing("epoch", "expected the number of the migration"))?;
        // Not queued behind the current verb, which may wait for exactly this one.
        let told = self.urgent().tell(verb, epoch);
        if verb == "orphaned" {
            told?;
            self.subject.gate().wake_all();
            return Ok((json!({"epoch": epoch}), Vec::new()));
        }
        let longest =
            milliseconds(arguments)?.map_or(ORDER_TIMEOUT, |wait| wait.min(ORDER_TIMEOUT));
        let mut current = self.turn(verb, longest)?;
        current.enter(epoch, verb)?;
        if let Some(answer) = current.answers.get(verb) {
            return Ok((answer.clone(), current.phase.descriptors_again(verb)?));
        }
        let done = self.act(verb, arguments, descriptors, &mut current);
        *self.urgent() = current.urgent();
        let shown = json!({"epoch": current.epoch, "phase": current.phase.name()});
        self.subject.show(shown);
        if let Phase::Arriving(arriving) = &mut current.phase {
            arriving.confirm();
            if arriving.begins_to_follow() {
                self.follow(epoch);
            }
        }
        let (mut answer, descriptors) = done?;
        answer["epoch"] = json!(epoch);
        if !REPEATED.contains(&verb) {
            current.answers.insert(verb, answer.clone());
        }
        Ok((answer, descriptors))
    }

    /// Has a thread process this epoch's `handover` once the old instance's frames have ended. The agent's request then gets its answer.
    fn follow(self: &Arc<Self>, epoch: u64) {
        let (part, of_epoch) = (Arc::downgrade(self), Arc::downgrade(self));
        let hand_over = move || {
            part.upgrade().map_or(Ok(()), |part| {
                let answer = part.answer("handover", &json!({"epoch": epoch}), Vec::new());
                answer.map(drop)
            })
        };
        let arrives = move || of_epoch.upgrade().is_some_and(|part| part.arrives(epoch));
        ends::follow(self.subject.gate(), hand_over, arrives);
    }

    /// Tells whether this epoch's frames of the old instance may not have ended. True while a verb is in progress.
    fn arrives(&self, epoch: u64) -> bool {
        self.current.try_lock().map_or(true, |current| {
            current.epoch == epoch && matches!(current.phase, Phase::Arriving(_))
        })
    }

    /// Waits until no other verb is in progress.
    fn turn(&self, verb: &str, longest: Duration) -> Result<MutexGuard<'_, Current>, Refusal> {
        let end = Instant::now() + longest;
        loop {
            match self.current.try_lock() {
                Ok(current) => return Ok(current),
                Err(TryLockError::Poisoned(poisoned)) => return Ok(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) if Instant::now() > end => {
                    let detail = format!(
                        "{verb:?}: another verb is in progress and did not end within {longest:?}; retry"
                    );
                    return Err(Refusal::new("busy", detail));
                }
                Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    fn urgent(&self) -> MutexGuard<'_, Urgent> {
        self.urgent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn act(
        &self,
        verb: &'static str,
        arguments: &Value,
        descriptors: Vec<OwnedFd>,
        current: &mut MutexGuard<'_, Current>,
    ) -> Answer {
        let subject = self.subject.as_ref();
        let epoch = current.epoch;
        let plain = |value: Value| Ok((value, Vec::new()));
        match (verb, &mut current.phase) {
            ("prepare", Phase::Running) => {
                let (leaving, answer, descriptors) = Leaving::prepare(subject, epoch, arguments)?;
                current.phase = Phase::Leaving(Box::new(leaving));
                Ok((answer, descriptors))
            }
            ("precopy", Phase::Leaving(leaving)) => plain(leaving.precopy(subject, arguments)?),
            ("mark", Phase::Leaving(leaving)) => plain(leaving.mark(subject, arguments)?),
            ("give", Phase::Leaving(leaving)) => plain(leaving.give(subject, arguments)?),
            ("commit", Phase::Leaving(leaving)) => plain(leaving.commit()?),
            ("relayed", Phase::Leaving(leaving)) => plain(leaving.relayed(subject, arguments)?),
            ("drain", Phase::Leaving(leaving)) => {
                let answer = leaving.drain(subject, arguments)?;
                current.phase = Phase::Gone;
                plain(answer)
            }
            ("thaw", Phase::Leaving(leaving)) => {
                let answer = leaving.thaw(subject)?;
                current.phase = Phase::Running;
                plain(answer)
            }
            ("hold", Phase::Waiting) => {
                let (arriving, answer) =
                    Arriving::hold(&self.subject, epoch, arguments, descriptors)?;
                current.phase = Phase::Arriving(arriving);
                plain(answer)
            }
            ("marked", Phase::Arriving(arriving)) => plain(arriving.marked(arguments)?),
            ("commit", Phase::Arriving(arriving)) => plain(arriving.commit(subject, arguments)?),
            ("release", Phase::Arriving(arriving)) => plain(arriving.release(subject, arguments)?),
            ("handover", Phase::Arriving(arriving)) => {
                let answer = arriving.handover(subject, arguments)?;
                current.phase = Phase::Running;
                plain(answer)
            }
            ("abort", Phase::Waiting | Phase::Arriving(_)) => {
                if let Phase::Arriving(arriving) = &current.phase {
                    arriving.may_abort()?;
                }
                current.phase = Phase::Gone;
                plain(json!({}))
            }
            (_, phase) => Err(out_of_turn(verb, phase.name())),
        }
    }
}

impl Current {
    /// Returns the actions that work while a verb waits.
    fn urgent(&self) -> Urgent {
        match &self.phase {
            Phase::Leaving(leaving) => Urgent::of_old(self.epoch, leaving.over()),
            Phase::Arriving(arriving) => Urgent::of_new(self.epoch, arriving.orphan()),
            Phase::Running | Phase::Waiting | Phase::Gone => Urgent::none(self.epoch),
        }
    }

    /// Checks that a verb of this epoch is in turn.
    fn enter(&mut self, epoch: u64, verb: &str) -> Result<(), Refusal> {
        if epoch < self.epoch {
            return Err(Refusal::new(
                "epoch",
                format!("epoch {epoch} is over; expected epoch {}", self.epoch),
            ));
        }
        if epoch > self.epoch {
            let begins = matches!(
                (verb, &self.phase),
                ("prepare", Phase::Running) | ("hold" | "abort", Phase::Waiting)
            );
            if !begins {
                let detail = format!(
                    "{verb:?} of epoch {epoch}, while epoch {} is {}",
                    self.epoch,
                    self.phase.name()
                );
                return Err(Refusal::new("epoch", detail));
            }
            self.epoch = epoch;
            self.answers.clear();
        }
        Ok(())
    }
}

impl Phase {
    /// Returns the descriptors of an answer that is repeated.
    fn descriptors_again(&self, verb: &str) -> Result<Vec<OwnedFd>, Refusal> {
        match (verb, self) {
            ("prepare", Self::Leaving(leaving)) => leaving.descriptors(),
            _ => Ok(Vec::new()),
        }
    }
}
