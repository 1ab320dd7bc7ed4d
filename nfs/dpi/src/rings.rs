//! The two rings in shared memory: requests to the program, and its answers.
//!
//! Positions count words (requests) or answers from the start, and never go back; where they are in the ring is the rest of the division by its size. Each side
//! writes its own positions and keeps them in its own memory, too, so the other cannot change them. The program parses what strangers send, so what comes from
//! it is only believed after a check: how far it has read, and how much it has answered.

use std::sync::atomic::{
    fence, AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};

use nf_arena::{Arena, ArenaBuilder, ArenaError, Memory, Region};

pub use crate::answer::ANSWER_WORDS;
use crate::Answer;

/// The kind and schema of the arena with the rings.
const KIND: &str = "nf-dpi";
const SCHEMA: u32 = 1;

/// Words of the region `control`, each in a cache line of its own.
const CONTROL_WORDS: usize = 32;
/// How far requests are written; the owner writes it.
const WRITTEN: usize = 0;
/// How far requests are read; the program writes it.
const READ: usize = 8;
/// How many answers are written; the program writes it.
const ANSWERED: usize = 16;
/// 1: the program sleeps, and wants a sign when there is a request.
const ASLEEP: usize = 24;

/// The most answers in the ring, and thus requests on their way.
pub const MAX_OUTSTANDING: usize = 8192;
/// The longest packet.
pub const MAX_PACKET: usize = 65_535;

const PACKET: u64 = 1;
const GIVE_UP: u64 = 2;
const FORGET: u64 = 3;
/// The words before a packet's bytes: kind and length, flow, sequence, time.
const HEAD_WORDS: usize = 4;

/// A packet of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The owner's number of the flow: both directions have the same.
    pub flow: u64,
    /// Comes back with the answer.
    pub sequence: u64,
    /// When it arrived, in milliseconds. It must not be before the time of an earlier packet, of whatever flow.
    pub time_ms: u64,
    /// From the IP header on.
    pub bytes: &'a [u8],
}

/// A request to the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Has one answer.
    Packet(Packet<'a>),
    /// Asks for the best guess, as the answer, which is final.
    GiveUp { flow: u64, sequence: u64 },
    /// Forgets a flow; has no answer.
    Forget { flow: u64 },
}

impl Request<'_> {
    #[must_use]
    pub fn flow(&self) -> u64 {
        match *self {
            Self::Packet(packet) => packet.flow,
            Self::GiveUp { flow, .. } | Self::Forget { flow } => flow,
        }
    }

    /// The flow and sequence that the answer will have.
    pub(crate) fn expects(&self) -> Option<(u64, u64)> {
        match *self {
            Self::Packet(packet) => Some((packet.flow, packet.sequence)),
            Self::GiveUp { flow, sequence } => Some((flow, sequence)),
            Self::Forget { .. } => None,
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Packet(packet) => packet.bytes,
            Self::GiveUp { .. } | Self::Forget { .. } => &[],
        }
    }

    fn head(&self) -> [u64; HEAD_WORDS] {
        let (kind, sequence, time) = match *self {
            Self::Packet(packet) => (PACKET, packet.sequence, packet.time_ms),
            Self::GiveUp { sequence, .. } => (GIVE_UP, sequence, 0),
            Self::Forget { .. } => (FORGET, 0, 0),
        };
        let length = self.bytes().len() as u64;
        [kind | length << 8, self.flow(), sequence, time]
    }
}

/// The memory of both rings.
pub struct Rings<M> {
    control: M,
    requests: M,
    answers: M,
}

impl Rings<Region> {
    /// Makes rings, and the memfd that the program gets. `bytes` is the size of the ring of requests.
    ///
    /// # Errors
    /// If the system is out of memory.
    pub fn create(bytes: usize) -> Result<(Self, Arena), ArenaError> {
        let words = (bytes / 8).next_power_of_two();
        let words = words.max((MAX_PACKET / 8 + HEAD_WORDS + 1).next_power_of_two());
        Self::declare(ArenaBuilder::fresh(KIND, SCHEMA)?, words)
    }

    /// Maps the rings of another process: the program's side.
    ///
    /// # Errors
    /// If this is not such a memfd.
    pub fn adopt(file: std::os::fd::OwnedFd) -> Result<Self, ArenaError> {
        let builder = ArenaBuilder::adopt(file, KIND, SCHEMA)?;
        let regions = builder.adopted_regions();
        let words = regions.iter().find(|(name, _)| name == "requests");
        let words = words.map_or(0, |(_, words)| *words);
        Self::declare(builder, words).map(|(rings, _)| rings)
    }

    fn declare(mut builder: ArenaBuilder, words: usize) -> Result<(Self, Arena), ArenaError> {
        let control = builder.region("control", "positions v1", CONTROL_WORDS)?;
        let requests = builder.region("requests", "requests v1", words)?;
        let answers = MAX_OUTSTANDING * ANSWER_WORDS;
        let answers = builder.region("answers", "answers v1", answers)?;
        let rings = Self::over(control, requests, answers);
        Ok((rings, builder.finish()?))
    }
}

impl<M: Memory + Clone> Rings<M> {
    /// Takes memory of at least 32 words, of a power of two of words, and of [`MAX_OUTSTANDING`] times [`ANSWER_WORDS`] words.
    #[must_use]
    pub fn over(control: M, requests: M, answers: M) -> Self {
        Self {
            control,
            requests,
            answers,
        }
    }

    /// Returns the owner's ends.
    #[must_use]
    pub fn owner(&self) -> (RequestWriter<M>, AnswerReader<M>) {
        let writer = RequestWriter {
            control: self.control.clone(),
            ring: self.requests.clone(),
            written: 0,
            read: 0,
        };
        let reader = AnswerReader {
            control: self.control.clone(),
            ring: self.answers.clone(),
            taken: 0,
        };
        (writer, reader)
    }

    /// Returns the program's ends.
    #[must_use]
    pub fn program(&self) -> (RequestReader<M>, AnswerWriter<M>) {
        let reader = RequestReader {
            control: self.control.clone(),
            ring: self.requests.clone(),
            read: 0,
            bytes: vec![0; MAX_PACKET.div_ceil(8)].into_boxed_slice(),
        };
        let writer = AnswerWriter {
            control: self.control.clone(),
            ring: self.answers.clone(),
            written: 0,
        };
        (reader, writer)
    }
}

/// Garbage that the other side has written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Garbage(pub String);

impl std::fmt::Display for Garbage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

fn at<M: Memory>(memory: &M, position: u64) -> &AtomicU64 {
    let words = memory.words();
    &words[position as usize & (words.len() - 1)]
}

fn control<M: Memory>(memory: &M, index: usize) -> &AtomicU64 {
    &memory.words()[index]
}

/// The owner's end of the ring of requests.
pub struct RequestWriter<M> {
    control: M,
    ring: M,
    written: u64,
    /// How far the program had read when last asked.
    read: u64,
}

impl<M: Memory> RequestWriter<M> {
    /// Writes a request, and tells whether there was room.
    ///
    /// # Errors
    /// If the program claims to have read what was not written.
    pub fn write(&mut self, request: &Request<'_>) -> Result<bool, Garbage> {
        let bytes = request.bytes();
        let words = (HEAD_WORDS + bytes.len().div_ceil(8)) as u64;
        if !self.has_room(words) {
            self.ask()?;
            if !self.has_room(words) {
                return Ok(false);
            }
        }
        let mut position = self.written;
        let mut put = |word: u64| {
            at(&self.ring, position).store(word, Relaxed);
            position += 1;
        };
        request.head().into_iter().for_each(&mut put);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            put(u64::from_ne_bytes(word));
        }
        self.written = position;
        control(&self.control, WRITTEN).store(position, Release);
        Ok(true)
    }

    fn has_room(&self, words: u64) -> bool {
        words <= self.ring.words().len() as u64 - (self.written - self.read)
    }

    fn ask(&mut self) -> Result<(), Garbage> {
        let read = control(&self.control, READ).load(Acquire);
        if read < self.read || read > self.written {
            let (from, to) = (self.read, self.written);
            return Err(Garbage(format!(
                "it has read up to word {read}, expected {from} to {to}"
            )));
        }
        self.read = read;
        Ok(())
    }

    /// Tells whether the program sleeps and must be woken for what was written; says so only once.
    pub fn must_wake(&self) -> bool {
        // Between the position and the sign of sleep: the program does the same in the other order, so one of the two notices the other.
        fence(SeqCst);
        let asleep = control(&self.control, ASLEEP);
        asleep.load(Relaxed) != 0 && asleep.swap(0, Relaxed) != 0
    }
}

/// The owner's end of the ring of answers.
pub struct AnswerReader<M> {
    control: M,
    ring: M,
    taken: u64,
}

impl<M: Memory> AnswerReader<M> {
    /// Returns how many answers are there, of at most `outstanding`.
    ///
    /// # Errors
    /// If the program claims more, or takes some back.
    pub fn ready(&self, outstanding: usize) -> Result<usize, Garbage> {
        let answered = control(&self.control, ANSWERED).load(Acquire);
        let ready = answered.wrapping_sub(self.taken);
        if ready > outstanding as u64 {
            let taken = self.taken;
            return Err(Garbage(format!(
                "it has given {answered} answers, expected {taken} to {}",
                taken.saturating_add(outstanding as u64)
            )));
        }
        Ok(ready as usize)
    }

    /// Takes the next answer, which must be [`ready`](Self::ready).
    ///
    /// # Errors
    /// If it is not one.
    pub fn take(&mut self) -> Result<Answer, Garbage> {
        let slot = self.taken as usize % MAX_OUTSTANDING * ANSWER_WORDS;
        // A copy: the program may change the words at any time.
        let mut words = [0; ANSWER_WORDS];
        let ring = &self.ring.words()[slot..slot + ANSWER_WORDS];
        for (to, from) in words.iter_mut().zip(ring) {
            *to = from.load(Relaxed);
        }
        let answer = Answer::from_words(&words).map_err(Garbage)?;
        self.taken += 1;
        Ok(answer)
    }

    /// Returns how many answers were taken and are ready: it grows while the program makes progress.
    #[must_use]
    pub fn progress(&self) -> u64 {
        control(&self.control, ANSWERED).load(Relaxed)
    }
}

/// The program's end of the ring of requests.
pub struct RequestReader<M> {
    control: M,
    ring: M,
    read: u64,
    bytes: Box<[u64]>,
}

impl<M: Memory> RequestReader<M> {
    /// Returns the next request, if there is one.
    ///
    /// # Errors
    /// If the owner has written what is not one.
    pub fn take(&mut self) -> Result<Option<Request<'_>>, Garbage> {
        let written = control(&self.control, WRITTEN).load(Acquire);
        if written == self.read {
            return Ok(None);
        }
        let word = |offset: usize| at(&self.ring, self.read + offset as u64).load(Relaxed);
        let (kind, length) = (word(0) & 0xff, (word(0) >> 8) as usize);
        let words = length.div_ceil(8);
        let whole = (HEAD_WORDS + words) as u64 <= written.wrapping_sub(self.read);
        if length > MAX_PACKET || !whole {
            return Err(Garbage(format!("a request of {length} bytes")));
        }
        let (flow, sequence, time_ms) = (word(1), word(2), word(3));
        for (index, to) in self.bytes[..words].iter_mut().enumerate() {
            *to = at(&self.ring, self.read + (HEAD_WORDS + index) as u64).load(Relaxed);
        }
        self.read += (HEAD_WORDS + words) as u64;
        // The bytes are copied: their room in the ring is free again.
        control(&self.control, READ).store(self.read, Release);
        let bytes = &bytemuck::cast_slice(&self.bytes)[..length];
        match kind {
            PACKET => Ok(Some(Request::Packet(Packet {
                flow,
                sequence,
                time_ms,
                bytes,
            }))),
            GIVE_UP => Ok(Some(Request::GiveUp { flow, sequence })),
            FORGET => Ok(Some(Request::Forget { flow })),
            other => Err(Garbage(format!("a request of kind {other}"))),
        }
    }

    /// Says how far requests are read: for programs of tests that lie.
    pub fn claim(&mut self, read: u64) {
        control(&self.control, READ).store(read, Release);
    }

    /// Announces that the program will sleep; false: there is a request after all.
    #[must_use]
    pub fn may_sleep(&self) -> bool {
        let asleep = control(&self.control, ASLEEP);
        asleep.store(1, Relaxed);
        // See `RequestWriter::must_wake`.
        fence(SeqCst);
        let none = control(&self.control, WRITTEN).load(Relaxed) == self.read;
        if !none {
            asleep.store(0, Relaxed);
        }
        none
    }
}

/// The program's end of the ring of answers. It has always room: the owner sends no more requests than answers fit.
pub struct AnswerWriter<M> {
    control: M,
    ring: M,
    written: u64,
}

impl<M: Memory> AnswerWriter<M> {
    pub fn write(&mut self, answer: &Answer) {
        self.write_words(&answer.to_words());
    }

    /// Writes words as they are: for programs of tests that write what is not an answer.
    pub fn write_words(&mut self, words: &[u64; ANSWER_WORDS]) {
        let slot = self.written as usize % MAX_OUTSTANDING * ANSWER_WORDS;
        let ring = &self.ring.words()[slot..slot + ANSWER_WORDS];
        for (to, from) in ring.iter().zip(words) {
            to.store(*from, Relaxed);
        }
        self.claim(self.written + 1);
    }

    /// Says how many answers there are: for programs of tests that lie.
    pub fn claim(&mut self, answers: u64) {
        self.written = answers;
        control(&self.control, ANSWERED).store(answers, Release);
    }
}
