//! The state for the journal, and restoring it after a restart.

use crate::api::Restored;
use crate::core::Core;
use crate::journal::bridges::{self, SavedBridge};
use crate::journal::records::{Clock, JournalError, Settings};
use crate::journal::restore::replay;
use crate::server::flood::Flood;
use crate::server::flow_ids::FlowId;
use crate::server::ports::VirtualPort;
use openflow13::config;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

impl Core {
    /// Sets the wall-clock time, `unix_now` since 1970, and enables the journal. Call it once per round, because wall clocks are adjusted
    /// now and then.
    pub fn keep_journal(&mut self, now: Instant, unix_now: Duration) {
        self.journal.clock = Some(Clock {
            now,
            unix: unix_now,
        });
    }

    /// Returns the bytes to append to the journal before writing the result of [`Core::take_outputs`].
    pub fn take_journal(&mut self) -> Vec<u8> {
        if std::mem::take(&mut self.server.unsettled) {
            self.write_settled();
        }
        std::mem::take(&mut self.journal.bytes)
    }

    /// Estimates the size of [`Core::snapshot`].
    pub fn snapshot_size(&self) -> usize {
        /// Of a group or meter; they are few.
        const OTHER: usize = 256;
        let others = self.truth.groups.len() + self.truth.meters.len();
        self.truth.tables.journal_size() + OTHER * others
    }

    /// Returns a complete journal, to replace one that has grown long: everything settled. It includes what [`Core::take_journal`] would
    /// have returned.
    pub fn snapshot(&mut self) -> Vec<u8> {
        self.server.unsettled = false;
        let in_flight = self.switches.verdicts.all_in_flight();
        let size = self.snapshot_size();
        let mut out = self.journal.snapshot(&self.truth, &in_flight, size);
        if self.journal.clock.is_some() {
            self.write_settled();
            out.append(&mut self.journal.bytes);
        }
        out
    }

    fn write_settled(&mut self) {
        let settings = Settings::of(&self.server, self.switches.fragment_flags);
        let names = |switch: usize| self.switches.list[switch].name.clone();
        let switches = self.switches.list.iter();
        let bridges = bridges::encode(switches.map(|s| (s.name.as_str(), s.in_continuations)));
        self.journal
            .settle(&self.truth, &self.server, &settings, bridges, names);
    }

    /// Tells whether the saved port map is outdated: the journal knew of moves that it lacks.
    pub fn has_unsaved_ports(&self) -> bool {
        self.server.has_unsaved_ports()
    }

    /// Confirms that the port map of this revision is saved, so that the journal can drop the moves that led to it.
    pub fn ports_are_saved(&mut self, revision: u64) {
        self.server.ports_are_saved(revision);
    }

    /// Restores the journal's state before any connection. `unix_now`: wall-clock time since 1970.
    ///
    /// # Errors
    /// The position and kind of damage; then nothing was restored. A truncated last record is not an error.
    pub fn restore(
        &mut self,
        journal: &[u8],
        now: Instant,
        unix_now: Duration,
    ) -> Result<Restored, JournalError> {
        let clock = Clock {
            now,
            unix: unix_now,
        };
        let replayed = replay(journal, clock)?;
        self.truth = replayed.truth;
        let tables = &self.truth.tables;
        self.truth.table_configs.count(|table| tables.count(table));
        self.watch_for_monitors();
        self.switches.properties.are_needed = self.truth.has_group_properties();
        let retired = replayed.retired.chunks_exact(4);
        let retired = retired.map(|id| FlowId::from_be_bytes([id[0], id[1], id[2], id[3]]));
        self.server.ports.quarantine.restore(retired);
        let tables = self.truth.table_configs.encode();
        self.journal
            .resume(&replayed.moves, replayed.retired, tables);
        self.with_moves(now, |moves, below| {
            let saved = replayed.moves.iter();
            saved.for_each(|saved| moves.resume_move(below, saved));
        });
        if let Some(settings) = replayed.settings {
            self.adopt_settings(&settings);
        }
        self.server.hidden = replayed.hidden;
        self.server.forget_unwatched(&self.truth);
        self.server.provide_watched(&self.truth);
        self.switches.port_counters.are_needed = !replayed.port_counters.is_empty();
        for saved in replayed.port_counters {
            saved.restore(&mut self.server);
        }
        for SavedBridge { name, bridge } in replayed.bridges {
            let mut switches = self.switches.list.iter_mut();
            if let Some(switch) = switches.find(|switch| switch.name == name) {
                switch.in_continuations = Some(bridge);
            }
        }
        self.server
            .derive_executors_with(self.truth.moves_in_port());
        // Watch rules whose copies have no idle timers of their own again.
        self.expiry.idle.start(now);
        let flagged = |port: &VirtualPort| port.config & config::HEEDED_10 != 0;
        self.switches.version10.are_needed = self.server.ports.iter().any(flagged);
        Ok(Restored {
            flows: self.truth.tables.len(),
            groups: self.truth.groups.len(),
            meters: self.truth.meters.len(),
            ..replayed.restored
        })
    }

    fn adopt_settings(&mut self, settings: &Settings) {
        self.switches.fragment_flags = settings.fragment_flags;
        let server = &mut self.server;
        let mut flow_ids = BTreeMap::new();
        for saved in &settings.ports {
            // Another name: the number has been given to another port.
            let port = server.ports.get_mut(saved.number);
            if let Some(port) = port.filter(|port| port.name == saved.name) {
                saved.restore(port);
                flow_ids.insert(saved.number, (saved.flow_id, saved.ingress_id));
            } else {
                let ids = [Some(saved.flow_id), saved.ingress_id];
                server.ports.quarantine.restore(ids.into_iter().flatten());
            }
        }
        server.ports.set_flow_ids(&flow_ids);
        server.flood = Flood::new(&server.ports);
        server.flood.resume(settings.flood);
        for moving in server.ports.iter_mut().filter_map(|p| p.moving.as_mut()) {
            moving.flood = settings.flood;
        }
    }
}
