//! A load balancer's session, as the T-NIC has it.
//!
//! ```text
//! hello -> (entries of earlier lives are removed) -> barrier -> welcome -> operations ... -> closed, silent, or replaced by a newer hello
//! ```

use std::{collections::VecDeque, os::unix::net::UnixStream, time::Duration};

use nf_offload::{FlowKey, Writer};

use super::{
    engines::{Attached, Engines},
    nic::Nic,
    relay::Relay,
};
use crate::{
    aging::SignalBudget,
    session::{Answer, Channel, Say, SessionMemory, SignalsOut, Terms, VERSION},
};

/// Signals of this time may be sent at once.
const BURST: Duration = Duration::from_millis(100);

/// The surroundings of a load balancer's session.
pub struct Around<'a> {
    pub nic: &'a Nic,
    pub engines: &'a mut Engines,
    pub relay: &'a mut Relay,
    pub signalling: &'a mut Signalling,
    pub now: u64,
}

/// The signals of a T-NIC, to all load balancers.
pub struct Signalling {
    budget: SignalBudget,
    sent: u64,
    withheld: u64,
}

impl Signalling {
    /// Allows this many signals per second.
    #[must_use]
    pub fn new(per_s: u32) -> Self {
        Self {
            budget: SignalBudget::new(per_s, BURST),
            sent: 0,
            withheld: 0,
        }
    }

    /// Sends a signal, if there is budget and room for it.
    fn send(&mut self, signals: &mut SignalsOut, flow: &FlowKey, now: u64) -> bool {
        let is_sent = self.budget.take(now) && signals.push(flow);
        match is_sent {
            true => self.sent += 1,
            false => self.withheld += 1,
        }
        is_sent
    }

    /// Returns the numbers of signals that were sent, and that were not.
    #[must_use]
    pub fn counts(&self) -> [u64; 2] {
        [self.sent, self.withheld]
    }
}

/// A connection, before and after its hello.
pub struct Session {
    channel: Channel,
    terms: Terms,
    number: usize,
    writer: Option<Writer>,
    state: State,
    /// Lines of rows that the switch does not have yet: number, and the relay's change.
    unwritten: VecDeque<(u64, u64)>,
    /// Barriers that end removals: what the load balancer has asked for, and the barrier.
    removals: VecDeque<(u64, u64)>,
    asked: u64,
    /// The heartbeat, and when it changed.
    beat: (u64, u64),
}

enum State {
    Silent,
    /// The welcome waits for this barrier.
    Waiting(u64),
    Open(Box<Opened>),
}

struct Opened {
    memory: SessionMemory,
    attached: Attached,
    signals: SignalsOut,
}

/// The end of a session.
#[derive(Debug)]
pub struct Ended(pub String);

impl Session {
    /// # Errors
    /// If the socket cannot be used.
    pub fn new(stream: UnixStream, number: usize, terms: Terms, now: u64) -> std::io::Result<Self> {
        Ok(Self {
            channel: Channel::new(stream)?,
            terms,
            number,
            writer: None,
            state: State::Silent,
            unwritten: VecDeque::new(),
            removals: VecDeque::new(),
            asked: 0,
            beat: (0, now),
        })
    }

    #[must_use]
    pub fn writer(&self) -> Option<Writer> {
        self.writer
    }

    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    /// Returns when the load balancer was heard of last.
    #[must_use]
    pub fn heard(&self) -> u64 {
        self.beat.1
    }

    /// Returns the queues of an open session.
    #[cfg(test)]
    pub fn queues(&self) -> Option<&crate::session::Queues> {
        match &self.state {
            State::Open(opened) => Some(&opened.memory.queues),
            _ => None,
        }
    }

    /// Drops its queues.
    pub fn close(&mut self, engines: &mut Engines) {
        if let State::Open(opened) = std::mem::replace(&mut self.state, State::Silent) {
            engines.detach(&opened.attached);
        }
    }

    /// Tells the load balancer why its session ends.
    pub fn refuse(&mut self, code: &str, detail: String) {
        let code = code.to_owned();
        self.channel.put(&Answer::Error { code, detail });
        let _ = self.channel.flush();
    }

    /// Restarts without entries, after a restart of the load balancer or the loss of the table. The caller has removed the entries.
    pub fn begin(&mut self, around: &mut Around<'_>) {
        self.close(around.engines);
        self.unwritten.clear();
        self.removals.clear();
        self.asked = 0;
        self.state = State::Waiting(around.nic.barriers.ask());
    }

    /// Reads lines. Returns the writer of a hello, which must take over.
    ///
    /// # Errors
    /// If the session has ended.
    pub fn read(&mut self, around: &mut Around<'_>) -> Result<Option<Writer>, Ended> {
        let ended = |error: std::io::Error| Ended(error.to_string());
        let is_open = self.channel.fill().map_err(ended)?;
        let mut hello = None;
        while let Some(say) = self.channel.next::<Say>().map_err(ended)? {
            match say {
                Say::Hello {
                    version,
                    instance,
                    epoch,
                } => {
                    let instance = u128::from_str_radix(&instance, 16)
                        .ok()
                        .filter(|_| version == VERSION);
                    let Some(instance) = instance else {
                        let detail = format!("version {version}, expected {VERSION}, or an instance that is not a number");
                        self.refuse("version", detail.clone());
                        return Err(Ended(detail));
                    };
                    let writer = Writer { instance, epoch };
                    self.writer = Some(writer);
                    hello = Some(writer);
                }
                Say::Put { number, rows } => {
                    let change = around.relay.put(self.terms.prefix, rows);
                    self.unwritten.push_back((number, change));
                }
                Say::Drop { rows } => around.relay.drop(self.terms.prefix, &rows),
            }
        }
        match is_open || hello.is_some() {
            true => Ok(hello),
            false => Err(Ended("closed".to_owned())),
        }
    }

    /// Does what is due; returns false if there was nothing to do.
    ///
    /// # Errors
    /// If the session has ended.
    pub fn turn(&mut self, around: &mut Around<'_>) -> Result<bool, Ended> {
        let passed = around.nic.barriers.passed();
        if let State::Waiting(barrier) = self.state {
            if barrier > passed {
                return Ok(false);
            }
            self.welcome(around)?;
        }
        let confirmed = around.relay.confirmed();
        for number in due(&mut self.unwritten, confirmed) {
            self.channel.put(&Answer::Written { number });
        }
        self.channel
            .flush()
            .map_err(|error| Ended(error.to_string()))?;
        let State::Open(opened) = &mut self.state else {
            return Ok(false);
        };
        let beats = opened.memory.beats();
        if beats != self.beat.0 {
            self.beat = (beats, around.now);
        }
        let asked = opened.memory.asked();
        if asked != self.asked {
            self.asked = asked;
            self.removals.push_back((asked, around.nic.barriers.ask()));
        }
        for asked in due(&mut self.removals, passed) {
            opened.memory.pass(asked);
        }
        let Some(part) = around.nic.parts.get(self.number) else {
            return Ok(false);
        };
        let signals = part.take_signals();
        for signal in &signals {
            if !around
                .signalling
                .send(&mut opened.signals, &signal.flow, around.now)
            {
                around.nic.unmark(signal);
            }
        }
        Ok(!signals.is_empty())
    }

    fn welcome(&mut self, around: &mut Around<'_>) -> Result<(), Ended> {
        let ended = |error: String| Ended(error);
        let Some(part) = around.nic.parts.get(self.number) else {
            return Ok(());
        };
        let memory = SessionMemory::new(&self.terms).map_err(|error| ended(error.to_string()))?;
        let attached = around.engines.attach(&memory.queues, self.terms.credits);
        let attached = attached.map_err(|error| ended(error.to_string()))?;
        let descriptors = [memory.descriptor(), part.totals.descriptor()];
        let signals = memory.signals().producer();
        self.state = State::Open(Box::new(Opened {
            memory,
            attached,
            signals,
        }));
        self.beat = (0, around.now);
        let system = |error: std::io::Error| ended(error.to_string());
        let [memory, totals] = descriptors;
        let descriptors = [memory.map_err(system)?, totals.map_err(system)?];
        let terms = self.terms.clone();
        self.channel
            .send(&Answer::Welcome(terms), &descriptors)
            .map_err(system)
    }
}

/// Takes what waits for numbers up to this one: both are in order.
fn due(waiting: &mut VecDeque<(u64, u64)>, until: u64) -> Vec<u64> {
    let count = waiting
        .iter()
        .take_while(|(_, number)| *number <= until)
        .count();
    waiting.drain(..count).map(|(what, _)| what).collect()
}
