//! Lost segments, and ends with different options of TCP.

use super::{
    answered, asked,
    peers::{Bed, Flags, Offer, Peer, Seen, A, CLIENT},
    with_address, GET, OK,
};

const CHUNKED: &str = "POST /x HTTP/1.1\r\nHost: web\r\nTransfer-Encoding: chunked\r\n\r\n";
const NO_STAMPS: Offer = Offer {
    stamps: false,
    sack: true,
    scale: Some(8),
};

#[test]
fn clients_without_timestamps_have_sack_and_window_scaling() {
    let mut bed = Bed::new();
    let (mut client, answer) = bed.client_with(1, NO_STAMPS);
    assert_eq!(answer.stamps, None);
    assert!(answer.permits_sack && answer.scale.is_some(), "{answer:?}");
    client.window = 1000;
    client.say(&mut bed, GET);
    let syn = bed.sent.last().unwrap().clone();
    assert!(syn.permits_sack && syn.scale == Some(8), "{syn:?}");
    let mut backend = bed.backend(A);
    let request = bed.one(A);
    // 1000 << 8 bytes of the client, at the same scale.
    assert_eq!((request.window, request.stamps), (1000, None));
    assert_eq!(backend.hear(&request), with_address(GET));
    answered(&mut bed, &mut client, &mut backend);
    let small = Offer {
        scale: Some(1),
        ..NO_STAMPS
    };
    let (_, answer) = bed.client_with(2, small);
    assert_eq!(answer.scale, None);
}

#[test]
fn later_clients_do_not_use_what_a_backend_does_not_support() {
    let mut bed = Bed::new();
    let mut client = bed.client(1);
    client.say(&mut bed, GET);
    let plain = Offer {
        stamps: false,
        sack: false,
        scale: Some(7),
    };
    let mut backend = bed.backend_with(A, plain);
    backend.hear(&bed.one(A));
    let mut bed = bed.moved();
    let (mut client, answer) = bed.client_with(2, Offer::default());
    assert!(
        !answer.permits_sack && answer.stamps.is_none(),
        "{answer:?}"
    );
    assert_eq!(answer.scale, Some(7));
    client.say(&mut bed, GET);
    let mut backend = bed.backend_with(A, plain);
    backend.hear(&bed.one(A));
    answered(&mut bed, &mut client, &mut backend);
    // The backend may have been replaced.
    bed.lb.advance(600_000_000_000);
    let (_, answer) = bed.client_with(3, Offer::default());
    assert!(answer.permits_sack && answer.stamps.is_some(), "{answer:?}");
}

#[test]
fn a_connection_whose_first_segments_are_lost_is_not_reset() {
    let mut bed = Bed::new();
    let mut client = bed.handshake(1, Offer::default()).0;
    let (first, rest) = GET.split_at(10);
    let lost = lose(&mut client, first);
    client.say(&mut bed, rest);
    assert!(bed.sent.is_empty(), "{:?}", bed.sent);
    assert_eq!(bed.counter("connections"), 0);
    repeat(&mut bed, &mut client, &lost);
    client.seq = lost.0.wrapping_add(first.len() as u32);
    client.say(&mut bed, rest);
    let mut backend = bed.backend(A);
    let request = bed.one(A);
    assert_eq!(backend.hear(&request), with_address(GET));
}

/// Sends the head of a chunked upload; both ends have acknowledged everything.
fn uploading(bed: &mut Bed) -> (Peer, Peer) {
    let mut client = bed.client(1);
    client.say(bed, CHUNKED);
    let mut backend = bed.backend(A);
    let head = bed.one(A);
    backend.hear(&head);
    backend.send(bed, Flags::Ack, b"");
    bed.take(CLIENT);
    (client, backend)
}

/// Sends a segment that gets lost.
fn lose(peer: &mut Peer, text: &str) -> (u32, String) {
    let at = peer.seq;
    peer.seq = peer.seq.wrapping_add(text.len() as u32);
    (at, text.to_owned())
}

fn repeat(bed: &mut Bed, peer: &mut Peer, lost: &(u32, String)) {
    let end = peer.seq;
    peer.seq = lost.0;
    peer.send(bed, Flags::Ack, lost.1.as_bytes());
    peer.seq = end;
}

fn text_of(seen: &[Seen]) -> String {
    seen.iter().map(Seen::text).collect()
}

#[test]
fn chunks_beyond_a_hole_are_reported_and_pass_once_it_is_filled() {
    let mut bed = Bed::new();
    let (mut client, mut backend) = uploading(&mut bed);
    let lost = lose(&mut client, "3\r\nabc\r\n");
    let from = client.seq;
    for text in ["4\r\ndefg\r\n", "1\r\nh\r\n", "0\r\n\r\n"] {
        client.say(&mut bed, text);
        let report = bed.one(CLIENT);
        assert_eq!(report.ack, Some(lost.0));
        assert_eq!(report.blocks, [(from, client.seq)]);
    }
    assert!(bed.take(A).is_empty());
    let mut bed = bed.moved();
    repeat(&mut bed, &mut client, &lost);
    let passed = bed.take(A);
    assert_eq!(
        text_of(&passed),
        "3\r\nabc\r\n4\r\ndefg\r\n1\r\nh\r\n0\r\n\r\n"
    );
    for segment in &passed {
        backend.hear(segment);
    }
    answered(&mut bed, &mut client, &mut backend);
}

#[test]
fn chunks_beyond_two_holes_are_reported_and_pass_as_each_is_filled() {
    let mut bed = Bed::new();
    let (mut client, mut backend) = uploading(&mut bed);
    let first = lose(&mut client, "3\r\nabc\r\n");
    let from = client.seq;
    client.say(&mut bed, "4\r\ndefg\r\n");
    let second = lose(&mut client, "1\r\nh\r\n");
    let last = client.seq;
    client.say(&mut bed, "2\r\nij\r\n0\r\n\r\n");
    let reports = bed.take(CLIENT);
    assert_eq!(reports[0].blocks, [(from, second.0)]);
    assert_eq!(reports[1].blocks, [(last, client.seq), (from, second.0)]);
    let mut bed = bed.moved();
    repeat(&mut bed, &mut client, &first);
    let passed = bed.take(A);
    assert_eq!(text_of(&passed), "3\r\nabc\r\n4\r\ndefg\r\n");
    for segment in &passed {
        backend.hear(segment);
    }
    bed.take(CLIENT);
    repeat(&mut bed, &mut client, &second);
    let passed = bed.take(A);
    assert_eq!(text_of(&passed), "1\r\nh\r\n2\r\nij\r\n0\r\n\r\n");
    for segment in &passed {
        backend.hear(segment);
    }
    answered(&mut bed, &mut client, &mut backend);
}

#[test]
fn bytes_beyond_a_hole_are_reported_after_the_acknowledgement_of_those_before() {
    let mut bed = Bed::new();
    let (mut client, mut backend) = uploading(&mut bed);
    client.say(&mut bed, "2\r\nxy\r\n");
    backend.hear(&bed.one(A));
    let _lost = lose(&mut client, "3\r\nabc\r\n");
    client.say(&mut bed, "1\r\nh\r\n");
    client.say(&mut bed, "1\r\ni\r\n");
    // An ACK now would be a duplicate of the one before "xy", and a sign of its loss.
    assert!(bed.take(CLIENT).is_empty());
    backend.send(&mut bed, Flags::Ack, b"");
    let reports = bed.take(CLIENT);
    assert_eq!(reports.len(), 3);
    assert!(reports.iter().all(|seen| seen.ack == reports[0].ack));
    assert_eq!(reports[2].blocks[0].1, client.seq);
}

#[test]
fn chunks_of_an_answer_beyond_a_hole_pass_once_it_is_filled() {
    let mut bed = Bed::new();
    let (mut client, mut backend) = asked(&mut bed, 1);
    backend.say(
        &mut bed,
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    );
    client.hear(&bed.one(CLIENT));
    client.send(&mut bed, Flags::Ack, b"");
    bed.take(A);
    let lost = lose(&mut backend, "3\r\nabc\r\n");
    let from = backend.seq;
    backend.say(&mut bed, "4\r\ndefg\r\n0\r\n\r\n");
    let report = bed.one(A);
    assert_eq!(report.blocks, [(from, backend.seq)]);
    assert!(bed.take(CLIENT).is_empty());
    repeat(&mut bed, &mut backend, &lost);
    let passed = bed.take(CLIENT);
    for segment in &passed {
        client.hear(segment);
    }
    assert_eq!(text_of(&passed), "3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n");
    client.say(&mut bed, GET);
    let request = bed.one(A);
    assert_eq!(request.text(), with_address(GET));
}

#[test]
fn a_segment_of_a_head_beyond_a_hole_is_kept() {
    let mut bed = Bed::new();
    let mut client = bed.client(1);
    let (first, rest) = GET.split_at(10);
    let lost = lose(&mut client, first);
    client.say(&mut bed, rest);
    assert_eq!(bed.one(CLIENT).ack, Some(lost.0));
    repeat(&mut bed, &mut client, &lost);
    let mut backend = bed.backend(A);
    let request = bed.one(A);
    assert_eq!(backend.hear(&request), with_address(GET));
    bed.take(CLIENT);
    backend.say(&mut bed, OK);
    assert_eq!(bed.one(CLIENT).ack, Some(client.seq));
}

/// Returns the right edge of the window that a client is told.
fn edge(seen: &Seen) -> u32 {
    seen.ack.unwrap().wrapping_add(u32::from(seen.window) << 7)
}

#[test]
fn a_client_is_told_room_only_for_what_can_be_taken() {
    let mut bed = Bed::new();
    let mut client = bed.client(1);
    client.say(&mut bed, GET);
    let mut backend = bed.backend(A);
    backend.hear(&bed.one(A));
    bed.sent.clear();
    // The backend has room for 512 KiB, but what follows this request waits in 64 KiB.
    backend.send(&mut bed, Flags::Ack, b"");
    let end = client.seq;
    let told = bed.one(CLIENT);
    assert!(edge(&told).wrapping_sub(end) <= 65_536, "{told:?}");
}

#[test]
fn a_client_learns_at_once_that_waiting_requests_have_left_room() {
    let mut bed = Bed::new();
    let mut client = bed.client(1);
    client.say(&mut bed, GET);
    let mut backend = bed.backend(A);
    backend.hear(&bed.one(A));
    let next = "POST /x HTTP/1.1\r\nHost: web\r\nContent-Length: 100000\r\n\r\n";
    let upload = [next.as_bytes(), &[b'x'; 100_000]].concat();
    for part in upload[..65_536].chunks(1_024) {
        client.say(&mut bed, part);
    }
    bed.sent.clear();
    backend.say(&mut bed, OK);
    let [answer, update] = &bed.take(CLIENT)[..] else {
        panic!("expected the answer, and an update of the window");
    };
    assert_eq!(edge(answer), client.seq);
    assert!(edge(update).wrapping_sub(client.seq) > 30_000, "{update:?}");
}

/// Opens a connection whose request A answers with a long body; the next request fills the room that the client is told, up to the number of bytes returned.
fn filled(bed: &mut Bed) -> (Peer, Peer, usize) {
    let (mut client, mut backend) = asked(bed, 1);
    backend.say(bed, "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n");
    let head = bed.one(CLIENT);
    client.hear(&head);
    let upload = "POST /x HTTP/1.1\r\nHost: web\r\nContent-Length: 100000\r\n\r\n";
    let rest = edge(&head).wrapping_sub(client.seq) as usize - upload.len();
    client.say(bed, upload);
    for _ in 0..rest / 1_000 {
        client.say(bed, [b'x'; 1_000]);
    }
    bed.sent.clear();
    (client, backend, rest % 1_000)
}

#[test]
fn a_client_that_has_filled_its_window_can_still_acknowledge() {
    let mut bed = Bed::new();
    let (mut client, mut backend, room) = filled(&mut bed);
    // The last bytes are lost.
    client.seq = client.seq.wrapping_add(room as u32);
    backend.say(&mut bed, [b'a'; 1_000]);
    client.hear(bed.take(CLIENT).last().unwrap());
    bed.take(A);
    client.send(&mut bed, Flags::Ack, b"");
    assert_eq!(bed.one(A).ack, Some(backend.seq));
}

#[test]
fn no_byte_is_offered_that_cannot_be_taken() {
    let mut bed = Bed::new();
    let (mut client, mut backend, room) = filled(&mut bed);
    // Less room remains than a unit of the scaled window.
    client.say(&mut bed, vec![b'x'; room - 30]);
    backend.say(&mut bed, [b'a'; 1_000]);
    let told = bed.take(CLIENT).pop().unwrap();
    assert_eq!((told.ack, told.window), (Some(client.seq), 0));
}

#[test]
fn a_backend_hears_what_a_client_acknowledges_with_bytes_that_wait() {
    let mut bed = Bed::new();
    let (mut client, mut backend) = asked(&mut bed, 1);
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n";
    backend.say(&mut bed, head);
    client.hear(&bed.one(CLIENT));
    client.say(&mut bed, GET);
    assert_eq!(bed.one(A).ack, Some(backend.seq));
}

#[test]
fn a_client_hears_what_a_backend_acknowledges_with_bytes_that_wait() {
    let mut bed = Bed::new();
    let (mut client, mut backend) = uploading(&mut bed);
    client.say(&mut bed, "5\r\nhello\r\n");
    backend.hear(&bed.one(A));
    bed.sent.clear();
    lose(&mut backend, "HTTP/1.1 200 OK\r\n");
    backend.say(&mut bed, "Content-Length: 2\r\n\r\nok");
    let told = bed.take(CLIENT);
    assert_eq!(told.last().and_then(|seen| seen.ack), Some(client.seq));
}
