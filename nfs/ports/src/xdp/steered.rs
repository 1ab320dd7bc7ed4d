//! The receive queues of one worker, of which all but the first get the flows that a network card steers there: the mark of a frame is that of its queue
//! (HNLB, Fig. 3).

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        atomic::{AtomicU32, Ordering},
        Arc,
    },
};

use rustix::event::epoll;

use crate::{frame::Frame, packet::Packet, queue::Queue};

/// No mark.
const NONE: u32 = u32::MAX;

/// The mark of each queue, from the second on.
pub(super) struct QueueMarks(Box<[AtomicU32]>);

impl QueueMarks {
    /// `queues`: all, the first included.
    pub(super) fn new(queues: usize) -> Self {
        Self((1..queues).map(|_| AtomicU32::new(NONE)).collect())
    }

    /// Returns the number of queues with a mark.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn put(&self, group: usize, mark: Option<u32>) {
        self.0[group].store(mark.unwrap_or(NONE), Ordering::Release);
    }

    pub(super) fn get(&self, group: usize) -> Option<u32> {
        let mark = self.0[group].load(Ordering::Acquire);
        (mark != NONE).then_some(mark)
    }
}

/// The queues; the worker polls them in turn.
pub(super) struct Steered {
    queues: Vec<Box<dyn Queue>>,
    marks: Arc<QueueMarks>,
    /// Readable while a queue has frames.
    readable: OwnedFd,
    /// The first queue to ask; it rotates, so that a busy queue does not starve the others.
    first: usize,
}

impl Steered {
    pub(super) fn new(queues: Vec<Box<dyn Queue>>, marks: Arc<QueueMarks>) -> io::Result<Self> {
        let readable = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (at, queue) in (0..).zip(&queues) {
            let data = epoll::EventData::new_u64(at);
            if let Some(descriptor) = queue.descriptor() {
                epoll::add(&readable, descriptor, data, epoll::EventFlags::IN)?;
            }
        }
        Ok(Self {
            queues,
            marks,
            readable,
            first: 0,
        })
    }
}

impl Queue for Steered {
    fn receive(&mut self, into: &mut [Packet]) -> io::Result<usize> {
        let count = self.queues.len();
        let mut kept = 0;
        for step in 0..count {
            let at = (self.first + step) % count;
            // A full batch, too: it tells that the frames of the last one were processed.
            let more = self.queues[at].receive(&mut into[kept..])?;
            if let Some(group) = at.checked_sub(1) {
                let mark = self.marks.get(group);
                for packet in &mut into[kept..kept + more] {
                    packet.set_mark(mark);
                }
            }
            kept += more;
        }
        self.first = (self.first + 1) % count;
        Ok(kept)
    }

    fn transmit(&mut self, frames: &[Frame<'_>]) -> usize {
        self.queues[0].transmit(frames)
    }

    fn flush(&mut self) -> bool {
        self.queues[0].flush()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.readable.as_fd())
    }

    fn second_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.queues[0].second_descriptor()
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{poll, PollFd, PollFlags, Timespec};

    use super::*;
    use crate::memory;

    #[test]
    fn frames_of_a_queue_get_its_mark_and_those_of_the_first_none() {
        let (port, wires) = memory::port(0, [2; 6], 3).unwrap();
        let marks = Arc::new(QueueMarks::new(3));
        let mut steered = Steered::new(port.queues, Arc::clone(&marks)).unwrap();
        let mut packets: Vec<Packet> = (0..8).map(|_| Packet::new()).collect();
        let is_readable = |steered: &Steered| {
            let descriptor = steered.descriptor().unwrap();
            let mut fds = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
            poll(&mut fds, Some(&Timespec::default())).unwrap() == 1
        };
        assert!(!is_readable(&steered));
        marks.put(0, Some(7));
        marks.put(1, Some(8));
        for round in 0..4 {
            wires.iter().for_each(|wire| wire.send(&[round; 60]));
            assert!(is_readable(&steered));
            assert_eq!(steered.receive(&mut packets).unwrap(), 3);
            let mut found: Vec<_> = packets[..3].iter().map(Packet::mark).collect();
            found.sort_unstable();
            assert_eq!(found, [None, Some(7), Some(8)]);
        }
        // A queue of several marks has none.
        marks.put(1, None);
        wires[2].send(&[0; 60]);
        assert_eq!(steered.receive(&mut packets).unwrap(), 1);
        assert_eq!(packets[0].mark(), None);
    }
}
