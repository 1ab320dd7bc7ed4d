//! A T-NIC without packets and threads: the test turns its engine room, and lets its barriers pass.

use std::{
    collections::BTreeMap,
    sync::{
        atomic::{AtomicU64, Ordering::Relaxed},
        Arc, Mutex, MutexGuard,
    },
    time::{Duration, Instant},
};

use nf_offload::{
    Capabilities, CounterId, Driver, Event, FlowKey, Listing, Refused, Request, RuleId, Target,
    TargetId, Tunnel, Unavailable, Writer,
};
use nf_packet::MacAddress;
use nf_tables::Ipv6Flow;

use super::model::Model;
use crate::{
    driver::Tnic,
    engine::QueuePair,
    flow::AnyFlow,
    table::{Found, Hashing, Shape, Slot},
    tnic::{engines::Manner, nic::Nic, room::Room},
};

/// Bytes of a packet.
const BYTES: u64 = 100;
/// Nanoseconds.
const MILLISECOND: u64 = 1_000_000;
/// The time between two operations of slow engines.
const SECOND: u64 = 1000 * MILLISECOND;
/// Turns of a period: idle entries are evicted, and signals come.
const PERIOD: u64 = 20;
/// So few that some signals wait.
const SIGNALS_PER_S: u32 = 20;
const NEVER: u64 = u64::MAX / 2;

/// A T-NIC with a table of this depth and width. Its engines do one operation a second if it is slow.
pub struct TestNic<const DEPTH: u32, const WIDTH: u32, const SLOW: bool> {
    nic: Arc<Nic>,
    inner: Mutex<Inner>,
    start: Instant,
    now: Arc<AtomicU64>,
    socket: tempfile::TempDir,
}

struct Inner {
    room: Room,
    /// The next completion is lost.
    is_mute: bool,
    completed: u64,
    /// The entries that were there after the last turn.
    entries: BTreeMap<FlowKey, Found>,
    /// Entries that are gone, whose packets may be on their way.
    fading: BTreeMap<FlowKey, Found>,
}

impl<const DEPTH: u32, const WIDTH: u32, const SLOW: bool> Default for TestNic<DEPTH, WIDTH, SLOW> {
    fn default() -> Self {
        let manner = Manner {
            shape: Shape::new(DEPTH, WIDTH, Hashing::Chained).unwrap(),
            engines: 1,
            evicts: true,
            period: Duration::from_nanos(PERIOD * Self::TURN),
            signals_per_s: SIGNALS_PER_S,
        };
        let nic = Arc::new(Nic::new(manner.shape, 3, 1).unwrap());
        let socket = tempfile::tempdir().unwrap();
        let sockets = [Some(socket.path().join("mux"))];
        let mut room = Room::new(Arc::clone(&nic), &manner, &sockets, None, (NEVER, 0)).unwrap();
        if SLOW {
            room.places[0].terms.credits = 1;
        }
        Self {
            nic,
            inner: Mutex::new(Inner {
                room,
                is_mute: false,
                completed: 0,
                entries: BTreeMap::new(),
                fading: BTreeMap::new(),
            }),
            start: Instant::now(),
            now: Arc::default(),
            socket,
        }
    }
}

impl<const DEPTH: u32, const WIDTH: u32, const SLOW: bool> std::fmt::Debug
    for TestNic<DEPTH, WIDTH, SLOW>
{
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let inner = self.inner();
        write!(f, "{:?}, fading {:?}", inner.entries, inner.fading)
    }
}

fn target_of(found: &Found) -> TargetId {
    TargetId(u32::from(found.decision.rs_index as u16 / 2))
}

impl<const DEPTH: u32, const WIDTH: u32, const SLOW: bool> TestNic<DEPTH, WIDTH, SLOW> {
    /// The time that a turn takes.
    const TURN: u64 = if SLOW { 100 * MILLISECOND } else { MILLISECOND };

    /// Returns the numbers of signals that were sent, and that were not.
    pub fn signals(&self) -> [u64; 2] {
        self.inner().room.report().signals
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    fn look(&self, flow: &FlowKey) -> Option<Found> {
        self.nic.look(&AnyFlow::of_key(flow)?)
    }

    /// Turns the engine room; packets of entries that are gone then may be on their way.
    fn turn(&self, inner: &mut Inner) {
        let now = self.now.fetch_add(Self::TURN, Relaxed) + Self::TURN;
        match SLOW && now % SECOND != 0 {
            true => inner.room.attend(now),
            false => inner.room.turn(now),
        };
        Self::lose(inner);
        self.note(inner);
    }

    /// Loses the newest completion, if that is wanted, and there is one since the last call.
    fn lose(inner: &mut Inner) {
        let place = &inner.room.places[0];
        let queues = place.session.as_ref().and_then(|session| session.queues());
        let Some(queues) = queues else {
            return;
        };
        let (region, credits) = (&queues.ipv6[0], place.terms.credits);
        let completed = QueuePair::completed::<Ipv6Flow, _>(region, credits);
        if completed > inner.completed && inner.is_mute {
            QueuePair::lose::<Ipv6Flow, _>(region, credits, completed - 1);
            inner.is_mute = false;
        }
        inner.completed = completed;
    }

    fn note(&self, inner: &mut Inner) {
        let slots = (0..DEPTH * WIDTH).map(Slot);
        let entries: BTreeMap<FlowKey, Found> = slots
            .filter_map(|slot| Some((self.nic.tables.ipv6.entry(slot)?, slot)))
            .map(|((flow, decision), slot)| (AnyFlow::V6(flow).key(), Found { decision, slot }))
            .collect();
        let before = std::mem::replace(&mut inner.entries, entries);
        for (flow, found) in before {
            let stays = inner
                .entries
                .get(&flow)
                .is_some_and(|entry| target_of(entry) == target_of(&found));
            if !stays {
                assert!(
                    inner.fading.insert(flow, found).is_none(),
                    "a second entry of a flow whose first may act"
                );
            }
        }
    }
}

impl<const DEPTH: u32, const WIDTH: u32, const SLOW: bool> Model for TestNic<DEPTH, WIDTH, SLOW> {
    type Handle = Handle;

    const FLOWS: usize = (DEPTH * WIDTH) as usize;
    const COUNTS: bool = true;
    const ROUNDS: u32 = if SLOW { 4000 } else { 2000 };

    fn writer(&self, instance: u128, epoch: u64) -> Handle {
        let mut table = Tnic {
            socket: self.socket.path().join("mux"),
        };
        let (start, now) = (self.start, Arc::clone(&self.now));
        let clock = move || start + Duration::from_nanos(now.load(Relaxed));
        let writer = Writer { instance, epoch };
        let mut driver = table.open_with(writer, Box::new(clock)).unwrap();
        driver.set_idle(Duration::from_nanos(2 * PERIOD * Self::TURN));
        // Sends the hello.
        driver.poll(&mut Vec::new()).unwrap();
        Handle {
            driver,
            is_listed: false,
        }
    }

    fn carry(&self, flow: FlowKey, fades_too: bool) -> Option<TargetId> {
        let inner = self.inner();
        let fading = inner.fading.get(&flow).filter(|_| fades_too).copied();
        let found = self.look(&flow).or(fading)?;
        self.nic.carried(&AnyFlow::of_key(&flow)?, &found, BYTES);
        Some(target_of(&found))
    }

    fn work(&self, _refuses: Option<Refused>) {
        self.turn(&mut self.inner());
    }

    fn settle(&self) {
        let inner = &mut *self.inner();
        if let Some(barrier) = self.nic.barriers.due() {
            self.nic.barriers.pass(barrier);
        }
        inner.fading.clear();
        self.turn(inner);
    }

    fn lose_answer(&self) {
        self.inner().is_mute = true;
    }

    fn count(&self) {}

    fn totals(&self) -> BTreeMap<CounterId, u64> {
        let counters = (0..64).map(CounterId);
        let all = counters.map(|counter| (counter, self.nic.parts[0].totals.of(counter).0));
        all.filter(|(_, packets)| *packets > 0).collect()
    }

    fn lose_totals(&self) {
        self.nic.parts[0].totals.clear();
    }

    fn reset(&self) {
        let inner = &mut *self.inner();
        inner.room.reset(self.now.load(Relaxed));
        // Packets in flight are lost as well.
        inner.entries.clear();
        inner.fading.clear();
        self.note(inner);
    }

    fn acting(&self) -> Vec<(FlowKey, TargetId)> {
        let inner = self.inner();
        let all = inner.entries.iter().chain(&inner.fading);
        all.map(|(flow, found)| (*flow, target_of(found))).collect()
    }

    fn is_empty(&self) -> bool {
        self.acting().is_empty()
    }
}

/// A driver that lists and tells as the histories expect.
pub struct Handle {
    driver: Box<dyn Driver + Send>,
    is_listed: bool,
}

impl Driver for Handle {
    fn capabilities(&self) -> Option<Capabilities> {
        self.driver.capabilities()
    }

    fn set_idle(&mut self, idle: Duration) {
        self.driver.set_idle(idle);
    }

    fn submit(&mut self, requests: &[Request]) -> usize {
        let requests: Vec<Request> = requests.iter().map(|request| tunnelled(*request)).collect();
        self.driver.submit(&requests)
    }

    fn poll(&mut self, events: &mut Vec<Event>) -> Result<(), Unavailable> {
        let before = events.len();
        match self.driver.poll(events) {
            Err(unavailable) if unavailable.is_replaced => {
                events.truncate(before);
                events.push(Event::Refused(RuleId(0), Refused::StaleWriter));
                Ok(())
            }
            polled => polled,
        }
    }

    fn list(&mut self) -> Option<Listing> {
        if !self.is_listed {
            self.driver.poll(&mut Vec::new()).unwrap();
            let listing = self.driver.list();
            self.is_listed = listing.is_some();
            return listing;
        }
        self.driver.list()
    }
}

/// Gives a target what a T-NIC's switch does.
fn tunnelled(request: Request) -> Request {
    let Request::PutTarget(id, Target::Rewrite { mut rewrite, port }) = request else {
        return request;
    };
    rewrite.destination = Some(([10, 8, 0, 1].into(), 8080));
    rewrite.tunnel = Some(Tunnel {
        local: [10, 0, 0, 1].into(),
        remote: [10, 0, 0, 11].into(),
        network: 5000,
        inner: (MacAddress([2; 6]), MacAddress([4; 6])),
    });
    Request::PutTarget(id, Target::Rewrite { rewrite, port })
}
