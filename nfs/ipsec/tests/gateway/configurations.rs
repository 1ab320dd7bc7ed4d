//! Configurations, and what answers show of them.

use crate::common::{sent, Pair, INSIDE, OUTSIDE, WEST};
use crate::protected;
use nf_ipsec::Ipsec;
use nf_runtime::testing::Harness;
use nf_runtime::NetworkFunction;
use serde_json::json;

#[test]
fn answers_show_counts_and_no_key() {
    let [mut west, mut east] = Pair {
        udp: true,
        ..Pair::default()
    }
    .gateways();
    for _ in 0..3 {
        let outer = protected(&mut west, b"x");
        sent(east.process(OUTSIDE, &outer), INSIDE);
    }
    let shown = east
        .function()
        .control("show", &json!({}))
        .unwrap()
        .unwrap();
    let tunnel = &shown["tunnels"][0];
    assert_eq!(
        (&tunnel["peer"], &tunnel["port"]),
        (&json!("192.0.2.1"), &json!(4500))
    );
    let inbound = &tunnel["associations"][1];
    for (key, value) in [
        ("direction", json!("inbound")),
        ("packets", json!(3)),
        ("bytes", json!(87)),
        ("sequence", json!(3)),
        ("state", json!("active")),
        ("bits", json!(128)),
    ] {
        assert_eq!(inbound[key], value, "{key}");
    }
    let config = Pair::default().config(WEST);
    let key = "0100".repeat(3);
    for text in [
        shown.to_string(),
        west.counters().to_string(),
        format!("{config:?}"),
    ] {
        assert!(!text.contains(&key), "{text}");
    }
    // Moves start the next instance with the configuration of the old one, so that has them.
    assert!(serde_json::to_string(&config).unwrap().contains(&key));
}

#[test]
fn the_state_has_no_key() {
    let [mut west, _] = Pair::default().gateways();
    protected(&mut west, b"x");
    let key = [1, 0, 1, 0, 1, 0, 1, 0].map(|byte: u8| byte);
    let word = u64::from_le_bytes(key);
    for region in west.arena().regions() {
        use nf_arena::Memory;
        let mut words = region.words().iter();
        assert!(words.all(|each| each.load(std::sync::atomic::Ordering::Relaxed) != word));
    }
}

#[test]
fn wrong_configurations_are_refused_with_their_place() {
    let base = || Pair::default().json(WEST);
    let cases = [
        (
            "/tunnels/0/outbound/0/secret",
            json!("abcd"),
            "tunnels[0].outbound[0].secret: 2 bytes, expected 20 (AES-128) or 36",
        ),
        (
            "/tunnels/0/outbound/0/secret",
            json!("********"),
            "tunnels[0].outbound[0].secret: a character is not a hexadecimal digit",
        ),
        (
            "/tunnels/0/outbound/0/spi",
            json!(255),
            "tunnels[0].outbound[0].spi: 255, expected 256 or more",
        ),
        (
            "/tunnels/0/inbound/0/window",
            json!(8192),
            "tunnels[0].inbound[0].window: 8192, expected 32 to 4096",
        ),
        (
            "/tunnels/0/local",
            json!("192.0.2.9"),
            "tunnels[0].local: 192.0.2.9 is not an address of interfaces[1]",
        ),
        (
            "/tunnels/0/remote",
            json!("198.51.100.1"),
            "tunnels[0].remote: 198.51.100.1 is not on the link of interfaces[1]",
        ),
        (
            "/tunnels/0/remote",
            json!("2001:db8::2"),
            "tunnels[0].remote: 2001:db8::2, expected the IP version of `local`",
        ),
        (
            "/tunnels/0/selectors",
            json!([]),
            "tunnels[0].selectors: empty",
        ),
        ("/keys", json!(0), "keys: 0, expected 1 to 65536"),
    ];
    for (place, value, expected) in cases {
        let mut config = base();
        *config.pointer_mut(place).unwrap() = value;
        let config = serde_json::from_value(config).unwrap();
        let refusal = Harness::<Ipsec>::new(config).map(drop).unwrap_err();
        assert!(refusal.detail.starts_with(expected), "{}", refusal.detail);
    }
    let mut twice = base();
    twice["tunnels"][0]["inbound"][0]["secret"] =
        twice["tunnels"][0]["outbound"][0]["secret"].clone();
    let refusal = Harness::<Ipsec>::new(serde_json::from_value(twice).unwrap())
        .map(drop)
        .unwrap_err();
    assert!(
        refusal
            .detail
            .contains("is also the key of tunnels[0].outbound[0].secret"),
        "{}",
        refusal.detail
    );
}

#[test]
fn a_key_may_come_from_a_file_and_too_many_keys_are_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "0x".to_owned() + &"0100".repeat(10) + "\n").unwrap();
    let mut config = Pair::default().json(WEST);
    let association = &mut config["tunnels"][0]["outbound"][0];
    association.as_object_mut().unwrap().remove("secret");
    association["secret_file"] = json!(file.path());
    let mut west = Harness::<Ipsec>::new(serde_json::from_value(config.clone()).unwrap()).unwrap();
    let [_, mut east] = Pair::default().gateways();
    sent(east.process(OUTSIDE, &protected(&mut west, b"x")), INSIDE);
    std::fs::write(file.path(), "secret words").unwrap();
    let refusal = west
        .function()
        .configure(serde_json::from_value(config).unwrap())
        .unwrap_err();
    assert!(
        refusal.detail.contains("secret_file: a character"),
        "{}",
        refusal.detail
    );
    assert!(!refusal.detail.contains("words"));
    for number in 2..=16 {
        let pair = Pair {
            keys: vec![number],
            ..Pair::default()
        };
        west.function().configure(pair.config(WEST)).unwrap();
    }
    let pair = Pair {
        keys: vec![17],
        ..Pair::default()
    };
    let refusal = west.function().configure(pair.config(WEST)).unwrap_err();
    assert!(
        refusal.detail.starts_with("keys: 16, but"),
        "{}",
        refusal.detail
    );
}
