//! `nf replay`: sends a capture file through a network function. The same file gives the same result, since time is that of the packets.

use std::{path::Path, time::Duration};

use nf_arena::ArenaBuilder;
use nf_ports::{
    pcap::{Reader, Writer},
    Mac, PortError, Verdict,
};
use nf_runtime::{Batch, Context, CounterSink, Loaded, NetworkFunction};
use serde_json::{json, Map};

use crate::{config, failure::Failure};

const TICK_NS: u64 = 10_000_000;
/// The maximum of ticks in a pause between packets: enough for work in small steps, without simulating a year tick by tick.
const TICKS_MAX: u64 = 10_000;
const MACS: [Mac; 2] = [[2, 0, 0, 0, 0, 0], [2, 0, 0, 0, 0, 1]];

/// The arguments of the command line.
pub(crate) struct Files<'a> {
    pub(crate) config: &'a Path,
    pub(crate) input: &'a Path,
    pub(crate) output: &'a Path,
}

struct Replay<N> {
    loaded: Loaded<N>,
    batch: Batch,
    out: Out,
    now: u64,
    next_tick: u64,
}

/// The output of a replay, and its counts.
struct Out {
    writer: Writer,
    sent: u64,
    dropped: Map<String, serde_json::Value>,
}

/// Sends packets by port 0, each in its own batch; writes packets sent by any port with the time of the packet before them.
pub(crate) fn replay<N: NetworkFunction>(files: &Files<'_>) -> Result<(), Failure> {
    let config: N::Config = config::load(files.config)?;
    let arena =
        ArenaBuilder::fresh(N::KIND, N::SCHEMA).map_err(|error| Failure::new(error.to_string()))?;
    let mut reader = Reader::open(files.input)?;
    let mut replay = Replay {
        loaded: Loaded::<N>::new(arena, config)?,
        batch: Batch::of(N::LARGE_FRAMES),
        out: Out {
            writer: Writer::create(files.output)?,
            sent: 0,
            dropped: Map::new(),
        },
        now: 0,
        next_tick: 0,
    };
    let mut count = 0_u64;
    loop {
        replay.batch.clear();
        let Some(packet) = replay.batch.free().first_mut() else {
            break;
        };
        let Some(time) = reader.next_packet(packet)? else {
            break;
        };
        replay.go_on_to(time, count == 0)?;
        count += 1;
        replay.process()?;
    }
    replay.out.writer.finish()?;
    let mut counters = CounterSink::new(N::KIND);
    let context = Context::new(replay.now, 0, 1, &MACS);
    replay.loaded.function.counters(&context, &mut counters);
    let summary = json!({
        "packets_in": count, "packets_out": replay.out.sent, "packets_dropped": replay.out.dropped, "counters": counters.json(),
    });
    println!("{summary}");
    Ok(())
}

impl<N: NetworkFunction> Replay<N> {
    /// Advances time with the function's ticks. The packet that waits in the batch stays there.
    fn go_on_to(&mut self, time: Duration, first: bool) -> Result<(), PortError> {
        // Time never goes back, whatever the order in the file.
        let time = u64::try_from(time.as_nanos())
            .unwrap_or(u64::MAX)
            .max(self.now);
        if first {
            self.now = time;
            self.next_tick = time.saturating_add(TICK_NS);
            self.loaded.function.resumed(&self.context());
        }
        if time.saturating_sub(self.next_tick) / TICK_NS > TICKS_MAX {
            self.next_tick = time - TICKS_MAX * TICK_NS;
        }
        while self.next_tick <= time && self.loaded.function.wants_tick() {
            self.now = self.next_tick;
            self.next_tick += TICK_NS;
            let mut emitted = Batch::new();
            self.loaded.function.tick(&self.context(), &mut emitted);
            self.out.write(self.now, &mut emitted)?;
        }
        self.now = time;
        Ok(())
    }

    fn process(&mut self) -> Result<(), PortError> {
        self.batch.filled(1);
        let context = self.context();
        self.loaded.function.process(&mut self.batch, &context);
        self.out.write(self.now, &mut self.batch)
    }

    fn context(&self) -> Context<'static> {
        Context::new(self.now, 0, 1, &MACS).patient()
    }
}

impl Out {
    fn write(&mut self, now: u64, batch: &mut Batch) -> Result<(), PortError> {
        for packet in batch.packets() {
            if let Verdict::Drop(reason) = packet.verdict() {
                let count = self.dropped.entry(reason).or_insert(json!(0));
                *count = json!(count.as_u64().unwrap_or(0) + 1);
            }
        }
        for (_, frame) in batch.leaving() {
            self.sent += self.writer.write(Duration::from_nanos(now), frame)?;
        }
        Ok(())
    }
}
