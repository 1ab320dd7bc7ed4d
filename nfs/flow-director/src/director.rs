//! The function's side of the table. No call waits for the card.

use std::{io, sync::Arc, thread};

use nf_offload::{
    Capabilities, Counts, Driver, Event, Listing, Matches, Refused, Request, Rewrites, RuleId,
    Table, Unavailable, Writer,
};
use nf_ports::Matcher;

use crate::{
    session::{Shared, WAITING},
    worker::Worker,
};

/// Rules per second that a card keeps up with: each takes up to a millisecond.
const INSTALLS_PER_S: u32 = 2000;
/// The most milliseconds until a removal is effective, while the function processes packets.
const EFFECTIVE_MS: u32 = 100;

/// The matches of a network card.
pub struct FlowDirector {
    shared: Arc<Shared>,
    capacity: u32,
    writer: Option<Writer>,
}

impl FlowDirector {
    /// Returns the table and its work, which the caller does.
    #[must_use]
    pub fn new(matcher: Box<dyn Matcher>) -> (Self, Worker) {
        let shared = Arc::new(Shared::default());
        let director = Self {
            shared: Arc::clone(&shared),
            capacity: matcher.capacity(),
            writer: None,
        };
        (director, Worker::new(matcher, shared))
    }

    /// Returns the table. A thread works at the card until the table is dropped, and removes all rules then.
    ///
    /// # Errors
    /// If no threads are left.
    pub fn start(matcher: Box<dyn Matcher>) -> io::Result<Self> {
        let (director, worker) = Self::new(matcher);
        let builder = thread::Builder::new().name("flow-director".into());
        builder.spawn(move || worker.run())?;
        Ok(director)
    }
}

impl Drop for FlowDirector {
    fn drop(&mut self) {
        self.shared.state().is_closed = true;
        self.shared.notify();
    }
}

impl Table for FlowDirector {
    fn open(&mut self, writer: Writer, _: usize) -> Result<Box<dyn Driver + Send>, Unavailable> {
        let is_newer =
            |former: Writer| former.instance == writer.instance && former.epoch > writer.epoch;
        if self.writer.is_some_and(is_newer) {
            return Err(Unavailable {
                why: format!(
                    "a later life than {} of this instance has the network card",
                    writer.epoch
                ),
                is_replaced: true,
            });
        }
        let mut state = self.shared.state();
        if let Some(why) = state.obstacle() {
            return Err(Unavailable {
                why,
                is_replaced: false,
            });
        }
        self.writer = Some(writer);
        state.session += 1;
        state.is_clear = false;
        state.requests.clear();
        state.events.clear();
        let session = state.session;
        drop(state);
        self.shared.notify();
        Ok(Box::new(Session {
            shared: Arc::clone(&self.shared),
            session,
            capacity: self.capacity,
        }))
    }
}

/// The table in the hands of one writer.
struct Session {
    shared: Arc<Shared>,
    session: u64,
    capacity: u32,
}

impl Driver for Session {
    fn capabilities(&self) -> Option<Capabilities> {
        Some(Capabilities {
            flows: self.capacity,
            targets: u32::MAX,
            installs_per_s: INSTALLS_PER_S,
            effective_ms: EFFECTIVE_MS,
            matches: Matches {
                ipv4: true,
                ipv6: true,
                leaves_ends: true,
            },
            rewrites: Rewrites::NONE,
            counts: Counts::None,
        })
    }

    fn submit(&mut self, requests: &[Request]) -> usize {
        let mut state = self.shared.state();
        // Until it is told that all rules were lost, the writer's requests are void.
        if state.session != self.session || state.events.contains(&Event::Reset) {
            return requests.len();
        }
        let room = WAITING.saturating_sub(state.requests.len());
        let taken = requests.len().min(room);
        state.requests.extend(&requests[..taken]);
        drop(state);
        self.shared.notify();
        taken
    }

    fn poll(&mut self, events: &mut Vec<Event>) -> Result<(), Unavailable> {
        let mut state = self.shared.state();
        if state.session != self.session {
            events.push(Event::Refused(RuleId(0), Refused::StaleWriter));
            return Ok(());
        }
        events.extend(state.events.drain(..));
        match state.obstacle() {
            None => Ok(()),
            Some(why) => Err(Unavailable {
                why,
                is_replaced: false,
            }),
        }
    }

    fn list(&mut self) -> Option<Listing> {
        let state = self.shared.state();
        // A session begins by removing all rules that it finds.
        (state.session == self.session && state.is_clear).then(Listing::default)
    }
}
