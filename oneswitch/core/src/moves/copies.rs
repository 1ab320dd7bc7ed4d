//! Copies of rules, groups and meters when the executors change.

use crate::layout::messages::{group_removal, physical_group};
use crate::layout::repair;
use crate::layout::translate::{copy_of, removal_of};
use crate::moves::Moves;
use crate::server::executors::Executors;
use crate::switch_set::SwitchSet;
use crate::switches::Below;
use openflow13::{meter_no, Message, MeterMod, MeterModCommand};

impl Moves {
    /// Installs what `new` requires beyond `old`. Rewrites copies whose idle timer changes owner.
    pub fn install_copies(&mut self, below: &mut Below<'_>, old: &Executors, new: &Executors) {
        if old == new {
            return;
        }
        below
            .switches
            .verdicts
            .adopt(new.all().intersection(below.switches.up()));
        for switch in new
            .all()
            .minus(old.all())
            .intersection(below.switches.up())
            .iter()
        {
            let meters = repair::meters(&[], below.truth.meters.clone(), |_| false);
            let groups = below.truth.groups.values();
            let groups = groups.map(|g| (g.id, physical_group(g))).collect();
            let groups = repair::groups(&[], groups, |_| false);
            for message in meters.messages.iter().chain(&groups.messages) {
                let here = SwitchSet::of(switch);
                below.switches.send_own(message, here, below.now);
            }
        }
        let rules: Vec<_> = below.truth.tables.iter().cloned().collect();
        for rule in rules {
            let (had, needs) = (old.of_rule(&rule), new.of_rule(&rule));
            let timer_moves = rule.idle_timeout != 0
                && new.share_idle_timer(&rule)
                && !old.share_idle_timer(&rule);
            if timer_moves {
                self.timers_move = true;
            }
            let targets = if timer_moves { needs } else { needs.minus(had) };
            if !targets.is_empty() {
                below.switches.send_own_flow(
                    copy_of(&rule, needs.len(), below.now),
                    targets,
                    below.now,
                );
            }
        }
    }

    /// Removes what `new` no longer requires, keeping its counters.
    pub fn retire_copies(&mut self, below: &mut Below<'_>, old: &Executors, new: &Executors) {
        below
            .switches
            .read_lost_counters(below.truth, old, new, None);
        self.remove_copies(below, old, new);
    }

    /// Removes what `new` no longer requires.
    pub fn remove_copies(&mut self, below: &mut Below<'_>, old: &Executors, new: &Executors) {
        if old == new {
            return;
        }
        below
            .switches
            .verdicts
            .adopt(old.all().intersection(below.switches.up()));
        let rules: Vec<_> = below.truth.tables.iter().cloned().collect();
        for rule in rules {
            let (had, needs) = (old.of_rule(&rule), new.of_rule(&rule));
            below
                .switches
                .send_own_flow(removal_of(&rule), had.minus(needs), below.now);
            if rule.idle_timeout != 0 && had.len() > 1 && needs.len() == 1 {
                below
                    .switches
                    .send_own_flow(copy_of(&rule, 1, below.now), needs, below.now);
            }
        }
        for switch in old.all().minus(new.all()).iter() {
            let groups: Vec<u32> = below.truth.groups.keys().copied().collect();
            for id in groups {
                below.switches.send_own(
                    &Message::GroupMod(group_removal(id)),
                    SwitchSet::of(switch),
                    below.now,
                );
            }
            let message = MeterMod {
                command: MeterModCommand::Delete,
                flags: 0,
                meter_id: meter_no::ALL,
                bands: Box::default(),
            };
            below.switches.send_own(
                &Message::MeterMod(message),
                SwitchSet::of(switch),
                below.now,
            );
        }
    }
}
