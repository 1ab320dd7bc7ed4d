//! Runs network functions: one binary, all kinds. See `nfs/README.md`.

fn main() {}
