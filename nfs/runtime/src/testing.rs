//! Runs a network function without ports, threads or real time: for tests and benchmarks.

use std::os::fd::AsFd;

use nf_arena::{Arena, ArenaBuilder};
use nf_ports::{Mac, Verdict};

use crate::{state::StateBuilder, Batch, Context, CounterSink, NetworkFunction, Refusal};

/// The result for a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// It was sent by the port with this index, with this content.
    Sent(usize, Vec<u8>),
    /// It was dropped for this reason.
    Dropped(&'static str),
}

/// One instance of `N` on one worker. Ports 0, 1, ... have the addresses 02:00:00:00:00:00, 02:00:00:00:00:01, ...; time stands still
/// unless it is [advanced](Self::advance).
pub struct Harness<N> {
    function: N,
    arena: Arena,
    batch: Batch,
    emitted: Vec<(usize, Vec<u8>)>,
    macs: Vec<Mac>,
    now: u64,
}

impl<N: NetworkFunction> Harness<N> {
    /// Creates an instance with two ports, fresh state, and the time at one second.
    ///
    /// # Errors
    /// Those of the function's `create`.
    pub fn new(config: N::Config) -> Result<Self, Refusal> {
        let arena = ArenaBuilder::fresh(N::KIND, N::SCHEMA)?;
        Self::build(arena, config, 1_000_000_000)
    }

    /// Creates another instance on the same state, as after a move on one machine, at the same time.
    ///
    /// # Errors
    /// Those of the function's `create`, or an incompatible state.
    pub fn adopting(&self, config: N::Config) -> Result<Self, Refusal> {
        let file = self
            .arena
            .as_fd()
            .try_clone_to_owned()
            .map_err(|error| Refusal::new("system", error.to_string()))?;
        let arena = ArenaBuilder::adopt(file, N::KIND, N::SCHEMA)?;
        Self::build(arena, config, self.now)
    }

    fn build(arena: ArenaBuilder, config: N::Config, now: u64) -> Result<Self, Refusal> {
        let mut state = StateBuilder::new(arena);
        let function = N::create(config, &mut state)?;
        let (arena, _clock, _repairs) = state.finish()?;
        let harness = Self {
            function,
            arena,
            batch: Batch::new(),
            emitted: Vec::new(),
            macs: Self::macs(2),
            now,
        };
        harness.function.resumed(&harness.context());
        Ok(harness)
    }

    /// Sets the number of ports.
    #[must_use]
    pub fn with_ports(mut self, count: usize) -> Self {
        self.macs = Self::macs(count);
        self
    }

    fn macs(count: usize) -> Vec<Mac> {
        (0..count)
            .map(|index| [2, 0, 0, 0, (index >> 8) as u8, index as u8])
            .collect()
    }

    pub fn function(&self) -> &N {
        &self.function
    }

    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Returns the time in nanoseconds.
    pub fn now(&self) -> u64 {
        self.now
    }

    pub fn advance(&mut self, nanoseconds: u64) {
        self.now += nanoseconds;
    }

    pub fn context(&self) -> Context<'_> {
        Context::new(self.now, 0, 1, &self.macs)
    }

    /// Lets the function exchange requests and events with a faster table.
    pub fn offload(&mut self, table: &mut dyn nf_offload::Table) {
        self.function.offload(&self.context(), table);
    }

    /// Processes one packet in its own batch.
    ///
    /// # Panics
    /// If the frame is longer than a packet can be.
    pub fn process(&mut self, port: usize, frame: &[u8]) -> Output {
        self.process_all(&[(port, frame)]).remove(0)
    }

    /// Processes packets (port, frame), as many as possible per batch; returns their results in order.
    ///
    /// # Panics
    /// If a frame is longer than a packet can be.
    pub fn process_all(&mut self, frames: &[(usize, &[u8])]) -> Vec<Output> {
        let mut outputs = Vec::with_capacity(frames.len());
        for chunk in frames.chunks(Batch::MAX) {
            self.fill(chunk);
            let context = Context::new(self.now, 0, 1, &self.macs);
            self.function.process(&mut self.batch, &context);
            outputs.extend(
                self.batch
                    .packets()
                    .iter()
                    .map(|packet| match packet.verdict() {
                        Verdict::Send(port) => Output::Sent(port, packet.bytes().to_vec()),
                        Verdict::Drop(reason) => Output::Dropped(reason),
                    }),
            );
            self.collect_emitted();
        }
        outputs
    }

    /// Processes packets (port, frame) in one batch; returns the frames that leave, those that the function has added included, in order.
    ///
    /// # Panics
    /// If a frame is longer than a packet can be, or there are more than [`Batch::MAX`].
    pub fn process_leaving(&mut self, frames: &[(usize, &[u8])]) -> Vec<(usize, Vec<u8>)> {
        self.fill(frames);
        let context = Context::new(self.now, 0, 1, &self.macs);
        self.function.process(&mut self.batch, &context);
        let leaving = self.batch.leaving();
        leaving
            .map(|(port, frame)| (port, frame.to_vec()))
            .collect()
    }

    fn fill(&mut self, frames: &[(usize, &[u8])]) {
        self.batch.clear();
        for (port, frame) in frames {
            let pushed = self.batch.push(*port, frame);
            assert!(
                pushed.is_ok(),
                "a frame of {} bytes, in a batch of {}, does not fit",
                frame.len(),
                frames.len()
            );
        }
    }

    /// Does a worker's periodic work, due about every 10 ms. Does not advance time.
    pub fn tick(&mut self) {
        self.batch.clear();
        let context = Context::new(self.now, 0, 1, &self.macs);
        self.function.tick(&context, &mut self.batch);
        self.collect_emitted();
    }

    fn collect_emitted(&mut self) {
        let emitted = self.batch.emitted();
        self.emitted
            .extend(emitted.map(|(port, frame)| (port, frame.to_vec())));
    }

    /// Returns the frames (port, frame) that the function has added since the last call.
    pub fn take_emitted(&mut self) -> Vec<(usize, Vec<u8>)> {
        std::mem::take(&mut self.emitted)
    }

    /// Returns its counters, as in `{"do": "counters"}`.
    pub fn counters(&self) -> serde_json::Value {
        let mut out = CounterSink::new(N::KIND);
        self.function.counters(&self.context(), &mut out);
        out.json()
    }
}
