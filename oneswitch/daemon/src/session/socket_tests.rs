//! Writing to a session whose transport is a bare socket.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use socket2::Socket;
use tokio::io::ReadBuf;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::*;
use crate::quiet_unix::QuietUnixStream;
use crate::stream::Stream;

const HELLO: [u8; 8] = [4, 0, 0, 8, 0, 0, 0, 9];
const OUR_HELLO: usize = 16;

/// The peer's end, the engine's, its events, and the result.
type Established = (
    StdUnixStream,
    Handle,
    mpsc::UnboundedReceiver<Event>,
    JoinHandle<Ended>,
);

/// Creates a session with a completed handshake.
async fn established() -> Established {
    established_over(|stream| stream).await
}

async fn established_over<T: Transport + Send + 'static>(over: fn(Stream) -> T) -> Established {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut theirs = theirs.into_std().unwrap();
    let stream = over(Stream::Unix(QuietUnixStream::new(ours).unwrap()));
    let peer = Peer::Controller {
        target: Arc::from("punix:/c"),
        dialled: None,
        address: String::new(),
    };
    let (sender, mut events) = mpsc::unbounded_channel();
    let ended = tokio::spawn(async move { run(stream, 7, peer, Timing::LOCAL, &sender).await });
    theirs.write_all(&HELLO).unwrap();
    let Some(Event::Up { handle, .. }) = events.recv().await else {
        panic!()
    };
    theirs.read_exact(&mut [0; OUR_HELLO]).unwrap();
    (theirs, handle, events, ended)
}

#[tokio::test]
async fn a_socket_with_room_has_the_bytes_before_the_session_runs() {
    let (mut peer, handle, _events, _ended) = established().await;
    for sent in [*b"first", *b"again"] {
        assert_eq!(handle.write(sent.to_vec()), 0);
        let mut found = [0; 5];
        peer.read_exact(&mut found).unwrap();
        assert_eq!(found, sent);
    }
}

#[tokio::test]
async fn bytes_that_a_socket_does_not_take_follow_in_order() {
    let (mut peer, handle, _events, ended) = established().await;
    peer.set_nonblocking(false).unwrap();
    let numbers = |chunk: u32| (0..2_000).flat_map(move |n| (chunk * 2_000 + n).to_be_bytes());
    let mut waiting = 0;
    for chunk in 0..200 {
        waiting = handle.write(numbers(chunk).collect());
        // The session gets turns in which the peer has not read, and some of the later chunks find its queue empty.
        tokio::task::yield_now().await;
    }
    assert!(waiting > 0, "the socket took everything");
    let reader = tokio::task::spawn_blocking(move || {
        let mut found = Vec::new();
        peer.read_to_end(&mut found).unwrap();
        found
    });
    for chunk in 200..400 {
        handle.write(numbers(chunk).collect());
        tokio::task::yield_now().await;
    }
    handle.close("done".into());
    let found = reader.await.unwrap();
    assert!(found == (0..400).flat_map(numbers).collect::<Vec<u8>>());
    assert_eq!(ended.await.unwrap().reason, "done");
    assert_eq!(handle.backlog(), 0);
}

#[tokio::test]
async fn a_peer_that_has_left_ends_the_session_whatever_is_written() {
    let (peer, handle, _events, ended) = established().await;
    drop(peer);
    handle.write(b"unread".to_vec());
    assert_eq!(ended.await.unwrap().reason, "closed by the peer");
    assert_eq!(handle.backlog(), 0);
    // The socket is closed: a write afterwards goes nowhere and harms nothing.
    handle.write(b"later".to_vec());
}

/// A socket of which the session's own writes fail, as without a free file descriptor to wait with, while its duplicate works.
struct Broken(Stream);

impl Transport for Broken {
    fn socket(&self) -> Option<Socket> {
        self.0.socket()
    }
}

impl AsyncRead for Broken {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Broken {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        // The session's HELLO.
        match bytes.len() {
            OUR_HELLO => Pin::new(&mut self.0).poll_write(cx, bytes),
            _ => Poll::Ready(Err(io::ErrorKind::Other.into())),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[tokio::test]
async fn no_message_follows_half_of_one() {
    let (mut peer, handle, _events, _ended) = established_over(Broken).await;
    while handle.write(vec![1; 100_000]) == 0 {}
    // The session fails to write the rest.
    while handle.backlog() > 0 {
        tokio::task::yield_now().await;
    }
    peer.set_nonblocking(true).unwrap();
    let mut drain = || {
        let mut found = Vec::new();
        assert!(peer.read_to_end(&mut found).is_err(), "closed");
        found
    };
    assert!(drain().len() % 100_000 != 0, "no message was cut");
    handle.write(vec![2; 100]);
    tokio::task::yield_now().await;
    assert_eq!(drain(), b"");
}
