//! Keys of a key exchange, and the way of its packets.

use std::net::IpAddr;

use crate::common::{
    frame, headers, numbers, packet, sent, Gateway, Pair, EAST, HOSTS, INSIDE, OUTSIDE, WEST,
};
use crate::{dropped, protected};
use nf_ipsec::{Config, Ipsec};
use nf_runtime::testing::Harness;
use nf_runtime::{NetworkFunction, Refusal};
use serde_json::{json, Value};

/// A pair of gateways without tunnels.
fn without_tunnels(pair: &Pair, end: usize, keys: usize) -> Config {
    let mut value = pair.json(end);
    value["tunnels"] = json!([]);
    value["keys"] = json!(keys);
    value["ike_host"] = json!(HOSTS[end][0]);
    serde_json::from_value(value).unwrap()
}

fn gateways(pair: &Pair, keys: usize) -> [Gateway; 2] {
    [WEST, EAST].map(|end| Harness::<Ipsec>::new(without_tunnels(pair, end, keys)).unwrap())
}

/// Gives a gateway the tunnels of a pair.
fn negotiate(gateway: &Gateway, pair: &Pair, end: usize) -> Result<Value, Refusal> {
    let tunnels = &pair.json(end)["tunnels"];
    let answer = gateway
        .function()
        .control("negotiate", &json!({ "tunnels": tunnels }));
    answer.unwrap()
}

fn with_keys(keys: &[u8]) -> Pair {
    Pair {
        keys: keys.to_vec(),
        ..Pair::default()
    }
}

#[test]
fn negotiated_keys_change_for_ever_without_loss_in_a_small_state() {
    // As many rows as a rekeying takes: a key beside the next one, and one that the setup before has.
    let [mut west, mut east] = gateways(&with_keys(&[1]), 3);
    for end in [(&west, WEST), (&east, EAST)] {
        negotiate(end.0, &with_keys(&[1]), end.1).unwrap();
    }
    let mut late = protected(&mut west, b"first");
    for key in 2..40 {
        negotiate(&east, &with_keys(&[key, key - 1]), EAST).unwrap();
        negotiate(&west, &with_keys(&[key, key - 1]), WEST).unwrap();
        let next = protected(&mut west, b"next");
        assert_eq!(numbers(&next).0, Pair::spi(key, WEST));
        sent(east.process(OUTSIDE, &next), INSIDE);
        // A packet that was under way with the old key.
        sent(east.process(OUTSIDE, &late), INSIDE);
        assert_eq!(
            east.process(OUTSIDE, &late),
            dropped("esp: replayed"),
            "{key}"
        );
        late = protected(&mut west, b"late");
        assert_eq!(numbers(&late).1, 2, "each key has numbers of its own");
        negotiate(&east, &with_keys(&[key]), EAST).unwrap();
        negotiate(&west, &with_keys(&[key]), WEST).unwrap();
    }
}

#[test]
fn a_configuration_leaves_negotiated_tunnels_and_shows_none_of_their_keys() {
    let pair = with_keys(&[1]);
    let [mut west, _] = gateways(&pair, 3);
    negotiate(&west, &pair, WEST).unwrap();
    west.function()
        .configure(without_tunnels(&pair, WEST, 3))
        .unwrap();
    assert_eq!(numbers(&protected(&mut west, b"x")).1, 1);
    let too_many = negotiate(&west, &with_keys(&[1, 2, 3, 4]), WEST).unwrap_err();
    assert!(too_many.to_string().contains("keys"), "{too_many}");
    // The ones before stay in force.
    assert_eq!(numbers(&protected(&mut west, b"x")).1, 2);
    let malformed = json!({"tunnels": [{"outbound": [{"secret": ["0101"]}]}]});
    for wrong in [json!({}), malformed] {
        let answer = west.function().control("negotiate", &wrong).unwrap();
        let refusal = answer.unwrap_err().to_string();
        assert!(
            refusal.contains("tunnels") && !refusal.contains("0101"),
            "{refusal}"
        );
    }
    negotiate(&west, &with_keys(&[]), WEST).unwrap();
    let frame = frame(WEST, false, b"x");
    assert_eq!(
        west.process(INSIDE, &frame),
        dropped("no usable association")
    );
}

#[test]
fn the_next_instance_continues_the_keys_that_it_is_given_again() {
    let pair = with_keys(&[1]);
    let [mut west, _] = gateways(&pair, 3);
    negotiate(&west, &pair, WEST).unwrap();
    let before = numbers(&protected(&mut west, b"x"));
    let mut west = west.adopting(without_tunnels(&pair, WEST, 3)).unwrap();
    let frame = frame(WEST, false, b"x");
    assert_eq!(
        west.process(INSIDE, &frame),
        dropped("no tunnel selects it")
    );
    negotiate(&west, &pair, WEST).unwrap();
    let after = numbers(&protected(&mut west, b"x"));
    assert!(after.1 > before.1 && after.2 > before.2, "{after:?}");
}

#[test]
fn the_next_instance_of_a_move_continues_at_once() {
    let pair = with_keys(&[1]);
    let [mut west, mut east] = gateways(&pair, 3);
    for end in [(&west, WEST), (&east, EAST)] {
        negotiate(end.0, &pair, end.1).unwrap();
    }
    let first = protected(&mut west, b"x");
    sent(east.process(OUTSIDE, &first), INSIDE);
    let config = without_tunnels(&pair, EAST, 3);
    let mut east = east.inheriting(config.clone()).unwrap();
    assert_eq!(
        east.process(OUTSIDE, &first),
        dropped("esp: replayed"),
        "the window has moved, too"
    );
    let mut west = west.inheriting(without_tunnels(&pair, WEST, 3)).unwrap();
    let after = protected(&mut west, b"x");
    assert!(numbers(&after).1 > numbers(&first).1);
    sent(east.process(OUTSIDE, &after), INSIDE);
    // The key exchange takes over where it was: the same tunnels, and then others.
    negotiate(&east, &pair, EAST).unwrap();
    negotiate(&east, &with_keys(&[2, 1]), EAST).unwrap();
    negotiate(&west, &with_keys(&[2, 1]), WEST).unwrap();
    let next = protected(&mut west, b"x");
    assert_eq!(numbers(&next), (Pair::spi(2, WEST), 1, numbers(&next).2));
    sent(east.process(OUTSIDE, &next), INSIDE);
    east.function().configure(config).unwrap();
    sent(east.process(OUTSIDE, &protected(&mut west, b"x")), INSIDE);
}

#[test]
fn an_instance_without_negotiated_keys_leaves_nothing() {
    let [west, _] = gateways(&with_keys(&[1]), 3);
    assert!(west.function().secrets().is_none());
    let refusal = west
        .function()
        .inherit(b"[{\"name\": \"0101\"}]")
        .unwrap_err();
    assert!(!refusal.to_string().contains("0101"), "{refusal}");
}

#[test]
fn a_new_end_of_a_negotiated_tunnel_replaces_the_one_that_packets_showed() {
    let pair = |port: u16| Pair {
        udp: true,
        tunnel: json!({"remote_port": port}),
        ..Pair::default()
    };
    let [mut west, mut east] = gateways(&pair(4500), 3);
    negotiate(&west, &pair(4500), WEST).unwrap();
    negotiate(&east, &pair(4500), EAST).unwrap();
    let mut outer = protected(&mut west, b"1");
    outer[34..36].copy_from_slice(&40_000_u16.to_be_bytes());
    sent(east.process(OUTSIDE, &outer), INSIDE);
    let back = frame(EAST, false, b"back");
    let port =
        |east: &mut Gateway| headers(&sent(east.process(INSIDE, &back), OUTSIDE)).destination_port;
    negotiate(&east, &pair(4500), EAST).unwrap();
    assert_eq!(
        port(&mut east),
        40_000,
        "the same end again changes nothing"
    );
    negotiate(&east, &pair(50_000), EAST).unwrap();
    assert_eq!(port(&mut east), 50_000);
    let next = without_tunnels(&pair(50_000), EAST, 3);
    let mut east = east.adopting(next).unwrap();
    negotiate(&east, &pair(50_000), EAST).unwrap();
    assert_eq!(port(&mut east), 50_000);
}

/// Builds a datagram to a port of the gateway, between equal UDP ports.
fn datagram(to: usize, ends: [&str; 2], port: u16, payload: &[u8]) -> Vec<u8> {
    let ends: [IpAddr; 2] = ends.map(|text| text.parse().unwrap());
    let mut frame = packet(ends, payload);
    frame[5] = to as u8;
    frame[34..36].copy_from_slice(&port.to_be_bytes());
    frame[36..38].copy_from_slice(&port.to_be_bytes());
    frame
}

#[test]
fn packets_of_the_key_exchange_pass_between_its_host_and_the_peers() {
    let pair = Pair {
        udp: true,
        ..Pair::default()
    };
    let [mut west, _] = gateways(&pair, 3);
    let [local, peer] = ["192.0.2.1", "192.0.2.2"];
    let marked = [&[0; 4][..], b"IKE"].concat();
    for (port, payload) in [(500, &b"IKE"[..]), (4500, &marked)] {
        let inbound = sent(
            west.process(OUTSIDE, &datagram(OUTSIDE, [peer, local], port, payload)),
            INSIDE,
        );
        assert_eq!(inbound[..6], crate::common::HOST_MAC);
        let outbound = sent(
            west.process(INSIDE, &datagram(INSIDE, [local, peer], port, payload)),
            OUTSIDE,
        );
        assert_eq!(outbound[..6], [2, 0, 0, 0, 0, 1]);
        for (frame, ends) in [(&inbound, [peer, local]), (&outbound, [local, peer])] {
            let headers = headers(frame);
            let found = [headers.source(frame), headers.destination(frame)];
            assert_eq!(found.map(|each| each.to_string()), ends);
            assert_eq!(&headers.segment(frame)[8..], payload);
            assert_eq!(frame[14 + 8], 63, "the time to live");
        }
    }
    // ESP in UDP is not for that host, and other packets from it are those of any host.
    let unknown = datagram(OUTSIDE, [peer, local], 4500, &[1; 40]);
    assert_eq!(west.process(OUTSIDE, &unknown), dropped("esp: unknown SPI"));
    let other = datagram(INSIDE, [local, peer], 501, b"x");
    assert_eq!(
        west.process(INSIDE, &other),
        dropped("no tunnel selects it")
    );
    let mut west = Harness::<Ipsec>::new(pair.config(WEST)).unwrap();
    let inbound = |port: u16| datagram(OUTSIDE, [peer, local], port, &marked);
    assert_eq!(
        west.process(OUTSIDE, &inbound(4500)),
        dropped("not ESP in UDP")
    );
    assert_eq!(
        west.process(OUTSIDE, &inbound(500)),
        dropped("not for the gateway")
    );
}

#[test]
fn the_host_of_the_key_exchange_is_in_the_protected_network() {
    for (host, expected) in [
        ("192.0.2.9", "is not on the link of interfaces[0]"),
        ("10.1.0.1", "ike_host"),
    ] {
        let mut value = Pair::default().json(WEST);
        value["ike_host"] = json!(host);
        let config: Config = serde_json::from_value(value).unwrap();
        let refusal = Harness::<Ipsec>::new(config).err().unwrap().to_string();
        assert!(refusal.contains(expected), "{refusal}");
    }
}
