//! The worker's side of the gate: the origin of its next packets, and the destination of those it may not process.

#[cfg(test)]
mod tests;

use std::{collections::VecDeque, io, sync::Arc, time::Instant};

use nf_ports::{Frame, Packet, Queue};

use super::{
    release::Releases, FrameSink, FrameSource, FrameStore, FrameWatch, Mode, Order, Taken,
};
use crate::Batch;

/// The result of one turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    /// The number of packets received from ports.
    pub(crate) received: usize,
    pub(crate) received_bytes: usize,
    /// The number of frames put into the store or the sink.
    pub(crate) stored: usize,
    /// The number of frames that the watch consumed. The counters exclude them.
    pub(crate) watched: usize,
}

/// A worker's queues, and the stores and sources before them.
pub(crate) struct Intake {
    queues: Vec<Box<dyn Queue>>,
    mode: Mode,
    sources: VecDeque<Box<dyn FrameSource>>,
    store: Option<Box<dyn FrameStore>>,
    /// The releases from the store.
    releases: Releases,
    /// The number of frames that this turn may take out of the store.
    quota: usize,
    sink: Option<Box<dyn FrameSink>>,
    watch: Option<Arc<dyn FrameWatch>>,
    /// Whether frames stayed in a port because there was no room elsewhere.
    blocked: bool,
    /// The number of turns, see `turn`.
    turns: usize,
    /// The first port to ask; it rotates, so that a busy port does not starve the others.
    first: usize,
    /// During a sweep: the ports not yet found empty.
    unswept: Vec<bool>,
    /// The error of each port's last call, if it failed.
    errors: Vec<Option<io::Error>>,
}

impl Intake {
    pub(crate) fn new(queues: Vec<Box<dyn Queue>>) -> Self {
        Self {
            mode: Mode::Run,
            sources: VecDeque::new(),
            store: None,
            releases: Releases::default(),
            quota: 0,
            sink: None,
            watch: None,
            blocked: false,
            turns: 0,
            first: 0,
            unswept: Vec::new(),
            errors: queues.iter().map(|_| None).collect(),
            queues,
        }
    }

    pub(crate) fn queues(&self) -> &[Box<dyn Queue>] {
        &self.queues
    }

    pub(crate) fn queue(&mut self, port: usize) -> Option<&mut Box<dyn Queue>> {
        self.queues.get_mut(port)
    }

    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    pub(crate) fn sources(&self) -> usize {
        self.sources.len()
    }

    /// Returns the error of each port's last receive, if it failed.
    pub(crate) fn errors(&self) -> &[Option<io::Error>] {
        &self.errors
    }

    /// Tells whether the worker waits for something that no descriptor signals.
    pub(crate) fn is_awaiting_more(&self) -> bool {
        self.blocked || self.has_backlog() || self.releases.is_leaving()
    }

    /// Tells whether frames wait before those of the ports.
    pub(crate) fn has_backlog(&self) -> bool {
        !self.sources.is_empty() || (self.mode != Mode::Hold && !self.store_is_empty())
    }

    pub(crate) fn obey(&mut self, order: Order) {
        match order {
            Order::Run => {
                self.mode = Mode::Run;
                self.sink = None;
                self.watch = None;
            }
            Order::Hold(store) => {
                self.mode = Mode::Hold;
                self.sink = None;
                if self.store_is_empty() {
                    self.store = Some(store);
                    self.releases = Releases::default();
                } else {
                    self.releases.keep();
                }
            }
            Order::Relay(sink) => {
                self.mode = Mode::Relay;
                self.sink = Some(sink);
            }
            Order::Watch(watch) => self.watch = Some(watch),
            Order::Send(frames) => self.send(&frames),
            Order::Inject(source) => self.sources.push_back(source),
            Order::Fence => self.releases.fence(),
            Order::Release => self.releases.release(),
            Order::Sweep => self.unswept = vec![true; self.queues.len()],
            Order::Flush | Order::Stop => {}
        }
    }

    /// Tells whether no sweep is in progress.
    pub(crate) fn is_swept(&self) -> bool {
        let relayed = self.mode != Mode::Relay || !self.has_backlog();
        relayed && !self.unswept.contains(&true)
    }

    /// Fills `batch`, which is empty, with packets to process now; other frames go where the mode says.
    pub(crate) fn turn(&mut self, batch: &mut Batch) -> Moved {
        self.blocked = false;
        match self.mode {
            Mode::Run if !self.has_backlog() => {
                self.store = None;
                self.receive(batch)
            }
            Mode::Run | Mode::Hold => {
                // Frames at the ports must not wait until the backlog is done. But a store that is being emptied must
                // become empty under any load: so it takes three batches out for each one that comes in.
                self.turns += 1;
                let emptying = self.mode == Mode::Run && self.sources.is_empty();
                self.quota = if emptying {
                    self.releases.quota_of_all(Instant::now())
                } else if self.mode == Mode::Hold {
                    self.releases.quota(Instant::now())
                } else {
                    usize::MAX
                };
                let takes_in =
                    !emptying || self.quota == 0 || self.turns % (3 * self.queues.len() + 1) == 0;
                let moved = if takes_in {
                    self.receive_into_store(batch)
                } else {
                    Moved::default()
                };
                self.fill_from_backlog(batch);
                moved
            }
            Mode::Relay => self.relay(batch),
        }
    }

    fn store_is_empty(&self) -> bool {
        self.store.as_ref().is_none_or(|store| store.is_empty())
    }

    fn receive(&mut self, batch: &mut Batch) -> Moved {
        let before = batch.len();
        let ports = self.queues.len();
        for step in 0..ports {
            let port = (self.first + step) % ports;
            let count = self.receive_from(port, batch.free());
            batch.filled(count);
        }
        self.first = (self.first + 1) % ports.max(1);
        let new = &batch.packets()[before..];
        Moved {
            received: new.len(),
            received_bytes: new.iter().map(Packet::len).sum(),
            ..Moved::default()
        }
    }

    fn receive_from(&mut self, port: usize, into: &mut [Packet]) -> usize {
        if into.is_empty() {
            return 0;
        }
        let (count, error) = match self.queues[port].receive(into) {
            Ok(count) => (count, None),
            Err(error) => (0, Some(error)),
        };
        self.errors[port] = error;
        if count < into.len() {
            if let Some(unswept) = self.unswept.get_mut(port) {
                *unswept = false;
            }
        }
        count
    }

    fn receive_into_store(&mut self, batch: &mut Batch) -> Moved {
        // Sources without a store: frames stay in the ports until the sources end.
        let Some(mut store) = self.store.take() else {
            return Moved::default();
        };
        let moved = self.receive_into(store.as_mut(), batch);
        self.releases.holds(moved.stored);
        self.store = Some(store);
        moved
    }

    /// Receives frames into a sink. `batch` is the buffer between; it is empty again afterwards.
    fn receive_into<S: FrameSink + ?Sized>(&mut self, sink: &mut S, batch: &mut Batch) -> Moved {
        let mut moved = Moved::default();
        let ports = self.queues.len();
        for step in 0..ports {
            let port = (self.first + step) % ports;
            let room = sink.room(batch.longest()).min(Batch::MAX);
            self.blocked |= room == 0;
            let count = self.receive_from(port, &mut batch.free()[..room]);
            for packet in &batch.free()[..count] {
                let frame = packet.frame();
                let watch = self.watch.as_ref();
                if watch.is_some_and(|watch| watch.takes(frame.bytes)) {
                    moved.watched += 1;
                    continue;
                }
                moved.received_bytes += packet.len();
                moved.received += 1;
                sink.put(port, frame);
            }
        }
        self.first = (self.first + 1) % ports.max(1);
        moved.stored = moved.received;
        moved
    }

    fn send(&mut self, frames: &[(usize, Box<[u8]>)]) {
        for (port, frame) in frames {
            if let Some(queue) = self.queues.get_mut(*port) {
                queue.transmit(&[Frame::from(&frame[..])]);
            }
        }
    }

    fn fill_from_backlog(&mut self, batch: &mut Batch) {
        while let Some(packet) = batch.free().first_mut() {
            match self.next_of_backlog(packet) {
                Taken::Frame => batch.filled(1),
                Taken::Nothing | Taken::End => break,
            }
        }
    }

    /// Takes the next packet from the sources, then from the store as far as allowed.
    fn next_of_backlog(&mut self, packet: &mut Packet) -> Taken {
        while let Some(source) = self.sources.front_mut() {
            match source.take(packet) {
                Taken::End => drop(self.sources.pop_front()),
                Taken::Nothing if self.mode == Mode::Hold => break,
                taken => return taken,
            }
        }
        match &mut self.store {
            Some(store) if self.quota > 0 => {
                let taken = store.take(packet);
                if taken == Taken::Frame {
                    self.quota -= 1;
                    self.releases.released();
                }
                taken
            }
            _ => Taken::Nothing,
        }
    }

    fn relay(&mut self, batch: &mut Batch) -> Moved {
        let Some(mut sink) = self.sink.take() else {
            return Moved::default();
        };
        let mut backlog = 0;
        self.quota = usize::MAX;
        if self.has_backlog() {
            let longest = batch.longest();
            let packet = &mut batch.free()[0];
            while sink.room(longest) > 0 && self.next_of_backlog(packet) == Taken::Frame {
                sink.put(packet.port(), packet.frame());
                backlog += 1;
            }
        }
        let mut moved = Moved::default();
        if !self.has_backlog() {
            self.store = None;
            moved = self.receive_into(sink.as_mut(), batch);
        }
        moved.stored += backlog;
        self.sink = Some(sink);
        moved
    }
}
