//! Plays a capture to an inspector as a firewall does: it stores what each flow has sent until its verdict, and replays that to a new program or elsewhere.

use std::collections::BTreeMap;

use nf_dpi::{Answer, Inspector, Packet, Refused, Request, Settings, State};

use super::{capture::Captured, Waiting};

/// The event before the packet with this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The program is killed.
    Kill,
    /// The flows move to an instance with another program.
    Move,
}

pub struct Play<'a> {
    packets: &'a [Captured],
    settings: &'a Settings,
    waiting: Waiting,
    /// The numbers of the packets submitted, in their order.
    stored: Vec<usize>,
    verdicts: BTreeMap<u64, Answer>,
    /// The number of packets of a flow after which it must be decided.
    prefix: u64,
    taken: BTreeMap<u64, u64>,
}

/// Returns the verdict of each flow.
pub fn play(
    packets: &[Captured],
    settings: &Settings,
    prefix: u64,
    faults: &[(usize, Fault)],
) -> BTreeMap<u64, Answer> {
    let mut play = Play {
        packets,
        settings,
        waiting: Waiting::live(settings.clone()),
        stored: Vec::new(),
        verdicts: BTreeMap::new(),
        prefix,
        taken: BTreeMap::new(),
    };
    for (number, packet) in packets.iter().enumerate() {
        for (_, fault) in faults.iter().filter(|(at, _)| *at == number) {
            play.suffer(*fault);
        }
        play.take(number, packet);
    }
    play.finish()
}

impl Play<'_> {
    fn take(&mut self, number: usize, packet: &Captured) {
        let taken = self.taken.entry(packet.flow).or_default();
        if self.verdicts.contains_key(&packet.flow) || *taken == self.prefix {
            return;
        }
        *taken += 1;
        let last = *taken == self.prefix;
        self.stored.push(number);
        self.submit(request(packet, number));
        if last {
            self.submit(give_up(packet.flow));
        }
        self.poll();
    }

    fn submit(&mut self, request: Request<'_>) {
        let verdicts = &mut self.verdicts;
        let each = |answer: &Answer| note(verdicts, answer);
        match self
            .waiting
            .push(each, |inspector| inspector.submit(request))
        {
            Ok(()) => {}
            Err(Refused::Replay | Refused::Down) => {
                // The packet that was just stored is a part of the replay.
                self.replay();
                if !matches!(request, Request::Packet(_)) {
                    self.submit(request);
                }
            }
            Err(refused) => panic!("{refused}: {:?}", self.waiting.inspector.status()),
        }
    }

    fn poll(&mut self) -> usize {
        let verdicts = &mut self.verdicts;
        self.waiting.inspector.poll(|answer| note(verdicts, answer))
    }

    fn suffer(&mut self, fault: Fault) {
        match fault {
            Fault::Kill => kill(&self.waiting.inspector),
            Fault::Move => {
                self.waiting = Waiting::start(self.settings.clone());
                self.replay();
            }
        }
    }

    /// Gives a new program all that was stored, in the order of its arrival.
    fn replay(&mut self) {
        'again: loop {
            let inspector = &self.waiting.inspector;
            self.waiting
                .until(|inspector| inspector.status().pid.is_some());
            let generation = inspector.generation();
            for number in &self.stored {
                let request = request(&self.packets[*number], *number);
                let verdicts = &mut self.verdicts;
                let each = |answer: &Answer| note(verdicts, answer);
                let replayed = self
                    .waiting
                    .push(each, |inspector| inspector.replay(generation, request));
                match replayed {
                    Ok(()) => {}
                    Err(Refused::Down | Refused::Restarted) => {
                        self.waiting
                            .until(|inspector| inspector.generation() > generation);
                        continue 'again;
                    }
                    Err(refused) => panic!("{refused}: {:?}", self.waiting.inspector.status()),
                }
            }
            if self.waiting.inspector.replayed(generation) {
                break;
            }
            self.waiting
                .until(|inspector| inspector.generation() > generation);
        }
        // Flows at the end of their prefix had asked for the best guess.
        let ended: Vec<u64> = self
            .taken
            .iter()
            .filter(|(_, taken)| **taken == self.prefix)
            .map(|(flow, _)| *flow)
            .collect();
        for flow in ended {
            self.submit(give_up(flow));
        }
    }

    fn finish(mut self) -> BTreeMap<u64, Answer> {
        loop {
            let all = self.taken.keys();
            let open: Vec<u64> = all
                .filter(|flow| !self.verdicts.contains_key(flow))
                .copied()
                .collect();
            open.iter().for_each(|flow| self.submit(give_up(*flow)));
            while self.waiting.inspector.is_live() {
                if self.verdicts.len() == self.taken.len()
                    && self.waiting.inspector.status().outstanding == 0
                {
                    return self.verdicts;
                }
                if self.poll() == 0 {
                    self.waiting.wait();
                }
            }
            // The program has ended before it has answered.
            self.replay();
        }
    }
}

/// A verdict that was seen stays: that of a replay must be the same.
fn note(verdicts: &mut BTreeMap<u64, Answer>, answer: &Answer) {
    if answer.state != State::Final {
        return;
    }
    let answer = Answer {
        sequence: 0,
        ..answer.clone()
    };
    let known = verdicts
        .entry(answer.flow)
        .or_insert_with(|| answer.clone());
    assert_eq!(*known, answer, "the verdict of a replay");
}

fn request(packet: &Captured, number: usize) -> Request<'_> {
    Request::Packet(Packet {
        flow: packet.flow,
        sequence: number as u64,
        time_ms: packet.time_ms,
        bytes: &packet.bytes,
    })
}

fn give_up<'a>(flow: u64) -> Request<'a> {
    Request::GiveUp {
        flow,
        sequence: u64::MAX,
    }
}

pub fn kill(inspector: &Inspector) {
    let Some(pid) = inspector.status().pid else {
        return;
    };
    let pid = rustix::process::Pid::from_raw(pid as i32).expect("a process");
    // It may have ended since.
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
}
