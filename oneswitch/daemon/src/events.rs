//! The engine's events, and its ends of sessions and requests.

mod problem;
mod requests;
mod status;
mod writers;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use bytes::BytesMut;
use oneswitch_core::{Bridge, OffloadError, OffloadHello, OffloadRequest, SwitchIndex};
use socket2::Socket;
use tokio::sync::{mpsc, oneshot};

pub use problem::Problem;
pub use requests::{Answer, Reply, Request};
pub use status::{
    BridgeStatus, ControllerStatus, GatheredStatus, LinkStatus, OffloadStatus, Status,
    SwitchStatus, VirtualStatus,
};
pub use writers::{WriterCommand, WriterHandle};

/// An event for the engine.
#[derive(Debug)]
pub enum Event {
    /// A session has completed its handshake.
    Up {
        connection: u64,
        peer: Peer,
        /// The agreed version of OpenFlow.
        version: u8,
        handle: Handle,
    },
    /// Complete messages; the session waits for [`Handle::resume`].
    Frames { connection: u64, bytes: BytesMut },
    /// A controller has read enough to receive more; see [`Handle::tell_room`].
    Room { connection: u64 },
    /// A switch does not answer an echo request, or answers again; see [`Timing`](crate::session::Timing).
    Silence { connection: u64, is_silent: bool },
    /// A session has ended.
    Down { connection: u64, reason: String },
    /// A peer that oneswitchd connects to has changed its state without a session.
    Dial { dialled: Dialled, link: Link },
    /// A request of the REST API.
    Request {
        request: Request,
        reply: oneshot::Sender<Reply>,
    },
    /// A writer of offloaded flows has said hello.
    Writer {
        writer: u64,
        hello: OffloadHello,
        handle: WriterHandle,
    },
    /// Requests of a writer, and the reason why nothing after them can be read; its session waits for [`WriterHandle::resume`].
    WriterLines {
        writer: u64,
        requests: Vec<OffloadRequest>,
        trouble: Option<OffloadError>,
    },
    /// A writer's connection has ended.
    WriterGone { writer: u64 },
    /// The cached flows of a switch at the time of the core's order have ended, or it does not tell.
    CacheEnded {
        switch: SwitchIndex,
        has_ended: bool,
    },
    /// Stop the engine.
    Stop,
}

/// A peer that oneswitchd keeps connecting to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialled {
    Controller(usize),
    Switch(SwitchIndex, Bridge),
}

/// State of a peer that oneswitchd connects to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Link {
    Connected,
    /// Connected, but it does not answer: its process hangs, or the machine between does not carry anything.
    Silent,
    Connecting {
        last_error: Option<String>,
    },
    Backoff {
        last_error: String,
    },
    /// As backoff. Its socket refuses connections, so the process has ended.
    Dead {
        last_error: String,
    },
}

impl Link {
    pub fn state(&self) -> &'static str {
        match self {
            Self::Connected | Self::Silent => "connected",
            Self::Connecting { .. } => "connecting",
            Self::Backoff { .. } | Self::Dead { .. } => "backoff",
        }
    }

    pub fn last_error(&self) -> Option<String> {
        match self {
            Self::Connected | Self::Silent => None,
            Self::Connecting { last_error } => last_error.clone(),
            Self::Backoff { last_error } | Self::Dead { last_error } => Some(last_error.clone()),
        }
    }
}

/// The peer of a session.
#[derive(Clone, Debug)]
pub enum Peer {
    Controller {
        /// The endpoint as configured.
        target: Arc<str>,
        /// Its index among the controllers that oneswitchd connects to; `None` if it connected to us.
        dialled: Option<usize>,
        /// Its address, for people.
        address: String,
    },
    Switch(SwitchIndex, Bridge),
    /// The bridge `virt` of a switch, which sends the packets that meet no rule.
    Misses(SwitchIndex),
    /// The same bridge over OpenFlow 1.0, which tells the ages of rules, and gets the flags of ports.
    Version10(SwitchIndex),
    /// The same bridge, which gets the properties of groups.
    Properties(SwitchIndex),
    /// The bridge `edge` over OpenFlow 1.4, which tells the counters of ports.
    PortCounters(SwitchIndex),
    /// The bridge `virt`, which sends the packet-ins of actions with this id.
    Collector(SwitchIndex, u16),
}

/// A command of the engine to a session.
#[derive(Debug)]
pub enum Command {
    /// Complete messages to write, in order.
    Write(Vec<u8>),
    /// The last chunk is processed: resume reading.
    Resume,
    /// Report once when the peer has read enough to receive more.
    TellRoom(usize),
    /// Disconnect after writing everything queued before.
    Close(String),
    /// Disconnect now.
    Abort(String),
}

/// The output of a session that its stream has not taken yet. The session and the engine share it.
#[derive(Debug, Default)]
pub struct Backlog {
    bytes: AtomicUsize,
    is_stuck: AtomicBool,
}

impl Backlog {
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Adds bytes; returns how many wait then.
    pub fn add(&self, count: usize) -> usize {
        self.bytes.fetch_add(count, Ordering::Relaxed) + count
    }

    pub fn remove(&self, count: usize) {
        self.bytes.fetch_sub(count, Ordering::Relaxed);
    }

    /// Tells whether the stream took nothing when the session last tried to write.
    pub fn is_stuck(&self) -> bool {
        self.is_stuck.load(Ordering::Relaxed)
    }

    pub fn set_stuck(&self, is_stuck: bool) {
        self.is_stuck.store(is_stuck, Ordering::Relaxed);
    }
}

/// The engine's end of a session.
#[derive(Clone, Debug)]
pub struct Handle {
    commands: mpsc::UnboundedSender<Command>,
    backlog: Arc<Backlog>,
    /// The session's socket while bytes may be written to it directly.
    socket: Weak<Socket>,
}

impl Handle {
    pub fn new(
        commands: mpsc::UnboundedSender<Command>,
        backlog: Arc<Backlog>,
        socket: Weak<Socket>,
    ) -> Self {
        Self {
            commands,
            backlog,
            socket,
        }
    }

    /// Writes complete messages, or queues what the socket does not take at once; returns the number of bytes waiting to be written.
    pub fn write(&self, mut bytes: Vec<u8>) -> usize {
        if self.backlog.bytes() == 0 {
            // The queue is empty, so writing here keeps the order and spares the session a wake-up. The session runs on this thread, so it
            // cannot queue anything before `add`. After an error the message is queued, and the session's own write fails.
            let sent = self
                .socket
                .upgrade()
                .and_then(|socket| socket.send(&bytes).ok());
            match sent {
                Some(count) if count == bytes.len() => return 0,
                Some(count) => drop(bytes.drain(..count)),
                None => {}
            }
        }
        let backlog = self.backlog.add(bytes.len());
        self.send(Command::Write(bytes));
        backlog
    }

    /// Returns the number of bytes waiting to be written.
    pub fn backlog(&self) -> usize {
        self.backlog.bytes()
    }

    /// Tells whether the peer's socket took no more of them at the last try.
    pub fn is_stuck(&self) -> bool {
        self.backlog.is_stuck()
    }

    pub fn resume(&self) {
        self.send(Command::Resume);
    }

    /// Requests one [`Event::Room`] when at most `limit` bytes of the queue are left to be written.
    pub fn tell_room(&self, limit: usize) {
        self.send(Command::TellRoom(limit));
    }

    pub fn close(&self, reason: String) {
        self.send(Command::Close(reason));
    }

    pub fn abort(&self, reason: String) {
        self.send(Command::Abort(reason));
    }

    fn send(&self, command: Command) {
        // An ended session has reported it, or will with the next event.
        let _ = self.commands.send(command);
    }
}
