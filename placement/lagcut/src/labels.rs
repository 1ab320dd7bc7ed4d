//! Enumeration of partial placements, NF by NF, without those that cannot be completed below the target.
//!
//! A label is a value (base plus losses; above 0 no completion is better), its use of the goal and of every row that can still bind, and
//! the preceding label. Labels are grouped by *state*: the locations of the NFs that still have traffic to come.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::bucket::{cut_to, Bucket};
use crate::core::Core;
use crate::program::Program;
use crate::table::{Step, Table};

/// The result of a walk.
pub struct Walk {
    /// The best placement at or below the target.
    pub found: Option<Vec<u8>>,
    /// The walk was complete: `found` is optimal among all placements at or below the target.
    pub complete: bool,
    /// The time limit expired.
    pub late: bool,
}

/// A walk's plan: the order and the rows that can bind. Column 0 is the goal.
pub struct Plan {
    steps: Vec<Step>,
    width: usize,
    target: i64,
    /// Value and uses of the settled part.
    base: i64,
    uses: Vec<i64>,
    settled: Vec<u8>,
    refuted: bool,
}

impl Plan {
    /// Prepare a walk for placements whose goal is at most `target`.
    pub fn new(program: &Program, core: &Core, target: i64) -> Self {
        let table = Table::new(program, &core.open);
        let width = table.columns.len();
        let mut uses = vec![0; width];
        let settled: Vec<u8> = core
            .open
            .iter()
            .map(|modes| modes.first().copied().unwrap_or(0))
            .collect();
        for (i, modes) in core
            .open
            .iter()
            .enumerate()
            .filter(|(_, modes)| modes.len() == 1)
        {
            uses.iter_mut()
                .zip(&table.unary[i][modes[0] as usize])
                .for_each(|(u, v)| *u += v);
        }
        let crossed = |a: &usize| {
            core.settled_arc(program, *a)
                .is_some_and(|(first, second, k)| first == k && second != k)
        };
        for (c, amount) in (0..program.arcs.len())
            .filter(crossed)
            .flat_map(|a| &table.cross[a])
        {
            uses[*c] += amount;
        }
        let base = core.settled_value(program, target);
        let over = |(column, used): (&Option<usize>, &i64)| {
            column.is_some_and(|r| *used > program.rows[r].limit)
        };
        let refuted = core.refuted || table.columns.iter().zip(&uses).any(over);
        let steps = table.steps(program, core, target);
        Plan {
            steps,
            width,
            target,
            base,
            uses,
            settled,
            refuted,
        }
    }

    /// Walk, keeping at most `cap` labels after each step (the most promising ones).
    pub fn walk(&self, cap: usize, deadline: Instant) -> Walk {
        let mut arena: Vec<(u32, u8)> = Vec::new();
        let mut complete = true;
        let mut states: BTreeMap<Vec<u32>, Bucket> = BTreeMap::new();
        if self.base <= 0 && !self.refuted {
            let first = Bucket {
                values: vec![self.base],
                uses: self.uses.clone(),
                parents: vec![u32::MAX],
                modes: vec![0],
            };
            states.insert(Vec::new(), first);
        }
        for step in &self.steps {
            let mut grown = self.grow(&states, step);
            for bucket in grown.values_mut() {
                bucket.thin(self.width);
            }
            complete &= !cut_to(&mut grown, cap, self.width);
            for bucket in grown.values_mut() {
                for label in 0..bucket.parents.len() {
                    arena.push((bucket.parents[label], bucket.modes[label]));
                    bucket.parents[label] = (arena.len() - 1) as u32;
                }
            }
            states = grown;
            if Instant::now() > deadline {
                return Walk {
                    found: None,
                    complete: false,
                    late: true,
                };
            }
        }
        let found = states
            .values()
            .flat_map(|b| (0..b.parents.len()).map(move |l| (b.uses[l * self.width], b.parents[l])))
            .filter(|(goal, _)| *goal <= self.target)
            .min();
        Walk {
            found: found.map(|(_, last)| self.trace(&arena, last)),
            complete,
            late: false,
        }
    }

    fn trace(&self, arena: &[(u32, u8)], last: u32) -> Vec<u8> {
        let mut modes = self.settled.clone();
        let mut label = last;
        for step in self.steps.iter().rev() {
            let (before, mode) = arena[label as usize];
            modes[step.nf] = mode;
            label = before;
        }
        modes
    }

    fn grow(&self, states: &BTreeMap<Vec<u32>, Bucket>, step: &Step) -> BTreeMap<Vec<u32>, Bucket> {
        let mut grown: BTreeMap<Vec<u32>, Bucket> = BTreeMap::new();
        let mut use_now = vec![0; self.width];
        for (state, bucket) in states {
            for option in &step.options {
                let (extra, added) = step.cost(option, state);
                let mut after: Vec<u32> = step.keep.iter().map(|&p| state[p]).collect();
                if step.stays {
                    after.push(option.site);
                }
                let into = grown.entry(after).or_default();
                for label in 0..bucket.parents.len() {
                    let value = bucket.values[label] + extra;
                    if value > 0 {
                        continue;
                    }
                    let before = &bucket.uses[label * self.width..(label + 1) * self.width];
                    let mut fits = true;
                    for c in 0..self.width {
                        let used = before[c] + added[c];
                        fits &= used <= step.room[c];
                        use_now[c] = used.max(step.floor[c]);
                    }
                    if fits {
                        into.values.push(value);
                        into.uses.extend_from_slice(&use_now);
                        into.parents.push(bucket.parents[label]);
                        into.modes.push(option.mode);
                    }
                }
            }
        }
        grown
    }
}
