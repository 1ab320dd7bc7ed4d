//! The one task that owns the core. In each round it takes pending events, lets the core process all of them, and sends the core's output.
//!
//! Events of switches are never delayed. The engine takes a controller's next message only while the core has room for its cost
//! ([`Core::takes_messages_of`]) and the switches read; the rest of its chunk waits, and its connection is not read.

mod intake;
mod message_log;
mod report;
mod requests;
mod status;
#[cfg(test)]
mod tests;
mod waiting;
mod writers;

use std::collections::HashMap;
use std::pin::pin;
use std::time::Duration;

use bytes::BytesMut;
use oneswitch_core::{Bridge, ControllerId, Core, Destination, Greeting, SwitchIndex};
use openflow13::openflow10;
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep_until, Instant};
use tracing::{debug, info, warn};

use crate::aside::drop_aside;
use crate::events::{Dialled, Event, Handle, Link, Peer};
use crate::journal::{wall_clock, Journal};
use crate::session::{is_echo, is_private, messages};
use crate::state::Saver;
use crate::subscriptions::{Subscribed, Subscriptions};
use message_log::log_messages;
pub use report::Report;
use waiting::Waiting;
pub use writers::Writers;

/// Events per round; further ones wait for the next, so that a flood of input does not block output.
const ROUND: usize = 256;
/// Shortest time between two ticks of the core.
const TICK: Duration = Duration::from_millis(1);
/// A controller with this many unsent bytes is disconnected. Replies and packet-ins stop earlier; other notifications do not.
const BACKLOG_LIMIT: usize = 64 << 20;

struct Session {
    peer: Peer,
    handle: Handle,
    messages_in: u64,
    messages_out: u64,
    /// Messages of a controller that are not taken yet. The session waits for [`Handle::resume`] until they are.
    rest: BytesMut,
    /// Whether it was asked to report room.
    awaits_room: bool,
}

/// A bridge of a switch and its session, if there is one.
struct BridgeLink {
    link: Link,
    connection: Option<u64>,
}

pub struct Engine {
    core: Core,
    report: Report,
    sessions: HashMap<u64, Session>,
    /// `virt` and `edge` of each switch.
    bridges: Vec<[BridgeLink; 2]>,
    /// Links of the controllers that oneswitchd connects to.
    dialled: Vec<Link>,
    /// Controllers whose chunk is not completely taken, or who have not been resumed yet.
    paused: Vec<u64>,
    waiting: Waiting,
    writers: Writers,
    journal: Option<Journal>,
    subscriptions: Subscriptions,
    /// The connections of OpenFlow 1.0, by switch; and those that are told the properties of groups.
    version10: HashMap<SwitchIndex, u64>,
    properties: HashMap<SwitchIndex, u64>,
    /// Those of OpenFlow 1.4 to each `edge`.
    port_counters: HashMap<SwitchIndex, u64>,
    /// Signalled when all switches are in sync for the first time.
    in_step: Option<watch::Sender<bool>>,
}

impl Engine {
    pub fn new(core: Core, report: Report, saver: Option<Saver>) -> Self {
        let bridge = || BridgeLink {
            link: Link::Connecting { last_error: None },
            connection: None,
        };
        Self {
            bridges: report
                .switches
                .iter()
                .map(|_| [bridge(), bridge()])
                .collect(),
            dialled: report
                .controllers
                .iter()
                .map(|_| Link::Connecting { last_error: None })
                .collect(),
            waiting: Waiting::new(&core, saver),
            core,
            report,
            sessions: HashMap::new(),
            paused: Vec::new(),
            writers: Writers::default(),
            journal: None,
            subscriptions: Subscriptions::default(),
            version10: HashMap::new(),
            properties: HashMap::new(),
            port_counters: HashMap::new(),
            in_step: None,
        }
    }

    pub fn with_journal(mut self, journal: Option<Journal>) -> Self {
        self.journal = journal;
        self
    }

    pub fn with_writers(mut self, writers: Writers) -> Self {
        self.writers = writers;
        self
    }

    /// Returns what tells which packet-ins to subscribe to on connections of their own.
    pub fn subscribed(&self) -> Subscribed {
        self.subscriptions.subscribed()
    }

    /// Signals `in_step` when every switch has what the core wants.
    pub fn telling(mut self, in_step: watch::Sender<bool>) -> Self {
        self.in_step = Some(in_step);
        self
    }

    /// Runs until [`Event::Stop`].
    pub async fn run(mut self, mut events: mpsc::UnboundedReceiver<Event>) {
        let mut timer = pin!(sleep_until(Instant::now()));
        let mut earliest = Instant::now();
        loop {
            let deadlines = [self.core.next_deadline(), self.waiting.deadline()];
            let deadline = deadlines.into_iter().flatten().min();
            if let Some(deadline) =
                deadline.map(|deadline| Instant::from_std(deadline).max(earliest))
            {
                if deadline != timer.deadline() {
                    timer.as_mut().reset(deadline);
                }
            }
            let ready = self.can_go_on() || self.writers.can_go_on(&self.core);
            let first = tokio::select! {
                biased;
                () = tokio::task::yield_now(), if ready => None,
                event = events.recv() => Some(event.unwrap_or(Event::Stop)),
                () = self.waiting.ports_saved() => None,
                () = &mut timer, if deadline.is_some() => None,
            };
            // The timer's clock, so that stopping one stops both.
            let now = Instant::now().into_std();
            self.learn_unsent();
            self.feed_paused(now);
            let ready = std::iter::from_fn(|| events.try_recv().ok());
            for event in first.into_iter().chain(ready).take(ROUND) {
                if matches!(event, Event::Stop) {
                    return;
                }
                self.take(event, now);
            }
            self.writers.feed(&mut self.core, now);
            if self
                .core
                .next_deadline()
                .is_some_and(|deadline| deadline <= now)
            {
                self.core.tick(now);
                earliest = Instant::from_std(now) + TICK;
            }
            self.finish_round(now);
        }
    }

    fn take(&mut self, event: Event, now: std::time::Instant) {
        match event {
            Event::Frames { connection, bytes } => self.frames(connection, bytes, now),
            Event::Up {
                connection,
                peer,
                version,
                handle,
            } => self.up(connection, peer, version, handle, now),
            Event::Room { connection } => {
                if let Some(session) = self.sessions.get_mut(&connection) {
                    session.awaits_room = false;
                }
            }
            Event::Silence {
                connection,
                is_silent,
            } => self.silence(connection, is_silent),
            Event::Down { connection, reason } => {
                if let Some(session) = self.forget(connection, now) {
                    self.set_link(&session.peer, Link::Backoff { last_error: reason });
                }
            }
            Event::Dial { dialled, link } => {
                if let Some(slot) = self.link_mut(dialled) {
                    *slot = link;
                }
            }
            Event::Request { request, reply } => self.request(request, reply, now),
            Event::Writer {
                writer,
                hello,
                handle,
            } => {
                let (core, hello) = (&mut self.core, (hello, handle));
                self.writers.up(core, writer, hello, now);
            }
            Event::WriterLines {
                writer,
                requests,
                trouble,
            } => self.writers.lines(writer, requests, trouble),
            Event::WriterGone { writer } => self.writers.gone(&mut self.core, writer, now),
            Event::CacheEnded { switch, has_ended } => {
                self.core.cached_flows_ended(switch, has_ended, now);
            }
            Event::Stop => {}
        }
    }

    fn up(
        &mut self,
        connection: u64,
        peer: Peer,
        version: u8,
        handle: Handle,
        now: std::time::Instant,
    ) {
        match &peer {
            Peer::Controller {
                target, address, ..
            } => {
                log_arrival(connection, target, address);
                let greeting = Greeting {
                    version,
                    // As Open vSwitch's own management socket.
                    is_service: target.starts_with("punix:"),
                };
                self.core
                    .controller_up(ControllerId(connection), greeting, now);
            }
            Peer::Switch(switch, bridge) => {
                let target = self.report.bridge(*switch, *bridge);
                info!(target: "southbound", "{target}: connected");
                if let Some(slot) = self.bridge_mut(*switch, *bridge) {
                    slot.connection = Some(connection);
                }
                self.core.switch_up(*switch, *bridge, now);
            }
            Peer::Misses(_) => _ = handle.write(openflow10::subscribe_to_misses()),
            Peer::Version10(switch) => {
                _ = handle.write(openflow10::decline_misses(version));
                self.version10.insert(*switch, connection);
                self.core.version10_up(*switch, now);
            }
            Peer::Properties(switch) => {
                _ = handle.write(openflow10::decline_misses(version));
                self.properties.insert(*switch, connection);
                self.core.properties_up(*switch, now);
            }
            Peer::PortCounters(switch) => {
                _ = handle.write(openflow10::decline_misses(version));
                self.port_counters.insert(*switch, connection);
                self.core.port_counters_up(*switch, now);
            }
            Peer::Collector(_, id) => _ = handle.write(self.core.collector_up(version, *id)),
        }
        self.set_link(&peer, Link::Connected);
        self.sessions.insert(
            connection,
            Session {
                peer,
                handle,
                messages_in: 0,
                messages_out: 0,
                rest: BytesMut::new(),
                awaits_room: false,
            },
        );
    }

    fn silence(&mut self, connection: u64, is_silent: bool) {
        // Unknown: the session ended while this was on its way.
        let Some(session) = self.sessions.get(&connection) else {
            return;
        };
        let Peer::Switch(switch, bridge) = session.peer else {
            return;
        };
        let target = self.report.bridge(switch, bridge);
        let link = if is_silent {
            warn!(target: "southbound", "{target}: does not answer an echo request; its Open vSwitch hangs, or is not reached");
            Link::Silent
        } else {
            info!(target: "southbound", "{target}: answers again");
            Link::Connected
        };
        self.set_link(&Peer::Switch(switch, bridge), link);
    }

    fn frames(&mut self, connection: u64, bytes: BytesMut, now: std::time::Instant) {
        // Unknown: a session ended here while these bytes were in flight.
        let Some(session) = self.sessions.get_mut(&connection) else {
            return;
        };
        log_messages("<", connection, &session.peer, &bytes);
        match session.peer {
            Peer::Controller { .. } => {
                session.rest = bytes;
                self.paused.push(connection);
                self.feed(connection, now);
            }
            Peer::Switch(switch, bridge) => {
                for (header, frame) in messages(&bytes) {
                    session.messages_in += 1;
                    if !is_private(header) {
                        self.core.switch_message(switch, bridge, frame, now);
                    }
                }
                // The session can use the memory again when it resumes reading.
                drop(bytes);
                session.handle.resume();
            }
            Peer::Misses(switch) => {
                for (header, frame) in messages(&bytes) {
                    if !is_echo(header) {
                        self.core.packet_missed(switch, frame);
                    }
                }
                session.handle.resume();
            }
            Peer::Version10(switch) => {
                for (header, frame) in messages(&bytes) {
                    if !is_echo(header) {
                        self.core.version10_told(switch, frame, now);
                    }
                }
                session.handle.resume();
            }
            Peer::Properties(switch) => {
                for (header, frame) in messages(&bytes) {
                    if !is_echo(header) {
                        self.core.properties_told(switch, frame, now);
                    }
                }
                session.handle.resume();
            }
            Peer::PortCounters(switch) => {
                for (header, frame) in messages(&bytes) {
                    if !is_echo(header) {
                        self.core.port_counters_told(switch, frame, now);
                    }
                }
                session.handle.resume();
            }
            Peer::Collector(switch, id) => {
                for (_, frame) in messages(&bytes) {
                    self.core.collected(switch, id, frame);
                }
                session.handle.resume();
            }
        }
    }

    fn follow_subscriptions(&mut self) {
        self.subscriptions.follow(&self.core);
        let over = |session: &&Session| self.subscriptions.are_over_for(&session.peer);
        for session in self.sessions.values().filter(over) {
            let reason = "no controller wants what it tells any more";
            session.handle.close(reason.into());
        }
    }

    fn finish_round(&mut self, now: std::time::Instant) {
        if self.journal.is_some() {
            self.core.keep_journal(now, wall_clock());
        }
        self.waiting.tell_saved(&mut self.core);
        self.core.end_of_batch(now);
        if let Some(journal) = &mut self.journal {
            journal.append(&mut self.core, now);
        }
        if self.in_step.is_some() && self.core.is_in_step() {
            if let Some(in_step) = self.in_step.take() {
                in_step.send_replace(true);
            }
        }
        for (destination, bytes) in self.core.take_outputs() {
            self.write(destination, bytes, now);
        }
        if let Some(discarded) = self.core.take_discarded() {
            drop_aside("discarded", discarded);
        }
        for (id, reason) in self.core.take_disconnects() {
            if let Some(session) = self.forget(id.0, now) {
                session.handle.close(reason);
            }
        }
        for (switch, bridge, reason) in self.core.take_switch_disconnects() {
            let connection = self
                .bridge_mut(switch, bridge)
                .and_then(|slot| slot.connection);
            if let Some(session) = connection.and_then(|connection| self.forget(connection, now)) {
                self.set_link(
                    &session.peer,
                    Link::Backoff {
                        last_error: reason.clone(),
                    },
                );
                session.handle.close(reason);
            }
        }
        self.writers.finish_round(&mut self.core, now);
        self.follow_subscriptions();
        self.resume_paused();
        self.ask_for_room();
        self.waiting.finish_round(&mut self.core);
        self.waiting.answer_pending(&self.core, now);
        self.answer_who_awaits_up();
    }

    fn write(&mut self, destination: Destination, bytes: Vec<u8>, now: std::time::Instant) {
        let connection = match destination {
            Destination::Controller(id) => Some(id.0),
            Destination::Switch(switch, bridge) => self
                .bridge_mut(switch, bridge)
                .and_then(|slot| slot.connection),
            Destination::Version10(switch) => self.version10.get(&switch).copied(),
            Destination::Properties(switch) => self.properties.get(&switch).copied(),
            Destination::PortCounters(switch) => self.port_counters.get(&switch).copied(),
        };
        // The core learns from an own event that a peer has disconnected since it wrote this.
        let Some(connection) = connection else { return };
        let Some(session) = self.sessions.get_mut(&connection) else {
            return;
        };
        log_messages(">", connection, &session.peer, &bytes);
        session.messages_out += count_messages(&bytes);
        let backlog = session.handle.write(bytes);
        if backlog > BACKLOG_LIMIT && matches!(session.peer, Peer::Controller { .. }) {
            if let Some(session) = self.forget(connection, now) {
                session
                    .handle
                    .abort(format!("it does not read: {backlog} bytes are unsent"));
            }
        }
    }

    /// Ends a session for the core.
    fn forget(&mut self, connection: u64, now: std::time::Instant) -> Option<Session> {
        let session = self.sessions.remove(&connection)?;
        match session.peer {
            Peer::Controller { .. } => self.core.controller_down(ControllerId(connection), now),
            Peer::Switch(switch, bridge) => {
                if let Some(slot) = self.bridge_mut(switch, bridge) {
                    slot.connection = None;
                }
                self.core.switch_down(switch, bridge, now);
            }
            Peer::Misses(switch) => self.core.misses_down(switch),
            Peer::Version10(switch) => {
                self.version10.remove(&switch);
                self.core.version10_down(switch, now);
            }
            Peer::Properties(switch) => {
                self.properties.remove(&switch);
                self.core.properties_down(switch, now);
            }
            Peer::PortCounters(switch) => {
                self.port_counters.remove(&switch);
                self.core.port_counters_down(switch);
            }
            Peer::Collector(switch, id) => self.core.collector_down(switch, id),
        }
        Some(session)
    }

    fn set_link(&mut self, peer: &Peer, link: Link) {
        let dialled = match peer {
            Peer::Controller {
                dialled: Some(index),
                ..
            } => Dialled::Controller(*index),
            Peer::Controller { dialled: None, .. }
            | Peer::Misses(_)
            | Peer::Version10(_)
            | Peer::Properties(_)
            | Peer::PortCounters(_)
            | Peer::Collector(..) => return,
            Peer::Switch(switch, bridge) => Dialled::Switch(*switch, *bridge),
        };
        if let Some(slot) = self.link_mut(dialled) {
            *slot = link;
        }
    }

    fn link_mut(&mut self, dialled: Dialled) -> Option<&mut Link> {
        match dialled {
            Dialled::Controller(index) => self.dialled.get_mut(index),
            Dialled::Switch(switch, bridge) => {
                self.bridge_mut(switch, bridge).map(|slot| &mut slot.link)
            }
        }
    }

    fn bridge_mut(&mut self, switch: SwitchIndex, bridge: Bridge) -> Option<&mut BridgeLink> {
        let [virt, edge] = self.bridges.get_mut(switch)?;
        Some(match bridge {
            Bridge::Virt => virt,
            Bridge::Edge => edge,
        })
    }
}

fn count_messages(bytes: &[u8]) -> u64 {
    messages(bytes).fold(0, |count, _| count + 1)
}

/// Unix sockets, whose peers have no address, serve short-lived tools: too many to log at `info`.
fn log_arrival(connection: u64, target: &str, address: &str) {
    if address.is_empty() {
        debug!(target: "northbound", "controller {connection} connected on {target}");
    } else {
        info!(target: "northbound", "controller {connection} connected on {target} from {address}");
    }
}
