//! The driver of a T-NIC, for a software load balancer (SMux): requests become operations of its engines (Tiara, section 3.3.2), and signals hits.
//!
//! A row of the switch's table belongs to a counter, so that the T-NIC counts by row: [`rows`] writes it when the first flow with the counter is installed.
//! A removal is effective when the entry is gone, and a barrier of the T-NIC has come back from the switch: then no packet is on its way. An operation whose
//! completion is lost is done again, which changes nothing if it was done: an insertion writes the same entry, a deletion finds none.

mod operations;
mod rows;
mod rules;

use std::{
    collections::HashMap,
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::PathBuf,
    time::{Duration, Instant},
};

use nf_offload::{
    Capabilities, CounterId, Counts, Driver, Event, Listing, Matches, Refused, Request, Rewrites,
    Table, Unavailable, Writer,
};

use crate::{
    aging::Aging,
    session::{Answer, Channel, Say, SessionMemory, SignalsIn, Terms, Totals, COUNTERS, VERSION},
};
use operations::{Done, Operations, Work};
use rows::Rows;
use rules::Rules;

/// The most targets at a time.
const TARGETS: u32 = 1 << 15;
/// Installs per second: the speed of one engine (Fig. 10).
const INSTALLS_PER_S: u32 = 6_800_000;
/// A removal waits for a barrier, which the T-NIC sends every 10 ms.
const EFFECTIVE_MS: u32 = 100;

/// The table of a T-NIC.
#[derive(Clone, Debug)]
pub struct Tnic {
    /// The T-NIC's socket for this load balancer.
    pub socket: PathBuf,
}

/// Tells the time.
type Clock = Box<dyn Fn() -> Instant + Send>;

impl Table for Tnic {
    fn open(&mut self, writer: Writer, _: usize) -> Result<Box<dyn Driver + Send>, Unavailable> {
        self.open_with(writer, Box::new(Instant::now))
    }
}

impl Tnic {
    /// Opens the table with a clock of its own: for tests.
    pub(crate) fn open_with(
        &mut self,
        writer: Writer,
        clock: Clock,
    ) -> Result<Box<dyn Driver + Send>, Unavailable> {
        let failed = |error: std::io::Error| {
            unavailable(format!(
                "no T-NIC answers at {}: {error}; does tnic run?",
                self.socket.display()
            ))
        };
        let stream = UnixStream::connect(&self.socket).map_err(failed)?;
        let mut channel = Channel::new(stream).map_err(failed)?;
        channel.put(&Say::Hello {
            version: VERSION,
            instance: format!("{:x}", writer.instance),
            epoch: writer.epoch,
        });
        Ok(Box::new(Session {
            channel,
            start: clock(),
            clock,
            idle: Duration::MAX,
            nic: None,
            rules: Rules::default(),
            rows: Rows::default(),
            waiting: Vec::new(),
            told: HashMap::new(),
        }))
    }
}

/// A session with a T-NIC.
struct Session {
    channel: Channel,
    clock: Clock,
    start: Instant,
    /// The time without packets after which a rule is idle.
    idle: Duration,
    nic: Option<Nic>,
    rules: Rules,
    rows: Rows,
    /// Events that `submit` has caused.
    waiting: Vec<Event>,
    /// The totals of counters with a row, as told last.
    told: HashMap<CounterId, (u64, u64)>,
}

/// A T-NIC that has welcomed us.
struct Nic {
    terms: Terms,
    memory: SessionMemory,
    totals: Totals,
    signals: SignalsIn,
    operations: Operations,
    aging: Aging,
    /// The number of the last removals that must take effect.
    asked: u64,
}

impl Nic {
    fn new(
        terms: Terms,
        descriptors: Option<[OwnedFd; 2]>,
        aging: Aging,
    ) -> Result<Self, Unavailable> {
        let wrong = |why: String| {
            unavailable(format!(
                "the T-NIC's session cannot be used: {why}; are nf and tnic of the same version?"
            ))
        };
        let Some([memory, totals]) = descriptors else {
            return Err(wrong("it came without its two descriptors".to_owned()));
        };
        let shape = terms.shape().map_err(|error| wrong(error.to_string()))?;
        let memory =
            SessionMemory::adopt(memory, &terms).map_err(|error| wrong(error.to_string()))?;
        let operations = Operations::new(shape, &terms, &memory.queues)
            .map_err(|error| wrong(error.to_string()))?;
        Ok(Self {
            totals: Totals::adopt(totals).map_err(|error| wrong(error.to_string()))?,
            signals: memory.signals().consumer(),
            operations,
            aging,
            memory,
            terms,
            asked: 0,
        })
    }
}

impl Session {
    /// Reads the T-NIC's lines.
    fn read(&mut self, events: &mut Vec<Event>) -> Result<(), Unavailable> {
        let is_open = self.channel.fill().map_err(lost)?;
        while let Some(answer) = self.channel.next::<Answer>().map_err(lost)? {
            match answer {
                Answer::Welcome(terms) => {
                    if self.nic.is_some() {
                        self.forget();
                        events.push(Event::Reset);
                    }
                    let aging = Aging::new(terms.period(), self.idle, self.now());
                    self.nic = Some(Nic::new(terms, self.channel.descriptors(), aging)?);
                }
                Answer::Written { number } => self.rows.written(number),
                Answer::Error { code, detail } => {
                    return Err(Unavailable {
                        is_replaced: code == Refused::StaleWriter.name(),
                        why: format!("the T-NIC refuses: {detail} ({code})"),
                    })
                }
            }
        }
        // An error that the other end has sent says more than the closed connection.
        match is_open {
            true => Ok(()),
            false => Err(unavailable("the T-NIC closed the session".to_owned())),
        }
    }

    /// Returns the nanoseconds since the session's start.
    fn now(&self) -> u64 {
        (self.clock)().duration_since(self.start).as_nanos() as u64
    }

    /// Forgets what a lost table had.
    fn forget(&mut self) {
        self.rules = Rules::default();
        self.rows.forget();
        self.waiting.clear();
        self.told.clear();
    }

    /// Takes a request. False: it must be submitted again later.
    fn take(&mut self, request: &Request) -> bool {
        let Some(nic) = &mut self.nic else {
            return false;
        };
        match *request {
            Request::PutTarget(id, target) => {
                self.rows.put(id, &target);
                // Entries have the port; a rewritten one replaces theirs.
                for (flow, row, port) in self.rules.with_other_port(id, &self.rows) {
                    nic.operations.repeat(Work::Insert(flow, row, port));
                }
                true
            }
            Request::DropTarget(id) => {
                self.rows.drop(id);
                true
            }
            Request::Install(rule, flow, target, counter, _) => {
                let Some(port) = self.rows.port_of(target) else {
                    self.waiting
                        .push(Event::Refused(rule, Refused::Unsupported));
                    return true;
                };
                if !self.rows.is_ready(counter, target) {
                    return false;
                }
                let work = Work::Insert(flow, counter.0, port);
                if !nic.operations.submit(&nic.terms, &work) {
                    return false;
                }
                self.rules.add(rule, flow, target, counter, port);
                true
            }
            Request::Remove(rule) => {
                let Some(flow) = self.rules.flow_of(rule) else {
                    // It never was, or is on its way out: the end of that is told once more, which changes nothing.
                    if !self.rules.is_leaving(rule) {
                        self.waiting.push(Event::Effective(rule));
                    }
                    return true;
                };
                if !nic.operations.submit(&nic.terms, &Work::Delete(flow)) {
                    return false;
                }
                self.rules.remove(rule);
                true
            }
        }
    }

    /// Handles what the engines have done.
    fn complete(&mut self, events: &mut Vec<Event>) -> Result<(), Unavailable> {
        let Some(nic) = &mut self.nic else {
            return Ok(());
        };
        let mut all = Vec::new();
        nic.operations
            .poll(&nic.terms, (self.clock)(), &mut all)
            .map_err(|corrupt| {
                unavailable(format!("the T-NIC's queues are damaged: {corrupt:?}"))
            })?;
        for done in all {
            match done {
                Done::Inserted(flow) => {
                    if let Some(rule) = self.rules.installed(&flow) {
                        nic.aging.begin(flow);
                        events.push(Event::Installed(rule));
                    }
                }
                Done::Refused(flow, why) => {
                    nic.aging.forget(&flow);
                    let refused = self.rules.refused(&flow);
                    events.extend(refused.map(|rule| Event::Refused(rule, why)));
                }
                Done::Deleted(flow) => {
                    nic.aging.forget(&flow);
                    self.rules.deleted(&flow, nic.asked + 1);
                }
                Done::Lost(work) if self.rules.wants(&work) => nic.operations.repeat(work),
                // The operations behind it decide about the flow.
                Done::Lost(_) => {}
                Done::Evicted(flow) => {
                    nic.aging.forget(&flow);
                    self.rules.evicted(&flow, nic.asked + 1);
                }
            }
        }
        if self.rules.has_fading(nic.asked + 1) {
            nic.asked += 1;
            nic.memory.ask(nic.asked);
        }
        Ok(())
    }

    /// Tells totals, and then which removals are effective, and which rules are idle.
    fn tell(&mut self, events: &mut Vec<Event>) -> Result<(), Unavailable> {
        let now = self.now();
        let Some(nic) = &mut self.nic else {
            return Ok(());
        };
        let passed = nic.memory.passed();
        for counter in self.rows.counters() {
            let total = nic.totals.of(counter);
            if self.told.insert(counter, total) != Some(total) {
                events.push(Event::Carried(counter, total.0, total.1));
            }
        }
        events.extend(self.rules.faded(passed).map(Event::Effective));
        let aging = &mut nic.aging;
        nic.signals
            .take(&mut |flow| aging.signal(&flow))
            .map_err(|corrupt| {
                unavailable(format!("the T-NIC's signals are damaged: {corrupt:?}"))
            })?;
        let rules = &self.rules;
        aging.advance(now, &mut |flow| {
            events.extend(rules.installed(&flow).map(Event::Idle));
        });
        Ok(())
    }
}

impl Driver for Session {
    fn capabilities(&self) -> Option<Capabilities> {
        let terms = &self.nic.as_ref()?.terms;
        Some(Capabilities {
            flows: terms.depth.saturating_mul(terms.width),
            targets: TARGETS,
            installs_per_s: INSTALLS_PER_S,
            effective_ms: EFFECTIVE_MS,
            matches: Matches {
                ipv4: true,
                ipv6: true,
                leaves_ends: true,
            },
            rewrites: Rewrites {
                source: false,
                destination: true,
                vxlan: true,
                pass: false,
                deny: false,
            },
            counts: Counts::Idle,
        })
    }

    fn set_idle(&mut self, idle: Duration) {
        self.idle = idle;
        if let Some(nic) = &mut self.nic {
            nic.aging.set(nic.terms.period(), idle);
        }
    }

    fn submit(&mut self, requests: &[Request]) -> usize {
        // Rows that the next installs need are written together, since each waits for the switch.
        let wanted = requests.iter().filter_map(|request| match request {
            Request::Install(_, _, target, counter, _) => Some((*counter, *target)),
            _ => None,
        });
        self.rows.prepare(wanted);
        let taken = requests
            .iter()
            .take_while(|request| self.take(request))
            .count();
        for say in self.rows.lines() {
            self.channel.put(&say);
        }
        taken
    }

    fn poll(&mut self, events: &mut Vec<Event>) -> Result<(), Unavailable> {
        self.read(events)?;
        events.append(&mut self.waiting);
        if let Some(nic) = &self.nic {
            nic.memory.beat();
        }
        self.complete(events)?;
        self.tell(events)?;
        self.channel.flush().map_err(lost)
    }

    fn list(&mut self) -> Option<Listing> {
        // The T-NIC has removed all earlier rules before it welcomed us.
        let totals = &self.nic.as_ref()?.totals;
        let counters = (0..COUNTERS).map(|number| CounterId(number as u16));
        let carried = counters.map(|counter| (counter, totals.of(counter)));
        Some(Listing {
            rules: Vec::new(),
            carried: carried
                .filter(|(_, total)| *total != (0, 0))
                .map(|(counter, (packets, bytes))| (counter, packets, bytes))
                .collect(),
        })
    }
}

fn unavailable(why: String) -> Unavailable {
    Unavailable {
        why,
        is_replaced: false,
    }
}

fn lost(error: std::io::Error) -> Unavailable {
    unavailable(format!("the T-NIC is lost: {error}"))
}
