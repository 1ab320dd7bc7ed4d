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
        let (truth, switches, now) = (&*below.truth, &mut *below.switches, below.now);
        let hidden = &below.server.hidden;
        let up = switches.up();
        switches.verdicts.adopt(new.all().intersection(up));
        switches.require_properties(new.all().minus(old.all()));
        for switch in new.all().minus(old.all()).intersection(up).iter() {
            let meters = repair::meters(&[], truth.meters.clone(), |_| false);
            let groups = truth
                .groups
                .values()
                .map(|g| (g.id, physical_group(g, hidden)));
            let groups = repair::groups(&[], groups.collect(), |_| false);
            for message in meters.messages.iter().chain(&groups.messages) {
                switches.send_own(message, SwitchSet::of(switch), now);
            }
        }
        for rule in truth.tables.iter() {
            let (had, needs) = (old.of_rule(rule), new.of_rule(rule));
            let timer_moves =
                rule.idle_timeout != 0 && new.share_idle_timer(rule) && !old.share_idle_timer(rule);
            self.timers_move |= timer_moves;
            let targets = if timer_moves { needs } else { needs.minus(had) };
            if !targets.is_empty() {
                switches.send_own_flow(copy_of(rule, needs.len(), hidden, now), targets, now);
            }
        }
    }

    /// Removes what `new` no longer requires, keeping its counters.
    pub fn retire_copies(&mut self, below: &mut Below<'_>, old: &Executors, new: &Executors) {
        let switches = &mut *below.switches;
        switches.read_lost_counters(below.truth, old, new, None);
        self.remove_copies(below, old, new);
    }

    /// Removes what `new` no longer requires.
    pub fn remove_copies(&mut self, below: &mut Below<'_>, old: &Executors, new: &Executors) {
        if old == new {
            return;
        }
        let (truth, switches, now) = (&*below.truth, &mut *below.switches, below.now);
        let hidden = &below.server.hidden;
        switches
            .verdicts
            .adopt(old.all().intersection(switches.up()));
        for rule in truth.tables.iter() {
            let (had, needs) = (old.of_rule(rule), new.of_rule(rule));
            switches.send_own_flow(removal_of(rule), had.minus(needs), now);
            if rule.idle_timeout != 0 && had.len() > 1 && needs.len() == 1 {
                switches.send_own_flow(copy_of(rule, 1, hidden, now), needs, now);
            }
        }
        for switch in old.all().minus(new.all()).iter() {
            let here = SwitchSet::of(switch);
            for id in truth.groups.keys() {
                switches.send_own(&Message::GroupMod(group_removal(*id)), here, now);
            }
            let message = MeterMod {
                command: MeterModCommand::Delete,
                flags: 0,
                meter_id: meter_no::ALL,
                bands: Box::default(),
            };
            switches.send_own(&Message::MeterMod(message), here, now);
        }
    }
}
