//! Tests of engines with their queues.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
};

use nf_arena::{Heap, Memory};
use nf_tables::{Ipv4Flow, Ipv6Flow, Key};
use proptest::prelude::*;

use super::{room::EXAMINED, Completed, Engine, Offloader, Operation, Outcome, QueuePair, Unable};
use crate::table::{ConnectionTable, Decision, Hashing, Shape, Slot, TableError};

mod eviction;
mod recovery;

type Table<K> = Arc<ConnectionTable<K, Heap>>;
type Smux<K> = Offloader<K, Arc<Heap>, u32>;

/// A table with its engines, and load balancers with queues to each.
struct System<K: Key> {
    table: Table<K>,
    engines: Vec<Engine<K, Arc<Heap>, Table<K>>>,
    smuxes: Vec<Smux<K>>,
    /// The queues of each load balancer, by engine.
    memories: Vec<Vec<Arc<Heap>>>,
}

impl<K: Key> System<K> {
    fn new(shape: Shape, engines: u32, smuxes: usize, credits: usize) -> Self {
        let memory = Heap::new(ConnectionTable::<K, Heap>::words(shape)).unwrap();
        let table = Arc::new(ConnectionTable::open(memory, shape).unwrap());
        let engine = |number| Engine::new(table.clone(), shape, number, engines).unwrap();
        let mut system = Self {
            engines: (0..engines).map(engine).collect(),
            table,
            smuxes: Vec::new(),
            memories: Vec::new(),
        };
        (0..smuxes).for_each(|_| system.add_smux(credits));
        system
    }

    fn add_smux(&mut self, credits: usize) {
        let (mut ends, mut memories) = (Vec::new(), Vec::new());
        for engine in &mut self.engines {
            let memory = Arc::new(Heap::new(QueuePair::words::<K>(credits)).unwrap());
            let end = QueuePair::engine_end(memory.clone(), credits).unwrap();
            assert!(engine.attach(end).is_ok());
            ends.push(QueuePair::smux_end(memory.clone(), credits).unwrap());
            memories.push(memory);
        }
        self.memories.push(memories);
        self.smuxes.push(Offloader::new(self.table.shape(), ends));
    }

    /// Lets the engines work until they have nothing to do, and returns the completions of a load balancer.
    fn settle(&mut self, smux: usize) -> Vec<Completed<K, u32>> {
        for engine in &mut self.engines {
            while engine.poll() > 0 {}
        }
        let mut all = Vec::new();
        self.smuxes[smux]
            .poll(&mut |completed| all.push(completed))
            .unwrap();
        all
    }

    /// Performs one operation.
    fn run(&mut self, smux: usize, operation: Operation<K>) -> Outcome<K> {
        assert_eq!(self.smuxes[smux].submit(operation, 9), Ok(()));
        let completed = self.settle(smux);
        let of_it = completed
            .iter()
            .filter(|completed| completed.tag == Some(9));
        let of_it: Vec<_> = of_it.collect();
        assert_eq!(of_it.len(), 1);
        of_it[0].outcome
    }
}

fn shape(depth: u32, width: u32, hashing: Hashing) -> Shape {
    Shape::new(depth, width, hashing).unwrap()
}

fn flow(number: u64) -> Ipv4Flow {
    Ipv4Flow::from_words(
        &[number.wrapping_mul(0x9e37_79b9_7f4a_7c15)],
        number & 0xffff,
    )
}

fn decision(rs_index: u32) -> Decision {
    Decision {
        rs_index,
        rs_port: 80,
    }
}

fn insert(number: u64, rs_index: u32) -> Operation<Ipv4Flow> {
    Operation::insert(flow(number), decision(rs_index))
}

fn delete(number: u64) -> Operation<Ipv4Flow> {
    Operation::Delete { key: flow(number) }
}

#[test]
fn impossible_engines_are_refused() {
    let system = System::<Ipv4Flow>::new(shape(128, 1, Hashing::Chained), 2, 0, 1);
    for (engine, engines) in [(2, 2), (0, 3), (0, 0)] {
        let refused = Engine::<_, Arc<Heap>, _>::new(
            system.table.clone(),
            system.table.shape(),
            engine,
            engines,
        );
        let expected = TableError::Engines {
            engine,
            engines,
            most: 2,
        };
        assert!(matches!(refused.err(), Some(Unable::Table(error)) if error == expected));
    }
}

#[test]
fn a_late_deletion_spares_the_entry_of_the_flows_next_load_balancer() {
    let mut system = System::new(shape(128, 2, Hashing::Chained), 1, 2, 4);
    assert_eq!(system.run(0, insert(1, 7)), Outcome::Inserted);
    assert_eq!(system.run(1, insert(1, 8)), Outcome::Inserted);
    assert_eq!(system.run(0, delete(1)), Outcome::NotFound);
    let found = system.table.lookup(&flow(1)).map(|found| found.decision);
    assert_eq!(found, Some(decision(8)));
    assert_eq!(system.run(1, delete(1)), Outcome::Deleted(1));
    // The owner is gone: every load balancer may delete its entries.
    assert_eq!(system.run(1, insert(2, 8)), Outcome::Inserted);
    system.engines[0].detach(1);
    assert_eq!(system.run(0, delete(2)), Outcome::Deleted(1));
}

#[test]
fn a_table_of_one_entry_takes_one_flow() {
    for hashing in [Hashing::Chained, Hashing::Skewed] {
        let mut system = System::new(shape(1, 1, hashing), 1, 1, 1);
        assert_eq!(system.run(0, insert(1, 5)), Outcome::Inserted);
        assert_eq!(system.run(0, insert(2, 6)), Outcome::Full);
        assert_eq!(system.run(0, insert(1, 7)), Outcome::Inserted);
        assert_eq!(
            system.table.lookup(&flow(1)).map(|found| found.decision),
            Some(decision(7))
        );
        assert_eq!(system.run(0, delete(2)), Outcome::NotFound);
        assert_eq!(system.run(0, delete(1)), Outcome::Deleted(1));
        assert_eq!(system.run(0, insert(2, 6)), Outcome::Inserted);
    }
}

/// The required content of the paper's table: the first `width` flows of each chain.
struct Chains {
    chains: HashMap<u32, HashMap<Ipv6Flow, Decision>>,
    shape: Shape,
    /// The indexes of flows 0 to 199.
    indexes: HashMap<Ipv6Flow, u32>,
}

impl Chains {
    fn new(shape: Shape) -> Self {
        let index = |number| (v6(number), Self::crc(&v6(number)) % shape.depth());
        Self {
            chains: HashMap::new(),
            shape,
            indexes: (0..200).map(index).collect(),
        }
    }

    fn index(&self, key: &Ipv6Flow) -> u32 {
        self.indexes[key]
    }

    /// CRC32C, bit by bit.
    fn crc(key: &Ipv6Flow) -> u32 {
        let words = key.lanes().into_iter().chain([key.tail()]);
        let mut crc = u32::MAX;
        for byte in words.flat_map(u64::to_le_bytes) {
            crc ^= u32::from(byte);
            for _ in 0..8 {
                crc = crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
            }
        }
        !crc
    }

    fn apply(&mut self, operation: &Operation<Ipv6Flow>) -> Outcome<Ipv6Flow> {
        match operation {
            Operation::Insert { key, decision, .. } => {
                let chain = self.chains.entry(self.index(key)).or_default();
                if chain.len() == self.shape.width() as usize && !chain.contains_key(key) {
                    return Outcome::Full;
                }
                chain.insert(*key, *decision);
                Outcome::Inserted
            }
            Operation::Delete { key } => {
                let index = self.index(key);
                let removed = self
                    .chains
                    .get_mut(&index)
                    .and_then(|chain| chain.remove(key));
                removed.map_or(Outcome::NotFound, |_| Outcome::Deleted(1))
            }
            Operation::DeleteServer { .. } => unreachable!(),
        }
    }

    fn delete_server(&mut self, rs_index: u32) -> u32 {
        let mut deleted = 0;
        for chain in self.chains.values_mut() {
            let before = chain.len();
            chain.retain(|_, decision| decision.rs_index != rs_index);
            deleted += (before - chain.len()) as u32;
        }
        deleted
    }
}

/// Tells whether each of these flows can have a slot of its own. Flows of two places are edges between slots, and one can be put where a
/// component has as many slots as edges (Pagh and Rodler, "Cuckoo Hashing", 2004).
fn have_room(shape: Shape, numbers: impl Iterator<Item = u64>) -> bool {
    let ends = |number| {
        let places = shape.places(&flow(number));
        [0, 1].map(|column| places.slots()[column].0 as usize)
    };
    let edges: Vec<_> = numbers.map(ends).collect();
    let mut components: Vec<usize> = (0..shape.slots()).collect();
    for [first, second] in &edges {
        let (old, new) = (components[*first], components[*second]);
        let joined = components.iter_mut().filter(|each| **each == old);
        joined.for_each(|each| *each = new);
    }
    let mut spare = vec![0; shape.slots()];
    components.iter().for_each(|&each| spare[each] += 1);
    edges
        .iter()
        .for_each(|[first, _]| spare[components[*first]] -= 1);
    spare.iter().all(|&slots| slots >= 0)
}

fn v6(number: u64) -> Ipv6Flow {
    Ipv6Flow::from_words(&[number, !number, number << 7, 1], number % 1000)
}

fn some_operation() -> impl Strategy<Value = Operation<Ipv6Flow>> {
    let key = (0..200_u64).prop_map(v6);
    prop_oneof![
        8 => (key.clone(), 0..6_u32).prop_map(|(key, rs_index)| Operation::insert(key, decision(rs_index))),
        5 => key.prop_map(|key| Operation::Delete { key }),
        1 => (0..6_u32).prop_map(|rs_index| Operation::DeleteServer { rs_index }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_table_of_chains_equals_the_model(
        operations in proptest::collection::vec(some_operation(), 1..300),
        (depth, engines) in prop_oneof![Just((1_u32, 1_u32)), Just((32, 1)), Just((128, 2))],
        width in 1..4_u32,
    ) {
        let shape = shape(depth, width, Hashing::Chained);
        let mut system = System::new(shape, engines, 1, 4);
        let mut model = Chains::new(shape);
        for operation in operations {
            if let Operation::DeleteServer { rs_index } = operation {
                let mut deleted = 0;
                for engine in 0..engines {
                    system.smuxes[0].submit_to(engine, operation, 0).unwrap();
                }
                for completed in system.settle(0) {
                    let Outcome::Deleted(count) = completed.outcome else { panic!("{completed:?}") };
                    deleted += count;
                }
                prop_assert_eq!(deleted, model.delete_server(rs_index));
            } else {
                prop_assert_eq!(system.run(0, operation), model.apply(&operation));
            }
            for number in 0..200 {
                let chain = model.chains.get(&model.index(&v6(number)));
                let expected = chain.and_then(|chain| chain.get(&v6(number)));
                prop_assert_eq!(system.table.lookup(&v6(number)).map(|found| found.decision), expected.copied());
            }
        }
        let counts: Vec<_> = system.engines.iter().map(Engine::counts).collect();
        let moved: u64 = counts.iter().map(|counts| counts.moved + counts.evicted + counts.refused).sum();
        prop_assert_eq!(moved, 0);
    }

    /// Several load balancers work at the same time, with few credits, and engines that come now and then.
    #[test]
    fn each_operation_has_one_completion(
        steps in proptest::collection::vec((0..3_usize, 0..4_u8, 0..60_u64), 1..600),
        hashing in prop_oneof![Just(Hashing::Chained), Just(Hashing::Skewed)],
    ) {
        let mut system = System::new(shape(128, 2, hashing), 2, 3, 4);
        let mut waiting: [HashSet<u32>; 3] = Default::default();
        let mut order: [[VecDeque<u32>; 2]; 3] = Default::default();
        for (tag, (smux, step, number)) in steps.into_iter().enumerate() {
            let tag = tag as u32;
            let operation = match step {
                0 => insert(number, 1),
                1 => delete(number),
                2 => Operation::DeleteServer { rs_index: number as u32 % 3 },
                _ => {
                    // One round, not until all is done.
                    system.engines[number as usize % 2].poll();
                    system.smuxes[smux].poll(&mut |completed| {
                        let tag = completed.tag.unwrap();
                        assert!(waiting[smux].remove(&tag), "{completed:?} twice");
                        assert_eq!(order[smux][completed.engine as usize].pop_front(), Some(tag));
                        assert!(!matches!(completed.outcome, Outcome::Lost | Outcome::Refused), "{completed:?}");
                    }).unwrap();
                    continue;
                }
            };
            let engine = match operation {
                Operation::DeleteServer { .. } => number as u32 % 2,
                _ => system.table.shape().engine_of(&flow(number), 2),
            };
            let before = system.smuxes[smux].in_progress(engine);
            match system.smuxes[smux].submit_to(engine, operation, tag) {
                Ok(()) => {
                    waiting[smux].insert(tag);
                    order[smux][engine as usize].push_back(tag);
                }
                Err(_) => prop_assert_eq!(before, 4),
            }
        }
        for (smux, waiting) in waiting.iter_mut().enumerate() {
            for completed in system.settle(smux) {
                assert!(waiting.remove(&completed.tag.unwrap()));
            }
            prop_assert!(waiting.is_empty());
            prop_assert_eq!(system.smuxes[smux].strays(), 0);
        }
    }

    /// Entries that move are never lost, and each lookup gives the newest decision.
    #[test]
    fn moves_keep_every_entry(numbers in proptest::collection::vec((0..200_u64, 0..9_u32), 1..400)) {
        let mut system = System::new(shape(64, 2, Hashing::Skewed), 1, 1, 1);
        let mut model = HashMap::new();
        for (number, rs_index) in numbers {
            if rs_index == 0 {
                let expected = model.remove(&number).map_or(Outcome::NotFound, |_: u32| Outcome::Deleted(1));
                prop_assert_eq!(system.run(0, delete(number)), expected);
            } else if system.run(0, insert(number, rs_index)) == Outcome::Inserted {
                model.insert(number, rs_index);
            } else {
                prop_assert!(!model.contains_key(&number));
                let numbers = model.keys().copied().chain([number]);
                prop_assert!(!have_room(system.table.shape(), numbers) || model.len() >= EXAMINED, "full at {}", model.len());
            }
            for number in 0..200 {
                let found = system.table.lookup(&flow(number)).map(|found| found.decision);
                prop_assert_eq!(found, model.get(&number).copied().map(decision));
            }
        }
    }
}

/// All their places are the same four slots.
#[test]
fn a_fifth_flow_of_four_slots_is_refused() {
    let mut system = System::new(shape(64, 2, Hashing::Skewed), 1, 1, 1);
    let outcomes = [113, 86, 120, 110, 124].map(|number| system.run(0, insert(number, 1)));
    assert_eq!(outcomes[..4], [Outcome::Inserted; 4]);
    assert_eq!(outcomes[4], Outcome::Full);
}

#[test]
fn a_skewed_table_takes_flows_that_chains_refuse() {
    let inserted = |hashing| {
        let mut system = System::new(shape(1 << 12, 2, hashing), 1, 1, 64);
        // The load of ten million flows in 16M x 2.
        let flows = (1 << 12) * 2 * 5 / 16;
        let done =
            (0..flows).filter(|&number| system.run(0, insert(number, 1)) == Outcome::Inserted);
        (done.count() as u64, flows)
    };
    let ((chained, flows), (skewed, _)) = (inserted(Hashing::Chained), inserted(Hashing::Skewed));
    assert_eq!(skewed, flows);
    let share = 1.0 - chained as f64 / flows as f64;
    assert!((0.03..0.07).contains(&share), "{share}");
}

/// One writer, readers, and entries that come, move and go: every lookup gives the flow's own decision or none.
#[test]
fn readers_beside_an_engine_never_see_a_torn_entry() {
    let rounds = std::env::var("TIARA_ROUNDS").map_or(20_000, |rounds| rounds.parse().unwrap());
    let mut system = System::<Ipv6Flow>::new(shape(64, 2, Hashing::Skewed), 1, 1, 64);
    let table = system.table.clone();
    let done = std::sync::atomic::AtomicBool::new(false);
    let own = |number: u64| Decision {
        rs_index: number as u32 * 7,
        rs_port: number as u16,
    };
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut hits = 0_u64;
                    while !done.load(std::sync::atomic::Ordering::Relaxed) || hits == 0 {
                        for number in 0..150 {
                            if let Some(found) = table.lookup(&v6(number)) {
                                assert_eq!(found.decision, own(number));
                                hits += 1;
                            }
                        }
                    }
                })
            })
            .collect();
        for round in 0..rounds {
            let number = round * 31 % 150;
            let outcome = system.run(0, Operation::insert(v6(number), own(number)));
            assert!(matches!(outcome, Outcome::Inserted | Outcome::Full));
            system.run(
                0,
                Operation::Delete {
                    key: v6(round * 17 % 150),
                },
            );
        }
        system.run(0, Operation::insert(v6(0), own(0)));
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        readers
            .into_iter()
            .for_each(|reader| reader.join().unwrap());
    });
    assert!(system.engines[0].counts().moved > 0);
}
