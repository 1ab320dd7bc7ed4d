//! The old instance of a migration: the one that hands over.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::{
        atomic::{AtomicBool, AtomicU64},
        Arc,
    },
    thread,
    time::{Duration, Instant},
};

use nf_arena::{Arena, ArenaBuilder, Clock, Region};
use serde_json::{json, Value};

use super::{
    arguments::{milliseconds, missing, number, out_of_turn, text, timeout},
    outcome::Outcome,
    relay::{Markers, RelaySink, RelaySource, StraySink},
    ring::{rings, Ring, Rings, RINGS},
    secret::Secret,
    socket::Over,
    stream::Stream,
    subject::Subject,
    wire::{dirty_bytes, Message},
};
use crate::{
    gate::{Mode, Order},
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

pub(super) struct Leaving {
    epoch: u64,
    step: Step,
    rings_arena: Arena,
    rings: Rings,
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
    /// Whether the old paths are empty for good: `drain` may fail after that, and later markers are strays.
    quiet: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Prepared,
    Frozen,
    Delivered,
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
            Step::Delivered => "delivered",
            Step::Given => "given",
        }
    }

    /// Returns the handle that ends waits for the new instance, before the commit.
    pub(super) fn over(&self) -> Over {
        self.over.clone()
    }

    /// Answers `{epoch, secret, ring_bytes?}` with the descriptors of the state and the rings, and their parameters. Packets continue.
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
        let (rings_arena, rings) = rings(ArenaBuilder::fresh(RINGS, 1)?, queues, words)?;
        let arena = subject.arena()?;
        let state = duplicate(&arena)?;
        subject.keep_configuration(true);
        let answer = json!({
            "kind": subject.kind(),
            "schema": format!("{:016x}", arena.schema()),
            "bytes": arena.bytes(),
            "config": subject.configuration(),
            "rings": {"queues": queues, "words": words},
        });
        let leaving = Self {
            epoch,
            step: Step::Prepared,
            rings_arena,
            rings,
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

    /// Stops every worker at the end of its batch, after its frames have left; frames arriving from now on go into the rings.
    pub(super) fn freeze(&mut self, subject: &dyn Subject) -> Result<Value, Refusal> {
        self.expect("freeze", &[Step::Prepared])?;
        let start = Instant::now();
        let ordered = subject.gate().order(ORDER_TIMEOUT, |worker| {
            let sink = RelaySink {
                ring: Arc::clone(&self.rings[worker]),
                markers: Arc::clone(&self.markers),
            };
            vec![Order::Relay(Box::new(sink))]
        });
        // Orders not answered in time are in force all the same, or will be.
        self.relays = subject.gate().mode() == Mode::Relay;
        ordered?;
        self.step = Step::Frozen;
        Ok(json!({"stopped_us": start.elapsed().as_micros() as u64}))
    }

    /// Answers `{epoch, timeout_ms?}`: sends the blocks that became dirty since the pre-copy, and the digest of the whole state, which the new instance checks.
    pub(super) fn delta(
        &mut self,
        subject: &dyn Subject,
        arguments: &Value,
    ) -> Result<Value, Refusal> {
        self.expect("delta", &[Step::Frozen])?;
        let Some(stream) = &mut self.stream else {
            return Err(Refusal::new(
                "out-of-turn",
                "\"delta\" without \"precopy\": shared state is not copied",
            ));
        };
        stream.set_stall(milliseconds(arguments)?.unwrap_or(STALL));
        let arena = &subject.arena()?;
        let bytes = stream.send_dirty(arena)?;
        stream.say(&Message::Whole {
            clock: Clock::of(arena).now(),
        })?;
        let digest = arena.digest();
        stream.say(&Message::Digest { digest })?;
        stream.accepted_whole(arena)?;
        self.step = Step::Delivered;
        Ok(json!({"bytes": bytes, "digest": format!("{digest:032x}")}))
    }

    /// Gives up the right to send. Where state was copied, the relay reads the rings and sends their frames to the new instance.
    pub(super) fn commit(&mut self) -> Result<Value, Refusal> {
        let ready = if self.stream.is_some() {
            Step::Delivered
        } else {
            Step::Frozen
        };
        self.expect("commit", &[ready])?;
        if let Some(stream) = &self.stream {
            stream.keep()?;
        }
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

    /// Resumes work, first with the frames that arrived since the freeze.
    pub(super) fn thaw(&mut self, subject: &dyn Subject) -> Result<Value, Refusal> {
        self.expect("thaw", &[Step::Prepared, Step::Frozen, Step::Delivered])?;
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

fn duplicate(arena: &Arena) -> Result<OwnedFd, Refusal> {
    arena.as_fd().try_clone_to_owned().map_err(descriptor)
}

fn descriptor(error: std::io::Error) -> Refusal {
    Refusal::new("system", format!("cannot duplicate a descriptor: {error}"))
}
