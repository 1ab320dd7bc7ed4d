//! The established part of a session: reads and writes until either side ends it.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use openflow13::kind;
use socket2::Socket;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::{sleep_until, Instant};

use super::frames::{bare, scan, Trouble};
use crate::events::{Backlog, Command, Event};

/// Bytes of one read. Larger than the largest message, so that a buffer always holds one.
const READ_SIZE: usize = 128 * 1024;
/// Above this many unsent bytes, no more requests of a controller are read, as in Open vSwitch: it must read its replies.
const REPLY_BACKLOG: usize = 1 << 20;
/// Slices of one write.
const SLICES: usize = 32;
/// Limit for the last bytes to a peer that is being disconnected.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Times of a session; the tests do not shorten them but stop the clock.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Limit for the peer's HELLO.
    pub handshake: Duration,
    /// `None`: the peer may stay idle, as on Open vSwitch's local management sockets.
    pub probe: Option<Probe>,
}

/// Times of the echo requests that find out whether a peer hangs.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// Idle time after which a peer gets an echo request.
    pub idle: Duration,
    /// Time without an answer after which the engine learns of the silence. `None`: it does not.
    pub silent: Option<Duration>,
    /// Time without an answer until the peer is disconnected.
    pub lost: Duration,
}

impl Timing {
    pub const NETWORK: Self = Self {
        handshake: Duration::from_secs(10),
        probe: Some(Probe {
            idle: Duration::from_secs(5),
            silent: None,
            lost: Duration::from_secs(5),
        }),
    };
    /// For the bridges that forward: people must learn within 5 seconds that a switch hangs.
    pub const SWITCH: Self = Self {
        handshake: Duration::from_secs(10),
        probe: Some(Probe {
            idle: Duration::from_secs(1),
            silent: Some(Duration::from_secs(2)),
            lost: Duration::from_secs(7),
        }),
    };
    pub const LOCAL: Self = Self {
        handshake: Duration::from_secs(10),
        probe: None,
    };
}

/// A timer that fires this late shows that this process, and perhaps the machine, stood still.
const STALLED: Duration = Duration::from_millis(500);

pub struct Pump<'a> {
    connection: u64,
    /// The agreed version of OpenFlow.
    version: u8,
    /// A switch is read however much it has yet to read itself.
    is_switch: bool,
    timing: Timing,
    events: &'a mpsc::UnboundedSender<Event>,
    /// Bytes in `unsent` and on their way to it; shared with the engine.
    backlog: Arc<Backlog>,
    /// While it is here, the engine writes to it if nothing is queued.
    socket: Option<Arc<Socket>>,
    unsent: VecDeque<Vec<u8>>,
    /// Bytes of the first of `unsent` that are written.
    sent: usize,
    /// Written only into the stream's own buffer (TLS).
    unflushed: bool,
    /// Nothing can be written any more.
    mute: bool,
    /// The engine has dropped its handle.
    orphaned: bool,
    /// The engine is ready for a chunk.
    ready: bool,
    /// The engine waits until at most this many bytes are unsent.
    tell_room: Option<usize>,
    trouble: Option<Trouble>,
    closing: Option<(String, Instant)>,
    heard: Instant,
    /// The time since which an echo request is unanswered.
    probed: Option<Instant>,
    /// The engine knows that it has been unanswered for long.
    told_silent: bool,
    /// The last time that bytes could be written or none waited.
    wrote: Instant,
}

impl<'a> Pump<'a> {
    pub fn new(
        connection: u64,
        version: u8,
        is_switch: bool,
        timing: Timing,
        backlog: Arc<Backlog>,
        socket: Option<Arc<Socket>>,
        events: &'a mpsc::UnboundedSender<Event>,
    ) -> Self {
        let now = Instant::now();
        Self {
            connection,
            version,
            is_switch,
            timing,
            events,
            backlog,
            socket,
            unsent: VecDeque::new(),
            sent: 0,
            unflushed: false,
            mute: false,
            orphaned: false,
            ready: true,
            tell_room: None,
            trouble: None,
            closing: None,
            heard: now,
            probed: None,
            told_silent: false,
            wrote: now,
        }
    }

    /// Runs until the connection ends and returns the reason. `buffer` holds data that arrived with the handshake.
    pub async fn run<S>(
        mut self,
        stream: S,
        mut buffer: BytesMut,
        mut commands: mpsc::UnboundedReceiver<Command>,
    ) -> String
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let (mut reader, mut writer) = tokio::io::split(stream);
        let mut timer = pin!(sleep_until(self.deadline()));
        self.take_in(&mut buffer);
        loop {
            let reading = self.reading();
            if reading && buffer.capacity() - buffer.len() < READ_SIZE / 2 {
                buffer.reserve(READ_SIZE);
            }
            tokio::select! {
                biased;
                command = commands.recv(), if !self.orphaned => {
                    let mut next = command;
                    if next.is_none() {
                        self.orphaned = true;
                        self.close("the engine closed the session".into());
                    }
                    while let Some(command) = next {
                        if let Some(reason) = self.obey(command) {
                            return reason;
                        }
                        next = commands.try_recv().ok();
                    }
                }
                result = push_out(&mut writer, &self.unsent, self.sent), if self.unflushed || !self.unsent.is_empty() => match result {
                    Ok(0) => self.unflushed = false,
                    Ok(count) => self.written(count),
                    Err(_) => self.fall_mute(),
                },
                // Its turn comes only if the stream has taken nothing.
                () = std::future::ready(()), if !self.unsent.is_empty() && !self.backlog.is_stuck() => {
                    self.backlog.set_stuck(true);
                }
                result = reader.read_buf(&mut buffer), if reading => match result {
                    Ok(0) if buffer.is_empty() => return "closed by the peer".into(),
                    Ok(0) => return "closed by the peer in the middle of a message".into(),
                    Ok(_) => {
                        self.heard = Instant::now();
                        self.tell_silence(false);
                        let was_probed = self.probed.take().is_some();
                        self.take_in(&mut buffer);
                        if was_probed {
                            // It stands at the end of the answered request's time.
                            let next = self.deadline();
                            timer.as_mut().reset(next);
                        }
                    }
                    Err(error) => return error.to_string(),
                },
                () = &mut timer => {
                    if let Some(reason) = self.look_at_clock(timer.deadline()) {
                        return reason;
                    }
                    let next = self.deadline();
                    timer.as_mut().reset(next);
                }
            }
            if let Some((reason, deadline)) = &self.closing {
                if self.unsent.is_empty() && !self.unflushed {
                    // The peer may have disconnected already.
                    let _ = writer.shutdown().await;
                    return reason.clone();
                }
                if *deadline < timer.deadline() {
                    timer.as_mut().reset(*deadline);
                }
            }
        }
    }

    fn reading(&self) -> bool {
        let attentive = self.is_switch || self.backlog.bytes() < REPLY_BACKLOG;
        self.ready && attentive && self.trouble.is_none() && self.closing.is_none()
    }

    /// Hands the complete messages of the buffer to the engine.
    fn take_in(&mut self, buffer: &mut BytesMut) {
        let found = scan(buffer, self.is_switch);
        if !found.echo_replies.is_empty() {
            self.push(found.echo_replies);
        }
        self.trouble = found.trouble;
        if found.whole > 0 {
            self.ready = false;
            let bytes = buffer.split_to(found.whole);
            // Without an engine no more commands arrive either, and `run` ends.
            let _ = self.events.send(Event::Frames {
                connection: self.connection,
                bytes,
            });
        } else {
            self.give_up_if_troubled();
        }
    }

    /// Executes a command; returns the reason if the session ends at once.
    fn obey(&mut self, command: Command) -> Option<String> {
        match command {
            Command::Write(bytes) => self.enqueue(bytes),
            Command::Resume => {
                self.ready = true;
                // Time in which this session did not read does not count as the peer's silence.
                self.heard = Instant::now();
                self.give_up_if_troubled();
            }
            Command::TellRoom(limit) => {
                self.tell_room = Some(limit);
                self.look_for_room();
            }
            Command::Close(reason) => self.close(reason),
            Command::Abort(reason) => return Some(reason),
        }
        None
    }

    /// Reports room to the engine if it asked and enough of the queue is written.
    fn look_for_room(&mut self) {
        let backlog = self.backlog.bytes();
        if self.tell_room.take_if(|limit| backlog <= *limit).is_some() {
            let connection = self.connection;
            // Without an engine nothing waits.
            let _ = self.events.send(Event::Room { connection });
        }
    }

    /// Sends the last message once everything before the invalid data is answered.
    fn give_up_if_troubled(&mut self) {
        if let Some(trouble) = self.trouble.take() {
            self.push(trouble.error);
            self.close(trouble.reason);
        }
    }

    fn close(&mut self, reason: String) {
        self.closing
            .get_or_insert((reason, Instant::now() + LAST_WORDS));
    }

    /// Queues the session's own message.
    fn push(&mut self, bytes: Vec<u8>) {
        self.backlog.add(bytes.len());
        self.enqueue(bytes);
    }

    /// Queues bytes that the backlog already counts.
    fn enqueue(&mut self, bytes: Vec<u8>) {
        if self.mute {
            self.backlog.remove(bytes.len());
            return;
        }
        if self.unsent.is_empty() {
            self.wrote = Instant::now();
        }
        if !bytes.is_empty() {
            self.unsent.push_back(bytes);
        }
    }

    /// Stops writing, because the peer accepts no more. Its earlier input is still read: it may have disconnected because it had sent
    /// everything.
    fn fall_mute(&mut self) {
        self.mute = true;
        // The engine must not write either: the last message may be half written.
        self.socket = None;
        self.unflushed = false;
        let unsent: usize = self.unsent.drain(..).map(|bytes| bytes.len()).sum();
        self.backlog.remove(unsent - std::mem::take(&mut self.sent));
        self.backlog.set_stuck(false);
        self.look_for_room();
    }

    fn written(&mut self, count: usize) {
        self.wrote = Instant::now();
        self.unflushed = true;
        self.backlog.remove(count);
        self.backlog.set_stuck(false);
        self.sent += count;
        while let Some(first) = self.unsent.front() {
            let Some(rest) = self.sent.checked_sub(first.len()) else {
                break;
            };
            self.sent = rest;
            self.unsent.pop_front();
        }
        self.look_for_room();
    }

    fn deadline(&self) -> Instant {
        let far = Instant::now() + Duration::from_secs(3_600);
        let Some(probe) = self.timing.probe else {
            return far;
        };
        let heard = match self.probed {
            _ if !self.reading() => Instant::now() + probe.idle,
            Some(since) => {
                let next = probe.silent.filter(|_| !self.told_silent);
                since + next.unwrap_or(probe.lost)
            }
            None => self.heard + probe.idle,
        };
        let wrote = if self.unsent.is_empty() {
            far
        } else {
            self.wrote + probe.idle + probe.lost
        };
        heard.min(wrote)
    }

    /// Checks the timers, which were to fire at `due`; returns the reason to disconnect, if any.
    fn look_at_clock(&mut self, due: Instant) -> Option<String> {
        let now = Instant::now();
        if let Some((reason, deadline)) = &self.closing {
            return (now >= *deadline).then(|| {
                format!(
                    "{reason} (and {} bytes could not be written)",
                    self.backlog.bytes()
                )
            });
        }
        let probe = self.timing.probe?;
        let unread = probe.idle + probe.lost;
        if !self.unsent.is_empty() && now >= self.wrote + unread {
            let unsent = self.backlog.bytes();
            return Some(format!(
                "the peer has read nothing for {} seconds; {unsent} bytes are unsent",
                unread.as_secs()
            ));
        }
        if !self.reading() {
            self.heard = now;
            self.probed = None;
            return None;
        }
        match self.probed {
            // The peer may have stood still with this process.
            Some(_) if now >= due + STALLED => self.probed = Some(now),
            Some(since) if now >= since + probe.lost => {
                return Some(format!(
                    "no answer to an echo request for {} seconds",
                    probe.lost.as_secs()
                ));
            }
            Some(since) if probe.silent.is_some_and(|silent| now >= since + silent) => {
                self.tell_silence(true);
            }
            Some(_) => {}
            None if now >= self.heard + probe.idle => {
                self.push(bare(self.version, kind::ECHO_REQUEST, 0));
                self.probed = Some(now);
            }
            None => {}
        }
        None
    }

    /// Reports to the engine that the peer does not answer, or answers again.
    fn tell_silence(&mut self, is_silent: bool) {
        if self.told_silent != is_silent {
            self.told_silent = is_silent;
            // Without an engine nobody looks.
            let _ = self.events.send(Event::Silence {
                connection: self.connection,
                is_silent,
            });
        }
    }
}

/// Writes as much of the queue as the stream takes, after the first `sent` bytes; flushes when the queue is empty. Returns the number of
/// bytes written, 0 after flushing.
async fn push_out<W>(writer: &mut W, unsent: &VecDeque<Vec<u8>>, sent: usize) -> io::Result<usize>
where
    W: AsyncWrite + Unpin,
{
    let count = match unsent.len() {
        0 => {
            writer.flush().await?;
            return Ok(0);
        }
        1 => {
            writer
                .write(
                    unsent
                        .front()
                        .and_then(|first| first.get(sent..))
                        .unwrap_or_default(),
                )
                .await?
        }
        _ => {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let mut skip = sent;
            for (slice, bytes) in slices.iter_mut().zip(unsent) {
                *slice = IoSlice::new(bytes.get(std::mem::take(&mut skip)..).unwrap_or_default());
            }
            writer
                .write_vectored(slices.get(..unsent.len().min(SLICES)).unwrap_or_default())
                .await?
        }
    };
    if count == 0 {
        return Err(io::ErrorKind::WriteZero.into());
    }
    Ok(count)
}
