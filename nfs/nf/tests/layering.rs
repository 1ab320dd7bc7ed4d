//! Keeps the crates layered, and their files free of cycles.

#![allow(clippy::unwrap_used)]

#[path = "../../../tools/rooms.rs"]
#[allow(dead_code)]
mod rooms;

use std::{fs, path::Path};

/// Each crate, and the crates that it may use.
const CRATES: &[(&str, &[&str])] = &[
    ("arena", &[]),
    ("http", &[]),
    ("packet", &[]),
    ("ports", &[]),
    ("tables", &["arena"]),
    ("tls", &[]),
    ("offload", &["packet"]),
    ("flow-director", &["offload", "ports"]),
    ("splice", &["packet"]),
    ("runtime", &["arena", "offload", "ports"]),
    ("balancing", &["arena", "packet", "runtime"]),
    (
        "l4lb",
        &[
            "arena",
            "balancing",
            "offload",
            "packet",
            "runtime",
            "splice",
            "tables",
        ],
    ),
    (
        "l7lb",
        &[
            "arena",
            "balancing",
            "http",
            "packet",
            "runtime",
            "splice",
            "tls",
        ],
    ),
    ("limiter", &["packet", "runtime"]),
    ("assets", &["arena", "runtime"]),
    ("dpi", &["arena"]),
    (
        "firewall",
        &["arena", "dpi", "offload", "packet", "runtime"],
    ),
    ("ipsec", &["arena", "balancing", "packet", "runtime"]),
    (
        "tiara",
        &[
            "arena",
            "balancing",
            "offload",
            "packet",
            "runtime",
            "tables",
        ],
    ),
    (
        "nf",
        &[
            "arena",
            "assets",
            "firewall",
            "flow-director",
            "ipsec",
            "l4lb",
            "l7lb",
            "limiter",
            "offload",
            "ports",
            "runtime",
            "tiara",
            "tls",
        ],
    ),
];

#[test]
fn no_files_of_a_crate_depend_on_each_other_in_a_circle() {
    for (name, _) in CRATES {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../{name}/src"));
        rooms::check_circles(&folder, usize::MAX);
    }
}

#[test]
fn each_crate_depends_only_on_those_below_it() {
    for (name, allowed) in CRATES {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../{name}/Cargo.toml"));
        let manifest = fs::read_to_string(manifest).unwrap();
        let (_, rest) = manifest.split_once("[dependencies]").unwrap();
        let rest = rest.split("\n[").next().unwrap();
        let used = rest.lines().filter_map(|line| line.strip_prefix("nf-"));
        let used: Vec<&str> = used.map(|line| line.split(' ').next().unwrap()).collect();
        assert_eq!(used, *allowed, "dependencies of {name}");
    }
}
