//! All that survives a move.

use bytemuck::{Pod, Zeroable};
use nf_arena::Region;
use nf_runtime::{
    state::{FlowTable, StateBuilder},
    Refusal,
};

use crate::{
    application::Known,
    config::Config,
    flows::{flag, Cold, Flows, Hot},
    prefix::Prefixes,
    rows::Rows,
    words::{get, put, read, write},
};

/// Single words of the state.
pub mod word {
    /// The generation of the rules, and the digest of their configuration.
    pub const GENERATION: usize = 0;
    pub const DIGEST: usize = 1;
    /// The number of the next stored packet.
    pub const SEQUENCE: usize = 2;
    /// The slots at which looking for expired flows, for one to replace, and for a prefix to forget continues.
    pub const EXPIRY: usize = 3;
    pub const REPLACED: usize = 4;
    pub const FORGOTTEN: usize = 5;
    /// The time at which the whole burst of ICMP errors is available again.
    pub const ERRORS: usize = 6;
    /// Counters.
    pub const FLOWS_REPLACED: usize = 8;
    pub const PREFIXES_FORGOTTEN: usize = 9;
    pub const VERDICTS: usize = 10;
    pub const LATE_VERDICTS: usize = 11;
    pub const WORDS: usize = 16;
}

/// The words of a flow's host: the length, and the bytes.
const HOST: usize = 11;
const HOST_BYTES: usize = 80;

/// A packet of which fragments follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct FragmentKey {
    pub source: [u8; 16],
    pub destination: [u8; 16],
    pub id: u32,
    pub protocol: u16,
    pub vlan: u16,
}

/// The state.
pub struct State {
    pub flows: Flows,
    pub prefixes: Prefixes,
    pub rows: Rows,
    /// The numbers of flows, by packets of which fragments follow.
    pub fragments: FlowTable<FragmentKey, u64>,
    words: Region,
    hosts: Region,
}

impl State {
    /// # Errors
    /// If memory runs out, or adopted state has another shape.
    pub fn declare(config: &Config, state: &mut StateBuilder) -> Result<Self, Refusal> {
        Ok(Self {
            flows: Flows::declare(config.flows, state)?,
            prefixes: Prefixes::declare(config.inspection.memory_mib, state)?,
            rows: Rows::declare(state)?,
            fragments: state.flow_table("fragments", 4096)?,
            words: state.region("firewall", "words v1", word::WORDS)?,
            hosts: state.region("hosts", "v1", config.flows * HOST)?,
        })
    }

    pub fn word(&self, at: usize) -> u64 {
        get(&self.words, at)
    }

    pub fn put_word(&self, at: usize, value: u64) {
        put(&self.words, at, value);
    }

    /// Adds one to a word, and returns its former value.
    pub fn count(&self, at: usize) -> u64 {
        let value = self.word(at);
        self.put_word(at, value + 1);
        value
    }

    /// Returns what is known about a flow's application.
    pub fn known(&self, slot: u32, hot: &Hot, cold: &Cold) -> Option<Known> {
        (hot.flags & flag::KNOWN != 0).then(|| Known {
            master: cold.master,
            application: cold.application,
            category: cold.category,
            host: self.host(slot),
            ja3: (cold.has_ja3 != 0).then_some(cold.ja3),
        })
    }

    fn host(&self, slot: u32) -> String {
        let words: [u64; HOST] = read(&self.hosts, slot as usize * HOST);
        let bytes: &[u8] = bytemuck::cast_slice(&words[1..]);
        let length = (words[0] as usize).min(HOST_BYTES);
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }

    /// Stores what is known about a flow's application.
    pub fn put_known(&self, slot: u32, hot: &mut Hot, cold: &mut Cold, known: &Known) {
        hot.flags |= flag::KNOWN;
        (cold.master, cold.application, cold.category) =
            (known.master, known.application, known.category);
        cold.has_ja3 = u8::from(known.ja3.is_some());
        cold.ja3 = known.ja3.unwrap_or_default();
        let mut words = [0; HOST];
        let length = known.host.len().min(HOST_BYTES);
        words[0] = length as u64;
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words[1..]);
        bytes[..length].copy_from_slice(&known.host.as_bytes()[..length]);
        write(&self.hosts, slot as usize * HOST, &words);
    }

    /// Removes flows that a kill has torn, and gives back memory that no flow has.
    pub fn repair(&self) {
        let torn: Vec<u32> = self
            .flows
            .slots()
            .filter(|slot| !self.prefixes.is_whole(&self.flows.cold(*slot)))
            .collect();
        for slot in torn {
            self.flows.remove(slot);
        }
        let is_used = |slot: u32| {
            (slot < self.flows.fresh() && self.flows.hot(slot).stage != crate::flows::stage::FREE)
                .then(|| self.flows.cold(slot).prefix)
        };
        self.prefixes.repair(is_used);
    }

    /// Removes a flow.
    pub fn remove(&self, slot: u32) {
        let mut cold = self.flows.cold(slot);
        self.prefixes.clear(&mut cold);
        self.flows.put_cold(slot, &cold);
        self.flows.remove(slot);
    }
}
