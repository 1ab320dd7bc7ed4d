//! Events without packets: retransmissions and timeouts.

use nf_runtime::state::SlabId;

use crate::{
    answers::Fault,
    config::Timeouts,
    finish::End,
    pass::{Fate, Pass, LINGER},
    record::{framing, stage, Connection},
    tables::Event,
};

/// The retransmissions after which a peer counts as gone.
const ATTEMPTS: u8 = 8;
/// The timers handled in one tick.
const MOST: usize = 4096;

impl Connection {
    /// Returns the time without packets that the present bodies may take.
    pub fn body_timeout(&self, timeouts: &Timeouts) -> u64 {
        if self.answers.framing == framing::OPAQUE {
            timeouts.idle.nanos()
        } else {
            timeouts.body.nanos()
        }
    }

    /// Tells whether the client has stopped in the middle of a body, which the backend would take.
    fn is_upload_stopped(&self) -> bool {
        let requests = &self.requests;
        self.uploads != 0 && requests.acked == requests.top && requests.edge != requests.top
    }

    /// Returns the time of the next thing to do without a packet.
    pub fn deadline(&self) -> u64 {
        match self.retransmit_at {
            0 => self.limit_at,
            at => at.min(self.limit_at),
        }
    }
}

impl Pass<'_> {
    /// Handles the timers that have expired.
    pub(crate) fn expire(&mut self) {
        let mut due = Vec::new();
        let tables = self.tables;
        tables
            .timers
            .expire(self.now(), MOST, |slot| due.push(slot));
        for slot in due {
            if let Some(id) = tables.connections.id(slot) {
                self.expired(id);
                self.settle_endpoints();
            }
        }
    }

    fn expired(&mut self, id: SlabId) {
        let tables = self.tables;
        let now = self.now();
        let fate = tables.connections.update(id, |connection| {
            let fate = if connection.limit_at <= now {
                self.timed_out(connection, id)
            } else if connection.retransmit_at != 0 && connection.retransmit_at <= now {
                if self.retransmit(connection) {
                    Fate::Stays
                } else {
                    self.abandon(connection);
                    Fate::Ends
                }
            } else {
                Fate::Stays
            };
            tables.timers.set(id.slot(), connection.deadline());
            fate
        });
        if fate == Some(Fate::Ends) {
            self.tables.remove(id);
        }
    }

    fn timed_out(&mut self, connection: &mut Connection, id: SlabId) -> Fate {
        let now = self.now();
        if connection.stage == stage::CLOSING {
            return Fate::Ends;
        }
        self.tables.count(Event::TimedOut);
        if connection.is_opening() {
            self.leg_failed(connection, id);
        } else if connection.busy != 0 && connection.answered == 0 {
            let fault = if connection.is_upload_stopped() {
                Fault::Request(408)
            } else {
                Fault::TimedOut
            };
            self.fail(connection, fault);
        } else if !connection.requests.held.is_empty() && connection.busy == 0 {
            self.fail(connection, Fault::Request(408));
        } else {
            self.cut_short(connection, End::TimedOut);
            self.abandon(connection);
            return Fate::Ends;
        }
        if connection.limit_at <= now {
            connection.limit_at = now + LINGER;
        }
        self.flush(connection);
        Fate::Stays
    }

    /// Sends again what was not acknowledged, when its time has come. Returns false if the peer counts as gone.
    fn retransmit(&mut self, connection: &mut Connection) -> bool {
        connection.retransmit_at = 0;
        if connection.is_opening() {
            self.send_syn(connection);
            self.arm(connection);
            return true;
        }
        for to_leg in [true, false] {
            let half = if to_leg {
                &mut connection.requests
            } else {
                &mut connection.answers
            };
            if half.outgoing.is_empty() {
                continue;
            }
            half.attempts += 1;
            if half.attempts > ATTEMPTS {
                return false;
            }
            // Other lost bytes follow by `flush`, as far as the window allows.
            let at = half.out_at;
            half.out_sent = at;
            if half.edge == at {
                // A probe of a closed window (RFC 9293, 3.8.6.1).
                half.edge = at.wrapping_add(1);
            }
        }
        let answers = &connection.answers;
        if connection.stage == stage::CLOSING
            && answers.outgoing.is_empty()
            && answers.acked == answers.fin
            && answers.top != answers.fin
        {
            connection.answers.attempts += 1;
            if connection.answers.attempts > ATTEMPTS {
                return false;
            }
            self.send_fin(connection);
        }
        self.flush(connection);
        true
    }
}
