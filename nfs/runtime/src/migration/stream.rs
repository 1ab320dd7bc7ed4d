//! The old instance's end of the connection on which state is copied.

use std::{
    io::{self, BufRead, BufReader, Write},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use nf_arena::{Arena, Region};
use nf_ports::Frame;

use super::{
    outcome::Outcome,
    ring::{Record, Ring},
    sealed::{Opener, Sealed, Sealer},
    secret::Secret,
    socket::{Connection, Over, Patience},
    wire::{send_dirty, Message},
};
use crate::Refusal;

/// The time in which the new instance must make progress during the relay; frames it has not taken by then are lost.
const RELAY_STALL: Duration = Duration::from_secs(30);
/// The minimum rate at which the new instance reads its state for the digest.
const DIGEST_BYTES_PER_S: f64 = 200e6;

/// The connection to the new instance.
pub(super) struct Stream {
    out: Sealer<Connection>,
    answers: BufReader<Opener<Connection>>,
    pace: Pace,
}

impl Stream {
    /// Connects. Waits for the other end at most `stall` at a time, and not once it is `over`.
    pub(super) fn connect(
        to: &str,
        secret: &Secret,
        rate_mbps: Option<u64>,
        stall: Duration,
        over: &Over,
    ) -> Result<Self, Refusal> {
        let patience = Patience {
            stall: Some(stall),
            until: None,
            over: over.clone(),
        };
        let connection = Connection::connect(to, stall, patience)?;
        let again = connection.try_clone().map_err(peer)?;
        let sealed = Sealed::of_old(connection, again, secret).map_err(peer)?;
        Ok(Self {
            out: sealed.out,
            answers: BufReader::new(sealed.from),
            pace: Pace::new(rate_mbps),
        })
    }

    /// Sets the limit of waits without progress.
    pub(super) fn set_stall(&mut self, stall: Duration) {
        self.out.connection().patience.stall = Some(stall);
        self.answers.get_mut().connection().patience.stall = Some(stall);
    }

    pub(super) fn say(&mut self, message: &Message<'_>) -> Result<(), Refusal> {
        message
            .write(&mut self.out)
            .and_then(|()| self.out.flush())
            .map_err(peer)
    }

    pub(super) fn send_dirty(&mut self, arena: &Arena) -> Result<u64, Refusal> {
        let pace = &mut self.pace;
        let sent = send_dirty(arena, &mut self.out, |bytes| pace.spend(bytes)).map_err(peer)?;
        self.out.flush().map_err(peer)?;
        Ok(sent)
    }

    /// Waits for the new instance's answer to what was sent.
    pub(super) fn accepted(&mut self) -> Result<(), Refusal> {
        let mut line = String::new();
        if self.answers.read_line(&mut line).map_err(peer)? == 0 {
            let detail = "the new instance closed the connection; was it given the same secret?";
            return Err(Refusal::new("peer", detail));
        }
        match line.trim_end() {
            "" => Ok(()),
            reason => Err(Refusal::new(
                "peer",
                format!("the new instance refused: {reason}"),
            )),
        }
    }

    /// Like `accepted`, where the new instance reads all of its state first.
    pub(super) fn accepted_whole(&mut self, arena: &Arena) -> Result<(), Refusal> {
        let patience = &mut self.answers.get_mut().connection().patience;
        let digest = Duration::from_secs_f64(arena.bytes() as f64 / DIGEST_BYTES_PER_S);
        patience.stall = patience.stall.map(|stall| stall + digest);
        self.accepted()
    }

    /// Relays frames from the rings until each has ended; the outcome is the number of frames that could not be sent.
    ///
    /// When the connection breaks, it empties the rings all the same: the frames behind, including the markers of the old paths, need room in them.
    pub(super) fn relay(mut self, rings: &[Arc<Ring<Region>>], outcome: &Outcome<u64>) {
        self.set_stall(RELAY_STALL);
        let (mut open, mut frame) = (vec![true; rings.len()], Vec::new());
        let (mut broken, mut lost) = (None, 0);
        while open.contains(&true) {
            let mut idle = true;
            for (queue, ring) in rings.iter().enumerate() {
                while let Some(record) = ring.pop(&mut frame) {
                    idle = false;
                    let message = match record {
                        Record::Frame { port, offloads, .. } => Message::Frame {
                            queue,
                            port,
                            frame: Frame {
                                bytes: &frame,
                                offloads,
                            },
                        },
                        Record::End => {
                            open[queue] = false;
                            Message::End { queue }
                        }
                    };
                    if broken.is_none() {
                        broken = message.write(&mut self.out).err();
                    }
                    let is_frame = matches!(message, Message::Frame { .. });
                    lost += u64::from(broken.is_some() && is_frame);
                }
            }
            if idle {
                if broken.is_none() {
                    broken = self.out.flush().err();
                }
                // The rings are shared memory without a bell; this loop runs only as long as the old path is in use.
                thread::sleep(Duration::from_micros(50));
            }
        }
        let end = broken.map_or_else(|| self.out.flush(), Err);
        outcome.settle(end.map(|()| lost).map_err(|error| {
            format!("the relay to the new instance broke off, {lost} frames were not sent: {error}")
        }));
    }
}

/// Paces sending to an average rate since the start: a share of a PCIe link.
struct Pace {
    bytes_per_s: Option<f64>,
    since: Instant,
    spent: f64,
}

impl Pace {
    fn new(rate_mbps: Option<u64>) -> Self {
        Self {
            bytes_per_s: rate_mbps.map(|rate| rate.max(1) as f64 * 125_000.0),
            since: Instant::now(),
            spent: 0.0,
        }
    }

    fn spend(&mut self, bytes: usize) {
        thread::sleep(self.pause_after(bytes, self.since.elapsed()));
    }

    /// Returns the time to wait after these bytes, sent `elapsed` after the start.
    fn pause_after(&mut self, bytes: usize, elapsed: Duration) -> Duration {
        let Some(rate) = self.bytes_per_s else {
            return Duration::ZERO;
        };
        // A pause earns no credit: the bytes not sent then are not sent faster now.
        let elapsed = elapsed.as_secs_f64() * rate;
        self.spent = self.spent.max(elapsed - rate / 1000.0) + bytes as f64;
        Duration::from_secs_f64(((self.spent - elapsed) / rate).max(0.0))
    }
}

pub(super) fn peer(error: io::Error) -> Refusal {
    Refusal::new(
        "peer",
        format!("the connection to the new instance: {error}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_leave_at_the_rate_and_pauses_earn_at_most_a_millisecond() {
        let millis = Duration::from_millis;
        // 8 Mb/s: 1,000 bytes a millisecond.
        let mut pace = Pace::new(Some(8));
        let mut pause = |bytes, at| pace.pause_after(bytes, millis(at)).as_secs_f64() * 1000.0;
        for (bytes, at, expected) in [
            (5_000, 0, 5.0),
            (1_000, 4, 2.0),
            (1_000, 7, 0.0),
            (1_000, 8, 0.0),
            // After a long pause: one millisecond of it counts.
            (3_000, 1_000, 2.0),
            (2_000, 1_002, 2.0),
        ] {
            let told = pause(bytes, at);
            assert!((told - expected).abs() < 1e-6, "{bytes} at {at}: {told}");
        }
        let second = Pace::new(Some(0)).pause_after(125_000, Duration::ZERO);
        assert_eq!(second, Duration::from_secs(1), "no less than 1 Mb/s");
        let unlimited = Pace::new(None).pause_after(1 << 40, Duration::ZERO);
        assert_eq!(unlimited, Duration::ZERO);
    }
}
