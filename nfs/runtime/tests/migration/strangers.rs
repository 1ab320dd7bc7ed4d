//! Connections and markers without the secret, and state that was altered.

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use nf_arena::{Clock, Memory};
use nf_runtime::migration::{marker, Secret};
use serde_json::json;

use crate::world::{authentic, check_all, collect, hand_over, Driver, How, Rig, SECRET, SOON};

const OTHER: &str = "00000000000000000000000000000000000000000000000000000000000000ff";

/// Starts a new instance that waits for state by TCP; returns its address, too.
fn listening(epoch: u64) -> (Rig, String) {
    let new = Rig::new(1, true);
    let request = json!({"epoch": epoch, "secret": SECRET, "mode": "copy", "listen": "tcp:127.0.0.1:0", "rings": {"queues": 1, "words": 9000}});
    let address = new.ask("hold", request).unwrap()["address"].clone();
    (new, address.as_str().unwrap().to_owned())
}

fn prepared(epoch: u64, secret: &str) -> Rig {
    let old = Rig::new(1, false);
    let request = json!({"epoch": epoch, "secret": secret, "ring_bytes": 1 << 16});
    old.ask("prepare", request).unwrap();
    old
}

#[test]
fn state_is_accepted_only_with_the_secret() {
    let (new, address) = listening(1);
    let at = address.strip_prefix("tcp:").unwrap();
    // One stranger sends nothing, one sends something arbitrary: neither keeps the old instance out.
    let silent = TcpStream::connect(at).unwrap();
    let mut noisy = TcpStream::connect(at).unwrap();
    noisy
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    noisy.write_all(&[b'x'; 200]).unwrap();
    let mut heard = Vec::new();
    let _ = noisy.read_to_end(&mut heard);
    assert!(heard.len() <= 32, "more than the nonce: {heard:?}");
    new.await_refused("connection without the secret of the migration", 1);
    let stranger = prepared(1, OTHER);
    let request = json!({"epoch": 1, "to": address});
    let refusal = stranger.ask("precopy", request.clone()).unwrap_err();
    assert_eq!(refusal.code, "peer", "{refusal}");
    assert!(refusal.detail.contains("secret"), "{refusal}");
    new.await_refused("connection without the secret of the migration", 2);
    let old = prepared(1, SECRET);
    old.ask("precopy", request.clone()).unwrap();
    hand_over(&old, &new, 1);
    drop(silent);
}

#[test]
fn only_one_old_instance_is_accepted() {
    let (new, address) = listening(1);
    let (old, second) = (prepared(1, SECRET), prepared(1, SECRET));
    let request = json!({"epoch": 1, "to": address, "timeout_ms": 2000});
    old.ask("precopy", request.clone()).unwrap();
    assert_eq!(second.ask("precopy", request).unwrap_err().code, "peer");
    hand_over(&old, &new, 1);
}

#[test]
fn an_old_instance_of_another_epoch_is_refused() {
    let (new, address) = listening(1);
    let old = prepared(2, SECRET);
    let refusal = old
        .ask("precopy", json!({"epoch": 2, "to": address}))
        .unwrap_err();
    assert!(refusal.detail.contains("epoch 2, expected 1"), "{refusal}");
    new.await_refused("connection for something else", 1);
}

#[test]
fn state_whose_digest_differs_is_refused() {
    let (new, address) = listening(1);
    let old = prepared(1, SECRET);
    old.wires[0].send(&[0; 10]);
    old.wires[0].receive_within(SOON).unwrap();
    old.ask("precopy", json!({"epoch": 1, "to": address}))
        .unwrap();
    let digest = |rig: &Rig| rig.instance.loaded().unwrap().arena.digest();
    let end = Instant::now() + SOON;
    while digest(&new) != digest(&old) {
        assert!(Instant::now() < end, "the state has not arrived");
        thread::sleep(Duration::from_millis(1));
    }
    // Simulates an error of the copy.
    let loaded = new.instance.loaded().unwrap();
    loaded.arena.regions()[0].words()[3].fetch_xor(1, Ordering::Relaxed);
    let refusal = old.ask("give", json!({"epoch": 1})).unwrap_err();
    assert!(
        refusal.detail.contains("the state's digest is"),
        "{refusal}"
    );
    let refusal = new.ask("commit", json!({"epoch": 1})).unwrap_err();
    assert!(
        refusal.detail.contains("the state's digest is"),
        "{refusal}"
    );
    old.ask("thaw", json!({"epoch": 1})).unwrap();
}

#[test]
fn a_commit_before_all_state_has_arrived_is_refused() {
    let (new, address) = listening(1);
    let old = prepared(1, SECRET);
    let commit = json!({"epoch": 1, "timeout_ms": 30});
    let early = |rig: &Rig| rig.ask("commit", commit.clone()).unwrap_err();
    old.ask("precopy", json!({"epoch": 1, "to": address}))
        .unwrap();
    assert_eq!(early(&old).code, "out-of-turn");
    let refusal = early(&new);
    assert_eq!(refusal.code, "peer");
    assert!(refusal.detail.contains("has not arrived yet"), "{refusal}");
    hand_over(&old, &new, 1);
    old.ask("commit", commit.clone()).unwrap();
}

#[test]
fn the_clock_of_copied_state_continues() {
    const LATER: u64 = 1 << 60;
    let (new, address) = listening(1);
    let old = prepared(1, SECRET);
    let clock = |rig: &Rig| Clock::of(&rig.instance.loaded().unwrap().arena);
    clock(&old).resume(LATER);
    old.ask("precopy", json!({"epoch": 1, "to": address}))
        .unwrap();
    assert!(clock(&new).now() < LATER);
    hand_over(&old, &new, 1);
    let (now, then) = (clock(&new).now(), clock(&old).now());
    assert!(
        (LATER..=then).contains(&now),
        "{now}, but {then} at the old instance"
    );
}

/// A tenant that knows the format sends markers of every number before the real ones: they end no path, and are forwarded like other frames.
#[test]
fn forged_markers_end_no_path() {
    let (old, new) = (Rig::new(1, false), Rig::new(1, true));
    let mut driver = Driver::new(&old, &new, How::Memfd, 1);
    driver.give(1 << 16);
    let other = Secret::parse(OTHER).unwrap();
    for number in 0..2 {
        let mut frame = marker([2; 6], [4; 6], &other, 1, number);
        // To the function this is a packet of flow 0 with the next number.
        frame[..6].copy_from_slice(&[0, 0, number as u8, 0, 0, 0]);
        old.wires[0].send(&frame);
    }
    let drain = json!({"epoch": 1, "paths": 1, "timeout_ms": 50});
    assert_eq!(old.ask("drain", drain.clone()).unwrap_err().code, "timeout");
    old.await_refused("marker with a wrong code", 2);
    old.wires[0].send(&authentic(1, 0));
    old.ask("drain", drain).unwrap();
    new.ask("handover", json!({"epoch": 1})).unwrap();
    check_all(&collect(&[&old, &new], 2), 1, 2);
}
