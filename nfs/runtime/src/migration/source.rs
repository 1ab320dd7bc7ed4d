//! The old instance of a migration: the one that hands over.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::{
        atomic::{AtomicBool, AtomicU64},
        mpsc::{self, RecvTimeoutError},
        Arc,
    },
    thread,
    time::{Duration, Instant},
};

use nf_arena::{Arena, ArenaBuilder, Clock, Region};
use serde_json::{json, Value};

use super::{
    arguments::{milliseconds, missing, number, out_of_turn, text, timeout},
    decision::Decision,
    letter,
    markers::{Markers, Trail, MARKED},
    outcome::Outcome,
    relay::{RelaySink, RelaySource, StraySink},
    ring::{rings, Ring, Rings, RINGS},
    secret::Secret,
    socket::Over,
    stream::Stream,
    subject::Subject,
    wire::{dirty_bytes, Message},
};
use crate::{
    gate::{FrameWatch, Mode, Order},
    Refusal, ORDER_TIMEOUT,
};

/// The default capacity of each ring in bytes of frames: half a second of 1,500-byte frames at 10 Gb/s divided by 40. Memory is used
/// only as a ring fills.
const RING_BYTES: u64 = 16 << 20;
/// The minimum capacity of each ring in frames of the greatest length.
const RING_FRAMES: u64 = 6;
const ROUNDS: u64 = 5;
/// The default remainder that pre-copy leaves for the freeze: half a millisecond at 16 Gb/s.
const FIT_BYTES: u64 = 1 << 20;
/// The time in which the new instance must make progress.
const STALL: Duration = Duration::from_secs(5);
/// The time in which the new instance must begin to wait for the right to send; packets continue meanwhile.
const READY: Duration = Duration::from_secs(1);
/// The time for which `give` waits until the new instance has taken over, to tell how long packets waited.
const TAKEN: Duration = Duration::from_millis(100);
/// The interval between repeated markers: a full queue may have dropped earlier ones.
const AGAIN: Duration = Duration::from_millis(5);
/// The version of the hand-over that `prepare` answers: an agent refuses another one before anything has happened.
const HAND_OVER: u64 = 3;

pub(super) struct Leaving {
    epoch: u64,
    step: Step,
    rings_arena: Arena,
    rings: Rings,
    decision: Decision,
    markers: Arc<Markers>,
    stray: Arc<AtomicU64>,
    secret: Secret,
    stream: Option<Stream>,
    /// Ends waits for the new instance.
    over: Over,
    /// The number of frames that the relay could not send, once it has ended.
    relay: Option<Outcome<u64>>,
    arena: OwnedFd,
    /// Whether workers were ordered to relay. They may not have complied: `freeze` may have failed.
    relays: bool,
    /// Whether the old paths are empty for good: `drain` may fail after that.
    quiet: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Prepared,
    Frozen,
    /// The new instance has been offered the right to send, and has not answered.
    Offered,
    Given,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.over.set();
    }
}

impl Leaving {
    pub(super) fn name(&self) -> &'static str {
        match self.step {
            Step::Prepared => "prepared",
            Step::Frozen => "frozen",
            Step::Offered => "offered",
            Step::Given => "given",
        }
    }

    /// Returns the handle that ends waits for the new instance, before the commit.
    pub(super) fn over(&self) -> Over {
        self.over.clone()
    }

    /// Answers `{epoch, secret, ring_bytes?}` with the descriptors of the state and the rings, their parameters, and what the function keeps outside its
    /// state, encrypted. Packets continue.
    pub(super) fn prepare(
        subject: &dyn Subject,
        epoch: u64,
        arguments: &Value,
    ) -> Result<(Self, Value, Vec<OwnedFd>), Refusal> {
        let secret = Secret::of(arguments)?;
        let longest = subject.longest_frame() as u64;
        let bytes = number(arguments, "ring_bytes")?
            .unwrap_or(RING_BYTES)
            .clamp(RING_FRAMES * longest, 1 << 32);
        let words = Ring::<Region>::words(bytes as usize);
        let queues = subject.gate().workers();
        let builder = ArenaBuilder::fresh(RINGS.0, RINGS.1)?;
        let (rings_arena, rings, decision) = rings(builder, queues, words)?;
        let arena = subject.arena()?;
        let state = duplicate(&arena)?;
        subject.keep_configuration(true);
        // It does not change any more.
        let secrets = subject
            .secrets()
            .inspect_err(|_| subject.keep_configuration(false))?;
        let sealed = secrets.and_then(|secrets| letter::seal(&secret, epoch, &secrets));
        let answer = json!({
            "kind": subject.kind(),
            "schema": format!("{:016x}", arena.schema()),
            "bytes": arena.bytes(),
            "config": subject.configuration(),
            "rings": {"queues": queues, "words": words},
            "sealed": sealed,
            "hand_over": HAND_OVER,
        });
        let leaving = Self {
            epoch,
            step: Step::Prepared,
            rings_arena,
            rings,
            decision,
            markers: Arc::new(Markers::new(epoch, &secret, subject.refused())),
            stray: Arc::default(),
            secret,
            stream: None,
            over: Over::default(),
            relay: None,
            arena: state,
            relays: false,
            quiet: false,
        };
        let descriptors = leaving
            .descriptors()
            .inspect_err(|_| subject.keep_configuration(false))?;
        Ok((leaving, answer, descriptors))
    }

    /// Returns the descriptors of the state and the rings.
    pub(super) fn descriptors(&self) -> Result<Vec<OwnedFd>, Refusal> {
        Ok(vec![
            self.arena.try_clone().map_err(descriptor)?,
            duplicate(&self.rings_arena)?,
        ])
    }

    /// Answers `{epoch, to, rate_mbps?, fit_bytes?, rounds?, timeout_ms?}`: copies the state to the new instance while packets continue, until the rest is small.
    pub(super) fn precopy(
        &mut self,
        subject: &dyn Subject,
        arguments: &Value,
    ) -> Result<Value, Refusal> {
        self.expect("precopy", &[Step::Prepared])?;
        let to = text(arguments, "to")?
            .ok_or_else(|| missing("to", "expected the address that \"hold\" answered"))?;
        let fit = number(arguments, "fit_bytes")?.unwrap_or(FIT_BYTES);
        let rounds = number(arguments, "rounds")?.unwrap_or(ROUNDS);
        let stall = milliseconds(arguments)?.unwrap_or(STALL);
        let rate = number(arguments, "rate_mbps")?;
        let arena = &subject.arena()?;
        let mut stream = Stream::connect(to, &self.secret, rate, stall, &self.over)?;
        stream.say(&Message::Hello {
            epoch: self.epoch,
            schema: arena.schema(),
        })?;
        stream.accepted()?;
        arena.regions().iter().for_each(Region::touch_all);
        let (mut sent, mut round) = (0, 0);
        while round < rounds.max(1) && (round == 0 || dirty_bytes(arena) > fit) {
            sent += stream.send_dirty(arena)?;
            round += 1;
        }
        self.stream = Some(stream);
        Ok(json!({"rounds": round, "bytes": sent, "left": dirty_bytes(arena)}))
    }

    /// Answers `{epoch, first}`: sends markers to the new instance, numbered from `first` on; returns how many. Packets continue.
    pub(super) fn mark(&self, subject: &dyn Subject, arguments: &Value) -> Result<Value, Refusal> {
        self.expect("mark", &[Step::Prepared])?;
        let trail = self
            .trail(subject, arguments)?
            .ok_or_else(|| missing("first", "expected the number of the first marker"))?;
        let send = |worker| vec![trail.of_worker(worker)];
        subject.gate().order(ORDER_TIMEOUT, send)?;
        Ok(json!({"markers": trail.count()}))
    }

    /// Reads `first`, and makes the markers numbered from there on.
    fn trail(&self, subject: &dyn Subject, arguments: &Value) -> Result<Option<Trail>, Refusal> {
        let Some(first) = number(arguments, "first")? else {
            return Ok(None);
        };
        let (workers, ports) = (subject.gate().workers(), subject.live_ports());
        Trail::new(first, workers, &ports, &self.secret, self.epoch).map(Some)
    }

    /// Answers `{epoch, first?, timeout_ms?}`: hands the right to send to the new instance, which waits for it in its `commit`.
    ///
    /// Packets wait from here until the new instance has taken over: every worker stops and, behind all that it has sent, sends its markers, numbered from
    /// `first` on; the new instance sends when they have passed the switches. The rest of a copied state is sent meanwhile.
    ///
    /// # Errors
    /// Before the decision, after which nothing can be undone: `thaw`. After it (phase `offered`), if the new instance did not confirm: `commit`, or `thaw`
    /// once that instance has ended.
    pub(super) fn give(
        &mut self,
        subject: &dyn Subject,
        arguments: &Value,
    ) -> Result<Value, Refusal> {
        self.expect("give", &[Step::Prepared])?;
        let trail = self.trail(subject, arguments)?;
        let stall = milliseconds(arguments)?.unwrap_or(STALL);
        if self.stream.is_none() && !self.decision.await_ready(stall.min(READY)) {
            let detail =
                "the new instance does not wait for the right to send: ask it to \"commit\"";
            return Err(Refusal::new("peer", detail));
        }
        let clock = Clock::of(&subject.arena()?);
        let (start, began) = (Instant::now(), clock.now());
        self.freeze(subject, trail.as_ref())?;
        let stopped = start.elapsed();
        let bytes = match &mut self.stream {
            None => 0,
            Some(stream) => {
                stream.set_stall(stall);
                deliver(stream, &subject.arena()?)?
            }
        };
        self.keep()?;
        self.decision.give();
        self.step = Step::Offered;
        let is_taken = self.await_taken(subject, trail.as_ref(), stall)?;
        let mut freeze = start.elapsed();
        if is_taken && self.stream.is_none() {
            // Both read the same clock. This thread may have waited for a core, which delays no packet.
            let taken = self.decision.taken_at().wrapping_sub(began);
            freeze = freeze.min(Duration::from_nanos(taken));
        }
        self.commit()?;
        Ok(json!({
            "freeze_us": freeze.as_micros() as u64,
            "stopped_us": stopped.as_micros() as u64,
            "bytes": bytes,
            "taken": is_taken,
        }))
    }

    /// Repeats the markers until the new instance has taken over; returns false after the time limit.
    fn await_taken(
        &mut self,
        subject: &dyn Subject,
        trail: Option<&Trail>,
        stall: Duration,
    ) -> Result<bool, Refusal> {
        // The new instance may wait for markers until its own time limit.
        let marked = trail.map_or(Duration::ZERO, |_| MARKED);
        let end = Instant::now() + TAKEN + marked;
        let send_again = || {
            if let Some(trail) = trail {
                let send = |worker| vec![trail.of_worker(worker)];
                // The new instance reports missing markers.
                let _ = subject.gate().order(AGAIN, send);
            }
        };
        let Some(stream) = &mut self.stream else {
            while !self.decision.await_taken(AGAIN) {
                if Instant::now() > end {
                    return Ok(false);
                }
                send_again();
            }
            return Ok(true);
        };
        stream.set_stall(stall + marked);
        stream.say(&Message::Commit)?;
        thread::scope(|scope| {
            let (over, wait) = mpsc::channel::<()>();
            scope.spawn(move || {
                while wait.recv_timeout(AGAIN) == Err(RecvTimeoutError::Timeout)
                    && Instant::now() < end
                {
                    send_again();
                }
            });
            let accepted = stream.accepted();
            drop(over);
            accepted
        })?;
        Ok(true)
    }

    /// Stops every worker at the end of its batch, after its frames have left; it sends its markers behind them. Frames arriving from now on go into the rings.
    fn freeze(&mut self, subject: &dyn Subject, trail: Option<&Trail>) -> Result<(), Refusal> {
        let ordered = subject.gate().order(ORDER_TIMEOUT, |worker| {
            let sink = RelaySink(Arc::clone(&self.rings[worker]));
            let markers: Arc<dyn FrameWatch> = Arc::clone(&self.markers) as _;
            let mut orders = vec![Order::Relay(Box::new(sink)), Order::Watch(markers)];
            orders.extend(trail.map(|trail| trail.of_worker(worker)));
            orders
        });
        // Orders not answered in time are in force all the same, or will be.
        self.relays = subject.gate().mode() == Mode::Relay;
        ordered?;
        self.step = Step::Frozen;
        Ok(())
    }

    /// Protects the waits from being ended: from here on, only their limits end them.
    fn keep(&self) -> Result<(), Refusal> {
        if self.over.keep() {
            return Ok(());
        }
        let detail = "a thaw was asked for; ask for it again";
        Err(Refusal::new("cancelled", detail))
    }

    /// Completes a hand-over that the new instance has confirmed. Where state was copied, the relay reads the rings and sends their frames to the new instance.
    pub(super) fn commit(&mut self) -> Result<Value, Refusal> {
        self.expect("commit", &[Step::Offered, Step::Given])?;
        if let Some(stream) = self.stream.take() {
            let (rings, outcome) = (self.rings.clone(), Outcome::default());
            self.relay = Some(outcome.clone());
            let relay = thread::Builder::new()
                .name("relay".into())
                .spawn(move || stream.relay(&rings, &outcome));
            relay.map_err(|error| {
                Refusal::new("system", format!("cannot start the relay: {error}"))
            })?;
        }
        self.step = Step::Given;
        Ok(json!({}))
    }

    /// Answers `{epoch, paths, first?, timeout_ms?}`: waits for the markers of all paths, numbered from `first` on, and until every queue was empty.
    /// Returns how many frames each ring has got by then: they include everything sent down the old paths before the markers.
    pub(super) fn relayed(
        &self,
        subject: &dyn Subject,
        arguments: &Value,
    ) -> Result<Value, Refusal> {
        self.expect("relayed", &[Step::Given])?;
        let paths = number(arguments, "paths")?
            .ok_or_else(|| missing("paths", "expected the number of markers sent"))?;
        let first = number(arguments, "first")?.unwrap_or(0) as u32;
        let numbers = first..first.saturating_add(paths as u32);
        if let Err(seen) = self.markers.wait(numbers.clone(), timeout(arguments)?) {
            let detail = format!(
                "only the markers {seen:?} of {numbers:?} arrived; send them again and retry"
            );
            return Err(Refusal::new("timeout", detail));
        }
        subject
            .gate()
            .order(ORDER_TIMEOUT, |_| vec![Order::Sweep])?;
        let frames: Vec<u64> = self.rings.iter().map(|ring| ring.frames()).collect();
        Ok(json!({"relayed": frames}))
    }

    /// Like `relayed`, and ends the rings.
    pub(super) fn drain(
        &mut self,
        subject: &dyn Subject,
        arguments: &Value,
    ) -> Result<Value, Refusal> {
        if !self.quiet {
            self.relayed(subject, arguments)?;
            self.quiet = true;
        }
        let gate = subject.gate();
        gate.order(ORDER_TIMEOUT, |_| {
            vec![Order::Relay(Box::new(StraySink(Arc::clone(&self.stray))))]
        })?;
        let relayed: Vec<u64> = self.rings.iter().map(|ring| ring.frames()).collect();
        for ring in &self.rings {
            // The ring always keeps room for this record.
            let _ = ring.end();
        }
        let lost = self.await_relay(timeout(arguments)?)?;
        Ok(json!({"relayed": relayed, "lost": lost}))
    }

    /// Waits until the relay, if there is one, has sent everything; returns the number of frames it could not send.
    fn await_relay(&mut self, longest: Duration) -> Result<u64, Refusal> {
        let Some(relay) = &self.relay else {
            return Ok(0);
        };
        let Some(ended) = relay.wait(longest) else {
            let detail = format!(
                "the new instance did not take all relayed frames within {longest:?}; retry"
            );
            return Err(Refusal::new("timeout", detail));
        };
        // Reported once; the agent continues in any case.
        self.relay = None;
        ended.map_err(|reason| Refusal::new("peer", reason))
    }

    /// Resumes work, first with the frames that arrived since the freeze. After an offer, only once the new instance has ended.
    pub(super) fn thaw(&mut self, subject: &dyn Subject) -> Result<Value, Refusal> {
        self.expect("thaw", &[Step::Prepared, Step::Frozen, Step::Offered])?;
        self.decision.turn_back();
        self.over.set();
        self.stream = None;
        if self.relays {
            let done = Arc::new(AtomicBool::new(true));
            subject.gate().order(ORDER_TIMEOUT, |worker| {
                let own = vec![Arc::clone(&self.rings[worker])];
                let source = RelaySource::new(own, Arc::clone(&done), Arc::default());
                vec![Order::Inject(Box::new(source)), Order::Run]
            })?;
        }
        subject.keep_configuration(false);
        Ok(json!({}))
    }

    fn expect(&self, verb: &str, steps: &[Step]) -> Result<(), Refusal> {
        if steps.contains(&self.step) {
            Ok(())
        } else {
            Err(out_of_turn(verb, self.name()))
        }
    }
}

/// Sends the blocks that became dirty since the pre-copy, and the digest of the whole state, which the new instance checks; returns their bytes.
fn deliver(stream: &mut Stream, arena: &Arena) -> Result<u64, Refusal> {
    let bytes = stream.send_dirty(arena)?;
    stream.say(&Message::Whole {
        clock: Clock::of(arena).now(),
    })?;
    let digest = arena.digest();
    stream.say(&Message::Digest { digest })?;
    stream.accepted_whole(arena)?;
    Ok(bytes)
}

fn duplicate(arena: &Arena) -> Result<OwnedFd, Refusal> {
    arena.as_fd().try_clone_to_owned().map_err(descriptor)
}

fn descriptor(error: std::io::Error) -> Refusal {
    Refusal::new("system", format!("cannot duplicate a descriptor: {error}"))
}
