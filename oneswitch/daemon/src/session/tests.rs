use std::sync::Arc;
use std::time::Duration;

use tokio::io::{duplex, AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::*;
use crate::quiet_unix::QuietUnixStream;
use crate::stream::Stream;

/// HELLO of a peer that offers version 1.3 only in its header.
const HELLO: [u8; 8] = [4, 0, 0, 8, 0, 0, 0, 9];
const OUR_HELLO: [u8; 16] = [6, 0, 0, 16, 0, 0, 0, 1, 0, 1, 0, 8, 0, 0, 0, 0x72];
const HELLO_TO_SWITCHES: [u8; 16] = [4, 0, 0, 16, 0, 0, 0, 1, 0, 1, 0, 8, 0, 0, 0, 0x10];
const BARRIER: [u8; 8] = [4, 20, 0, 8, 0, 0, 0, 9];

fn peer_on(target: &str) -> Peer {
    Peer::Controller {
        target: Arc::from(target),
        dialled: None,
        address: String::new(),
    }
}

impl Transport for DuplexStream {
    fn socket(&self) -> Option<socket2::Socket> {
        None
    }
}

/// A session over memory: the peer's end, the engine's events, and the result.
struct Fixture {
    peer: DuplexStream,
    events: mpsc::UnboundedReceiver<Event>,
    ended: JoinHandle<Ended>,
}

impl Fixture {
    fn new(peer: Peer, timing: Timing, capacity: usize) -> Self {
        let (ours, theirs) = duplex(capacity);
        let (sender, events) = mpsc::unbounded_channel();
        let ended = tokio::spawn(async move { run(ours, 7, peer, timing, &sender).await });
        Self {
            peer: theirs,
            events,
            ended,
        }
    }

    fn controller() -> Self {
        Self::new(peer_on("ptcp:6653"), Timing::NETWORK, 1 << 20)
    }

    /// Creates a session with a completed handshake.
    async fn established() -> (Self, Handle) {
        let mut fixture = Self::controller();
        let handle = fixture.shake_hands().await;
        (fixture, handle)
    }

    async fn shake_hands(&mut self) -> Handle {
        self.shake_hands_with(&OUR_HELLO).await
    }

    async fn shake_hands_with(&mut self, our_hello: &[u8]) -> Handle {
        self.write(&HELLO).await;
        self.expect(our_hello).await;
        match self.events.recv().await {
            Some(Event::Up {
                connection: 7,
                handle,
                ..
            }) => handle,
            other => panic!("{other:?}"),
        }
    }

    async fn write(&mut self, bytes: &[u8]) {
        self.peer.write_all(bytes).await.unwrap();
    }

    async fn expect(&mut self, bytes: &[u8]) {
        let mut found = vec![0; bytes.len()];
        self.peer.read_exact(&mut found).await.unwrap();
        assert_eq!(found, bytes);
    }

    async fn frames(&mut self) -> BytesMut {
        match self.events.recv().await {
            Some(Event::Frames {
                connection: 7,
                bytes,
            }) => bytes,
            other => panic!("{other:?}"),
        }
    }

    /// Reads until the session closes its side; returns the data and the reason.
    async fn end(mut self) -> (Vec<u8>, Ended) {
        let mut rest = Vec::new();
        self.peer.read_to_end(&mut rest).await.unwrap();
        (rest, self.ended.await.unwrap())
    }
}

/// Returns the type and code of an encoded error message at the end of `bytes`.
fn error(bytes: &[u8]) -> (u16, u16) {
    let (header, frame) = messages(bytes).last().unwrap();
    assert_eq!(header.kind, kind::ERROR);
    (
        u16::from_be_bytes([frame[8], frame[9]]),
        u16::from_be_bytes([frame[10], frame[11]]),
    )
}

#[tokio::test]
async fn messages_in_the_same_packet_as_hello_are_not_lost() {
    let mut fixture = Fixture::controller();
    fixture
        .write(&[&HELLO[..], &BARRIER, &BARRIER[..3]].concat())
        .await;
    let Some(Event::Up { handle, .. }) = fixture.events.recv().await else {
        panic!()
    };
    assert_eq!(&fixture.frames().await[..], BARRIER);
    handle.resume();
    fixture.write(&BARRIER[3..]).await;
    assert_eq!(&fixture.frames().await[..], BARRIER);
}

#[tokio::test]
async fn a_handshake_byte_by_byte_is_a_handshake() {
    let mut fixture = Fixture::controller();
    for byte in [&OUR_HELLO[..], &BARRIER].concat() {
        fixture.write(&[byte]).await;
        tokio::task::yield_now().await;
    }
    assert!(matches!(
        fixture.events.recv().await,
        Some(Event::Up { .. })
    ));
    assert_eq!(&fixture.frames().await[..], BARRIER);
}

#[tokio::test]
async fn without_a_common_version_the_peer_is_told_why() {
    for (version, offer) in [
        (3, vec![3, 0, 0, 16, 0, 0, 0, 5, 0, 1, 0, 8, 0, 0, 0, 0x0c]),
        // Open vSwitch has no errors of version 7.
        (1, vec![7, 0, 0, 16, 0, 0, 0, 5, 0, 1, 0, 8, 0, 0, 0, 0x80]),
    ] {
        let mut fixture = Fixture::controller();
        fixture.write(&offer).await;
        fixture.expect(&OUR_HELLO).await;
        let (bytes, ended) = fixture.end().await;
        assert_eq!(
            error(&bytes),
            (0, 0),
            "OFPET_HELLO_FAILED, OFPHFC_INCOMPATIBLE"
        );
        assert_eq!((bytes[0], &bytes[4..8]), (version, &[0; 4][..]));
        assert_eq!(String::from_utf8_lossy(&bytes[12..]), ended.reason);
        assert!(
            !ended.established
                && ended
                    .reason
                    .contains("We support versions 0x01, 0x04, 0x05, 0x06"),
            "{ended:?}"
        );
    }
}

#[tokio::test]
async fn peers_that_do_not_begin_with_hello_are_refused_at_once() {
    let refused = [4, 1, 0, 15, 0, 0, 0, 1, 0, 0, 0, 0, b'n', b'o', b'!'];
    for (bytes, reason) in [
        (
            &b"GET / HTTP/1.1\r\n\r\n"[..],
            "does not speak OpenFlow: its first bytes are \"GET / HT\"",
        ),
        (
            &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc],
            "a message of type 3; expected HELLO",
        ),
        (&BARRIER, "a message of type 20"),
        (&[4, 0, 0, 7, 0, 0, 0, 0], "length 7"),
        (&refused, "the peer refused our HELLO: no!"),
    ] {
        let mut fixture = Fixture::controller();
        fixture.write(bytes).await;
        let (_, ended) = fixture.end().await;
        assert!(ended.reason.contains(reason), "{ended:?}");
        assert!(!ended.established);
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_peer_and_half_a_hello_are_given_up() {
    for half in [&[][..], &HELLO[..5]] {
        let mut fixture = Fixture::controller();
        fixture.write(half).await;
        let ended = fixture.ended.await.unwrap();
        assert_eq!(ended.reason, "no HELLO within 10 seconds");
    }
    let mut fixture = Fixture::controller();
    fixture.write(&HELLO[..5]).await;
    fixture.peer.shutdown().await.unwrap();
    let ended = fixture.ended.await.unwrap();
    assert_eq!(ended.reason, "closed by the peer during the handshake");
}

#[tokio::test]
async fn one_chunk_at_a_time_and_echoes_are_answered_meanwhile() {
    let (mut fixture, handle) = Fixture::established().await;
    fixture
        .write(&[&BARRIER[..], &[4, 2, 0, 9, 0, 0, 0, 3, 0xee]].concat())
        .await;
    fixture.expect(&[4, 3, 0, 9, 0, 0, 0, 3, 0xee]).await;
    assert_eq!(fixture.frames().await.len(), 17);
    fixture.write(&BARRIER.repeat(100)).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(
        fixture.events.try_recv().is_err(),
        "the engine has not resumed it"
    );
    handle.resume();
    assert_eq!(fixture.frames().await.len(), 800);
}

#[tokio::test]
async fn large_messages_and_many_small_ones_come_through_unchanged() {
    let (fixture, handle) = Fixture::established().await;
    let mut sent = Vec::new();
    for index in 0..2_000_u32 {
        let length = if index % 100 == 0 {
            65_535
        } else {
            8 + index % 200
        };
        let mut frame = vec![4, 13];
        frame.extend_from_slice(&u16::try_from(length).unwrap().to_be_bytes());
        frame.extend_from_slice(&index.to_be_bytes());
        frame.resize(length as usize, index.to_le_bytes()[0]);
        sent.extend_from_slice(&frame);
    }
    let Fixture {
        peer, mut events, ..
    } = fixture;
    let (mut reader, mut writer) = tokio::io::split(peer);
    let expected = sent.clone();
    let writing = tokio::spawn(async move { writer.write_all(&sent).await });
    let mut got = Vec::new();
    while got.len() < expected.len() {
        let Some(Event::Frames { bytes, .. }) = events.recv().await else {
            panic!()
        };
        got.extend_from_slice(&bytes);
        // And back.
        handle.write(bytes.to_vec());
        handle.resume();
    }
    writing.await.unwrap().unwrap();
    assert!(got == expected, "bytes differ on the way in");
    let mut back = vec![0; expected.len()];
    reader.read_exact(&mut back).await.unwrap();
    assert!(back == expected, "bytes differ on the way out");
    assert_eq!(handle.write(Vec::new()), 0, "nothing is unsent");
}

#[tokio::test]
async fn trouble_ends_a_session_after_the_answers_to_what_came_before_it() {
    let switch = || Peer::Switch(0, oneswitch_core::Bridge::Virt);
    let controller = || peer_on("ptcp:6653");
    for (peer, bytes, expected) in [
        (controller(), [4, 14, 0, 7, 0, 0, 0, 1], None),
        (switch(), [1, 14, 0, 72, 0, 0, 0, 1], Some((1, 0))),
        (switch(), [5, 13, 0, 0, 0, 0, 0, 1], Some((1, 0))),
    ] {
        let our_hello = match peer {
            Peer::Controller { .. } => OUR_HELLO,
            _ => HELLO_TO_SWITCHES,
        };
        let mut fixture = Fixture::new(peer, Timing::NETWORK, 1 << 20);
        let handle = fixture.shake_hands_with(&our_hello).await;
        fixture
            .write(&[&BARRIER[..], &bytes, &BARRIER].concat())
            .await;
        assert_eq!(&fixture.frames().await[..], BARRIER);
        handle.write(vec![4, 21, 0, 8, 0, 0, 0, 9]);
        handle.resume();
        fixture.expect(&[4, 21, 0, 8, 0, 0, 0, 9]).await;
        let (rest, ended) = fixture.end().await;
        let told = (!rest.is_empty()).then(|| error(&rest));
        assert_eq!(told, expected);
        assert!(ended.established);
    }
}

#[tokio::test]
async fn the_end_of_the_stream_is_told_apart_from_a_broken_message() {
    let (mut fixture, _handle) = Fixture::established().await;
    fixture.peer.shutdown().await.unwrap();
    let Some(Event::Down {
        connection: 7,
        reason,
    }) = fixture.events.recv().await
    else {
        panic!()
    };
    assert_eq!(reason, "closed by the peer");

    let (mut fixture, _handle) = Fixture::established().await;
    fixture.write(&BARRIER[..7]).await;
    fixture.peer.shutdown().await.unwrap();
    let ended = fixture.end().await.1;
    assert_eq!(
        ended.reason,
        "closed by the peer in the middle of a message"
    );
}

#[tokio::test]
async fn close_lets_everything_out_and_abort_does_not_wait() {
    let (fixture, handle) = Fixture::established().await;
    handle.write(BARRIER.repeat(3));
    handle.close("enough".into());
    let (rest, ended) = fixture.end().await;
    assert_eq!((rest, ended.reason.as_str()), (BARRIER.repeat(3), "enough"));

    let (fixture, handle) = Fixture::established().await;
    handle.abort("at once".into());
    assert_eq!(fixture.ended.await.unwrap().reason, "at once");

    let (fixture, handle) = Fixture::established().await;
    drop(handle);
    let ended = fixture.end().await.1;
    assert_eq!(ended.reason, "the engine closed the session");
}

#[tokio::test(start_paused = true)]
async fn an_idle_peer_is_asked_and_then_given_up() {
    let (mut fixture, _handle) = Fixture::established().await;
    for _ in 0..3 {
        fixture.expect(&[4, 2, 0, 8, 0, 0, 0, 0]).await;
        fixture.write(&[4, 3, 0, 8, 0, 0, 0, 0]).await;
        assert_eq!(fixture.frames().await.len(), 8);
        _handle.resume();
    }
    fixture.expect(&[4, 2, 0, 8, 0, 0, 0, 0]).await;
    let ended = fixture.ended.await.unwrap();
    assert_eq!(ended.reason, "no answer to an echo request for 5 seconds");
}

const ECHO: [u8; 8] = [4, 2, 0, 8, 0, 0, 0, 0];
const ECHO_REPLY: [u8; 8] = [4, 3, 0, 8, 0, 0, 0, 0];

async fn switch() -> (Fixture, Handle) {
    let peer = Peer::Switch(0, oneswitch_core::Bridge::Virt);
    let mut fixture = Fixture::new(peer, Timing::SWITCH, 1 << 20);
    let handle = fixture.shake_hands_with(&HELLO_TO_SWITCHES).await;
    (fixture, handle)
}

#[tokio::test(start_paused = true)]
async fn a_switch_that_hangs_is_reported_within_3_seconds_and_given_up_after_8() {
    let began = tokio::time::Instant::now();
    let (mut fixture, handle) = switch().await;
    for (is_silent, seconds) in [(true, 3), (false, 3), (true, 6)] {
        match fixture.events.recv().await {
            Some(Event::Silence {
                connection: 7,
                is_silent: told,
            }) => assert_eq!(told, is_silent),
            other => panic!("{other:?}"),
        }
        assert_eq!(began.elapsed().as_millis() / 10, seconds * 100);
        if is_silent {
            fixture.expect(&ECHO).await;
        }
        if seconds == 3 && is_silent {
            fixture.write(&ECHO_REPLY).await;
        } else if !is_silent {
            fixture.frames().await;
            handle.resume();
        }
    }
    let ended = fixture.ended.await.unwrap();
    assert_eq!(ended.reason, "no answer to an echo request for 7 seconds");
    assert_eq!(began.elapsed().as_secs(), 3 + 8);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_stood_still_does_not_make_a_switch_silent() {
    let (mut fixture, handle) = switch().await;
    fixture.expect(&ECHO).await;
    tokio::time::advance(Duration::from_secs(60)).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    fixture.write(&ECHO_REPLY).await;
    assert_eq!(fixture.frames().await.len(), 8);
    handle.resume();
    fixture.expect(&ECHO).await;
}

#[tokio::test(start_paused = true)]
async fn a_local_client_may_stay_silent() {
    let mut fixture = Fixture::new(peer_on("unix:/x"), Timing::LOCAL, 1 << 20);
    let handle = fixture.shake_hands().await;
    tokio::time::sleep(Duration::from_secs(86_400)).await;
    handle.write(BARRIER.to_vec());
    fixture.expect(&BARRIER).await;
}

#[tokio::test(start_paused = true)]
async fn waiting_for_the_engine_is_not_held_against_the_peer() {
    let (mut fixture, handle) = Fixture::established().await;
    fixture.write(&BARRIER).await;
    fixture.frames().await;
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert!(!fixture.ended.is_finished());
    handle.resume();
    fixture.expect(&[4, 2, 0, 8, 0, 0, 0, 0]).await;
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_does_not_read_is_read_no_further_and_then_given_up() {
    let mut fixture = Fixture::new(peer_on("ptcp:6653"), Timing::NETWORK, 1_024);
    let handle = fixture.shake_hands().await;
    assert!(!handle.is_stuck());
    let backlog = handle.write(vec![0; 2 << 20]);
    assert_eq!(backlog, 2 << 20);
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(handle.is_stuck());
    fixture.write(&BARRIER).await;
    let ended = fixture.ended.await.unwrap();
    assert!(
        ended
            .reason
            .starts_with("the peer has read nothing for 10 seconds; 2096128 bytes"),
        "{}",
        ended.reason
    );
    assert!(
        matches!(fixture.events.recv().await, Some(Event::Down { .. })),
        "its request was not processed"
    );
}

#[tokio::test(start_paused = true)]
async fn last_words_that_nobody_reads_do_not_keep_a_session() {
    let mut fixture = Fixture::new(peer_on("unix:/x"), Timing::LOCAL, 1_024);
    let handle = fixture.shake_hands().await;
    handle.write(vec![0; 4_096]);
    handle.close("enough".into());
    let ended = fixture.ended.await.unwrap();
    assert_eq!(ended.reason, "enough (and 3072 bytes could not be written)");
}

#[tokio::test]
async fn what_a_peer_said_before_it_left_is_heard() {
    let (ours, theirs) = tokio::net::UnixStream::pair().unwrap();
    let (sender, mut events) = mpsc::unbounded_channel();
    let peer = peer_on("unix:/x");
    let ended = tokio::spawn(async move {
        run(
            Stream::Unix(QuietUnixStream::new(ours).unwrap()),
            7,
            peer,
            Timing::LOCAL,
            &sender,
        )
        .await
    });
    let mut theirs = theirs;
    theirs.write_all(&HELLO).await.unwrap();
    let Some(Event::Up { handle, .. }) = events.recv().await else {
        panic!()
    };
    theirs.write_all(&BARRIER.repeat(2)).await.unwrap();
    drop(theirs);
    // A write fails now; the two barriers are still in the socket.
    handle.write(BARRIER.to_vec());
    let Some(Event::Frames { bytes, .. }) = events.recv().await else {
        panic!()
    };
    assert_eq!(bytes.len(), 16);
    handle.resume();
    assert!(ended.await.unwrap().established);
}

/// Streams of pseudo-random bytes after a handshake end in an error or a wait, never in a panic.
#[tokio::test(start_paused = true)]
async fn garbage_is_survived() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut byte = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    for round in 0..200_u32 {
        let mut fixture = Fixture::controller();
        if round % 2 == 0 {
            fixture.write(&HELLO).await;
        }
        let mut garbage: Vec<u8> = (0..2_000).map(|_| byte()).collect();
        if round % 4 == 0 {
            garbage[0] = 4;
        }
        fixture.write(&garbage).await;
        let Fixture {
            events: mut seen,
            ended,
            ..
        } = fixture;
        let mut handles = Vec::new();
        while let Some(event) = seen.recv().await {
            match event {
                Event::Up { handle, .. } => handles.push(handle),
                Event::Frames { bytes, .. } => {
                    assert_eq!(
                        messages(&bytes)
                            .map(|(_, frame)| frame.len())
                            .sum::<usize>(),
                        bytes.len()
                    );
                    handles.iter().for_each(Handle::resume);
                }
                _ => {}
            }
        }
        ended.await.unwrap();
    }
}
