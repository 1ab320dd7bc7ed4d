//! The table against a map.

use std::collections::HashMap;

use nf_arena::ArenaBuilder;
use proptest::prelude::*;

use super::*;

fn table(capacity: usize) -> Flows {
    let mut state = StateBuilder::new(ArenaBuilder::fresh("test", 1).unwrap());
    let flows = Flows::declare(capacity, &mut state).unwrap();
    state.finish().unwrap();
    flows
}

fn key(number: u8) -> Key {
    Key {
        low_port: number.into(),
        protocol: 6,
        ..Key::default()
    }
}

fn insert(flows: &Flows, number: u8) -> Option<u32> {
    let key = key(number);
    let hot = Hot {
        key,
        stage: stage::DECIDED,
        ..Hot::default()
    };
    flows.insert(flows.hash(&key), &hot, &mut Cold::default())
}

fn find(flows: &Flows, number: u8) -> Option<u32> {
    flows.find(&key(number), flows.hash(&key(number)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn it_behaves_like_a_map_also_after_kills(steps in proptest::collection::vec((0..4_u8, 0..40_u8), 1..200)) {
        let flows = table(24);
        let mut model: HashMap<u8, (u32, u64)> = HashMap::new();
        for (step, number) in steps {
            match step {
                0 | 1 if !model.contains_key(&number) => {
                    let slot = insert(&flows, number);
                    prop_assert_eq!(slot.is_some(), model.len() < 24);
                    if let Some(slot) = slot {
                        model.insert(number, (slot, flows.cold(slot).id));
                    }
                }
                2 => {
                    if let Some((slot, id)) = model.remove(&number) {
                        flows.remove(slot);
                        prop_assert_eq!(flows.slot_of(id), None);
                    }
                }
                3 if number % 8 == 0 => flows.rebuild(),
                _ => {}
            }
            prop_assert_eq!(flows.len(), model.len());
            prop_assert_eq!(flows.unanswered(), model.len());
            for other in 0..40 {
                prop_assert_eq!(find(&flows, other), model.get(&other).map(|(slot, _)| *slot));
            }
            for (slot, id) in model.values() {
                prop_assert_eq!(flows.slot_of(*id), Some(*slot));
            }
        }
    }
}

#[test]
fn a_torn_record_is_removed_after_a_kill() {
    let flows = table(24);
    let (one, two) = (insert(&flows, 1).unwrap(), insert(&flows, 2).unwrap());
    // A kill in the middle of an insertion: the record is there, the index is not.
    let place = (header::WORDS..)
        .find(|place| get(&flows.index, *place) as u32 == one + 1)
        .unwrap();
    put(&flows.index, place, 0);
    // And one whose number was not written.
    flows.put_cold(two, &Cold::default());
    flows.rebuild();
    assert_eq!((find(&flows, 1), find(&flows, 2)), (Some(one), None));
    assert_eq!(flows.len(), 1);
    assert_eq!(insert(&flows, 3), Some(two));
}
