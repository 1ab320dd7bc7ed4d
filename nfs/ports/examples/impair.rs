//! Forwards frames between two interfaces and impairs TCP and UDP on the way: loss, duplication, reordering, corruption, delay. The kernel's netem
//! does this, too, but is missing in some kernels. Other frames (ARP, neighbour discovery) pass unchanged.
//!
//! ```console
//! $ impair a0 b0
//! ready
//! 7  0.01 0 0 0 25  0.01 0 0 0 25
//! {"forth": {"frames": 0, ...}, "back": {...}}
//! ```
//! Each line of input has the seed, and for both directions the shares of frames that are lost, duplicated, reordered and corrupted, and the delay in ms.
//! The answer counts the frames since the line before. The fate of a frame depends on the seed, its direction and its number alone, so a run with the same seed and
//! the same frames repeats it. It ends with its input.
//!
//! A reordered frame leaves after one to three later ones, or after 5 ms. A corrupted one has two words of its data swapped, so its checksum stays right and
//! only the receiving program can notice. Senders must not leave segmentation to the interfaces (`ethtool -K a0 tso off gso off`).

#![allow(clippy::unwrap_used, clippy::panic)]

use std::{
    collections::VecDeque,
    io::{stdin, BufRead},
    os::fd::AsFd,
    time::{Duration, Instant},
};

use nf_ports::{open, Choice, Frame, Packet, Port, Wanted};
use rustix::event::{poll, PollFd, PollFlags, Timespec};

const BURST: usize = 64;
/// The longest wait of a reordered frame for later ones.
const HELD: Duration = Duration::from_millis(5);
/// Numbers of a line of input for each direction.
const NUMBERS: usize = 5;

const ETHERNET: usize = 14;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// The kinds of draws for one frame.
#[derive(Clone, Copy)]
enum Draw {
    Lost,
    Duplicated,
    Reordered,
    Corrupted,
    Gap,
    Word,
}

#[derive(Clone, Copy, Default)]
struct Settings {
    seed: u64,
    lost: f64,
    duplicated: f64,
    reordered: f64,
    corrupted: f64,
    delay: Duration,
}

impl Settings {
    /// Returns a number that is fixed for a frame and a kind of draw (SplitMix64's output function).
    fn draw(&self, frame: u64, kind: Draw) -> u64 {
        let mut word = self
            .seed
            .wrapping_add((frame * 8 + kind as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn happens(&self, frame: u64, kind: Draw, share: f64) -> bool {
        (self.draw(frame, kind) as f64) < share * 2_f64.powi(64)
    }
}

#[derive(Clone, Copy, Default)]
struct Counts {
    frames: u64,
    lost: u64,
    duplicated: u64,
    reordered: u64,
    corrupted: u64,
    refused: u64,
}

impl Counts {
    fn json(&self, overrun: u64) -> String {
        let Self {
            frames,
            lost,
            duplicated,
            reordered,
            corrupted,
            refused,
        } = self;
        format!(
            "{{\"frames\": {frames}, \"lost\": {lost}, \"duplicated\": {duplicated}, \"reordered\": {reordered}, \
             \"corrupted\": {corrupted}, \"refused\": {refused}, \"overrun\": {overrun}}}"
        )
    }
}

/// A reordered frame, which leaves after the frame with the number `after`.
struct Held {
    after: u64,
    until: Instant,
    frame: Vec<u8>,
}

/// Frames from one interface to the other.
#[derive(Default)]
struct Direction {
    settings: Settings,
    counts: Counts,
    held: Vec<Held>,
    delayed: VecDeque<(Instant, Vec<u8>)>,
}

impl Direction {
    /// Decides the fate of an arrived frame.
    fn take(&mut self, bytes: &[u8], now: Instant) {
        let Some(data) = data_offset(bytes) else {
            self.delayed.push_front((now, bytes.to_vec()));
            return;
        };
        let settings = self.settings;
        let number = self.counts.frames;
        self.counts.frames += 1;
        if settings.happens(number, Draw::Lost, settings.lost) {
            self.counts.lost += 1;
        } else {
            let mut frame = bytes.to_vec();
            if settings.happens(number, Draw::Corrupted, settings.corrupted)
                && swap_words(&mut frame[data..], settings.draw(number, Draw::Word))
            {
                self.counts.corrupted += 1;
            }
            if settings.happens(number, Draw::Duplicated, settings.duplicated) {
                self.counts.duplicated += 1;
                self.schedule(frame.clone(), now);
            }
            if settings.happens(number, Draw::Reordered, settings.reordered) {
                self.counts.reordered += 1;
                self.held.push(Held {
                    after: number + 1 + settings.draw(number, Draw::Gap) % 3,
                    until: now + HELD,
                    frame,
                });
            } else {
                self.schedule(frame, now);
            }
        }
        self.release(now);
    }

    fn schedule(&mut self, frame: Vec<u8>, now: Instant) {
        self.delayed.push_back((now + self.settings.delay, frame));
    }

    /// Schedules the reordered frames whose wait is over.
    fn release(&mut self, now: Instant) {
        let arrived = self.counts.frames;
        while let Some(index) = self
            .held
            .iter()
            .position(|held| held.after < arrived || held.until <= now)
        {
            let held = self.held.remove(index);
            self.schedule(held.frame, now);
        }
    }

    /// Sends the frames that are due.
    fn send(&mut self, to: &mut Port, now: Instant) {
        self.release(now);
        let count = self.delayed.iter().take_while(|(due, _)| *due <= now);
        let due: Vec<Vec<u8>> = {
            let count = count.count();
            self.delayed
                .drain(..count)
                .map(|(_, frame)| frame)
                .collect()
        };
        let frames: Vec<Frame> = due.iter().map(|frame| Frame::from(&frame[..])).collect();
        self.counts.refused += (frames.len() - to.queues[0].transmit(&frames)) as u64;
    }

    /// Returns the time at which the next frame is due.
    fn next(&self) -> Option<Instant> {
        let held = self.held.iter().map(|held| held.until);
        held.chain(self.delayed.front().map(|(due, _)| *due)).min()
    }
}

/// Returns the offset of the data of a TCP or UDP frame over IPv4 or IPv6; None for other frames.
fn data_offset(frame: &[u8]) -> Option<usize> {
    let (protocol, transport) = match frame.get(12..ETHERNET)? {
        [0x08, 0x00] => (
            *frame.get(ETHERNET + 9)?,
            ETHERNET + usize::from(frame[ETHERNET] & 15) * 4,
        ),
        [0x86, 0xdd] => (*frame.get(ETHERNET + 6)?, ETHERNET + 40),
        _ => return None,
    };
    let data = match protocol {
        TCP => transport + usize::from(frame.get(transport + 12)? >> 4) * 4,
        UDP => transport + 8,
        _ => return None,
    };
    (data <= frame.len()).then_some(data)
}

/// Swaps two adjacent words of 16 bits that differ, which keeps the checksum. Returns false if there are none.
fn swap_words(data: &mut [u8], draw: u64) -> bool {
    let words = data.len() / 2;
    if words < 2 {
        return false;
    }
    let first = draw as usize % (words - 1);
    let differing = (0..words - 1)
        .map(|step| (first + step) % (words - 1) * 2)
        .find(|at| data[*at..at + 2] != data[at + 2..at + 4]);
    if let Some(at) = differing {
        data[at..at + 4].rotate_left(2);
    }
    differing.is_some()
}

/// Reads a line of settings; returns None at the end of the input.
fn settings() -> Option<[Settings; 2]> {
    let mut line = String::new();
    if stdin().lock().read_line(&mut line).unwrap() == 0 {
        return None;
    }
    let mut words = line.split_ascii_whitespace();
    let seed: u64 = words.next().unwrap().parse().unwrap();
    let numbers: Vec<f64> = words.map(|word| word.parse().unwrap()).collect();
    assert_eq!(numbers.len(), 2 * NUMBERS, "numbers in {line:?}");
    let direction = |index: usize| {
        let own = &numbers[index * NUMBERS..];
        Settings {
            seed: seed.wrapping_add((index as u64) << 32),
            lost: own[0],
            duplicated: own[1],
            reordered: own[2],
            corrupted: own[3],
            delay: Duration::from_secs_f64(own[4] / 1000.0),
        }
    };
    Some([direction(0), direction(1)])
}

/// Waits for frames, input, or a frame that is due; tells whether there is input.
fn wait(ports: &[Port; 2], until: Option<Instant>) -> bool {
    let input = stdin();
    let mut fds: Vec<PollFd> = ports
        .iter()
        .map(|port| port.queues[0].descriptor().unwrap())
        .chain([input.as_fd()])
        .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
        .collect();
    let timeout = until.map(|until| {
        let left = until.saturating_duration_since(Instant::now());
        Timespec::try_from(left).unwrap()
    });
    // An interrupted wait is a short one.
    let _ = poll(&mut fds, timeout.as_ref());
    !fds[2].revents().is_empty()
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, first, second] = &arguments[..] else {
        panic!("usage: impair INTERFACE INTERFACE");
    };
    let mut ports = [first, second].map(|name| {
        open(
            name,
            0,
            Wanted {
                choice: Choice::Packet,
                ..Wanted::default()
            },
        )
        .unwrap()
    });
    let mut directions = [Direction::default(), Direction::default()];
    let mut overruns = [0, 0];
    let mut packets: Vec<Packet> = (0..BURST).map(|_| Packet::new()).collect();
    println!("ready");
    loop {
        let next = directions.iter().filter_map(Direction::next).min();
        if wait(&ports, next) {
            let Some(given) = settings() else { break };
            let told = [0, 1].map(|index| {
                let total = (ports[index].overruns)();
                let since = total - overruns[index];
                overruns[index] = total;
                directions[index].settings = given[index];
                std::mem::take(&mut directions[index].counts).json(since)
            });
            // A held frame waits for numbers that start over.
            for direction in &mut directions {
                direction.held.iter_mut().for_each(|held| held.after = 0);
            }
            println!("{{\"forth\": {}, \"back\": {}}}", told[0], told[1]);
        }
        let now = Instant::now();
        for index in 0..2 {
            let count = ports[index].queues[0].receive(&mut packets).unwrap();
            for packet in &packets[..count] {
                directions[index].take(packet.bytes(), now);
            }
            directions[index].send(&mut ports[1 - index], now);
        }
    }
}
