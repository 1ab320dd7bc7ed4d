//! Any history of requests, disconnects, restarts and moves ends with the rules that their writer knows, and counts every packet once.

use crate::lab::{Lab, GRACE};
use crate::offload::{counter_of, install, target, PORT};
use oneswitch_core::{Bridge, MoveUntil, OffloadEvent, OffloadRequest, WriterId};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Installs a rule for a client.
    Install(u8),
    /// The next ones name one of the rules so far.
    Remove(usize),
    /// It carries, by its cached flow if it is leaving.
    Carry(usize, u64),
    CachesEnd,
    Report,
    /// The writer connects again.
    Reconnect,
    /// The session to the port's switch is lost for a moment.
    Flap,
    /// The port's switch starts again, without rules.
    SwitchRestarts,
    /// oneswitchd starts again.
    Restart,
    Move,
    PrepareMove,
    AbortMove,
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (1u8..30).prop_map(Step::Install),
        4 => any::<usize>().prop_map(Step::Remove),
        8 => (any::<usize>(), 1u64..100).prop_map(|(rule, packets)| Step::Carry(rule, packets)),
        3 => Just(Step::CachesEnd),
        1 => Just(Step::Report),
        1 => Just(Step::Reconnect),
        1 => Just(Step::Flap),
        1 => Just(Step::SwitchRestarts),
        1 => Just(Step::Restart),
        1 => Just(Step::Move),
        1 => Just(Step::PrepareMove),
        1 => Just(Step::AbortMove),
    ]
}

/// The core with its switches, and what the writer knows.
struct World {
    lab: Lab,
    writer: u64,
    rules: Vec<u64>,
    /// Removals of this connection without an answer.
    awaited: BTreeSet<u64>,
    /// Rules that were removed and may have cached flows, at their switch.
    leaving: BTreeMap<u64, usize>,
    /// The packets of each counter: those that there were, and those that the writer was told.
    carried: BTreeMap<u16, u64>,
    told: BTreeMap<u16, u64>,
    /// The rules that were listed last.
    listed: BTreeSet<u64>,
    /// The port's switch and interface.
    home: (usize, u32),
    is_moving: bool,
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            lab: Lab::new(2, &[0, 1]),
            writer: 0,
            rules: Vec::new(),
            awaited: BTreeSet::new(),
            leaving: BTreeMap::new(),
            carried: BTreeMap::new(),
            told: BTreeMap::new(),
            listed: BTreeSet::new(),
            home: (1, 2),
            is_moving: false,
        };
        world.connect();
        world
    }

    fn connect(&mut self) {
        self.writer += 1;
        self.awaited.clear();
        self.lab.writer(self.writer, 5, self.writer);
        self.offload(target());
    }

    fn offload(&mut self, request: OffloadRequest) {
        self.lab.offload(self.writer, &[request]);
        self.listen();
    }

    fn listen(&mut self) {
        for event in self.lab.told(self.writer) {
            match event {
                OffloadEvent::Carried(totals) => {
                    for (counter, total) in totals {
                        assert_eq!(total.bytes, 100 * total.packets);
                        let before = self.told.insert(counter, total.packets);
                        assert!(before.is_none_or(|before| before <= total.packets));
                    }
                }
                OffloadEvent::Effective(rules) => {
                    for rule in rules {
                        self.awaited.remove(&rule);
                        self.leaving.remove(&rule);
                    }
                    assert_eq!(self.told, self.carried, "before they are effective");
                }
                OffloadEvent::Refused(rules) => {
                    let is_refused = |rule: &u64| rules.iter().any(|(refused, _)| refused == rule);
                    self.rules.retain(|rule| !is_refused(rule));
                }
                OffloadEvent::Listed(rules) => {
                    self.listed = rules.iter().map(|each| each.rule).collect();
                }
                OffloadEvent::Error(error) => panic!("{error:?}"),
                _ => {}
            }
        }
    }

    fn chosen(&self, at: usize) -> Option<u64> {
        let index = at.checked_rem(self.rules.len())?;
        self.rules.get(index).copied()
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Install(client) => {
                let rule = self.rules.last().map_or(1, |last| last + 1);
                self.rules.push(rule);
                self.offload(install(rule, client));
            }
            Step::Remove(at) => {
                if let Some(rule) = self.chosen(at) {
                    self.awaited.insert(rule);
                    if self.lab.offloaded(self.home.0).contains(&rule) {
                        self.leaving.insert(rule, self.home.0);
                    }
                    self.offload(OffloadRequest::Remove(rule));
                }
            }
            Step::Carry(at, packets) => self.carry(at, packets),
            Step::CachesEnd => {
                self.leaving.clear();
                self.lab.caches_end();
            }
            Step::Report => self.report(),
            Step::Reconnect => {
                self.lab
                    .core
                    .offload_closed(WriterId(self.writer), self.lab.now);
                self.connect();
            }
            Step::Flap => {
                self.lab.disconnect_bridge(self.home.0, Bridge::Edge);
                self.lab.connect_bridge(self.home.0, Bridge::Edge);
            }
            Step::SwitchRestarts => {
                // The switch takes its counts since the last report with it.
                self.report();
                let home = self.home.0;
                self.leaving.retain(|_, switch| *switch != home);
                self.lab.disconnect(home);
                for bridge in [Bridge::Virt, Bridge::Edge] {
                    self.lab.bridge(home, bridge).flows.clear();
                    self.lab.bridge(home, bridge).groups.clear();
                    self.lab.bridge(home, bridge).meters.clear();
                    self.lab.bridge(home, bridge).meter_packets.clear();
                }
                self.lab.connect(home);
            }
            Step::Restart => {
                self.lab.restart();
                self.connect();
            }
            Step::Move => self.finish_move(),
            Step::PrepareMove => self.prepare_move(),
            Step::AbortMove => {
                let aborted = self.lab.core.abort_move(PORT, self.lab.now);
                self.is_moving &= aborted.is_err();
            }
        }
        self.lab.run();
        self.listen();
        assert_eq!(
            self.lab.port_packets(PORT),
            (self.sum(), self.sum()),
            "after {step:?}"
        );
    }

    fn sum(&self) -> u64 {
        self.carried.values().sum()
    }

    fn carry(&mut self, at: usize, packets: u64) {
        let Some(rule) = self.chosen(at) else {
            return;
        };
        let home = self.home.0;
        if self.lab.offloaded(home).contains(&rule) {
            self.lab.carry(home, rule, packets);
        } else {
            let leaving = self.leaving.get(&rule).copied();
            // Without its meter, its cached flow has ended.
            let Some(switch) = leaving.filter(|switch| self.lab.has_meter(*switch, rule)) else {
                return;
            };
            self.lab.carry_cached(switch, rule, packets);
        }
        *self.carried.entry(counter_of(rule)).or_default() += packets;
    }

    fn report(&mut self) {
        self.offload(OffloadRequest::Alive);
        self.lab.wait(Duration::from_millis(1_100));
        self.offload(OffloadRequest::Alive);
    }

    fn prepare_move(&mut self) {
        if !self.is_moving {
            self.lab
                .begin_move(PORT, 1 - self.home.0, 9 - self.home.1, MoveUntil::Prepared);
            self.is_moving = true;
        }
    }

    fn finish_move(&mut self) {
        self.prepare_move();
        self.lab.run();
        self.lab.continue_move(PORT, MoveUntil::Done);
        self.lab.wait(2 * GRACE);
        self.offload(OffloadRequest::Alive);
        assert_eq!(self.lab.core.move_outcome(PORT), Some(Ok(())));
        self.is_moving = false;
        self.home = (1 - self.home.0, 9 - self.home.1);
    }

    /// Lets everything come to its end, and compares the switches with the list.
    fn check(mut self) {
        if self.is_moving {
            self.finish_move();
        }
        for _ in 0..4 {
            self.lab.caches_end();
        }
        self.lab.core.request_audit(self.lab.now);
        self.lab.run();
        self.listen();
        assert_eq!(self.awaited, BTreeSet::new());
        self.offload(OffloadRequest::List);
        let listed = self.listed.clone();
        assert!(listed.iter().all(|rule| self.rules.contains(rule)));
        let there = self.lab.offloaded(self.home.0).into_iter();
        assert_eq!(there.collect::<BTreeSet<_>>(), listed);
        assert_eq!(self.lab.offloaded(1 - self.home.0), []);
        for rule in listed {
            self.awaited.insert(rule);
            self.lab
                .offload(self.writer, &[OffloadRequest::Remove(rule)]);
        }
        self.lab.caches_end();
        self.lab.caches_end();
        self.report();
        assert_eq!(self.awaited, BTreeSet::new());
        assert_eq!(self.told, self.carried);
        assert_eq!(self.lab.port_packets(PORT), (self.sum(), self.sum()));
    }
}

proptest! {
    #[test]
    fn every_packet_counts_once(steps in proptest::collection::vec(steps(), 1..40)) {
        let mut world = World::new();
        for step in steps {
            world.apply(step);
        }
        world.check();
    }
}
