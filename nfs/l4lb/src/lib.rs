//! A stateful layer-4 load balancer. See `nfs/README.md`.
