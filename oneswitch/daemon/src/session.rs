//! One OpenFlow connection, to a controller or to a switch: handshake, splitting, echoes, keep-alive, writing.
//!
//! A session is one task. It hands chunks of complete messages to the engine as [`Event::Frames`] and resumes reading on
//! [`Command::Resume`](crate::events::Command::Resume): at most one chunk per connection is in flight, so a busy engine slows its peers down instead of filling memory. The
//! engine writes to the socket itself while nothing is queued; the rest, and everything over TLS, arrives as [`Command::Write`](crate::events::Command::Write).

mod frames;
mod hello;
mod pump;
#[cfg(test)]
mod socket_tests;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::BytesMut;
use openflow13::{frame_length, kind, Header, Hello, HEADER_LEN};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::events::{Backlog, Event, Handle, Peer};
use crate::stream::Transport;
pub use frames::{is_echo, is_private, messages};
pub use pump::Timing;

/// How a session ended.
#[derive(Debug)]
pub struct Ended {
    pub reason: String,
    /// Whether the handshake succeeded.
    pub established: bool,
}

/// Runs a connection from the first HELLO to its end. `connection` is never reused.
pub async fn run<S>(
    mut stream: S,
    connection: u64,
    peer: Peer,
    timing: Timing,
    events: &mpsc::UnboundedSender<Event>,
) -> Ended
where
    S: Transport,
{
    let mut buffer = BytesMut::new();
    let versions = hello::supported(&peer);
    let greeting = greet(&mut stream, &mut buffer, versions);
    let greeted = match timeout(timing.handshake, greeting).await {
        Ok(greeted) => greeted,
        Err(_) => Err(format!(
            "no HELLO within {} seconds",
            timing.handshake.as_secs()
        )),
    };
    let version = match greeted {
        Ok(version) => version,
        Err(reason) => {
            return Ended {
                reason,
                established: false,
            }
        }
    };
    let (sender, commands) = mpsc::unbounded_channel();
    let backlog = Arc::<Backlog>::default();
    let socket = stream.socket().map(Arc::new);
    let shared = socket.as_ref().map(Arc::downgrade).unwrap_or_default();
    let handle = Handle::new(sender, Arc::clone(&backlog), shared);
    let is_switch = matches!(peer, Peer::Switch(..));
    let up = Event::Up {
        connection,
        peer,
        version,
        handle,
    };
    let reason = if events.send(up).is_err() {
        "the engine has stopped".to_owned()
    } else {
        pump::Pump::new(
            connection, version, is_switch, timing, backlog, socket, events,
        )
        .run(stream, buffer, commands)
        .await
    };
    // The engine may have stopped; then the result does not matter.
    let _ = events.send(Event::Down {
        connection,
        reason: reason.clone(),
    });
    Ended {
        reason,
        established: true,
    }
}

/// Exchanges HELLOs, ours with the bitmap `versions`; returns the version agreed on. Data after the peer's HELLO stays in `buffer`.
async fn greet<S>(stream: &mut S, buffer: &mut BytesMut, versions: u32) -> Result<u8, String>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let broken = |error: std::io::Error| format!("handshake: {error}");
    let hello = Hello::new(versions).to_frame(1);
    stream.write_all(&hello).await.map_err(broken)?;
    stream.flush().await.map_err(broken)?;
    loop {
        if let Some(header) = Header::parse(buffer) {
            if !matches!(header.kind, kind::HELLO | kind::ERROR) {
                return Err(
                    match std::str::from_utf8(buffer.get(..HEADER_LEN).unwrap_or_default()) {
                        Ok(text)
                            if text
                                .bytes()
                                .all(|byte| byte.is_ascii_graphic() || byte == b' ') =>
                        {
                            format!(
                                "the peer does not speak OpenFlow: its first bytes are \"{text}\""
                            )
                        }
                        _ => format!("a message of type {}; expected HELLO", header.kind),
                    },
                );
            }
            match frame_length(buffer) {
                Ok(Some(length)) => {
                    let frame = buffer.split_to(length);
                    return answer_hello(stream, header, &frame, versions).await;
                }
                Ok(None) => {}
                Err(refusal) => return Err(format!("handshake: {}", refusal.detail)),
            }
        }
        if stream.read_buf(buffer).await.map_err(broken)? == 0 {
            return Err("closed by the peer during the handshake".into());
        }
    }
}

async fn answer_hello<S>(
    stream: &mut S,
    header: Header,
    frame: &[u8],
    versions: u32,
) -> Result<u8, String>
where
    S: AsyncWrite + Unpin,
{
    if header.kind == kind::ERROR {
        let text = String::from_utf8_lossy(frame.get(12..).unwrap_or_default()).into_owned();
        return Err(format!("the peer refused our HELLO: {text}"));
    }
    let refused = match hello::negotiate(frame, versions) {
        Ok(version) => return Ok(version),
        Err(refused) => refused,
    };
    // The peer may have disconnected already; the reason below is what counts.
    let _ = stream.write_all(&refused.error).await;
    let _ = stream.shutdown().await;
    Err(refused.text)
}
