//! Limits the packets of each source address; docs/writing-an-nf.md explains it.

use std::{
    net::IpAddr,
    num::NonZeroU32,
    sync::{PoisonError, RwLock},
};

use nf_packet::{dissect, Outcome};
use nf_runtime::{
    state::{FlowTable, StateBuilder},
    Batch, Context, CounterSink, NetworkFunction, Refusal,
};
use serde::{Deserialize, Serialize};

/// The rate of each source: `packets` in `per_s` seconds, in a single burst or spread out.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    packets: NonZeroU32,
    #[serde(default = "one")]
    per_s: NonZeroU32,
    /// The number of sources limited at the same time.
    #[serde(default = "many")]
    sources: usize,
}

fn one() -> NonZeroU32 {
    NonZeroU32::MIN
}

fn many() -> usize {
    65536
}

/// A rate in nanoseconds.
#[derive(Clone, Copy)]
struct Rate {
    window: u64,
    interval: u64,
}

impl Rate {
    fn of(config: &Config) -> Self {
        let window = u64::from(config.per_s.get()) * 1_000_000_000;
        let interval = window / u64::from(config.packets.get());
        Self { window, interval }
    }
}

/// A limiter by the generic cell rate algorithm (ITU-T I.371): it stores for each source when its whole window is available again.
pub struct Limiter {
    rested_at: FlowTable<[u8; 16], u64>,
    sources: usize,
    rate: RwLock<Rate>,
}

impl NetworkFunction for Limiter {
    const KIND: &'static str = "limiter";
    const SUMMARY: &'static str = "limits the packets of each source address";
    const SCHEMA: u32 = 1;
    type Config = Config;

    fn create(config: Config, state: &mut StateBuilder) -> Result<Self, Refusal> {
        Ok(Self {
            rested_at: state.flow_table("sources", config.sources)?,
            sources: config.sources,
            rate: RwLock::new(Rate::of(&config)),
        })
    }

    fn process(&self, batch: &mut Batch, context: &Context<'_>) {
        let rate = *self.rate.read().unwrap_or_else(PoisonError::into_inner);
        for packet in batch.packets_mut() {
            if !context.send_across(packet) {
                continue;
            }
            match dissect(packet.bytes()) {
                Ok(Outcome::Ip(headers)) => {
                    let source = sixteen_bytes(headers.source(packet.bytes()));
                    match self.admits(&source, context.now(), rate) {
                        Some(true) => {}
                        Some(false) => packet.drop_for("above its rate"),
                        None => packet.drop_for("more sources than the table holds"),
                    }
                }
                Ok(_) => (), // ARP, for example
                Err(malformed) => packet.drop_for(malformed.name()),
            }
        }
    }

    fn configure(&self, config: Config) -> Result<(), Refusal> {
        if config.sources != self.sources {
            let reason = format!(
                "is {} and cannot change while the instance runs; start a new one",
                self.sources
            );
            return Err(Refusal::configuration("sources", reason));
        }
        *self.rate.write().unwrap_or_else(PoisonError::into_inner) = Rate::of(&config);
        Ok(())
    }

    fn wants_tick(&self) -> bool {
        false
    }

    fn counters(&self, context: &Context<'_>, out: &mut CounterSink) {
        out.gauge("sources", &[], self.rested_at.len(context.now()) as f64);
    }
}

impl Limiter {
    /// Tells whether this source may send a packet now. None: the table has no room for it.
    fn admits(&self, source: &[u8; 16], now: u64, rate: Rate) -> Option<bool> {
        let admit = |rested_at: &mut u64| {
            *rested_at = (*rested_at).clamp(now, now + rate.window);
            let next = *rested_at + rate.interval;
            let admitted = next <= now + rate.window;
            if admitted {
                *rested_at = next;
            }
            admitted
        };
        // After a silent window, a source is like one that never sent, so its entry may expire.
        self.rested_at
            .update_or_insert(source, now, rate.window, || now, admit)
    }
}

fn sixteen_bytes(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use nf_packet::Ipv4;
    use nf_runtime::testing::{Harness, Output};

    const SECOND: u64 = 1_000_000_000;
    const LIMITED: Output = Output::Dropped("above its rate");

    fn config(packets: u32) -> Config {
        Config {
            packets: NonZeroU32::new(packets).unwrap(),
            per_s: one(),
            sources: 1000,
        }
    }

    /// Builds an IPv4 packet from 10.0.0.`source`.
    fn packet(source: u8) -> Vec<u8> {
        let mut frame = vec![0; 60];
        frame[12..14].copy_from_slice(&[8, 0]);
        let (from, to) = (Ipv4Addr::new(10, 0, 0, source), Ipv4Addr::new(10, 0, 1, 1));
        Ipv4::write(&mut frame[14..], from, to, 253, 0).unwrap();
        frame
    }

    fn passed(limiter: &mut Harness<Limiter>, source: u8, count: usize) -> usize {
        let frame = packet(source);
        let outputs = limiter.process_all(&vec![(0, &frame[..]); count]);
        assert!(outputs
            .iter()
            .all(|output| *output == LIMITED || *output == Output::Sent(1, frame.clone())));
        outputs.iter().filter(|output| **output != LIMITED).count()
    }

    #[test]
    fn each_source_has_its_own_rate() {
        let mut limiter = Harness::new(config(100)).unwrap();
        assert_eq!(passed(&mut limiter, 1, 150), 100);
        assert_eq!(passed(&mut limiter, 2, 60), 60);
        limiter.advance(SECOND / 10);
        assert_eq!(passed(&mut limiter, 1, 150), 10);
        assert_eq!(passed(&mut limiter, 2, 150), 50);
        assert_eq!(limiter.counters()["sources"], 2);
        limiter.advance(SECOND);
        assert_eq!(limiter.counters()["sources"], 0);
        assert_eq!(passed(&mut limiter, 1, 150), 100);
    }

    #[test]
    fn other_protocols_pass_and_malformed_ip_is_dropped() {
        let mut limiter = Harness::<Limiter>::new(config(1)).unwrap();
        let mut arp = packet(1);
        arp[12..14].copy_from_slice(&[8, 6]);
        for _ in 0..3 {
            assert_eq!(limiter.process(1, &arp), Output::Sent(0, arp.clone()));
        }
        let cut = &packet(1)[..30];
        assert_eq!(limiter.process(0, cut), Output::Dropped("truncated"));
    }

    #[test]
    fn with_one_port_only_packets_addressed_to_it_go_back() {
        let mut limiter = Harness::<Limiter>::new(config(10)).unwrap().with_ports(1);
        let to = |mac: [u8; 6]| {
            let mut frame = packet(1);
            frame[..6].copy_from_slice(&mac);
            frame
        };
        let own = to([2, 0, 0, 0, 0, 0]);
        assert_eq!(limiter.process(0, &own), Output::Sent(0, own.clone()));
        for mac in [[0xff; 6], [0x33, 0x33, 0, 0, 0, 1], [2, 0, 0, 0, 0, 9]] {
            let dropped = Output::Dropped(nf_runtime::NOT_ADDRESSED);
            assert_eq!(limiter.process(0, &to(mac)), dropped);
        }
    }

    #[test]
    fn a_window_may_be_longer_than_a_second() {
        let slow = Config {
            per_s: NonZeroU32::new(10).unwrap(),
            ..config(20)
        };
        let mut limiter = Harness::new(slow).unwrap();
        assert_eq!(passed(&mut limiter, 1, 30), 20);
        limiter.advance(3 * SECOND);
        assert_eq!(passed(&mut limiter, 1, 30), 6);
    }

    #[test]
    fn a_new_rate_applies_from_the_next_packet_and_the_table_stays() {
        let mut limiter = Harness::new(config(10)).unwrap();
        assert_eq!(passed(&mut limiter, 1, 20), 10);
        limiter.advance(SECOND / 2);
        limiter.function().configure(config(100)).unwrap();
        assert_eq!(passed(&mut limiter, 1, 100), 50);
        let hours = Config {
            per_s: NonZeroU32::new(7200).unwrap(),
            ..config(7200)
        };
        limiter.function().configure(hours).unwrap();
        assert!(passed(&mut limiter, 1, 7200) > 7000);
        limiter.function().configure(config(10)).unwrap();
        assert_eq!(passed(&mut limiter, 1, 20), 0);
        limiter.advance(SECOND);
        assert_eq!(passed(&mut limiter, 1, 20), 10);
        let other = Config {
            sources: 7,
            ..config(1)
        };
        let refusal = limiter.function().configure(other).unwrap_err();
        assert_eq!(
            refusal.detail,
            "sources: is 1000 and cannot change while the instance runs; start a new one"
        );
    }

    #[test]
    fn more_sources_than_fit_in_memory_are_refused() {
        // Unchecked, each of these overflows into a small number on the way to a table's size.
        for sources in [usize::MAX, 1 << 61, 1 << 58, 1 << 50] {
            let refused = Harness::<Limiter>::new(Config {
                sources,
                ..config(1)
            });
            assert!(refused.is_err(), "{sources}");
        }
    }

    #[test]
    fn a_source_without_room_in_the_table_is_dropped() {
        let small = Config {
            sources: 1,
            ..config(1)
        };
        let mut limiter = Harness::<Limiter>::new(small).unwrap();
        let mut room = 0;
        for source in 0..=255 {
            match limiter.process(0, &packet(source)) {
                Output::Sent(..) => room += 1,
                full => assert_eq!(full, Output::Dropped("more sources than the table holds")),
            }
        }
        assert_eq!(room, 64);
        limiter.advance(2 * SECOND);
        assert_eq!(passed(&mut limiter, 200, 1), 1);
    }

    #[test]
    fn a_used_up_rate_stays_used_up_after_a_move() {
        let mut before = Harness::new(config(50)).unwrap();
        assert_eq!(passed(&mut before, 1, 80), 50);
        let mut after = before.adopting(config(50)).unwrap();
        assert_eq!(passed(&mut after, 1, 80), 0);
        assert_eq!(passed(&mut after, 2, 80), 50);
    }
}
