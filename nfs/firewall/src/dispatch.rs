//! The decisions about the packets of a batch.

use nf_packet::{dissect, protocol, tcp_flags, Fragment, Outcome};
use nf_runtime::{Batch, Packet};

use crate::{
    config::{Action, Midstream, OtherFrames, Undecided},
    flows::{connection, flag, stage, Cold, Hot},
    inspection::Inspection,
    key::{message, vlan, Message, Sighting},
    live::Treatment,
    offload::Carry,
    pass::{action, code, reason, Pass, Seen},
    rules::Choice,
    state::word,
};

/// The facts about a packet before the flows of its batch are looked up.
#[derive(Clone, Copy)]
enum Parsed {
    /// It has its verdict.
    Done,
    Flow(Seen, bool),
    Error(Seen),
    Later(Seen),
}

impl<I: Inspection> Pass<'_, I> {
    /// Decides the packets of a batch.
    pub fn batch(&mut self, packets: &mut [Packet]) {
        let mut parsed = [Parsed::Done; Batch::MAX];
        let mut slots = [None; Batch::MAX];
        for (packet, parsed) in packets.iter_mut().zip(&mut parsed) {
            *parsed = self.parse(packet);
            if let Parsed::Flow(seen, _) = parsed {
                self.state.flows.prefetch(seen.hash);
            }
        }
        for (parsed, slot) in parsed.iter().zip(&mut slots) {
            if let Parsed::Flow(seen, _) = parsed {
                *slot = self.state.flows.guess(seen.hash);
                if let Some(slot) = *slot {
                    self.state.flows.prefetch_record(slot);
                }
            }
        }
        for ((packet, parsed), slot) in packets.iter_mut().zip(parsed).zip(slots) {
            match parsed {
                Parsed::Done => {}
                Parsed::Flow(seen, is_reply) => self.of_flow(packet, &seen, slot, is_reply),
                Parsed::Error(seen) => self.related(packet, &seen),
                Parsed::Later(seen) => self.later(packet, &seen),
            }
        }
        self.end();
    }

    /// Finds a packet's flow, and sets the verdict to let it pass.
    #[inline]
    fn parse(&self, packet: &mut Packet) -> Parsed {
        if !self.context.send_across(packet) {
            return Parsed::Done;
        }
        let headers = match dissect(packet.bytes()) {
            Ok(Outcome::Ip(headers)) => headers,
            Ok(Outcome::Arp { .. }) => return Parsed::Done,
            Ok(Outcome::Other { .. }) => {
                if self.live.config.other_frames == OtherFrames::Drop {
                    packet.drop_for(reason::OTHER);
                }
                return Parsed::Done;
            }
            Err(malformed) => {
                packet.drop_for(malformed.name());
                return Parsed::Done;
            }
        };
        let frame = packet.bytes();
        let vlan = vlan(frame);
        let mut seen = Seen {
            headers,
            sighting: Sighting::of(frame, &headers, vlan, 0),
            hash: 0,
        };
        let mut is_reply = false;
        if headers.fragment == Fragment::Later {
            return Parsed::Later(seen);
        }
        match message(frame, &headers) {
            None => {}
            Some(Message::Neighbour) => return Parsed::Done,
            Some(Message::Error) => return Parsed::Error(seen),
            Some(Message::Request(identifier)) => {
                seen.sighting = Sighting::of(frame, &headers, vlan, identifier);
            }
            Some(Message::Reply(identifier)) => {
                seen.sighting = Sighting::of(frame, &headers, vlan, identifier);
                is_reply = true;
            }
        }
        seen.hash = self.state.flows.hash(&seen.sighting.key);
        Parsed::Flow(seen, is_reply)
    }

    /// Decides a packet by its flow.
    fn of_flow(&mut self, packet: &mut Packet, seen: &Seen, guess: Option<u32>, is_reply: bool) {
        let flags = seen.headers.tcp_flags;
        let is_tcp = seen.headers.protocol == protocol::TCP;
        if is_tcp && flags & tcp_flags::SYN != 0 && flags & (tcp_flags::FIN | tcp_flags::RST) != 0 {
            return packet.drop_for(reason::FLAGS);
        }
        let flows = &self.state.flows;
        let right = guess.map(|slot| (slot, flows.hot(slot)));
        let is_it =
            |(_, hot): &(u32, Hot)| hot.stage != stage::FREE && hot.key == seen.sighting.key;
        let found = right.filter(is_it).or_else(|| {
            let slot = flows.find(&seen.sighting.key, seen.hash)?;
            Some((slot, flows.hot(slot)))
        });
        let Some((slot, hot)) = found else {
            return self.open(packet, seen, is_reply);
        };
        let is_new = is_tcp && flags & (tcp_flags::SYN | tcp_flags::ACK) == tcp_flags::SYN;
        if self.is_over(&hot) || is_new && hot.connection == connection::CLOSING {
            if self.acts_otherwise(packet, seen) {
                return packet.drop_for(reason::RULE_ACTS);
            }
            self.remove(slot);
            return self.open(packet, seen, is_reply);
        }
        self.existing(packet, seen, slot, hot);
    }

    /// Decides a packet of a flow that is known.
    fn existing(&mut self, packet: &mut Packet, seen: &Seen, slot: u32, mut hot: Hot) {
        if hot.generation != self.generation {
            self.refresh(slot, &mut hot);
        }
        self.track(&mut hot, slot, seen, packet.bytes());
        hot.seen = self.now();
        hot.packets += 1;
        hot.bytes += seen.bytes();
        if hot.stage == stage::WAITING {
            self.state.flows.put_hot(slot, &hot);
            return self.wait(packet, seen, slot);
        }
        let agrees = hot.flags & (flag::GUARDED * 3) == 0
            || self.agrees(&mut hot, slot, seen, packet.bytes());
        self.state.flows.put_hot(slot, &hot);
        self.count(hot.row, 1, seen.bytes());
        self.carried.sample(&hot.key, hot.client);
        if !agrees {
            return packet.drop_for(reason::DIFFERS);
        }
        if hot.flags & flag::RATED != 0 && !self.admits_packet(&hot) {
            return packet.drop_for(reason::RATE);
        }
        self.treat(packet, seen, slot, &hot);
    }

    /// Gives a packet the treatment of its flow.
    fn treat(&mut self, packet: &mut Packet, seen: &Seen, slot: u32, hot: &Hot) {
        if seen.headers.fragment == Fragment::First {
            self.note_first(packet.bytes(), seen, slot);
        }
        match action(hot.action) {
            Action::Allow => self.let_go(packet, slot),
            Action::Drop if hot.flags & flag::UNDECIDED != 0 => packet.drop_for(reason::UNDECIDED),
            Action::Drop => packet.drop_for(reason::DENIED),
            Action::Reject => {
                self.refuse(packet.bytes(), &seen.headers, packet.port());
                packet.drop_for(reason::REJECTED);
            }
        }
    }

    /// Evaluates a flow by new rules.
    fn refresh(&mut self, slot: u32, hot: &mut Hot) {
        let opening = self.opening(hot);
        if hot.stage == stage::WAITING {
            hot.generation = self.generation;
            if let Choice::Taken(rule, action) = self.live.rules.choose(&opening, None) {
                self.state.flows.put_hot(slot, hot);
                let treatment = Treatment {
                    action,
                    rule,
                    is_undecided: false,
                };
                self.finish(slot, treatment, None);
                *hot = self.state.flows.hot(slot);
            }
            return;
        }
        let known = self.state.known(slot, hot, &self.state.flows.cold(slot));
        let treatment = self.live.treat(&opening, known.as_ref());
        let before = (hot.action, hot.row);
        self.decide(hot, treatment);
        if (hot.action, hot.row) != before {
            self.log(&hot.key, hot.client, treatment, known.as_ref());
        }
    }

    /// Decides a packet of no known flow.
    fn open(&mut self, packet: &mut Packet, seen: &Seen, is_reply: bool) {
        let is_tcp = seen.headers.protocol == protocol::TCP;
        let flags = seen.headers.tcp_flags;
        let opens = flags & (tcp_flags::SYN | tcp_flags::ACK) == tcp_flags::SYN;
        if is_tcp && !opens {
            let may = self.live.config.midstream == Midstream::Evaluate;
            if !may || flags & tcp_flags::RST != 0 {
                return packet.drop_for(reason::NO_CONNECTION);
            }
        }
        if is_reply {
            return packet.drop_for(reason::NO_CONNECTION);
        }
        let client = seen.sighting.sender;
        let opening = seen
            .sighting
            .key
            .opening(client, packet.port(), self.context.ports());
        if self.acts_otherwise(packet, seen) {
            return packet.drop_for(reason::RULE_ACTS);
        }
        match self.live.rules.choose(&opening, None) {
            Choice::Taken(rule, action) => {
                let treatment = Treatment {
                    action,
                    rule,
                    is_undecided: false,
                };
                self.open_decided(packet, seen, treatment);
            }
            Choice::Depends(index) => self.open_waiting(packet, seen, index),
        }
    }

    /// Tells whether a rule of the switch may still give the packets of a new connection another treatment, that of the connection before.
    fn acts_otherwise(&self, packet: &Packet, seen: &Seen) -> bool {
        let Some(acting) = self.carried.of(&seen.sighting.key) else {
            return false;
        };
        let ports = self.context.ports();
        let sighting = &seen.sighting;
        let opening = sighting.key.opening(sighting.sender, packet.port(), ports);
        let Choice::Taken(rule, action) = self.live.rules.choose(&opening, None) else {
            return true;
        };
        let treatment = Treatment {
            action,
            rule,
            is_undecided: false,
        };
        Carry::of(self.live, treatment) != Some(acting)
    }

    /// Handles the first packet of a connection whose treatment does not depend on the application. Only allowed ones are recorded.
    fn open_decided(&mut self, packet: &mut Packet, seen: &Seen, treatment: Treatment) {
        let row = self.live.row(treatment.rule);
        let client = seen.sighting.sender;
        self.count(row, 1, seen.bytes());
        match treatment.action {
            Action::Allow => {
                let mut hot = self.fresh(packet, seen);
                self.decide(&mut hot, treatment);
                if !self.admits_connection(treatment)
                    || hot.flags & flag::RATED != 0 && !self.admits_packet(&hot)
                {
                    return packet.drop_for(reason::RATE);
                }
                let Some(slot) = self.insert(seen, &hot) else {
                    return packet.drop_for(reason::NO_ROOM);
                };
                if seen.headers.fragment == Fragment::First {
                    self.note_first(packet.bytes(), seen, slot);
                }
                // The slot's former flow may have had the same ends, and ended just now with packets that waited.
                self.let_go(packet, slot);
            }
            Action::Drop => packet.drop_for(reason::DENIED),
            Action::Reject => {
                self.refuse(packet.bytes(), &seen.headers, packet.port());
                packet.drop_for(reason::REJECTED);
            }
        }
        self.end();
        self.state.rows.change(row, |row| row.connections += 1);
        self.log(&seen.sighting.key, client, treatment, None);
    }

    /// Handles the first packet of a connection whose treatment depends on the application.
    fn open_waiting(&mut self, packet: &mut Packet, seen: &Seen, rule: usize) {
        if seen.headers.fragment != Fragment::Whole {
            return packet.drop_for(reason::FRAGMENT);
        }
        let undecided = self.live.rules.rules[rule].undecided;
        let mut hot = self.fresh(packet, seen);
        hot.stage = stage::WAITING;
        // If its packets cannot be kept, this holds.
        hot.action = code(match undecided {
            Undecided::Allow => Action::Allow,
            Undecided::Drop => Action::Drop,
        });
        match self.insert(seen, &hot) {
            Some(slot) => self.wait(packet, seen, slot),
            None => packet.drop_for(reason::NO_ROOM),
        }
    }

    /// Returns the record of a new flow.
    fn fresh(&self, packet: &Packet, seen: &Seen) -> Hot {
        Hot {
            key: seen.sighting.key,
            client: seen.sighting.sender,
            port: packet.port() as u8,
            seen: self.now(),
            generation: self.generation,
            packets: 1,
            bytes: seen.bytes(),
            ..Hot::default()
        }
    }

    /// Records a new flow. None: the table is full. Unanswered flows have only a part of the table, and replace each other.
    fn insert(&mut self, seen: &Seen, hot: &Hot) -> Option<u32> {
        if self.state.flows.unanswered() >= self.live.unanswered {
            self.replace();
        }
        let mut cold = Cold {
            created: self.now(),
            ..Cold::default()
        };
        let slot = self.state.flows.insert(seen.hash, hot, &mut cold);
        slot.or_else(|| {
            self.expire(64);
            self.state.flows.insert(seen.hash, hot, &mut cold)
        })
    }

    /// Removes an unanswered flow.
    fn replace(&mut self) {
        let fresh = u64::from(self.state.flows.fresh()).max(1);
        for _ in 0..1024 {
            let slot = (self.state.count(word::REPLACED) % fresh) as u32;
            let hot = self.state.flows.hot(slot);
            if hot.stage != stage::FREE && hot.connection == connection::UNANSWERED {
                self.remove(slot);
                self.state.count(word::FLOWS_REPLACED);
                return;
            }
        }
    }

    /// Removes flows that have ended by time, among the next slots.
    pub fn expire(&mut self, slots: u64) {
        let fresh = u64::from(self.state.flows.fresh());
        for _ in 0..slots.min(fresh) {
            let slot = (self.state.count(word::EXPIRY) % fresh.max(1)) as u32;
            let hot = self.state.flows.hot(slot);
            if hot.stage != stage::FREE && self.is_over(&hot) {
                self.remove(slot);
            }
        }
    }
}
