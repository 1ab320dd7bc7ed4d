//! Tests of new engines over old entries, of lost completions, and of damaged queues.

use super::*;

#[test]
fn a_new_engine_takes_over_the_entries_and_drops_second_ones() {
    for hashing in [Hashing::Chained, Hashing::Skewed] {
        let shape = shape(64, 2, hashing);
        let mut system = System::new(shape, 1, 1, 8);
        let held: Vec<u64> = (0..90)
            .filter(|&number| system.run(0, insert(number, 4)) == Outcome::Inserted)
            .collect();
        // The old engine was killed while it moved an entry, and something wrote where no entry of that flow may be.
        let moved = shape.places(&flow(held[0]));
        let other = moved
            .slots()
            .iter()
            .copied()
            .find(|&slot| system.table.entry(slot).is_none());
        let wrong = (0..128).map(Slot).find(|&slot| {
            system.table.entry(slot).is_none()
                && !moved.slots().contains(&slot)
                && Some(slot) != other
        });
        [other, wrong]
            .into_iter()
            .flatten()
            .for_each(|slot| system.table.write(slot, &flow(held[0]), decision(9)));
        system.engines = vec![Engine::new(system.table.clone(), shape, 0, 1).unwrap()];
        system.add_smux(8);
        let entries: HashSet<Ipv4Flow> = (0..128)
            .filter_map(|slot| Some(system.table.entry(Slot(slot))?.0))
            .collect();
        let count = (0..128)
            .filter(|&slot| system.table.entry(Slot(slot)).is_some())
            .count();
        assert_eq!((count, entries.len()), (held.len(), held.len()));
        for &number in &held {
            assert_eq!(
                system.run(1, delete(number)),
                Outcome::Deleted(1),
                "{number}"
            );
        }
        assert!((0..128).all(|slot| system.table.entry(Slot(slot)).is_none()));
    }
}

#[test]
fn lost_completions_are_found() {
    let mut system = System::<Ipv4Flow>::new(shape(64, 2, Hashing::Chained), 1, 1, 4);
    for tag in 0..4 {
        system.smuxes[0].submit(insert(tag.into(), 1), tag).unwrap();
    }
    while system.engines[0].poll() > 0 {}
    // The words of the pair: 16 and 4 records of 4 words, then 16 and the completions. The second one is lost: the fourth has its place twice.
    let words = system.memories[0][0].words();
    let completions = 16 + 4 * 4 + 16;
    let copy = |from: usize, to: usize| {
        for word in 0..4 {
            let value =
                words[completions + from * 4 + word].load(std::sync::atomic::Ordering::Relaxed);
            words[completions + to * 4 + word].store(value, std::sync::atomic::Ordering::Relaxed);
        }
    };
    copy(2, 1);
    copy(3, 2);
    let completed = system.settle(0);
    let told: Vec<_> = completed
        .iter()
        .map(|completed| (completed.tag, completed.outcome))
        .collect();
    let expected = [
        Outcome::Inserted,
        Outcome::Lost,
        Outcome::Inserted,
        Outcome::Inserted,
    ];
    assert_eq!(
        told,
        [0, 1, 2, 3].map(|tag| (Some(tag), expected[tag as usize]))
    );
    // The copy that was left over belongs to nothing.
    assert_eq!(system.smuxes[0].strays(), 1);
    // The engine never answers again.
    system.smuxes[0].submit(insert(9, 1), 9).unwrap();
    let mut abandoned = Vec::new();
    system.smuxes[0].abandon(0, &mut |tag| abandoned.push(tag));
    assert_eq!((abandoned, system.smuxes[0].in_progress(0)), (vec![9], 0));
    // Its late completion is a stray, too, and the next operation gets its own.
    assert_eq!(system.run(0, insert(10, 1)), Outcome::Inserted);
    assert_eq!(system.smuxes[0].strays(), 2);
}

#[test]
fn damaged_queues_are_left_alone() {
    let mut system = System::<Ipv4Flow>::new(shape(64, 2, Hashing::Chained), 1, 2, 4);
    let store = |index: usize, value| {
        let word = &system.memories[0][0].words()[index];
        word.store(value, std::sync::atomic::Ordering::Release);
    };
    // A record of no known kind, and a flow that waits behind it.
    store(0, 1);
    store(16, 77);
    let mut damaged = Vec::new();
    system.engines[0].poll_with(&mut |number, _| damaged.push(number));
    assert_eq!((system.engines[0].counts().refused, damaged.len()), (1, 0));
    // More records than fit.
    store(0, 100);
    system.smuxes[1].submit(insert(1, 1), 5).unwrap();
    system.engines[0].poll_with(&mut |number, _| damaged.push(number));
    assert_eq!(damaged, [0]);
    let completed = system.settle(1);
    assert_eq!(completed.len(), 1);
    system.engines[0].detach(0);
    damaged.clear();
    system.engines[0].poll_with(&mut |number, _| damaged.push(number));
    assert!(damaged.is_empty());
}
