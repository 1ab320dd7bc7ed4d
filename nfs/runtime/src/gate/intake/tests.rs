//! Tests of the order and destination of packets in each mode.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use nf_ports::{
    memory::{self, Wire},
    Frame,
};
use proptest::prelude::*;

use super::*;
use crate::gate::MemoryStore;

type Frames = VecDeque<(usize, Vec<u8>)>;

/// A sink with room for a limited number of frames, whose content the test reads back.
#[derive(Clone, Default)]
struct Relay(Arc<Mutex<Frames>>, usize);

impl FrameSink for Relay {
    fn room(&self, _longest: usize) -> usize {
        self.1.saturating_sub(self.0.lock().unwrap().len())
    }

    fn put(&mut self, port: usize, frame: Frame<'_>) {
        let bytes = frame.bytes.to_vec();
        self.0.lock().unwrap().push_back((port, bytes));
    }
}

/// A source that gives some frames, with pauses, and ends.
struct Source(Frames, usize);

impl FrameSource for Source {
    fn take(&mut self, packet: &mut Packet) -> Taken {
        self.1 += 1;
        if self.1 % 3 == 0 {
            return Taken::Nothing;
        }
        let Some((port, frame)) = self.0.pop_front() else {
            return Taken::End;
        };
        assert!(packet.fill(port, &frame));
        Taken::Frame
    }
}

struct World {
    intake: Intake,
    wires: Vec<Wire>,
    batch: Batch,
    relay: Relay,
    sent: [u32; 2],
    processed: [Vec<u32>; 2],
}

impl World {
    fn new() -> Self {
        let (first, mut wires) = memory::port(0, [2; 6], 1).unwrap();
        let (second, others) = memory::port(1, [4; 6], 1).unwrap();
        wires.extend(others);
        let queues = first.queues.into_iter().chain(second.queues).collect();
        Self {
            intake: Intake::new(queues),
            wires,
            batch: Batch::new(),
            relay: Relay(Arc::default(), 150),
            sent: [0; 2],
            processed: [Vec::new(), Vec::new()],
        }
    }

    fn arrive(&mut self, port: usize) {
        self.wires[port].send(&self.sent[port].to_le_bytes());
        self.sent[port] += 1;
    }

    fn turn(&mut self) -> usize {
        self.batch.clear();
        let moved = self.intake.turn(&mut self.batch);
        for packet in self.batch.packets() {
            let number = u32::from_le_bytes(packet.bytes().try_into().unwrap());
            self.processed[packet.port()].push(number);
        }
        moved.stored + self.batch.len()
    }

    fn relay(&mut self) {
        self.intake.obey(Order::Relay(Box::new(self.relay.clone())));
    }

    /// Runs the worker; relayed frames come back first, as after `thaw`.
    fn run(&mut self, store: bool) {
        let frames = std::mem::take(&mut *self.relay.0.lock().unwrap());
        if store {
            self.hold();
        }
        self.intake.obey(Order::Inject(Box::new(Source(frames, 0))));
        self.intake.obey(Order::Run);
    }

    fn hold(&mut self) {
        let store = Box::new(MemoryStore::new(1_000_000));
        self.intake.obey(Order::Hold(store));
    }
}

proptest! {
    #[test]
    fn packets_are_never_lost_duplicated_or_reordered(steps in prop::collection::vec(0_u8..14, 0..100)) {
        let mut world = World::new();
        for step in steps {
            match step {
                0..=2 => (0..50).for_each(|_| world.arrive(0)),
                3 => world.arrive(1),
                4..=7 => drop(world.turn()),
                // As in `Gate::order`: no relaying before injected frames are done.
                8 if world.intake.sources() == 0 && world.relay.0.lock().unwrap().is_empty() => world.hold(),
                9 if world.intake.sources() == 0 => world.relay(),
                10 => world.run(true),
                11 => world.run(false),
                12 => world.intake.obey(Order::Fence),
                13 => world.intake.obey(Order::Release),
                _ => {}
            }
        }
        world.run(true);
        let mut idle = 0;
        while idle < 10 || world.intake.has_backlog() {
            idle = if world.turn() == 0 { idle + 1 } else { 0 };
        }
        for port in 0..2 {
            let expected: Vec<u32> = (0..world.sent[port]).collect();
            prop_assert_eq!(&world.processed[port], &expected);
        }
        prop_assert!(!world.intake.has_backlog());
        prop_assert!(world.intake.store.is_none());
    }
}

#[test]
fn while_relaying_nothing_is_processed_and_held_frames_go_first() {
    let mut world = World::new();
    world.hold();
    for _ in 0..5 {
        world.arrive(0);
    }
    world.turn();
    world.relay();
    world.arrive(0);
    while world.turn() > 0 {}
    assert_eq!(world.processed, [const { Vec::<u32>::new() }; 2]);
    let relayed = world.relay.0.lock().unwrap();
    let numbers: Vec<u8> = relayed.iter().map(|(_, frame)| frame[0]).collect();
    assert_eq!(numbers, [0, 1, 2, 3, 4, 5]);
}

#[test]
fn fenced_frames_are_released_between_frames_of_the_sources() {
    let mut world = World::new();
    world.hold();
    let relayed = (100..104_u32).map(|number| (1, number.to_le_bytes().to_vec()));
    let source = Source(relayed.collect(), 0);
    world.intake.obey(Order::Inject(Box::new(source)));
    (0..3).for_each(|_| world.arrive(0));
    world.turn();
    world.intake.obey(Order::Fence);
    (0..2).for_each(|_| world.arrive(0));
    world.turn();
    assert_eq!(world.processed[0], [0; 0]);
    world.intake.obey(Order::Release);
    world.intake.obey(Order::Fence);
    (0..5).for_each(|_| {
        world.turn();
    });
    assert_eq!(world.processed, [vec![0, 1, 2], vec![100, 101, 102, 103]]);
    world.intake.obey(Order::Release);
    world.turn();
    assert_eq!(world.processed[0], [0, 1, 2, 3, 4]);
}

#[test]
fn frames_without_room_in_the_sink_stay_in_the_port() {
    let mut world = World::new();
    world.relay.1 = 0;
    world.relay();
    world.arrive(1);
    assert!(!world.intake.is_awaiting_more());
    assert_eq!(world.turn(), 0);
    assert_eq!(world.wires[1].waiting(), 1);
    // No descriptor signals room in the sink.
    assert!(world.intake.is_awaiting_more());
    world.intake.obey(Order::Sweep);
    world.turn();
    assert!(!world.intake.is_swept());
    world.relay.1 = 100;
    world.relay();
    world.turn();
    assert!(world.intake.is_swept());
    assert!(!world.intake.is_awaiting_more());
}

#[test]
fn turns_report_what_they_moved() {
    let mut world = World::new();
    let turn = |world: &mut World| {
        world.batch.clear();
        let moved = world.intake.turn(&mut world.batch);
        (moved.received, moved.received_bytes, moved.stored)
    };
    world.arrive(0);
    (0..2).for_each(|_| world.arrive(1));
    assert_eq!(turn(&mut world), (3, 12, 0));
    world.hold();
    (0..5).for_each(|_| world.arrive(0));
    assert_eq!(turn(&mut world), (5, 20, 5));
    world.relay();
    world.arrive(1);
    assert_eq!(turn(&mut world), (1, 4, 6));
    assert_eq!(turn(&mut world), (0, 0, 0));
    assert_eq!(world.relay.0.lock().unwrap().len(), 6);
}

#[test]
fn ports_take_turns_at_being_first() {
    let mut world = World::new();
    let mut firsts = Vec::new();
    for _ in 0..4 {
        // More than a batch from each port.
        for _ in 0..Batch::MAX {
            world.arrive(0);
            world.arrive(1);
        }
        world.batch.clear();
        world.intake.turn(&mut world.batch);
        let ports: Vec<usize> = world.batch.packets().iter().map(Packet::port).collect();
        assert_eq!(ports, [ports[0]; Batch::MAX]);
        firsts.push(ports[0]);
    }
    assert_eq!(firsts, [0, 1, 0, 1]);
}

#[test]
fn ports_are_served_while_a_store_is_emptied_at_full_speed() {
    let mut world = World::new();
    world
        .intake
        .obey(Order::Hold(Box::new(MemoryStore::new(100_000_000))));
    for _ in 0..400 {
        (0..20).for_each(|_| world.arrive(0));
        world.turn();
    }
    world.intake.obey(Order::Run);
    while world.intake.releases.quota_of_all(Instant::now()) != usize::MAX {
        std::hint::spin_loop();
    }
    // One turn in seven receives from the two ports, and the others empty the store.
    let mut taken_in = 0;
    for _ in 0..70 {
        world.arrive(1);
        world.turn();
        taken_in += u32::from(world.wires[1].waiting() == 0);
    }
    assert!(world.intake.has_backlog());
    assert_eq!(taken_in, 10);
}

#[test]
fn a_store_under_load_is_emptied() {
    let mut world = World::new();
    world
        .intake
        .obey(Order::Hold(Box::new(MemoryStore::new(100_000_000))));
    for _ in 0..1000 {
        world.arrive(0);
        world.arrive(1);
        world.turn();
    }
    world.intake.obey(Order::Run);
    let mut turns = 0;
    while world.intake.has_backlog() {
        (0..20).for_each(|_| world.arrive(0));
        world.turn();
        turns += 1;
        assert!(turns < 1_000_000);
    }
}
