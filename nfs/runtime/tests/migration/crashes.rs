//! One of the two instances dies at a step. Threads of a process cannot be killed, so an instance that "dies" here ends its workers between two
//! batches and gets no more requests. Tests with killed processes are in `tests/nfs`.

use std::{thread, time::Duration};

use nf_runtime::{gate::Order, migration::orphans};
use serde_json::json;

use crate::world::{check_all, collect, Driver, How, Rig, Traffic, SOON};

const FLOWS: u16 = 20;

/// Waits until each port is empty: frames that an instance has not received when it dies are lost.
fn take_in_all(rig: &Rig) {
    let gate = rig.instance.gate();
    gate.order(SOON, |_| vec![Order::Sweep]).unwrap();
}

/// The new instance dies after each step before the commit: the old one continues as if nothing had happened.
#[test]
fn the_new_instance_dies_before_the_commit() {
    for how in [How::Memfd, How::Copy] {
        for steps in 1..=2 {
            let (old, new) = (Rig::new(2, false), Rig::new(2, true));
            let traffic = Traffic::new(FLOWS);
            let sent = thread::scope(|scope| {
                let _stop = traffic.stop_at_end();
                let sender = scope.spawn(|| traffic.run(&[&old, &new], 200));
                let mut driver = Driver::new(&old, &new, how, 1);
                for mut step in driver.before_give(1 << 20).into_iter().take(steps) {
                    step(&mut driver);
                }
                new.instance.stop_workers().unwrap();
                thread::sleep(Duration::from_millis(1));
                old.ask("thaw", json!({"epoch": 1})).unwrap();
                traffic.stop();
                sender.join().unwrap()
            });
            check_all(
                &collect(&[&old], sent as usize * FLOWS as usize),
                FLOWS,
                sent,
            );
        }
    }
}

/// The old instance dies before the commit: another one takes its state and its ring, which the agent has kept.
#[test]
fn the_old_instance_dies_before_the_commit() {
    for is_frozen in [false, true] {
        let (old, unused) = (Rig::new(2, false), Rig::new(2, true));
        let traffic = Traffic::new(FLOWS);
        let mut driver = Driver::new(&old, &unused, How::Copy, 1);
        let (heir, sent) = thread::scope(|scope| {
            let (old, traffic) = (&old, &traffic);
            let _stop = traffic.stop_at_end();
            let sender = scope.spawn(move || traffic.run(&[old], 200));
            thread::sleep(Duration::from_millis(1));
            if is_frozen {
                driver.fail_to_give(1 << 20);
            } else {
                driver.before_give(1 << 20)[0](&mut driver);
            }
            thread::sleep(Duration::from_millis(1));
            traffic.stop();
            let sent = sender.join().unwrap();
            take_in_all(old);
            old.instance.stop_workers().unwrap();
            let mut descriptors = driver.descriptors();
            let backlog = orphans(descriptors.pop().unwrap()).unwrap();
            let rig = Rig::on(descriptors.pop(), 2, 200, |options| {
                options.backlog = Some(backlog);
            });
            (rig, sent)
        });
        let seen = collect(&[&old, &heir], sent as usize * FLOWS as usize);
        check_all(&seen, FLOWS, sent);
    }
}

/// The old instance dies after the commit: the new one processes the frames in the ring.
#[test]
fn the_old_instance_dies_after_the_commit() {
    let (old, new) = (Rig::new(2, false), Rig::new(2, true));
    let traffic = Traffic::new(FLOWS);
    let sent = thread::scope(|scope| {
        let _stop = traffic.stop_at_end();
        let sender = scope.spawn(|| traffic.run(&[&old, &new], 200));
        let mut driver = Driver::new(&old, &new, How::Memfd, 1);
        driver.give(1 << 20);
        let epoch = json!({"epoch": 1});
        traffic.flip(u16::MAX);
        take_in_all(&old);
        old.instance.stop_workers().unwrap();
        let waits = scope.spawn(|| {
            new.ask("handover", json!({"epoch": 1, "timeout_ms": 20_000}))
                .unwrap()
        });
        new.ask("orphaned", epoch).unwrap();
        assert_eq!(waits.join().unwrap()["orphaned"], true);
        traffic.stop();
        sender.join().unwrap()
    });
    check_all(
        &collect(&[&old, &new], sent as usize * FLOWS as usize),
        FLOWS,
        sent,
    );
}

/// The new instance dies after the commit: a third one takes the state and the ring, and the old one keeps relaying.
#[test]
fn the_new_instance_dies_after_the_commit() {
    let (old, new, third) = (Rig::new(2, false), Rig::new(2, true), Rig::new(2, true));
    let traffic = Traffic::new(FLOWS);
    let sent = thread::scope(|scope| {
        let _stop = traffic.stop_at_end();
        let sender = scope.spawn(|| traffic.run(&[&old, &third], 200));
        let mut driver = Driver::new(&old, &new, How::Memfd, 1);
        driver.give(1 << 20);
        thread::sleep(Duration::from_millis(2));
        new.instance.stop_workers().unwrap();
        let driver = Driver {
            new: &third,
            ..driver
        };
        driver.hold();
        third
            .ask("commit", json!({"epoch": 1, "repair": true}))
            .unwrap();
        traffic.flip(u16::MAX);
        driver.finish();
        traffic.stop();
        sender.join().unwrap()
    });
    check_all(
        &collect(&[&old, &new, &third], sent as usize * FLOWS as usize),
        FLOWS,
        sent,
    );
}
