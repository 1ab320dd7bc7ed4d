//! Connection tables of load balancers. See `nfs/README.md`.
