//! Random histories of traffic both ways, moves, aborted moves, kills, old copies of the state and rekeys: no nonce is used twice, and no replay is
//! accepted. `IPSEC_HISTORIES=10000` plays more of them, with `--release` in two minutes.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::{collections::HashSet, sync::atomic::Ordering};

use common::{esp, frame, numbers, payload, Gateway, Pair, EAST, INSIDE, OUTSIDE, WEST};
use nf_arena::Memory;
use nf_ipsec::Ipsec;
use nf_runtime::{
    testing::{Harness, Output},
    NetworkFunction,
};
use serde_json::json;

/// Numbers that look random (xorshift), the same for each seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % bound
    }
}

/// A packet on the wire.
struct Wire {
    to: usize,
    frame: Vec<u8>,
    /// No packet of its direction left after it, and it has not arrived yet.
    is_new: bool,
}

struct World {
    draw: Draw,
    pair: Pair,
    gateways: [Gateway; 2],
    wire: Vec<Wire>,
    /// SPI and IV of each packet that was ever sent.
    nonces: HashSet<(u32, u64)>,
    /// SPI and sequence number of each since the start, or since the latest old copy.
    numbers: HashSet<(u32, u32)>,
    /// The packets that have arrived in the protected networks.
    arrived: HashSet<u64>,
    next: u64,
    next_key: u8,
    /// Old copies of a gateway's state, with the keys at that time.
    copies: Vec<(usize, Gateway)>,
    distrusts: [bool; 2],
    accepted: usize,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut draw = Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let pair = Pair {
            esn: draw.below(2) == 0,
            udp: draw.below(2) == 0,
            window: [32, 64, 100, 1024, 4096][draw.below(5)],
            ..Pair::default()
        };
        Self {
            gateways: pair.gateways(),
            draw,
            pair,
            wire: Vec::new(),
            nonces: HashSet::new(),
            numbers: HashSet::new(),
            arrived: HashSet::new(),
            next: 0,
            next_key: 2,
            copies: Vec::new(),
            distrusts: [false; 2],
            accepted: 0,
        }
    }

    /// Protects some packets; of those that a kill cuts off, the first `leaving` are sent.
    fn send(&mut self, from: usize, count: usize, leaving: usize) {
        let frames: Vec<Vec<u8>> = (0..count)
            .map(|_| {
                self.next += 1;
                frame(from, false, &self.next.to_be_bytes())
            })
            .collect();
        let frames: Vec<(usize, &[u8])> = frames.iter().map(|each| (INSIDE, &each[..])).collect();
        let outputs = self.gateways[from].process_all(&frames);
        for output in outputs.into_iter().take(leaving) {
            let outer = common::sent(output, OUTSIDE);
            let (spi, sequence, iv) = numbers(&outer);
            assert!(
                self.numbers.insert((spi, sequence)),
                "number {sequence} of SPI {spi:#x} is used twice"
            );
            assert!(
                self.nonces.insert((spi, iv)),
                "nonce {iv:#x} of SPI {spi:#x} is used twice"
            );
            for other in self.wire.iter_mut().filter(|other| other.to != from) {
                other.is_new = false;
            }
            self.wire.push(Wire {
                to: 1 - from,
                frame: outer,
                is_new: true,
            });
        }
    }

    /// Delivers any packet that was ever sent, perhaps damaged.
    fn deliver(&mut self) {
        if self.wire.is_empty() {
            return;
        }
        // Most are among the latest, as on a network.
        let recent = self.wire.len().min(1 + self.draw.below(90));
        let at = self.wire.len() - 1 - self.draw.below(recent);
        let is_damaged = self.draw.below(10) == 0;
        let bit = self.draw.below(8);
        let wire = &mut self.wire[at];
        let mut frame = wire.frame.clone();
        if is_damaged {
            let start = esp(&frame);
            let place = start + self.draw.below(frame.len() - start);
            frame[place] ^= 1 << bit;
        }
        let must = !is_damaged && wire.is_new && !self.distrusts[wire.to];
        let to = wire.to;
        if !is_damaged {
            wire.is_new = false;
        }
        match self.gateways[to].process(OUTSIDE, &frame) {
            Output::Sent(_, inner) => {
                assert!(!is_damaged, "a damaged packet was accepted");
                assert!(!self.distrusts[to], "a distrusted window accepted a packet");
                let number = u64::from_be_bytes(payload(&inner).try_into().unwrap());
                assert!(
                    self.arrived.insert(number),
                    "packet {number} was accepted twice"
                );
                self.accepted += 1;
            }
            Output::Dropped(reason) => assert!(!must, "a new packet was dropped: {reason}"),
        }
    }

    fn adopt(&mut self, end: usize) {
        self.gateways[end] = self.gateways[end].adopting(self.pair.config(end)).unwrap();
    }

    /// Copies the state as it is now: into a gateway that is not started yet.
    fn copy(&self, end: usize) -> Gateway {
        let copy = Harness::<Ipsec>::new(self.pair.config(end)).unwrap();
        for region in self.gateways[end].arena().regions() {
            let target = copy.arena().region(region.name()).unwrap();
            for (to, from) in target.words().iter().zip(region.words()) {
                to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
        copy
    }

    fn rekey(&mut self) {
        if self.next_key > 12 {
            return;
        }
        let mut keys = vec![self.next_key];
        keys.extend(self.pair.keys.iter().take(1));
        self.next_key += 1;
        self.pair.keys = keys;
        for end in [EAST, WEST] {
            let config = self.pair.config(end);
            self.gateways[end].function().configure(config).unwrap();
        }
        // Copies with other keys could not be adopted by the new configuration's instance in the same way.
        self.copies.clear();
        self.wire.iter_mut().for_each(|wire| wire.is_new = false);
        // The old key is still distrusted, the new one is not, and only it has new packets.
        if self.distrusts != [false; 2] {
            self.wire.clear();
            self.distrusts = [false; 2];
            self.pair.keys.truncate(1);
        }
    }

    fn step(&mut self) {
        let end = self.draw.below(2);
        match self.draw.below(42) {
            0..10 => {
                let count = 1 + self.draw.below(12);
                self.send(end, count, count);
            }
            10..29 => (0..6).for_each(|_| self.deliver()),
            29..31 => self.adopt(end),
            31 => {
                self.gateways[end] = self.copy(end).adopting(self.pair.config(end)).unwrap();
            }
            32 => {
                // The new instance has the state, but the move is given up, and the old one continues.
                drop(self.gateways[end].adopting(self.pair.config(end)).unwrap());
            }
            33..35 => {
                let count = 1 + self.draw.below(40);
                let leaving = self.draw.below(count + 1);
                self.send(end, count, leaving);
                self.adopt(end);
            }
            35 => {
                // Killed after packets were opened and before they were sent: they are lost, and not accepted again.
                self.deliver();
                self.adopt(end);
            }
            36 => self.copies.push((end, self.copy(end))),
            37 => self.restore(),
            38..41 => self.rekey(),
            _ if self.draw.below(8) > 0 => {}
            _ => {
                let count = 1024 + self.draw.below(200);
                self.send(end, count, count);
            }
        }
    }

    /// Starts an instance on an old copy of the state, and says so.
    fn restore(&mut self) {
        let Some((end, copy)) = self.copies.pop() else {
            return;
        };
        let config = self.pair.config(end);
        self.gateways[end] = copy.adopting(config).unwrap();
        let answer = self.gateways[end]
            .function()
            .control("distrust", &json!({}));
        answer.unwrap().unwrap();
        self.distrusts[end] = true;
        // No more than the nonces differ then.
        self.numbers.clear();
        // Its numbers may be ones that the peer has seen.
        self.wire.iter_mut().for_each(|wire| wire.is_new = false);
        self.distrusts[1 - end] = true;
        let answer = self.gateways[1 - end]
            .function()
            .control("distrust", &json!({}));
        answer.unwrap().unwrap();
    }
}

#[test]
fn no_nonce_is_used_twice_and_no_replay_is_accepted() {
    let histories = std::env::var("IPSEC_HISTORIES");
    let histories = histories.map_or(1000, |text| text.parse().unwrap());
    let (mut sent, mut accepted) = (0, 0);
    for seed in 1..=histories {
        let mut world = World::new(seed);
        for _ in 0..30 {
            world.step();
        }
        sent += world.nonces.len();
        accepted += world.accepted;
    }
    println!("{histories} histories: {sent} packets sent, {accepted} accepted");
    assert!(accepted as u64 > histories && sent > accepted);
}
