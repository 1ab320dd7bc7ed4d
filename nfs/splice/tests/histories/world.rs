//! A byte-level model: a sender, the splice, a receiver, and networks that lose, repeat and reorder.
//!
//! Each byte has an identity, so the receiver notices a byte in a wrong place, and the model knows which bytes an acknowledgement,
//! a SACK block or a window is about.

use nf_splice::{segment::is_before, Map, Refused};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Byte {
    /// A byte of the sender, by its place in the sender's stream.
    Passed(usize),
    /// A byte that the splice gives.
    Given(usize),
    /// Another content of bytes that the splice has taken already.
    Forged,
}

#[derive(Clone, Debug)]
pub enum Action {
    /// The sender sends bytes for the first time or again.
    Send {
        start: u16,
        length: u8,
    },
    /// The splice lets the sender's next bytes pass.
    Pass(u8),
    /// The splice takes bytes, and gives others in their place.
    Replace {
        taken: u8,
        given: u8,
    },
    /// The splice sends given bytes for the first time or again.
    Give {
        region: u8,
        start: u8,
        length: u8,
    },
    /// A segment arrives, and may arrive again.
    Deliver {
        index: u8,
        again: bool,
    },
    Lose(u8),
    /// An acknowledgement arrives, and may arrive again.
    Acknowledge {
        index: u8,
        again: bool,
    },
    LoseAcknowledgement(u8),
    /// The receiver makes room.
    Open(u16),
}

#[derive(Clone)]
struct Segment {
    sequence: u32,
    bytes: Vec<Byte>,
}

#[derive(Clone)]
struct Acknowledgement {
    number: u32,
    blocks: Vec<(u32, u32)>,
    edge: u32,
}

/// Bytes `from..from + taken` of the sender became `at..at + given` of the receiver.
struct Replaced {
    from: usize,
    taken: usize,
    at: usize,
    given: usize,
}

pub struct World {
    source_start: u32,
    destination_start: u32,
    /// The receiver's stream as it is meant to be.
    meant: Vec<Byte>,
    /// The place of each of the sender's bytes in it, as far as it is decided; None: taken.
    images: Vec<Option<usize>>,
    replaced: Vec<Replaced>,

    map: Map,
    /// Which of the sender's bytes have arrived at the splice before their meaning was decided.
    waiting: Vec<bool>,
    /// The end of the bytes that the splice itself has acknowledged to the sender.
    own: usize,
    /// The end of the bytes that the translated acknowledgements have covered.
    checked: usize,
    last_acknowledgement: Option<(u32, u32)>,

    sent: usize,
    unacknowledged: usize,
    /// The end of what the sender may send.
    allowed: usize,

    segments: Vec<Segment>,
    acknowledgements: Vec<Acknowledgement>,

    arrived: Vec<bool>,
    next: usize,
    edge: usize,
}

impl World {
    pub fn new(source_start: u32, destination_start: u32) -> Self {
        Self {
            source_start,
            destination_start,
            meant: Vec::new(),
            images: Vec::new(),
            replaced: Vec::new(),
            map: Map::between(source_start, destination_start),
            waiting: Vec::new(),
            own: 0,
            checked: 0,
            last_acknowledgement: None,
            sent: 0,
            unacknowledged: 0,
            allowed: 500,
            segments: Vec::new(),
            acknowledgements: Vec::new(),
            arrived: Vec::new(),
            next: 0,
            edge: 500,
        }
    }

    pub fn act(&mut self, action: &Action) {
        match *action {
            Action::Send { start, length } => {
                let oldest = self.unacknowledged.saturating_sub(20);
                let start = oldest + usize::from(start) % (self.sent - oldest + 1);
                self.send(start, usize::from(length));
            }
            Action::Pass(length) => self.pass(length.into()),
            Action::Replace { taken, given } => self.replace(taken.into(), given.into()),
            Action::Give {
                region,
                start,
                length,
            } => {
                let regions: Vec<_> = self.map.regions().collect();
                if let Some(index) = usize::from(region).checked_rem(regions.len()) {
                    let given = regions[index].given as usize;
                    let start = usize::from(start) % (given + 1);
                    let at = self.received_place(regions[index].at) + start;
                    self.give(at, usize::from(length).min(given - start));
                }
            }
            Action::Deliver { index, again } => {
                if let Some(index) = usize::from(index).checked_rem(self.segments.len()) {
                    let segment = self.segments[index].clone();
                    if !again {
                        self.segments.remove(index);
                    }
                    self.receive(&segment);
                }
            }
            Action::Lose(index) => {
                if let Some(index) = usize::from(index).checked_rem(self.segments.len()) {
                    self.segments.remove(index);
                }
            }
            Action::Acknowledge { index, again } => {
                if let Some(index) = usize::from(index).checked_rem(self.acknowledgements.len()) {
                    let acknowledgement = self.acknowledgements[index].clone();
                    if !again {
                        self.acknowledgements.remove(index);
                    }
                    self.translate(&acknowledgement);
                }
            }
            Action::LoseAcknowledgement(index) => {
                if let Some(index) = usize::from(index).checked_rem(self.acknowledgements.len()) {
                    self.acknowledgements.remove(index);
                }
            }
            Action::Open(room) => self.edge = self.edge.max(self.next + usize::from(room)),
        }
    }

    /// Loses nothing any more, and checks that everything arrives after a few round trips.
    pub fn finish(mut self) {
        for _ in 0..8 {
            self.edge = self.edge.max(self.next + 100_000);
            self.acknowledge(None);
            let decided = self.images.len();
            let mut start = self.unacknowledged;
            while start < decided.min(self.allowed) {
                self.send(start, 100);
                start += 100;
            }
            let regions: Vec<_> = self.map.regions().collect();
            for region in regions {
                self.give(self.received_place(region.at), region.given as usize);
            }
            for segment in std::mem::take(&mut self.segments) {
                self.receive(&segment);
            }
            for acknowledgement in std::mem::take(&mut self.acknowledgements) {
                self.translate(&acknowledgement);
            }
            if self.unacknowledged == decided && self.next == self.meant.len() {
                break;
            }
        }
        assert_eq!(self.next, self.meant.len(), "the receiver waits");
        assert_eq!(self.unacknowledged, self.images.len(), "the sender waits");
        let delta = self
            .destination_number(self.meant.len())
            .wrapping_sub(self.source_number(self.images.len()));
        assert_eq!(self.map, Map::with_delta(delta), "everything is settled");
    }

    fn source_number(&self, place: usize) -> u32 {
        self.source_start.wrapping_add(place as u32)
    }

    fn destination_number(&self, place: usize) -> u32 {
        self.destination_start.wrapping_add(place as u32)
    }

    /// Returns the place of a number in the sender's stream; those before its start count as the start.
    fn sent_place(&self, number: u32) -> usize {
        (number.wrapping_sub(self.source_start) as i32).max(0) as usize
    }

    fn received_place(&self, number: u32) -> usize {
        (number.wrapping_sub(self.destination_start) as i32).max(0) as usize
    }

    // The sender and the splice

    fn send(&mut self, start: usize, length: usize) {
        let end = (start + length).min(self.allowed);
        if end <= start {
            return;
        }
        self.sent = self.sent.max(end);
        let decided = end.min(self.images.len()).max(start) - start;
        let bytes: Vec<Byte> = (start..start + decided)
            .map(|place| self.images[place].map_or(Byte::Forged, |_| Byte::Passed(place)))
            .collect();
        let mut covered = 0;
        for part in self.map.parts(self.source_number(start), decided as u32) {
            let range = part.offset as usize..(part.offset + part.length) as usize;
            assert!(part.length > 0 && range.start == covered);
            covered = range.end;
            if let Some(sequence) = part.to {
                let bytes = bytes[range].to_vec();
                self.segments.push(Segment { sequence, bytes });
            }
        }
        assert_eq!(covered, decided, "the parts are the segment");
        self.waiting.resize(self.waiting.len().max(end), false);
        self.waiting[start + decided..end].fill(true);
    }

    fn pass(&mut self, length: usize) {
        for _ in 0..length {
            let place = self.images.len();
            self.images.push(Some(self.meant.len()));
            self.meant.push(Byte::Passed(place));
        }
    }

    fn replace(&mut self, taken: usize, given: usize) {
        let from = self.images.len();
        let all = from..from + taken;
        if !all
            .clone()
            .all(|place| self.waiting.get(place) == Some(&true))
        {
            return;
        }
        let unsettled = self.map.regions().count();
        let number = self.source_number(from);
        let found = self.map.insert(number, taken as u32, given as u32);
        if found == Err(Refused::Full) {
            assert_eq!(unsettled, 2);
            return;
        }
        assert_eq!(found, Ok(()));
        let at = self.meant.len();
        self.replaced.push(Replaced {
            from,
            taken,
            at,
            given,
        });
        self.images.extend(all.map(|_| None));
        self.meant.extend((at..at + given).map(Byte::Given));
    }

    fn give(&mut self, at: usize, length: usize) {
        let bytes = self.meant[at..at + length].to_vec();
        assert!(bytes.iter().all(|byte| matches!(byte, Byte::Given(_))));
        let sequence = self.destination_number(at);
        self.segments.push(Segment { sequence, bytes });
    }

    // The receiver

    fn receive(&mut self, segment: &Segment) {
        let start = segment.sequence.wrapping_sub(self.destination_start) as i32;
        let mut repeated = None;
        for (offset, byte) in segment.bytes.iter().enumerate() {
            // Discarded: what the receiver has, and what it has no room for.
            let Ok(place) = usize::try_from(start + offset as i32) else {
                continue;
            };
            self.arrived
                .resize(self.arrived.len().max(place + 1), false);
            if place < self.next || self.arrived[place] {
                let (first, _) = repeated.unwrap_or((place, place));
                repeated = Some((first, place + 1));
            } else if place < self.edge {
                assert_eq!(self.meant.get(place), Some(byte), "at {place}");
                self.arrived[place] = true;
            }
        }
        while self.arrived.get(self.next) == Some(&true) {
            self.next += 1;
        }
        self.acknowledge(repeated);
    }

    fn acknowledge(&mut self, repeated: Option<(usize, usize)>) {
        let mut blocks: Vec<(usize, usize)> = repeated.into_iter().collect();
        let mut place = self.next;
        while place < self.arrived.len() && blocks.len() < 4 {
            if self.arrived[place] {
                let end = (place..self.arrived.len()).find(|at| !self.arrived[*at]);
                let end = end.unwrap_or(self.arrived.len());
                blocks.push((place, end));
                place = end;
            }
            place += 1;
        }
        let number = |place| self.destination_number(place);
        self.acknowledgements.push(Acknowledgement {
            number: number(self.next),
            blocks: blocks
                .iter()
                .map(|(start, end)| (number(*start), number(*end)))
                .collect(),
            edge: number(self.edge),
        });
    }

    // The way back

    fn translate(&mut self, acknowledgement: &Acknowledgement) {
        let number = acknowledgement.number;
        self.map.settle(number);
        let end = self.sent_place(self.map.back(number));
        self.check_arrived(end.min(self.checked), end);
        self.checked = self.checked.max(end);
        let mut blocks = Vec::new();
        for (start, end) in &acknowledgement.blocks {
            let (start, end) = (self.map.back_start(*start), self.map.back(*end));
            if is_before(start, end) {
                let (start, end) = (self.sent_place(start), self.sent_place(end));
                self.check_arrived(start, end);
                blocks.push((start, end));
            }
        }
        let edge = self.sent_place(self.map.back(acknowledgement.edge));
        self.check_room(edge, self.received_place(acknowledgement.edge));
        // The splice acknowledges its regions once every byte before them has arrived.
        for replaced in &self.replaced {
            if replaced.from <= self.own.max(end) {
                self.own = self.own.max(replaced.from + replaced.taken);
            }
        }
        let last = self
            .last_acknowledgement
            .replace((number, acknowledgement.edge));
        let superfluous = last.is_some_and(|(last, edge)| {
            let is_new = last != number;
            // The receiver's own duplicates tell of a loss.
            let means_same = is_new && self.map.back(last) == self.map.back(number);
            means_same && edge == acknowledgement.edge && blocks.is_empty()
        });
        if superfluous && self.own.max(end) <= self.unacknowledged {
            return;
        }
        self.unacknowledged = self.unacknowledged.max(self.own.max(end));
        assert!(self.unacknowledged <= self.images.len());
        self.allowed = self.allowed.max(edge);
    }

    /// Checks that the receiver has these bytes of the sender, or what was given for them.
    fn check_arrived(&self, start: usize, end: usize) {
        assert!(end <= self.images.len(), "{end} was not forwarded");
        for place in start..end {
            if let Some(image) = self.images[place] {
                assert!(self.arrived[image], "{place} has not arrived");
            }
        }
        for replaced in &self.replaced {
            let (first, last) = (replaced.from, replaced.from + replaced.taken);
            if first < last && first < end && start < last {
                let given = replaced.at..replaced.at + replaced.given;
                assert!(
                    given.into_iter().all(|place| self.arrived[place]),
                    "{first} is not replaced yet"
                );
            }
        }
    }

    /// Checks that the receiver has room for the sender's bytes up to `end`.
    fn check_room(&self, end: usize, edge: usize) {
        for place in (0..end).rev() {
            let image = match self.images.get(place) {
                Some(Some(image)) => *image,
                Some(None) => continue,
                None => self.meant.len() + (place - self.images.len()),
            };
            if image < edge {
                return; // and so are all before it
            }
            assert_eq!(self.arrived.get(image), Some(&true), "no room for {place}");
        }
    }
}
