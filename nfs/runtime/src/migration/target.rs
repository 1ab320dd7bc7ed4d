//! The instance that takes the work over.

use std::{
    io::{self, BufReader, Read, Write},
    net::TcpListener,
    os::{fd::OwnedFd, unix::net::UnixListener},
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering},
        Arc, Condvar, Mutex, PoisonError,
    },
    thread,
    time::{Duration, Instant},
};

use nf_arena::{Arena, ArenaBuilder, Region};
use serde_json::{json, Value};

use super::{
    missing, number, out_of_turn,
    relay::RelaySource,
    ring::Ring,
    rings,
    source::Socket,
    text, timeout,
    wire::{put_blocks, Message},
    Rings, Subject, RINGS,
};
use crate::{gate::Order, Refusal, ORDER_TIMEOUT};

pub(super) struct Arriving {
    committed: bool,
    rings: Rings,
    orphaned: Arc<AtomicBool>,
    /// Frames that were taken from the rings.
    taken: Arc<AtomicU64>,
    /// Where state is copied.
    delivery: Option<Arc<Delivery>>,
    /// The name of the moment until which `release` will let go what was held.
    fence: Option<u64>,
    /// Workers were given state and rings, even if `commit` failed then: rings given twice would have a reader that never sees their end.
    injected: bool,
}

/// What came of the state that the other instance sends.
#[derive(Default)]
struct Delivery {
    outcome: Mutex<Option<Result<u64, String>>>,
    changed: Condvar,
}

impl Arriving {
    pub(super) fn name(&self) -> &'static str {
        if self.committed {
            "relayed-to"
        } else {
            "holding"
        }
    }

    /// `{epoch, mode: "memfd", rings: {queues, words}}` with the descriptors that `prepare` gave, or `{epoch, mode: "copy", listen, rings}`. The workers
    /// hold already.
    pub(super) fn hold(
        subject: &Arc<dyn Subject>,
        epoch: u64,
        arguments: &Value,
        descriptors: Vec<OwnedFd>,
        orphaned: &Arc<AtomicBool>,
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
            orphaned: Arc::clone(orphaned),
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
        let (listener, address) = Listener::bind(at)?;
        let delivery = Arc::new(Delivery::default());
        let receiver = Receiver {
            epoch,
            arena: subject.arena()?,
            rings: self.rings.clone(),
            delivery: Arc::clone(&delivery),
        };
        let (orphaned, subject) = (Arc::clone(&self.orphaned), Arc::clone(subject));
        let receive = move || {
            let end = listener
                .accept()
                .and_then(|socket| receiver.receive(socket));
            let reason = end
                .err()
                .map_or("the old instance closed the connection".into(), |error| {
                    error.to_string()
                });
            receiver.delivery.settle(Err(reason));
            // Nobody writes into the rings any more: they end where they are empty.
            orphaned.store(true, Ordering::Release);
            subject.gate().wake_all();
        };
        let started = thread::Builder::new().name("receive".into()).spawn(receive);
        started.map_err(|error| {
            Refusal::new("system", format!("cannot start the receiver: {error}"))
        })?;
        self.delivery = Some(delivery);
        Ok(json!({"address": address}))
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
                .wait(Duration::from_secs(5))
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

impl Delivery {
    /// Only the first word counts.
    fn settle(&self, outcome: Result<u64, String>) {
        self.outcome
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert(outcome);
        self.changed.notify_all();
    }

    /// The other instance's clock when its state was complete.
    fn wait(&self, longest: Duration) -> Result<u64, String> {
        let outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        let (outcome, _) = self
            .changed
            .wait_timeout_while(outcome, longest, |outcome| outcome.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        outcome
            .clone()
            .unwrap_or_else(|| Err("it has not come yet".into()))
    }
}

/// Puts what the other instance sends where it belongs.
struct Receiver {
    epoch: u64,
    arena: Arena,
    rings: Rings,
    delivery: Arc<Delivery>,
}

impl Receiver {
    fn receive(&self, socket: Socket) -> io::Result<()> {
        let mut answers = socket.try_clone()?;
        let mut from = BufReader::with_capacity(1 << 18, socket);
        let (mut buffer, mut digest_here, mut clock) = (Vec::new(), None, 0);
        self.greet(&mut from, &mut answers, &mut buffer)?;
        while let Some(message) = Message::read(&mut from, &mut buffer)? {
            match message {
                Message::Blocks {
                    region,
                    first,
                    words,
                } if digest_here.is_none() => put_blocks(&self.arena, region, first, words)?,
                Message::Whole { clock: at } => {
                    clock = at;
                    digest_here = Some(self.arena.digest());
                }
                Message::Digest { digest } => {
                    let verdict = match digest_here {
                        Some(here) if here == digest => Ok(clock),
                        here => Err(format!(
                            "the state's digest is {:032x}, the sender's {digest:032x}",
                            here.unwrap_or_default()
                        )),
                    };
                    say(
                        &mut answers,
                        verdict.as_ref().err().map_or("", |reason| reason),
                    )?;
                    self.delivery.settle(verdict);
                }
                Message::Frame { queue, port, bytes } => {
                    let ring = self.ring(queue)?;
                    // Workers empty it; until they have, the sender waits.
                    while ring.push(port, bytes).is_err() {
                        thread::sleep(Duration::from_micros(50));
                    }
                }
                Message::End { queue } => drop(self.ring(queue)?.end()),
                other => return Err(io::Error::other(format!("out of turn: {other:?}"))),
            }
        }
        Ok(())
    }

    fn greet(
        &self,
        from: &mut impl Read,
        answers: &mut Socket,
        buffer: &mut Vec<u8>,
    ) -> io::Result<()> {
        let (epoch, schema) = (self.epoch, self.arena.schema());
        let problem = match Message::read(from, buffer)? {
            Some(Message::Hello { epoch: theirs, .. }) if theirs != epoch => {
                format!("epoch {theirs}, expected {epoch}")
            }
            Some(Message::Hello { schema: theirs, .. }) if theirs != schema => {
                format!("state of schema {theirs:016x}, expected {schema:016x}: another configuration or version")
            }
            Some(Message::Hello { .. }) => String::new(),
            _ => "no greeting".into(),
        };
        say(answers, &problem)?;
        if problem.is_empty() {
            Ok(())
        } else {
            Err(io::Error::other(problem))
        }
    }

    fn ring(&self, queue: usize) -> io::Result<&Ring<Region>> {
        let ring = self.rings.get(queue).map(Arc::as_ref);
        ring.ok_or_else(|| {
            io::Error::other(format!("queue {queue}, of {} queues", self.rings.len()))
        })
    }
}

fn say(answers: &mut Socket, line: &str) -> io::Result<()> {
    answers.write_all(format!("{line}\n").as_bytes())
}

enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Listener {
    /// Listens, and says at which address.
    fn bind(at: &str) -> Result<(Self, String), Refusal> {
        let failed = |error| Refusal::new("system", format!("cannot listen on {at:?}: {error}"));
        match at.split_once(':') {
            Some(("unix", path)) => Ok((
                Self::Unix(UnixListener::bind(path).map_err(failed)?),
                at.to_owned(),
            )),
            Some(("tcp", address)) => {
                let listener = TcpListener::bind(address).map_err(failed)?;
                let address = listener.local_addr().map_err(failed)?;
                Ok((Self::Tcp(listener), format!("tcp:{address}")))
            }
            _ => Err(Refusal::new(
                "malformed",
                format!("{at:?} is no address, expected unix:/path or tcp:address:port"),
            )),
        }
    }

    fn accept(&self) -> io::Result<Socket> {
        match self {
            Self::Unix(listener) => listener.accept().map(|(stream, _)| Socket::Unix(stream)),
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                Ok(Socket::Tcp(stream))
            }
        }
    }
}
