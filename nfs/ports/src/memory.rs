//! A port whose other end is in the same process, for tests and benchmarks.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        atomic::{AtomicU64, Ordering},
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
    },
    time::{Duration, Instant},
};

use rustix::event::{eventfd, EventfdFlags};

use crate::{
    frame::{Frame, Offloads},
    packet::{Mac, Packet},
    queue::{Backend, Event, Events, Port, Queue},
    segment::finish,
};

/// The frames that a queue holds in each direction; further frames are lost, as with a network card.
const CAPACITY: usize = 1 << 16;

/// The frames on the way.
#[derive(Default)]
struct Frames {
    toward: VecDeque<(Vec<u8>, Offloads)>,
    /// Complete frames, as on a wire.
    away: VecDeque<Vec<u8>>,
}

struct Shared {
    frames: Mutex<Frames>,
    left: Condvar,
    /// An eventfd that is readable while there are frames to receive.
    bell: OwnedFd,
    overruns: AtomicU64,
}

impl Shared {
    fn frames(&self) -> MutexGuard<'_, Frames> {
        // Each change is one call on a queue, so the queues are consistent even after a panic.
        self.frames.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The other end of one queue.
#[derive(Clone)]
pub struct Wire(Arc<Shared>);

struct MemoryQueue {
    shared: Arc<Shared>,
    port: usize,
    events: Arc<Events>,
    /// Memory for segments.
    buffer: Vec<u8>,
}

/// Creates a port with this many queues, and their other ends. `index` is the port number that its packets carry.
///
/// # Errors
/// If no file descriptors are left.
pub fn port(index: usize, mac: Mac, queues: usize) -> io::Result<(Port, Vec<Wire>)> {
    let (mut opened, mut wires, mut all_events) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..queues {
        let shared = Arc::new(Shared {
            frames: Mutex::default(),
            left: Condvar::new(),
            bell: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?,
            overruns: AtomicU64::new(0),
        });
        let events = Arc::new(Events::default());
        let queue = MemoryQueue {
            shared: Arc::clone(&shared),
            port: index,
            events: Arc::clone(&events),
            buffer: Vec::new(),
        };
        opened.push(Box::new(queue) as Box<dyn Queue>);
        all_events.push(events);
        wires.push(Wire(shared));
    }
    let ends = wires.clone();
    let port = Port {
        name: format!("memory{index}"),
        backend: Backend::Memory,
        how: "in this process".into(),
        notes: Vec::new(),
        mac,
        state: Box::new(|| "up"),
        queues: opened,
        matcher: None,
        events: all_events,
        overruns: Box::new(move || {
            let count = |wire: &Wire| wire.0.overruns.load(Ordering::Relaxed);
            ends.iter().map(count).sum()
        }),
    };
    Ok((port, wires))
}

impl Wire {
    /// Sends a complete frame to the port.
    pub fn send(&self, frame: &[u8]) {
        self.send_with(Frame::from(frame));
    }

    /// Sends a frame to the port, with work that is left to a network card.
    pub fn send_with(&self, frame: Frame<'_>) {
        let mut frames = self.0.frames();
        if frames.toward.len() == CAPACITY {
            self.0.overruns.fetch_add(1, Ordering::Relaxed);
            return;
        }
        frames
            .toward
            .push_back((frame.bytes.to_vec(), frame.offloads));
        // So few frames cannot overflow it, and an unread bell is readable anyway.
        let _ = rustix::io::write(&self.0.bell, &1_u64.to_ne_bytes());
    }

    /// Returns the next frame that the port sent, as it appears on the wire, without waiting.
    #[must_use]
    pub fn receive(&self) -> Option<Vec<u8>> {
        self.0.frames().away.pop_front()
    }

    /// Returns the next frame that the port sent; None after a timeout.
    #[must_use]
    pub fn receive_within(&self, timeout: Duration) -> Option<Vec<u8>> {
        let end = Instant::now() + timeout;
        let mut frames = self.0.frames();
        loop {
            if let Some(frame) = frames.away.pop_front() {
                return Some(frame);
            }
            let left = end.checked_duration_since(Instant::now())?;
            let waited = self.0.left.wait_timeout(frames, left);
            frames = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Returns the number of frames that the port has not received yet.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.0.frames().toward.len()
    }
}

impl Queue for MemoryQueue {
    fn receive(&mut self, into: &mut [Packet]) -> io::Result<usize> {
        let mut frames = self.shared.frames();
        let mut count = 0;
        while count < into.len() {
            let Some((bytes, offloads)) = frames.toward.pop_front() else {
                let _ = rustix::io::read(&self.shared.bell, &mut [0; 8]);
                break;
            };
            let frame = Frame {
                bytes: &bytes,
                offloads,
            };
            if into[count].fill_with(self.port, frame) {
                if offloads.segments().is_some() {
                    self.events.add(Event::Merged, 1);
                }
                count += 1;
            } else if offloads.is_none() {
                self.events.add(Event::TooLong, 1);
            } else {
                self.events.add(Event::Unsegmented, 1);
            }
        }
        Ok(count)
    }

    fn transmit(&mut self, frames: &[Frame<'_>]) -> usize {
        let mut queues = self.shared.frames();
        let mut taken = 0;
        for frame in frames {
            if queues.away.len() >= CAPACITY {
                break;
            }
            let away = &mut queues.away;
            let done = finish(*frame, &mut self.buffer, |frame| {
                away.push_back(frame.to_vec())
            });
            taken += usize::from(done.is_ok());
        }
        self.shared.left.notify_all();
        self.events
            .add(Event::NotSent, (frames.len() - taken) as u64);
        taken
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.shared.bell.as_fd())
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{poll, PollFd, PollFlags, Timespec};

    use super::*;
    use crate::packet::MAX_FRAME;

    fn readable(queue: &dyn Queue) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(
            queue.descriptor().unwrap(),
            PollFlags::IN,
        )];
        poll(&mut fds, Some(&Timespec::default())).unwrap() == 1
    }

    #[test]
    fn frames_pass_in_order_and_ring_the_bell() {
        let (mut port, wires) = port(1, [2; 6], 1).unwrap();
        let queue = &mut port.queues[0];
        let mut packets = [Packet::new(), Packet::new()];
        assert!(!readable(queue.as_ref()));
        for number in 0..3 {
            wires[0].send(&[number; 60]);
        }
        wires[0].send(&[0; MAX_FRAME + 1]);
        assert!(readable(queue.as_ref()));
        assert_eq!(queue.receive(&mut packets).unwrap(), 2);
        assert_eq!((packets[1].bytes(), packets[1].port()), (&[1; 60][..], 1));
        assert!(readable(queue.as_ref()));
        assert_eq!(queue.receive(&mut packets).unwrap(), 1);
        assert!(!readable(queue.as_ref()));
        assert_eq!(port.events[0].get(Event::TooLong), 1);
        assert_eq!(
            queue.transmit(&[Frame::from(&b"a"[..]), Frame::from(&b"b"[..])]),
            2
        );
        assert_eq!(wires[0].receive().unwrap(), b"a");
        assert_eq!(
            wires[0].receive_within(Duration::from_secs(9)).unwrap(),
            b"b"
        );
        assert_eq!(wires[0].receive_within(Duration::ZERO), None);
    }
}
