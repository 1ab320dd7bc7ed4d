use nf_arena::ArenaBuilder;

use super::*;

fn register(hosts: usize, findings: usize) -> Arc<Register> {
    let mut state = StateBuilder::new(ArenaBuilder::fresh("assets", 1).unwrap());
    Register::declare(Capacity { hosts, findings }, &mut state).unwrap()
}

fn address(number: u8) -> Address {
    let mut octets = [0; 16];
    octets[15] = number;
    Address { octets, version: 6 }
}

fn service(port: u16, time: u64) -> Finding {
    Finding {
        kind: kind::SERVICE,
        port,
        first_seen: time,
        last_seen: time,
        ..Finding::default()
    }
}

/// Returns the ports and texts of a host's services, the latest first.
fn services(register: &Register, host: SlabId) -> Vec<(u16, usize)> {
    let mut found = Vec::new();
    register.search(host, |_, finding| {
        found.push((finding.port, register.text(finding).len()));
        None::<()>
    });
    found
}

#[test]
fn the_host_that_was_silent_for_longest_is_forgotten() {
    let register = register(3, 10);
    for (number, time) in [(1, 1), (2, 2), (3, 3), (1, 4)] {
        register.see(&address(number), 0, time).unwrap();
    }
    let new = register.see(&address(4), 0, 5).unwrap();
    assert_eq!(register.host(new).unwrap().first_seen, 5);
    let known = [1, 2, 3, 4].map(|number| register.find(&address(number)).is_some());
    assert_eq!(known, [true, false, true, true]);
    assert_eq!(register.counts(), [3, 0, 1, 0]);
}

#[test]
fn findings_without_room_cost_the_oldest_other_host_and_then_their_own() {
    let register = register(3, 4);
    let [old, new] = [1, 2].map(|number| register.see(&address(number), 0, number.into()).unwrap());
    register.add(old, service(1, 1), b"a");
    for port in 2..5 {
        register.add(new, service(port, 2), &[b'x'; 100]);
    }
    assert_eq!(services(&register, new), [(4, 100), (3, 100), (2, 100)]);
    register.add(new, service(5, 3), b"y");
    assert!(register.find(&address(1)).is_none());
    assert_eq!(
        services(&register, new),
        [(5, 1), (4, 100), (3, 100), (2, 100)]
    );
    register.add(new, service(6, 3), b"z");
    assert_eq!(services(&register, new), [(6, 1)]);
}

#[test]
fn a_host_has_a_limit_of_findings() {
    let register = register(1, 1000);
    let host = register.see(&address(1), 0, 1).unwrap();
    for port in 0..MOST_FINDINGS as u16 + 5 {
        register.add(host, service(port, port.into()), b"text");
    }
    let found = services(&register, host);
    assert_eq!(
        (found.len(), found[0].0),
        (MOST_FINDINGS, MOST_FINDINGS as u16 + 4)
    );
    assert_eq!(found.last().unwrap().0, 5);
    assert_eq!(register.counts()[3], 5);
    register.begin_again(host, 0, 9);
    assert!(services(&register, host).is_empty());
    assert_eq!(register.texts.free(), register.texts.capacity());
}

#[test]
fn a_repair_keeps_whole_records_and_links_them_again() {
    let register = register(8, 20);
    for number in 1..=6 {
        let host = register.see(&address(number), 0, number.into()).unwrap();
        for port in 0..3 {
            register.add(host, service(port, port.into()), &[b'x'; 90]);
        }
    }
    // A kill in the middle of changes may leave: broken order, a lost index entry, a stale one, a finding without its host, an orphan of a text.
    let gone = register.find(&address(6)).unwrap();
    register.hosts.remove(gone);
    register.index.remove(&address(2), 0);
    register.set_end(Word::Oldest, gone);
    register.set_end(Word::Newest, SlabId::default());
    let broken = register.find(&address(3)).unwrap();
    register
        .hosts
        .update(broken, |host| host.findings = SlabId::default());
    register.texts.take(99).unwrap();
    register.repair();
    for number in 1..=5 {
        let host = register.find(&address(number)).unwrap();
        assert_eq!(
            services(&register, host),
            [(2, 90), (1, 90), (0, 90)],
            "{number}"
        );
    }
    assert!(register.find(&address(6)).is_none());
    assert_eq!(register.counts()[..2], [5, 15]);
    assert_eq!(register.texts.free(), register.texts.capacity() - 5 * 3 * 2);
    for number in 10..14 {
        register.see(&address(number), 0, 50).unwrap();
    }
    assert!(register.find(&address(1)).is_none());
    assert!(register.find(&address(2)).is_some());
}
