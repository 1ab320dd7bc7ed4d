//! Lines added to answers: the function takes their heads, as it does those of requests.

use serde_json::json;

use crate::{
    peers::{Bed, Flags, Peer, A, CLIENT},
    with_address, GET, OK,
};

const LINED: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Served-By: l7lb\r\n\r\nhello";

fn bed() -> Bed {
    Bed::with(json!({"add_to_answers": ["X-Served-By: l7lb"]}))
}

fn asked(bed: &mut Bed) -> (Peer, Peer) {
    let mut client = bed.client(1);
    client.say(bed, GET);
    let mut backend = bed.backend(A);
    let request = bed.one(A);
    assert_eq!(backend.hear(&request), with_address(GET));
    (client, backend)
}

/// Receives segments in order; returns their text.
fn hear_all(bed: &mut Bed, peer: &mut Peer, at: [u8; 4]) -> String {
    let all = bed.take(at);
    all.iter().map(|seen| peer.hear(seen)).collect()
}

#[test]
fn an_answer_gets_the_line_and_the_next_request_follows() {
    let mut bed = bed();
    let (mut client, mut backend) = asked(&mut bed);
    for _ in 0..3 {
        backend.say(&mut bed, OK);
        let answer = bed.one(CLIENT);
        assert_eq!(client.hear(&answer), LINED);
        assert_eq!(answer.ack, Some(client.seq));
        client.send(&mut bed, Flags::Ack, b"");
        // The acknowledgement means the backend's own bytes.
        assert_eq!(bed.one(A).ack, Some(backend.seq));
        client.say(&mut bed, GET);
        let request = bed.one(A);
        assert_eq!(request.ack, Some(backend.seq));
        backend.hear(&request);
    }
    assert!(bed.sent.is_empty());
}

#[test]
fn a_head_byte_by_byte_is_acknowledged_and_sent_whole() {
    let mut bed = bed();
    let (mut client, mut backend) = asked(&mut bed);
    let (head, body) = OK.split_at(OK.len() - 5);
    for (index, byte) in head.bytes().enumerate() {
        backend.say(&mut bed, [byte]);
        if index + 1 < head.len() {
            assert_eq!(bed.one(A).ack, Some(backend.seq));
            assert!(bed.sent.is_empty());
        }
    }
    let text = client.hear(&bed.one(CLIENT));
    assert_eq!(text, LINED.strip_suffix("hello").unwrap());
    backend.say(&mut bed, body);
    assert_eq!(client.hear(&bed.one(CLIENT)), "hello");
}

#[test]
fn a_repeated_head_with_other_bytes_changes_nothing() {
    let mut bed = bed();
    let (mut client, mut backend) = asked(&mut bed);
    let start = backend.seq;
    backend.say(&mut bed, &OK[..30]);
    let _acknowledgement = bed.one(A);
    let end = backend.seq;
    backend.seq = start;
    let other = OK.replace("200 OK", "500 NO");
    backend.send(&mut bed, Flags::Ack, &other.as_bytes()[..25]);
    assert_eq!(bed.one(A).ack, Some(end));
    // This one straddles the bytes taken.
    backend.say(&mut bed, &other);
    assert_eq!(client.hear(&bed.one(CLIENT)), LINED);
}

#[test]
fn a_retransmission_that_straddles_the_taken_bytes_passes_its_rest() {
    let mut bed = bed();
    let (mut client, mut backend) = asked(&mut bed);
    let answer = OK
        .replace("hello", &"h".repeat(3000))
        .replace("h: 5", "h: 3000");
    let lined = LINED.replace("hello", "").replace("h: 5", "h: 3000");
    let start = backend.seq;
    backend.say(&mut bed, &answer[..1000]);
    let begun = bed.one(CLIENT);
    // The client has not acknowledged anything, and the backend sends the first part again, with more.
    backend.seq = start;
    backend.say(&mut bed, &answer[..1400]);
    let rest = bed.one(CLIENT);
    assert_eq!(rest.seq, begun.seq.wrapping_add(begun.payload.len() as u32));
    assert_eq!(rest.payload.len(), 400);
    assert_eq!(
        client.hear(&begun),
        lined.clone() + &"h".repeat(1000 - (answer.len() - 3000))
    );
    client.hear(&rest);
    backend.say(&mut bed, &answer[1400..2800]);
    backend.say(&mut bed, &answer[2800..]);
    assert_eq!(
        hear_all(&mut bed, &mut client, CLIENT).len(),
        answer.len() - 1400
    );
    client.send(&mut bed, Flags::Ack, b"");
    assert_eq!(bed.one(A).ack, Some(backend.seq));
}

#[test]
fn an_acknowledgement_inside_the_taken_bytes_says_no_more_than_them() {
    let mut bed = bed();
    let (mut client, mut backend) = asked(&mut bed);
    let answer = OK
        .replace("hello", &"h".repeat(2000))
        .replace("h: 5", "h: 2000");
    backend.say(&mut bed, &answer[..800]);
    let taken = backend.seq;
    let begun = bed.one(CLIENT);
    backend.say(&mut bed, &answer[800..1800]);
    let body = bed.one(CLIENT);
    client.hear(&begun);
    let end = client.ack;
    client.ack = end.wrapping_sub(10);
    client.send(&mut bed, Flags::Ack, b"");
    assert_eq!(bed.take(A).last().unwrap().ack, Some(taken));
    client.ack = end;
    client.send(&mut bed, Flags::Ack, b"");
    assert_eq!(bed.take(A).last().unwrap().ack, Some(taken));
    client.hear(&body);
    client.send(&mut bed, Flags::Ack, b"");
    assert_eq!(bed.one(A).ack, Some(backend.seq));
}

#[test]
fn a_lost_head_is_sent_again_by_the_function() {
    let mut bed = bed();
    let (mut client, mut backend) = asked(&mut bed);
    backend.say(&mut bed, OK);
    let lost = bed.one(CLIENT);
    bed.wait(180);
    assert!(bed.sent.is_empty());
    bed.wait(30);
    let again = bed.one(CLIENT);
    assert_eq!((again.seq, again.text()), (lost.seq, LINED));
    client.hear(&again);
    client.send(&mut bed, Flags::Ack, b"");
    bed.wait(1000);
    assert_eq!(bed.take(CLIENT), []);
}

#[test]
fn interim_answers_pass_unchanged_before_the_final_one() {
    let mut bed = bed();
    let (mut client, mut backend) = asked(&mut bed);
    let interim = "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n";
    backend.say(&mut bed, interim);
    assert_eq!(client.hear(&bed.one(CLIENT)), interim);
    let _acknowledgement = bed.take(A);
    backend.say(&mut bed, [interim, OK].concat());
    let text = hear_all(&mut bed, &mut client, CLIENT);
    // Both regions of the map are in use until the client acknowledges.
    assert_eq!(text, interim);
    client.send(&mut bed, Flags::Ack, b"");
    backend.seq = backend.seq.wrapping_sub(OK.len() as u32);
    backend.say(&mut bed, OK);
    assert_eq!(hear_all(&mut bed, &mut client, CLIENT), LINED);
}

#[test]
fn a_fin_with_the_answer_follows_it() {
    let mut bed = bed();
    let (mut client, mut backend) = asked(&mut bed);
    let answer = OK.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
    backend.send(&mut bed, Flags::Fin, answer.as_bytes());
    backend.seq = backend.seq.wrapping_add(answer.len() as u32 + 1);
    let sent = bed.take(CLIENT);
    assert!(client.hear(&sent[0]).contains("\r\nX-Served-By: l7lb\r\n"));
    assert!(sent[1].fin);
    client.hear(&sent[1]);
    client.send(&mut bed, Flags::Fin, b"");
    let fin = bed.take(A).pop().unwrap();
    assert!(fin.fin && fin.ack == Some(backend.seq));
    backend.hear(&fin);
    backend.send(&mut bed, Flags::Ack, b"");
    assert_eq!(bed.counter("connections"), 0);
}

#[test]
fn a_malformed_head_of_which_the_client_has_nothing_becomes_502() {
    let mut bed = bed();
    let (mut client, mut backend) = asked(&mut bed);
    backend.say(&mut bed, "HTTP/1.1 200 OK\r\n");
    bed.sent.clear();
    backend.say(&mut bed, "Content-Length: 5\r\nContent-Length: 6\r\n\r\n");
    let text = hear_all(&mut bed, &mut client, CLIENT);
    assert!(text.starts_with("HTTP/1.1 502 "), "{text:?}");
    assert!(bed.one(A).rst);
}

#[test]
fn a_taken_head_continues_in_another_instance() {
    let mut bed = bed();
    let (mut client, mut backend) = asked(&mut bed);
    backend.say(&mut bed, &OK[..20]);
    bed.sent.clear();
    let config = json!({"add_to_answers": ["X-Served-By: other"]});
    let mut bed = bed.moved_to(config);
    backend.say(&mut bed, &OK[20..]);
    let lost = bed.one(CLIENT);
    let mut bed = bed.moved();
    bed.wait(210);
    let again = bed.one(CLIENT);
    assert_eq!((again.seq, again.text()), (lost.seq, lost.text()));
    assert_eq!(client.hear(&again), LINED.replace("l7lb", "other"));
}

#[test]
fn a_client_with_a_closed_window_gets_the_answer_later() {
    let mut bed = bed();
    let (mut client, mut backend) = asked(&mut bed);
    client.window = 0;
    client.send(&mut bed, Flags::Ack, b"");
    // The backend may still send a head.
    assert!(bed.take(A).last().unwrap().window > 0);
    backend.say(&mut bed, OK);
    assert_eq!(bed.take(CLIENT), []);
    client.window = 4096;
    client.send(&mut bed, Flags::Ack, b"");
    assert_eq!(client.hear(&bed.one(CLIENT)), LINED);
}

#[test]
fn a_lost_body_passes_again_although_the_next_head_waits_for_room() {
    let mut bed = bed();
    let (mut client, mut backend) = asked(&mut bed);
    let answer = OK
        .replace("hello", &"h".repeat(2000))
        .replace("h: 5", "h: 2000");
    let (begin, rest) = answer.split_at(answer.len() - 1000);
    backend.say(&mut bed, begin);
    client.hear(&bed.one(CLIENT));
    let at = backend.seq;
    backend.say(&mut bed, rest);
    let lost = bed.one(CLIENT);
    // In units of 128 bytes: 24 bytes are left for the next head.
    client.window = 8;
    client.say(&mut bed, GET);
    backend.hear(&bed.take(A).pop().unwrap());
    backend.say(&mut bed, OK);
    assert_eq!(bed.take(CLIENT).pop().unwrap().payload.len(), 24);
    backend.seq = at;
    backend.send(&mut bed, Flags::Ack, rest.as_bytes());
    let again = bed.one(CLIENT);
    assert_eq!((again.seq, again.text()), (lost.seq, rest));
    client.hear(&again);
    client.send(&mut bed, Flags::Ack, b"");
    assert_eq!(client_hears(&mut bed, &mut client), LINED[24..]);
}

#[test]
fn a_lost_body_passes_again_before_the_next_head() {
    let mut bed = bed();
    let (mut client, mut backend) = asked(&mut bed);
    let (begin, rest) = OK.split_at(OK.len() - 3);
    backend.say(&mut bed, begin);
    client.hear(&bed.one(CLIENT));
    let at = backend.seq;
    backend.say(&mut bed, rest);
    let lost = bed.one(CLIENT);
    client.say(&mut bed, GET);
    backend.hear(&bed.take(A).pop().unwrap());
    // The backend sends what was lost and the next answer in one segment.
    backend.seq = at;
    backend.say(&mut bed, [rest, OK].concat());
    let again = bed.take(CLIENT);
    assert_eq!((again[0].seq, again[0].text()), (lost.seq, rest));
    client.hear(&again[0]);
    assert_eq!(client.hear(&again[1]), LINED);
}

/// Receives what follows the bytes that were heard before.
fn client_hears(bed: &mut Bed, client: &mut Peer) -> String {
    client.ack = client.ack.wrapping_add(24);
    hear_all(bed, client, CLIENT)
}

#[test]
fn a_body_does_not_overtake_a_head_that_waits_for_room() {
    let mut bed = Bed::with(json!({"add_to_answers": [format!("X-Long: {}", "l".repeat(2000))]}));
    let (mut client, mut backend) = asked(&mut bed);
    client.window = 8;
    client.send(&mut bed, Flags::Ack, b"");
    bed.sent.clear();
    let answer = OK
        .replace("hello", &"h".repeat(900))
        .replace("h: 5", "h: 900");
    let (begin, rest) = answer.split_at(answer.len() - 900);
    backend.say(&mut bed, begin);
    let first = bed.one(CLIENT);
    assert_eq!(first.payload.len(), 1024);
    backend.send(&mut bed, Flags::Ack, rest.as_bytes());
    assert_eq!(bed.take(CLIENT), []);
    client.hear(&first);
    client.window = 4096;
    client.send(&mut bed, Flags::Ack, b"");
    let head = hear_all(&mut bed, &mut client, CLIENT);
    assert!(head.ends_with("l\r\n\r\n"), "{head:?}");
    backend.send(&mut bed, Flags::Ack, rest.as_bytes());
    assert_eq!(client.hear(&bed.one(CLIENT)), rest);
}
