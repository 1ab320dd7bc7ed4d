use std::{
    collections::{BTreeMap, BTreeSet},
    os::fd::AsFd,
    thread,
};

use nf_arena::{Arena, ArenaBuilder};
use proptest::prelude::*;

use super::*;
use crate::state::{crash::Recorder, StateBuilder};

const HOUR: u64 = 3_600_000_000_000;

fn timers(capacity: usize) -> (Timers, Arena) {
    let mut builder = StateBuilder::new(ArenaBuilder::fresh("test", 1).unwrap());
    let timers = builder.timers("timers", capacity).unwrap();
    (timers, builder.finish().unwrap().0)
}

fn adopt(arena: &Arena, capacity: usize) -> (Timers, Arena) {
    let file = arena.as_fd().try_clone_to_owned().unwrap();
    let before = arena.digest();
    let mut builder = StateBuilder::new(ArenaBuilder::adopt(file, "test", 1).unwrap());
    let timers = builder.timers("timers", capacity).unwrap();
    let adopted = builder.finish().unwrap().0;
    assert_eq!(arena.digest(), before, "opening changed the state");
    (timers, adopted)
}

/// Returns the timers whose deadline has passed, in order of their calls.
fn passed<M: Memory>(timers: &Timers<M>, now: u64) -> Vec<u32> {
    let mut calls = Vec::new();
    while timers.expire(now, 100, |id| calls.push(id)) {}
    calls
}

/// Earlier and later instances must have the same layout.
#[test]
fn sizes_match_the_layout() {
    // 16 wheels of 16 words and 448 buckets; 4 words per timer.
    assert_eq!(Timers::<Region>::words(1), 16 * 464 + 4);
    assert_eq!(Timers::<Region>::words(1_000), 16 * 464 + 4_000);
    assert_eq!(Timers::<Region>::layout(7), "timers v1, 7");
}

#[test]
fn calls_come_in_the_tick_of_the_deadline_or_after_it() {
    let (timers, _arena) = timers(100);
    for (id, deadline) in [(0, 0), (1, 1), (2, TICK), (3, TICK + 1), (99, 5 * TICK - 1)] {
        timers.set(id, deadline);
    }
    timers.set(100, 1);
    let deadlines = [0, 1, 2, 3, 99, 98, 100].map(|id| timers.deadline(id));
    let ticks = [1, 1, 1, 2, 5].map(|tick| Some(tick * TICK));
    assert_eq!(deadlines[..5], ticks);
    assert_eq!(deadlines[5..], [None, None]);
    assert!(passed(&timers, TICK - 1).is_empty());
    let mut first = passed(&timers, TICK);
    first.sort_unstable();
    assert_eq!(first, [0, 1, 2]);
    assert!(passed(&timers, 2 * TICK - 1).is_empty());
    assert_eq!(passed(&timers, 2 * TICK), [3]);
    assert_eq!(timers.deadline(3), None);
    assert!(passed(&timers, 5 * TICK - 1).is_empty());
    assert_eq!(passed(&timers, u64::MAX), [99]);
    assert!(passed(&timers, u64::MAX).is_empty());
}

#[test]
fn a_renewed_timer_writes_one_word_and_is_queued_again_only_when_its_bucket_opens() {
    let memory = Recorder::new(Timers::<Recorder>::words(10));
    let timers = Timers::open(memory.clone(), 10);
    let now = 70 * HOUR;
    timers.set(3, now);
    for renewal in 1..1_000 {
        let writes = memory.cuts(|| timers.set(3, now + renewal * TICK)).len();
        assert_eq!(writes, 1);
        let writes = memory
            .cuts(|| timers.set(3, now + renewal * TICK - 5))
            .len();
        assert_eq!(writes, 0);
    }
    // Few timers are looked at, even after days: each at most once per level.
    assert!(!timers.expire(now + 999 * TICK - 1, 8, |_| panic!("early")));
    let mut calls = Vec::new();
    assert!(!timers.expire(now + 999 * TICK, 8, |id| calls.push(id)));
    assert_eq!(calls, [3]);
    // The earlier deadline counts, and its old place is left.
    timers.set(4, now + HOUR);
    timers.set(4, now + 2000 * TICK);
    assert_eq!(passed(&timers, now + 2000 * TICK), [4]);
    assert!(passed(&timers, now + 2 * HOUR).is_empty());
}

#[test]
fn a_limit_counts_timers_that_are_queued_again() {
    let (timers, _arena) = timers(10);
    (0..10).for_each(|id| timers.set(id, HOUR));
    (0..10).for_each(|id| timers.set(id, 2 * HOUR));
    let mut steps = 0;
    while timers.expire(HOUR, 4, |_| panic!("early")) {
        steps += 1;
    }
    assert!(steps >= 10 / 4, "{steps}");
    assert_eq!(passed(&timers, 2 * HOUR).len(), 10);
}

#[test]
fn a_worker_whose_time_is_a_little_older_neither_waits_nor_calls_early() {
    let (timers, _arena) = timers(40);
    timers.set(0, HOUR);
    assert!(passed(&timers, 1_000 * TICK).is_empty());
    timers.set(1, 900 * TICK);
    assert!(!timers.expire(899 * TICK, 4, |_| panic!("early")));
    assert_eq!(passed(&timers, 1_000 * TICK), [1]);
}

#[test]
fn a_call_may_set_its_timer_again_and_cancel_others() {
    let (timers, _arena) = timers(50);
    (0..50).for_each(|id| timers.set(id, 10 * TICK));
    let (mut calls, mut cancelled) = (BTreeSet::new(), BTreeSet::new());
    timers.expire(10 * TICK, 1000, |id| {
        assert_eq!(timers.deadline(id), None);
        assert!(calls.insert(id), "{id} was called twice");
        assert!(!cancelled.contains(&id), "{id} had been cancelled");
        timers.set(id, 20 * TICK);
        // Its call has not begun, or it has been set again.
        timers.cancel((id + 49) % 50);
        cancelled.insert((id + 49) % 50);
    });
    let set: BTreeSet<_> = (0..50)
        .filter(|id| timers.deadline(*id).is_some())
        .collect();
    assert!(calls.len() >= 25 && set.is_subset(&calls));
    let again: BTreeSet<_> = passed(&timers, 20 * TICK).into_iter().collect();
    assert_eq!(again, set);
}

#[derive(Clone, Debug)]
enum Step {
    Set(u32, u64),
    SetBefore(u32, u64),
    Cancel(u32),
    Pass(u64),
    /// Calls, of which those of even numbers set the timer again after so long.
    Expire(usize, u64),
    Adopt,
    Repair,
}

fn span() -> impl Strategy<Value = u64> {
    prop_oneof![
        3 => 0..3 * TICK,
        4 => 0..3_000 * TICK,
        2 => 0..3 * HOUR,
        1 => 0..10_000 * HOUR,
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let id = 0_u32..40;
    prop_oneof![
        8 => (id.clone(), span()).prop_map(|(id, after)| Step::Set(id, after)),
        1 => (id.clone(), span()).prop_map(|(id, before)| Step::SetBefore(id, before)),
        2 => id.prop_map(Step::Cancel),
        4 => span().prop_map(Step::Pass),
        4 => (0_usize..30, span()).prop_map(|(limit, after)| Step::Expire(limit, after)),
        1 => Just(Step::Adopt),
        1 => Just(Step::Repair),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// A wheel per timer or one for all: 16 timers or 40 in one range of them.
    #[test]
    fn timers_are_a_map_of_deadlines(
        capacity in prop_oneof![Just(40_usize), Just(700)],
        start in prop_oneof![Just(0), 0..100_000 * HOUR],
        steps in prop::collection::vec(step(), 0..150),
    ) {
        let (mut timers, mut arena) = timers(capacity);
        let mut model: BTreeMap<u32, u64> = BTreeMap::new();
        let mut now = start;
        let tick_of = |deadline: u64| deadline.div_ceil(TICK).max(1) * TICK;
        for step in steps {
            match step {
                Step::Set(id, after) => {
                    timers.set(id, now + after);
                    model.insert(id, tick_of(now + after));
                }
                Step::SetBefore(id, before) => {
                    timers.set(id, now.saturating_sub(before));
                    model.insert(id, tick_of(now.saturating_sub(before)));
                }
                Step::Cancel(id) => {
                    timers.cancel(id);
                    model.remove(&id);
                }
                Step::Pass(time) => now += time,
                Step::Expire(limit, after) => {
                    let mut calls = 0;
                    let may_be_left = timers.expire(now, limit, |id| {
                        calls += 1;
                        let deadline = model.remove(&id);
                        assert!(deadline.is_some_and(|deadline| deadline <= now), "{id}: {deadline:?}");
                        if id % 2 == 0 {
                            timers.set(id, now + after);
                            model.insert(id, tick_of(now + after));
                        }
                    });
                    prop_assert!(calls <= limit);
                    // Timers set within a call are left for the next one, whether due or not.
                    let is_due = |(id, deadline): &(&u32, &u64)| **deadline <= now && (*id % 2 == 1 || after > TICK);
                    prop_assert!(may_be_left || !model.iter().any(|entry| is_due(&entry)));
                }
                Step::Adopt => (timers, arena) = adopt(&arena, capacity),
                Step::Repair => timers.repair(),
            }
            for id in 0..40 {
                prop_assert_eq!(timers.deadline(id), model.get(&id).copied());
            }
        }
        let due: Vec<_> = model.iter().filter(|(_, deadline)| **deadline <= now).map(|(id, _)| *id).collect();
        let mut calls = passed(&timers, now);
        calls.sort_unstable();
        prop_assert_eq!(calls, due);
        model.retain(|_, deadline| *deadline > now);
        let mut calls = passed(&timers, u64::MAX);
        calls.sort_unstable();
        prop_assert_eq!(calls, model.into_keys().collect::<Vec<_>>());
    }
}

/// Threads set, renew, cancel and expire timers of each other: none that is set is lost.
#[test]
fn workers_share_timers() {
    const CAPACITY: u32 = 64;
    for _ in 0..4 {
        let (timers, _arena) = timers(CAPACITY as usize);
        let now = AtomicU64::new(5 * HOUR);
        let (sets, calls) = (AtomicU64::new(0), AtomicU64::new(0));
        let work = |worker: u64| {
            let mut random = 88_172_645_463_325_252_u64 + worker;
            for _ in 0..10_000 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let id = (random >> 8) as u32 % CAPACITY;
                match random % 16 {
                    0 => timers.cancel(id),
                    1 => {
                        let now = now.fetch_add(TICK / 2, Ordering::Relaxed);
                        timers.expire(now, 20, |id| {
                            assert!(id < CAPACITY);
                            calls.fetch_add(1, Ordering::Relaxed);
                        });
                    }
                    _ => {
                        let after = (random >> 40) % (30 * TICK);
                        timers.set(id, now.load(Ordering::Relaxed) + after);
                        sets.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        };
        thread::scope(|scope| {
            let work = &work;
            (0..4).for_each(|worker| {
                scope.spawn(move || work(worker));
            });
        });
        let (sets, calls) = (sets.into_inner(), calls.into_inner());
        assert!(1_000 < calls && calls <= sets, "{calls} calls, {sets} sets");
        let is_set = |id: &u32| timers.deadline(*id).is_some();
        let set: Vec<_> = (0..CAPACITY).filter(is_set).collect();
        assert!(!set.is_empty());
        let mut left = passed(&timers, u64::MAX);
        left.sort_unstable();
        assert_eq!(left, set, "lost or called twice");
    }
}

const CUT_CAPACITY: usize = 40;

/// Repairs each state that a kill within `change` can leave: a timer has its old deadline or its new one, and is called for.
/// `change` tells of each call how many writes preceded it.
fn cut_everywhere(timers: &Timers<Recorder>, change: impl FnOnce(&mut dyn FnMut(u32))) -> usize {
    let deadlines = |timers: &Timers<Recorder>| -> BTreeMap<u32, u64> {
        let set = (0..CUT_CAPACITY as u32).map(|id| (id, timers.deadline(id)));
        set.filter_map(|(id, deadline)| Some((id, deadline?)))
            .collect()
    };
    let before = deadlines(timers);
    let mut called: BTreeMap<u32, usize> = BTreeMap::new();
    let cuts = timers.memory.cuts(|| {
        change(&mut |id| {
            called.insert(id, timers.memory.writes());
        });
    });
    let after = deadlines(timers);
    for (index, cut) in cuts.iter().enumerate() {
        let memory = Recorder::of(cut);
        let heir = Timers::open(memory.clone(), CUT_CAPACITY);
        assert_eq!(memory.content(), *cut, "opening changed the state");
        heir.repair();
        let found = deadlines(&heir);
        for id in 0..CUT_CAPACITY as u32 {
            let [old, new, now] = [&before, &after, &found].map(|map| map.get(&id));
            let has_been_called = called.get(&id).is_some_and(|writes| *writes <= index + 1);
            assert!(
                now == old || now == new && (has_been_called || !called.contains_key(&id)),
                "after {} writes: {id} has {now:?}, had {old:?}",
                index + 1
            );
        }
        let mut calls = passed(&heir, u64::MAX);
        calls.sort_unstable();
        assert_eq!(calls, found.into_keys().collect::<Vec<_>>());
    }
    cuts.len()
}

#[test]
fn a_killed_call_loses_no_timer() {
    let memory = Recorder::new(Timers::<Recorder>::words(CUT_CAPACITY));
    let timers = Timers::open(memory, CUT_CAPACITY);
    let start = 100 * HOUR;
    let mut now = start;
    for round in 0..6_u64 {
        for id in [0, 1, 2, 20, 21, 39_u32] {
            let after = (u64::from(id) * 37 + round * 91) % 300 * TICK;
            assert!(cut_everywhere(&timers, |_| timers.set(id, now + after)) >= 1);
            cut_everywhere(&timers, |_| timers.set(id, now + after + 5 * TICK));
            cut_everywhere(&timers, |_| timers.set(id, now + after / 2));
        }
        cut_everywhere(&timers, |_| timers.cancel(1));
        now += 97 * TICK;
        let writes = cut_everywhere(&timers, |call| {
            timers.expire(now, 4, |id| {
                call(id);
                if id == 2 {
                    timers.set(id, now + 50 * TICK);
                }
            });
        });
        assert!(writes > 8, "{writes}");
        now += HOUR;
        cut_everywhere(&timers, |call| {
            timers.expire(now, 100, call);
        });
        assert!(passed(&timers, now).is_empty());
    }
}
