//! Writers of offloaded flows: their requests to the core, and its events to them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use oneswitch_core::{
    Core, OffloadError, OffloadEvent, OffloadHello, OffloadRequest, SwitchIndex, WriterId,
};
use tokio::sync::mpsc;
use tracing::debug;

use crate::events::{Event, WriterHandle};
use crate::unixctl::await_revalidators;

struct Writer {
    handle: WriterHandle,
    /// Requests that the core has no room for yet.
    waiting: Vec<OffloadRequest>,
    /// The reason to disconnect it after them.
    trouble: Option<OffloadError>,
    /// Whether its session waits to read on.
    is_paused: bool,
}

/// The connected writers, and the control sockets of the switches.
#[derive(Default)]
pub struct Writers {
    connected: BTreeMap<u64, Writer>,
    controls: Vec<Option<PathBuf>>,
    events: Option<mpsc::UnboundedSender<Event>>,
}

impl Writers {
    /// `controls`: the control socket of each switch.
    pub fn new(controls: Vec<Option<PathBuf>>, events: mpsc::UnboundedSender<Event>) -> Self {
        Self {
            connected: BTreeMap::new(),
            controls,
            events: Some(events),
        }
    }

    pub fn up(
        &mut self,
        core: &mut Core,
        writer: u64,
        (hello, handle): (OffloadHello, WriterHandle),
        now: Instant,
    ) {
        let session = Writer {
            handle,
            waiting: Vec::new(),
            trouble: None,
            is_paused: false,
        };
        self.connected.insert(writer, session);
        core.offload_hello(WriterId(writer), hello, now);
    }

    pub fn lines(
        &mut self,
        writer: u64,
        requests: Vec<OffloadRequest>,
        trouble: Option<OffloadError>,
    ) {
        if let Some(session) = self.connected.get_mut(&writer) {
            (session.waiting, session.trouble, session.is_paused) = (requests, trouble, true);
        }
    }

    pub fn gone(&mut self, core: &mut Core, writer: u64, now: Instant) {
        self.connected.remove(&writer);
        core.offload_closed(WriterId(writer), now);
    }

    /// Tells whether the core would now take waiting requests.
    pub fn can_go_on(&self, core: &Core) -> bool {
        let waits = |(id, writer): (&u64, &Writer)| {
            writer.is_paused && core.takes_offload_of(WriterId(*id))
        };
        self.connected.iter().any(waits)
    }

    /// Gives the core the requests that it has room for.
    pub fn feed(&mut self, core: &mut Core, now: Instant) {
        for (id, writer) in &mut self.connected {
            if writer.is_paused && core.takes_offload_of(WriterId(*id)) {
                let requests = std::mem::take(&mut writer.waiting);
                core.offload_requests(WriterId(*id), &requests, now);
                writer.is_paused = false;
                if writer.trouble.is_none() {
                    writer.handle.resume();
                }
            }
        }
    }

    /// Writes the core's events, and disconnects writers whose lines cannot be read.
    pub fn finish_round(&mut self, core: &mut Core, now: Instant) {
        let mut told: BTreeMap<u64, Vec<OffloadEvent>> = BTreeMap::new();
        for (WriterId(id), event) in core.take_offload_events() {
            told.entry(id).or_default().push(event);
        }
        for (id, events) in told {
            if let Some(writer) = self.connected.get(&id) {
                writer.handle.tell(events);
            }
        }
        for (id, writer) in &mut self.connected {
            if let Some(error) = writer.trouble.take_if(|_| !writer.is_paused) {
                let events = vec![OffloadEvent::Error(error), OffloadEvent::Close];
                writer.handle.tell(events);
                core.offload_closed(WriterId(*id), now);
            }
        }
        for switch in core.take_cache_orders() {
            self.await_cache(switch);
        }
    }

    /// Reports to the engine when a switch's present cached flows have ended.
    fn await_cache(&self, switch: SwitchIndex) {
        let Some(events) = self.events.clone() else {
            return;
        };
        let control = self.controls.get(switch).cloned().flatten();
        tokio::spawn(async move {
            let has_ended = match control {
                None => false,
                Some(path) => match await_revalidators(&path).await {
                    Ok(()) => true,
                    Err(error) => {
                        debug!(target: "offload", "{}: {error}", path.display());
                        false
                    }
                },
            };
            // Without an engine the program is about to end.
            let _ = events.send(Event::CacheEnded { switch, has_ended });
        });
    }
}
