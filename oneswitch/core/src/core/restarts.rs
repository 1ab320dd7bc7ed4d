//! What the daemon keeps in the journal, and the switch that it becomes again after a restart.

use crate::api::Restored;
use crate::core::Core;
use crate::journal::records::{Clock, JournalError, Settings};
use crate::journal::restore::replay;
use crate::server::flood::Flood;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

impl Core {
    /// Tells the time on the wall, `unix_now` since 1970, and that a journal is kept. To be called once per round: wall clocks are put right
    /// now and then.
    pub fn keep_journal(&mut self, now: Instant, unix_now: Duration) {
        self.journal.clock = Some(Clock {
            now,
            unix: unix_now,
        });
    }

    /// Bytes to append to the journal, before what [`Core::take_outputs`] returns is written.
    pub fn take_journal(&mut self) -> Vec<u8> {
        if std::mem::take(&mut self.server.unsettled) {
            self.write_settled();
        }
        std::mem::take(&mut self.journal.bytes)
    }

    /// About as many bytes as [`Core::snapshot`] has.
    pub fn snapshot_size(&self) -> usize {
        /// Of a group or meter; they are few.
        const OTHER: usize = 256;
        let others = self.truth.groups.len() + self.truth.meters.len();
        self.truth.tables.journal_size() + OTHER * others
    }

    /// A whole journal, to replace one that has grown long: everything settled that was taken or is still to be taken.
    /// What [`Core::take_journal`] would have returned is in it.
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
        self.journal.settle(&self.server, &settings, names);
    }

    /// Whether the port map is not where a restarted daemon finds it: the journal knew of moves that it does not know.
    pub fn has_unsaved_ports(&self) -> bool {
        self.server.has_unsaved_ports()
    }

    /// The port map of this revision is where a restarted daemon finds it: what the journal keeps of moves that led to it can go.
    pub fn ports_are_saved(&mut self, revision: u64) {
        self.server.ports_are_saved(revision);
    }

    /// Becomes what the journal says, before anybody is connected. `unix_now`: the time on the wall, since 1970.
    ///
    /// # Errors
    /// Where the journal is damaged, and how; then nothing was restored. A last record that was cut off is none.
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
        let retired = replayed.retired.chunks_exact(2);
        let retired = retired.map(|id| u16::from_be_bytes([id[0], id[1]]));
        self.server.ports.quarantine.restore(retired);
        self.journal.resume(&replayed.moves, replayed.retired);
        self.with_moves(now, |moves, below| {
            let saved = replayed.moves.iter();
            saved.for_each(|saved| moves.resume_move(below, saved));
        });
        if let Some(settings) = replayed.settings {
            self.adopt_settings(&settings);
        }
        self.server.derive_executors(self.truth.moves_in_port());
        // Rules whose copies have no idle timers of their own are watched again.
        self.expiry.idle.start(now);
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
            // Another name: the number was given to another port meanwhile.
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
