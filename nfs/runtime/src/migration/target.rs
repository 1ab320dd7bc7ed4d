//! The instance that takes the work over.

use std::{
    os::fd::OwnedFd,
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering},
        Arc,
    },
    thread,
    time::{Duration, Instant},
};

use nf_arena::ArenaBuilder;
use serde_json::{json, Value};

use super::{
    milliseconds, missing, number, out_of_turn,
    receiver::{Delivery, Receiver},
    relay::RelaySource,
    rings,
    secret::Secret,
    socket::{Listener, Over},
    text, timeout, Rings, Subject, RINGS,
};
use crate::{gate::Order, Refusal, ORDER_TIMEOUT};

/// How long `commit` waits, unless the request says otherwise, for the end of the state, which `delta` has sent already.
const DELIVERY: Duration = Duration::from_secs(5);

pub(super) struct Arriving {
    committed: bool,
    rings: Rings,
    /// Nobody writes into the rings any more.
    orphaned: Arc<AtomicBool>,
    /// Ends the wait for what the old instance sends.
    over: Over,
    /// Frames that were taken from the rings.
    taken: Arc<AtomicU64>,
    /// Where state is copied.
    delivery: Option<Delivery>,
    /// The name of the moment until which `release` will let go what was held.
    fence: Option<u64>,
    /// Workers were given state and rings, even if `commit` failed then: rings given twice would have a reader that never sees their end.
    injected: bool,
}

impl Drop for Arriving {
    fn drop(&mut self) {
        // After a handover the rings have ended; before the commit nobody is to send state here any more.
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

    /// `{epoch, mode: "memfd", rings: {queues, words}}` with the descriptors that `prepare` gave, or `{epoch, mode: "copy", secret, listen, rings}`. The
    /// workers hold already.
    pub(super) fn hold(
        subject: &Arc<dyn Subject>,
        epoch: u64,
        arguments: &Value,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(Self, Value), Refusal> {
        let shape = arguments
            .get("rings")
            .ok_or_else(|| missing("rings", "what \"prepare\" answered"))?;
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
                        "those that \"prepare\" gave, beside the line",
                    ));
                };
                subject.adopt(state)?;
                (ArenaBuilder::adopt(rings, RINGS, 1)?, false)
            }
            Some("copy") => (ArenaBuilder::fresh(RINGS, 1)?, true),
            other => {
                let detail = format!("\"mode\" is {other:?}, expected \"memfd\" or \"copy\"");
                return Err(Refusal::new("malformed", detail));
            }
        };
        let (_, rings) = rings(builder, queues, words)?;
        let mut arriving = Self {
            committed: false,
            rings,
            orphaned: Arc::default(),
            over: Over::default(),
            taken: Arc::default(),
            delivery: None,
            fence: None,
            injected: false,
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
            .ok_or_else(|| missing("listen", "unix:/path or tcp:address:port (0: any)"))?;
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
            // Nobody writes into the rings any more: they end where they are empty.
            orphaned.store(true, Ordering::Release);
            subject.gate().wake_all();
        };
        receiver.start(listener, ended).map_err(|error| {
            Refusal::new("system", format!("cannot start the receiver: {error}"))
        })?;
        self.delivery = Some(delivery);
        Ok(json!({"address": address}))
    }

    /// Has the rings end where they are empty: nobody writes into them any more. What is on its way where state is copied comes before.
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

    /// The right to send is this instance's: it processes what the other relays. What its ports deliver it still holds.
    /// `repair`: the instance before died, perhaps while it changed something.
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
            self.committed = true;
            return Ok(json!({}));
        }
        if let Some(delivery) = &self.delivery {
            let clock = delivery
                .wait(milliseconds(arguments)?.unwrap_or(DELIVERY))
                .unwrap_or_else(|| Err("it has not come yet".into()))
                .map_err(|reason| Refusal::new("peer", format!("no state: {reason}")))?;
            subject.arena()?.clock().resume(clock);
        }
        subject.take_over(arguments.get("repair") == Some(&Value::Bool(true)))?;
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
            vec![Order::Inject(Box::new(source))]
        })?;
        self.committed = true;
        Ok(json!({}))
    }

    /// `{epoch, fence, reached?, relayed?, timeout_ms?}`: remembers what is held now as `fence`. First, when `reached` is the fence of before, and the
    /// first `relayed` frames of each ring are processed, what was held then is let go: nothing that is older came by the old paths after those frames.
    pub(super) fn release(
        &mut self,
        subject: &dyn Subject,
        arguments: &Value,
    ) -> Result<Value, Refusal> {
        if !self.committed {
            return Err(out_of_turn("release", self.name()));
        }
        let fence = number(arguments, "fence")?
            .ok_or_else(|| missing("fence", "a number that was not used before"))?;
        if self.fence == Some(fence) {
            return Ok(json!({})); // it was asked before
        }
        let reached = number(arguments, "reached")?;
        let gate = subject.gate();
        if reached.is_some() && reached == self.fence {
            self.await_processed(subject, arguments)?;
            // Orders that a worker does not answer in time come into force later: what is fenced then is behind these markers.
            self.fence = None;
            gate.order(ORDER_TIMEOUT, |_| vec![Order::Release, Order::Fence])?;
        } else {
            gate.order(ORDER_TIMEOUT, |_| vec![Order::Fence])?;
        }
        self.fence = Some(fence);
        Ok(json!({}))
    }

    /// Until each ring's first frames, as many as `relayed` says, are processed.
    fn await_processed(&self, subject: &dyn Subject, arguments: &Value) -> Result<(), Refusal> {
        let frames: Option<Vec<u64>> = arguments
            .get("relayed")
            .and_then(Value::as_array)
            .and_then(|all| all.iter().map(Value::as_u64).collect());
        let frames = frames
            .filter(|frames| frames.len() == self.rings.len())
            .ok_or_else(|| missing("relayed", "what \"relayed\" answered"))?;
        let end = Instant::now() + timeout(arguments)?;
        for (ring, frames) in self.rings.iter().zip(frames) {
            loop {
                // Before the look into the ring: nobody wrote into it after that.
                let orphaned = self.orphaned.load(Ordering::Acquire);
                if ring.frames_read() >= frames || (orphaned && ring.is_empty()) {
                    break;
                }
                if Instant::now() > end {
                    let detail = format!("{} of {frames} frames are processed", ring.frames_read());
                    return Err(Refusal::new("timeout", detail));
                }
                thread::sleep(Duration::from_micros(20));
            }
        }
        processed_and_left(subject)
    }

    /// `{epoch, timeout_ms?}`: when every ring has ended and is empty, what was held, and then what the ports deliver.
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
        Ok(
            json!({"relayed": self.taken.load(Ordering::Relaxed), "orphaned": self.orphaned.load(Ordering::Relaxed)}),
        )
    }

    /// # Errors
    /// After the commit there is no way back.
    pub(super) fn may_abort(&self) -> Result<(), Refusal> {
        if self.committed {
            Err(out_of_turn("abort", self.name()))
        } else {
            Ok(())
        }
    }
}

/// Waits until what workers have taken is processed, which it is between two batches; and, where what is let go then may be another worker's to send, by
/// another queue, until it has left.
fn processed_and_left(subject: &dyn Subject) -> Result<(), Refusal> {
    let gate = subject.gate();
    let several = gate.workers() > 1;
    gate.order(ORDER_TIMEOUT, |_| {
        several.then_some(Order::Flush).into_iter().collect()
    })
}
