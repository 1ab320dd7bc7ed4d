//! The records of connections and their sessions, and the one door to every change of them.
//!
//! [`RecordTables`] owns the tables; its fields are private, so only [`Records`] can change them. After each change, `Records` tells its [`Listener`]:
//!
//! - A change is told once, by the thread that made it, when the table already has it. A call that fails changes and tells nothing.
//! - All changes, applied in the order in which they were told to an empty map, give the tables' content. An expired record is still content until
//!   aging removes it, or an insert replaces it.
//! - All packets of a flow arrive at one worker, which tells the flow's changes in their order. Only a removal by aging may come from another worker.
//! - The listener must not wait: packets do.
//! - The default is [`NoListener`], whose calls compile to nothing.
//!
//! A batch looks up its records before it decides its packets, so another packet or worker may have changed a record since. Every change therefore
//! names the entry that it replaces, and fails if the record has another one.

use std::cell::Cell;

use nf_arena::Region;
use nf_balancing::{cells::Worker, tuple::Tuple};
use nf_runtime::{
    state::{FlowTable, StateBuilder},
    Refusal,
};
use nf_tables::{Class, Cuckoo, Entry, Full, Insertion, Now};

use crate::{
    config,
    flow::{AnyFlow, Flow, Tables},
    snapshot::{Backend, Snapshot},
    state::{traffic, State},
    stream::Session,
};

#[cfg(test)]
mod tests;

/// A change of a connection's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Created(Entry),
    /// A packet of the connection has used the record, which keeps it alive.
    Refreshed(Entry),
    /// The connection's class has changed; its backend is the same.
    Updated {
        old: Entry,
        new: Entry,
    },
    /// The connection has another backend.
    Moved {
        old: Entry,
        new: Entry,
    },
    Removed(Entry),
    /// The record was removed because it was idle for its lifetime.
    Expired(Entry),
}

/// An observer of all changes. Sessions and ports have no removal by aging: they end at the time `until` of the state's clock.
pub trait Listener {
    #[inline(always)]
    fn connection<F: Flow>(&self, flow: &F, change: Change) {
        let _ = (flow, change);
    }

    /// A connection's session is new, or has changed or been renewed.
    #[inline(always)]
    fn session(&self, client: &Tuple, session: &Session, until: u64) {
        let _ = (client, session, until);
    }

    /// A local port, by the tuple of its answers, belongs to this client's connection. None: it is free.
    #[inline(always)]
    fn port(&self, answer: &Tuple, client: Option<(&Tuple, u64)>) {
        let _ = (answer, client);
    }
}

/// The absence of a listener.
#[derive(Clone, Copy)]
pub struct NoListener;

impl Listener for NoListener {}

/// The tables of connections and sessions.
pub struct RecordTables {
    connections: Tables,
    sessions: FlowTable<Tuple, Session>,
    /// Local ports in use, from the tuple of an answer to the tuple of the client.
    ports: FlowTable<Tuple, Tuple>,
}

impl RecordTables {
    /// # Errors
    /// If memory runs out, or the adopted state has another shape.
    pub fn declare(tables: &config::Tables, state: &mut StateBuilder) -> Result<Self, Refusal> {
        let connections = Tables {
            ipv4: connections(state, "connections-ipv4", tables.connections_ipv4)?,
            ipv6: connections(state, "connections-ipv6", tables.connections_ipv6)?,
        };
        Ok(Self {
            connections,
            sessions: state.flow_table("sessions", tables.sessions)?,
            ports: state.flow_table("clients", tables.sessions)?,
        })
    }

    /// Returns used entries and capacity of the tables for IPv4 and IPv6 connections.
    #[must_use]
    pub fn connections(&self) -> [(usize, usize); 2] {
        let Tables { ipv4, ipv6 } = &self.connections;
        [(ipv4.len(), ipv4.capacity()), (ipv6.len(), ipv6.capacity())]
    }

    /// Counts sessions; it scans them all. A session with source NAT needs an entry in both tables, and its port outlives it.
    #[must_use]
    pub fn sessions(&self, now: u64) -> usize {
        self.sessions.len(now).max(self.ports.len(now))
    }
}

fn connections<K: nf_tables::Key>(
    state: &mut StateBuilder,
    name: &str,
    capacity: usize,
) -> Result<Cuckoo<K, Region>, Refusal> {
    let refused =
        |reason: nf_tables::TableError| Refusal::configuration(&format!("tables.{name}"), reason);
    let words = Cuckoo::<K, Region>::words(capacity).map_err(refused)?;
    let layout = format!("cuckoo v1, {capacity} flows");
    let region = state.region(name, &layout, words)?;
    Cuckoo::open(region, capacity).map_err(refused)
}

/// The door to the records for the packets of one batch.
pub struct Records<'a, L = NoListener> {
    tables: &'a RecordTables,
    state: &'a State,
    snapshot: &'a Snapshot,
    worker: Worker,
    /// The time in nanoseconds, and for the connection tables.
    time: u64,
    now: Now,
    /// Marks of the flows whose records this batch has changed; see [`current`](Self::current).
    changed: Cell<u64>,
    listener: L,
}

impl<'a, L: Listener> Records<'a, L> {
    pub fn new(
        tables: &'a RecordTables,
        state: &'a State,
        snapshot: &'a Snapshot,
        worker: Worker,
        time: u64,
        listener: L,
    ) -> Self {
        Self {
            tables,
            state,
            snapshot,
            worker,
            time,
            now: snapshot.lifetimes.at(time),
            changed: Cell::default(),
            listener,
        }
    }

    /// Looks up the entries of a batch's flows, and renews their records.
    #[inline]
    pub fn lookup_bulk<F: Flow>(&self, flows: &[F], found: &mut [Option<Entry>]) {
        F::table(&self.tables.connections).lookup_bulk(flows, &self.now, found);
        for (flow, entry) in flows.iter().zip(found) {
            if let Some(entry) = entry {
                self.listener.connection(flow, Change::Refreshed(*entry));
            }
        }
    }

    fn lookup<F: Flow>(&self, flow: &F) -> Option<Entry> {
        let entry = F::table(&self.tables.connections).lookup(flow, &self.now)?;
        self.tell(flow, Change::Refreshed(entry));
        Some(entry)
    }

    /// Renews a flow's record.
    pub fn renewed(&self, flow: &AnyFlow) -> Option<Entry> {
        match flow {
            AnyFlow::V4(flow) => self.lookup(flow),
            AnyFlow::V6(flow) => self.lookup(flow),
        }
    }

    /// Like [`backend_of`](Self::backend_of).
    pub fn backend_of_any(&self, flow: &AnyFlow, number: u16) -> Option<&'a Backend> {
        match flow {
            AnyFlow::V4(flow) => self.backend_of(flow, number),
            AnyFlow::V6(flow) => self.backend_of(flow, number),
        }
    }

    /// Returns a flow's current entry; `seen` is the one found before the batch.
    #[inline]
    pub fn current<F: Flow>(&self, flow: &F, seen: Option<Entry>) -> Option<Entry> {
        let changed = self.changed.get();
        if changed == 0 || changed & mark(flow) == 0 {
            return seen;
        }
        self.lookup(flow)
    }

    /// Returns the backend that a flow's record refers to. None: it is not in the configuration (any more), or belongs to another VIP.
    #[inline]
    pub fn backend_of<F: Flow>(&self, flow: &F, number: u16) -> Option<&'a Backend> {
        let backend = self.snapshot.backend_at(number)?;
        (backend.service == flow.service()).then_some(backend)
    }

    /// Returns a flow's entry if it refers to a configured backend. Deletes any other record: lookups would keep it alive until its number is reused.
    pub fn named(&self, flow: &AnyFlow) -> Option<Entry> {
        match flow {
            AnyFlow::V4(flow) => self.named_of(flow),
            AnyFlow::V6(flow) => self.named_of(flow),
        }
    }

    fn named_of<F: Flow>(&self, flow: &F) -> Option<Entry> {
        let entry = self.lookup(flow)?;
        if self.backend_of(flow, entry.value).is_some() {
            return Some(entry);
        }
        self.remove(flow);
        None
    }

    /// Records a new connection. An existing record stays, and its entry is returned.
    ///
    /// # Errors
    /// If the table is full.
    pub fn create<F: Flow>(&self, flow: &F, new: Entry) -> Result<Option<Entry>, Full> {
        match F::table(&self.tables.connections).insert(flow, new, &self.now)? {
            Insertion::Existing(entry) => {
                self.tell(flow, Change::Refreshed(entry));
                Ok(Some(entry))
            }
            Insertion::Inserted { expired } => {
                if let Some(expired) = expired {
                    self.tell(flow, Change::Expired(expired));
                }
                self.tell(flow, Change::Created(new));
                self.mark_changed(flow);
                Ok(None)
            }
        }
    }

    /// Changes a record from `old` to `new`.
    ///
    /// # Errors
    /// If it has another entry, or does not exist.
    pub fn replace<F: Flow>(&self, flow: &F, old: Entry, new: Entry) -> Result<(), Option<Entry>> {
        self.mark_changed(flow);
        F::table(&self.tables.connections).replace(flow, old, new, &self.now)?;
        if old.value == new.value {
            self.tell(flow, Change::Updated { old, new });
        } else {
            self.tell(flow, Change::Moved { old, new });
        }
        Ok(())
    }

    /// Removes a flow's record. An expired one stays until aging finds it.
    pub fn remove<F: Flow>(&self, flow: &F) {
        self.mark_changed(flow);
        if let Some(entry) = F::table(&self.tables.connections).remove(flow, &self.now) {
            self.tell(flow, Change::Removed(entry));
        }
    }

    /// Removes expired records of both versions, a piece of each table at a time: `elapsed` out of the time of one pass.
    pub fn age(&self, elapsed: u64, pass: u64) {
        self.age_table(&self.tables.connections.ipv4, elapsed, pass);
        self.age_table(&self.tables.connections.ipv6, elapsed, pass);
    }

    fn age_table<F: Flow>(&self, table: &Cuckoo<F, Region>, elapsed: u64, pass: u64) {
        // The tables have more places than records, and at least 4096.
        let places = (table.capacity() * 5 / 4).max(4096) as u128;
        let budget = places * u128::from(elapsed) / u128::from(pass);
        table.age(budget as usize + 8, &self.now, &mut |flow, entry| {
            self.tell(flow, Change::Expired(entry));
        });
    }

    /// Adjusts the gauges to a change, and tells it to the listener.
    #[inline]
    fn tell<F: Flow>(&self, flow: &F, change: Change) {
        match change {
            Change::Refreshed(_) => {}
            Change::Created(entry) => self.began(entry),
            Change::Removed(entry) | Change::Expired(entry) => self.ended(entry),
            Change::Moved { old, new } => {
                self.ended(old);
                self.began(new);
            }
            Change::Updated { old, new } => {
                match (old.class == Class::Opening, new.class == Class::Opening) {
                    (true, false) => self.count_half_open(old.value, false),
                    (false, true) => self.count_half_open(new.value, true),
                    _ => {}
                }
            }
        }
        self.listener.connection(flow, change);
    }

    fn ended(&self, entry: Entry) {
        let row = usize::from(entry.value);
        self.state.active.subtract(self.worker, row, 1);
        if entry.class == Class::Opening {
            self.count_half_open(entry.value, false);
        }
    }

    fn began(&self, entry: Entry) {
        let row = usize::from(entry.value);
        self.state.active.add(self.worker, row, 1);
        if entry.class == Class::Opening {
            self.count_half_open(entry.value, true);
        }
        self.state
            .traffic
            .add(self.worker, row, traffic::CONNECTIONS, 1);
    }

    fn count_half_open(&self, number: u16, more: bool) {
        let Some(row) = self.row_of(number) else {
            return;
        };
        if more {
            self.state.half_open.add(self.worker, row, 1);
        } else {
            self.state.half_open.subtract(self.worker, row, 1);
        }
    }

    /// Returns the row of a backend's VIP, even for a backend that was removed.
    fn row_of(&self, number: u16) -> Option<usize> {
        if let Some(backend) = self.snapshot.backend_at(number) {
            return Some(self.snapshot.vips[backend.vip].row);
        }
        let record = self.state.backends.get(number.into());
        self.state.vips.iter().position(|vip| {
            (vip.address, vip.port, vip.protocol)
                == (record.vip_address, record.vip_port, record.vip_protocol)
        })
    }

    fn mark_changed<F: Flow>(&self, flow: &F) {
        self.changed.set(self.changed.get() | mark(flow));
    }

    /// Returns a connection's session.
    #[must_use]
    pub fn session(&self, client: &Tuple) -> Option<Session> {
        self.tables.sessions.look(client, self.time)
    }

    /// Stores a connection's session in place of any other. False: the table is full.
    pub fn open_session(&self, client: &Tuple, lifetime: u64, session: Session) -> bool {
        let put = |old: &mut Session| *old = session;
        let sessions = &self.tables.sessions;
        let has_room = sessions
            .update_or_insert(client, self.time, lifetime, || session, put)
            .is_some();
        if has_room {
            self.listener
                .session(client, &session, self.time.saturating_add(lifetime));
        }
        has_room
    }

    /// Changes a connection's session and renews it; returns the session after the change, and the result of `change`.
    pub fn update_session<R>(
        &self,
        client: &Tuple,
        lifetime: u64,
        change: impl FnOnce(&mut Session) -> R,
    ) -> Option<(Session, R)> {
        let noted = |session: &mut Session| {
            let result = change(session);
            (*session, result)
        };
        let sessions = &self.tables.sessions;
        let (session, result) = sessions.update(client, self.time, lifetime, noted)?;
        self.listener
            .session(client, &session, self.time.saturating_add(lifetime));
        Some((session, result))
    }

    /// Returns the client of the connection that has a local port.
    #[must_use]
    pub fn port(&self, answer: &Tuple) -> Option<Tuple> {
        self.tables.ports.look(answer, self.time)
    }

    /// Takes a local port for a client's connection, or renews it. False: another connection has it, or the table is full.
    pub fn hold_port(&self, answer: &Tuple, client: &Tuple, lifetime: u64) -> bool {
        let ports = &self.tables.ports;
        match ports.insert(answer, self.time, lifetime, *client) {
            Ok(()) => self.tell_port(answer, client, lifetime),
            Err(Some(owner)) if owner == *client => self.renew_port(answer, client, lifetime),
            Err(_) => return false,
        }
        true
    }

    /// Renews a local port that this client's connection has.
    pub fn renew_port(&self, answer: &Tuple, client: &Tuple, lifetime: u64) {
        let ports = &self.tables.ports;
        if ports.get(answer, self.time, lifetime).as_ref() == Some(client) {
            self.tell_port(answer, client, lifetime);
        }
    }

    fn tell_port(&self, answer: &Tuple, client: &Tuple, lifetime: u64) {
        let until = self.time.saturating_add(lifetime);
        self.listener.port(answer, Some((client, until)));
    }

    pub fn release_port(&self, answer: &Tuple) {
        if self.tables.ports.remove(answer, self.time).is_some() {
            self.listener.port(answer, None);
        }
    }
}

/// Returns a bit for a flow; other flows may have the same.
pub fn mark<F: Flow>(flow: &F) -> u64 {
    1 << (flow.flow_hash() & 63)
}
