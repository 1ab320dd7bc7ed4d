//! A queue whose frames come from templates, and the window in which it counts them.

use std::{
    io,
    ops::Range,
    os::fd::BorrowedFd,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use nf_ports::{Frame, Packet, Queue};

use crate::{
    config::VIPS,
    measured::{cpu, shuffled, write_frame, ACK, SYN},
};

const FRAME: usize = 60;
/// The calls after which a queue looks at its window: rarely enough to cost nothing.
const LOOK: u32 = 16;

/// The stages of a queue, in order. It goes to `Warm` by itself, and to the others when it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Each connection gets a SYN and an ACK.
    Begun,
    Warm,
    Measured,
    Ended,
}

/// The work of a queue between `Measured` and `Ended`.
#[derive(Clone, Copy, Default)]
pub struct Sum {
    pub received: u64,
    pub sent: u64,
    /// CPU nanoseconds of its worker.
    pub cpu: u64,
}

/// The stage of one queue, which another thread changes.
pub struct Window {
    state: Mutex<(Stage, Option<Sum>)>,
    changed: Condvar,
}

impl Window {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new((Stage::Begun, None)),
            changed: Condvar::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, (Stage, Option<Sum>)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set(&self, stage: Stage) {
        self.state().0 = stage;
        self.changed.notify_all();
    }

    pub fn await_stage(&self, stage: Stage) {
        let behind = |state: &mut (Stage, Option<Sum>)| state.0 < stage;
        drop(self.changed.wait_while(self.state(), behind));
    }

    /// Returns what the queue has done, once it has noticed the end.
    pub fn sum(&self) -> Sum {
        let missing = |state: &mut (Stage, Option<Sum>)| state.1.is_none();
        let state = self.changed.wait_while(self.state(), missing);
        state
            .unwrap_or_else(PoisonError::into_inner)
            .1
            .unwrap_or_default()
    }

    fn publish(&self, sum: Sum) {
        self.state().1 = Some(sum);
        self.changed.notify_all();
    }
}

/// A queue that receives clients' packets, cyclically, and discards what it sends. Queues share no cache lines, nor the pairs that processors prefetch.
#[repr(align(128))]
pub struct Templates {
    syns: Vec<u8>,
    acks: Vec<u8>,
    /// The number of the next frame.
    at: usize,
    window: Arc<Window>,
    stage: Stage,
    calls: u32,
    counted: Sum,
    begun: u64,
}

impl Templates {
    /// Makes the packets of these connections, in an order without runs.
    pub fn new(flows: Range<u32>, window: &Arc<Window>) -> Self {
        let order: Vec<u32> = shuffled(flows.len() as u32)
            .into_iter()
            .map(|flow| flows.start + flow)
            .collect();
        let frames = |flags| {
            let mut bytes = vec![0; order.len() * FRAME];
            for (frame, flow) in bytes.chunks_exact_mut(FRAME).zip(&order) {
                let vip = [192, 0, 2, (flow % u32::from(VIPS)) as u8];
                write_frame(frame, *flow, vip, flags);
            }
            bytes
        };
        Self {
            syns: frames(SYN),
            acks: frames(ACK),
            at: 0,
            window: Arc::clone(window),
            stage: Stage::Begun,
            calls: 0,
            counted: Sum::default(),
            begun: 0,
        }
    }

    /// Follows the window's stage, between two batches.
    fn look(&mut self) {
        let frames = self.acks.len() / FRAME;
        if self.stage == Stage::Begun && self.at >= 2 * frames {
            self.stage = Stage::Warm;
            self.window.set(Stage::Warm);
        }
        let told = self.window.state().0;
        if told == self.stage || self.stage == Stage::Begun {
            return;
        }
        if told == Stage::Measured {
            self.counted = Sum::default();
            self.begun = cpu();
        }
        if told == Stage::Ended {
            self.counted.cpu = cpu() - self.begun;
            self.window.publish(self.counted);
        }
        self.stage = told;
    }
}

impl Queue for Templates {
    fn receive(&mut self, into: &mut [Packet]) -> io::Result<usize> {
        self.calls += 1;
        if self.calls >= LOOK {
            self.calls = 0;
            self.look();
        }
        if self.stage == Stage::Ended {
            return Ok(0);
        }
        let frames = self.acks.len() / FRAME;
        for packet in into.iter_mut() {
            let source = if self.at < frames {
                &self.syns
            } else {
                &self.acks
            };
            let start = self.at % frames * FRAME;
            assert!(packet.fill(0, &source[start..start + FRAME]));
            self.at += 1;
        }
        self.counted.received += into.len() as u64;
        Ok(into.len())
    }

    fn transmit(&mut self, frames: &[Frame<'_>]) -> usize {
        self.counted.sent += frames.len() as u64;
        frames.len()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
