//! The memory of a session: the queues of each engine, signals, and three words.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::atomic::Ordering,
};

use nf_arena::{Arena, ArenaBuilder, ArenaError, Memory, Region};
use nf_offload::{CounterId, FlowKey};
use nf_tables::{Ipv4Flow, Ipv6Flow};

use super::words::{Terms, VERSION};
use crate::engine::{
    ring::{Consumer, Place, Producer},
    Corrupt, QueuePair,
};

/// The rows, and thus counters, of a load balancer.
pub const COUNTERS: usize = 1 << 16;
/// Signals that wait for the load balancer.
const SIGNALS: usize = 1 << 14;
/// Words of a signal.
const SIGNAL: usize = size_of::<FlowKey>() / 8;

/// Words, each in a cache line of its own: the load balancer's heartbeat, and the removals that must be, and that are effective.
const BEAT: usize = 0;
const ASKED: usize = 8;
const PASSED: usize = 16;
const WORDS: usize = 24;

/// The queues of the engines, for each IP version.
#[derive(Clone)]
pub struct Queues {
    pub ipv4: Vec<Region>,
    pub ipv6: Vec<Region>,
}

/// The memory of a session.
pub struct SessionMemory {
    arena: Arena,
    pub queues: Queues,
    signals: Region,
    words: Region,
}

impl SessionMemory {
    /// # Errors
    /// If memory runs out.
    pub fn new(terms: &Terms) -> Result<Self, ArenaError> {
        Self::build(ArenaBuilder::fresh("tnic session", VERSION)?, terms)
    }

    /// # Errors
    /// If the descriptor is not the memory of such a session.
    pub fn adopt(descriptor: OwnedFd, terms: &Terms) -> Result<Self, ArenaError> {
        Self::build(
            ArenaBuilder::adopt(descriptor, "tnic session", VERSION)?,
            terms,
        )
    }

    fn build(mut arena: ArenaBuilder, terms: &Terms) -> Result<Self, ArenaError> {
        let mut of = |version: &str, words: usize| -> Result<Vec<Region>, ArenaError> {
            let name = |engine| format!("queues {version} {engine}");
            (0..terms.engines)
                .map(|engine| arena.region(&name(engine), "queues v1", words))
                .collect()
        };
        let queues = Queues {
            ipv4: of("ipv4", QueuePair::words::<Ipv4Flow>(terms.credits))?,
            ipv6: of("ipv6", QueuePair::words::<Ipv6Flow>(terms.credits))?,
        };
        let signals = arena.region("signals", "ring v1", Place::words(SIGNALS, SIGNAL))?;
        let words = arena.region("words", "words v1", WORDS)?;
        Ok(Self {
            arena: arena.finish()?,
            queues,
            signals,
            words,
        })
    }

    /// # Errors
    /// If the process has no descriptors left.
    pub fn descriptor(&self) -> std::io::Result<OwnedFd> {
        self.arena.as_fd().try_clone_to_owned()
    }

    #[must_use]
    pub fn signals(&self) -> Signals {
        let place = Place {
            start: 0,
            capacity: SIGNALS,
            record: SIGNAL,
        };
        Signals {
            region: self.signals.clone(),
            place,
        }
    }

    fn get(&self, word: usize) -> u64 {
        self.words.words()[word].load(Ordering::Acquire)
    }

    fn set(&self, word: usize, value: u64) {
        self.words.words()[word].store(value, Ordering::Release);
    }

    /// Returns the load balancer's heartbeat.
    #[must_use]
    pub fn beats(&self) -> u64 {
        self.get(BEAT)
    }

    pub fn beat(&self) {
        self.set(BEAT, self.get(BEAT).wrapping_add(1));
    }

    /// Returns the number up to which the load balancer has asked that its removals take effect.
    #[must_use]
    pub fn asked(&self) -> u64 {
        self.get(ASKED)
    }

    pub fn ask(&self, number: u64) {
        self.set(ASKED, number);
    }

    /// Returns the number up to which removals have taken effect.
    #[must_use]
    pub fn passed(&self) -> u64 {
        self.get(PASSED)
    }

    pub fn pass(&self, number: u64) {
        self.set(PASSED, number);
    }
}

/// The ring of signals: the flows that were active (Tiara, section 3.3.3).
pub struct Signals {
    region: Region,
    place: Place,
}

/// The T-NIC's end.
pub struct SignalsOut(Producer<Region>);

/// The load balancer's end.
pub struct SignalsIn(Consumer<Region>);

impl Signals {
    #[must_use]
    pub fn producer(self) -> SignalsOut {
        SignalsOut(Producer::open(self.region, self.place))
    }

    #[must_use]
    pub fn consumer(self) -> SignalsIn {
        SignalsIn(Consumer::open(self.region, self.place))
    }
}

impl SignalsOut {
    /// Signals a flow. False: the ring is full.
    #[must_use]
    pub fn push(&mut self, flow: &FlowKey) -> bool {
        let has_room = self.0.room(1).is_ok_and(|room| room > 0);
        if has_room {
            let words: [u64; SIGNAL] = bytemuck::cast(*flow);
            self.0.push(&words);
        }
        has_room
    }
}

impl SignalsIn {
    /// Takes all signals.
    ///
    /// # Errors
    /// If the T-NIC damaged the ring.
    pub fn take(&mut self, each: &mut dyn FnMut(FlowKey)) -> Result<(), Corrupt> {
        let waiting = self.0.waiting()?;
        for ahead in 0..waiting {
            let mut words = [0; SIGNAL];
            self.0.peek(ahead, &mut words);
            each(bytemuck::cast(words));
        }
        if waiting > 0 {
            self.0.consume(waiting);
        }
        Ok(())
    }
}

/// The packets and bytes that entries with each row of a load balancer have carried. They outlive sessions.
pub struct Totals {
    arena: Arena,
    region: Region,
}

impl Totals {
    /// # Errors
    /// If memory runs out.
    pub fn new() -> Result<Self, ArenaError> {
        Self::build(ArenaBuilder::fresh("tnic totals", VERSION)?)
    }

    /// # Errors
    /// If the descriptor is not that of totals.
    pub fn adopt(descriptor: OwnedFd) -> Result<Self, ArenaError> {
        Self::build(ArenaBuilder::adopt(descriptor, "tnic totals", VERSION)?)
    }

    fn build(mut arena: ArenaBuilder) -> Result<Self, ArenaError> {
        let region = arena.region("totals", "packets, bytes v1", 2 * COUNTERS)?;
        Ok(Self {
            arena: arena.finish()?,
            region,
        })
    }

    /// # Errors
    /// If the process has no descriptors left.
    pub fn descriptor(&self) -> std::io::Result<OwnedFd> {
        self.arena.as_fd().try_clone_to_owned()
    }

    /// Counts a packet.
    #[inline]
    pub fn add(&self, row: u16, bytes: u64) {
        let at = 2 * usize::from(row);
        self.region.words()[at].fetch_add(1, Ordering::Relaxed);
        self.region.words()[at + 1].fetch_add(bytes, Ordering::Relaxed);
    }

    #[must_use]
    pub fn of(&self, counter: CounterId) -> (u64, u64) {
        let at = 2 * usize::from(counter.0);
        let get = |at: usize| self.region.words()[at].load(Ordering::Relaxed);
        (get(at), get(at + 1))
    }

    pub fn clear(&self) {
        for word in self.region.words() {
            word.store(0, Ordering::Relaxed);
        }
    }
}

const _: () = assert!(size_of::<FlowKey>() % 8 == 0);
