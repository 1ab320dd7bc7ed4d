//! The state of a network function: its declaration, and the structures in it.
//!
//! All structures live in the instance's arena and so move with it. The workers share them: each method takes `&self`.
//!
//! *Adopted* state may still belong to the previous instance, which continues to write it: opening a structure changes nothing in it, and
//! a function's `create` must not either. When that instance has stopped, the runtime calls `resumed`. If it died instead, [`Repairs`]
//! run first.

mod byte_queue;
mod chunk_pool;
#[cfg(test)]
mod crash;
mod flow_table;
mod keyed_hash;
mod ledger;
mod slab;
mod slots;
mod spin;
mod timers;
mod words;

pub use byte_queue::{ByteQueue, Reader};
pub use chunk_pool::{Chunk, ChunkPool, CHUNK_BYTES};
pub use flow_table::FlowTable;
pub use keyed_hash::HashKey;
pub use ledger::LedgerMemory;
pub use slab::{Slab, SlabId};
pub use timers::Timers;

use nf_arena::{Arena, ArenaBuilder, Clock, Region};

use crate::Refusal;

/// Plain data that can be copied as bytes: no pointers, no padding, every bit pattern valid. `#[derive(Pod)]` checks it.
pub use bytemuck::Pod;

/// Collects the state declared by a network function's `create`.
///
/// The same calls with the same arguments give the same schema, and so an arena that another instance with this configuration can adopt.
pub struct StateBuilder {
    builder: ArenaBuilder,
    repairs: Repairs,
}

/// Repairs of structures whose process died while it changed them.
#[derive(Default)]
pub struct Repairs(Vec<Box<dyn Fn() + Send + Sync>>);

impl Repairs {
    /// Runs all repairs. No other thread or process may use the state meanwhile.
    pub fn run(&self) {
        self.0.iter().for_each(|repair| repair());
    }
}

impl StateBuilder {
    #[must_use]
    pub fn new(builder: ArenaBuilder) -> Self {
        Self {
            builder,
            repairs: Repairs::default(),
        }
    }

    /// Tells whether the state has content from a previous instance.
    #[must_use]
    pub fn is_adopted(&self) -> bool {
        self.builder.is_adopted()
    }

    /// Declares words for a custom structure. `layout` must change with their meaning.
    ///
    /// # Errors
    /// Those of [`ArenaBuilder::region`].
    pub fn region(&mut self, name: &str, layout: &str, words: usize) -> Result<Region, Refusal> {
        Ok(self.builder.region(name, layout, words)?)
    }

    /// Registers a repair of a custom structure, to run before the state of a process that died is used.
    pub fn on_repair(&mut self, repair: impl Fn() + Send + Sync + 'static) {
        self.repairs.0.push(Box::new(repair));
    }

    /// Declares a table for at least `capacity` flows.
    ///
    /// # Errors
    /// Those of [`region`](Self::region).
    pub fn flow_table<K: Pod, V: Pod>(
        &mut self,
        name: &str,
        capacity: usize,
    ) -> Result<FlowTable<K, V>, Refusal> {
        let region = self.region(
            name,
            &FlowTable::<K, V>::layout(),
            FlowTable::<K, V>::words(capacity),
        )?;
        let table = FlowTable::<K, V>::open(region.clone());
        if !self.is_adopted() {
            table.choose_key();
        }
        self.on_repair(move || FlowTable::<K, V>::open(region.clone()).free_locks());
        Ok(table)
    }

    /// Declares numbered slots for at most `capacity` records.
    ///
    /// # Errors
    /// If there are more than 16,777,216, and those of [`region`](Self::region).
    pub fn slab<V: Pod>(&mut self, name: &str, capacity: usize) -> Result<Slab<V>, Refusal> {
        let capacity = slots::checked(name, capacity)?;
        let region = self.region(
            name,
            &Slab::<V>::layout(capacity),
            Slab::<V>::words(capacity),
        )?;
        let slab = Slab::open(region.clone(), capacity);
        self.on_repair(move || Slab::<V>::open(region.clone(), capacity).repair());
        Ok(slab)
    }

    /// Declares a pool of `capacity` chunks of `chunk_bytes` bytes, usually [`CHUNK_BYTES`].
    ///
    /// # Errors
    /// If there are more than 16,777,216, or they are not whole cache lines, and those of [`region`](Self::region).
    pub fn chunk_pool(
        &mut self,
        name: &str,
        capacity: usize,
        chunk_bytes: usize,
    ) -> Result<ChunkPool, Refusal> {
        let capacity = slots::checked(name, capacity)?;
        let chunk_bytes = ChunkPool::<Region>::checked(name, chunk_bytes)?;
        let region = self.region(
            name,
            &ChunkPool::<Region>::layout(capacity, chunk_bytes),
            ChunkPool::<Region>::words(capacity, chunk_bytes),
        )?;
        let pool = ChunkPool::open(region.clone(), capacity, chunk_bytes);
        self.on_repair(move || ChunkPool::open(region.clone(), capacity, chunk_bytes).repair());
        Ok(pool)
    }

    /// Declares a timer for each number below `capacity`.
    ///
    /// # Errors
    /// If there are more than 16,777,216, and those of [`region`](Self::region).
    pub fn timers(&mut self, name: &str, capacity: usize) -> Result<Timers, Refusal> {
        let capacity = slots::checked(name, capacity)?;
        let region = self.region(
            name,
            &Timers::<Region>::layout(capacity),
            Timers::<Region>::words(capacity),
        )?;
        let timers = Timers::open(region.clone(), capacity);
        self.on_repair(move || Timers::open(region.clone(), capacity).repair());
        Ok(timers)
    }

    /// Returns the arena with all declared structures, its clock, and the repairs to run if its last owner died.
    ///
    /// # Errors
    /// If the adopted arena contains something that was not declared.
    pub fn finish(self) -> Result<(Arena, Clock, Repairs), Refusal> {
        let arena = self.builder.finish()?;
        let clock = Clock::of(&arena);
        Ok((arena, clock, self.repairs))
    }
}
