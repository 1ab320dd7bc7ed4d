//! Tests of usage against a list of periods for each slot.

use std::cmp::Reverse;

use proptest::prelude::*;

use super::{Usage, FRESH};
use crate::table::Slot;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn usage_equals_a_list_of_periods(
        periods in proptest::collection::vec((any::<u64>(), any::<u64>()), 1..12),
        begun in proptest::collection::vec((0..12_usize, 0..128_u32, any::<u8>()), 0..12),
        start in 0..3_u32,
    ) {
        let first = 64 * start;
        let mut usage = Usage::new(first..first + 128);
        // The newest period first.
        let mut lists = vec![[false; 8]; 128];
        for (number, (low, high)) in periods.into_iter().enumerate() {
            for (_, slot, used) in begun.iter().filter(|begun| begun.0 == number) {
                usage.set(Slot(first + slot), *used);
                lists[*slot as usize] = std::array::from_fn(|index| used >> (7 - index) & 1 == 1);
            }
            for (group, marks) in [low, high].into_iter().enumerate() {
                usage.end_period(start + group as u32, marks);
                for (slot, list) in lists[64 * group..64 * (group + 1)].iter_mut().enumerate() {
                    list.rotate_right(1);
                    list[0] = marks >> slot & 1 == 1;
                }
            }
            for (slot, list) in lists.iter().enumerate() {
                let of = usage.of(Slot(first + slot as u32));
                let bits: Vec<bool> = (0..8).map(|index| of >> (7 - index) & 1 == 1).collect();
                prop_assert_eq!(&bits[..], &list[..]);
            }
        }
        // Active ones stay before idle ones, then those of more periods, then those whose periods are newer.
        let count = |list: &[bool; 8]| list.iter().filter(|hit| **hit).count();
        let rank = |list: &[bool; 8]| (list[0], count(list), *list);
        let slots: Vec<Slot> = (0..8).map(|index| Slot(first + index * 13)).collect();
        let of = |slot: &Slot| rank(&lists[(slot.0 - first) as usize]);
        let least = slots.iter().min_by_key(|slot| (of(slot), slot.0)).unwrap();
        for newcomer in [0, FRESH, 0b0111_1111, 0xff] {
            let bits = std::array::from_fn(|index| newcomer >> (7 - index) & 1 == 1);
            let expected = (Reverse(of(least)) > Reverse(rank(&bits))).then_some(*least);
            prop_assert_eq!(usage.victim(&slots, newcomer), expected);
        }
    }
}

#[test]
fn an_idle_flow_goes_before_a_little_used_one() {
    let mut usage = Usage::new(0..64);
    usage.set(Slot(0), 0b0111_1111);
    usage.set(Slot(1), 0b1000_0000);
    assert_eq!(
        usage.victim(&[Slot(1), Slot(0)], 0b1100_0000),
        Some(Slot(0))
    );
    assert_eq!(usage.victim(&[Slot(1)], 0b1100_0000), Some(Slot(1)));
    assert_eq!(usage.victim(&[Slot(1)], FRESH), None);
}
