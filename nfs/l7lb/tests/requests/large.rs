//! Frames of several segments, and checksums that the sender left to a network card.

use crate::{
    peers::{Bed, A, CLIENT},
    {asked, with_address, GET},
};

/// The payload of a segment with timestamps.
const SEGMENT: usize = 1448;

fn body(length: usize) -> Vec<u8> {
    (0..length).map(|index| b'a' + (index % 23) as u8).collect()
}

fn answer(length: usize) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
    [head.into_bytes(), body(length)].concat()
}

#[test]
fn a_merged_answer_passes_and_is_split_for_the_client() {
    let mut bed = Bed::new();
    let (mut client, mut backend) = asked(&mut bed, 1);
    let answer = answer(40_000);
    let mut heard = Vec::new();
    for part in answer.chunks(10 * SEGMENT) {
        backend.say_large(&mut bed, part, Some(SEGMENT as u16));
        let segments = bed.take(CLIENT);
        assert_eq!(segments.len(), part.len().div_ceil(SEGMENT));
        for segment in segments {
            heard.extend(client.hear(&segment).into_bytes());
        }
    }
    assert!(heard == answer);
    // The connection goes on.
    client.say(&mut bed, GET);
    assert_eq!(backend.hear(&bed.one(A)), with_address(GET));
}

#[test]
fn a_merged_answer_is_split_into_segments_that_the_client_takes() {
    let mut bed = Bed::new();
    let (mut client, mut backend) = asked(&mut bed, 1);
    let answer = answer(4_000);
    // More than the client's MSS less its timestamps.
    backend.say_large(&mut bed, &answer, Some(1460));
    let segments = bed.take(CLIENT);
    let lengths: Vec<_> = segments.iter().map(|each| each.payload.len()).collect();
    assert_eq!(&lengths[..2], [SEGMENT, SEGMENT]);
    let heard: String = segments.iter().map(|each| client.hear(each)).collect();
    assert!(heard.as_bytes() == answer);
}

#[test]
fn a_merged_upload_reaches_the_backend_in_segments() {
    let mut bed = Bed::new();
    let mut client = bed.client(1);
    let head = "POST /x HTTP/1.1\r\nHost: web\r\nContent-Length: 20000\r\n\r\n";
    let request = [head.as_bytes(), &body(20_000)].concat();
    let (first, second) = request.split_at(5_000);
    client.say_large(&mut bed, first, Some(SEGMENT as u16));
    let mut backend = bed.backend(A);
    let mut heard = String::new();
    let mut hear = |bed: &mut Bed, heard: &mut String| {
        for segment in bed.take(A) {
            assert!(segment.payload.len() <= SEGMENT);
            heard.push_str(&backend.hear(&segment));
        }
        backend.say(bed, "");
    };
    hear(&mut bed, &mut heard);
    hear(&mut bed, &mut heard);
    client.say_large(&mut bed, second, Some(SEGMENT as u16));
    hear(&mut bed, &mut heard);
    let expected = [with_address(head).as_bytes(), &body(20_000)].concat();
    assert_eq!(heard.len(), expected.len());
    assert!(heard.as_bytes() == expected);
}

#[test]
fn a_request_without_its_checksum_is_believed() {
    let mut bed = Bed::new();
    let mut client = bed.client(1);
    client.say_large(&mut bed, GET.as_bytes(), None);
    let mut backend = bed.backend(A);
    assert_eq!(backend.hear(&bed.one(A)), with_address(GET));
    assert_eq!(bed.counter("corrupt_segments"), 0);
    let answer = answer(700);
    backend.say_large(&mut bed, &answer, None);
    assert!(client.hear(&bed.one(CLIENT)).as_bytes() == answer);
}
