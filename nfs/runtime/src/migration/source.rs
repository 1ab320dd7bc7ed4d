//! The instance that gives its work away.

use std::{
    io::{BufRead, BufReader, BufWriter, Write},
    net::TcpStream,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    sync::{
        atomic::{AtomicBool, AtomicU64},
        Arc,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use nf_arena::{Arena, ArenaBuilder, Region};
use serde_json::{json, Value};

use super::{
    missing, number, out_of_turn,
    relay::{Markers, RelaySink, RelaySource, StraySink},
    ring::{Record, Ring},
    rings, text, timeout,
    wire::{dirty_bytes, send_dirty, Message},
    Rings, Subject, RINGS,
};
use crate::{
    gate::{Mode, Order},
    Refusal, ORDER_TIMEOUT,
};

/// Bytes of frames that each ring holds unless the request says otherwise: half a second of 1,500-byte frames at 10 Gb/s divided by 40; memory
/// is used only as it fills.
const RING_BYTES: u64 = 16 << 20;
const ROUNDS: u64 = 5;
/// What may be left for the time in which packets wait: half a millisecond at 16 Gb/s.
const FIT_BYTES: u64 = 1 << 20;

pub(super) struct Leaving {
    epoch: u64,
    step: Step,
    rings_arena: Arena,
    rings: Rings,
    markers: Arc<Markers>,
    stray: Arc<AtomicU64>,
    stream: Option<Stream>,
    relay: Option<JoinHandle<std::io::Result<()>>>,
    arena: OwnedFd,
    /// Workers were told to relay, perhaps in vain: `freeze` may have failed.
    relays: bool,
    /// All has come by the old paths that ever will: `drain` may fail after that, and markers are strays then.
    quiet: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Prepared,
    Frozen,
    Delivered,
    Given,
}

/// The way to the new instance, where state is copied.
struct Stream {
    out: BufWriter<Socket>,
    answers: BufReader<Socket>,
    pace: Pace,
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

    /// `{epoch, ring_bytes?}`: the state's and the rings' descriptors, and what is needed to use them. Packets go on.
    pub(super) fn prepare(
        subject: &dyn Subject,
        epoch: u64,
        arguments: &Value,
    ) -> Result<(Self, Value, Vec<OwnedFd>), Refusal> {
        let bytes = number(arguments, "ring_bytes")?
            .unwrap_or(RING_BYTES)
            .clamp(1 << 16, 1 << 32);
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
            markers: Arc::new(Markers::new(epoch)),
            stray: Arc::default(),
            stream: None,
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

    /// The state's, and the rings'.
    pub(super) fn descriptors(&self) -> Result<Vec<OwnedFd>, Refusal> {
        Ok(vec![
            self.arena.try_clone().map_err(descriptor)?,
            duplicate(&self.rings_arena)?,
        ])
    }

    /// `{epoch, to, rate_mbps?, fit_bytes?, rounds?}`: copies the state to the new instance while packets go on, until what is left is little.
    pub(super) fn precopy(
        &mut self,
        subject: &dyn Subject,
        arguments: &Value,
    ) -> Result<Value, Refusal> {
        self.expect("precopy", &[Step::Prepared])?;
        let to = text(arguments, "to")?
            .ok_or_else(|| missing("to", "the address that \"hold\" answered"))?;
        let fit = number(arguments, "fit_bytes")?.unwrap_or(FIT_BYTES);
        let rounds = number(arguments, "rounds")?.unwrap_or(ROUNDS);
        let arena = &subject.arena()?;
        let mut stream = Stream::connect(to, number(arguments, "rate_mbps")?)?;
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

    /// Every worker stops at the end of its batch, with all sent; what arrives from now on goes into the rings.
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
        // Orders that a worker did not answer well are in force all the same, or will be.
        self.relays = subject.gate().mode() == Mode::Relay;
        ordered?;
        self.step = Step::Frozen;
        Ok(json!({"stopped_us": start.elapsed().as_micros() as u64}))
    }

    /// What became dirty since the pre-copy, and the digest of all; the new instance has checked it.
    pub(super) fn delta(&mut self, subject: &dyn Subject) -> Result<Value, Refusal> {
        self.expect("delta", &[Step::Frozen])?;
        let Some(stream) = &mut self.stream else {
            return Err(Refusal::new(
                "out-of-turn",
                "\"delta\" without \"precopy\": state that is shared is not copied",
            ));
        };
        let arena = &subject.arena()?;
        let bytes = stream.send_dirty(arena)?;
        stream.say(&Message::Whole {
            clock: arena.clock().now(),
        })?;
        let digest = arena.digest();
        stream.say(&Message::Digest { digest })?;
        stream.accepted()?;
        self.step = Step::Delivered;
        Ok(json!({"bytes": bytes, "digest": format!("{digest:032x}")}))
    }

    /// The right to send is the other's. Where state was copied, the rings are read here and sent over.
    pub(super) fn commit(&mut self) -> Result<Value, Refusal> {
        let ready = if self.stream.is_some() {
            Step::Delivered
        } else {
            Step::Frozen
        };
        self.expect("commit", &[ready])?;
        if let Some(stream) = self.stream.take() {
            let rings = self.rings.clone();
            let relay = thread::Builder::new()
                .name("relay".into())
                .spawn(move || relay(&rings, stream));
            self.relay = Some(relay.map_err(|error| {
                Refusal::new("system", format!("cannot start the relay: {error}"))
            })?);
        }
        self.step = Step::Given;
        Ok(json!({}))
    }

    /// `{epoch, paths, first?, timeout_ms?}`: waits for the markers of all paths, whose numbers begin with `first`, sees every queue empty, and says how
    /// many frames were put into each ring until then: what was sent by the old paths before the markers is among them.
    pub(super) fn relayed(
        &self,
        subject: &dyn Subject,
        arguments: &Value,
    ) -> Result<Value, Refusal> {
        self.expect("relayed", &[Step::Given])?;
        let paths = number(arguments, "paths")?
            .ok_or_else(|| missing("paths", "how many markers were sent"))?;
        let first = number(arguments, "first")?.unwrap_or(0) as u32;
        let numbers = first..first.saturating_add(paths as u32);
        if let Err(seen) = self.markers.wait(numbers.clone(), timeout(arguments)?) {
            let detail = format!(
                "of the markers {numbers:?} only {seen:?} arrived; send them again and ask again"
            );
            return Err(Refusal::new("timeout", detail));
        }
        subject
            .gate()
            .order(ORDER_TIMEOUT, |_| vec![Order::Sweep])?;
        let frames: Vec<u64> = self.rings.iter().map(|ring| ring.frames()).collect();
        Ok(json!({"relayed": frames}))
    }

    /// As `relayed`, and ends the rings.
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
            // A record of room is always kept for this one.
            let _ = ring.end();
        }
        if let Some(relay) = self.relay.take() {
            let ended = relay
                .join()
                .unwrap_or_else(|_| Err(std::io::Error::other("it panicked")));
            ended.map_err(|error| {
                Refusal::new(
                    "peer",
                    format!("the relay to the new instance broke off: {error}"),
                )
            })?;
        }
        Ok(json!({"relayed": relayed}))
    }

    /// Back to work: first what came in since the freeze.
    pub(super) fn thaw(&mut self, subject: &dyn Subject) -> Result<Value, Refusal> {
        self.expect("thaw", &[Step::Prepared, Step::Frozen, Step::Delivered])?;
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

/// Sends what comes into the rings until each has ended.
fn relay(rings: &[Arc<Ring<Region>>], mut stream: Stream) -> std::io::Result<()> {
    let (mut open, mut frame) = (vec![true; rings.len()], Vec::new());
    while open.contains(&true) {
        let mut idle = true;
        for (queue, ring) in rings.iter().enumerate() {
            while let Some(record) = ring.pop(&mut frame) {
                idle = false;
                match record {
                    Record::Frame { port, .. } => Message::Frame {
                        queue,
                        port,
                        bytes: &frame,
                    }
                    .write(&mut stream.out)?,
                    Record::End => {
                        open[queue] = false;
                        Message::End { queue }.write(&mut stream.out)?;
                    }
                }
            }
        }
        if idle {
            stream.out.flush()?;
            // The rings are shared memory without a bell; this lasts as long as the old path is in use.
            thread::sleep(Duration::from_micros(50));
        }
    }
    stream.out.flush()
}

impl Stream {
    fn connect(to: &str, rate_mbps: Option<u64>) -> Result<Self, Refusal> {
        let socket = Socket::connect(to)?;
        let answers = socket.try_clone().map_err(peer)?;
        Ok(Self {
            out: BufWriter::with_capacity(1 << 18, socket),
            answers: BufReader::new(answers),
            pace: Pace::new(rate_mbps),
        })
    }

    fn say(&mut self, message: &Message<'_>) -> Result<(), Refusal> {
        message
            .write(&mut self.out)
            .and_then(|()| self.out.flush())
            .map_err(peer)
    }

    fn send_dirty(&mut self, arena: &Arena) -> Result<u64, Refusal> {
        let pace = &mut self.pace;
        let sent = send_dirty(arena, &mut self.out, |bytes| pace.spend(bytes)).map_err(peer)?;
        self.out.flush().map_err(peer)?;
        Ok(sent)
    }

    /// The new instance's word on what was sent.
    fn accepted(&mut self) -> Result<(), Refusal> {
        let mut line = String::new();
        if self.answers.read_line(&mut line).map_err(peer)? == 0 {
            return Err(Refusal::new(
                "peer",
                "the new instance closed the connection",
            ));
        }
        match line.trim_end() {
            "" => Ok(()),
            reason => Err(Refusal::new(
                "peer",
                format!("the new instance refused: {reason}"),
            )),
        }
    }
}

/// Waits so that no more than a rate is sent, on average since the start: a PCIe link's share.
struct Pace {
    bytes_per_s: Option<f64>,
    since: Instant,
    spent: f64,
}

impl Pace {
    fn new(rate_mbps: Option<u64>) -> Self {
        Self {
            bytes_per_s: rate_mbps.map(|rate| rate.max(1) as f64 * 125_000.0),
            since: Instant::now(),
            spent: 0.0,
        }
    }

    fn spend(&mut self, bytes: usize) {
        let Some(rate) = self.bytes_per_s else { return };
        // A pause saves up nothing: what was not sent then is not sent faster now.
        let elapsed = self.since.elapsed().as_secs_f64() * rate;
        self.spent = self.spent.max(elapsed - rate / 1000.0) + bytes as f64;
        let ahead = (self.spent - elapsed) / rate;
        if ahead > 0.0 {
            thread::sleep(Duration::from_secs_f64(ahead));
        }
    }
}

/// A connection by either address: `unix:/path`, `tcp:host:port`.
pub(super) enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Socket {
    fn connect(to: &str) -> Result<Self, Refusal> {
        let failed = |error| Refusal::new("peer", format!("cannot connect to {to:?}: {error}"));
        match to.split_once(':') {
            Some(("unix", path)) => UnixStream::connect(path).map(Self::Unix).map_err(failed),
            Some(("tcp", address)) => {
                let stream = TcpStream::connect(address).map_err(failed)?;
                stream.set_nodelay(true).map_err(failed)?;
                Ok(Self::Tcp(stream))
            }
            _ => Err(Refusal::new(
                "malformed",
                format!("{to:?} is no address, expected unix:/path or tcp:host:port"),
            )),
        }
    }

    pub(super) fn try_clone(&self) -> std::io::Result<Self> {
        match self {
            Self::Unix(stream) => stream.try_clone().map(Self::Unix),
            Self::Tcp(stream) => stream.try_clone().map(Self::Tcp),
        }
    }
}

impl std::io::Read for Socket {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(into),
            Self::Tcp(stream) => stream.read(into),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write(bytes),
            Self::Tcp(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn duplicate(arena: &Arena) -> Result<OwnedFd, Refusal> {
    arena.as_fd().try_clone_to_owned().map_err(descriptor)
}

fn descriptor(error: std::io::Error) -> Refusal {
    Refusal::new("system", format!("cannot duplicate a descriptor: {error}"))
}

fn peer(error: std::io::Error) -> Refusal {
    Refusal::new(
        "peer",
        format!("the connection to the new instance: {error}"),
    )
}
