//! A small network function, and an instance of it.

use std::{
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering},
        Arc,
    },
    time::Duration,
};

use nf_arena::{Memory, Region};
use nf_ports::memory::{self, Wire};
use nf_runtime::{
    state::StateBuilder, Batch, Context, CounterSink, Instance, NetworkFunction, Options, Prepared,
    Refusal,
};
use serde::{Deserialize, Serialize};
use serde_json::{json, Value};

use crate::watchdog::watch;

pub const SOON: Duration = Duration::from_secs(20);

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    pub ticks: bool,
    pub refuse: bool,
}

/// A function that sends packets to the other port, unless their first letter requests something else.
pub struct Echo {
    pub packets: Region,
    pub ticks: AtomicU64,
    wants_tick: AtomicBool,
}

impl NetworkFunction for Echo {
    const KIND: &'static str = "echo";
    const SUMMARY: &'static str = "for tests";
    const SCHEMA: u32 = 1;
    type Config = Config;

    fn create(config: Config, state: &mut StateBuilder) -> Result<Self, Refusal> {
        if config.refuse {
            return Err(Refusal::configuration("refuse", "is true"));
        }
        Ok(Self {
            packets: state.region("packets", "u64", 1)?,
            ticks: AtomicU64::new(0),
            wants_tick: config.ticks.into(),
        })
    }

    fn process(&self, batch: &mut Batch, context: &Context<'_>) {
        self.packets.words()[0].fetch_add(batch.len() as u64, Ordering::Relaxed);
        self.packets.touch(0);
        let (packets, emitted) = batch.parts();
        for (index, packet) in packets.iter_mut().enumerate() {
            match packet.bytes().first() {
                None => packet.drop_for("empty"),
                Some(b'd') => packet.drop_for("asked to"),
                Some(b'n') => {}
                Some(b'x') => packet.send(99),
                Some(b'e') => {
                    emitted.emit(0, b"extra");
                    packet.send(1);
                }
                Some(b'r') => {
                    emitted.follow(index);
                    for part in packet.bytes()[1..].chunks(2) {
                        emitted.emit(1, part);
                    }
                    emitted.follow_all();
                    packet.drop_for("replaced");
                }
                Some(b'p') => panic!("asked to"),
                Some(_) => packet.send((packet.port() + 1) % context.ports()),
            }
        }
    }

    fn configure(&self, config: Config) -> Result<(), Refusal> {
        if config.refuse {
            return Err(Refusal::configuration("refuse", "is true"));
        }
        self.wants_tick.store(config.ticks, Ordering::Relaxed);
        Ok(())
    }

    fn wants_tick(&self) -> bool {
        self.wants_tick.load(Ordering::Relaxed)
    }

    fn tick(&self, _: &Context<'_>, out: &mut Batch) {
        if self.ticks.fetch_add(1, Ordering::Relaxed) == 0 {
            out.emit(1, b"first tick");
        }
    }

    fn counters(&self, _: &Context<'_>, out: &mut CounterSink) {
        let seen = self.packets.words()[0].load(Ordering::Relaxed);
        out.counter("seen", &[], seen);
    }

    fn control(&self, verb: &str, arguments: &Value) -> Option<Result<Value, Refusal>> {
        (verb == "say").then(|| Ok(json!({ "said": arguments["word"] })))
    }
}

/// An instance with two ports; `wires[port][worker]` are the ports' other ends.
pub struct Rig {
    pub instance: Arc<Instance<Echo>>,
    pub wires: Vec<Vec<Wire>>,
}

impl Rig {
    pub fn new(workers: usize, config: Config) -> Self {
        Self::with(workers, config, |_| {})
    }

    pub fn with(workers: usize, config: Config, change: impl FnOnce(&mut Options)) -> Self {
        watch();
        let mut options = Options::default();
        let mut wires = Vec::new();
        for index in 0..2 {
            let (port, ends) = memory::port(index, [2, 0, 0, 0, 0, index as u8], workers).unwrap();
            options.ports.push(port);
            wires.push(ends);
        }
        change(&mut options);
        let prepared = Prepared::new(config, options.ports.len(), None).unwrap();
        let instance = Instance::start(options, prepared).unwrap();
        Self { instance, wires }
    }

    /// Returns the next frame that leaves by this port on this worker's queue.
    pub fn out(&self, port: usize, worker: usize) -> Vec<u8> {
        self.wires[port][worker].receive_within(SOON).unwrap()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // Tests that stopped the instance, or whose function panicked, check the result themselves.
        let _ = self.instance.stop_workers();
    }
}
