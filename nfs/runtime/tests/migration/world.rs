//! Two instances of a function whose state reveals every fault, and traffic that moves from one to the other.

use std::{
    collections::HashMap,
    os::fd::OwnedFd,
    sync::{
        atomic::{AtomicBool, Ordering},
        Arc, Mutex, RwLock,
    },
    thread,
    time::Duration,
};

use nf_ports::memory::{self, Wire};
use nf_runtime::{
    migration::{marker, Migration, Secret},
    state::{FlowTable, StateBuilder},
    Batch, Context, Instance, NetworkFunction, Options, Prepared, Refusal,
};
use serde_json::{json, Value};
use zeroize::Zeroizing;

use crate::watchdog::watch;

/// The secret of all migrations in these tests.
pub const SECRET: &str = "5e0f0cb18d6a44b57c1ab1e0d70ce7d0a35d5ee14d2ed9d1a0d0a9b3a7c1e2f4";

/// Builds an authentic marker of a path to an old instance.
pub fn authentic(epoch: u64, number: u32) -> Vec<u8> {
    let secret = Secret::parse(SECRET).unwrap();
    marker([2; 6], [4; 6], &secret, epoch, number).to_vec()
}

/// The number of the first marker sent before the final ones.
const FIRST: u32 = 7000;

/// The maximum of frames of traffic: a wire holds 65,536, which are only read at the end. On a busy machine a move takes long.
const MOST: u32 = 50_000;

pub const SOON: Duration = Duration::from_secs(20);

/// A function that counts the packets of each flow and writes the count into the packet.
///
/// A packet has the flow (2 bytes), its number in the flow (4), and room for the count (4): count and number are equal unless a packet or a change of the
/// state was lost or duplicated, or packets were reordered.
pub struct Counting {
    counts: FlowTable<u16, u64>,
    /// What is outside the state.
    pub keys: Mutex<Vec<u8>>,
}

impl NetworkFunction for Counting {
    const KIND: &'static str = "counting";
    const SUMMARY: &'static str = "for tests";
    const SCHEMA: u32 = 1;
    type Config = usize;

    fn create(flows: usize, state: &mut StateBuilder) -> Result<Self, Refusal> {
        Ok(Self {
            counts: state.flow_table("counts", flows)?,
            keys: Mutex::default(),
        })
    }

    fn process(&self, batch: &mut Batch, context: &Context<'_>) {
        for packet in batch.packets_mut() {
            let flow = u16::from_le_bytes([packet.bytes()[0], packet.bytes()[1]]);
            let add = |count: &mut u64| {
                *count += 1;
                *count - 1
            };
            let count = self
                .counts
                .update_or_insert(&flow, context.now(), 1 << 50, || 0, add)
                .unwrap();
            packet.bytes_mut()[6..10].copy_from_slice(&(count as u32).to_le_bytes());
            packet.send(0);
        }
    }

    fn configure(&self, _: usize) -> Result<(), Refusal> {
        Ok(())
    }

    fn secrets(&self) -> Option<Zeroizing<Vec<u8>>> {
        let keys = self.keys.lock().unwrap().clone();
        (!keys.is_empty()).then(|| keys.into())
    }

    fn inherit(&self, secrets: &[u8]) -> Result<(), Refusal> {
        *self.keys.lock().unwrap() = secrets.to_vec();
        Ok(())
    }
}

/// An output packet: flow, number, count.
pub type Seen = (u16, u32, u32);

pub struct Rig {
    pub instance: Arc<Instance<Counting>>,
    pub migration: Migration,
    /// One wire per worker.
    pub wires: Vec<Wire>,
}

impl Rig {
    pub fn new(workers: usize, hold: bool) -> Self {
        Self::with(workers, 200, |options| options.hold = hold)
    }

    pub fn with(workers: usize, flows: usize, change: impl FnOnce(&mut Options)) -> Self {
        Self::on(None, workers, flows, change)
    }

    /// Starts an instance on this state, or on fresh state.
    pub fn on(
        arena: Option<OwnedFd>,
        workers: usize,
        flows: usize,
        change: impl FnOnce(&mut Options),
    ) -> Self {
        watch();
        let (port, wires) = memory::port(0, [2; 6], workers).unwrap();
        let mut options = Options {
            ports: vec![port],
            ..Options::default()
        };
        change(&mut options);
        let instance = Instance::start(options, Prepared::new(flows, 1, arena).unwrap()).unwrap();
        let migration = Migration::of(&instance);
        Self {
            instance,
            migration,
            wires,
        }
    }

    pub fn ask(&self, verb: &'static str, arguments: Value) -> Result<Value, Refusal> {
        self.ask_with(verb, arguments, Vec::new())
            .map(|(answer, _)| answer)
    }

    pub fn ask_with(
        &self,
        verb: &'static str,
        arguments: Value,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(Value, Vec<OwnedFd>), Refusal> {
        self.migration.answer(verb, &arguments, descriptors)
    }

    /// Waits until `count` refusals for this reason were counted.
    pub fn await_refused(&self, reason: &str, count: u64) {
        let name = format!("migration_refused{{reason=\"{reason}\"}}");
        let refused = || {
            let counters = self.instance.counters().json();
            counters.get(&name).and_then(Value::as_f64).unwrap_or(0.0) as u64
        };
        let end = std::time::Instant::now() + SOON;
        while refused() < count && std::time::Instant::now() < end {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(refused(), count, "{reason}");
    }

    fn collect(&self, into: &mut Vec<Seen>) -> usize {
        let before = into.len();
        for wire in &self.wires {
            let mut last = HashMap::new();
            while let Some(frame) = wire.receive() {
                let word = |at: usize| u32::from_le_bytes(frame[at..at + 4].try_into().unwrap());
                let (flow, number) = (u16::from_le_bytes([frame[0], frame[1]]), word(2));
                if let Some(before) = last.insert(flow, number) {
                    assert!(number > before, "flow {flow}: {number} left after {before}");
                }
                into.push((flow, number, word(6)));
            }
        }
        into.len() - before
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = self.instance.stop_workers();
    }
}

/// A source of numbered packets, sent to the instance to which their flow's path leads: a switch with a cable to each.
pub struct Traffic {
    flows: u16,
    /// The number of flipped flows, those with the smallest numbers. Locked for reading while a packet is sent, and for writing by a flip.
    flipped: RwLock<u16>,
    stop: AtomicBool,
}

impl Traffic {
    pub fn new(flows: u16) -> Self {
        Self {
            flows,
            flipped: RwLock::new(0),
            stop: AtomicBool::new(false),
        }
    }

    /// Directs packets of this many flows to the other instance; when it returns, none of them is on its way to the previous one.
    pub fn flip(&self, flows: u16) {
        *self.flipped.write().unwrap() = flows;
    }

    /// Stops the traffic at the end of the scope, even by a panic: otherwise the sender would never end.
    pub fn stop_at_end(&self) -> Stop<'_> {
        Stop(self)
    }

    pub fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }

    /// Sends until stopped; returns the number of packets sent per flow.
    pub fn run(&self, rigs: &[&Rig], pause: u32) -> u32 {
        let mut number = 0_u32;
        // At least one round: on a busy machine it may be stopped before it starts.
        loop {
            for flow in 0..self.flows {
                let flipped = self.flipped.read().unwrap();
                let rig = rigs[usize::from(flow < *flipped)];
                let mut frame = [0; 60];
                frame[..2].copy_from_slice(&flow.to_le_bytes());
                frame[2..6].copy_from_slice(&number.to_le_bytes());
                rig.wires[flow as usize % rig.wires.len()].send(&frame);
            }
            number += 1;
            while (number + 1) * u32::from(self.flows) > MOST && !self.stop.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            (0..pause).for_each(|_| std::hint::spin_loop());
            thread::yield_now();
            if self.stop.load(Ordering::SeqCst) {
                return number;
            }
        }
    }
}

/// See [`Traffic::stop_at_end`].
pub struct Stop<'a>(&'a Traffic);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Collects everything the instances sent, in the order of their activity, until it is as much as was sent to them.
pub fn collect(rigs: &[&Rig], expected: usize) -> Vec<Seen> {
    let mut all = vec![Vec::new(); rigs.len()];
    let (mut count, end) = (0, std::time::Instant::now() + SOON);
    while count < expected && std::time::Instant::now() < end {
        let new: usize = rigs
            .iter()
            .zip(&mut all)
            .map(|(rig, seen)| rig.collect(seen))
            .sum();
        count += new;
        if new == 0 {
            thread::yield_now();
        }
    }
    // Unexpected packets would arrive about now.
    rigs.iter().zip(&mut all).for_each(|(rig, seen)| {
        rig.collect(seen);
    });
    for seen in &mut all {
        // If the instances have different numbers of workers, a flow's packets leave by one queue while relayed and by another later.
        // The packet that left first was counted first.
        seen.sort_by_key(|(_, _, count)| *count);
    }
    all.concat()
}

/// Checks that each flow's packets came out once, in order, with the right count.
pub fn check_all(seen: &[Seen], flows: u16, each: u32) {
    let mut next: HashMap<u16, u32> = HashMap::new();
    for (flow, number, count) in seen {
        let expected = next.entry(*flow).or_insert(0);
        assert_eq!((number, count), (&*expected, &*expected), "flow {flow}");
        *expected += 1;
    }
    for flow in 0..flows {
        assert_eq!(next.get(&flow).copied().unwrap_or(0), each, "flow {flow}");
    }
}

/// Hands over, as an agent asks for it: the new instance waits first.
pub fn hand_over(old: &Rig, new: &Rig, epoch: u64) -> Value {
    let epoch = json!({"epoch": epoch});
    thread::scope(|scope| {
        let waits = scope.spawn(|| new.ask("commit", epoch.clone()));
        let given = old.ask("give", epoch.clone()).unwrap();
        waits.join().unwrap().unwrap();
        given
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    Memfd,
    Copy,
}

/// The agent's view of a move.
pub struct Driver<'a> {
    pub old: &'a Rig,
    pub new: &'a Rig,
    pub how: How,
    pub epoch: u64,
    pub prepared: Value,
    pub descriptors: Vec<OwnedFd>,
    pub directory: tempfile::TempDir,
}

/// A step of the agent.
pub type Step<'a> = Box<dyn FnMut(&mut Driver<'a>)>;

impl<'a> Driver<'a> {
    pub fn new(old: &'a Rig, new: &'a Rig, how: How, epoch: u64) -> Self {
        Self {
            old,
            new,
            how,
            epoch,
            prepared: Value::Null,
            descriptors: Vec::new(),
            directory: tempfile::tempdir().unwrap(),
        }
    }

    pub fn descriptors(&self) -> Vec<OwnedFd> {
        self.descriptors
            .iter()
            .map(|fd| fd.try_clone().unwrap())
            .collect()
    }

    /// Returns the steps before the hand-over, one per call.
    pub fn before_give(&mut self, ring_bytes: u64) -> [Step<'a>; 2] {
        [
            Box::new(move |this| {
                let request =
                    json!({"epoch": this.epoch, "secret": SECRET, "ring_bytes": ring_bytes});
                let (answer, descriptors) = this.old.ask_with("prepare", request, vec![]).unwrap();
                (this.prepared, this.descriptors) = (answer, descriptors);
            }),
            Box::new(|this| this.hold()),
        ]
    }

    /// Does these steps, and the hand-over.
    pub fn give(&mut self, ring_bytes: u64) {
        for mut step in self.before_give(ring_bytes) {
            step(self);
        }
        hand_over(self.old, self.new, self.epoch);
    }

    /// Freezes the old instance, which then fails to hand over: the new one of a copy has closed its connection.
    pub fn fail_to_give(&mut self, ring_bytes: u64) {
        assert_eq!(self.how, How::Copy);
        for mut step in self.before_give(ring_bytes) {
            step(self);
        }
        self.new.ask("abort", json!({"epoch": self.epoch})).unwrap();
        let failed = self.old.ask("give", json!({"epoch": self.epoch}));
        assert_eq!(failed.unwrap_err().code, "peer");
    }

    /// Asks for a thaw during the hand-over; returns whether the new instance serves.
    pub fn race(&self, after: Duration) -> bool {
        let epoch = json!({"epoch": self.epoch});
        thread::scope(|scope| {
            let waits = scope.spawn(|| self.new.ask("commit", epoch.clone()));
            let gives = scope.spawn(|| self.old.ask("give", epoch.clone()));
            thread::sleep(after);
            let thawed = self.old.ask("thaw", epoch.clone());
            let (given, taken) = (gives.join().unwrap(), waits.join().unwrap());
            assert_ne!(
                thawed.is_ok(),
                taken.is_ok(),
                "{thawed:?}, {given:?}, {taken:?}"
            );
            taken.is_ok()
        })
    }

    /// Starts the new instance's wait for the old one's state; in copy mode, most of it is copied.
    pub fn hold(&self) {
        let (rings, sealed) = (&self.prepared["rings"], &self.prepared["sealed"]);
        if self.how == How::Memfd {
            let request = json!({"epoch": self.epoch, "secret": SECRET, "mode": "memfd", "rings": rings, "sealed": sealed});
            self.new
                .ask_with("hold", request, self.descriptors())
                .unwrap();
            return;
        }
        let listen = format!("unix:{}", self.directory.path().join("state").display());
        let request = json!({"epoch": self.epoch, "secret": SECRET, "mode": "copy", "listen": listen, "rings": rings, "sealed": sealed});
        let to = self.new.ask("hold", request).unwrap()["address"].clone();
        let request = json!({"epoch": self.epoch, "to": to, "fit_bytes": 4096});
        self.old.ask("precopy", request).unwrap();
    }

    /// Does everything after the hand-over.
    pub fn complete(&self, traffic: &Traffic) {
        self.flip(traffic);
        self.finish();
    }

    /// Flips flow by flow, as switches renew their caches; flipped flows do not wait for the others.
    pub fn flip(&self, traffic: &Traffic) {
        let release = |fence: u32, more: Value| {
            let mut request = json!({"epoch": self.epoch, "fence": fence});
            request
                .as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            self.new.ask("release", request).unwrap();
        };
        const ROUNDS: u16 = 4;
        release(FIRST, json!({}));
        for round in 0..ROUNDS {
            traffic.flip((traffic.flows * (round + 1)).div_ceil(ROUNDS));
            let number = FIRST + u32::from(round);
            self.mark(number);
            let request = json!({"epoch": self.epoch, "first": number, "paths": 1});
            let relayed = self.old.ask("relayed", request).unwrap();
            release(
                number + 1,
                json!({"reached": number, "relayed": relayed["relayed"]}),
            );
        }
    }

    fn mark(&self, number: u32) {
        self.old.wires[0].send(&authentic(self.epoch, number));
    }

    /// Ends the old instance's part when the old path carries only its markers; the new one then needs no request.
    pub fn drain(&self) {
        self.mark(0);
        self.old
            .ask("drain", json!({"epoch": self.epoch, "paths": 1}))
            .unwrap();
    }

    /// Ends the migration.
    pub fn finish(&self) {
        self.drain();
        self.new
            .ask("handover", json!({"epoch": self.epoch}))
            .unwrap();
    }
}
