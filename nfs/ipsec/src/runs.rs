//! Runs: packets of a batch with the same key, between others of a few other keys. They share what need not be done for each of them: the choice of the association, the
//! headers that do not differ, a lot of sequence numbers, the counts in the state, its marks, and the lock of the window.
//!
//! A run ends with its batch at the latest, so before any of its packets leaves. Where a limit of the key's lifetime is near, it has one packet.

use std::sync::{atomic::Ordering, MutexGuard};

use nf_packet::{Headers, MacAddress};
use nf_runtime::{Batch, Context};

use crate::{
    headers::Outline,
    keys::{InboundRow, Rows},
    outer::{Front, Peer},
    reason,
    selecting::Address,
    sequence::{Lot, Number, Sequence},
    setup::{self, Age, Life, Protecting, Tunnel},
    window::{Seen, Window},
};

/// The length that no tunnelled packet exceeds.
const LONGEST: u64 = u16::MAX as u64;

/// More than twice the packets of a batch, so that places are found fast; a power of two.
const PLACES: usize = 2 * Batch::MAX;
const FREE: u8 = u8::MAX;

/// The runs of a batch in one direction, by the number of a tunnel or the SPI of an association.
pub struct Runs<R> {
    /// None: the run has ended.
    runs: Vec<(u32, Option<R>)>,
    /// A hash table of their indices, with linear probing. A batch has at most [`Batch::MAX`] keys.
    places: [u8; PLACES],
    /// The index of the latest packet's key, which the next packet mostly has, too.
    latest: usize,
}

impl<R> Runs<R> {
    #[must_use]
    pub fn new() -> Self {
        Self {
            runs: Vec::new(),
            places: [FREE; PLACES],
            latest: 0,
        }
    }

    /// Returns where the runs of a key are.
    #[inline(always)]
    pub fn of(&mut self, key: u32) -> usize {
        let latest = self.runs.get(self.latest);
        if latest.is_none_or(|(other, _)| *other != key) {
            self.latest = self.find(key);
        }
        self.latest
    }

    #[inline(never)]
    fn find(&mut self, key: u32) -> usize {
        let mut place = key as usize % PLACES;
        while self.places[place] != FREE {
            let at = usize::from(self.places[place]);
            if self.runs[at].0 == key {
                return at;
            }
            place = (place + 1) % PLACES;
        }
        self.places[place] = self.runs.len() as u8;
        self.runs.push((key, None));
        self.runs.len() - 1
    }

    #[inline]
    pub fn get(&mut self, at: usize) -> Option<&mut R> {
        self.runs.get_mut(at)?.1.as_mut()
    }

    /// Begins a run in a place whose former one has ended.
    pub fn begin(&mut self, at: usize, run: R) {
        self.runs[at].1 = Some(run);
    }

    pub fn end(&mut self, at: usize) {
        self.runs[at].1 = None;
    }

    pub fn end_all(&mut self) {
        self.runs.iter_mut().for_each(|(_, run)| *run = None);
    }
}

/// The packets that a run has had. They are counted in the state when it ends.
pub struct Tally<'a> {
    rows: &'a Rows,
    row: usize,
    is_far: bool,
    packets: u64,
    bytes: u64,
}

impl<'a> Tally<'a> {
    fn new((rows, context): (&'a Rows, &Context<'_>), row: usize, life: &Life) -> Self {
        // All workers together may count these in their present runs.
        let packets = (Batch::MAX * context.workers().max(1)) as u64;
        let most = (packets, packets * LONGEST);
        Self {
            rows,
            row,
            is_far: life.lasts(rows, row, context.now(), most),
            packets: 0,
            bytes: 0,
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

impl Drop for Tally<'_> {
    fn drop(&mut self) {
        if self.packets > 0 {
            self.rows.count(self.row, self.packets, self.bytes);
        }
    }
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
    now: u64,
    lot: Lot,
    next_lot: u64,
    pub tally: Tally<'a>,
}

impl<'a> Sealing<'a> {
    #[must_use]
    pub fn new(
        (rows, context): (&'a Rows, &Context<'_>),
        tunnel: &'a Tunnel,
        (association, sequence): (&'a Protecting, &'a Sequence),
        longest: usize,
    ) -> Self {
        // One worker gets all numbers back that it does not use.
        let is_alone = context.workers() <= 1;
        Self {
            rows,
            tunnel,
            association,
            sequence,
            peer: tunnel.peer(),
            longest,
            front: None,
            now: context.now(),
            lot: Lot::default(),
            next_lot: if is_alone { Batch::MAX as u64 } else { 1 },
            tally: Tally::new((rows, context), sequence.row(), &association.life),
        }
    }

    /// Makes sure of a number for the next packet. False: the key has none left.
    pub fn has_number(&mut self) -> bool {
        if !self.lot.is_empty() {
            return true;
        }
        let last = self.association.last();
        let Some(lot) = self.sequence.lot(self.rows, last, self.next_lot) else {
            return false;
        };
        self.lot = lot;
        // A run that goes on takes more at a time; one among other tunnels' packets wastes none where workers share a key.
        self.next_lot = (2 * self.next_lot).min(Batch::MAX as u64);
        true
    }

    /// Tells whether it has a number and headers for the next packet.
    #[inline]
    #[must_use]
    pub fn is_ready(&self) -> bool {
        !self.lot.is_empty() && self.front.is_some()
    }

    #[inline]
    pub fn number(&mut self) -> Option<Number> {
        self.lot.take()
    }
}

impl Drop for Sealing<'_> {
    fn drop(&mut self) {
        self.sequence.give_back(&mut self.lot);
        if self.tally.packets > 0 {
            self.tunnel.sent.store(self.now, Ordering::Relaxed);
        }
    }
}

/// A run of packets that one key opens.
pub struct Opening<'a> {
    rows: &'a Rows,
    pub tunnel: &'a Tunnel,
    pub association: &'a setup::Opening,
    window: &'a Window,
    row: &'a InboundRow,
    /// The window's lock, if no other worker may wait for it.
    held: Option<MutexGuard<'a, ()>>,
    /// The sender of the latest authentic packet in UDP.
    pub peer: Option<Peer>,
    /// The next station of the latest packet.
    pub latest: Option<(Address, MacAddress)>,
    has_noted: bool,
    pub tally: Tally<'a>,
}

impl<'a> Opening<'a> {
    /// Begins a run. None: the key's lifetime is over. The caller has no other run.
    #[must_use]
    pub fn new(
        (rows, context): (&'a Rows, &Context<'_>),
        (tunnel, association): (&'a Tunnel, &'a setup::Opening),
        window: &'a Window,
    ) -> Option<Self> {
        let (number, now) = (window.row(), context.now());
        if association.life.age(rows, number, now) == Age::Over {
            return None;
        }
        Some(Self {
            rows,
            tunnel,
            association,
            window,
            row: rows.row(number)?,
            held: (context.workers() <= 1).then(|| window.hold()),
            peer: None,
            latest: None,
            has_noted: false,
            tally: Tally::new((rows, context), number, &association.life),
        })
    }

    /// Tells whether the run has the packets of its SPI with this destination and encapsulation.
    #[inline]
    #[must_use]
    pub fn is_for(&self, local: Address, udp: bool) -> bool {
        self.tunnel.local == local && self.tunnel.udp == udp
    }

    /// Checks that the tunnel may carry a packet, and returns the next station if it is that of the latest one.
    #[inline(always)]
    pub fn next(
        &self,
        headers: &Headers,
        outline: &Outline,
        mtu: usize,
    ) -> Result<Option<MacAddress>, &'static str> {
        let remote = (outline.source, headers.source_port);
        let local = (outline.destination, headers.destination_port);
        if !self.tunnel.selects(headers, local, remote) {
            return Err(reason::SELECTOR);
        }
        if outline.length > mtu {
            return Err(reason::TOO_BIG);
        }
        let latest = self.latest.as_ref();
        Ok(latest.filter(|each| each.0 == local.0).map(|each| each.1))
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
            true => self.window.extend(self.row, low),
            false => low.into(),
        }
    }

    #[inline]
    #[must_use]
    pub fn look(&self, sequence: u64) -> Seen {
        self.window.look(self.row, sequence)
    }

    /// Judges the number of an authentic packet, and notes it.
    #[inline]
    pub fn accept(&mut self, sequence: u64) -> Seen {
        self.has_noted = true;
        match &self.held {
            Some(held) => self.window.accept_held(self.row, sequence, held),
            None => self.window.accept(self.row, sequence),
        }
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        if self.has_noted {
            self.rows.touch(self.window.row());
        }
    }
}
