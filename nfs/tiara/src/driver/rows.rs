//! The rows of the switch's table that stand for targets: one for each counter that flows of a target name.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use nf_offload::{CounterId, Target, TargetId};

use crate::session::{Kept, Say};

/// Rows in one line.
const LINE: usize = 1000;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Content {
    row: Kept,
    port: u16,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    target: TargetId,
    /// The switch has it once this line is confirmed.
    line: u64,
}

/// All rows.
#[derive(Default)]
pub struct Rows {
    /// None: the table cannot do what the target says.
    targets: HashMap<TargetId, Option<Content>>,
    rows: BTreeMap<CounterId, Row>,
    /// Rows to be written and to be dropped.
    changed: BTreeSet<CounterId>,
    gone: Vec<u16>,
    lines: u64,
    confirmed: u64,
}

impl Rows {
    /// Forgets what the switch has.
    pub fn forget(&mut self) {
        self.targets.clear();
        self.rows.clear();
        self.changed.clear();
        self.gone.clear();
        self.confirmed = self.lines;
    }

    pub fn put(&mut self, id: TargetId, target: &Target) {
        let content = content(target);
        let known = self.targets.insert(id, content.clone());
        if known.is_some_and(|known| known != content) {
            let of_target = self.rows.iter().filter(|(_, row)| row.target == id);
            self.changed.extend(of_target.map(|(counter, _)| *counter));
        }
    }

    pub fn drop(&mut self, id: TargetId) {
        self.targets.remove(&id);
        let of_target = |(_, row): &(&CounterId, &Row)| row.target == id;
        let gone: Vec<CounterId> = self
            .rows
            .iter()
            .filter(of_target)
            .map(|(counter, _)| *counter)
            .collect();
        for counter in gone {
            self.rows.remove(&counter);
            self.changed.remove(&counter);
            self.gone.push(counter.0);
        }
    }

    /// Returns the port of a target. None: the target is unknown, or the table cannot do what it says.
    pub fn port_of(&self, id: TargetId) -> Option<u16> {
        Some(self.targets.get(&id)?.as_ref()?.port)
    }

    /// Writes rows that the switch does not have.
    pub fn prepare(&mut self, wanted: impl Iterator<Item = (CounterId, TargetId)>) {
        for (counter, target) in wanted {
            let has = self
                .rows
                .get(&counter)
                .is_some_and(|row| row.target == target);
            if !has && self.port_of(target).is_some() {
                let line = u64::MAX;
                self.rows.insert(counter, Row { target, line });
                self.changed.insert(counter);
            }
        }
    }

    /// Tells whether the switch has the row of a counter, with this target.
    pub fn is_ready(&self, counter: CounterId, target: TargetId) -> bool {
        let row = self.rows.get(&counter);
        row.is_some_and(|row| row.target == target && row.line <= self.confirmed)
    }

    pub fn written(&mut self, line: u64) {
        self.confirmed = self.confirmed.max(line);
    }

    pub fn counters(&self) -> impl Iterator<Item = CounterId> + '_ {
        self.rows.keys().copied()
    }

    /// Returns the lines that write what has changed.
    pub fn lines(&mut self) -> Vec<Say> {
        let mut says = Vec::new();
        let gone = std::mem::take(&mut self.gone);
        // A row that is written again must not be dropped after that.
        let gone: Vec<u16> = gone
            .into_iter()
            .filter(|row| !self.rows.contains_key(&CounterId(*row)))
            .collect();
        if !gone.is_empty() {
            says.push(Say::Drop { rows: gone });
        }
        let changed: Vec<CounterId> = std::mem::take(&mut self.changed).into_iter().collect();
        for part in changed.chunks(LINE) {
            self.lines += 1;
            let mut rows = Vec::new();
            for counter in part {
                let Some(row) = self.rows.get_mut(counter) else {
                    continue;
                };
                if let Some(Some(content)) = self.targets.get(&row.target) {
                    row.line = self.lines;
                    rows.push(Kept {
                        row: counter.0,
                        ..content.row.clone()
                    });
                }
            }
            let number = self.lines;
            says.push(Say::Put { number, rows });
        }
        says
    }
}

/// Returns a target as a row. None: the switch encapsulates with VXLAN and rewrites the destination, and nothing else.
fn content(target: &Target) -> Option<Content> {
    let Target::Rewrite { rewrite, .. } = target else {
        return None;
    };
    let (tunnel, (address, port)) = (rewrite.tunnel?, rewrite.destination?);
    if rewrite.source.is_some() {
        return None;
    }
    let row = Kept {
        row: 0,
        address,
        vtep: tunnel.remote,
        vni: tunnel.network,
        mac: tunnel.inner.1.to_string(),
    };
    Some(Content { row, port })
}
