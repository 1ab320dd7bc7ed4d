//! Tests of periods, signals and ages.

use std::time::Duration;

use proptest::prelude::*;

use super::{Aging, SignalBudget, Sweep, Unusable};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn each_group_ends_its_period_once_in_each(
        slots in (0..100_u32, 1..6000_u32),
        pauses in proptest::collection::vec(0..8_000_u64, 1..60),
    ) {
        let (first, count) = (slots.0 * 64, slots.1);
        let mut sweep = Sweep::new(first..first + count, SECOND, 500);
        let groups = u64::from(count.div_ceil(64));
        let mut ended = vec![0_u64; groups as usize];
        let mut micros = 0;
        for pause in pauses {
            micros += pause;
            sweep.advance(500 + micros * 1000, &mut |group| ended[(group - first / 64) as usize] += 1);
            // Pauses are shorter than a period: nothing is left out.
            prop_assert_eq!(ended.iter().sum::<u64>(), micros * groups / 1_000_000);
            prop_assert!(ended.iter().max().unwrap() - ended.iter().min().unwrap() <= 1);
        }
    }

    /// The paper's rule: a flow without a signal in `idle / period` periods is deleted.
    #[test]
    fn flows_expire_after_the_periods_of_the_idle_time(
        idle in 1..254_u8,
        steps in proptest::collection::vec((0..4_u8, 0..5_u32), 1..800),
    ) {
        let idle_time = MINUTE * idle.into();
        let mut aging = Aging::new(5, MINUTE, idle_time, idle_time + MINUTE * 3).unwrap();
        let mut silent: [Option<u32>; 5] = [None; 5];
        for (step, flow) in steps {
            let own = &mut silent[flow as usize];
            match step {
                0 => {
                    aging.begin(flow);
                    *own = Some(0);
                }
                1 => {
                    aging.signal(flow);
                    *own = own.map(|_| 0);
                }
                2 if flow == 0 => {
                    aging.forget(flow);
                    *own = None;
                }
                _ => {
                    let (mut expired, mut expected) = (Vec::new(), Vec::new());
                    aging.end_period(0..9, &mut |flow| expired.push(flow));
                    for (flow, silent) in silent.iter_mut().enumerate() {
                        // The period in which the signal came is not a silent one.
                        *silent = silent.map(|periods| periods + 1);
                        if *silent == Some(u32::from(idle) + 1) {
                            expected.push(flow as u32);
                            *silent = None;
                        }
                    }
                    prop_assert_eq!(expired, expected);
                }
            }
        }
    }
}

#[test]
fn a_long_pause_ends_each_period_once() {
    let mut sweep = Sweep::new(0..640, SECOND, 0);
    let mut ended = [0; 10];
    sweep.advance(10_000_000_000_000, &mut |group| ended[group as usize] += 1);
    assert_eq!(ended, [1; 10]);
}

#[test]
fn times_that_do_not_go_together_are_refused() {
    let new = |idle, record| Aging::new(1, MINUTE, idle, record).err();
    for idle in [Duration::ZERO, MINUTE * 255] {
        let refused = Unusable::Periods {
            idle,
            period: MINUTE,
        };
        assert_eq!(new(idle, MINUTE * 1000), Some(refused));
    }
    let (record, needed) = (MINUTE * 4, MINUTE * 4);
    assert_eq!(
        new(MINUTE * 2, record),
        Some(Unusable::Lifetime { record, needed })
    );
    assert_eq!(new(MINUTE * 2, record + SECOND), None);
    // Part of a period counts as a whole one.
    let needed = MINUTE * 5;
    assert_eq!(
        new(MINUTE * 2 + SECOND, needed),
        Some(Unusable::Lifetime {
            record: needed,
            needed
        })
    );
}

#[test]
fn signals_stay_within_their_budget() {
    let per_s = 1000;
    let mut budget = SignalBudget::new(per_s, SECOND / 10);
    let mut sent = |millis: u64| {
        (0..5000)
            .filter(|_| budget.take(millis * 1_000_000))
            .count()
    };
    // A tenth of a second's signals at once, then what has come meanwhile, and after a pause no more than at first.
    assert_eq!(
        (sent(1000), sent(1000), sent(1005), sent(1050)),
        (100, 0, 5, 45)
    );
    assert_eq!((sent(9000), sent(9000)), (100, 0));
    let mut always = SignalBudget::new(1, Duration::ZERO);
    assert!(always.take(5) && !always.take(6) && always.take(1_000_000_005));
}
