//! Replays the changes that the door tells, and compares the result with the tables and the gauges.

use std::{cell::RefCell, collections::HashMap};

use bytemuck::Zeroable;
use nf_arena::ArenaBuilder;
use nf_runtime::{state::StateBuilder, Context, NetworkFunction};
use nf_tables::{Ipv4Flow, Ipv6Flow};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::L4lb;

const SECOND: u64 = 1_000_000_000;
/// The class decides how long a record lives.
const CLASSES: [Class; 4] = Class::ALL;

/// A replica of the tables, built from the changes alone.
#[derive(Default)]
struct Replica {
    connections: RefCell<HashMap<Vec<u8>, Entry>>,
    sessions: RefCell<HashMap<Vec<u8>, (Session, u64)>>,
    ports: RefCell<HashMap<Vec<u8>, (Tuple, u64)>>,
    told: RefCell<Vec<Change>>,
}

fn key(tuple: &Tuple) -> Vec<u8> {
    bytemuck::bytes_of(tuple).to_vec()
}

impl Listener for &Replica {
    fn connection<F: Flow>(&self, flow: &F, change: Change) {
        let mut connections = self.connections.borrow_mut();
        let key = key(&flow.tuple());
        let (before, after) = match change {
            Change::Created(new) => (None, Some(new)),
            Change::Refreshed(entry) => (Some(entry), Some(entry)),
            Change::Updated { old, new } => {
                assert_eq!(old.value, new.value);
                (Some(old), Some(new))
            }
            Change::Moved { old, new } => {
                assert_ne!(old.value, new.value);
                (Some(old), Some(new))
            }
            Change::Removed(old) | Change::Expired(old) => (Some(old), None),
        };
        let found = match after {
            Some(after) => connections.insert(key, after),
            None => connections.remove(&key),
        };
        assert_eq!(found, before, "{change:?}");
        self.told.borrow_mut().push(change);
    }

    fn session(&self, client: &Tuple, session: &Session, until: u64) {
        let mut sessions = self.sessions.borrow_mut();
        sessions.insert(key(client), (*session, until));
    }

    fn port(&self, answer: &Tuple, client: Option<(&Tuple, u64)>) {
        let mut ports = self.ports.borrow_mut();
        match client {
            Some((client, until)) => drop(ports.insert(key(answer), (*client, until))),
            None => assert!(ports.remove(&key(answer)).is_some()),
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Create(u8, Entry),
    /// Replaces the flow's own entry, or a wrong one.
    Replace(u8, bool, Entry),
    Remove(u8),
    Lookup(Vec<u8>),
    OpenSession(u8, u64),
    UpdateSession(u8, u64),
    HoldPort(u8, u8, u64),
    ReleasePort(u8),
    Age,
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let flow = || 0_u8..100;
    let entry = || {
        (0_u16..3, prop::sample::select(&CLASSES[..]))
            .prop_map(|(value, class)| Entry { value, class })
    };
    let step = prop_oneof![
        5 => (flow(), entry()).prop_map(|(flow, entry)| Step::Create(flow, entry)),
        5 => (flow(), any::<bool>(), entry()).prop_map(|(flow, own, new)| Step::Replace(flow, own, new)),
        1 => flow().prop_map(Step::Remove),
        2 => prop::collection::vec(flow(), 0..20).prop_map(Step::Lookup),
        3 => (flow(), 1_u64..40).prop_map(|(flow, ttl)| Step::OpenSession(flow, ttl)),
        3 => (flow(), 1_u64..40).prop_map(|(flow, ttl)| Step::UpdateSession(flow, ttl)),
        3 => (flow(), flow(), 1_u64..40).prop_map(|(port, flow, ttl)| Step::HoldPort(port, flow, ttl)),
        1 => flow().prop_map(Step::ReleasePort),
        1 => Just(Step::Age),
        3 => (1_u64..30).prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 1..300)
}

fn ipv4(number: u8) -> Ipv4Flow {
    Ipv4Flow {
        source: [203, 0, 113, number].into(),
        destination: [192, 0, 2, 1].into(),
        source_port: 40_000,
        destination_port: 80,
        protocol: 6,
    }
}

fn ipv6(number: u8) -> Ipv6Flow {
    Ipv6Flow {
        source: [0x2001, 0xdb8, 0, 0, 0, 0, 0, number.into()].into(),
        destination: [0x2001, 0xdb8, 0, 0, 0, 0, 1, 1].into(),
        source_port: 40_000,
        destination_port: 80,
        protocol: 6,
    }
}

/// Returns a load balancer with one VIP and three backends, numbers 0 to 2.
fn load_balancer() -> L4lb {
    let backends = [11, 12, 13].map(
        |number| json!({"name": format!("web{number}"), "address": format!("10.0.0.{number}")}),
    );
    let vip = json!({"name": "web", "address": "192.0.2.1", "port": 80, "protocol": "tcp",
                     "mode": "ipip", "backends": backends});
    let tables = json!({"connections_ipv4": 100, "connections_ipv6": 100, "sessions": 40});
    let config = json!({"interfaces": [{"addresses": ["10.0.0.2/24"], "gateways": ["10.0.0.1"]}],
                        "tables": tables, "vips": [vip]});
    let arena = ArenaBuilder::fresh(L4lb::KIND, L4lb::SCHEMA).unwrap();
    let mut state = StateBuilder::new(arena);
    let lb = L4lb::create(serde_json::from_value(config).unwrap(), &mut state).unwrap();
    lb.resumed(&Context::new(SECOND, 0, 1, &[]));
    assert_eq!(lb.snapshot().vips[0].backends, [0, 1, 2]);
    lb
}

type Door<'a> = Records<'a, &'a Replica>;

/// Performs a step on a connection's record; `own` is its entry in the replica.
fn change<F: Flow>(records: &Door<'_>, flow: &F, step: &Step, own: Option<Entry>) {
    match step {
        Step::Create(_, entry) => {
            records.create(flow, *entry).unwrap();
        }
        Step::Replace(_, takes_own, new) => {
            let old = own.filter(|_| *takes_own).unwrap_or(*new);
            let _ = records.replace(flow, old, *new);
        }
        _ => records.remove(flow),
    }
}

fn perform(records: &Door<'_>, replica: &Replica, step: &Step) {
    let tuple = |number: u8| ipv4(number).tuple();
    match step {
        Step::Create(number, _) | Step::Replace(number, ..) | Step::Remove(number) => {
            let own = |tuple: &Tuple| replica.connections.borrow().get(&key(tuple)).copied();
            if number % 2 == 0 {
                let flow = ipv4(*number);
                change(records, &flow, step, own(&flow.tuple()));
            } else {
                let flow = ipv6(*number);
                change(records, &flow, step, own(&flow.tuple()));
            }
        }
        Step::Lookup(numbers) => {
            let ipv4: Vec<_> = numbers.iter().copied().map(ipv4).collect();
            let ipv6: Vec<_> = numbers.iter().copied().map(ipv6).collect();
            records.lookup_bulk(&ipv4, &mut vec![None; ipv4.len()]);
            records.lookup_bulk(&ipv6, &mut vec![None; ipv6.len()]);
        }
        Step::OpenSession(number, ttl) => {
            let session = Session {
                start: u32::from(*number),
                ..Session::zeroed()
            };
            records.open_session(&tuple(*number), ttl * SECOND, session);
        }
        Step::UpdateSession(number, ttl) => {
            let count = |session: &mut Session| session.renewed += 1;
            let _ = records.update_session(&tuple(*number), ttl * SECOND, count);
        }
        Step::HoldPort(port, number, ttl) => {
            records.hold_port(&tuple(*port), &tuple(number % 4), ttl * SECOND);
        }
        Step::ReleasePort(port) => records.release_port(&tuple(*port)),
        Step::Age => records.age(1, 1),
        Step::Pass(_) => {}
    }
}

/// Compares the replica with the tables and the gauges.
fn compare(lb: &L4lb, records: &Door<'_>, replica: &Replica) -> Result<(), TestCaseError> {
    let connections = replica.connections.borrow();
    let tables = &lb.records.connections;
    let mut living = HashMap::new();
    tables.ipv4.for_each(&records.now, &mut |flow, entry| {
        living.insert(key(&flow.tuple()), entry);
    });
    tables.ipv6.for_each(&records.now, &mut |flow, entry| {
        living.insert(key(&flow.tuple()), entry);
    });
    // The tables also have the expired records that aging has not removed.
    prop_assert_eq!(tables.ipv4.len() + tables.ipv6.len(), connections.len());
    for (flow, entry) in &living {
        prop_assert_eq!(connections.get(flow), Some(entry));
    }
    for number in 0..3 {
        let entries = connections.values().filter(|entry| entry.value == number);
        let active = lb.state.active.get(number.into());
        prop_assert_eq!(active, entries.count() as u64);
    }
    let opening = connections.values();
    let opening = opening.filter(|entry| entry.class == Class::Opening);
    let row = lb.snapshot().vips[0].row;
    prop_assert_eq!(lb.state.half_open.get(row), opening.count() as u64);
    let mut sessions = HashMap::new();
    let now = records.time;
    lb.records.sessions.for_each(now, |client, session| {
        sessions.insert(key(client), *session);
    });
    let replayed = replica.sessions.borrow();
    let replayed = replayed.iter().filter(|(_, (_, until))| *until > now);
    let replayed: HashMap<_, _> = replayed
        .map(|(client, (session, _))| (client.clone(), *session))
        .collect();
    prop_assert_eq!(sessions, replayed);
    let mut ports = HashMap::new();
    lb.records.ports.for_each(now, |answer, client| {
        ports.insert(key(answer), *client);
    });
    let replayed = replica.ports.borrow();
    let replayed = replayed.iter().filter(|(_, (_, until))| *until > now);
    let replayed: HashMap<_, _> = replayed
        .map(|(answer, (client, _))| (answer.clone(), *client))
        .collect();
    prop_assert_eq!(ports, replayed);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn replaying_the_changes_gives_the_content_of_the_tables(steps in steps()) {
        let lb = load_balancer();
        let snapshot = lb.snapshot();
        let replica = Replica::default();
        let (mut now, mut since_aged) = (SECOND, 0);
        let worker = Worker::of(&Context::new(now, 0, 1, &[]));
        let door = |now| Records::new(&lb.records, &lb.state, &snapshot, worker, now, &replica);
        for step in &steps {
            if let Step::Pass(seconds) = step {
                // Aging must pass over the tables once in 100 s.
                if since_aged + seconds > 60 {
                    door(now).age(1, 1);
                    since_aged = 0;
                }
                since_aged += seconds;
                now += seconds * SECOND;
            }
            let records = door(now);
            perform(&records, &replica, step);
            if matches!(step, Step::Pass(_) | Step::Age) {
                compare(&lb, &records, &replica)?;
            }
        }
        // Aging leaves exactly the living records.
        let records = door(now);
        records.age(1, 1);
        compare(&lb, &records, &replica)?;
        let mut living = 0;
        lb.records.connections.ipv4.for_each(&records.now, &mut |_, _| living += 1);
        lb.records.connections.ipv6.for_each(&records.now, &mut |_, _| living += 1);
        prop_assert_eq!(living, replica.connections.borrow().len());
    }
}

#[test]
fn each_call_tells_its_change_once() {
    let lb = load_balancer();
    let snapshot = lb.snapshot();
    let replica = Replica::default();
    let worker = Worker::of(&Context::new(SECOND, 0, 1, &[]));
    let door = |now| Records::new(&lb.records, &lb.state, &snapshot, worker, now, &replica);
    let entry = |value, class| Entry { value, class };
    let (opening, established) = (entry(0, Class::Opening), entry(0, Class::Established));
    let moved = entry(2, Class::Established);
    let flow = ipv4(1);
    let records = door(SECOND);
    assert_eq!(records.create(&flow, opening), Ok(None));
    assert_eq!(records.create(&flow, moved), Ok(Some(opening)));
    assert_eq!(records.replace(&flow, opening, established), Ok(()));
    assert_eq!(
        records.replace(&flow, opening, moved),
        Err(Some(established))
    );
    assert_eq!(records.replace(&flow, established, moved), Ok(()));
    records.remove(&flow);
    records.remove(&flow);
    assert_eq!(records.create(&flow, opening), Ok(None));
    // Long after its lifetime, before aging: an insert replaces the record.
    let records = door(60 * SECOND);
    records.remove(&flow);
    assert_eq!(records.create(&flow, established), Ok(None));
    let told = [
        Change::Created(opening),
        Change::Refreshed(opening),
        Change::Updated {
            old: opening,
            new: established,
        },
        Change::Moved {
            old: established,
            new: moved,
        },
        Change::Removed(moved),
        Change::Created(opening),
        Change::Expired(opening),
        Change::Created(established),
    ];
    assert_eq!(*replica.told.borrow(), told);
}
