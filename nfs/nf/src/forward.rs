//! The smallest network function: a bump in the wire that counts packets per pair of addresses. Use it as a template.

use bytemuck::{Pod, Zeroable};
use nf_runtime::{
    state::{FlowTable, StateBuilder},
    Batch, Context, CounterSink, NetworkFunction, Refusal,
};
use serde::{Deserialize, Serialize};

/// A flow: the MAC addresses of a frame.
#[derive(Clone, Copy, Pod, Zeroable, PartialEq, Eq)]
#[repr(C)]
struct Pair {
    addresses: [u8; 12],
    padding: [u8; 4],
}

/// The configuration.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// The number of pairs counted at the same time.
    flows: usize,
    /// The seconds without a packet after which a pair is forgotten.
    idle_s: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            flows: 4096,
            idle_s: 300,
        }
    }
}

impl Config {
    fn idle_ns(&self) -> u64 {
        self.idle_s.saturating_mul(1_000_000_000)
    }
}

/// A bump in the wire: packets go from port 0 to port 1 and back. With one port, packets addressed to that port are sent back.
pub(crate) struct Forward {
    packets: FlowTable<Pair, u64>,
    flows: usize,
    idle_ns: std::sync::atomic::AtomicU64,
}

const RELAXED: std::sync::atomic::Ordering = std::sync::atomic::Ordering::Relaxed;

impl NetworkFunction for Forward {
    const KIND: &'static str = "forward";
    const SUMMARY: &'static str =
        "a bump in the wire that counts packets per flow; the smallest example";
    const SCHEMA: u32 = 1;
    type Config = Config;

    fn create(config: Config, state: &mut StateBuilder) -> Result<Self, Refusal> {
        Ok(Self {
            packets: state.flow_table("packets", config.flows)?,
            flows: config.flows,
            idle_ns: config.idle_ns().into(),
        })
    }

    fn process(&self, batch: &mut Batch, context: &Context<'_>) {
        let (now, idle) = (context.now(), self.idle_ns.load(RELAXED));
        for packet in batch.packets_mut() {
            let Some(addresses) = packet.bytes().first_chunk() else {
                packet.drop_for("too short for an Ethernet header");
                continue;
            };
            let pair = Pair {
                addresses: *addresses,
                padding: [0; 4],
            };
            if !context.send_across(packet) {
                continue;
            }
            // A full table counts no new pairs; their packets are still sent.
            let _ = self
                .packets
                .update_or_insert(&pair, now, idle, || 0, |count| *count += 1);
        }
    }

    fn configure(&self, config: Config) -> Result<(), Refusal> {
        if config.flows != self.flows {
            let reason = format!(
                "is {} and cannot change to {} while the instance runs; start a new one",
                self.flows, config.flows
            );
            return Err(Refusal::configuration("flows", reason));
        }
        self.idle_ns.store(config.idle_ns(), RELAXED);
        Ok(())
    }

    fn wants_tick(&self) -> bool {
        false
    }

    fn counters(&self, context: &Context<'_>, out: &mut CounterSink) {
        out.gauge("flows", &[], self.packets.len(context.now()) as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nf_runtime::testing::{Harness, Output};

    #[test]
    fn frames_leave_by_the_other_port_and_are_counted() {
        let mut nf = Harness::<Forward>::new(Config::default()).unwrap();
        let frame = [9; 60];
        for _ in 0..3 {
            assert_eq!(nf.process(0, &frame), Output::Sent(1, frame.to_vec()));
        }
        assert_eq!(nf.process(1, &[8; 60]), Output::Sent(0, vec![8; 60]));
        assert_eq!(
            nf.process(0, &[9; 11]),
            Output::Dropped("too short for an Ethernet header")
        );
        assert_eq!(nf.counters()["flows"], 2);
    }

    #[test]
    fn with_one_port_a_flood_is_not_sent_back() {
        let mut nf = Harness::<Forward>::new(Config::default())
            .unwrap()
            .with_ports(1);
        let mut frame = [9; 60];
        for to in [[0xff; 6], [2, 0, 0, 0, 0, 9]] {
            frame[..6].copy_from_slice(&to);
            let dropped = Output::Dropped(nf_runtime::NOT_ADDRESSED);
            assert_eq!(nf.process(0, &frame), dropped);
        }
        frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 0]);
        assert_eq!(nf.process(0, &frame), Output::Sent(0, frame.to_vec()));
        assert_eq!(nf.counters()["flows"], 1);
    }

    #[test]
    fn a_pair_may_be_kept_forever() {
        let forever = Config {
            idle_s: 1 << 60,
            ..Config::default()
        };
        let mut nf = Harness::<Forward>::new(forever.clone()).unwrap();
        nf.function().configure(forever).unwrap();
        nf.process(0, &[9; 60]);
        nf.advance(1 << 62);
        assert_eq!(nf.counters()["flows"], 1);
    }

    #[test]
    fn counts_continue_after_a_move() {
        let mut before = Harness::<Forward>::new(Config::default()).unwrap();
        before.process_all(&[(0, &[9_u8; 60][..]); 100]);
        let mut after = before.adopting(Config::default()).unwrap();
        after.process(0, &[9; 60]);
        let pair = Pair {
            addresses: [9; 12],
            padding: [0; 4],
        };
        assert_eq!(
            after.function().packets.get(&pair, after.now(), 1),
            Some(101)
        );
    }
}
