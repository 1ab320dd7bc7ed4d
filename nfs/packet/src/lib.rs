//! Packet headers in place: parse, rewrite, checksums, encapsulation. See `nfs/README.md`.
