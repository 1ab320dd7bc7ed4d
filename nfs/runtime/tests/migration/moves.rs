//! Moves that succeed, and moves that are abandoned.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use proptest::{prelude::*, test_runner::TestRunner};

use serde_json::json;

use crate::world::{check_all, collect, hand_over, Driver, How, Rig, Traffic, SOON};

#[derive(Clone, Debug)]
struct Move {
    how: How,
    workers: (usize, usize),
    flows: u16,
    pause: u32,
    /// Microseconds of traffic before and after.
    around: (u64, u64),
    ring_bytes: u64,
    /// The number of steps after which the move is abandoned; 3 to 5: during the hand-over, perhaps too late; more: never.
    give_up: usize,
    /// Whether the agent asks for the end of the move.
    asks: bool,
}

fn any_move() -> impl Strategy<Value = Move> {
    let how = prop_oneof![Just(How::Memfd), Just(How::Copy)];
    let ring_bytes = prop_oneof![1 => Just(1_u64 << 16), 3 => Just(1 << 20)];
    (
        how,
        (1_usize..4, 1_usize..4),
        1_u16..100,
        0_u32..5000,
        (0_u64..2000, 0_u64..1000),
        ring_bytes,
        0_usize..12,
        any::<bool>(),
    )
        .prop_map(
            |(how, workers, flows, pause, around, ring_bytes, give_up, asks)| Move {
                how,
                workers,
                flows,
                pause,
                around,
                ring_bytes,
                give_up,
                asks,
            },
        )
}

fn run(this: &Move) {
    let (old, new) = (
        Rig::new(this.workers.0, false),
        Rig::new(this.workers.1, true),
    );
    let traffic = Traffic::new(this.flows);
    let sent = thread::scope(|scope| {
        let _stop = traffic.stop_at_end();
        let sender = scope.spawn(|| traffic.run(&[&old, &new], this.pause));
        thread::sleep(Duration::from_micros(this.around.0));
        let mut driver = Driver::new(&old, &new, this.how, 1);
        let steps = driver.before_give(this.ring_bytes);
        for mut step in steps.into_iter().take(this.give_up.max(1)) {
            step(&mut driver);
        }
        match this.give_up {
            0..=2 => drop(old.ask("thaw", json!({"epoch": 1})).unwrap()),
            3..=5 => {
                if driver.race(Duration::from_micros(this.around.1)) {
                    complete(&driver, &traffic, this.asks);
                }
            }
            _ => {
                hand_over(&old, &new, 1);
                complete(&driver, &traffic, this.asks);
            }
        }
        thread::sleep(Duration::from_micros(this.around.1));
        traffic.stop();
        sender.join().unwrap()
    });
    let seen = collect(&[&old, &new], sent as usize * this.flows as usize);
    check_all(&seen, this.flows, sent);
}

fn complete(driver: &Driver<'_>, traffic: &Traffic, asks: bool) {
    if asks {
        return driver.complete(traffic);
    }
    driver.flip(traffic);
    driver.drain();
}

/// No packet is lost, duplicated or reordered, and no change of the state is lost or repeated.
#[test]
fn random_moves_keep_every_packet_and_every_change() {
    let moves = std::env::var("NF_MOVES").map_or(150, |text| text.parse().unwrap());
    let config = ProptestConfig {
        cases: moves,
        failure_persistence: None,
        max_shrink_iters: 30,
        max_shrink_time: 60_000,
        ..ProptestConfig::default()
    };
    TestRunner::new(config)
        .run(&any_move(), |this| {
            run(&this);
            Ok(())
        })
        .unwrap();
}

/// The agent may be late or have died; packets do not wait for it.
#[test]
fn a_new_instance_goes_on_by_itself_when_the_old_ones_frames_have_ended() {
    for how in [How::Memfd, How::Copy] {
        let (old, new) = (Rig::new(1, false), Rig::new(2, true));
        let phase = || new.instance.status()["migration"]["phase"].clone();
        let mut driver = Driver::new(&old, &new, how, 1);
        driver.give(1 << 16);
        driver.drain();
        let end = Instant::now() + SOON;
        while phase() != "running" {
            assert!(Instant::now() < end, "it waits for a request");
            thread::yield_now();
        }
        new.wires[1].send(&[0; 60]);
        check_all(&collect(&[&new], 1), 1, 1);
        let handed = new.ask("handover", json!({"epoch": 1})).unwrap();
        assert_eq!(handed["relayed"], 0, "{handed}");
    }
}

/// Freeing a function's memory takes longer than the rest of a hand-over.
#[test]
fn the_replaced_function_is_freed_when_no_packet_waits_any_more() {
    let (old, new) = (Rig::new(1, false), Rig::new(1, true));
    let replaced = Arc::downgrade(&new.instance.loaded().unwrap());
    let mut driver = Driver::new(&old, &new, How::Memfd, 1);
    driver.give(1 << 20);
    assert!(!std::ptr::eq(
        replaced.as_ptr(),
        &*new.instance.loaded().unwrap()
    ));
    assert_eq!(replaced.strong_count(), 1);
    driver.complete(&Traffic::new(0));
    assert_eq!(replaced.strong_count(), 0);
}

/// Moves there and back, repeatedly: an instance that took over can hand over.
#[test]
fn an_instance_that_took_over_can_hand_over() {
    let rigs: Vec<Rig> = (0..5).map(|index| Rig::new(2, index > 0)).collect();
    for (epoch, pair) in (1..).zip(rigs.windows(2)) {
        let traffic = Traffic::new(10);
        let sent = thread::scope(|scope| {
            let _stop = traffic.stop_at_end();
            let sender = scope.spawn(|| traffic.run(&[&pair[0], &pair[1]], 100));
            let mut driver = Driver::new(
                &pair[0],
                &pair[1],
                if epoch % 2 == 0 {
                    How::Copy
                } else {
                    How::Memfd
                },
                epoch,
            );
            driver.give(1 << 20);
            driver.complete(&traffic);
            traffic.stop();
            sender.join().unwrap()
        });
        let seen = collect(&[&pair[0], &pair[1]], sent as usize * 10);
        // Counts continue from earlier moves.
        let first = seen.iter().find(|(flow, ..)| *flow == 0).unwrap().2;
        let shifted: Vec<_> = seen
            .iter()
            .map(|(flow, number, count)| (*flow, *number, count - first))
            .collect();
        check_all(&shifted, 10, sent);
    }
}
