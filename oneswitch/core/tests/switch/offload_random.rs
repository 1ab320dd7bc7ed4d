//! Any history of requests, disconnects, restarts and moves ends with the rules that their writer knows, and counts every packet once.

use crate::lab::{Lab, GRACE};
use crate::offload::{install, target, PORT};
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
    Forget(usize),
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
        3 => any::<usize>().prop_map(Step::Forget),
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
    /// Final counts.
    removed: BTreeMap<u64, u64>,
    carried: u64,
    /// The port's switch and interface.
    home: (usize, u32),
    is_moving: bool,
    /// Whether rules keep their counts of earlier homes, which a restart of oneswitchd forgets.
    is_exact: bool,
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            lab: Lab::new(2, &[0, 1]),
            writer: 0,
            rules: Vec::new(),
            awaited: BTreeSet::new(),
            removed: BTreeMap::new(),
            carried: 0,
            home: (1, 2),
            is_moving: false,
            is_exact: true,
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
                OffloadEvent::Removed(rules) => {
                    for (rule, counted) in rules {
                        assert_eq!(counted.bytes, 100 * counted.packets);
                        self.awaited.remove(&rule);
                        // It is 0 once the rule is forgotten.
                        if counted.packets > 0 {
                            self.removed.insert(rule, counted.packets);
                        }
                    }
                }
                OffloadEvent::Refused(rules) => {
                    let is_refused = |rule: &u64| rules.iter().any(|(refused, _)| refused == rule);
                    self.rules.retain(|rule| !is_refused(rule));
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
                    self.offload(OffloadRequest::Remove(rule));
                }
            }
            Step::Forget(at) => {
                if let Some(rule) = self.chosen(at) {
                    self.offload(OffloadRequest::Forget(rule));
                }
            }
            Step::Carry(at, packets) => self.carry(at, packets),
            Step::CachesEnd => self.lab.caches_end(),
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
                self.is_exact = false;
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
            (self.carried, self.carried),
            "after {step:?}"
        );
    }

    /// A rule of the port's home carries, unless its counts are final.
    fn carry(&mut self, at: usize, packets: u64) {
        let Some(rule) = self.chosen(at).filter(|r| !self.removed.contains_key(r)) else {
            return;
        };
        let there = self.lab.offloaded(self.home.0);
        // Without a shadow.
        if there.contains(&(rule, 200)) && !there.contains(&(rule, 300)) {
            self.carried += packets;
            self.lab.carry(self.home.0, rule, packets);
        }
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
        self.lab.offload(self.writer, &[OffloadRequest::List]);
        let listed = self.lab.told(self.writer).into_iter();
        let listed: Vec<_> = listed
            .filter_map(|event| match event {
                OffloadEvent::Listed(rules) => Some(rules),
                _ => None,
            })
            .flatten()
            .collect();
        let mut wanted = BTreeSet::new();
        let mut sum: u64 = 0;
        for rule in &listed {
            assert!(self.rules.contains(&rule.rule));
            if rule.is_removed {
                self.removed.insert(rule.rule, rule.counted.packets);
            } else {
                wanted.insert((rule.rule, 200));
            }
        }
        let there = self.lab.offloaded(self.home.0);
        let is_removed = |rule: u64| listed.iter().any(|l| l.rule == rule && l.is_removed);
        let carrying = there.iter().filter(|(rule, _)| !is_removed(*rule));
        assert_eq!(carrying.copied().collect::<BTreeSet<_>>(), wanted);
        assert_eq!(self.lab.offloaded(1 - self.home.0), []);
        for rule in listed.iter().filter(|rule| !rule.is_removed) {
            self.awaited.insert(rule.rule);
            self.lab
                .offload(self.writer, &[OffloadRequest::Remove(rule.rule)]);
        }
        self.lab.caches_end();
        self.lab.caches_end();
        self.listen();
        assert_eq!(self.awaited, BTreeSet::new());
        sum += self.removed.values().sum::<u64>();
        if self.is_exact {
            assert_eq!(sum, self.carried);
        }
        assert_eq!(self.lab.port_packets(PORT), (self.carried, self.carried));
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
