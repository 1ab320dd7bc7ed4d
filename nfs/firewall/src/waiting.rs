//! Flows whose application is looked for: their first packets go to the inspector, and leave when it has answered.

use nf_packet::{protocol, tcp_flags, Fragment, Tcp};
use nf_runtime::Packet;

use crate::{
    application::Known,
    config::Action,
    flows::{counted, flag, stage, Cold, Hot},
    inspection::{Answer, Inspection, Refused, Request},
    live::Treatment,
    pass::{action, reason, Pass, Seen},
    prefix::Stored,
    refusing,
    rules::Opening,
    state::word,
    tcp::first_byte,
};

/// A segment's place in the stream of its end.
enum Place {
    Next,
    /// The receiver may have it already.
    Again,
    Ahead,
    Differs,
}

impl<I: Inspection> Pass<'_, I> {
    pub fn opening(&self, hot: &Hot) -> Opening {
        hot.key
            .opening(hot.client, hot.port.into(), self.context.ports())
    }

    /// Handles a packet of a waiting flow.
    pub fn wait(&mut self, packet: &mut Packet, seen: &Seen, slot: u32) {
        if seen.headers.fragment != Fragment::Whole {
            return packet.drop_for(reason::FRAGMENT);
        }
        let mut cold = self.state.flows.cold(slot);
        let mut stored = Stored {
            sequence: 0,
            time: self.now(),
            length: packet.len() as u32,
            network: seen.headers.network,
            port: packet.port() as u8,
            sender: seen.sighting.sender & 1,
            end: seen.headers.end,
            ..Stored::default()
        };
        let mut payload = true;
        if seen.headers.protocol == protocol::TCP {
            match self.place(&mut cold, &mut stored, packet.bytes(), seen) {
                Place::Next => {}
                Place::Ahead => return packet.drop_for(reason::OUT_OF_ORDER),
                Place::Differs => return packet.drop_for(reason::DIFFERS),
                Place::Again if cold.released == cold.stored => return self.let_go(packet, slot),
                Place::Again => return packet.drop_for(reason::HELD),
            }
            payload = !stored.payload(packet.bytes()).is_empty();
        }
        let limit = self.live.config.inspection.packets;
        let nothing_waits = cold.released == cold.stored;
        if !payload && cold.submitted == 0 && nothing_waits {
            // A handshake costs the inspector nothing, and does not wait. The last place is for payload.
            let is_last = cold.is_full_with(packet.len(), limit);
            if !is_last && self.store(&mut cold, stored, packet.bytes()) {
                cold.released = cold.stored;
            }
            self.state.flows.put_cold(slot, &cold);
            return self.let_go(packet, slot);
        }
        if cold.is_full(limit) {
            return packet.drop_for(reason::MANY);
        }
        if !self.store(&mut cold, stored, packet.bytes()) {
            // Without memory, nothing is found out about this flow.
            self.state.flows.put_cold(slot, &cold);
            self.undecided(slot);
            return self.follow(packet, slot);
        }
        self.state.flows.put_cold(slot, &cold);
        let deadline = self.now() + self.live.wait;
        self.desk
            .deadlines
            .push_back((deadline, cold.id, cold.stored - 1));
        packet.drop_for(reason::HELD);
        self.advance(slot);
    }

    /// Treats the packet that has decided its flow, and was counted with it.
    fn follow(&mut self, packet: &mut Packet, slot: u32) {
        if action(self.state.flows.hot(slot).action) == Action::Allow {
            self.let_go(packet, slot);
        } else {
            packet.drop_for(reason::UNDECIDED);
        }
    }

    /// Finds a segment's place, and notes where the next one is to begin.
    fn place(&self, cold: &mut Cold, stored: &mut Stored, frame: &[u8], seen: &Seen) -> Place {
        let Ok(tcp) = Tcp::new_checked(seen.headers.segment(frame)) else {
            return Place::Ahead;
        };
        let end = usize::from(stored.sender);
        let first = first_byte(&tcp);
        let length = tcp.payload().len() as u32;
        stored.number = first;
        stored.payload = seen.headers.transport + tcp.header_length() as u16;
        let is_syn = tcp.flags() & tcp_flags::SYN != 0;
        let is_first = match cold.counted[end] {
            counted::NOTHING => true,
            counted::EMPTY => length > 0,
            _ => false,
        };
        if is_first || is_syn && cold.submitted == 0 {
            cold.counted[end] = match is_syn || length > 0 {
                true => counted::BYTES,
                false => counted::EMPTY,
            };
            cold.next[end] = first.wrapping_add(length);
            return Place::Next;
        }
        if length == 0 {
            return Place::Next;
        }
        let ahead = first.wrapping_sub(cold.next[end]) as i32;
        if ahead > 0 {
            return Place::Ahead;
        }
        if ahead < 0
            && !self
                .state
                .prefixes
                .agrees(cold, stored.sender, first, tcp.payload())
        {
            return Place::Differs;
        }
        let after = first.wrapping_add(length);
        if after.wrapping_sub(cold.next[end]) as i32 <= 0 {
            return Place::Again;
        }
        cold.next[end] = after;
        Place::Next
    }

    /// Stores a packet; forgets prefixes of decided flows if the pool is full.
    fn store(&self, cold: &mut Cold, mut stored: Stored, frame: &[u8]) -> bool {
        let state = self.state;
        let mut looks = 256;
        while !state.prefixes.has_room(frame.len()) && looks > 0 {
            looks -= 1;
            let fresh = u64::from(state.flows.fresh()).max(1);
            let slot = (state.count(word::FORGOTTEN) % fresh) as u32;
            let mut other = state.flows.cold(slot);
            if state.flows.hot(slot).stage == stage::DECIDED
                && other.stored > 0
                && other.id != cold.id
            {
                state.prefixes.clear(&mut other);
                state.flows.put_cold(slot, &other);
                state.count(word::PREFIXES_FORGOTTEN);
            }
        }
        stored.sequence = state.count(word::SEQUENCE);
        state.prefixes.store(cold, stored, frame)
    }

    /// Gives the inspector the next packets of a flow: those without payload, and one with payload, whose answer may end the flow's inspection.
    pub fn advance(&mut self, slot: u32) {
        loop {
            let hot = self.state.flows.hot(slot);
            let mut cold = self.state.flows.cold(slot);
            if hot.flags & flag::KNOWN != 0 || self.desk.is_behind() {
                return;
            }
            let Some(inspector) = &self.desk.inspector else {
                return;
            };
            if cold.answered < cold.submitted && cold.is_telling != 0 {
                return;
            }
            let packet = if cold.submitted < cold.stored {
                self.state.prefixes.packet(&cold, cold.submitted)
            } else if cold.lacks_guess(self.live.config.inspection.packets)
                && cold.answered >= cold.submitted
            {
                self.state.prefixes.packet(&cold, cold.stored - 1)
            } else {
                None
            };
            let Some((stored, frame)) = packet else {
                return;
            };
            let is_guess = cold.submitted == cold.stored;
            let request = if is_guess {
                Request::GiveUp {
                    flow: cold.id,
                    sequence: stored.sequence,
                }
            } else {
                stored.request(cold.id, &frame, self.desk.latest)
            };
            match inspector.submit(request) {
                Ok(()) => {}
                Err(Refused::Later) => return self.desk.backlog.push_back(cold.id),
                Err(Refused::Never) => {
                    if hot.stage == stage::WAITING {
                        self.undecided(slot);
                    }
                    return;
                }
            }
            self.desk.outstanding += 1;
            self.desk.latest = self.desk.latest.max(stored.time);
            if is_guess {
                cold.given_up = 1;
            } else {
                cold.submitted += 1;
                cold.is_telling = u8::from(stored.is_telling(hot.key.protocol));
            }
            self.state.flows.put_cold(slot, &cold);
        }
    }

    /// Takes answers, and does the work that is due.
    pub fn attend(&mut self) {
        if !self.desk.catch_up(self.state, self.live) {
            self.take_answers();
            return self.time_out();
        }
        self.take_answers();
        for _ in 0..self.desk.backlog.len() {
            let Some(id) = self.desk.backlog.pop_front() else {
                break;
            };
            let length = self.desk.backlog.len();
            if let Some(slot) = self.state.flows.slot_of(id) {
                self.advance(slot);
            }
            if self.desk.backlog.len() > length {
                // The ring is full. This flow stays first, so that packets keep their order.
                self.desk.backlog.rotate_right(1);
                break;
            }
        }
        self.time_out();
    }

    fn take_answers(&mut self) {
        loop {
            let mut answers = Vec::new();
            let Some(inspector) = &self.desk.inspector else {
                return;
            };
            let count = inspector.poll(&mut |answer| answers.push(answer));
            if count == 0 {
                return;
            }
            self.desk.outstanding = self.desk.outstanding.saturating_sub(count);
            for answer in answers {
                self.take(&answer);
            }
        }
    }

    fn take(&mut self, answer: &Answer) {
        let state = self.state;
        let Some(slot) = state.flows.slot_of(answer.flow) else {
            return;
        };
        let mut hot = state.flows.hot(slot);
        let mut cold = state.flows.cold(slot);
        if hot.flags & flag::KNOWN != 0 {
            return;
        }
        let is_answered = |_, stored: &Stored| stored.sequence == answer.sequence;
        let Some((index, _)) = state.prefixes.find(&cold, is_answered) else {
            return;
        };
        if !answer.is_final {
            cold.answered = cold.answered.saturating_add(1).min(cold.submitted);
            state.flows.put_cold(slot, &cold);
            if hot.stage == stage::WAITING {
                // The last packet waits for the guess: what the receiver answers has no place before the verdict.
                let is_last =
                    index + 1 == cold.stored && cold.is_full(self.live.config.inspection.packets);
                self.release(slot, index + u8::from(!is_last));
            }
            return self.advance(slot);
        }
        if index + 1 < cold.submitted {
            // It took later packets for those of another flow.
            if let Some(inspector) = &self.desk.inspector {
                inspector.forget(cold.id);
            }
            (cold.submitted, cold.given_up) = (index + 1, 0);
        }
        cold.answered = cold.submitted;
        state.put_known(slot, &mut hot, &mut cold, &answer.known);
        state.flows.put_cold(slot, &cold);
        state.flows.put_hot(slot, &hot);
        state.count(word::VERDICTS);
        let treatment = self.live.treat(&self.opening(&hot), Some(&answer.known));
        if hot.stage == stage::WAITING {
            self.finish(slot, treatment, Some(&answer.known));
        } else {
            state.count(word::LATE_VERDICTS);
            self.decide(&mut hot, treatment);
            state.flows.put_hot(slot, &hot);
            self.log(&hot.key, hot.client, treatment, Some(&answer.known));
        }
    }

    /// Sends waiting packets of a flow, up to an index.
    fn release(&mut self, slot: u32, until: u8) {
        let mut cold = self.state.flows.cold(slot);
        let state = self.state;
        state
            .prefixes
            .each(&cold, cold.released, |index, stored, frame| {
                if index < until {
                    self.emit(slot, stored.port, frame);
                }
                index + 1 < until
            });
        cold.released = cold.released.max(until.min(cold.stored));
        state.flows.put_cold(slot, &cold);
    }

    /// Decides a waiting flow, and sends or drops its packets that wait.
    pub fn finish(&mut self, slot: u32, mut treatment: Treatment, known: Option<&Known>) {
        let mut hot = self.state.flows.hot(slot);
        if treatment.action == Action::Allow && !self.admits_connection(treatment) {
            treatment.action = Action::Drop;
        }
        self.decide(&mut hot, treatment);
        let cold = self.state.flows.cold(slot);
        if hot.key.protocol == protocol::TCP {
            self.state.prefixes.each(&cold, 0, |_, stored, frame| {
                if !stored.payload(frame).is_empty() {
                    hot.flags |= flag::GUARDED << (stored.sender & 1);
                }
                true
            });
        }
        self.state.flows.put_hot(slot, &hot);
        self.state.rows.change(hot.row, |row| row.connections += 1);
        // Its packets were counted by no rule until now.
        self.count(hot.row, hot.packets, hot.bytes);
        match treatment.action {
            Action::Allow => self.release(slot, cold.stored),
            Action::Drop => self.discard(slot),
            Action::Reject => {
                self.refuse_waiting(&cold);
                self.discard(slot);
            }
        }
        self.log(&hot.key, hot.client, treatment, known);
    }

    fn discard(&self, slot: u32) {
        let mut cold = self.state.flows.cold(slot);
        cold.released = cold.stored;
        self.state.flows.put_cold(slot, &cold);
    }

    /// Tells both ends that their connection is rejected, by the last packet that waits.
    fn refuse_waiting(&mut self, cold: &Cold) {
        let last = cold
            .stored
            .checked_sub(1)
            .filter(|_| cold.released < cold.stored);
        let packet = last.and_then(|index| self.state.prefixes.packet(cold, index));
        let Some((stored, frame)) = packet else {
            return;
        };
        if let Ok(nf_packet::Outcome::Ip(headers)) = nf_packet::dissect(&frame) {
            self.refuse(&frame, &headers, stored.port.into());
            if let Some(reset) = refusing::onward(&frame, &headers) {
                let port = (usize::from(stored.port) + 1) % self.context.ports().max(1);
                self.emitted.emit(port, &reset);
            }
        }
    }

    /// Decides a waiting flow about which nothing more will be known.
    pub fn undecided(&mut self, slot: u32) {
        let hot = self.state.flows.hot(slot);
        let treatment = self.live.treat(&self.opening(&hot), None);
        self.finish(slot, treatment, None);
    }

    /// Decides flows whose packets have waited for too long.
    fn time_out(&mut self) {
        while let Some((deadline, id, index)) = self.desk.deadlines.front().copied() {
            let slot = self.state.flows.slot_of(id);
            let waits = slot.filter(|slot| {
                self.state.flows.hot(*slot).stage == stage::WAITING
                    && self.state.flows.cold(*slot).released <= index
            });
            if let Some(slot) = waits {
                if deadline > self.now() {
                    return;
                }
                self.undecided(slot);
            }
            self.desk.deadlines.pop_front();
        }
    }
}
