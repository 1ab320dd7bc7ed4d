//! Copies of rules, groups and meters when the executors change.

use crate::layout::messages::{group_removal, physical_group};
use crate::layout::translate::{copy_of, removal_of};
use crate::model::in_flight::InFlight;
use crate::mutants::{mutant, Fault};
use crate::server::executors::Executors;
use crate::switch_set::SwitchSet;
use crate::Core;
use openflow13::{meter_no, GroupMod, Message, MeterMod, MeterModCommand};
use std::time::Instant;

impl Core {
    /// Takes the executors that follow from the port map; returns what they were and are.
    pub(crate) fn derive_executors(&mut self, everywhere: bool) -> (Executors, Executors) {
        let new = Executors::derive(&self.ports, self.default_executor, everywhere);
        let old = std::mem::replace(&mut self.executors, new.clone());
        self.executors_epoch += u64::from(old != new);
        (old, new)
    }

    /// Installs what `new` asks for beyond `old`. Copies whose idle timer changes owner are written anew.
    pub(crate) fn install_copies(&mut self, old: &Executors, new: &Executors, now: Instant) {
        if old == new {
            return;
        }
        self.verdicts.adopt(new.all().intersection(self.up()));
        for switch in new.all().minus(old.all()).intersection(self.up()).iter() {
            self.compare_meters(SwitchSet::of(switch), &[], true, &InFlight::default(), now);
            let groups: Vec<GroupMod> = self
                .truth
                .groups
                .values()
                .filter(|_| !mutant(Fault::GroupsMissNewSwitch))
                .map(|g| physical_group(g))
                .collect();
            for group in groups {
                self.send_own(&Message::GroupMod(group), SwitchSet::of(switch), now);
            }
        }
        let rules: Vec<_> = self.truth.tables.iter().cloned().collect();
        for rule in rules {
            let (had, needs) = (old.of_rule(&rule), new.of_rule(&rule));
            let timer_moves = rule.idle_timeout != 0
                && new.share_idle_timer(&rule)
                && !old.share_idle_timer(&rule);
            if timer_moves {
                self.idle.start(now);
            }
            let targets = if timer_moves { needs } else { needs.minus(had) };
            if !targets.is_empty() && !mutant(Fault::RulesMissNewSwitch) {
                self.send_own_flow(copy_of(&rule, needs.len(), now), targets, now);
            }
        }
    }

    /// Removes what `new` asks for no more, with its counters kept.
    pub(crate) fn retire_copies(&mut self, old: &Executors, new: &Executors, now: Instant) {
        self.read_lost_counters(old, new, None);
        self.remove_copies(old, new, now);
    }

    /// Removes what `new` asks for no more.
    pub(crate) fn remove_copies(&mut self, old: &Executors, new: &Executors, now: Instant) {
        if old == new || mutant(Fault::OldRulesRemain) {
            return;
        }
        self.verdicts.adopt(old.all().intersection(self.up()));
        let rules: Vec<_> = self.truth.tables.iter().cloned().collect();
        for rule in rules {
            let (had, needs) = (old.of_rule(&rule), new.of_rule(&rule));
            self.send_own_flow(removal_of(&rule), had.minus(needs), now);
            if rule.idle_timeout != 0 && had.len() > 1 && needs.len() == 1 {
                self.send_own_flow(copy_of(&rule, 1, now), needs, now);
            }
        }
        for switch in old.all().minus(new.all()).iter() {
            let groups: Vec<u32> = self.truth.groups.keys().copied().collect();
            for id in groups {
                self.send_own(
                    &Message::GroupMod(group_removal(id)),
                    SwitchSet::of(switch),
                    now,
                );
            }
            let message = MeterMod {
                command: MeterModCommand::Delete,
                flags: 0,
                meter_id: meter_no::ALL,
                bands: Box::default(),
            };
            self.send_own(&Message::MeterMod(message), SwitchSet::of(switch), now);
        }
    }
}
