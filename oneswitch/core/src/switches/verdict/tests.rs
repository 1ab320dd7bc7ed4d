use super::*;
use crate::model::facts::Facts;
use openflow13::{ActionList, FlowMod, FlowModCommand, Instructions, Match};
use proptest::prelude::*;

const TWO: [SwitchIndex; 2] = [0, 1];

fn request(cookie: u64, command: FlowModCommand, port: u32) -> Request {
    let matching = match port {
        0 => Match::any(),
        port => Match::any().with_in_port(port),
    };
    let actions = ActionList::new().output(port + 1, 0);
    let message = FlowMod {
        cookie,
        instructions: Instructions::apply(&actions),
        ..FlowMod::new(command, 0, 1, matching.clone())
    };
    Request::Flow {
        message: Box::new(message),
        matching: matching.canonical().unwrap(),
        facts: Facts::default(),
    }
}

fn error() -> ErrorMessage {
    ErrorMessage::new(ErrorCode::FLOW_MOD_FAILED_EPERM, &[4, 14, 0, 8, 0, 0, 0, 0])
}

fn origin(xid: u32) -> Origin {
    Origin {
        controller: ControllerId(1),
        xid,
        place: 0,
    }
}

fn rules(truth: &Truth) -> Vec<(Option<u32>, u64, Instructions)> {
    let mut rules: Vec<_> = truth
        .tables
        .iter()
        .map(|r| (r.in_port(), r.cookie, r.instructions.clone()))
        .collect();
    rules.sort_by_key(|r| (r.0, r.1));
    rules
}

fn both() -> SwitchSet {
    TWO.into_iter().collect()
}

#[derive(Clone, Debug)]
enum Step {
    /// A message, and by whom it is refused.
    Push(u8, u32, bool, bool),
    Close,
    /// All barriers of the oldest batches that are open still, by one switch.
    Answer(SwitchIndex),
}

fn steps() -> impl Strategy<Value = Step> {
    let maybe = || prop_oneof![6 => Just(false), 1 => Just(true)];
    prop_oneof![
        5 => (0..5u8, 0..4u32, maybe(), maybe()).prop_map(|(c, p, a, b)| Step::Push(c, p, a, b)),
        2 => Just(Step::Close),
        2 => (0..2usize).prop_map(Step::Answer),
    ]
}

/// Two switches that answer when told to, and a truth that never sees what one of them refuses.
struct Model {
    truth: Truth,
    wanted: Truth,
    verdicts: Verdicts,
    /// Barriers sent, and which of them each switch has answered.
    barriers: u32,
    answered: [u32; 2],
    pushed: u64,
    refused: Vec<u32>,
    told: Vec<u32>,
}

impl Model {
    fn push(&mut self, command: u8, port: u32, refused_by: [bool; 2]) {
        let command = [
            FlowModCommand::Add,
            FlowModCommand::Modify,
            FlowModCommand::ModifyStrict,
            FlowModCommand::Delete,
            FlowModCommand::DeleteStrict,
        ][usize::from(command)];
        self.pushed += 1;
        let request = request(self.pushed, command, port);
        let now = Instant::now();
        let changes = self.truth.apply(&request, now);
        if !refused_by.contains(&true) {
            self.wanted.apply(&request, now);
        }
        let number = self.pushed as u32;
        let xid = self
            .verdicts
            .push(Some(origin(number)), None, request, changes, both(), now);
        for switch in TWO.into_iter().filter(|s| refused_by[*s]) {
            assert!(self.verdicts.refuse(xid, switch, error()));
        }
        if refused_by.contains(&true) {
            self.refused.push(number);
        }
    }

    fn close(&mut self) {
        if self.verdicts.close(self.barriers + 1).is_some() {
            self.barriers += 1;
        }
    }

    fn answer(&mut self, switch: SwitchIndex) {
        if self.answered[switch] < self.barriers {
            self.answered[switch] += 1;
            self.verdicts
                .barrier_reply(self.answered[switch], switch, Bridge::Virt);
        }
        while let Some(settled) = self
            .verdicts
            .settle(&mut self.truth, &mut Journal::default())
        {
            let xids = settled.refused.iter().map(|r| r.origin.unwrap().xid);
            self.told.extend(xids);
        }
    }
}

proptest! {
    #[test]
    fn the_truth_forgets_what_was_refused(steps in proptest::collection::vec(steps(), 1..60), first in any::<u32>()) {
        let mut model = Model {
            truth: Truth::default(),
            wanted: Truth::default(),
            // Operation numbers wrap around.
            verdicts: Verdicts { first: (NOT_AN_OPERATION - first % 40) & !NOT_AN_OPERATION, ..Verdicts::default() },
            barriers: 0,
            answered: [0; 2],
            pushed: 0,
            refused: Vec::new(),
            told: Vec::new(),
        };
        for step in steps {
            match step {
                Step::Push(command, port, a, b) => model.push(command, port, [a, b]),
                Step::Close => model.close(),
                Step::Answer(switch) => model.answer(switch),
            }
        }
        model.close();
        for _ in 0..=model.barriers {
            TWO.into_iter().for_each(|s| model.answer(s));
        }
        prop_assert_eq!(model.verdicts.in_flight(), 0);
        prop_assert_eq!(rules(&model.truth), rules(&model.wanted));
        prop_assert_eq!(model.told, model.refused);
    }
}

#[test]
fn a_batch_is_settled_when_all_its_switches_have_answered() {
    let (mut verdicts, mut truth) = (Verdicts::default(), Truth::default());
    assert_eq!(verdicts.close(1), None);
    let add = request(1, FlowModCommand::Add, 1);
    let changes = truth.apply(&add, Instant::now());
    verdicts.push(None, None, add, changes, both(), Instant::now());
    verdicts.touch(1, Bridge::Edge);
    let batch = verdicts.current_batch();
    let Bridges { virt, edge, .. } = verdicts.close(7).unwrap();
    assert_eq!((virt, edge), (both(), SwitchSet::of(1)));
    for (switch, bridge) in [(0, Bridge::Virt), (1, Bridge::Edge)] {
        verdicts.barrier_reply(7, switch, bridge);
        assert!(verdicts
            .settle(&mut truth, &mut Journal::default())
            .is_none());
    }
    verdicts.forget(1, Bridge::Virt);
    assert!(!verdicts.is_settled(batch));
    assert!(verdicts
        .settle(&mut truth, &mut Journal::default())
        .is_some());
    assert!(verdicts.is_settled(batch));
    assert_eq!(verdicts.close(8), None);
}

/// A barrier that comes while a port flips at one switch only, which then disconnects.
#[test]
fn a_batch_that_something_waits_for_is_settled_when_its_only_switch_is_gone() {
    let (mut verdicts, mut truth) = (Verdicts::default(), Truth::default());
    verdicts.touch(1, Bridge::Edge);
    let batch = verdicts.current_batch();
    verdicts.forget(1, Bridge::Edge);
    // Behind it, in any case.
    assert_eq!(verdicts.current_batch(), batch);
    assert_eq!(verdicts.close(7), Some(Bridges::default()));
    let settled = verdicts.settle(&mut truth, &mut Journal::default());
    assert!(settled.is_some() && verdicts.is_settled(batch));
    assert_eq!(verdicts.close(8), None);
}

#[test]
fn who_accepted_what_another_refused_is_repaired() {
    let (mut verdicts, mut truth) = (Verdicts::default(), Truth::default());
    let add = request(1, FlowModCommand::Add, 1);
    let changes = truth.apply(&add, Instant::now());
    let xid = verdicts.push(Some(origin(5)), None, add, changes, both(), Instant::now());
    verdicts.adopt(SwitchSet::of(3));
    assert!(verdicts.refuse(xid, 0, error()));
    assert!(!verdicts.refuse(xid + 1, 0, error()));
    verdicts.close(7);
    TWO.into_iter()
        .for_each(|s| verdicts.barrier_reply(7, s, Bridge::Virt));
    let settled = verdicts
        .settle(&mut truth, &mut Journal::default())
        .unwrap();
    assert_eq!(settled.repair.iter().collect::<Vec<_>>(), [1, 3]);
    assert_eq!(settled.refused.len(), 1);
    assert_eq!(truth.tables.len(), 0);
}

#[test]
fn what_is_in_flight_is_as_it_was_before() {
    let (mut verdicts, mut truth) = (Verdicts::default(), Truth::default());
    let push = |verdicts: &mut Verdicts, truth: &mut Truth, request: Request| {
        let changes = truth.apply(&request, Instant::now());
        verdicts.push(None, None, request, changes, both(), Instant::now());
    };
    push(
        &mut verdicts,
        &mut truth,
        request(1, FlowModCommand::Add, 1),
    );
    let since = verdicts.sequence();
    push(
        &mut verdicts,
        &mut truth,
        request(2, FlowModCommand::Add, 1),
    );
    push(
        &mut verdicts,
        &mut truth,
        request(3, FlowModCommand::Add, 2),
    );
    let found = verdicts.in_flight_at(0, since);
    let mut before: Vec<Option<u64>> = found
        .rules
        .values()
        .map(|r| r.as_ref().map(|r| r.cookie))
        .collect();
    before.sort_unstable();
    assert_eq!(before, [None, Some(1)]);
    assert!(verdicts.in_flight_at(5, 0).rules.is_empty());
}
