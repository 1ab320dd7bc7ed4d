//! What a function keeps outside its state.

use nf_runtime::NetworkFunction;
use serde_json::json;

use crate::world::{Driver, How, Rig, SECRET};

fn keys(rig: &Rig) -> Vec<u8> {
    let loaded = rig.instance.loaded().unwrap();
    let keys = loaded.function.keys.lock().unwrap().clone();
    keys
}

#[test]
fn it_reaches_the_new_instance_with_the_state_and_encrypted() {
    for how in [How::Memfd, How::Copy] {
        for key in [&b""[..], b"an unusual key"] {
            let (old, new) = (Rig::new(1, false), Rig::new(1, true));
            old.instance
                .loaded()
                .unwrap()
                .function
                .inherit(key)
                .unwrap();
            let mut driver = Driver::new(&old, &new, how, 1);
            driver.give(1 << 20);
            assert_eq!(keys(&new), key);
            let sealed = &driver.prepared["sealed"];
            assert_eq!(sealed.is_null(), key.is_empty());
            let shown = driver.prepared.to_string();
            assert!(!shown.contains("unusual") && !shown.contains("756e757375616c"));
        }
    }
}

#[test]
fn a_changed_one_is_refused_and_the_right_one_still_accepted() {
    let (old, new) = (Rig::new(1, false), Rig::new(1, true));
    old.instance
        .loaded()
        .unwrap()
        .function
        .inherit(b"a key")
        .unwrap();
    let mut driver = Driver::new(&old, &new, How::Memfd, 1);
    let [mut prepare, mut hold] = driver.before_give(1 << 20);
    prepare(&mut driver);
    for (name, value) in [
        ("sealed", json!("00ff")),
        ("secret", json!("77".repeat(32))),
    ] {
        let mut request = json!({
            "epoch": 1, "secret": SECRET, "mode": "memfd",
            "rings": driver.prepared["rings"], "sealed": driver.prepared["sealed"],
        });
        request[name] = value;
        let refusal = new.ask_with("hold", request, driver.descriptors());
        assert_eq!(refusal.unwrap_err().code, "sealed");
    }
    hold(&mut driver);
}
