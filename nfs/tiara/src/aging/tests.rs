//! Tests of periods, signals and ages.

use std::time::Duration;

use nf_offload::FlowKey;
use nf_tables::Ipv4Flow;
use proptest::prelude::*;

use super::{Aging, SignalBudget, Sweep};
use crate::flow::Flow;

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
        idle in 1..254_u32,
        steps in proptest::collection::vec((0..4_u8, 0..5_u16), 1..800),
    ) {
        let mut aging = Aging::new(MINUTE, MINUTE * idle, 0);
        let mut silent: [Option<u32>; 5] = [None; 5];
        let mut now = Duration::ZERO;
        for (step, number) in steps {
            let own = &mut silent[usize::from(number)];
            match step {
                0 => {
                    aging.begin(flow(number));
                    *own = Some(0);
                }
                1 => {
                    aging.signal(&flow(number));
                    *own = own.map(|_| 0);
                }
                2 if number == 0 => {
                    aging.forget(&flow(number));
                    *own = None;
                }
                _ => {
                    now += MINUTE;
                    let (mut expired, mut expected) = (Vec::new(), Vec::new());
                    aging.advance(now.as_nanos() as u64, &mut |flow| expired.push(flow));
                    for (number, silent) in (0..).zip(&mut silent) {
                        // The period in which the signal came is not a silent one.
                        *silent = silent.map(|periods| periods + 1);
                        if *silent == Some(idle + 1) {
                            expected.push(flow(number));
                            *silent = None;
                        }
                    }
                    expired.sort_unstable();
                    prop_assert_eq!(expired, expected);
                }
            }
        }
    }

    /// The end comes after the idle time and at most two periods later, whatever the times of calls.
    #[test]
    fn a_silent_flow_expires_in_time(
        idle in 1..2000_u32,
        others in 0..300_u16,
        pauses in proptest::collection::vec(1..900_u64, 1..60),
    ) {
        let idle = SECOND / 10 * idle;
        let period = SECOND.max(idle / 254);
        let mut aging = Aging::new(SECOND, idle, 0);
        (0..others).for_each(|number| aging.begin(flow(1 + number)));
        let mut now = 0;
        for millis in pauses.iter().cycle().take(200) {
            now += millis * 1_000_000;
            aging.advance(now, &mut |_| {});
        }
        aging.begin(flow(0));
        let begun = now;
        let mut ended = None;
        for millis in pauses.iter().cycle() {
            now += millis * 1_000_000;
            aging.advance(now, &mut |expired| {
                if expired == flow(0) {
                    ended = Some(Duration::from_nanos(now - begun));
                }
            });
            if let Some(ended) = ended {
                let latest = idle + period * 3;
                prop_assert!(ended >= idle && ended <= latest, "{ended:?} of {idle:?}");
                break;
            }
        }
    }
}

fn flow(number: u16) -> FlowKey {
    Ipv4Flow {
        source: [192, 0, 2, 1].into(),
        destination: [198, 51, 100, 1].into(),
        source_port: number,
        destination_port: 80,
        protocol: 6,
    }
    .key()
}

#[test]
fn a_number_is_used_again_and_its_new_flow_is_its_own() {
    let mut aging = Aging::new(SECOND, SECOND, 0);
    aging.begin(flow(1));
    aging.forget(&flow(1));
    aging.begin(flow(2));
    aging.signal(&flow(1));
    let mut expired = Vec::new();
    for second in 1..=5 {
        aging.advance(second * 1_000_000_000, &mut |flow| expired.push(flow));
    }
    assert_eq!(expired, [flow(2)]);
}

#[test]
fn a_long_pause_ends_each_period_once() {
    let mut sweep = Sweep::new(0..640, SECOND, 0);
    let mut ended = [0; 10];
    sweep.advance(10_000_000_000_000, &mut |group| ended[group as usize] += 1);
    assert_eq!(ended, [1; 10]);
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
