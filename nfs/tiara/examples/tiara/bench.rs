//! The shared parts of the measurements: flows, CPU time, and a load balancer beside its engine.

use std::sync::Arc;

use nf_arena::Heap;
use nf_tables::Ipv4Flow;
use nf_tiara::{
    Completed, ConnectionTable, Decision, Engine, Offloader, Operation, Outcome, QueuePair, Shape,
};
use rustix::time::{clock_gettime, ClockId};

/// The paper's "10M".
pub const FLOWS: u32 = 10 << 20;
pub const CREDITS: usize = 1024;

pub type Table = Arc<ConnectionTable<Ipv4Flow, Heap>>;
pub type Queues = Arc<Heap>;
pub type OneEngine = Engine<Ipv4Flow, Queues, Table>;
pub type Smux<T> = Offloader<Ipv4Flow, Queues, T>;

/// SplitMix64.
pub fn mix(number: u64) -> u64 {
    let mut x = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// Builds a flow with random client and port, to one of 256 services.
#[inline]
pub fn flow(number: u32) -> Ipv4Flow {
    let random = mix(number.into());
    Ipv4Flow {
        source: (random as u32).into(),
        destination: (0xc633_0000 | (random >> 56) as u32).into(),
        source_port: (random >> 32) as u16,
        destination_port: 443,
        protocol: 6,
    }
}

pub fn decision(number: u32) -> Decision {
    Decision {
        rs_index: number % 10_000,
        rs_port: 443,
    }
}

/// Returns the nanoseconds of CPU time that this thread has used.
pub fn cpu() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

pub fn round(value: f64, digits: i32) -> f64 {
    let scale = 10_f64.powi(digits);
    (value * scale).round() / scale
}

pub fn table(shape: Shape) -> Table {
    let memory = Heap::new(ConnectionTable::<Ipv4Flow, Heap>::words(shape)).unwrap();
    Arc::new(ConnectionTable::open(memory, shape).unwrap())
}

pub fn engine(table: &Table, number: u32, engines: u32) -> OneEngine {
    Engine::new(table.clone(), table.shape(), number, engines).unwrap()
}

/// Makes a load balancer with queues to an engine, the given number of several. Its queues to the others are attached to nothing.
pub fn smux<T>(engine: &mut OneEngine, shape: Shape, number: u32, engines: u32) -> Smux<T> {
    let ends = (0..engines).map(|each| {
        let memory = Arc::new(Heap::new(QueuePair::words::<Ipv4Flow>(CREDITS)).unwrap());
        if each == number {
            let end = QueuePair::engine_end(memory.clone(), CREDITS).unwrap();
            assert!(engine.attach(end).is_ok());
        }
        QueuePair::smux_end(memory, CREDITS).unwrap()
    });
    Offloader::new(shape, ends.collect())
}

/// The cost per operation of a run of operations, and their outcomes.
#[derive(Clone, Copy, Default)]
pub struct Run {
    pub operations: u64,
    pub smux_ns: f64,
    pub engine_ns: f64,
    pub refused: u64,
}

impl Run {
    pub fn engine_ns_per_op(&self) -> f64 {
        self.engine_ns / self.operations as f64
    }

    pub fn smux_ns_per_op(&self) -> f64 {
        self.smux_ns / self.operations as f64
    }
}

/// Performs operations: the load balancer fills its queue, the engine empties it, the load balancer takes the completions, and so on.
pub fn run(
    smux: &mut Smux<u32>,
    engine: &mut OneEngine,
    operations: impl Iterator<Item = Operation<Ipv4Flow>>,
) -> Run {
    let mut run = Run::default();
    let mut operations = operations.peekable();
    let mut before = cpu();
    while operations.peek().is_some() {
        for operation in operations.by_ref().take(CREDITS) {
            smux.submit(operation, 0).unwrap();
            run.operations += 1;
        }
        let submitted = cpu();
        while engine.poll() > 0 {}
        let executed = cpu();
        let refused = &mut run.refused;
        smux.poll(
            &mut |completed: Completed<Ipv4Flow, u32>| match completed.outcome {
                Outcome::Inserted | Outcome::Deleted(1) => {}
                Outcome::Full => *refused += 1,
                other => assert!(other == Outcome::NotFound, "{other:?}"),
            },
        )
        .unwrap();
        let after = cpu();
        run.smux_ns += submitted - before + after - executed;
        run.engine_ns += executed - submitted;
        before = after;
    }
    run
}

pub fn insert(number: u32) -> Operation<Ipv4Flow> {
    Operation::insert(flow(number), decision(number))
}

pub fn delete(number: u32) -> Operation<Ipv4Flow> {
    Operation::Delete { key: flow(number) }
}
