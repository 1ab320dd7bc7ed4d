//! Runs: packets of a batch with the same key, between others of a few other keys. They share what need not be done for each of them: the choice of the association, the
//! headers that do not differ, a lot of sequence numbers, the counts in the state, its marks, and the lock of the window.
//!
//! A run ends with its batch at the latest, so before any of its packets leaves. Where a limit of the key's lifetime is near, it has one packet.

use std::{
    net::IpAddr,
    sync::{atomic::Ordering, MutexGuard},
};

use nf_packet::MacAddress;
use nf_runtime::{Batch, Context};

use crate::{
    keys::Rows,
    outer::{Front, Peer},
    selecting::Address,
    sequence::{Lot, Number, Sequence},
    setup::{self, Age, Protecting, Tunnel},
    window::{Seen, Window},
};

/// The length that no tunnelled packet exceeds.
const LONGEST: u64 = u16::MAX as u64;

/// The runs of each direction that a batch may have at a time, of different keys.
pub const RUNS: usize = 8;

/// Returns the place of a tunnel's run of outbound packets.
#[inline]
#[must_use]
pub fn outbound_slot(tunnel: &Tunnel) -> usize {
    tunnel.number % RUNS
}

/// Returns the place of the run of an inbound association.
#[inline]
#[must_use]
pub fn inbound_slot(spi: u32) -> usize {
    spi as usize % RUNS
}

/// Returns packets and bytes that all workers together may count in their present runs.
fn most(context: &Context<'_>) -> (u64, u64) {
    let packets = (Batch::MAX * context.workers().max(1)) as u64;
    (packets, packets * LONGEST)
}

/// A run of packets that one key protects.
pub struct Sealing<'a> {
    rows: &'a Rows,
    pub tunnel: &'a Tunnel,
    pub association: &'a Protecting,
    sequence: &'a Sequence,
    pub peer: Peer,
    /// The longest packet that fits into the tunnel.
    pub longest: usize,
    /// None until the next station's MAC address is known.
    pub front: Option<Front>,
    is_far: bool,
    now: u64,
    lot: Lot,
    next_lot: u64,
    packets: u64,
    bytes: u64,
}

impl<'a> Sealing<'a> {
    #[must_use]
    pub fn new(
        (rows, context): (&'a Rows, &Context<'_>),
        tunnel: &'a Tunnel,
        (association, sequence): (&'a Protecting, &'a Sequence),
        longest: usize,
    ) -> Self {
        let now = context.now();
        let life = &association.life;
        Self {
            rows,
            tunnel,
            association,
            sequence,
            peer: tunnel.peer(),
            longest,
            front: None,
            is_far: life.lasts(rows, sequence.row(), now, most(context)),
            now,
            lot: Lot::default(),
            next_lot: 1,
            packets: 0,
            bytes: 0,
        }
    }

    /// Makes sure of a number for the next packet. False: the key has none left.
    #[inline]
    pub fn has_number(&mut self) -> bool {
        if !self.lot.is_empty() {
            return true;
        }
        let last = self.association.last();
        let Some(lot) = self.sequence.lot(self.rows, last, self.next_lot) else {
            return false;
        };
        self.lot = lot;
        // A run that goes on takes more at a time; one among other tunnels' packets wastes none.
        self.next_lot = (2 * self.next_lot).min(Batch::MAX as u64);
        true
    }

    #[inline]
    pub fn number(&mut self) -> Option<Number> {
        self.lot.take()
    }

    #[inline]
    pub fn count(&mut self, bytes: usize) {
        self.packets += 1;
        self.bytes += bytes as u64;
    }

    /// Tells whether the run ends, because the next packet may reach a limit of the key's lifetime.
    #[inline]
    #[must_use]
    pub fn is_over(&self) -> bool {
        !self.is_far
    }
}

impl Drop for Sealing<'_> {
    fn drop(&mut self) {
        self.sequence.give_back(&mut self.lot);
        if self.packets > 0 {
            self.tunnel.sent.store(self.now, Ordering::Relaxed);
            let row = self.sequence.row();
            self.rows.count(row, self.packets, self.bytes);
        }
    }
}

/// A run of packets that one key opens.
pub struct Opening<'a> {
    rows: &'a Rows,
    pub tunnel: &'a Tunnel,
    pub association: &'a setup::Opening,
    window: &'a Window,
    /// The window's lock, if no other worker may wait for it.
    held: Option<MutexGuard<'a, ()>>,
    /// The sender of the latest authentic packet in UDP.
    pub peer: Option<Peer>,
    /// The next station of the latest packet.
    pub next: Option<(Address, MacAddress)>,
    is_far: bool,
    has_noted: bool,
    packets: u64,
    bytes: u64,
}

impl<'a> Opening<'a> {
    /// Begins a run. None: the key's lifetime is over. The caller has no other run.
    #[must_use]
    pub fn new(
        (rows, context): (&'a Rows, &Context<'_>),
        (tunnel, association): (&'a Tunnel, &'a setup::Opening),
        window: &'a Window,
    ) -> Option<Self> {
        let (row, now) = (window.row(), context.now());
        if association.life.age(rows, row, now) == Age::Over {
            return None;
        }
        let is_far = association.life.lasts(rows, row, now, most(context));
        Some(Self {
            rows,
            tunnel,
            association,
            window,
            held: (context.workers() <= 1).then(|| window.hold()),
            peer: None,
            next: None,
            is_far,
            has_noted: false,
            packets: 0,
            bytes: 0,
        })
    }

    /// Tells whether the run has the packets with this SPI, destination and encapsulation.
    #[inline]
    #[must_use]
    pub fn is_for(&self, spi: u32, local: IpAddr, udp: bool) -> bool {
        self.association.life.spi == spi
            && self.tunnel.config.local == local
            && self.tunnel.udp == udp
    }

    #[inline]
    #[must_use]
    pub fn row(&self) -> usize {
        self.window.row()
    }

    /// Returns the whole sequence number of a packet.
    #[inline]
    #[must_use]
    pub fn number(&self, low: u32) -> u64 {
        match self.association.life.extended {
            true => self.window.extend(self.rows, low),
            false => low.into(),
        }
    }

    #[inline]
    #[must_use]
    pub fn look(&self, sequence: u64) -> Seen {
        self.window.look(self.rows, sequence)
    }

    /// Notes the number of an authentic packet. `seen`: the judgement on it before it was decrypted.
    #[inline]
    pub fn accept(&mut self, sequence: u64, seen: Seen) -> Seen {
        self.has_noted = true;
        match (&self.held, seen) {
            (Some(held), Seen::First { highest }) => {
                self.window.note(self.rows, sequence, highest, held);
                seen
            }
            // Another worker may have opened a copy meanwhile.
            _ => self.window.accept(self.rows, sequence),
        }
    }

    #[inline]
    pub fn count(&mut self, bytes: usize) {
        self.packets += 1;
        self.bytes += bytes as u64;
    }

    /// Tells whether the run ends, because the next packet may reach a limit of the key's lifetime.
    #[inline]
    #[must_use]
    pub fn is_over(&self) -> bool {
        !self.is_far
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        let row = self.window.row();
        if self.packets > 0 {
            self.rows.count(row, self.packets, self.bytes);
        }
        if self.has_noted {
            self.rows.touch(row);
        }
    }
}
