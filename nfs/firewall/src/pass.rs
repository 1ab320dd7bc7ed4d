//! The pass of a batch: what the decisions about its packets share.

use nf_packet::Headers;
use nf_runtime::{Context, Emitted, Packet, Verdict};

use crate::{
    application::Known,
    config::Action,
    desk::Desk,
    flows::{connection, flag, stage, Hot},
    hits::{Hit, Hits},
    inspection::Inspection,
    key::{Key, Sighting},
    live::{Live, Treatment},
    offload::Carried,
    state::{word, State},
};

/// The reasons for which packets are dropped.
pub mod reason {
    pub const DENIED: &str = "denied by a rule";
    pub const REJECTED: &str = "rejected by a rule";
    pub const RATE: &str = "above the rate of its rule";
    pub const UNDECIDED: &str = "its application was not found out in time";
    pub const NO_CONNECTION: &str = "of no connection";
    pub const FLAGS: &str = "impossible TCP flags";
    pub const NO_ROOM: &str = "no room for another flow";
    pub const HELD: &str = "held until its application is known";
    pub const MANY: &str = "more packets than may wait for an application";
    pub const OUT_OF_ORDER: &str = "out of order before its application is known";
    pub const DIFFERS: &str = "differs from what was sent before";
    pub const FRAGMENT: &str = "fragment before its application is known";
    pub const NO_FIRST: &str = "fragment without its first";
    pub const OTHER: &str = "neither IP nor ARP";
    pub const RULE_ACTS: &str = "a rule of the switch still acts for the connection before";
    pub const BEHIND: &str = "sent behind packets that waited";
}

/// A packet's flow and headers.
#[derive(Clone, Copy)]
pub struct Seen {
    pub headers: Headers,
    pub sighting: Sighting,
    pub hash: u64,
}

impl Seen {
    /// Returns the length of the IP packet.
    pub fn bytes(&self) -> u64 {
        u64::from(self.headers.end).saturating_sub(self.headers.network.into())
    }
}

/// The pass.
pub struct Pass<'a, I> {
    pub state: &'a State,
    pub live: &'a Live,
    pub desk: &'a mut Desk<I>,
    pub hits: &'a mut Hits,
    pub carried: &'a mut Carried,
    pub context: &'a Context<'a>,
    pub emitted: &'a mut Emitted,
    pub generation: u64,
    /// The slots of flows of which frames were emitted. Their packets of this batch must leave behind them.
    touched: Vec<u32>,
    /// A row, and packets and bytes that it is to count.
    tally: (u16, u64, u64),
}

impl<'a, I: Inspection> Pass<'a, I> {
    pub fn new(
        state: &'a State,
        live: &'a Live,
        (desk, hits, carried): (&'a mut Desk<I>, &'a mut Hits, &'a mut Carried),
        context: &'a Context<'a>,
        emitted: &'a mut Emitted,
    ) -> Self {
        Self {
            state,
            live,
            desk,
            hits,
            carried,
            context,
            emitted,
            generation: state.word(word::GENERATION),
            touched: Vec::new(),
            tally: (0, 0, 0),
        }
    }

    pub fn now(&self) -> u64 {
        self.context.now()
    }

    /// Counts packets for a rule's row.
    #[inline]
    pub fn count(&mut self, row: u16, packets: u64, bytes: u64) {
        if self.tally.0 != row {
            self.end();
            self.tally.0 = row;
        }
        self.tally.1 += packets;
        self.tally.2 += bytes;
    }

    /// Writes the counts.
    pub fn end(&mut self) {
        let (row, packets, bytes) = self.tally;
        if packets > 0 {
            self.state.rows.count(row, packets, bytes);
        }
        self.tally = (row, 0, 0);
    }

    /// Lets a packet go, behind frames of its flow that this batch has emitted.
    #[inline]
    pub fn let_go(&mut self, packet: &mut Packet, slot: u32) {
        if self.touched.is_empty() || !self.touched.contains(&slot) {
            return;
        }
        if let Verdict::Send(port) = packet.verdict() {
            self.emitted.emit(port, packet.bytes());
            packet.drop_for(reason::BEHIND);
        }
    }

    /// Sends a stored frame of a flow.
    pub fn emit(&mut self, slot: u32, ingress: u8, frame: &[u8]) {
        let port = (usize::from(ingress) + 1) % self.context.ports().max(1);
        self.emitted.emit(port, frame);
        if !self.touched.contains(&slot) {
            self.touched.push(slot);
        }
    }

    /// Writes a line about a connection, if its rule asks for it.
    pub fn log(&mut self, key: &Key, client: u8, treatment: Treatment, known: Option<&Known>) {
        let live = self.live;
        let Some(rule) = live.rule(treatment).filter(|rule| rule.log) else {
            return;
        };
        if !self.hits.is_open() {
            return;
        }
        let (source, source_port) = key.end(client);
        let (destination, destination_port) = key.end(1 - client.min(1));
        let has_ports = matches!(key.protocol, 6 | 17);
        let host = known.filter(|known| live.config.log_hosts && !known.host.is_empty());
        self.hits.write(&Hit {
            time: self.context.unix_seconds(),
            rule: &rule.name,
            action: treatment.action.name(),
            protocol: key.protocol,
            source,
            source_port: has_ports.then_some(source_port),
            destination,
            destination_port: has_ports.then_some(destination_port),
            vlan: (key.vlan != 0).then_some(key.vlan),
            application: known.map(|known| live.catalogue.name(known)),
            category: known.map(|known| live.catalogue.category(known)),
            host: host.map(|known| known.host.clone()),
            undecided: treatment.is_undecided,
        });
    }

    /// Applies a treatment to a flow's record, which the caller stores.
    pub fn decide(&self, hot: &mut Hot, treatment: Treatment) {
        use crate::config::Rate;
        let rated = self.live.rule(treatment).and_then(|rule| rule.rate);
        hot.stage = stage::DECIDED;
        hot.action = code(treatment.action);
        hot.row = self.live.row(treatment.rule);
        hot.generation = self.generation;
        hot.flags &= !(flag::RATED | flag::UNDECIDED);
        if matches!(rated, Some(Rate::Packets(_))) && treatment.action == Action::Allow {
            hot.flags |= flag::RATED;
        }
        if treatment.is_undecided {
            hot.flags |= flag::UNDECIDED;
            self.state.rows.change(hot.row, |row| row.undecided += 1);
        }
    }

    /// Tells whether a rule's rate of connections admits one more. True without such a rate.
    pub fn admits_connection(&self, treatment: Treatment) -> bool {
        use crate::config::Rate;
        match self.live.rule(treatment).and_then(|rule| rule.rate) {
            Some(rate @ Rate::Connections(_)) => {
                let row = self.live.row(treatment.rule);
                self.state.rows.admits(row, rate, self.now())
            }
            _ => true,
        }
    }

    /// Tells whether a rule's rate of packets admits one more.
    pub fn admits_packet(&self, hot: &Hot) -> bool {
        let rate = self.live.by_row(hot.row).and_then(|rule| rule.rate);
        rate.is_none_or(|rate| self.state.rows.admits(hot.row, rate, self.now()))
    }

    /// Removes a flow, also at the inspector.
    pub fn remove(&mut self, slot: u32) {
        let cold = self.state.flows.cold(slot);
        let is_known = self.state.flows.hot(slot).flags & flag::KNOWN != 0;
        if let Some(inspector) = self
            .desk
            .inspector
            .as_ref()
            .filter(|_| cold.submitted > 0 && !is_known)
        {
            inspector.forget(cold.id);
        }
        self.state.remove(slot);
    }

    /// Tells whether a flow has ended by time. While a rule of the switch may carry its packets, the firewall cannot tell.
    #[inline]
    pub fn is_over(&self, hot: &Hot) -> bool {
        let lifetime = self.live.lifetimes[usize::from(hot.connection & 3)];
        self.context.now().saturating_sub(hot.seen) > lifetime
            && self.carried.of(&hot.key).is_none()
    }

    /// Follows the state of a connection.
    #[inline]
    pub fn answered(&self, hot: &mut Hot, new: u8) {
        if hot.connection == connection::UNANSWERED && new != connection::UNANSWERED {
            self.state.flows.answered();
        }
        hot.connection = new;
    }
}

/// Returns the action as a flow's record has it.
#[inline]
pub fn code(action: Action) -> u8 {
    match action {
        Action::Allow => 0,
        Action::Drop => 1,
        Action::Reject => 2,
    }
}

/// Returns the action of a flow's record.
#[inline]
pub fn action(code: u8) -> Action {
    match code {
        0 => Action::Allow,
        2 => Action::Reject,
        _ => Action::Drop,
    }
}
