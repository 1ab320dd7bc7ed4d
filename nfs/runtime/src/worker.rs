//! A worker: one thread that owns one queue of every port.

mod idle;
mod pauses;
mod totals;

use std::sync::Arc;
use std::time::{Duration, Instant};

use nf_ports::{Frame, Mac, Queue, Verdict};

use self::idle::Idle;
pub(crate) use self::{
    pauses::{common, Pause},
    totals::{Sums, Totals},
};
use crate::{
    gate::{Gate, Intake, Mode, Order},
    loaded::{Loaded, Slot},
    Batch, Context, NetworkFunction,
};

/// The time in which sent frames must leave; orders are answered without them afterwards.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(10);

/// A worker's parts. Shared ones are read by other threads.
pub(crate) struct Worker<N> {
    pub(crate) index: usize,
    pub(crate) intake: Intake,
    pub(crate) gate: Arc<Gate>,
    pub(crate) slot: Arc<Slot<N>>,
    pub(crate) totals: Arc<Totals>,
    /// The start of the instance.
    pub(crate) began: Instant,
    pub(crate) macs: Arc<[Mac]>,
}

/// Reports that the worker has ended, even if the network function panicked.
struct Ending {
    gate: Arc<Gate>,
    index: usize,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.gate.set_ended(self.index);
    }
}

impl<N: NetworkFunction> Worker<N> {
    /// Runs until it is ordered to stop.
    pub(crate) fn run(mut self) {
        let _ending = Ending {
            gate: Arc::clone(&self.gate),
            index: self.index,
        };
        let mut loaded = self.slot.get();
        let mut batch = Batch::of(N::LARGE_FRAMES);
        let mut idle = Idle::default();
        let mut next_tick = Instant::now();
        let mut sources = 0;
        // An answer delayed until the end of a sweep.
        let mut sweeping = None;
        let mut last_turn = 0;
        loop {
            if self.gate.is_waiting(self.index) {
                let (orders, number) = self.gate.take(self.index);
                // A worker that continues to send need not wait until its frames have left.
                let leaves = orders.iter().any(Order::flushes);
                let problem = if leaves { self.flush() } else { None };
                let stop = orders.iter().any(|order| matches!(order, Order::Stop));
                let sweep = orders.iter().any(|order| matches!(order, Order::Sweep));
                orders.into_iter().for_each(|order| self.intake.obey(order));
                loaded = self.slot.get();
                self.report_sources(&mut sources);
                if sweep && !stop {
                    sweeping = Some((number, problem));
                } else {
                    self.gate.answer(self.index, number, problem);
                    sweeping = None;
                }
                if stop {
                    return;
                }
                idle.busy();
            }
            let begun = Instant::now();
            let mut moved = self.turn(loaded.as_deref(), &mut batch, last_turn);
            if moved {
                let ended = Instant::now();
                last_turn = (ended - begun).as_nanos() as u64;
                self.totals.busy(last_turn);
                if !batch.is_empty() {
                    let now = (ended - self.began).as_micros() as u64;
                    self.totals.pauses.processed(now);
                }
            }
            if self.intake.sources() != sources {
                self.report_sources(&mut sources);
            }
            if sweeping.is_some() && self.intake.is_swept() {
                if let Some((number, problem)) = sweeping.take() {
                    self.gate.answer(self.index, number, problem);
                }
            }
            if let Some(loaded) = loaded.as_deref().filter(|_| self.ticks()) {
                if idle.now() >= next_tick {
                    next_tick = idle.now() + TICK;
                    moved |= self.tick(loaded, &mut batch);
                }
            }
            if moved {
                idle.busy();
            } else {
                let wants_tick = self.ticks()
                    && loaded
                        .as_deref()
                        .is_some_and(|loaded| loaded.function.wants_tick());
                let tick = wants_tick.then_some(next_tick);
                let patient = sweeping.is_none() && !self.intake.is_awaiting_more();
                if idle.wait(&self.gate, self.index, &self.intake, tick, patient) {
                    next_tick = idle.now();
                }
            }
        }
    }

    /// Receives, processes and sends packets. Returns whether there was anything to do.
    fn turn(&mut self, loaded: Option<&Loaded<N>>, batch: &mut Batch, last_turn: u64) -> bool {
        batch.clear();
        let moved = self.intake.turn(batch);
        if moved.received > 0 {
            self.totals.received(moved.received, moved.received_bytes);
        }
        if moved.stored > 0 {
            self.totals.stored(moved.stored);
        }
        if batch.is_empty() {
            return moved.received + moved.stored + moved.watched > 0;
        }
        match loaded {
            Some(loaded) => {
                let context = self.context(loaded).with_last_turn(last_turn);
                loaded.function.process(batch, &context);
            }
            None => batch
                .packets_mut()
                .iter_mut()
                .for_each(|packet| packet.drop_for("no network function yet")),
        }
        self.totals.processed(batch.len());
        self.send(batch);
        true
    }

    /// Tells whether `tick` may run: the state changes by itself only while this instance processes all packets.
    fn ticks(&self) -> bool {
        let is_due = self.index == 0 || N::EACH_WORKER_TICKS;
        is_due && self.intake.mode() == Mode::Run && self.intake.sources() == 0
    }

    /// Runs the function's tick. Returns whether it sent anything.
    fn tick(&mut self, loaded: &Loaded<N>, batch: &mut Batch) -> bool {
        if !loaded.function.wants_tick() {
            return false;
        }
        batch.clear();
        let context = self.context(loaded);
        loaded.function.tick(&context, batch);
        self.send(batch);
        batch.emitted().len() > 0
    }

    fn context(&self, loaded: &Loaded<N>) -> Context<'_> {
        let workers = self.gate.workers();
        Context::new(loaded.clock.now(), self.index, workers, &self.macs).with_gate(&self.gate)
    }

    fn report_sources(&self, reported: &mut usize) {
        *reported = self.intake.sources();
        self.gate.set_sources(self.index, *reported);
    }

    /// Sends each port its packets and added frames, in the order of the batch, and counts.
    fn send(&mut self, batch: &mut Batch) {
        let ports = self.macs.len();
        for packet in batch.packets() {
            match packet.verdict() {
                Verdict::Drop(reason) => self.totals.dropped(reason),
                Verdict::Send(port) if port >= ports => {
                    self.totals.dropped("sent to a port that does not exist")
                }
                Verdict::Send(_) => {}
            }
        }
        self.totals.not_emitted(batch.emit_refused());
        for port in 0..ports {
            let Some(queue) = self.intake.queue(port) else {
                continue;
            };
            let mut frames = [Frame::from(&[][..]); Batch::MAX];
            let mut count = 0;
            for (_, frame) in batch.leaving().filter(|(to, _)| *to == port) {
                frames[count] = frame;
                count += 1;
                if count == frames.len() {
                    transmit(queue.as_mut(), &frames, &self.totals);
                    count = 0;
                }
            }
            if count > 0 {
                transmit(queue.as_mut(), &frames[..count], &self.totals);
            }
        }
    }

    /// Waits until all sent frames have left; returns the obstacle if they cannot.
    fn flush(&mut self) -> Option<String> {
        let end = Instant::now() + FLUSH_TIMEOUT;
        for port in 0..self.macs.len() {
            let Some(queue) = self.intake.queue(port) else {
                continue;
            };
            while !queue.flush() {
                if Instant::now() > end {
                    return Some(format!(
                        "worker {}: frames sent by port {port} do not leave",
                        self.index
                    ));
                }
                std::thread::yield_now();
            }
        }
        None
    }
}

fn transmit(queue: &mut dyn Queue, frames: &[Frame<'_>], totals: &Totals) {
    let taken = queue.transmit(frames);
    let bytes = frames[..taken].iter().map(|frame| frame.bytes.len()).sum();
    totals.sent(taken, bytes);
}
