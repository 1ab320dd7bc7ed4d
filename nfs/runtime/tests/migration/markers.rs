//! The old instance's markers: the new one sends only when they have arrived, behind all that the old one has sent.

use std::{thread, time::Instant};

use nf_runtime::Options;
use serde_json::{json, Value};

use crate::world::{check_all, collect, Driver, How, Rig, Seen, Traffic, SOON};

const EPOCH: u64 = 3;

fn prepared<'a>(old: &'a Rig, new: &'a Rig, how: How) -> Driver<'a> {
    let mut driver = Driver::new(old, new, how, EPOCH);
    for mut step in driver.before_give(1 << 16) {
        step(&mut driver);
    }
    driver
}

fn send(rig: &Rig, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let mut frame = [0; 60];
        frame[2..6].copy_from_slice(&number.to_le_bytes());
        rig.wires[0].send(&frame);
    }
}

fn is_marker(frame: &[u8]) -> bool {
    frame[12..14] == [0x88, 0xb5]
}

/// Returns the next frame that leaves by a wire of the old instance.
fn next(rig: &Rig, wire: usize) -> Vec<u8> {
    let end = Instant::now() + SOON;
    loop {
        if let Some(frame) = rig.wires[wire].receive() {
            return frame;
        }
        assert!(Instant::now() < end, "no frame left");
        thread::yield_now();
    }
}

/// Returns what the old instance sends by its first wire until its marker leaves, and that marker.
fn until_marker(rig: &Rig) -> (Vec<Vec<u8>>, Vec<u8>) {
    let mut before = Vec::new();
    loop {
        let frame = next(rig, 0);
        if is_marker(&frame) {
            return (before, frame);
        }
        before.push(frame);
    }
}

fn marked(rig: &Rig, first: u32, timeout_ms: u64) -> Result<Value, nf_runtime::Refusal> {
    let request = json!({"epoch": EPOCH, "first": first, "markers": 2, "timeout_ms": timeout_ms});
    rig.ask("marked", request)
}

#[test]
fn a_path_is_tried_by_markers_of_each_worker() {
    let (old, new) = (Rig::new(2, false), Rig::new(1, true));
    let _driver = prepared(&old, &new, How::Memfd);
    let sent = old.ask("mark", json!({"epoch": EPOCH, "first": 100}));
    assert_eq!(sent.unwrap()["markers"], 2);
    new.wires[0].send(&next(&old, 0));
    let refusal = marked(&new, 100, 20).unwrap_err();
    assert_eq!(refusal.code, "timeout");
    assert!(refusal.detail.contains("only {100} arrived"), "{refusal}");
    new.wires[0].send(&next(&old, 1));
    marked(&new, 100, 20_000).unwrap();
    // A later trial has other numbers.
    assert_eq!(marked(&new, 102, 1).unwrap_err().code, "timeout");
    assert_eq!(new.instance.counters().json()["packets_in"], 0.0);
    assert_eq!(old.instance.counters().json()["packets_out"], 0.0);
}

#[test]
fn a_port_that_is_down_has_no_marker() {
    let down = |options: &mut Options| options.ports[0].state = Box::new(|| "no carrier");
    let (old, new) = (Rig::with(2, 200, down), Rig::new(1, true));
    let _driver = prepared(&old, &new, How::Memfd);
    let sent = old.ask("mark", json!({"epoch": EPOCH, "first": 100}));
    assert_eq!(sent.unwrap()["markers"], 0);
    let request = json!({"epoch": EPOCH, "first": 100, "markers": 0});
    new.ask("marked", request).unwrap();
    assert!(old.wires.iter().all(|wire| wire.receive().is_none()));
}

#[test]
fn the_new_instance_sends_when_the_markers_have_arrived() {
    for how in [How::Memfd, How::Copy] {
        let (old, new) = (Rig::new(1, false), Rig::new(1, true));
        let driver = prepared(&old, &new, how);
        send(&old, 0..5);
        thread::scope(|scope| {
            let request = json!({"epoch": EPOCH, "first": 7, "markers": 1});
            let taken = scope.spawn(|| new.ask("commit", request));
            let given = scope.spawn(|| old.ask("give", json!({"epoch": EPOCH, "first": 7})));
            let (before, _lost) = until_marker(&old);
            send(&old, 5..9); // into the ring
            assert!(collect(&[&new], 0).is_empty());
            assert!(!taken.is_finished(), "it waits for the marker");
            // It is sent again until the new instance has taken over.
            let (none, marker) = until_marker(&old);
            assert!(none.is_empty());
            new.wires[0].send(&marker);
            assert_eq!(taken.join().unwrap().unwrap()["unpassed"], Value::Null);
            assert_eq!(given.join().unwrap().unwrap()["taken"], true);
            let word =
                |frame: &[u8], at: usize| u32::from_le_bytes(frame[at..at + 4].try_into().unwrap());
            let mut seen: Vec<Seen> = before.iter().map(|f| (0, word(f, 2), word(f, 6))).collect();
            while old.wires[0].receive().is_some() {}
            seen.extend(collect(&[&new], 9 - seen.len()));
            check_all(&seen, 1, 9);
        });
        driver.complete(&Traffic::new(0));
    }
}

#[test]
fn lost_markers_delay_the_new_instance_for_six_seconds_at_most() {
    let (old, new) = (Rig::new(1, false), Rig::new(1, true));
    let driver = prepared(&old, &new, How::Memfd);
    thread::scope(|scope| {
        let request = json!({"epoch": EPOCH, "first": 7, "markers": 1});
        let taken = scope.spawn(|| new.ask("commit", request));
        let given = old
            .ask("give", json!({"epoch": EPOCH, "first": 7}))
            .unwrap();
        assert!(given["freeze_us"].as_u64().unwrap() >= 6_000_000, "{given}");
        let told = taken.join().unwrap().unwrap();
        let why = told["unpassed"].as_str().unwrap();
        assert!(why.contains("markers only {} arrived"), "{why}");
    });
    while old.wires[0].receive().is_some() {}
    driver.complete(&Traffic::new(0));
}

#[test]
fn markers_need_the_secret() {
    let (old, new) = (Rig::new(1, false), Rig::new(1, true));
    let mut driver = Driver::new(&old, &new, How::Memfd, EPOCH);
    (driver.before_give(1 << 16)[0])(&mut driver);
    let rings = &driver.prepared["rings"];
    let request = json!({"epoch": EPOCH, "mode": "memfd", "rings": rings});
    new.ask_with("hold", request, driver.descriptors()).unwrap();
    assert_eq!(marked(&new, 1, 1).unwrap_err().code, "malformed");
}
