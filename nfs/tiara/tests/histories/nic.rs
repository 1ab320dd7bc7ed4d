//! A T-NIC without packets and threads: the test turns its engine room, and lets its barriers pass.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use nf_offload::{
    Capabilities, CounterId, Driver, Event, FlowKey, Listing, Refused, Request, RuleId, Table,
    Target, TargetId, Tunnel, Unavailable, Writer,
};
use nf_packet::MacAddress;
use nf_tiara::{AnyFlow, Found, Hashing, Manner, Nic, Room, Shape, Tnic};

use crate::model::Model;

/// Bytes of a packet.
const BYTES: u64 = 100;
/// The time that a turn takes, in nanoseconds.
const TURN: u64 = 1_000_000;
/// Some turns: idle entries are evicted, and signals come.
const PERIOD: Duration = Duration::from_millis(20);
const NEVER: u64 = u64::MAX / 2;

/// A T-NIC with a table of this depth and width.
pub struct TestNic<const DEPTH: u32, const WIDTH: u32> {
    nic: Arc<Nic>,
    inner: Mutex<Inner>,
    socket: tempfile::TempDir,
}

struct Inner {
    room: Room,
    now: u64,
    /// The entries that were there after the last turn.
    entries: BTreeMap<FlowKey, Found>,
    /// Entries that are gone, whose packets may be on their way.
    fading: BTreeMap<FlowKey, Found>,
}

impl<const DEPTH: u32, const WIDTH: u32> Default for TestNic<DEPTH, WIDTH> {
    fn default() -> Self {
        let manner = Manner {
            shape: Shape::new(DEPTH, WIDTH, Hashing::Chained).unwrap(),
            engines: 1,
            evicts: true,
            period: PERIOD,
        };
        let nic = Arc::new(Nic::new(manner.shape, 3, 1).unwrap());
        let socket = tempfile::tempdir().unwrap();
        let sockets = [Some(socket.path().join("mux"))];
        let room = Room::new(Arc::clone(&nic), &manner, &sockets, None, (NEVER, 0)).unwrap();
        Self {
            nic,
            inner: Mutex::new(Inner {
                room,
                now: 0,
                entries: BTreeMap::new(),
                fading: BTreeMap::new(),
            }),
            socket,
        }
    }
}

impl<const DEPTH: u32, const WIDTH: u32> std::fmt::Debug for TestNic<DEPTH, WIDTH> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let inner = self.inner();
        write!(f, "{:?}, fading {:?}", inner.entries, inner.fading)
    }
}

fn target_of(found: &Found) -> TargetId {
    TargetId(u32::from(found.decision.rs_index as u16 / 2))
}

impl<const DEPTH: u32, const WIDTH: u32> TestNic<DEPTH, WIDTH> {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    fn look(&self, flow: &FlowKey) -> Option<Found> {
        self.nic.look(&AnyFlow::of_key(flow)?)
    }

    /// Turns the engine room; packets of entries that are gone then may be on their way.
    fn turn(&self, inner: &mut Inner) {
        inner.now += TURN;
        inner.room.turn(inner.now);
        self.note(inner);
    }

    fn note(&self, inner: &mut Inner) {
        let slots = (0..DEPTH * WIDTH).map(nf_tiara::Slot);
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

impl<const DEPTH: u32, const WIDTH: u32> Model for TestNic<DEPTH, WIDTH> {
    type Handle = Handle;

    const FLOWS: usize = (DEPTH * WIDTH) as usize;
    const COUNTS: bool = true;

    fn writer(&self, instance: u128, epoch: u64) -> Handle {
        let mut table = Tnic {
            socket: self.socket.path().join("mux"),
        };
        let mut driver = table.open(Writer { instance, epoch }).unwrap();
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
        inner.room.reset(inner.now);
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
    let Request::PutTarget(id, Target { mut rewrite, port }) = request else {
        return request;
    };
    rewrite.destination = Some(([10, 8, 0, 1].into(), 8080));
    rewrite.tunnel = Some(Tunnel {
        local: [10, 0, 0, 1].into(),
        remote: [10, 0, 0, 11].into(),
        network: 5000,
        inner: (MacAddress([2; 6]), MacAddress([4; 6])),
    });
    Request::PutTarget(id, Target { rewrite, port })
}
