//! The configurations in the documentation: the function accepts all of them.

use std::path::Path;

use nf_l7lb::{Config, L7lb};
use nf_runtime::testing::Harness;
use serde_json::{json, Value};

/// Returns the TOML blocks of a page, with paths in a folder that exists.
fn blocks(page: &str, folder: &Path) -> Vec<Value> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(page);
    let text = std::fs::read_to_string(page).unwrap();
    let folder = folder.to_str().unwrap();
    let blocks = text.split("```toml\n").skip(1);
    blocks
        .map(|rest| rest.split_once("```").unwrap().0)
        .map(|block| {
            block
                .replace("/etc/l7lb", folder)
                .replace("/var/log", folder)
        })
        .map(|block| toml::from_str(&block).unwrap())
        .collect()
}

/// Makes a setting of a listener a configuration.
fn wrapped(block: Value) -> Value {
    if block.get("tls").is_none() {
        return block;
    }
    let mut listener = json!({"name": "x", "address": "10.0.0.100", "port": 443, "routes": []});
    listener["tls"] = block["tls"].clone();
    json!({"listeners": [listener]})
}

/// Adds what a part of a configuration leaves out: an interface, and the pools that its routes name.
fn complete(mut config: Value) -> Value {
    let all = config.as_object_mut().unwrap();
    let interfaces = json!([{"addresses": ["10.0.0.2/24"]}]);
    all.entry("interfaces").or_insert(interfaces);
    if all.contains_key("pools") {
        return config;
    }
    let listeners = all.get("listeners").and_then(Value::as_array);
    let routes = listeners
        .into_iter()
        .flatten()
        .flat_map(|each| each["routes"].as_array().unwrap());
    let mut names: Vec<_> = routes.filter_map(|route| route["pool"].as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let pools: Vec<_> = names
        .iter()
        .map(|name| json!({"name": name, "backends": []}))
        .collect();
    all.insert("pools".into(), pools.into());
    config
}

#[test]
fn the_configurations_of_the_documentation_are_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["www.example.org".into()]).unwrap();
    for name in ["web", "api"] {
        let file = |kind: &str| folder.path().join(format!("{name}.{kind}"));
        std::fs::write(file("pem"), made.cert.pem()).unwrap();
        std::fs::write(file("key"), made.signing_key.serialize_pem()).unwrap();
    }
    for (page, count) in [("l7lb-jobs.md", 10), ("l7lb.md", 3)] {
        let blocks = blocks(page, folder.path());
        assert!(blocks.len() >= count, "{page}: {}", blocks.len());
        for (number, block) in (1..).zip(blocks) {
            let config: Config = serde_json::from_value(complete(wrapped(block)))
                .unwrap_or_else(|error| panic!("{page}, block {number}: {error}"));
            if let Err(error) = Harness::<L7lb>::new(config) {
                panic!("{page}, block {number}: {error}");
            }
        }
    }
}
