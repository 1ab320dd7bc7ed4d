//! Writers of offloaded flows: admission, the rules that they find, and the rules that outlive them.

use crate::lab::Lab;
use crate::offload::{
    client, counted, counter_of, effective, hello, install, lab, listed, GROUP, PORT,
};
use oneswitch_core::{
    Claim, Clients, FlowKey, OffloadEvent, OffloadHello, OffloadRequest, WriterId,
};
use std::time::Duration;

#[test]
fn older_writers_are_turned_away() {
    let mut lab = lab();
    let now = lab.now;
    let turned_away = |lab: &mut Lab, id, hello: OffloadHello| {
        lab.core.offload_hello(WriterId(id), hello, now);
        lab.run();
        match lab.told(id).as_slice() {
            [OffloadEvent::Error(error), OffloadEvent::Close] => error.code,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(turned_away(&mut lab, 2, hello(5, 0)), "stale-writer");
    assert_eq!(turned_away(&mut lab, 3, hello(6, 9)), "stale-writer");
    let unknown = OffloadHello {
        port: 88,
        ..hello(5, 1)
    };
    assert_eq!(turned_away(&mut lab, 4, unknown), "port-unknown");
    let claim = Claim {
        owner: Some("nfagent/a/b".into()),
        force: false,
    };
    lab.core.give_port(PORT, claim).unwrap();
    assert_eq!(turned_away(&mut lab, 5, hello(5, 2)), "port-owned");
    let owner = OffloadHello {
        owner: Some("nfagent/a/b".into()),
        ..hello(5, 2)
    };
    lab.core.offload_hello(WriterId(6), owner, now);
    let (to, events): (Vec<_>, Vec<_>) = lab.core.take_offload_events().into_iter().unzip();
    assert_eq!(to, [1, 1, 6].map(WriterId));
    assert_eq!(events[1..], [OffloadEvent::Close, OffloadEvent::Welcome]);
    // The former writer's requests are void.
    lab.offload(1, &[install(1, 1)]);
    assert_eq!(lab.offloaded(1), []);
}

#[test]
fn another_instance_finds_nothing() {
    let mut lab = lab();
    lab.offload(1, &[install(1, 1)]);
    lab.carry(1, 1, 3);
    lab.core.offload_closed(WriterId(1), lab.now);
    lab.writer(2, 6, 1);
    lab.offload(2, &[OffloadRequest::List]);
    assert_eq!(lab.told(2), []);
    lab.carry_cached(1, 1, 1);
    lab.caches_end();
    let told = lab.told(2);
    assert_eq!(
        told[..2],
        effective(1, Some(4)),
        "its counts do not begin at zero"
    );
    assert_eq!(listed(&told[2..]), Vec::<u64>::new());
    assert_eq!(lab.offloaded(1), []);
    assert!(!lab.edge(1).groups.contains_key(&GROUP));
    assert_eq!(lab.port_packets(PORT), (4, 4));
}

#[test]
fn rules_without_a_writer_are_removed() {
    for stops in [false, true] {
        let mut lab = lab();
        lab.offload(1, &[install(1, 1)]);
        lab.carry(1, 1, 3);
        if !stops {
            lab.core.offload_closed(WriterId(1), lab.now);
        }
        lab.wait(Duration::from_millis(2_400));
        assert_eq!(lab.offloaded(1), [1]);
        lab.wait(Duration::from_millis(500));
        assert_eq!(lab.offloaded(1), []);
        lab.caches_end();
        assert!(lab.is_plain(1));
        assert_eq!(lab.port_packets(PORT), (3, 3));
    }
}

#[test]
fn a_writer_has_time_to_answer_after_a_pause_of_oneswitchd() {
    let mut lab = lab();
    lab.offload(1, &[install(1, 1)]);
    lab.told(1);
    lab.now += Duration::from_secs(10);
    for pause in [0, 200] {
        lab.now += Duration::from_millis(pause);
        lab.core.tick(lab.now);
    }
    assert_eq!(lab.told(1), []);
    lab.offload(1, &[OffloadRequest::Alive]);
    lab.wait(Duration::from_millis(2_700));
    assert_eq!((lab.told(1), lab.offloaded(1)), (vec![], vec![1]));
    lab.wait(Duration::from_millis(100));
    match lab.told(1).as_slice() {
        [OffloadEvent::Error(error), OffloadEvent::Close] => assert_eq!(error.code, "silent"),
        other => panic!("{other:?}"),
    }
    assert_eq!(lab.offloaded(1), []);
}

#[test]
fn another_connection_of_the_same_epoch_takes_the_port() {
    let mut lab = lab();
    lab.core.offload_hello(WriterId(2), hello(5, 1), lab.now);
    let (to, events): (Vec<_>, Vec<_>) = lab.core.take_offload_events().into_iter().unzip();
    assert_eq!(to, [1, 1, 2].map(WriterId));
    assert_eq!(events[1..], [OffloadEvent::Close, OffloadEvent::Welcome]);
    // The former connection's end concerns no port any more.
    lab.core.offload_closed(WriterId(1), lab.now);
    lab.offload(2, &[install(1, 1)]);
    assert_eq!(lab.offloaded(1), [1]);
}

#[test]
fn a_writer_that_returns_keeps_its_rules() {
    let mut lab = lab();
    lab.offload(1, &[install(1, 1)]);
    lab.core.offload_closed(WriterId(1), lab.now);
    lab.wait(Duration::from_secs(2));
    lab.writer(2, 5, 2);
    lab.offload(2, &[OffloadRequest::List]);
    assert_eq!(listed(&lab.told(2)), [1]);
    lab.wait(Duration::from_secs(2));
    assert_eq!(lab.offloaded(1), [1]);
}

#[test]
fn a_restart_adopts_rules_and_removals() {
    let mut lab = lab();
    lab.offload(1, &[install(1, 1), install(2, 2)]);
    lab.carry(1, 1, 3);
    lab.carry(1, 2, 4);
    lab.offload(1, &[OffloadRequest::Remove(2)]);
    let before = lab.edge(1).flows.clone();
    lab.restart();
    lab.core.offload_hello(WriterId(2), hello(5, 2), lab.now);
    assert_eq!(lab.told(2), [], "the switch has not told its rules");
    lab.run();
    assert_eq!(lab.told(2), [OffloadEvent::Welcome]);
    assert_eq!(lab.edge(1).flows, before);
    lab.offload(2, &[OffloadRequest::List]);
    let told = lab.told(2);
    let [OffloadEvent::Carried(carried), OffloadEvent::Listed(listed)] = told.as_slice() else {
        panic!("{told:?}");
    };
    assert_eq!(carried[..], [(20, counted(4)), (21, counted(3))]);
    let [rule] = listed.as_slice() else {
        panic!("{listed:?}");
    };
    assert_eq!((rule.rule, rule.key), (1, client(1)));
    assert_eq!((rule.target, rule.counter), (7, counter_of(1)));
    lab.offload(2, &[OffloadRequest::Remove(2)]);
    lab.carry_cached(1, 2, 1);
    lab.caches_end();
    assert_eq!(lab.told(2), effective(2, Some(5)));
    assert_eq!(lab.port_packets(PORT), (8, 8));
}

#[test]
fn a_deleted_port_takes_its_rules_along() {
    let mut lab = lab();
    lab.offload(1, &[install(1, 1)]);
    lab.told(1);
    lab.core
        .remove_port(PORT, &Claim::default(), lab.now)
        .unwrap();
    lab.run();
    let told = lab.told(1);
    assert_eq!(told[0], OffloadEvent::Reset);
    assert_eq!(told.last(), Some(&OffloadEvent::Close));
    assert_eq!(lab.offloaded(1), []);
    assert!(lab.is_plain(1));
    assert!(!lab.edge(1).groups.contains_key(&GROUP));
}

#[test]
fn a_writer_waits_while_the_switch_has_much_to_confirm() {
    let mut lab = lab();
    lab.edge(1).slow = true;
    let key = |n: u16| FlowKey {
        source: (client(1).source.0, n),
        ..client(1)
    };
    let requests: Vec<_> = (0..4_100)
        .map(|n: u16| OffloadRequest::Install {
            rule: n.into(),
            key: key(n),
            target: 7,
            clients: Clients::Source,
            counter: 1,
        })
        .collect();
    assert!(lab.core.takes_offload_of(WriterId(1)));
    lab.offload(1, &requests);
    assert!(!lab.core.takes_offload_of(WriterId(1)));
    // Its silence is not its own.
    lab.wait(Duration::from_secs(5));
    lab.edge(1).slow = false;
    lab.run();
    assert!(lab.core.takes_offload_of(WriterId(1)));
    assert_eq!(lab.offloaded(1).len(), 4_100);
}
