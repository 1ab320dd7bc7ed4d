//! The worker's side of the gate: the origin of its next packets, and the destination of those it may not process.

use std::{collections::VecDeque, io, time::Instant};

use nf_ports::{Packet, Queue};

use super::{release::Releases, FrameSink, FrameSource, FrameStore, Mode, Order, Taken};
use crate::Batch;

/// The result of one turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    /// The number of packets received from ports.
    pub(crate) received: usize,
    pub(crate) received_bytes: usize,
    /// The number of frames put into the store or the sink.
    pub(crate) stored: usize,
}

/// A worker's queues, and the stores and sources before them.
pub(crate) struct Intake {
    queues: Vec<Box<dyn Queue>>,
    mode: Mode,
    sources: VecDeque<Box<dyn FrameSource>>,
    store: Option<Box<dyn FrameStore>>,
    /// The releases from the store.
    releases: Releases,
    /// The number of frames that this turn may take out of the store.
    quota: usize,
    sink: Option<Box<dyn FrameSink>>,
    /// Whether frames stayed in a port because there was no room elsewhere.
    blocked: bool,
    /// The number of turns, see `turn`.
    turns: usize,
    /// The first port to ask; it rotates, so that a busy port does not starve the others.
    first: usize,
    /// During a sweep: the ports not yet found empty.
    unswept: Vec<bool>,
    /// The error of each port's last call, if it failed.
    errors: Vec<Option<io::Error>>,
}

impl Intake {
    pub(crate) fn new(queues: Vec<Box<dyn Queue>>) -> Self {
        Self {
            mode: Mode::Run,
            sources: VecDeque::new(),
            store: None,
            releases: Releases::default(),
            quota: 0,
            sink: None,
            blocked: false,
            turns: 0,
            first: 0,
            unswept: Vec::new(),
            errors: queues.iter().map(|_| None).collect(),
            queues,
        }
    }

    pub(crate) fn queues(&self) -> &[Box<dyn Queue>] {
        &self.queues
    }

    pub(crate) fn queue(&mut self, port: usize) -> Option<&mut Box<dyn Queue>> {
        self.queues.get_mut(port)
    }

    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    pub(crate) fn sources(&self) -> usize {
        self.sources.len()
    }

    /// Returns the error of each port's last receive, if it failed.
    pub(crate) fn errors(&self) -> &[Option<io::Error>] {
        &self.errors
    }

    /// Tells whether the worker waits for something that no descriptor signals.
    pub(crate) fn is_awaiting_more(&self) -> bool {
        self.blocked || self.has_backlog() || self.releases.is_leaving()
    }

    /// Tells whether frames wait before those of the ports.
    pub(crate) fn has_backlog(&self) -> bool {
        !self.sources.is_empty() || (self.mode != Mode::Hold && !self.store_is_empty())
    }

    pub(crate) fn obey(&mut self, order: Order) {
        match order {
            Order::Run => {
                self.mode = Mode::Run;
                self.sink = None;
            }
            Order::Hold(store) => {
                self.mode = Mode::Hold;
                self.sink = None;
                if self.store_is_empty() {
                    self.store = Some(store);
                    self.releases = Releases::default();
                } else {
                    self.releases.keep();
                }
            }
            Order::Relay(sink) => {
                self.mode = Mode::Relay;
                self.sink = Some(sink);
            }
            Order::Inject(source) => self.sources.push_back(source),
            Order::Fence => self.releases.fence(),
            Order::Release => self.releases.release(),
            Order::Sweep => self.unswept = vec![true; self.queues.len()],
            Order::Flush | Order::Stop => {}
        }
    }

    /// Tells whether no sweep is in progress.
    pub(crate) fn is_swept(&self) -> bool {
        let relayed = self.mode != Mode::Relay || !self.has_backlog();
        relayed && !self.unswept.contains(&true)
    }

    /// Fills `batch`, which is empty, with packets to process now; other frames go where the mode says.
    pub(crate) fn turn(&mut self, batch: &mut Batch) -> Moved {
        self.blocked = false;
        match self.mode {
            Mode::Run if !self.has_backlog() => {
                self.store = None;
                self.receive(batch)
            }
            Mode::Run | Mode::Hold => {
                // Frames at the ports must not wait until the backlog is done. But a store that is being emptied must
                // become empty under any load: so it takes three batches out for each one that comes in.
                self.turns += 1;
                let emptying = self.mode == Mode::Run && self.sources.is_empty();
                self.quota = if emptying {
                    self.releases.quota_of_all(Instant::now())
                } else if self.mode == Mode::Hold {
                    self.releases.quota(Instant::now())
                } else {
                    usize::MAX
                };
                let takes_in =
                    !emptying || self.quota == 0 || self.turns % (3 * self.queues.len() + 1) == 0;
                let moved = if takes_in {
                    self.receive_into_store(batch)
                } else {
                    Moved::default()
                };
                self.fill_from_backlog(batch);
                moved
            }
            Mode::Relay => self.relay(batch),
        }
    }

    fn store_is_empty(&self) -> bool {
        self.store.as_ref().is_none_or(|store| store.is_empty())
    }

    fn receive(&mut self, batch: &mut Batch) -> Moved {
        let before = batch.len();
        let ports = self.queues.len();
        for step in 0..ports {
            let port = (self.first + step) % ports;
            let count = self.receive_from(port, batch.free());
            batch.filled(count);
        }
        self.first = (self.first + 1) % ports.max(1);
        let new = &batch.packets()[before..];
        Moved {
            received: new.len(),
            received_bytes: new.iter().map(Packet::len).sum(),
            stored: 0,
        }
    }

    fn receive_from(&mut self, port: usize, into: &mut [Packet]) -> usize {
        if into.is_empty() {
            return 0;
        }
        let (count, error) = match self.queues[port].receive(into) {
            Ok(count) => (count, None),
            Err(error) => (0, Some(error)),
        };
        self.errors[port] = error;
        if count < into.len() {
            if let Some(unswept) = self.unswept.get_mut(port) {
                *unswept = false;
            }
        }
        count
    }

    fn receive_into_store(&mut self, batch: &mut Batch) -> Moved {
        // Sources without a store: frames stay in the ports until the sources end.
        let Some(mut store) = self.store.take() else {
            return Moved::default();
        };
        let moved = self.receive_into(store.as_mut(), batch);
        self.releases.holds(moved.stored);
        self.store = Some(store);
        moved
    }

    /// Receives frames into a sink. `batch` is the buffer between; it is empty again afterwards.
    fn receive_into<S: FrameSink + ?Sized>(&mut self, sink: &mut S, batch: &mut Batch) -> Moved {
        let mut moved = Moved::default();
        let ports = self.queues.len();
        for step in 0..ports {
            let port = (self.first + step) % ports;
            let room = sink.room().min(Batch::MAX);
            self.blocked |= room == 0;
            let count = self.receive_from(port, &mut batch.free()[..room]);
            for packet in &batch.free()[..count] {
                moved.received_bytes += packet.len();
                sink.put(port, packet.bytes());
            }
            moved.received += count;
        }
        self.first = (self.first + 1) % ports.max(1);
        moved.stored = moved.received;
        moved
    }

    fn fill_from_backlog(&mut self, batch: &mut Batch) {
        while let Some(packet) = batch.free().first_mut() {
            match self.next_of_backlog(packet) {
                Taken::Frame => batch.filled(1),
                Taken::Nothing | Taken::End => break,
            }
        }
    }

    /// Takes the next packet from the sources, then from the store as far as allowed.
    fn next_of_backlog(&mut self, packet: &mut Packet) -> Taken {
        while let Some(source) = self.sources.front_mut() {
            match source.take(packet) {
                Taken::End => drop(self.sources.pop_front()),
                Taken::Nothing if self.mode == Mode::Hold => break,
                taken => return taken,
            }
        }
        match &mut self.store {
            Some(store) if self.quota > 0 => {
                let taken = store.take(packet);
                if taken == Taken::Frame {
                    self.quota -= 1;
                    self.releases.released();
                }
                taken
            }
            _ => Taken::Nothing,
        }
    }

    fn relay(&mut self, batch: &mut Batch) -> Moved {
        let Some(mut sink) = self.sink.take() else {
            return Moved::default();
        };
        let mut backlog = 0;
        self.quota = usize::MAX;
        if self.has_backlog() {
            let packet = &mut batch.free()[0];
            while sink.room() > 0 && self.next_of_backlog(packet) == Taken::Frame {
                sink.put(packet.port(), packet.bytes());
                backlog += 1;
            }
        }
        let mut moved = Moved::default();
        if !self.has_backlog() {
            self.store = None;
            moved = self.receive_into(sink.as_mut(), batch);
        }
        moved.stored += backlog;
        self.sink = Some(sink);
        moved
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::VecDeque,
        sync::{Arc, Mutex},
    };

    use nf_ports::memory::{self, Wire};
    use proptest::prelude::*;

    use super::*;
    use crate::gate::MemoryStore;

    type Frames = VecDeque<(usize, Vec<u8>)>;

    /// A sink with room for a limited number of frames, whose content the test reads back.
    #[derive(Clone, Default)]
    struct Relay(Arc<Mutex<Frames>>, usize);

    impl FrameSink for Relay {
        fn room(&self) -> usize {
            self.1.saturating_sub(self.0.lock().unwrap().len())
        }

        fn put(&mut self, port: usize, frame: &[u8]) {
            self.0.lock().unwrap().push_back((port, frame.to_vec()));
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
}
