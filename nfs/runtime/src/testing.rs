//! Runs a network function without ports, threads or real time: for tests and benchmarks.

use std::os::fd::AsFd;

use nf_arena::{Arena, ArenaBuilder};
use nf_ports::{finish, Frame, Mac, Offloads, Packet, Verdict};

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
        Self::build(arena, config, 1_000_000_000, None)
    }

    /// Creates another instance on the same state, as after a kill on one machine, at the same time.
    ///
    /// # Errors
    /// Those of the function's `create`, or an incompatible state.
    pub fn adopting(&self, config: N::Config) -> Result<Self, Refusal> {
        self.next(config, None)
    }

    /// Creates another instance on the same state, which also inherits what is outside the state, as after a move.
    ///
    /// # Errors
    /// Those of the function's `create` and `inherit`, or an incompatible state.
    pub fn inheriting(&self, config: N::Config) -> Result<Self, Refusal> {
        let secrets = self.function.secrets();
        self.next(config, secrets.as_ref().map(|secrets| &secrets[..]))
    }

    fn next(&self, config: N::Config, secrets: Option<&[u8]>) -> Result<Self, Refusal> {
        let file = self
            .arena
            .as_fd()
            .try_clone_to_owned()
            .map_err(|error| Refusal::new("system", error.to_string()))?;
        let arena = ArenaBuilder::adopt(file, N::KIND, N::SCHEMA)?;
        Self::build(arena, config, self.now, secrets)
    }

    fn build(
        arena: ArenaBuilder,
        config: N::Config,
        now: u64,
        secrets: Option<&[u8]>,
    ) -> Result<Self, Refusal> {
        let mut state = StateBuilder::new(arena);
        let function = N::create(config, &mut state)?;
        let (arena, _clock, _repairs) = state.finish()?;
        let harness = Self {
            function,
            arena,
            batch: Batch::of(N::LARGE_FRAMES),
            emitted: Vec::new(),
            macs: Self::macs(2),
            now,
        };
        if let Some(secrets) = secrets {
            harness.function.inherit(secrets)?;
        }
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
        let chunks = frames.chunks(Batch::MAX);
        chunks.flat_map(|chunk| self.process_chunk(chunk)).collect()
    }

    fn process_chunk<'a, F: Into<Frame<'a>> + Copy>(
        &mut self,
        frames: &[(usize, F)],
    ) -> Vec<Output> {
        self.fill(frames);
        self.process_filled()
    }

    fn process_filled(&mut self) -> Vec<Output> {
        let context = Context::new(self.now, 0, 1, &self.macs);
        self.function.process(&mut self.batch, &context);
        self.collect_emitted();
        let output = |packet: &Packet| match packet.verdict() {
            Verdict::Send(port) => Output::Sent(port, packet.bytes().to_vec()),
            Verdict::Drop(reason) => Output::Dropped(reason),
        };
        self.batch.packets().iter().map(output).collect()
    }

    /// Processes packets (port, frame) in one batch; returns the frames that leave, those that the function has added included, in order and as they
    /// appear on the wire: complete, and in segments.
    ///
    /// # Panics
    /// If a packet cannot hold a frame, there are more than [`Batch::MAX`], or a frame's headers do not fit its offloads.
    pub fn process_leaving<'a, F: Into<Frame<'a>> + Copy>(
        &mut self,
        frames: &[(usize, F)],
    ) -> Vec<(usize, Vec<u8>)> {
        self.fill(frames);
        let context = Context::new(self.now, 0, 1, &self.macs);
        self.function.process(&mut self.batch, &context);
        let mut out = Vec::new();
        for (port, frame) in self.batch.leaving() {
            to_wire(port, frame, &mut out);
        }
        out
    }

    /// Processes one packet with offloads; returns the result, and the offloads that it has then.
    ///
    /// # Panics
    /// If the packet cannot hold the frame.
    pub fn process_frame(&mut self, port: usize, frame: Frame<'_>) -> (Output, Offloads) {
        let output = self.process_chunk(&[(port, frame)]).remove(0);
        (output, self.batch.packets()[0].offloads())
    }

    /// Processes one packet with the mark of its flow: see `nf_ports::Matcher`.
    ///
    /// # Panics
    /// If the packet cannot hold the frame.
    pub fn process_marked(&mut self, port: usize, frame: &[u8], mark: Option<u32>) -> Output {
        self.fill(&[(port, frame)]);
        self.batch.packets_mut()[0].set_mark(mark);
        self.process_filled().remove(0)
    }

    fn fill<'a, F: Into<Frame<'a>> + Copy>(&mut self, frames: &[(usize, F)]) {
        self.batch.clear();
        for (port, frame) in frames {
            let frame = (*frame).into();
            let pushed = self.batch.push_with(*port, frame);
            assert!(
                pushed.is_ok(),
                "a frame of {} bytes with offloads {:?}, in a batch of {}, does not fit",
                frame.bytes.len(),
                frame.offloads,
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
        for (port, frame) in self.batch.emitted() {
            to_wire(port, frame, &mut self.emitted);
        }
    }

    /// Returns the frames (port, frame) that the function has added since the last call, as they appear on the wire.
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

/// Appends a frame as it appears on the wire.
fn to_wire(port: usize, frame: Frame<'_>, out: &mut Vec<(usize, Vec<u8>)>) {
    let finished = finish(frame, &mut Vec::new(), |bytes| {
        out.push((port, bytes.to_vec()));
    });
    assert!(
        finished.is_ok(),
        "a frame of {} bytes: its headers do not fit {:?}",
        frame.bytes.len(),
        frame.offloads
    );
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use nf_ports::{Network, PartialChecksum, Segments};

    use super::*;

    /// A function that sends packets by the other port, after 4 bytes more in front, and a copy of each by its own.
    struct Tagging;

    impl NetworkFunction for Tagging {
        const KIND: &'static str = "tagging";
        const SUMMARY: &'static str = "for tests";
        const LARGE_FRAMES: bool = true;
        const SCHEMA: u32 = 1;
        type Config = ();

        fn create((): (), state: &mut StateBuilder) -> Result<Self, Refusal> {
            state.region("unused", "u64", 1)?;
            Ok(Self)
        }

        fn process(&self, batch: &mut Batch, _: &Context<'_>) {
            let (packets, emitted) = batch.parts();
            for (index, packet) in packets.iter_mut().enumerate() {
                emitted.follow(index);
                emitted.emit_parts(packet.port(), &[packet.bytes()], packet.offloads());
                if let Some(bytes) = packet.push_front(4) {
                    bytes.copy_within(4..16, 0);
                    bytes[12..16].copy_from_slice(&[0x81, 0, 0, 7]);
                }
                packet.send(1 - packet.port());
            }
        }

        fn configure(&self, (): ()) -> Result<(), Refusal> {
            Ok(())
        }
    }

    #[test]
    fn frames_with_offloads_leave_in_segments() {
        let offloads = |start| {
            let checksum = PartialChecksum {
                start,
                field: PartialChecksum::TCP,
            };
            let segments = Segments {
                network: Network::Ipv4,
                size: NonZeroU16::MIN.saturating_add(99),
                is_ecn: false,
            };
            Offloads::Segments(checksum, segments)
        };
        let mut bytes = [0; 54 + 250];
        bytes[12..15].copy_from_slice(&[8, 0, 0x45]);
        bytes[46] = 5 << 4;
        let frame = Frame {
            bytes: &bytes,
            offloads: offloads(34),
        };
        let mut nf = Harness::<Tagging>::new(()).unwrap();
        let (output, left) = nf.process_frame(0, frame);
        assert_eq!(left, offloads(38));
        let Output::Sent(1, tagged) = output else {
            panic!("{output:?}");
        };
        assert_eq!(tagged.len(), bytes.len() + 4);
        let lengths = |frames: &[(usize, Vec<u8>)]| -> Vec<(usize, usize)> {
            let each = frames.iter().map(|(port, bytes)| (*port, bytes.len()));
            each.collect()
        };
        let copies = [(0, 154), (0, 154), (0, 104)];
        assert_eq!(lengths(&nf.take_emitted()), copies);
        let both = [(1, 158), (1, 158), (1, 108)];
        let leaving = nf.process_leaving(&[(0, frame)]);
        assert_eq!(lengths(&leaving), [both, copies].concat());
    }
}
