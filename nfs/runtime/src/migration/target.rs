//! The new instance of a migration: the one that takes over.

use std::{
    collections::BTreeSet,
    os::fd::OwnedFd,
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering},
        Arc,
    },
    thread,
    time::{Duration, Instant},
};

use nf_arena::{ArenaBuilder, Clock};
use serde_json::{json, Value};

use super::{
    arguments::{milliseconds, missing, number, out_of_turn, text, timeout},
    decision::Decision,
    letter,
    markers::{self, Barrier, Markers, MARKED},
    receiver::{Delivery, Receiver},
    relay::RelaySource,
    ring::{rings, Rings, RINGS},
    secret::Secret,
    socket::{Listener, Over},
    subject::Subject,
};
use crate::{
    gate::{FrameWatch, Order},
    Refusal, ORDER_TIMEOUT,
};

/// The default limit of `commit`'s wait for the right to send.
const GIVEN: Duration = Duration::from_secs(10);

pub(super) struct Arriving {
    committed: bool,
    rings: Rings,
    decision: Decision,
    /// Whether the rings have no writer any more.
    orphaned: Arc<AtomicBool>,
    /// The old instance's markers, if the secret is known.
    markers: Option<Arc<Markers>>,
    /// Ends the wait for the old instance's messages.
    over: Over,
    /// The number of frames taken from the rings.
    taken: Arc<AtomicU64>,
    /// The delivery of copied state.
    delivery: Option<Delivery>,
    /// The name of the fence up to which `release` will release held frames.
    fence: Option<u64>,
    /// The barrier before the frames of the rings.
    barrier: Option<Arc<Barrier>>,
    /// The time, by the state's clock, at which workers began to process them.
    taken_at: u64,
    /// Whether workers were given state and rings, even if `commit` failed then: if given twice, a ring would have a second reader that never sees its end.
    injected: bool,
    /// Whether a thread waits for the ends of the rings.
    follows: bool,
}

impl Drop for Arriving {
    fn drop(&mut self) {
        // After a handover the rings have ended; before the commit no state may arrive here any more.
        self.over.set();
    }
}

impl Arriving {
    pub(super) fn name(&self) -> &'static str {
        if self.committed {
            "relayed-to"
        } else {
            "holding"
        }
    }

    /// Answers `{epoch, mode: "memfd", secret?, rings: {queues, words}}` with the descriptors of `prepare`, or `{epoch, mode: "copy", secret, listen, rings}`;
    /// both also with `sealed` of `prepare`, which the secret opens. The workers are holding already.
    pub(super) fn hold(
        subject: &Arc<dyn Subject>,
        epoch: u64,
        arguments: &Value,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(Self, Value), Refusal> {
        let shape = arguments
            .get("rings")
            .ok_or_else(|| missing("rings", "expected what \"prepare\" answered"))?;
        let size = |name| {
            number(shape, name)?
                .map(|size| size as usize)
                .ok_or_else(|| missing(name, "in \"rings\""))
        };
        let (queues, words) = (size("queues")?, size("words")?);
        let (builder, copied) = match text(arguments, "mode")? {
            Some("memfd") => {
                let Ok([state, rings]) = <[OwnedFd; 2]>::try_from(descriptors) else {
                    return Err(missing(
                        "descriptors",
                        "expected those of \"prepare\", beside the line",
                    ));
                };
                subject.adopt(state)?;
                (ArenaBuilder::adopt(rings, RINGS.0, RINGS.1)?, false)
            }
            Some("copy") => (ArenaBuilder::fresh(RINGS.0, RINGS.1)?, true),
            other => {
                let detail = format!("\"mode\" is {other:?}, expected \"memfd\" or \"copy\"");
                return Err(Refusal::new("malformed", detail));
            }
        };
        if let Some(sealed) = text(arguments, "sealed")? {
            let secrets = letter::open(&Secret::of(arguments)?, epoch, sealed)?;
            subject.inherit(&secrets)?;
        }
        let (_, rings, decision) = rings(builder, queues, words)?;
        let secret = text(arguments, "secret")?
            .map(|_| Secret::of(arguments))
            .transpose()?;
        let markers =
            secret.map(|secret| Arc::new(Markers::new(epoch, &secret, subject.refused())));
        if let Some(markers) = &markers {
            let watch = |_| vec![Order::Watch(Arc::clone(markers) as Arc<dyn FrameWatch>)];
            subject.gate().order(ORDER_TIMEOUT, watch)?;
        }
        let mut arriving = Self {
            committed: false,
            rings,
            decision,
            orphaned: Arc::default(),
            markers,
            over: Over::default(),
            taken: Arc::default(),
            delivery: None,
            fence: None,
            barrier: None,
            taken_at: 0,
            injected: false,
            follows: false,
        };
        let answer = if copied {
            arriving.listen(subject, epoch, arguments)?
        } else {
            json!({})
        };
        Ok((arriving, answer))
    }

    fn listen(
        &mut self,
        subject: &Arc<dyn Subject>,
        epoch: u64,
        arguments: &Value,
    ) -> Result<Value, Refusal> {
        let at = text(arguments, "listen")?
            .ok_or_else(|| missing("listen", "expected unix:/path or tcp:address:port (0: any)"))?;
        let secret = Secret::of(arguments)?;
        let (listener, address) = Listener::bind(at)?;
        let delivery = Delivery::default();
        let receiver = Arc::new(Receiver {
            epoch,
            secret,
            arena: subject.arena()?,
            rings: self.rings.clone(),
            delivery: delivery.clone(),
            over: self.over.clone(),
            refused: subject.refused(),
            taken: AtomicBool::new(false),
        });
        let (orphaned, subject) = (Arc::clone(&self.orphaned), Arc::clone(subject));
        let ended = move || {
            // The rings have no writer any more: they end where they are empty.
            orphaned.store(true, Ordering::Release);
            subject.gate().wake_all();
        };
        receiver.start(listener, ended).map_err(|error| {
            Refusal::new("system", format!("cannot start the receiver: {error}"))
        })?;
        self.delivery = Some(delivery);
        Ok(json!({"address": address}))
    }

    /// Lets the rings end where they are empty, since they have no writer any more. Where state is copied, frames on their way come first.
    pub(super) fn orphan(&self) -> impl Fn() + Send + Sync {
        let (over, orphaned) = (self.over.clone(), Arc::clone(&self.orphaned));
        let is_copied = self.delivery.is_some();
        move || {
            over.set();
            if !is_copied {
                orphaned.store(true, Ordering::Release);
            }
        }
    }

    /// Answers `{epoch, first, markers, timeout_ms?}`: waits for these markers of the old instance.
    pub(super) fn marked(&self, arguments: &Value) -> Result<Value, Refusal> {
        let numbers = markers::numbers(arguments)?
            .ok_or_else(|| missing("first", "expected the number of the first marker"))?;
        let longest = timeout(arguments)?;
        let arrived = self.markers()?.wait(numbers, longest);
        arrived.map_err(|seen| Refusal::new("timeout", lost(&seen, longest)))?;
        Ok(json!({}))
    }

    /// # Errors
    /// If `hold` got no secret.
    fn markers(&self) -> Result<&Arc<Markers>, Refusal> {
        self.markers
            .as_ref()
            .ok_or_else(|| missing("secret", "\"hold\" got none, so no marker can be checked"))
    }

    /// Answers `{epoch, given?, first?, markers?, repair?, timeout_ms?}`: waits for the right to send, which the other instance gives, and takes over: processes
    /// the frames that it relays. Frames from its own ports stay held.
    ///
    /// `given`: the agent knows that the other instance never sends again, even if that could not say so. `first`, `markers`: the markers that follow all that
    /// it has sent, and must arrive first; `unpassed` says why they may not have. `repair`: the previous instance died, perhaps during a change.
    pub(super) fn commit(
        &mut self,
        subject: &dyn Subject,
        arguments: &Value,
    ) -> Result<Value, Refusal> {
        if self.committed {
            return Err(out_of_turn("commit", self.name()));
        }
        if self.injected {
            subject.gate().order(ORDER_TIMEOUT, |_| Vec::new())?;
        } else {
            if let Some(numbers) = markers::numbers(arguments)? {
                let barrier = Barrier::new(Arc::clone(self.markers()?), numbers);
                self.barrier = Some(Arc::new(barrier));
            }
            self.await_given(subject, arguments)?;
            subject.take_over(arguments.get("repair") == Some(&Value::Bool(true)))?;
            self.inject(subject)?;
        }
        let arrived = self.barrier.take().map(|barrier| barrier.open(MARKED));
        // A worker whose ports got no marker polls the barrier again.
        subject.gate().wake_all();
        self.taken_at = Clock::of(&subject.arena()?).now();
        self.committed = true;
        let seen = arrived.and_then(Result::err);
        Ok(json!({"unpassed": seen.map(|seen| lost(&seen, MARKED))}))
    }

    /// Gives each worker the frames of its rings, to be processed once the barrier is open.
    fn inject(&mut self, subject: &dyn Subject) -> Result<(), Refusal> {
        let workers = subject.gate().workers();
        self.injected = true;
        subject.gate().order(ORDER_TIMEOUT, |worker| {
            let own = self
                .rings
                .iter()
                .skip(worker)
                .step_by(workers)
                .map(Arc::clone)
                .collect();
            let source = RelaySource::new(own, Arc::clone(&self.orphaned), Arc::clone(&self.taken));
            vec![Order::Inject(Box::new(source.behind(self.barrier.clone())))]
        })
    }

    /// Tells the old instance that this one has taken over, once it has, and once `status` says so: the old one relays from then on. If it
    /// ends, the agent must see in `status` that it cannot roll back.
    pub(super) fn confirm(&self) {
        if self.committed {
            match &self.delivery {
                Some(delivery) => delivery.taken.settle(Ok(())),
                None => self.decision.take(self.taken_at),
            }
        }
    }

    /// Tells once, after the commit, to wait for the ends of the rings.
    pub(super) fn begins_to_follow(&mut self) -> bool {
        self.committed && !std::mem::replace(&mut self.follows, self.committed)
    }

    /// Waits until the old instance has given up the right to send and, where it is copied, all state is here.
    fn await_given(&self, subject: &dyn Subject, arguments: &Value) -> Result<(), Refusal> {
        let longest = milliseconds(arguments)?.unwrap_or(GIVEN);
        let Some(delivery) = &self.delivery else {
            return self.decision.await_given(longest);
        };
        let is_known = arguments.get("given") == Some(&Value::Bool(true));
        let state = if is_known {
            delivery.state.wait(longest)
        } else {
            let offered = delivery.offered.wait(longest);
            offered.and_then(|offered| match offered {
                Ok(()) => delivery.state.wait(longest),
                Err(reason) => Some(Err(reason)),
            })
        };
        let clock = known(state)?;
        Clock::of(&subject.arena()?).resume(clock);
        Ok(())
    }

    /// Answers `{epoch, fence, reached?, relayed?, timeout_ms?}`: sets the fence `fence` after the frames held now. First, if `reached` is the previous fence,
    /// and the first `relayed` frames of each ring are processed, releases the frames before it: no older frame came down the old paths after those.
    pub(super) fn release(
        &mut self,
        subject: &dyn Subject,
        arguments: &Value,
    ) -> Result<Value, Refusal> {
        if !self.committed {
            return Err(out_of_turn("release", self.name()));
        }
        let fence = number(arguments, "fence")?
            .ok_or_else(|| missing("fence", "expected a number that was not used before"))?;
        if self.fence == Some(fence) {
            return Ok(json!({})); // a repeated request
        }
        let reached = number(arguments, "reached")?;
        let gate = subject.gate();
        if reached.is_some() && reached == self.fence {
            self.await_processed(subject, arguments)?;
            // An order not answered in time takes effect later: the frames fenced then are after these markers.
            self.fence = None;
            gate.order(ORDER_TIMEOUT, |_| vec![Order::Release, Order::Fence])?;
        } else {
            gate.order(ORDER_TIMEOUT, |_| vec![Order::Fence])?;
        }
        self.fence = Some(fence);
        Ok(json!({}))
    }

    /// Waits until each ring's first `relayed` frames are processed.
    fn await_processed(&self, subject: &dyn Subject, arguments: &Value) -> Result<(), Refusal> {
        let frames: Option<Vec<u64>> = arguments
            .get("relayed")
            .and_then(Value::as_array)
            .and_then(|all| all.iter().map(Value::as_u64).collect());
        let frames = frames
            .filter(|frames| frames.len() == self.rings.len())
            .ok_or_else(|| missing("relayed", "expected what \"relayed\" answered"))?;
        let end = Instant::now() + timeout(arguments)?;
        for (ring, frames) in self.rings.iter().zip(frames) {
            loop {
                // Checked before the ring: after this, nothing was written into it.
                let orphaned = self.orphaned.load(Ordering::Acquire);
                if ring.frames_read() >= frames || (orphaned && ring.is_empty()) {
                    break;
                }
                if Instant::now() > end {
                    let detail = format!("processed {} of {frames} frames", ring.frames_read());
                    return Err(Refusal::new("timeout", detail));
                }
                thread::sleep(Duration::from_micros(20));
            }
        }
        processed_and_left(subject)
    }

    /// Answers `{epoch, timeout_ms?}`: when every ring has ended and is empty, processes held frames, and then frames from the ports. A thread asks for it, see `ends.rs`.
    pub(super) fn handover(
        &mut self,
        subject: &dyn Subject,
        arguments: &Value,
    ) -> Result<Value, Refusal> {
        if !self.committed {
            return Err(out_of_turn("handover", self.name()));
        }
        subject.gate().wait_injected(timeout(arguments)?)?;
        processed_and_left(subject)?;
        subject.gate().order(ORDER_TIMEOUT, |_| vec![Order::Run])?;
        subject.drop_replaced();
        Ok(
            json!({"relayed": self.taken.load(Ordering::Relaxed), "orphaned": self.orphaned.load(Ordering::Relaxed)}),
        )
    }

    /// # Errors
    /// If the migration is committed: there is no way back.
    pub(super) fn may_abort(&self) -> Result<(), Refusal> {
        if self.committed {
            Err(out_of_turn("abort", self.name()))
        } else {
            Ok(())
        }
    }
}

/// Returns an outcome of the copy; None: the wait was over before.
fn known<T>(outcome: Option<Result<T, String>>) -> Result<T, Refusal> {
    outcome
        .unwrap_or_else(|| Err("it has not arrived yet".into()))
        .map_err(|reason| Refusal::new("peer", format!("no state: {reason}")))
}

/// Formats the error of missing markers; `seen`: those that arrived.
fn lost(seen: &BTreeSet<u32>, longest: Duration) -> String {
    format!("of the old instance's markers only {seen:?} arrived within {longest:?}")
}

/// Waits until the frames taken by workers are processed, which they are between two batches. If another worker may send the released frames by
/// another queue, also waits until the taken ones have left.
fn processed_and_left(subject: &dyn Subject) -> Result<(), Refusal> {
    let gate = subject.gate();
    let several = gate.workers() > 1;
    gate.order(ORDER_TIMEOUT, |_| {
        several.then_some(Order::Flush).into_iter().collect()
    })
}
