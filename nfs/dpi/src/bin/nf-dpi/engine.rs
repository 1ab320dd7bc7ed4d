//! Flows and their packets, by the rules of ndpiReader (nDPI's example/reader_util.c, `packet_processing`).

use std::collections::{hash_map::Entry, HashMap, VecDeque};

use nf_dpi::{
    rings::MAX_OUTSTANDING, Answer, Catalogue, Confidence, Host, Packet, Packets, Protocol,
    Request, State,
};

use crate::ndpi::{layer4, version, Flow, Module, Seen};

const TCP: u8 = 6;
const UDP: u8 = 17;

pub(crate) struct Engine {
    module: Module,
    flows: HashMap<u64, Tracked>,
    packets: Packets,
    /// The number of answers so far.
    answers: u64,
    /// Flows that were decided, and at which answer.
    decided: VecDeque<(u64, u64)>,
}

enum Tracked {
    Open(Open),
    /// Packets that were on their way when it was decided get the answer again. nDPI has forgotten the flow. With the number of the answer.
    Decided(Box<Answer>, u64),
}

struct Open {
    flow: Flow,
    packets: u32,
    /// That many are enough.
    most: u32,
}

impl Engine {
    pub(crate) fn open(packets: Packets) -> Result<Self, String> {
        let module = Module::open()
            .ok_or("the library libndpi is not the version that nf-dpi was built with")?;
        Ok(Self {
            module,
            flows: HashMap::new(),
            packets,
            answers: 0,
            decided: VecDeque::new(),
        })
    }

    pub(crate) fn catalogue(&self) -> Catalogue {
        Catalogue::new(version(), self.module.protocols(), self.module.categories())
    }

    pub(crate) fn answer(&mut self, request: &Request<'_>) -> Option<Answer> {
        let (number, sequence) = match *request {
            Request::Packet(packet) => (packet.flow, packet.sequence),
            Request::GiveUp { flow, sequence } => (flow, sequence),
            Request::Forget { flow } => {
                self.flows.remove(&flow);
                return None;
            }
        };
        self.answers += 1;
        self.drop_decided();
        let limits = self.packets;
        let tracked = match (self.flows.entry(number), request) {
            (Entry::Occupied(entry), _) => entry.into_mut(),
            (Entry::Vacant(entry), Request::Packet(packet)) => {
                entry.insert(Tracked::Open(Open::new(packet, limits)))
            }
            // It has no packets: nothing is known.
            (Entry::Vacant(_), _) => return Some(unknown(number, sequence)),
        };
        let open = match tracked {
            Tracked::Open(open) => open,
            Tracked::Decided(known, _) => {
                let answer = (**known).clone();
                return Some(Answer { sequence, ..answer });
            }
        };
        let seen = match request {
            Request::Packet(packet) => open.packet(&mut self.module, packet),
            _ => self.module.give_up(&mut open.flow),
        };
        let answer = answer(number, sequence, &seen);
        if answer.state == State::Final {
            *tracked = Tracked::Decided(Box::new(answer.clone()), self.answers);
            self.decided.push_back((number, self.answers));
        }
        Some(answer)
    }

    /// Forgets decided flows of which no packet can be on its way any more: all of them have been answered since.
    fn drop_decided(&mut self) {
        while let Some(&(flow, at)) = self.decided.front() {
            if self.answers - at <= MAX_OUTSTANDING as u64 {
                return;
            }
            self.decided.pop_front();
            // Unless the number is another flow's by now.
            if matches!(self.flows.get(&flow), Some(Tracked::Decided(_, then)) if *then == at) {
                self.flows.remove(&flow);
            }
        }
    }
}

impl Open {
    fn new(packet: &Packet<'_>, limits: Packets) -> Self {
        let most = match layer4(packet.bytes) {
            TCP => limits.tcp,
            UDP => limits.udp,
            _ => u32::MAX,
        };
        // Without memory there is nothing to go on with: the owner starts the program again.
        let flow = Flow::new().unwrap_or_else(|| std::process::abort());
        Self {
            flow,
            packets: 0,
            most,
        }
    }

    fn packet(&mut self, module: &mut Module, packet: &Packet<'_>) -> Seen<'_> {
        self.packets = self.packets.saturating_add(1);
        let enough = self.packets > self.most;
        module.packet(&mut self.flow, packet.bytes, packet.time_ms, enough)
    }
}

fn unknown(flow: u64, sequence: u64) -> Answer {
    Answer {
        flow,
        sequence,
        state: State::Final,
        protocol: Protocol::default(),
        category: 0,
        confidence: Confidence::Unknown,
        host: Host::new(b""),
        ja3: None,
        ja3_server: None,
    }
}

fn answer(flow: u64, sequence: u64, seen: &Seen<'_>) -> Answer {
    Answer {
        flow,
        sequence,
        state: if seen.last {
            State::Final
        } else {
            State::MoreNeeded
        },
        protocol: Protocol {
            master: seen.master,
            application: seen.application,
        },
        category: seen.category,
        confidence: Confidence::of(seen.confidence).unwrap_or(Confidence::Unknown),
        host: Host::new(seen.host),
        ja3: md5(seen.ja3_client),
        ja3_server: md5(seen.ja3_server),
    }
}

/// Reads 32 hexadecimal digits.
fn md5(text: &[u8]) -> Option<[u8; 16]> {
    let mut value = [0; 16];
    if text.len() != 32 {
        return None;
    }
    for (to, digits) in value.iter_mut().zip(text.chunks_exact(2)) {
        let digit = |at: usize| char::from(digits[at]).to_digit(16);
        *to = (digit(0)? * 16 + digit(1)?) as u8;
    }
    Some(value)
}
