//! State of a network function: what it declares, and the structures that it declares.
//!
//! All of them live in the instance's arena and so move with it. They are shared by the workers: each method takes `&self`.
//!
//! | structure | what it is for |
//! |---|---|
//! | [`FlowTable`] | a value per key, with a time to live: what a function knows of each flow |
//! | [`Shared`] | one value that all workers read and change |
//! | [`Timers`] | calls at a time, each with a number that says what for |

mod flow_table;
mod shared;
mod spin;
mod timers;

pub use flow_table::FlowTable;
pub use shared::Shared;
pub use timers::{Timer, Timers};

use nf_arena::{Arena, ArenaBuilder, Clock, Region};

use crate::Refusal;

/// What is in an arena can be copied as bytes: no pointers, no padding, every bit pattern valid. `#[derive(Pod)]` checks it.
pub use bytemuck::Pod;

/// Collects what state a network function has, in its `create`.
///
/// The same calls with the same arguments give the same schema, and so an arena that another instance with this configuration can adopt.
pub struct StateBuilder {
    builder: ArenaBuilder,
}

impl StateBuilder {
    #[must_use]
    pub fn new(builder: ArenaBuilder) -> Self {
        Self { builder }
    }

    /// Does the state come with content, from an instance before?
    #[must_use]
    pub fn is_adopted(&self) -> bool {
        self.builder.is_adopted()
    }

    /// Words for a structure of the function's own. `layout` changes when their meaning does.
    ///
    /// # Errors
    /// As [`ArenaBuilder::region`].
    pub fn region(&mut self, name: &str, layout: &str, words: usize) -> Result<Region, Refusal> {
        Ok(self.builder.region(name, layout, words)?)
    }

    /// A table for at least `capacity` flows.
    ///
    /// # Errors
    /// As [`region`](Self::region).
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
        Ok(FlowTable::open(region))
    }

    /// One value that all workers share; `initial` unless the state is adopted.
    ///
    /// # Errors
    /// As [`region`](Self::region).
    pub fn shared<T: Pod>(&mut self, name: &str, initial: T) -> Result<Shared<T>, Refusal> {
        let region = self.region(name, &Shared::<T>::layout(), Shared::<T>::words())?;
        Ok(Shared::open(region, initial, !self.is_adopted()))
    }

    /// Timers, at most `capacity` at a time.
    ///
    /// # Errors
    /// As [`region`](Self::region).
    pub fn timers(&mut self, name: &str, capacity: usize) -> Result<Timers, Refusal> {
        let region = self.region(name, Timers::LAYOUT, Timers::words(capacity))?;
        Ok(Timers::open(region))
    }

    /// The arena with everything that was declared, and its clock.
    ///
    /// # Errors
    /// The arena that is adopted holds something that was not declared.
    pub fn finish(self) -> Result<(Arena, Clock), Refusal> {
        let arena = self.builder.finish()?;
        let clock = arena.clock();
        Ok((arena, clock))
    }
}
