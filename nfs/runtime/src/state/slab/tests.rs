use std::{
    collections::{HashMap, HashSet},
    os::fd::AsFd,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use nf_arena::{Arena, ArenaBuilder};
use proptest::prelude::*;

use super::*;
use crate::state::{crash::Recorder, StateBuilder};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
struct Record {
    number: u64,
    bytes: [u8; 77],
    rest: [u8; 3],
}

fn record(number: u64) -> Record {
    Record {
        number,
        bytes: [number as u8; 77],
        rest: [7; 3],
    }
}

fn slab<V: Pod>(capacity: usize) -> (Slab<V>, Arena) {
    let mut builder = StateBuilder::new(ArenaBuilder::fresh("test", 1).unwrap());
    let slab = builder.slab("records", capacity).unwrap();
    (slab, builder.finish().unwrap().0)
}

fn adopt<V: Pod>(arena: &Arena, capacity: usize) -> (Slab<V>, Arena) {
    let file = arena.as_fd().try_clone_to_owned().unwrap();
    let mut builder = StateBuilder::new(ArenaBuilder::adopt(file, "test", 1).unwrap());
    let before = arena.digest();
    let slab = builder.slab("records", capacity).unwrap();
    let adopted = builder.finish().unwrap().0;
    assert_eq!(arena.digest(), before, "opening changed the state");
    (slab, adopted)
}

fn content<V: Pod, M: Memory>(slab: &Slab<V, M>) -> HashMap<SlabId, V> {
    let mut content = HashMap::new();
    slab.for_each(|id, value| assert!(content.insert(id, *value).is_none()));
    content
}

/// Earlier and later instances must have the same layout.
#[test]
fn sizes_match_the_layout() {
    // 16 lists and the locks, each with a cache line; then records of whole lines with a header of 2 words.
    assert_eq!(Slab::<u64>::words(1), 16 * 8 + 8 + 8);
    assert_eq!(Slab::<[u64; 6]>::words(5), 16 * 8 + 8 * 8 + 5 * 8);
    assert_eq!(
        Slab::<[u64; 7]>::words(9_999),
        16 * 8 + 1024 * 8 + 9_999 * 16
    );
    assert!(Slab::<u64>::words(usize::MAX) > 1 << 60);
    assert_eq!(Slab::<[u8; 13]>::layout(7), "slab v1, 7 of 13 bytes");
    let mut builder = StateBuilder::new(ArenaBuilder::fresh("test", 1).unwrap());
    let refusal = builder.slab::<u64>("records", (1 << 24) + 1).err().unwrap();
    assert_eq!(
        refusal.detail,
        "records: is 16777217; expected at most 16777216"
    );
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u64),
    Update(usize, u64),
    Look(usize),
    Remove(usize),
    RemoveIf(usize, bool),
    Adopt,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => any::<u64>().prop_map(Step::Insert),
        3 => (any::<usize>(), any::<u64>()).prop_map(|(which, value)| Step::Update(which, value)),
        2 => any::<usize>().prop_map(Step::Look),
        3 => any::<usize>().prop_map(Step::Remove),
        2 => (any::<usize>(), any::<bool>()).prop_map(|(which, is)| Step::RemoveIf(which, is)),
        1 => Just(Step::Adopt),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The numbers of all records that ever were are kept, and used: those of removed ones must reach none.
    #[test]
    fn a_slab_is_a_map_with_fresh_keys(
        capacity in 1_usize..60,
        steps in prop::collection::vec(step(), 0..300),
    ) {
        let (mut slab, mut arena) = slab::<Record>(capacity);
        let mut model: HashMap<SlabId, Record> = HashMap::new();
        let mut known = vec![SlabId::default()];
        for step in steps {
            match step {
                Step::Insert(number) => {
                    let id = slab.insert(record(number));
                    prop_assert_eq!(id.is_some(), model.len() < capacity);
                    if let Some(id) = id {
                        prop_assert!(!known.contains(&id) && !id.is_none());
                        prop_assert!((id.slot() as usize) < capacity);
                        known.push(id);
                        model.insert(id, record(number));
                    }
                }
                Step::Update(which, number) => {
                    let id = known[which % known.len()];
                    let change = |record: &mut Record| {
                        record.rest[1] = number as u8;
                        std::mem::replace(&mut record.number, number)
                    };
                    prop_assert_eq!(slab.update(id, change), model.get_mut(&id).map(change));
                }
                Step::Look(which) => {
                    let id = known[which % known.len()];
                    prop_assert_eq!(slab.look(id), model.get(&id).copied());
                    let current = model.keys().find(|other| other.slot() == id.slot());
                    prop_assert_eq!(slab.id(id.slot()), current.copied());
                }
                Step::Remove(which) => {
                    let id = known[which % known.len()];
                    prop_assert_eq!(slab.remove(id), model.remove(&id));
                }
                Step::RemoveIf(which, is) => {
                    let id = known[which % known.len()];
                    let removed = slab.remove_if(id, |_| is);
                    prop_assert_eq!(removed, if is { model.remove(&id) } else { None });
                }
                Step::Adopt => (slab, arena) = adopt(&arena, capacity),
            }
            prop_assert_eq!(slab.len(), model.len());
            prop_assert_eq!(slab.is_empty(), model.is_empty());
            prop_assert_eq!(&content(&slab), &model);
        }
    }
}

#[test]
fn a_number_beyond_the_slab_reaches_nothing() {
    let (large, _arena) = slab::<u64>(1000);
    let (small, _arena) = slab::<u64>(3);
    (0..3).for_each(|number| assert!(small.insert(number).is_some()));
    let ids: Vec<_> = (0..1000).map(|n| large.insert(n).unwrap()).collect();
    let beyond = ids.iter().filter(|id| id.slot() >= 3);
    assert!(beyond.clone().count() == 997);
    for id in beyond {
        assert_eq!(small.look(*id), None);
        assert_eq!(small.update(*id, |_| ()), None);
        assert_eq!(small.remove(*id), None);
        assert_eq!(small.id(id.slot()), None);
    }
    assert_eq!(small.len(), 3);
}

#[test]
fn an_update_dirties_only_the_changed_block_and_its_lock() {
    let (slab, arena) = slab::<[u64; 120]>(4);
    let id = slab.insert([3; 120]).unwrap();
    let region = arena.region("records").unwrap();
    let mut block = Vec::new();
    let mut take = || {
        (0..region.blocks())
            .filter(|index| region.take_block(*index, &mut block))
            .collect::<Vec<_>>()
    };
    take();
    let lock = slots::WORDS / 64;
    assert_eq!(slab.look(id).unwrap()[5], 3);
    assert_eq!(slab.update(id, |value| value[5] = 3), Some(()));
    assert_eq!(take(), [lock]);
    slab.update(id, |value| value[119] = 4).unwrap();
    let first = slab.slots.header(id.slot() as usize) + slots::HEADER;
    assert_eq!(take(), [lock, (first + 119) / 64]);
}

#[test]
#[cfg(debug_assertions)]
#[should_panic = "a closure of a slab called the slab"]
fn a_closure_that_calls_its_slab_is_found() {
    let (slab, _arena) = slab::<u64>(100);
    let [one, other] = [1, 2].map(|number| slab.insert(number).unwrap());
    slab.update(one, |_| slab.look(other));
}

/// Threads insert, change and remove records of their own, and look at those of others, in a slab that is often full.
#[test]
fn workers_share_a_slab() {
    const CAPACITY: usize = 40;
    let (slab, _arena) = slab::<[u64; 20]>(CAPACITY);
    // The rest is less than one worker wants: the slab becomes full even if the workers run one after the other.
    let held: Vec<SlabId> = (0..30).filter_map(|_| slab.insert([7; 20])).collect();
    let full = AtomicUsize::new(0);
    thread::scope(|scope| {
        for worker in 0..4_u64 {
            let (slab, full) = (&slab, &full);
            scope.spawn(move || {
                let mut mine: Vec<(SlabId, u64)> = Vec::new();
                for turn in 0..20_000_u64 {
                    let mark = worker << 32 | turn;
                    if mine.len() < 3 + turn as usize % 10 {
                        match slab.insert([mark; 20]) {
                            Some(id) => mine.push((id, mark)),
                            None => {
                                full.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    }
                    let length = mine.len();
                    if let Some((id, value)) = mine.get_mut(turn as usize % length.max(1)) {
                        let old = slab.update(*id, |all| std::mem::replace(all, [mark; 20]));
                        assert_eq!(old, Some([*value; 20]));
                        *value = mark;
                    }
                    if turn % 3 == 0 && length > 4 {
                        let (id, value) = mine.swap_remove(turn as usize % length);
                        assert_eq!(slab.remove(id), Some([value; 20]));
                        assert_eq!(slab.remove(id), None);
                    }
                    if let Some(all) = slab.id(turn as u32 % 40).and_then(|id| slab.look(id)) {
                        assert!(all.iter().all(|one| *one == all[0]), "torn: {all:?}");
                    }
                }
                for (id, value) in mine {
                    assert_eq!(slab.remove(id), Some([value; 20]));
                }
            });
        }
    });
    assert!(full.into_inner() > 0, "the slab was never full");
    assert_eq!(slab.len(), held.len());
    for id in held {
        assert_eq!(slab.remove(id), Some([7; 20]));
    }
    let all: HashSet<_> = (0..CAPACITY).map(|_| slab.insert([0; 20])).collect();
    assert!(all.len() == CAPACITY && !all.contains(&None));
    assert_eq!(slab.insert([0; 20]), None);
}

const CUT_CAPACITY: usize = 40;

/// Repairs each state that a kill within `change` can leave, and checks it. `changing`: the record that is changed.
fn cut_everywhere(
    slab: &Slab<Record, Recorder>,
    changing: Option<SlabId>,
    change: impl FnOnce(),
) -> usize {
    let before = content(slab);
    let cuts = slab.memory.cuts(change);
    let after = content(slab);
    for (writes, cut) in cuts.iter().enumerate() {
        let memory = Recorder::of(cut);
        let heir: Slab<Record, _> = Slab::open(memory.clone(), CUT_CAPACITY);
        assert_eq!(memory.content(), *cut, "opening changed the state");
        heir.repair();
        let found = content(&heir);
        assert_eq!(heir.len(), found.len(), "after {writes} writes");
        for id in before.keys().chain(after.keys()).chain(found.keys()) {
            let [old, new, now] = [&before, &after, &found].map(|content| content.get(id));
            let is_changing = old != new || Some(*id) == changing;
            assert!(
                now == old || now == new || is_changing && now.is_none(),
                "after {writes} writes: {id:?} is {now:?}"
            );
        }
        // Every slot without a record is free, and gets a new number.
        for number in found.len()..CUT_CAPACITY {
            let id = heir.insert(record(number as u64)).unwrap();
            assert!(!before.contains_key(&id) || found.contains_key(&id));
        }
        assert_eq!(heir.insert(record(0)), None);
        assert_eq!(content(&heir).len(), CUT_CAPACITY);
    }
    cuts.len()
}

#[test]
fn a_killed_change_leaves_a_whole_record_or_none() {
    let words = Slab::<Record, Recorder>::words(CUT_CAPACITY);
    let slab = Slab::open(Recorder::new(words), CUT_CAPACITY);
    let ids: Vec<_> = (0..30).map(|n| slab.insert(record(n)).unwrap()).collect();
    // Free slots that had records, besides those that never had.
    ids[..10].iter().for_each(|id| {
        slab.remove(*id).unwrap();
    });
    for turn in 0..25 {
        let writes = cut_everywhere(&slab, None, || {
            slab.insert(record(100 + turn)).unwrap();
        });
        assert!(writes > 4);
        slab.remove(ids[10 + turn as usize % 10]);
    }
    for id in &ids[20..25] {
        let writes = cut_everywhere(&slab, Some(*id), || {
            slab.update(*id, |record| record.bytes = [99; 77]).unwrap();
        });
        assert!(writes > 8, "{writes}");
        cut_everywhere(&slab, None, || {
            slab.remove(*id).unwrap();
        });
        cut_everywhere(&slab, None, || assert_eq!(slab.look(*id), None));
    }
    // A kill while a record is only read costs nothing.
    let lock = slots::WORDS + ids[25].slot() as usize % slab.locks * LINE;
    let guard = Guard::take(&slab.memory, lock, ids[25].slot() as usize);
    let cut = slab.memory.content();
    drop(guard);
    let heir: Slab<Record, _> = Slab::open(Recorder::of(&cut), CUT_CAPACITY);
    heir.repair();
    assert_eq!(heir.look(ids[25]), Some(record(25)));
}
