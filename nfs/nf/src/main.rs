//! Runs network functions: one binary, all kinds. See `nfs/README.md`.

#![allow(dead_code)]

mod forward;

fn main() {}
