//! The receiving half of a TCP endpoint: bytes in order, and those beyond a hole.

use bytemuck::{Pod, Zeroable};
use nf_runtime::state::{ByteQueue, ChunkPool};
use nf_splice::segment::{is_after, length, Expected, Verdict};

use crate::segments::{Blocks, Segment};

/// Runs of bytes beyond a hole that are kept.
const RUNS: usize = 4;
/// The longest time until bytes are acknowledged (RFC 9293, 3.8.6.3).
const DELAY: u64 = 20_000_000;

/// Bytes that arrive from the peer, as plain data.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Receiver {
    runs: [Run; RUNS],
    /// When to acknowledge at the latest; 0: nothing waits for it.
    due_at: u64,
    /// The next number.
    next: u32,
    /// The number that the peer was told, and the right edge of its window.
    told: u32,
    edge: u32,
    /// The number of the peer's FIN, if `has_fin`.
    fin: u32,
    /// Bytes after which an acknowledgement is due at once.
    often: u32,
    has_fin: u8,
    /// The FIN has been reached.
    is_over: u8,
    /// An acknowledgement is due at once.
    is_due: u8,
    /// The run to which bytes were added last.
    latest: u8,
}

/// Bytes beyond a hole.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
struct Run {
    queue: ByteQueue,
    from: u32,
    reserved: u32,
}

impl Run {
    fn end(&self) -> u32 {
        self.from.wrapping_add(self.queue.len() as u32)
    }
}

impl Receiver {
    pub fn new(owner: u32, first: u32, window: u32, mss: u32) -> Self {
        let run = Run {
            queue: ByteQueue::new(owner),
            ..Run::default()
        };
        Self {
            runs: [run; RUNS],
            next: first,
            told: first,
            edge: first.wrapping_add(window),
            often: 2 * mss,
            ..Self::zeroed()
        }
    }

    pub fn queues(&self) -> [&ByteQueue; RUNS] {
        self.runs.each_ref().map(|run| &run.queue)
    }

    /// Gives back all chunks.
    pub fn clear(&mut self, chunks: &ChunkPool) {
        for run in &mut self.runs {
            run.queue.clear(chunks);
        }
    }

    /// Returns the number of bytes beyond holes.
    pub fn stashed(&self) -> usize {
        self.runs.iter().map(|run| run.queue.len()).sum()
    }

    pub const fn next(&self) -> u32 {
        self.next
    }

    /// Tells whether the peer has sent everything.
    pub const fn is_over(&self) -> bool {
        self.is_over != 0
    }

    /// Judges the numbers of a segment by what the peer was told.
    pub fn judge(&self, segment: &Segment) -> Verdict {
        let expected = Expected {
            next: self.next,
            window: self.edge.wrapping_sub(self.next),
        };
        let numbers = length(segment.flags, segment.len as u32);
        expected.judge(segment.flags, segment.seq, numbers)
    }

    /// Lets the peer be told at once what has arrived.
    pub fn repeat(&mut self) {
        self.is_due = 1;
    }

    /// Takes the bytes of an acceptable segment; appends those that are in order now to `into`.
    pub fn accept(
        &mut self,
        chunks: &ChunkPool,
        (seq, bytes, has_fin): (u32, &[u8], bool),
        now: u64,
        into: &mut Vec<u8>,
    ) {
        let end = seq.wrapping_add(bytes.len() as u32);
        if has_fin && self.has_fin == 0 && !is_after(end, self.edge) {
            self.fin = end;
            self.has_fin = 1;
        }
        let old = (self.next.wrapping_sub(seq) as i32).max(0) as usize;
        let beyond = (end.wrapping_sub(self.edge) as i32).max(0) as usize;
        let kept = bytes.len().saturating_sub(beyond);
        let fresh = bytes.get(old..kept).unwrap_or_default();
        let has_news = !fresh.is_empty();
        if is_after(seq, self.next) {
            if has_news {
                self.stash(chunks, seq, fresh);
            }
            self.is_due = 1;
        } else {
            into.extend_from_slice(fresh);
            self.next = self.next.wrapping_add(fresh.len() as u32);
            self.join(chunks, into);
            self.note(has_news, now);
        }
        if self.has_fin != 0 && self.is_over == 0 && self.next == self.fin {
            self.next = self.next.wrapping_add(1);
            self.is_over = 1;
            self.is_due = 1;
        }
    }

    fn note(&mut self, has_news: bool, now: u64) {
        if !has_news || self.next.wrapping_sub(self.told) >= self.often {
            self.is_due = 1;
        } else if self.due_at == 0 {
            self.due_at = now + DELAY;
        }
    }

    /// Keeps bytes beyond a hole: after a run, or as a new one. Without room, the peer sends them again.
    fn stash(&mut self, chunks: &ChunkPool, seq: u32, bytes: &[u8]) {
        let last = seq.wrapping_add(bytes.len() as u32);
        let holds = |run: &Run| !run.queue.is_empty() && !is_after(run.from, seq);
        let known = self
            .runs
            .iter()
            .position(|run| holds(run) && !is_after(seq, run.end()));
        if let Some(index) = known {
            self.latest = index as u8;
            let run = &mut self.runs[index];
            let skip = run.end().wrapping_sub(seq) as usize;
            if is_after(last, run.end()) {
                run.queue
                    .append(chunks, bytes.get(skip..).unwrap_or_default());
            }
            return;
        }
        let free = self.runs.iter().position(|run| run.queue.is_empty());
        if let Some(index) = free {
            self.latest = index as u8;
            let run = &mut self.runs[index];
            run.from = seq;
            run.queue.append(chunks, bytes);
        }
    }

    /// Returns the edges of the bytes beyond holes.
    pub fn blocks(&self) -> Blocks {
        let mut blocks = Blocks::default();
        let (before, from_latest) = self.runs.split_at(usize::from(self.latest).min(RUNS));
        for run in from_latest.iter().chain(before) {
            if !run.queue.is_empty() {
                blocks.push((run.from, run.end()));
            }
        }
        blocks
    }

    /// Takes the runs that the bytes in order have reached.
    fn join(&mut self, chunks: &ChunkPool, into: &mut Vec<u8>) {
        let reached = |next: u32, run: &Run| !run.queue.is_empty() && !is_after(run.from, next);
        while let Some(index) = self.runs.iter().position(|run| reached(self.next, run)) {
            let run = &mut self.runs[index];
            let skip = self.next.wrapping_sub(run.from) as usize;
            let more = run.queue.len().saturating_sub(skip);
            let start = into.len();
            into.resize(start + more, 0);
            let read = run.queue.read_at(chunks, skip, &mut into[start..]);
            into.truncate(start + read);
            run.queue.clear(chunks);
            self.next = self.next.wrapping_add(read as u32);
            self.is_due = 1;
        }
    }

    /// Tells whether the peer must be told something now. `room`: the bytes that the endpoint can take.
    pub fn is_due(&self, room: usize, now: u64) -> bool {
        let open = self.edge.wrapping_sub(self.next) as usize;
        let has_opened = open < room / 4 && room - open >= room / 4;
        self.is_due != 0 || self.due_at != 0 && self.due_at <= now || has_opened
    }

    /// Notes that the peer is told the present number and a window of `window` bytes, by a segment that it may have got before: then it discards that.
    pub fn tell(&mut self, window: u32, is_repeated: bool) {
        self.told = self.next;
        let edge = self.next.wrapping_add(window);
        if is_after(edge, self.edge) {
            self.edge = edge;
        }
        if !is_repeated {
            self.is_due = 0;
            self.due_at = 0;
        }
    }

    /// Returns the window to tell for the bytes that the endpoint can take: its edge never moves back.
    pub fn window(&self, room: usize) -> u32 {
        let edge = self.next.wrapping_add(room as u32);
        let edge = if is_after(self.edge, edge) {
            self.edge
        } else {
            edge
        };
        edge.wrapping_sub(self.next)
    }

    /// Returns when an acknowledgement is due; 0: none is.
    pub const fn deadline(&self) -> u64 {
        self.due_at
    }
}
