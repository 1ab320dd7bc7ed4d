//! The leg that a request gets.

use nf_http::Head;
use nf_runtime::state::SlabId;
use nf_splice::{segment::is_after, Map};

use crate::{
    answers::Fault,
    legs::Wanted,
    pass::Pass,
    record::{phase, Connection},
};

impl Pass<'_> {
    /// Returns the backend that a request's cookie or header names, and whether the answer sets the cookie.
    pub(crate) fn sticky_row(
        &self,
        connection: &Connection,
        pool: usize,
        head: &Head<'_>,
    ) -> (Option<u16>, bool) {
        let pool = self.snapshot.pool(pool);
        let Some(sticky) = pool.and_then(|pool| pool.sticky.as_ref()) else {
            return (None, false);
        };
        // A backend that did not take this request counts as down for it.
        let is_known = connection.attempts == 0;
        let backends = &self.tables.backends;
        let row = sticky.row(head, |row| backends.is_down(row));
        let row = row.filter(|_| is_known);
        (row, row.is_none() && sticky.cookie().is_some())
    }

    /// Makes the leg in use one of this kind. Returns false if the request must wait.
    pub(crate) fn ready_leg(
        &mut self,
        connection: &mut Connection,
        id: SlabId,
        wanted: Wanted,
    ) -> bool {
        if !connection.answers.outgoing.is_empty() {
            // Bytes that the function sends must follow each other.
            return false;
        }
        let head_at = connection
            .requests
            .owned
            .wrapping_sub(connection.requests.held.len() as u32);
        if let Some(leg) = connection.leg() {
            if leg.phase == phase::OPENING {
                return false;
            }
            let is_same = leg.phase == phase::OPEN
                && self.snapshot.serves(leg.row, wanted.pool, wanted.row)
                && !self.tables.backends.is_down(leg.row);
            let (requests, answers) = (&connection.requests, &connection.answers);
            let follows = requests.map.forward(head_at) == requests.top
                && answers.map.forward(answers.parse_at) == answers.top;
            if is_same && follows {
                // A third unacknowledged head waits.
                return requests.map.regions().count() < 2;
            }
            if !connection.is_idle() {
                return false;
            }
            if is_same {
                let (requests, answers) = (&mut connection.requests, &mut connection.answers);
                requests.map = Map::between(head_at, requests.top);
                answers.map = Map::between(answers.parse_at, answers.top);
                return true;
            }
            self.rest_leg(connection);
        }
        if is_after(connection.answers.top, connection.answers.acked) {
            return false;
        }
        let taken = self.take_leg(connection, id, wanted, head_at);
        if taken.is_none() {
            self.fail(connection, Fault::Unavailable);
        }
        taken == Some(true)
    }

    /// Handles a leg that could not be opened: tries another backend, or gives up.
    pub(crate) fn leg_failed(&mut self, connection: &mut Connection, id: SlabId) {
        let index = usize::from(connection.leg);
        let row = connection.legs[index].row;
        self.forget_leg(connection, index);
        self.tables.backends.failed(row);
        if connection.busy != 0 {
            // The request is no longer held.
            return self.fail(connection, Fault::Unavailable);
        }
        let head_at = connection
            .requests
            .owned
            .wrapping_sub(connection.requests.held.len() as u32);
        let pool = self.snapshot.pool_of(row);
        let other =
            pool.and_then(|pool| self.snapshot.choose(pool, &self.tables.backends, Some(row)));
        match other.filter(|other| *other != row && connection.attempts < 3) {
            Some(other) if self.open_leg(connection, id, other, head_at) => {
                connection.attempts += 1;
            }
            _ => self.fail(connection, Fault::Unavailable),
        }
    }
}
