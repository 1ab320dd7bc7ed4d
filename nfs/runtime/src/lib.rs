//! Runs a network function: batches, workers, state, control, migration. See `nfs/README.md`.
