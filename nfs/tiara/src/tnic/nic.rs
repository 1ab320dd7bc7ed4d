//! The T-NIC's tables as packets use them: lookups, counts and signals.

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher, Hasher},
    sync::{
        atomic::{AtomicU64, Ordering},
        Arc, Mutex, PoisonError,
    },
};

use nf_arena::{ArenaError, Heap};
use nf_offload::FlowKey;
use nf_tables::{Ipv4Flow, Ipv6Flow};

use crate::{
    flow::AnyFlow,
    session::Totals,
    table::{ConnectionTable, Found, Shape, Slot, TableError},
};

/// Signals that wait for the thread that passes them on.
const SIGNALS: usize = 1 << 14;

/// The offloaded connections of both IP versions.
pub struct Tables {
    pub ipv4: Arc<ConnectionTable<Ipv4Flow, Heap>>,
    pub ipv6: Arc<ConnectionTable<Ipv6Flow, Heap>>,
}

/// The mark of a hit, to be taken back if its signal cannot be sent.
#[derive(Clone, Copy, Debug)]
pub struct Signal {
    pub flow: FlowKey,
    pub slot: Slot,
}

/// A load balancer's part of the T-NIC.
pub struct Part {
    pub totals: Totals,
    signals: Mutex<Vec<Signal>>,
}

/// Barriers: frames that the switch sends back, so that all frames sent before are known to have left it.
pub struct Barriers {
    wanted: AtomicU64,
    passed: AtomicU64,
}

/// The T-NIC, as its workers and its engines share it.
pub struct Nic {
    pub tables: Tables,
    pub parts: Vec<Part>,
    pub barriers: Barriers,
    /// The number of the T-NIC among those of the switch.
    number: u8,
}

impl Nic {
    /// # Errors
    /// If memory runs out.
    pub fn new(shape: Shape, number: u8, muxes: usize) -> Result<Self, ArenaError> {
        let part = |_| {
            Ok(Part {
                totals: Totals::new()?,
                signals: Mutex::default(),
            })
        };
        let ipv4 = Heap::new(ConnectionTable::<Ipv4Flow, Heap>::words(shape))?;
        let ipv6 = Heap::new(ConnectionTable::<Ipv6Flow, Heap>::words(shape))?;
        let impossible = |error: TableError| ArenaError::Refused {
            region: "table".to_owned(),
            reason: error.to_string(),
        };
        Ok(Self {
            tables: Tables {
                ipv4: Arc::new(ConnectionTable::open(ipv4, shape).map_err(impossible)?),
                ipv6: Arc::new(ConnectionTable::open(ipv6, shape).map_err(impossible)?),
            },
            parts: (0..muxes).map(part).collect::<Result<_, ArenaError>>()?,
            barriers: Barriers::default(),
            number,
        })
    }

    /// Returns the upper half of RS_Index of a load balancer's rows.
    #[must_use]
    pub fn prefix(&self, mux: usize) -> u16 {
        u16::from(self.number) << 8 | mux as u16
    }

    /// Returns the load balancer that has inserted an entry.
    #[must_use]
    #[inline]
    pub fn owner(&self, rs_index: u32) -> usize {
        usize::from((rs_index >> 16) as u8)
    }

    #[must_use]
    #[inline]
    pub fn look(&self, flow: &AnyFlow) -> Option<Found> {
        match flow {
            AnyFlow::V4(flow) => self.tables.ipv4.lookup(flow),
            AnyFlow::V6(flow) => self.tables.ipv6.lookup(flow),
        }
    }

    /// Counts a packet that an entry carries. The first one of a period signals its flow to the load balancer.
    #[inline]
    pub fn carried(&self, flow: &AnyFlow, found: &Found, bytes: u64) {
        let Some(part) = self.parts.get(self.owner(found.decision.rs_index)) else {
            return;
        };
        part.totals.add(found.decision.rs_index as u16, bytes);
        let is_first = match flow {
            AnyFlow::V4(_) => self.tables.ipv4.mark(found.slot),
            AnyFlow::V6(_) => self.tables.ipv6.mark(found.slot),
        };
        if is_first {
            let signal = Signal {
                flow: flow.key(),
                slot: found.slot,
            };
            // Packets do not wait: if the signal cannot be noted, the next packet signals.
            let mut noted = part
                .signals
                .try_lock()
                .ok()
                .filter(|signals| signals.len() < SIGNALS);
            match &mut noted {
                Some(signals) => signals.push(signal),
                None => self.unmark(&signal),
            }
        }
    }

    /// Lets the next packet of a flow signal again.
    pub fn unmark(&self, signal: &Signal) {
        match AnyFlow::of_key(&signal.flow) {
            Some(AnyFlow::V4(_)) => self.tables.ipv4.unmark(signal.slot),
            Some(AnyFlow::V6(_)) => self.tables.ipv6.unmark(signal.slot),
            None => {}
        }
    }
}

impl Part {
    /// Takes the signals that wait.
    #[must_use]
    pub fn take_signals(&self) -> Vec<Signal> {
        std::mem::take(&mut *self.signals.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Default for Barriers {
    /// Begins at a random number, so that barriers of an earlier life mean nothing.
    fn default() -> Self {
        let first = RandomState::new().build_hasher().finish() >> 1;
        Self {
            wanted: AtomicU64::new(first),
            passed: AtomicU64::new(first),
        }
    }
}

impl Barriers {
    /// Asks for a barrier behind everything that was done before; returns its number.
    #[must_use]
    pub fn ask(&self) -> u64 {
        self.wanted.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Returns the barrier to be sent. None: none is wanted.
    #[must_use]
    pub fn due(&self) -> Option<u64> {
        let wanted = self.wanted.load(Ordering::Acquire);
        (wanted > self.passed()).then_some(wanted)
    }

    /// Notes that a barrier has come back. One that was never wanted, after a restart, say, means nothing.
    pub fn pass(&self, number: u64) {
        if number <= self.wanted.load(Ordering::Acquire) {
            self.passed.fetch_max(number, Ordering::AcqRel);
        }
    }

    /// Returns the number up to which barriers have come back.
    #[must_use]
    pub fn passed(&self) -> u64 {
        self.passed.load(Ordering::Acquire)
    }
}
