//! The new instance's end of the connection on which state is copied.

use std::{
    io::{self, BufReader, ErrorKind, Write},
    sync::{
        atomic::{AtomicBool, AtomicUsize, Ordering},
        Arc,
    },
    thread,
    time::{Duration, Instant},
};

use nf_arena::{Arena, Region};
use nf_ports::Frame;

use super::{
    outcome::Outcome,
    ring::{Ring, Rings},
    sealed::{Opener, Sealed, Sealer},
    secret::Secret,
    socket::{Connection, Listener, Over, Patience, LOOK},
    wire::{put_blocks, Message},
};
use crate::refusal::Refused;

/// The outcomes of the copy.
#[derive(Clone, Default)]
pub(super) struct Delivery {
    /// The old instance's clock when its state was complete.
    pub(super) state: Outcome<u64>,
    /// The old instance has given up the right to send.
    pub(super) offered: Outcome<()>,
    /// This instance has taken over.
    pub(super) taken: Outcome<()>,
}

impl Delivery {
    /// Notes that nothing more comes.
    fn end(&self, reason: &str) {
        self.state.settle(Err(reason.into()));
        self.offered.settle(Err(reason.into()));
    }
}

/// The time in which a connection must prove its identity.
const GREETING: Duration = Duration::from_secs(2);
/// The maximum of connections that have not proved their identity.
const STRANGERS: usize = 16;
/// The time for which a ring may stay full after the old instance was given up.
const FULL: Duration = Duration::from_secs(1);

/// Receives the old instance's messages, and stores their state and frames.
pub(super) struct Receiver {
    pub(super) epoch: u64,
    pub(super) secret: Secret,
    pub(super) arena: Arena,
    pub(super) rings: Rings,
    pub(super) delivery: Delivery,
    /// Ends the wait for connections and for bytes.
    pub(super) over: Over,
    pub(super) refused: Arc<Refused>,
    /// Whether a connection has proved to be the old instance's; there is no second one.
    pub(super) taken: AtomicBool,
}

/// The old instance, authenticated by the secret.
struct Sender {
    from: BufReader<Opener<Connection>>,
    answers: Sealer<Connection>,
}

impl Receiver {
    /// Accepts connections until one is the old instance's, and then its messages; calls `ended` when nothing more comes.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    pub(super) fn start(
        self: Arc<Self>,
        listener: Listener,
        ended: impl Fn() + Send + Sync + 'static,
    ) -> io::Result<()> {
        let ended = Arc::new(ended);
        let listen = move || {
            self.listen(&listener, &ended);
            if !self.taken.load(Ordering::Acquire) {
                self.delivery
                    .end("no connection came from the old instance");
                ended();
            }
        };
        thread::Builder::new()
            .name("listen".into())
            .spawn(listen)
            .map(drop)
    }

    fn listen(
        self: &Arc<Self>,
        listener: &Listener,
        ended: &Arc<impl Fn() + Send + Sync + 'static>,
    ) {
        let strangers = Arc::new(AtomicUsize::new(0));
        while !self.over.is_set() && !self.taken.load(Ordering::Acquire) {
            if strangers.load(Ordering::Acquire) >= STRANGERS {
                thread::sleep(LOOK);
                continue;
            }
            let patience = Patience {
                stall: None,
                until: Some(Instant::now() + GREETING),
                over: self.over.clone(),
            };
            let connection = match listener.accept(patience) {
                Ok(Some(connection)) => connection,
                Ok(None) => continue,
                // Probably out of descriptors.
                Err(_) => {
                    thread::sleep(LOOK);
                    continue;
                }
            };
            strangers.fetch_add(1, Ordering::AcqRel);
            let (this, ended, count) =
                (Arc::clone(self), Arc::clone(ended), Arc::clone(&strangers));
            let started = thread::Builder::new()
                .name("receive".into())
                .spawn(move || {
                    let sender = this.welcome(connection);
                    count.fetch_sub(1, Ordering::AcqRel);
                    if let Some(sender) = sender {
                        this.receive_all(sender);
                        ended();
                    }
                });
            if started.is_err() {
                strangers.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }

    /// Authenticates a connection; None: it is not the old instance's.
    fn welcome(&self, connection: Connection) -> Option<Sender> {
        let reason = match self.greet(connection) {
            Ok(sender) => return Some(sender),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                "connection while another one is in use"
            }
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                "connection without the secret of the migration"
            }
            Err(error) if error.kind() == ErrorKind::InvalidInput => {
                "connection for something else"
            }
            Err(_) => "connection that did not say who it is",
        };
        self.refused.count(reason);
        None
    }

    fn greet(&self, connection: Connection) -> io::Result<Sender> {
        let again = connection.try_clone()?;
        let Sealed { out, from } = Sealed::of_new(connection, again, &self.secret)?;
        let mut sender = Sender {
            from: BufReader::with_capacity(1 << 18, from),
            answers: out,
        };
        let refusal = match Message::read(&mut sender.from, &mut Vec::new())? {
            Some(Message::Hello { epoch, schema }) => self.refuse(epoch, schema),
            _ => Some((ErrorKind::InvalidInput, "no greeting".into())),
        };
        if let Some((kind, reason)) = refusal {
            let _ = sender.say(&reason);
            return Err(io::Error::new(kind, reason));
        }
        // A peer that disconnects now was the old instance all the same: `receive_all` finds the connection closed.
        let _ = sender.say("");
        let patience = Patience {
            stall: None,
            until: None,
            over: self.over.clone(),
        };
        sender.answers.connection().patience = patience.clone();
        sender.from.get_mut().connection().patience = patience;
        Ok(sender)
    }

    /// Returns the reason to refuse an authenticated greeting; None: it is accepted, and no later one is.
    fn refuse(&self, epoch: u64, schema: u64) -> Option<(ErrorKind, String)> {
        let (expected, here) = (self.epoch, self.arena.schema());
        let kind = ErrorKind::InvalidInput;
        if epoch != expected {
            Some((kind, format!("epoch {epoch}, expected {expected}")))
        } else if schema != here {
            let detail = format!("state of schema {schema:016x}, expected {here:016x}: another configuration or version");
            Some((kind, detail))
        } else if self.taken.swap(true, Ordering::AcqRel) {
            let detail = "another connection of the old instance is in use";
            Some((ErrorKind::AlreadyExists, detail.into()))
        } else {
            None
        }
    }

    fn receive_all(&self, mut sender: Sender) {
        let reason = match self.receive(&mut sender) {
            Ok(()) => "the old instance closed the connection".to_owned(),
            Err(error) => error.to_string(),
        };
        self.delivery.end(&reason);
    }

    fn receive(&self, sender: &mut Sender) -> io::Result<()> {
        let (mut buffer, mut digest_here, mut clock) = (Vec::new(), None, 0);
        while let Some(message) = Message::read(&mut sender.from, &mut buffer)? {
            match message {
                Message::Blocks {
                    region,
                    first,
                    words,
                } if digest_here.is_none() => put_blocks(&self.arena, region, first, words)?,
                Message::Whole { clock: at } => {
                    clock = at;
                    digest_here = Some(self.arena.digest());
                }
                Message::Digest { digest } => {
                    let verdict = match digest_here {
                        Some(here) if here == digest => Ok(clock),
                        here => Err(format!(
                            "the state's digest is {:032x}, the sender's {digest:032x}",
                            here.unwrap_or_default()
                        )),
                    };
                    sender.say(verdict.as_ref().err().map_or("", |reason| reason))?;
                    if let Err(reason) = &verdict {
                        self.delivery.offered.settle(Err(reason.clone()));
                    }
                    self.delivery.state.settle(verdict);
                }
                Message::Commit => {
                    self.delivery.offered.settle(Ok(()));
                    self.await_taken()?;
                    sender.say("")?;
                }
                Message::Frame { queue, port, frame } => self.put(queue, port, frame)?,
                Message::End { queue } => drop(self.ring(queue)?.end()),
                other => return Err(io::Error::other(format!("unexpected message: {other:?}"))),
            }
        }
        Ok(())
    }

    /// Waits until this instance has taken over, which its agent may ask for late.
    fn await_taken(&self) -> io::Result<()> {
        while self.delivery.taken.wait(LOOK).is_none() {
            if self.over.is_set() {
                return Err(io::Error::other("the migration was ended"));
            }
        }
        Ok(())
    }

    /// Puts a frame into the ring, waiting until the workers have made room.
    fn put(&self, queue: usize, port: usize, frame: Frame<'_>) -> io::Result<()> {
        let ring = self.ring(queue)?;
        let mut full_since = None;
        while ring.push(port, frame).is_err() {
            let since = *full_since.get_or_insert_with(Instant::now);
            if self.over.is_set() && since.elapsed() > FULL {
                return Err(io::Error::other(format!(
                    "queue {queue} has no reader any more"
                )));
            }
            thread::sleep(Duration::from_micros(50));
        }
        Ok(())
    }

    fn ring(&self, queue: usize) -> io::Result<&Ring<Region>> {
        let ring = self.rings.get(queue).map(Arc::as_ref);
        ring.ok_or_else(|| {
            io::Error::other(format!("queue {queue}, of {} queues", self.rings.len()))
        })
    }
}

impl Sender {
    /// Sends an answer: empty, or the reason of a refusal.
    fn say(&mut self, line: &str) -> io::Result<()> {
        self.answers.write_all(format!("{line}\n").as_bytes())?;
        self.answers.flush()
    }
}
