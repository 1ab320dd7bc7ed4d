//! Connections between two instances, on which every wait has a limit.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{TcpListener, TcpStream, ToSocketAddrs},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::{UnixListener, UnixStream},
    },
    sync::{
        atomic::{AtomicU8, Ordering},
        Arc,
    },
    time::{Duration, Instant},
};

use rustix::event::{poll, PollFd, PollFlags, Timespec};

use super::namespace::open_in_machine;
use crate::Refusal;

/// The interval at which a wait checks whether it was ended.
pub(super) const LOOK: Duration = Duration::from_millis(20);

/// A handle that ends waits before their limit, from another thread.
#[derive(Clone, Debug, Default)]
pub(super) struct Over(Arc<AtomicU8>);

const OPEN: u8 = 0;
const OVER: u8 = 1;
const KEPT: u8 = 2;

impl Over {
    /// Ends waits, now and later, unless they are [kept](Self::keep).
    pub(super) fn set(&self) {
        let _ = self
            .0
            .compare_exchange(OPEN, OVER, Ordering::AcqRel, Ordering::Acquire);
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire) == OVER
    }

    /// Protects the waits from being ended from here on; false: they have been ended.
    pub(super) fn keep(&self) -> bool {
        let kept = self
            .0
            .compare_exchange(OPEN, KEPT, Ordering::AcqRel, Ordering::Acquire);
        kept.is_ok() || kept == Err(KEPT)
    }
}

/// The limits of a connection's reads and writes.
#[derive(Clone, Debug)]
pub(super) struct Patience {
    /// The limit without any progress; None: unlimited.
    pub(super) stall: Option<Duration>,
    /// The limit of the whole exchange.
    pub(super) until: Option<Instant>,
    pub(super) over: Over,
}

impl Patience {
    /// Checks the limit of the whole exchange, which a peer that sends byte after byte does not extend.
    fn check_until(&self) -> io::Result<()> {
        match self.until {
            Some(until) if Instant::now() >= until => {
                Err(timed_out("the exchange took too long".into()))
            }
            _ => Ok(()),
        }
    }

    /// Checks whether a wait that began at `began` may continue.
    fn check(&self, began: Instant) -> io::Result<()> {
        if self.over.is_set() {
            return Err(timed_out("the wait was ended".into()));
        }
        match self.stall {
            Some(stall) if began.elapsed() >= stall => {
                Err(timed_out(format!("no progress within {stall:?}")))
            }
            _ => self.check_until(),
        }
    }
}

fn timed_out(what: String) -> io::Error {
    io::Error::new(ErrorKind::TimedOut, what)
}

fn is_idle(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}

/// A stream socket of either address family: `unix:/path`, `tcp:host:port`.
#[derive(Debug)]
enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// A connection. After its waits were ended, it reads bytes that are there but no longer writes.
#[derive(Debug)]
pub(super) struct Connection {
    socket: Socket,
    pub(super) patience: Patience,
}

impl Connection {
    fn new(socket: Socket, patience: Patience) -> io::Result<Self> {
        match &socket {
            Socket::Unix(stream) => {
                stream.set_nonblocking(false)?;
                stream.set_read_timeout(Some(LOOK))?;
                stream.set_write_timeout(Some(LOOK))?;
            }
            Socket::Tcp(stream) => {
                stream.set_nonblocking(false)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(LOOK))?;
                stream.set_write_timeout(Some(LOOK))?;
            }
        }
        Ok(Self { socket, patience })
    }

    /// # Errors
    /// If nothing listens at `to`, or it is not an address.
    pub(super) fn connect(
        to: &str,
        longest: Duration,
        patience: Patience,
    ) -> Result<Self, Refusal> {
        let failed = |error| Refusal::new("peer", format!("cannot connect to {to:?}: {error}"));
        let socket = match to.split_once(':') {
            Some(("unix", path)) => UnixStream::connect(path)
                .map(Socket::Unix)
                .map_err(failed)?,
            Some(("tcp", address)) => open_in_machine(|| {
                let mut addresses = address.to_socket_addrs()?;
                let address = addresses
                    .next()
                    .ok_or_else(|| io::Error::other("the name has no address"))?;
                TcpStream::connect_timeout(&address, longest)
            })
            .map(Socket::Tcp)
            .map_err(failed)?,
            _ => {
                let detail =
                    format!("{to:?} is not an address, expected unix:/path or tcp:host:port");
                return Err(Refusal::new("malformed", detail));
            }
        };
        Self::new(socket, patience).map_err(failed)
    }

    pub(super) fn try_clone(&self) -> io::Result<Self> {
        let socket = match &self.socket {
            Socket::Unix(stream) => Socket::Unix(stream.try_clone()?),
            Socket::Tcp(stream) => Socket::Tcp(stream.try_clone()?),
        };
        Ok(Self {
            socket,
            patience: self.patience.clone(),
        })
    }
}

impl Read for Connection {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let began = Instant::now();
        loop {
            self.patience.check_until()?;
            let read = match &mut self.socket {
                Socket::Unix(stream) => stream.read(into),
                Socket::Tcp(stream) => stream.read(into),
            };
            match read {
                Err(error) if is_idle(&error) => self.patience.check(began)?,
                done => return done,
            }
        }
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let began = Instant::now();
        loop {
            self.patience.check(began)?;
            let written = match &mut self.socket {
                Socket::Unix(stream) => stream.write(bytes),
                Socket::Tcp(stream) => stream.write(bytes),
            };
            match written {
                Err(error) if is_idle(&error) => {}
                done => return done,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A listening socket of an instance.
pub(super) enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Listener {
    /// Listens, and returns the address.
    ///
    /// # Errors
    /// If it is not an address, or not one of this machine.
    pub(super) fn bind(at: &str) -> Result<(Self, String), Refusal> {
        let failed = |error| Refusal::new("system", format!("cannot listen on {at:?}: {error}"));
        match at.split_once(':') {
            Some(("unix", path)) => {
                let listener = UnixListener::bind(path).map_err(failed)?;
                listener.set_nonblocking(true).map_err(failed)?;
                Ok((Self::Unix(listener), at.to_owned()))
            }
            Some(("tcp", address)) => {
                let listener = open_in_machine(|| TcpListener::bind(address)).map_err(failed)?;
                listener.set_nonblocking(true).map_err(failed)?;
                let address = listener.local_addr().map_err(failed)?;
                Ok((Self::Tcp(listener), format!("tcp:{address}")))
            }
            _ => Err(Refusal::new(
                "malformed",
                format!("{at:?} is not an address, expected unix:/path or tcp:address:port"),
            )),
        }
    }

    /// Accepts the next connection; None: none came for a moment.
    ///
    /// # Errors
    /// If the system lacks resources for one now.
    pub(super) fn accept(&self, patience: Patience) -> io::Result<Option<Connection>> {
        let wait = Timespec {
            tv_sec: 0,
            tv_nsec: i64::from(LOOK.subsec_nanos()),
        };
        poll(
            &mut [PollFd::from_borrowed_fd(self.as_fd(), PollFlags::IN)],
            Some(&wait),
        )?;
        let accepted = match self {
            Self::Unix(listener) => listener.accept().map(|(stream, _)| Socket::Unix(stream)),
            Self::Tcp(listener) => listener.accept().map(|(stream, _)| Socket::Tcp(stream)),
        };
        match accepted {
            Ok(socket) => Connection::new(socket, patience).map(Some),
            Err(error) if is_idle(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(listener) => listener.as_fd(),
            Self::Tcp(listener) => listener.as_fd(),
        }
    }
}
