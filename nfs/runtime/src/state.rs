//! State of a network function: what it declares, and the structures that it declares.
//!
//! All of them live in the instance's arena and so move with it. They are shared by the workers: each method takes `&self`.
//!
//! State that is *adopted* may still belong to the instance before, which goes on writing it: opening a structure changes nothing in it, and
//! a function's `create` must not either. When that instance has stopped, the runtime calls `resumed`. Where it died instead, [`Repairs`]
//! come first.
//!
//! | structure | what it is for |
//! |---|---|
//! | [`FlowTable`] | a value per key, with a time to live: what a function knows of each flow |
//! | [`Shared`] | one value that all workers read and change |
//! | [`Timers`] | calls at a time, each with a number that says what for |

mod flow_table;
mod keyed_hash;
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
    repairs: Repairs,
}

/// What makes structures whole after a process died while it changed them.
#[derive(Default)]
pub struct Repairs(Vec<Box<dyn Fn() + Send + Sync>>);

impl Repairs {
    /// Only while nobody else uses the state.
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

    /// Has something done to a structure of the function's own before the state of a process that died is used.
    pub fn on_repair(&mut self, repair: impl Fn() + Send + Sync + 'static) {
        self.repairs.0.push(Box::new(repair));
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
        let table = FlowTable::<K, V>::open(region.clone());
        if !self.is_adopted() {
            table.choose_key();
        }
        self.on_repair(move || FlowTable::<K, V>::open(region.clone()).free_locks());
        Ok(table)
    }

    /// One value that all workers share; `initial` unless the state is adopted.
    ///
    /// # Errors
    /// As [`region`](Self::region).
    pub fn shared<T: Pod>(&mut self, name: &str, initial: T) -> Result<Shared<T>, Refusal> {
        let region = self.region(name, &Shared::<T>::layout(), Shared::<T>::words())?;
        self.on_repair({
            let region = region.clone();
            move || spin::free(&region, 0)
        });
        let shared = Shared::open(region);
        if !self.is_adopted() {
            shared.update(|value| *value = initial);
        }
        Ok(shared)
    }

    /// Timers, at most `capacity` at a time.
    ///
    /// # Errors
    /// As [`region`](Self::region).
    pub fn timers(&mut self, name: &str, capacity: usize) -> Result<Timers, Refusal> {
        let region = self.region(name, Timers::LAYOUT, Timers::words(capacity))?;
        self.on_repair({
            let region = region.clone();
            move || Timers::open(region.clone()).relink()
        });
        Ok(Timers::open(region))
    }

    /// The arena with everything that was declared, its clock, and what to do first where its last owner died.
    ///
    /// # Errors
    /// The arena that is adopted holds something that was not declared.
    pub fn finish(self) -> Result<(Arena, Clock, Repairs), Refusal> {
        let arena = self.builder.finish()?;
        let clock = arena.clock();
        Ok((arena, clock, self.repairs))
    }
}
