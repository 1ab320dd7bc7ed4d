//! Reuse: a client that leaves hands its idle legs over to the next clients, where the pool allows it.

use nf_packet::tcp_flags;
use nf_runtime::state::SlabId;
use nf_splice::segment::length;

use crate::{
    idle_legs::IdleLeg,
    pass::Pass,
    record::{framing, phase, Connection},
    segments::Segment,
    tables::FOREVER,
};

impl Pass<'_> {
    /// Hands the legs of a client that leaves over to others. Those that others may not use stay.
    pub(crate) fn release_legs(&mut self, connection: &mut Connection) {
        let is_clean = connection.is_idle()
            && connection.last == 0
            && connection.answers.has_fin == 0
            && connection.answers.framing == framing::ENDED
            && connection.answers.seen == connection.answers.parse_at;
        let used = usize::from(connection.leg);
        for index in 0..connection.legs.len() {
            let leg = connection.legs[index];
            let may = leg.phase == phase::OPEN && self.snapshot.reuses(leg.row);
            if !may || index == used && !is_clean {
                continue;
            }
            if index == used {
                self.rest_leg(connection);
            }
            self.release_leg(connection, index);
        }
    }

    fn release_leg(&mut self, connection: &mut Connection, index: usize) {
        let leg = connection.legs[index];
        let until = self.now() + self.snapshot.config.timeouts.idle.nanos();
        let kept = self.tables.idle_legs.put(IdleLeg {
            leg,
            shown: connection.to_backend.own(),
            reserved: 0,
            until,
        });
        let Some(id) = kept else {
            return;
        };
        let now = self.now();
        let answers = &self.tables.answers;
        answers.update(&leg.tuple, now, FOREVER, |owner| *owner = id);
        connection.legs[index].phase = phase::NONE;
        self.tables.backends.closed(leg.row);
    }

    /// Handles a segment of a backend on a leg that no client uses. Any segment of the backend there ends the leg.
    pub(crate) fn idle_backend_says(&mut self, id: SlabId, segment: &Segment) {
        let tables = self.tables;
        let Some(idle) = tables.idle_legs.look(id) else {
            return;
        };
        let numbers = length(segment.flags, segment.len as u32);
        let is_reset = segment.has(tcp_flags::RST);
        let is_next =
            segment.seq == idle.leg.next_from && (is_reset || segment.ack == idle.leg.next_to);
        if is_next && (is_reset || numbers > 0) {
            self.close_idle(id, !is_reset);
        } else if !is_next && !is_reset {
            // A keep-alive probe, a repeated segment, or a forged one.
            self.acknowledge_idle_leg(&idle.leg, idle.shown, u16::MAX.into());
        }
    }

    fn close_idle(&mut self, id: SlabId, resets: bool) {
        let Some(idle) = self.tables.idle_legs.remove(id) else {
            return;
        };
        self.tables.answers.remove(&idle.leg.tuple, self.now());
        if resets {
            self.reset(idle.leg.tuple, idle.leg.next_to);
        }
    }

    /// Closes idle legs whose time is over, or whose backend is down or gone.
    pub(crate) fn close_idle_legs(&mut self) {
        let (now, snapshot, tables) = (self.now(), self.snapshot, self.tables);
        let due = tables.idle_legs.all(|idle| {
            let (row, tuple) = (idle.leg.row, &idle.leg.tuple);
            let is_kept = snapshot.reuses(row)
                && !tables.backends.is_down(row)
                && snapshot.backend(row).is_some_and(|backend| {
                    (tuple.source.ip(), tuple.source_port) == (backend.address, backend.port)
                });
            idle.until <= now || !is_kept
        });
        for id in due {
            self.close_idle(id, true);
        }
    }

    /// Sends a request again on another leg if the backend has closed a used one without taking any of it. Returns false if it cannot.
    pub(crate) fn retry(&mut self, connection: &mut Connection, id: SlabId) -> bool {
        let Some(leg) = connection.leg().copied() else {
            return false;
        };
        let requests = &connection.requests;
        let Some(region) = requests.map.regions().next() else {
            return false;
        };
        let is_untouched = connection.busy != 0
            && connection.answered == 0
            && connection.answers.held.is_empty()
            && requests.map.regions().count() == 1
            && requests.acked == region.at
            && requests.out_at == region.at
            && requests.outgoing.len() == region.given as usize
            && requests.framing == framing::ENDED
            && requests.parse_at == region.from.wrapping_add(region.taken);
        if leg.is_old == 0 || !is_untouched {
            return false;
        }
        let mut bytes = vec![0; requests.outgoing.len()];
        let _ = requests
            .outgoing
            .read_at(&self.tables.chunks, 0, &mut bytes);
        let index = usize::from(connection.leg);
        self.forget_leg(connection, index);
        if !self.open_leg(connection, id, leg.row, region.from) {
            return false;
        }
        let requests = &mut connection.requests;
        let inserted = requests.map.insert(region.from, region.taken, region.given);
        inserted.is_ok() && requests.say(&self.tables.chunks, &bytes)
    }
}
