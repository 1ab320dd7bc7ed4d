//! The engines of a T-NIC, for both IP versions, and the queues that they serve.

use std::{sync::Arc, time::Duration};

use nf_arena::{Heap, Region};
use nf_tables::{Ipv4Flow, Ipv6Flow, Key};

use super::nic::Tables;
use crate::{
    aging::Sweep,
    engine::{Counts, Engine, QueuePair, Unable},
    session::Queues,
    table::{ConnectionTable, Shape, TableError},
};

type Each<K> = Engine<K, Region, Arc<ConnectionTable<K, Heap>>>;

/// The engines of one IP version.
struct Bank<K: Key> {
    engines: Vec<Each<K>>,
    sweeps: Vec<Sweep>,
}

/// All engines.
pub struct Engines {
    ipv4: Bank<Ipv4Flow>,
    ipv6: Bank<Ipv6Flow>,
}

/// The numbers of a session's queues at each engine.
#[derive(Default)]
pub struct Attached {
    ipv4: Vec<u16>,
    ipv6: Vec<u16>,
}

/// The shape of the table, and how engines treat it.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    pub shape: Shape,
    pub engines: u32,
    pub evicts: bool,
    /// The detection period.
    pub period: Duration,
    /// The most signals per second, to all load balancers.
    pub signals_per_s: u32,
}

impl<K: Key> Bank<K> {
    fn new(
        table: &Arc<ConnectionTable<K, Heap>>,
        manner: &Manner,
        now: u64,
    ) -> Result<Self, Unable> {
        let engine = |number| {
            let engine = Each::new(Arc::clone(table), manner.shape, number, manner.engines)?;
            Ok(if manner.evicts {
                engine.with_eviction()
            } else {
                engine
            })
        };
        let engines: Vec<Each<K>> = (0..manner.engines)
            .map(engine)
            .collect::<Result<_, Unable>>()?;
        let sweeps = engines
            .iter()
            .map(|engine| Sweep::new(engine.slots(), manner.period, now));
        Ok(Self {
            sweeps: sweeps.collect(),
            engines,
        })
    }

    fn turn(&mut self, now: u64) -> usize {
        let mut done = 0;
        for (engine, sweep) in self.engines.iter_mut().zip(&mut self.sweeps) {
            done += engine.poll();
            sweep.advance(now, &mut |group| engine.end_period(group));
        }
        done
    }

    fn attach(&mut self, queues: &[Region], credits: usize) -> Result<Vec<u16>, TableError> {
        let each = self.engines.iter_mut().zip(queues);
        each.map(|(engine, region)| {
            let end = QueuePair::engine_end(region.clone(), credits)?;
            // An engine has room for 65,535 sessions, one after the other.
            let none = TableError::Engines {
                engine: 0,
                engines: 0,
                most: 0,
            };
            engine.attach(end).map_err(|_| none)
        })
        .collect()
    }

    fn detach(&mut self, numbers: &[u16]) {
        for (engine, number) in self.engines.iter_mut().zip(numbers) {
            engine.detach(*number);
        }
    }
}

impl Engines {
    /// # Errors
    /// If the table cannot be split among this number of engines, or memory runs out.
    pub fn new(tables: &Tables, manner: &Manner, now: u64) -> Result<Self, Unable> {
        Ok(Self {
            ipv4: Bank::new(&tables.ipv4, manner, now)?,
            ipv6: Bank::new(&tables.ipv6, manner, now)?,
        })
    }

    /// Serves all queues, and ends periods; returns 0 if there was nothing to do.
    pub fn turn(&mut self, now: u64) -> usize {
        self.ipv4.turn(now) + self.ipv6.turn(now)
    }

    /// Adds the queues of a session.
    ///
    /// # Errors
    /// If they do not fit.
    pub fn attach(&mut self, queues: &Queues, credits: usize) -> Result<Attached, TableError> {
        Ok(Attached {
            ipv4: self.ipv4.attach(&queues.ipv4, credits)?,
            ipv6: self.ipv6.attach(&queues.ipv6, credits)?,
        })
    }

    /// Drops the queues of a session.
    pub fn detach(&mut self, attached: &Attached) {
        self.ipv4.detach(&attached.ipv4);
        self.ipv6.detach(&attached.ipv6);
    }

    /// Deletes all entries of a load balancer, whose rows have this upper half.
    pub fn wipe(&mut self, prefix: u16) {
        let is_its = |rs_index: u32| (rs_index >> 16) as u16 == prefix;
        self.ipv4
            .engines
            .iter_mut()
            .for_each(|engine| engine.delete_where(is_its));
        self.ipv6
            .engines
            .iter_mut()
            .for_each(|engine| engine.delete_where(is_its));
    }

    /// Returns the counts of all engines, one after the other.
    pub fn counts(&self) -> impl Iterator<Item = Counts> + '_ {
        let ipv4 = self.ipv4.engines.iter().map(Engine::counts);
        ipv4.chain(self.ipv6.engines.iter().map(Engine::counts))
    }
}
