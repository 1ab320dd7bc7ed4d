//! The engine room: the thread of a T-NIC that serves load balancers. Packets never wait for it.

use std::{
    os::unix::net::UnixListener,
    path::{Path, PathBuf},
    sync::Arc,
};

use nf_offload::{Refused, Writer};
use nf_runtime::{control::bind, Refusal};

use super::{
    engines::{Engines, Manner},
    mux::{Around, Ended, Session, Signalling},
    nic::Nic,
    relay::Relay,
};
use crate::{engine::Counts, session::Terms, table::Hashing};

/// Operations in progress between a load balancer and an engine.
const CREDITS: usize = 1024;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests;

/// A load balancer's place.
struct Place {
    listener: Option<UnixListener>,
    latest: Option<Writer>,
    session: Option<Session>,
    /// Connections without a hello yet.
    guests: Vec<Session>,
    terms: Terms,
    /// When it was heard of last; entries without a load balancer are removed some time after that.
    heard: u64,
    has_entries: bool,
    /// Why its last session has ended.
    ended: Option<String>,
}

/// The engines, the sessions, and the way to the switch.
pub struct Room {
    nic: Arc<Nic>,
    engines: Engines,
    relay: Relay,
    places: Vec<Place>,
    signalling: Signalling,
    /// The time after which the entries of a load balancer that is gone are removed, in nanoseconds.
    orphans: u64,
}

/// The state of the room, for people.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Of each load balancer, whether it has a session, and why its last one has ended.
    pub sessions: Vec<(bool, Option<String>)>,
    pub counts: Counts,
    /// Signals that were sent, and those that wait for another packet of their flow.
    pub signals: [u64; 2],
    /// Why the switch does not have all rows.
    pub switch: Option<String>,
}

impl Room {
    /// # Errors
    /// If a socket cannot be created, or memory runs out.
    pub fn new(
        nic: Arc<Nic>,
        manner: &Manner,
        sockets: &[Option<PathBuf>],
        tswitch: Option<PathBuf>,
        (orphans, now): (u64, u64),
    ) -> Result<Self, Refusal> {
        let engines = Engines::new(&nic.tables, manner, now)
            .map_err(|error| Refusal::new("engines", error.to_string()))?;
        let listen = |socket: &Path| {
            let listener = bind(socket)?;
            let nonblocking = listener.set_nonblocking(true);
            nonblocking.map_err(|error| Refusal::new("system", error.to_string()))?;
            Ok::<_, Refusal>(listener)
        };
        let mut places = Vec::new();
        for (number, socket) in sockets.iter().enumerate() {
            let terms = Terms {
                prefix: nic.prefix(number),
                engines: manner.engines,
                depth: manner.shape.depth(),
                width: manner.shape.width(),
                skewed: manner.shape.hashing() == Hashing::Skewed,
                credits: CREDITS,
                evicts: manner.evicts,
                period_ms: manner.period.as_millis() as u64,
            };
            places.push(Place {
                listener: socket.as_deref().map(listen).transpose()?,
                latest: None,
                session: None,
                guests: Vec::new(),
                terms,
                heard: now,
                has_entries: false,
                ended: None,
            });
        }
        Ok(Self {
            relay: Relay::new(tswitch),
            nic,
            engines,
            places,
            signalling: Signalling::new(manner.signals_per_s),
            orphans,
        })
    }

    /// Does what is due; returns false if there was nothing to do.
    pub fn turn(&mut self, now: u64) -> bool {
        let mut is_busy = self.attend(now);
        is_busy |= self.engines.turn(now) > 0;
        is_busy
    }

    /// Does what is due for the load balancers and the switch.
    fn attend(&mut self, now: u64) -> bool {
        let mut is_busy = false;
        for number in 0..self.places.len() {
            self.accept(number, now);
            self.greet(number, now);
            is_busy |= self.serve(number, now);
        }
        self.relay.turn(now);
        is_busy
    }

    fn accept(&mut self, number: usize, now: u64) {
        let place = &mut self.places[number];
        let Some(listener) = &place.listener else {
            return;
        };
        while let Ok((stream, _)) = listener.accept() {
            if let Ok(session) = Session::new(stream, number, place.terms.clone(), now) {
                place.guests.push(session);
            }
        }
    }

    /// Reads the hellos of new connections; the newest life takes over.
    fn greet(&mut self, number: usize, now: u64) {
        for mut guest in std::mem::take(&mut self.places[number].guests) {
            let mut around = Around {
                nic: &self.nic,
                engines: &mut self.engines,
                relay: &mut self.relay,
                signalling: &mut self.signalling,
                now,
            };
            match guest.read(&mut around) {
                Ok(Some(writer)) => self.take_over(number, guest, writer, now),
                Ok(None) if now < guest.heard() + self.orphans => {
                    self.places[number].guests.push(guest)
                }
                Ok(None) | Err(_) => {}
            }
        }
    }

    fn take_over(&mut self, number: usize, mut guest: Session, writer: Writer, now: u64) {
        let place = &mut self.places[number];
        let stale = Refused::StaleWriter.name();
        if let Some(latest) = place.latest {
            if latest.instance == writer.instance && writer.epoch < latest.epoch {
                return guest.refuse(
                    stale,
                    format!("epoch {} has the table, not {}", latest.epoch, writer.epoch),
                );
            }
        }
        if let Some(mut old) = place.session.take() {
            if old.writer() != Some(writer) {
                old.refuse(
                    stale,
                    "another life of the load balancer has the table".to_owned(),
                );
            }
            old.close(&mut self.engines);
        }
        place.latest = Some(writer);
        self.wipe(number);
        let mut around = Around {
            nic: &self.nic,
            engines: &mut self.engines,
            relay: &mut self.relay,
            signalling: &mut self.signalling,
            now,
        };
        guest.begin(&mut around);
        self.places[number].session = Some(guest);
    }

    /// Removes the entries and rows of a load balancer.
    fn wipe(&mut self, number: usize) {
        let place = &mut self.places[number];
        self.engines.wipe(place.terms.prefix);
        self.relay.clear(place.terms.prefix);
        place.has_entries = false;
    }

    fn serve(&mut self, number: usize, now: u64) -> bool {
        let place = &mut self.places[number];
        let Some(session) = &mut place.session else {
            self.remove_orphans(number, now);
            return false;
        };
        let mut around = Around {
            nic: &self.nic,
            engines: &mut self.engines,
            relay: &mut self.relay,
            signalling: &mut self.signalling,
            now,
        };
        let turned = session
            .read(&mut around)
            .and_then(|_| session.turn(&mut around));
        place.heard = session.heard();
        place.has_entries |= session.is_open();
        let is_silent = session.is_open() && now > place.heard + self.orphans;
        let why = match turned {
            Ok(is_busy) if !is_silent => return is_busy,
            Ok(_) => "the load balancer was silent for too long".to_owned(),
            Err(Ended(why)) => why,
        };
        if is_silent {
            session.refuse("silent", why.clone());
        }
        session.close(&mut self.engines);
        (place.session, place.ended) = (None, Some(why));
        true
    }

    /// Removes the entries of a load balancer that has been gone for long: its packets go to the others then.
    fn remove_orphans(&mut self, number: usize, now: u64) {
        let place = &self.places[number];
        if place.has_entries && now > place.heard + self.orphans {
            self.wipe(number);
        }
    }

    /// Loses the table: all entries and totals. Load balancers learn it.
    pub fn reset(&mut self, now: u64) {
        for number in 0..self.places.len() {
            self.wipe(number);
            if let Some(part) = self.nic.parts.get(number) {
                part.totals.clear();
            }
            let mut around = Around {
                nic: &self.nic,
                engines: &mut self.engines,
                relay: &mut self.relay,
                signalling: &mut self.signalling,
                now,
            };
            if let Some(session) = &mut self.places[number].session {
                session.begin(&mut around);
            }
        }
    }

    #[must_use]
    pub fn report(&self) -> Report {
        let mut counts = Counts::default();
        for each in self.engines.counts() {
            counts.inserted += each.inserted;
            counts.full += each.full;
            counts.deleted += each.deleted;
            counts.not_found += each.not_found;
            counts.refused += each.refused;
            counts.evicted += each.evicted;
            counts.moved += each.moved;
        }
        let told = |place: &Place| {
            let is_open = place.session.as_ref().is_some_and(Session::is_open);
            (is_open, place.ended.clone())
        };
        Report {
            sessions: self.places.iter().map(told).collect(),
            counts,
            signals: self.signalling.counts(),
            switch: self.relay.why().map(str::to_owned),
        }
    }
}
