//! Segments of a blind attacker, who guesses numbers (RFC 5961), and probes, which look alike.

use super::{
    answered, asked,
    peers::{Bed, Flags, Peer, A, B, CLIENT},
    with_address, GET, GET_B,
};

/// Beyond every window of these tests.
const FAR: u32 = 1 << 20;
const FUTURE: u32 = 1 << 30;

/// Returns a peer that sends the same numbers from these distances.
fn forger(peer: &Peer, seq: i32, ack: i32) -> Peer {
    let mut forger = peer.clone();
    forger.seq = forger.seq.wrapping_add_signed(seq);
    forger.ack = forger.ack.wrapping_add_signed(ack);
    forger.stamp = forger.stamp.wrapping_add(FUTURE);
    forger
}

/// Distances of which a blind attacker knows none to be right.
fn wrong() -> [(i32, i32); 5] {
    let far = FAR as i32;
    [(far, 0), (-far, 0), (-1, 0), (0, -far), (0, far)]
}

#[test]
fn a_forged_segment_of_a_client_does_not_move_its_timestamps() {
    for (seq, ack) in wrong() {
        let mut bed = Bed::new();
        let (mut client, mut backend) = asked(&mut bed, 1);
        answered(&mut bed, &mut client, &mut backend);
        let mut forged = forger(&client, seq, ack);
        forged.send(&mut bed, Flags::Ack, b"");
        forged.send(&mut bed, Flags::Ack, b"x");
        let challenges = bed.take(CLIENT);
        assert!(challenges.iter().all(|seen| seen.ack == Some(client.seq)));
        // A probe goes on, without its timestamp.
        let probes = bed.take(A);
        assert!(probes
            .iter()
            .all(|seen| seen.payload.is_empty() && seen.stamps.unwrap().0 <= client.stamp));
        client.say(&mut bed, GET);
        let request = bed.one(A);
        assert_eq!(request.stamps.unwrap().0, client.stamp, "{seq} {ack}");
        assert_eq!(backend.hear(&request), with_address(GET));
    }
}

#[test]
fn a_forged_segment_of_a_backend_does_not_move_its_timestamps() {
    for (seq, ack) in wrong() {
        let mut bed = Bed::new();
        let (mut client, mut backend) = asked(&mut bed, 1);
        let true_ack = backend.ack;
        let mut forged = forger(&backend, seq, ack);
        forged.send(&mut bed, Flags::Ack, b"H");
        bed.take(A);
        assert!(bed.take(CLIENT).is_empty(), "{seq} {ack}");
        let value = backend.stamp + 1;
        backend.send(&mut bed, Flags::Ack, b"");
        let shown = bed.one(CLIENT).stamps.unwrap().0;
        assert_eq!(backend.ack, true_ack);
        answered(&mut bed, &mut client, &mut backend);
        client.say(&mut bed, GET);
        let request = bed.one(A);
        assert_eq!(request.stamps.unwrap().1, value + 1, "{shown}");
    }
}

#[test]
fn only_the_exact_number_of_a_client_resets() {
    let mut bed = Bed::new();
    let (client, _backend) = asked(&mut bed, 1);
    forger(&client, FAR as i32, 0).send(&mut bed, Flags::Rst, b"");
    forger(&client, -1000, 0).send(&mut bed, Flags::Rst, b"");
    assert!(bed.sent.is_empty(), "{:?}", bed.sent);
    forger(&client, 100, 0).send(&mut bed, Flags::Rst, b"");
    assert_eq!(bed.one(CLIENT).ack, Some(client.seq));
    assert_eq!(bed.counter("connections"), 1);
    client.clone().send(&mut bed, Flags::Rst, b"");
    assert!(bed.one(A).rst);
    assert_eq!(bed.counter("connections"), 0);
}

#[test]
fn an_idle_leg_answers_probes_and_ends_by_the_exact_number() {
    let mut bed = Bed::new();
    let (mut client, mut a) = asked(&mut bed, 1);
    answered(&mut bed, &mut client, &mut a);
    client.say(&mut bed, GET_B);
    let mut b = bed.backend(B);
    b.hear(&bed.one(B));
    bed.take(A);
    for forged in [-1, 100] {
        forger(&a, forged, 0).send(&mut bed, Flags::Rst, b"");
    }
    assert!(bed.sent.is_empty(), "{:?}", bed.sent);
    forger(&a, -1, 0).send(&mut bed, Flags::Ack, b"");
    let answer = bed.one(A);
    assert_eq!((answer.seq, answer.ack), (a.ack, Some(a.seq)));
    assert!(!answer.rst && answer.stamps.unwrap().1 == a.stamp);
    answered(&mut bed, &mut client, &mut b);
    client.send(&mut bed, Flags::Ack, b"");
    client.say(&mut bed, GET);
    let request = bed.one(A);
    assert_eq!(a.hear(&request), with_address(GET));
    bed.take(B);
    answered(&mut bed, &mut client, &mut a);
    b.send(&mut bed, Flags::Rst, b"");
    client.send(&mut bed, Flags::Ack, b"");
    client.say(&mut bed, GET_B);
    assert!(bed.one(B).syn);
}

#[test]
fn probes_during_an_exchange_reach_the_other_side() {
    let mut bed = Bed::new();
    let (client, mut backend) = asked(&mut bed, 1);
    backend.send(&mut bed, Flags::Ack, b"");
    bed.take(CLIENT);
    let mut probe = client.clone();
    probe.seq = probe.seq.wrapping_sub(1);
    probe.send(&mut bed, Flags::Ack, b"");
    let probed = bed.one(A);
    assert_eq!((probed.seq, probed.payload.len()), (backend.ack - 1, 0));
    let mut probe = backend.clone();
    probe.seq -= 1;
    probe.send(&mut bed, Flags::Ack, b"");
    let probed = bed.one(CLIENT);
    assert_eq!(probed.seq, client.ack.wrapping_sub(1));
    assert_eq!(probed.payload.len(), 0);
}
