//! Any sequence of controllers' messages, moves, port changes and restarts ends in what one bridge would hold.

use crate::build::{add, executor_request, flow_stats, from, group, meter, move_request, output};
use crate::check::{writes_in_port, Executors, FLOOD_GROUP};
use crate::fake::{FakeBridge, Flow};
use crate::lab::{executor_name, port, switch_name, Lab, GRACE};
use crate::steps::{steps, Step, PICKY, SWITCHES};
use oneswitch_core::{LinkKind, MoveUntil, PortRequest};
use openflow13::{
    decode, encode, meter_no, GroupModCommand, Message, MeterModCommand, MultipartReply,
    MultipartRequest,
};
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};
use std::collections::{BTreeMap, BTreeSet};

/// The core under test, one bridge that gets the same messages, and what is expected of both.
struct Twin {
    lab: Lab,
    one: FakeBridge,
    /// The switch and interface of each port, and where it moves.
    homes: BTreeMap<u32, (usize, u32)>,
    goals: BTreeMap<u32, (usize, u32)>,
    /// The executors that are not the home, and those that will be.
    pins: BTreeMap<u32, usize>,
    pin_goals: BTreeMap<u32, Option<usize>>,
    /// xid and expected answer (`None`: any) of what was sent.
    expected: Vec<(u32, Option<u8>)>,
    xid: u32,
    /// Answers differ from one bridge's from the moment on that a switch is picky or away.
    exact: bool,
    picky: [bool; SWITCHES],
    wrote_in_port: bool,
}

impl Twin {
    fn new(links: &[LinkKind]) -> Self {
        let mut lab = Lab::over(links, &[0, 1, 2, 1]);
        lab.now += GRACE;
        Self {
            lab,
            one: FakeBridge::default(),
            homes: [(1, (0, 1)), (2, (1, 2)), (3, (2, 3)), (4, (1, 4))].into(),
            goals: BTreeMap::new(),
            pins: BTreeMap::new(),
            pin_goals: BTreeMap::new(),
            expected: Vec::new(),
            xid: 1,
            exact: true,
            picky: [false; SWITCHES],
            wrote_in_port: false,
        }
    }

    fn send(&mut self, message: &Message) {
        if let Message::FlowMod(m) = message {
            self.wrote_in_port |= writes_in_port(&m.instructions);
        }
        self.xid += 1;
        self.lab.send(1, self.xid, message);
        let frame = encode(self.xid, message).unwrap();
        // The bridge keeps the timers and counts nothing; flow_removed is tested elsewhere.
        self.one.handle(&frame);
        self.one.work();
        let replies: Vec<u8> = self
            .one
            .output
            .drain(..)
            .map(|f| decode(&f).unwrap().0.kind)
            .filter(|kind| *kind != openflow13::kind::FLOW_REMOVED)
            .collect();
        if let Some(kind) = replies.first() {
            self.expected.push((self.xid, Some(*kind)));
        }
    }

    fn occupied(&self, place: (usize, u32)) -> bool {
        self.homes
            .values()
            .chain(self.goals.values())
            .any(|p| *p == place)
    }

    fn apply(&mut self, step: &Step) {
        let lab = &mut self.lab;
        match step {
            // A rule that a picky switch holds instead must not decide where all rules go.
            Step::Flow(m) if writes_in_port(&m.instructions) && self.picky.contains(&true) => {}
            Step::Picky(_) if self.wrote_in_port => {}
            Step::Flow(m) => self.send(&Message::FlowMod(m.clone())),
            Step::Other(m) => self.send(m),
            Step::Round => drop(lab.round()),
            Step::Rest => lab.run(),
            Step::Wait => lab.wait(2 * GRACE),
            Step::Move(number, switch, interface) => {
                if self.occupied((*switch, *interface)) {
                    return;
                }
                let (name, onto) = (switch_name(*switch), format!("if{interface}"));
                let request = move_request(&name, &onto, MoveUntil::Prepared);
                if self
                    .lab
                    .core
                    .begin_move(*number, request, self.lab.now)
                    .is_ok()
                {
                    self.goals.insert(*number, (*switch, *interface));
                }
            }
            Step::Execute(number, executor) => {
                let request = executor_request(&executor_name(*executor), MoveUntil::Prepared);
                let begun = lab.core.begin_executor_change(*number, &request, lab.now);
                if begun.is_ok() {
                    self.goals.insert(*number, self.homes[number]);
                    self.pin_goals.insert(*number, *executor);
                }
            }
            Step::Flip(n) => drop(lab.core.continue_move(*n, MoveUntil::Flipped, lab.now)),
            Step::Finish(n) => drop(lab.core.continue_move(*n, MoveUntil::Done, lab.now)),
            Step::Abort(n) => drop(lab.core.abort_move(*n, lab.now)),
            Step::AddPort(number, switch, interface, executor) => {
                let request = PortRequest {
                    number: Some(*number),
                    name: Some(format!("p{number}")),
                    switch: switch_name(*switch),
                    interface: format!("if{interface}"),
                    executor: executor.map(executor_name),
                    owner: None,
                };
                if lab.core.add_port(request, lab.now).is_ok() {
                    self.homes.insert(*number, (*switch, *interface));
                    self.pins.extend(executor.flatten().map(|e| (*number, e)));
                }
            }
            Step::RemovePort(n) => {
                if lab
                    .core
                    .remove_port(*n, &Default::default(), lab.now)
                    .is_ok()
                {
                    self.homes.remove(n);
                    self.pins.remove(n);
                }
            }
            Step::Disconnect(s) if lab.switches[*s].virt.connected => {
                lab.disconnect(*s);
                self.exact = false;
            }
            Step::Connect(s) if !lab.switches[*s].virt.connected => lab.connect(*s),
            Step::Disconnect(_) | Step::Connect(_) => {}
            Step::Restart => self.restart(),
            Step::Slow(s, slow) => lab.virt(*s).slow = *slow,
            Step::Tamper(s) if !lab.switches[*s].virt.connected => tamper(lab.virt(*s)),
            Step::Tamper(_) => {}
            Step::Picky(s) => {
                self.exact = false;
                self.picky[*s] = true;
                let refuse = |message: &Message| match message {
                    Message::FlowMod(m) if m.cookie == PICKY && !m.command.is_delete() => {
                        Some(openflow13::ErrorCode::FLOW_MOD_FAILED_TABLE_FULL)
                    }
                    _ => None,
                };
                lab.virt(*s).refuse = Some(Box::new(refuse));
            }
        }
        self.follow_moves();
    }

    fn restart(&mut self) {
        let lab = &mut self.lab;
        (0..SWITCHES).for_each(|s| lab.virt(s).slow = false);
        lab.run();
        lab.check_journal();
        match self.exact {
            true => lab.restart_at_rest(),
            false => {
                lab.restart();
                lab.run();
            }
        }
    }

    /// Moves end by themselves.
    fn follow_moves(&mut self) {
        for view in self.lab.core.ports() {
            if view.moving.is_some() {
                continue;
            }
            if self.goals.remove(&view.number).is_some() {
                let switch = (0..SWITCHES).find(|s| switch_name(*s) == view.switch);
                let interface = view.interface[2..].parse().unwrap();
                self.homes.insert(view.number, (switch.unwrap(), interface));
                self.pin_goals.remove(&view.number);
                let pin = (0..SWITCHES).find(|s| switch_name(*s) == view.executor);
                self.pins.remove(&view.number);
                self.pins.extend(pin.map(|pin| (view.number, pin)));
            }
        }
    }

    fn executors(&self) -> Executors {
        let mut executors = Executors::new();
        for (number, home) in &self.homes {
            let pin = self.pins.get(number).copied();
            let mut at = BTreeSet::from([pin.unwrap_or(home.0)]);
            if let Some(goal) = self.goals.get(number) {
                let pin = self.pin_goals.get(number).copied().unwrap_or(pin);
                at.insert(pin.unwrap_or(goal.0));
            }
            executors.insert(*number, at);
        }
        executors
    }

    fn finish(mut self) {
        for switch in 0..SWITCHES {
            self.lab.virt(switch).slow = false;
            if !self.lab.switches[switch].virt.connected {
                self.lab.connect(switch);
            }
        }
        // Comparisons that were put off.
        self.lab.wait(5 * GRACE);
        self.follow_moves();
        self.lab.check_rest();
        self.lab.check_journal();
        self.check_answers();
        let one = if self.exact {
            std::mem::take(&mut self.one)
        } else {
            self.dumped()
        };
        let executors = self.executors();
        let picky = self.picky;
        self.lab.check(&one, &executors, |_, f| {
            picky.contains(&true) && f.cookie == PICKY
        });
        for number in self.goals.keys().copied().collect::<Vec<_>>() {
            let now = self.lab.now;
            drop(self.lab.core.continue_move(number, MoveUntil::Done, now));
        }
        self.lab.wait(5 * GRACE);
        self.follow_moves();
        assert!(self.goals.is_empty());
        let executors = self.executors();
        self.lab.check(&one, &executors, |_, f| {
            picky.contains(&true) && f.cookie == PICKY
        });
        let only = |at: &BTreeSet<usize>| *at.first().unwrap();
        let executors = executors.iter().map(|(n, at)| (*n, only(at))).collect();
        self.lab.check_executed_paths(&self.homes, &executors);
        self.lab.check_rest();
    }

    /// Each request got one answer, in order; errors are what one bridge says, as long as the switches agree.
    fn check_answers(&mut self) {
        let answers = self.lab.take(1);
        let mut got: Vec<(u32, u8)> = answers
            .iter()
            .filter(|(_, m)| !matches!(m, Message::PortStatus(_) | Message::FlowRemoved(_)))
            .filter(|(_, m)| !matches!(m, Message::MultipartReply(r) if r.more))
            .map(|(header, _)| (header.xid, header.kind))
            .collect();
        if self.exact {
            let wanted: Vec<(u32, u8)> = self
                .expected
                .iter()
                .map(|(x, k)| (*x, k.unwrap()))
                .collect();
            assert_eq!(got, wanted);
            return;
        }
        assert!(
            got.is_sorted_by(|a, b| a.0 < b.0),
            "one answer each, in order: {got:?}"
        );
        // Requests are answered whatever happens; what changes something may be refused by a switch or two.
        got.retain(|(_, kind)| *kind != openflow13::kind::ERROR);
        let asked = self
            .expected
            .iter()
            .filter(|(_, k)| *k != Some(openflow13::kind::ERROR));
        assert_eq!(
            got,
            asked.map(|(x, k)| (*x, k.unwrap())).collect::<Vec<_>>()
        );
    }

    /// The virtual tables as a controller reads them.
    fn dumped(&mut self) -> FakeBridge {
        let mut one = FakeBridge::default();
        for body in [
            flow_stats(),
            crate::build::request(MultipartRequest::GroupDesc),
            crate::build::request(MultipartRequest::MeterConfig {
                meter: openflow13::meter_no::ALL,
            }),
        ] {
            for (_, message) in self.lab.ask(7, &body) {
                let Message::MultipartReply(reply) = message else {
                    continue;
                };
                match reply.body {
                    MultipartReply::Flow(flows) => {
                        one.flows.extend(flows.into_iter().map(|f| Flow {
                            key: f.matching.canonical().unwrap(),
                            table: f.table_id,
                            priority: f.priority,
                            matching: f.matching,
                            instructions: f.instructions,
                            cookie: f.cookie,
                            flags: f.flags,
                            idle: f.idle_timeout,
                            hard: f.hard_timeout,
                            packets: 0,
                            bytes: 0,
                        }))
                    }
                    MultipartReply::GroupDesc(groups) => one.groups.extend(
                        groups
                            .into_iter()
                            .map(|g| (g.group_id, (g.group_type, g.buckets))),
                    ),
                    MultipartReply::MeterConfig(meters) => one
                        .meters
                        .extend(meters.into_iter().map(|m| (m.meter_id, (m.flags, m.bands)))),
                    other => panic!("{other:?}"),
                }
            }
        }
        one
    }
}

fn tamper(virt: &mut FakeBridge) {
    if virt.flows.pop().is_none() {
        virt.handle(&encode(1, &Message::FlowMod(add(99, from(8), &output(8)))).unwrap());
    }
    // By messages: the rules that refer to them go too, as no switch has rules that refer to nothing.
    for message in [
        group(GroupModCommand::Delete, 1, &[]),
        group(GroupModCommand::Delete, FLOOD_GROUP, &[]),
        meter(MeterModCommand::Delete, meter_no::ALL, 0),
    ] {
        virt.handle(&encode(1, &message).unwrap());
    }
    virt.ports.insert(8, port(8, "virt-8"));
    virt.work();
    virt.output.clear();
}

/// The types of the links, which take turns with the histories.
fn links_for(steps: &[Step]) -> [LinkKind; SWITCHES - 1] {
    let kind = |turn: usize| match turn % 2 {
        0 => LinkKind::Vlan,
        _ => LinkKind::Pcie,
    };
    [kind(steps.len()), kind(steps.len() / 2)]
}

#[test]
fn any_history_ends_in_one_switch() {
    let cases = std::env::var("CORE_CASES")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(500);
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..Config::default()
    };
    let seed = std::env::var("CORE_SEED")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(1u8);
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let histories = proptest::collection::vec(steps(), 1..60);
    let result = runner.run(&histories, |steps| {
        let mut twin = Twin::new(&links_for(&steps));
        for step in &steps {
            twin.apply(step);
        }
        twin.finish();
        Ok(())
    });
    match result {
        Ok(()) => {}
        Err(TestError::Fail(reason, steps)) => {
            let lines: Vec<String> = steps.iter().map(|s| format!("  {s:?}")).collect();
            let links = links_for(&steps);
            panic!(
                "seed {seed}: {reason}\nover {links:?} after\n{}",
                lines.join("\n")
            );
        }
        Err(error) => panic!("{error}"),
    }
}
