//! Back-pressure: which controllers' messages are taken, and when reading resumes.
//!
//! A controller's messages wait in its [`Session`] while the core has no room for them or a switch does not read; meanwhile its connection
//! is not read. Its replies wait in the core while its connection has much to send.

use std::time::Instant;

use bytes::{Buf, BytesMut};
use oneswitch_core::ControllerId;

use super::{Engine, Session};
use crate::events::Peer;
use crate::session::{is_echo, messages};

/// Up to this many unsent bytes there is room for replies that wait in the core; enough to write while the engine wakes up.
const ROOM: usize = 256 << 10;
/// While a switch leaves this many bytes unread, controllers are not read.
pub(super) const SWITCH_BACKLOG: usize = 8 << 20;

impl Engine {
    /// Gives the core as much of a controller's chunk as it takes.
    pub(super) fn feed(&mut self, connection: u64, now: Instant) {
        let id = ControllerId(connection);
        let Some(session) = self.sessions.get_mut(&connection) else {
            return;
        };
        let mut taken = 0;
        for (header, frame) in messages(&session.rest) {
            if !self.core.takes_messages_of(id) {
                break;
            }
            session.messages_in += 1;
            taken += frame.len();
            if !is_echo(header) {
                self.core.controller_message(id, frame, now);
            }
        }
        session.rest.advance(taken);
        if session.rest.is_empty() {
            // The session can use the memory again when it resumes reading.
            session.rest = BytesMut::new();
        }
    }

    /// Gives the core the messages that it had no room for earlier.
    pub(super) fn feed_paused(&mut self, now: Instant) {
        if self.paused.is_empty() || self.a_switch_does_not_read() {
            return;
        }
        for connection in self.paused.clone() {
            self.feed(connection, now);
        }
    }

    /// Tells whether the core would now take a controller's waiting messages.
    pub(super) fn can_go_on(&self) -> bool {
        let waits = |connection: &&u64| {
            let session = self.sessions.get(connection);
            session.is_some_and(|s| !s.rest.is_empty())
                && self.core.takes_messages_of(ControllerId(**connection))
        };
        self.paused.iter().any(|c| waits(&c)) && !self.a_switch_does_not_read()
    }

    pub(super) fn a_switch_does_not_read(&self) -> bool {
        let slow =
            |s: &Session| matches!(s.peer, Peer::Switch(..)) && s.handle.backlog() > SWITCH_BACKLOG;
        self.sessions.values().any(slow)
    }

    /// Tells the core how much each controller has left to read.
    pub(super) fn learn_unsent(&mut self) {
        for (connection, session) in &self.sessions {
            if matches!(session.peer, Peer::Controller { .. }) {
                let id = ControllerId(*connection);
                let handle = &session.handle;
                self.core
                    .controller_unsent(id, handle.backlog(), handle.is_stuck());
            }
        }
    }

    /// Resumes reading from controllers whose last chunk is processed.
    pub(super) fn resume_paused(&mut self) {
        if self.paused.is_empty() || self.a_switch_does_not_read() {
            return;
        }
        let (sessions, core) = (&self.sessions, &self.core);
        self.paused.retain(|connection| {
            let Some(session) = sessions.get(connection) else {
                return false;
            };
            let id = ControllerId(*connection);
            // The session's next event can be its end; replies go first.
            let waits = !session.rest.is_empty()
                || !core.takes_messages_of(id)
                || core.withholds_replies_of(id);
            if !waits {
                session.handle.resume();
            }
            waits
        });
    }

    /// Asks sessions to report when there is room for replies that wait in the core, or everything is sent that monitors wait for.
    pub(super) fn ask_for_room(&mut self) {
        for (connection, session) in &mut self.sessions {
            let controller = matches!(session.peer, Peer::Controller { .. });
            if !controller || session.awaits_room {
                continue;
            }
            let id = ControllerId(*connection);
            let limit = match self.core.withholds_replies_of(id) {
                true => Some(ROOM),
                false => self.core.awaits_silence_of(id).then_some(0),
            };
            if let Some(limit) = limit {
                session.awaits_room = true;
                session.handle.tell_room(limit);
            }
        }
    }
}
