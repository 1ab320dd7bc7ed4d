//! What multipliers leave open: partial placements, NF by NF, dropped when they cannot be completed below the target.
//!
//! A label is a value (base plus losses; above 0 nothing better can follow), its use of the goal and of every row that can
//! still bind, and the label before it. Labels live together by *state*: the locations of the NFs that still have traffic
//! to come.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use crate::core::{arc_loss, Core};
use crate::program::Program;

/// Labels that a new one is compared with where more than two rows can bind.
const SCAN: usize = 48;

/// How a walk ended.
pub struct Walk {
    /// The best placement at or below the target.
    pub found: Option<Vec<u8>>,
    /// Nothing was left out: `found` is optimal among all at or below the target.
    pub complete: bool,
    /// The clock ran out.
    pub late: bool,
}

/// What one NF's turn does.
struct Step {
    nf: usize,
    options: Vec<Opt>,
    links: Vec<Link>,
    keep: Vec<usize>,
    stays: bool,
    /// Per column: the target or limit less the least use still to come.
    room: Vec<i64>,
    /// Per column: use below this cannot bind any more.
    floor: Vec<i64>,
}

struct Opt {
    mode: u8,
    site: u32,
    /// Per bound.
    loss: Vec<i64>,
    uses: Vec<i64>,
}

/// An arc to an NF that had its turn.
struct Link {
    place: usize,
    first: bool,
    k: u32,
    /// Per bound, what it costs where it crosses, and where only its second end is on the sNIC.
    cost: Vec<(i64, i64)>,
    uses: Vec<(usize, i64)>,
}

/// Labels of one state; `uses` holds `width` numbers per label, `values` one per bound.
#[derive(Default)]
struct Bucket {
    values: Vec<i64>,
    uses: Vec<i64>,
    parents: Vec<u32>,
    modes: Vec<u8>,
}

/// A walk's plan: the order and the rows that can bind. Column 0 is the goal.
pub struct Plan {
    steps: Vec<Step>,
    width: usize,
    target: i64,
    /// Value and uses of what is settled.
    base: Vec<i64>,
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
        let base = core
            .bounds
            .iter()
            .map(|bound| core.settled_value(program, bound, target))
            .collect();
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
        let mut states: HashMap<Vec<u32>, Bucket> = HashMap::new();
        if self.base.iter().all(|b| *b <= 0) && !self.refuted {
            let first = Bucket {
                values: self.base.clone(),
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
            complete &= !cut_to(&mut grown, cap, self.width, self.base.len());
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

    pub fn frontier(&self) -> usize {
        self.steps
            .iter()
            .map(|s| s.keep.len() + usize::from(s.stays))
            .max()
            .unwrap_or(0)
    }
    pub fn width(&self) -> usize {
        self.width
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

    fn grow(&self, states: &HashMap<Vec<u32>, Bucket>, step: &Step) -> HashMap<Vec<u32>, Bucket> {
        let mut grown: HashMap<Vec<u32>, Bucket> = HashMap::new();
        let bounds = self.base.len();
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
                    let values = &bucket.values[label * bounds..(label + 1) * bounds];
                    if values
                        .iter()
                        .zip(&extra)
                        .any(|(value, more)| value + more > 0)
                    {
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
                        into.values
                            .extend(values.iter().zip(&extra).map(|(value, more)| value + more));
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

impl Step {
    fn cost(&self, option: &Opt, state: &[u32]) -> (Vec<i64>, Vec<i64>) {
        let (mut extra, mut added) = (option.loss.clone(), option.uses.clone());
        for link in &self.links {
            let (here, there) = (option.site, state[link.place]);
            let (first, second) = if link.first {
                (here, there)
            } else {
                (there, here)
            };
            for (slot, &(crossing, lone)) in extra.iter_mut().zip(&link.cost) {
                *slot += arc_loss(link.k, first, second, crossing, lone);
            }
            if first == link.k && second != link.k {
                link.uses.iter().for_each(|(c, amount)| added[*c] += amount);
            }
        }
        (extra, added)
    }
}

impl Bucket {
    fn pick(&mut self, kept: &[usize], width: usize) {
        let bounds = self.values.len() / self.parents.len().max(1);
        self.values = kept
            .iter()
            .flat_map(|&l| self.values[l * bounds..(l + 1) * bounds].iter().copied())
            .collect();
        self.parents = kept.iter().map(|&l| self.parents[l]).collect();
        self.modes = kept.iter().map(|&l| self.modes[l]).collect();
        self.uses = kept
            .iter()
            .flat_map(|&l| self.uses[l * width..(l + 1) * width].iter().copied())
            .collect();
    }

    /// Drop labels that use no less of everything than another one.
    fn thin(&mut self, width: usize) {
        if self.parents.len() < 2 {
            return;
        }
        let mut order: Vec<usize> = (0..self.parents.len()).collect();
        let uses = &self.uses;
        // Labels come as a few sorted runs, which the stable sort merges.
        order.sort_by(|&a, &b| {
            uses[a * width..(a + 1) * width].cmp(&uses[b * width..(b + 1) * width])
        });
        let kept = match width {
            1 => order[..1].to_vec(),
            2 => self.stair(&order),
            3 => self.stairs(&order),
            _ => self.scan(&order, width),
        };
        self.pick(&kept, width);
    }

    fn stair(&self, order: &[usize]) -> Vec<usize> {
        let mut low = i64::MAX;
        order
            .iter()
            .copied()
            .filter(|&l| {
                let better = self.uses[l * 2 + 1] < low;
                low = low.min(self.uses[l * 2 + 1]);
                better
            })
            .collect()
    }

    /// Sorted by the first column, so a label is dominated if the staircase of the other two has a step below it.
    fn stairs(&self, order: &[usize]) -> Vec<usize> {
        let mut steps: BTreeMap<i64, i64> = BTreeMap::new();
        let mut kept = Vec::with_capacity(order.len());
        for &label in order {
            let (x, y) = (self.uses[label * 3 + 1], self.uses[label * 3 + 2]);
            if steps
                .range(..=x)
                .next_back()
                .is_some_and(|(_, low)| *low <= y)
            {
                continue;
            }
            while let Some((&far, _)) = steps.range(x..).next().filter(|(_, high)| **high >= y) {
                steps.remove(&far);
            }
            steps.insert(x, y);
            kept.push(label);
        }
        kept
    }

    fn scan(&self, order: &[usize], width: usize) -> Vec<usize> {
        let uses = |l: usize| &self.uses[l * width..(l + 1) * width];
        let mut kept: Vec<usize> = Vec::with_capacity(order.len());
        for &label in order {
            let mine = uses(label);
            let recent = kept.iter().rev().take(SCAN);
            if !recent
                .into_iter()
                .any(|&other| uses(other).iter().zip(mine).all(|(a, b)| a <= b))
            {
                kept.push(label);
            }
        }
        kept
    }
}

/// How little a label can still lead to: its best bound.
fn promise(values: &[i64]) -> i64 {
    values.iter().copied().max().unwrap_or(0)
}

/// Keep the `cap` labels of least value; whether any were lost.
fn cut_to(states: &mut HashMap<Vec<u32>, Bucket>, cap: usize, width: usize, bounds: usize) -> bool {
    let count: usize = states.values().map(|b| b.parents.len()).sum();
    if count <= cap {
        states.retain(|_, bucket| !bucket.parents.is_empty());
        return false;
    }
    let mut values: Vec<i64> = states
        .values()
        .flat_map(|b| b.values.chunks_exact(bounds).map(promise))
        .collect();
    let (_, &mut limit, _) = values.select_nth_unstable(cap - 1);
    let below = values.iter().filter(|v| **v < limit).count();
    let mut ties = cap - below;
    for bucket in states.values_mut() {
        let kept: Vec<usize> = (0..bucket.parents.len())
            .filter(|&l| {
                let value = promise(&bucket.values[l * bounds..(l + 1) * bounds]);
                let tie = value == limit && ties > 0;
                ties -= usize::from(tie);
                value < limit || tie
            })
            .collect();
        bucket.pick(&kept, width);
    }
    states.retain(|_, bucket| !bucket.parents.is_empty());
    true
}

/// The columns of labels: the goal, then the rows that can bind, each with its unary and crossing use.
struct Table {
    /// Index of the row, None for the goal.
    columns: Vec<Option<usize>>,
    /// Per NF and mode, its use per column.
    unary: Vec<Vec<Vec<i64>>>,
    /// Per arc, its use per column.
    cross: Vec<Vec<(usize, i64)>>,
}

impl Table {
    fn new(program: &Program, open: &[Vec<u8>]) -> Self {
        let binding = program.rows.iter().enumerate().filter(|(_, row)| {
            let most = |(i, coefs): &(usize, Vec<i64>)| {
                open[*i]
                    .iter()
                    .map(|m| coefs[*m as usize])
                    .max()
                    .unwrap_or(0)
            };
            let unary: i64 = row.form.choice.iter().map(most).sum();
            unary + row.form.cross.iter().map(|(_, c)| c).sum::<i64>() > row.limit
        });
        let columns: Vec<Option<usize>> = std::iter::once(None)
            .chain(binding.map(|(r, _)| Some(r)))
            .collect();
        let mut unary: Vec<Vec<Vec<i64>>> = program
            .sites
            .iter()
            .map(|s| vec![vec![0; columns.len()]; s.len()])
            .collect();
        let mut cross = vec![Vec::new(); program.arcs.len()];
        for (c, column) in columns.iter().enumerate() {
            let form = column.map_or(&program.goal, |r| &program.rows[r].form);
            for (i, coefs) in &form.choice {
                coefs
                    .iter()
                    .enumerate()
                    .for_each(|(m, coef)| unary[*i][m][c] += coef);
            }
            form.cross
                .iter()
                .for_each(|(a, coef)| cross[*a].push((c, *coef)));
        }
        Table {
            columns,
            unary,
            cross,
        }
    }

    fn steps(&self, program: &Program, core: &Core, target: i64) -> Vec<Step> {
        let order = &core.order;
        let mut turn = vec![usize::MAX; program.sites.len()];
        order.iter().enumerate().for_each(|(t, &i)| turn[i] = t);
        let mut touching: Vec<Vec<usize>> = vec![Vec::new(); order.len()];
        let mut known: Vec<Vec<usize>> = vec![Vec::new(); order.len()];
        let mut last: Vec<usize> = (0..order.len()).collect();
        for (a, &(i, j, _)) in program.arcs.iter().enumerate() {
            let (first, second) = (turn[i].min(turn[j]), turn[i].max(turn[j]));
            if second != usize::MAX {
                touching[second].push(a);
                last[first] = last[first].max(second);
            } else if first != usize::MAX {
                known[first].push(a);
            }
        }
        let mut steps = Vec::with_capacity(order.len());
        let mut frontier: Vec<usize> = Vec::new();
        for (t, &nf) in order.iter().enumerate() {
            let links = touching[t]
                .iter()
                .map(|&a| self.link(program, core, a, nf, &frontier))
                .collect();
            let options = core.open[nf]
                .iter()
                .map(|&m| self.option(program, core, nf, m, &known[t]))
                .collect();
            let keep: Vec<usize> = (0..frontier.len())
                .filter(|&p| last[turn[frontier[p]]] > t)
                .collect();
            let stays = last[t] > t;
            frontier = keep
                .iter()
                .map(|&p| frontier[p])
                .chain(stays.then_some(nf))
                .collect();
            steps.push(Step {
                nf,
                options,
                links,
                keep,
                stays,
                room: Vec::new(),
                floor: Vec::new(),
            });
        }
        self.rests(program, target, &mut steps);
        steps
    }

    fn link(
        &self,
        program: &Program,
        core: &Core,
        a: usize,
        nf: usize,
        frontier: &[usize],
    ) -> Link {
        let (i, j, k) = program.arcs[a];
        let other = if i == nf { j } else { i };
        let place = frontier.iter().position(|&v| v == other).unwrap_or(0);
        let cost = core.bounds.iter().map(|bound| bound.arc(a)).collect();
        Link {
            place,
            first: i == nf,
            k,
            cost,
            uses: self.cross[a].clone(),
        }
    }

    /// A mode with all that it costs against settled neighbours.
    fn option(&self, program: &Program, core: &Core, nf: usize, mode: u8, known: &[usize]) -> Opt {
        let site = program.sites[nf][mode as usize];
        let mut loss: Vec<i64> = core
            .bounds
            .iter()
            .map(|bound| bound.losses.mode[nf][mode as usize])
            .collect();
        let mut uses = self.unary[nf][mode as usize].clone();
        for &a in known {
            let (i, j, k) = program.arcs[a];
            let other = if i == nf { j } else { i };
            let there = program.sites[other][core.open[other][0] as usize];
            let (first, second) = if i == nf {
                (site, there)
            } else {
                (there, site)
            };
            for (slot, bound) in loss.iter_mut().zip(&core.bounds) {
                let (crossing, lone) = bound.arc(a);
                *slot += arc_loss(k, first, second, crossing, lone);
            }
            if first == k && second != k {
                self.cross[a]
                    .iter()
                    .for_each(|(c, amount)| uses[*c] += amount);
            }
        }
        Opt {
            mode,
            site,
            loss,
            uses,
        }
    }

    /// Per step and column: the room that the NFs still to come leave, and the use below which a row cannot bind.
    fn rests(&self, program: &Program, target: i64, steps: &mut [Step]) {
        let limits: Vec<i64> = self
            .columns
            .iter()
            .map(|c| c.map_or(target, |r| program.rows[r].limit))
            .collect();
        let (mut room, mut floor) = (limits.clone(), limits);
        floor[0] = i64::MIN; // the goal is to be known exactly
        for step in steps.iter_mut().rev() {
            (step.room, step.floor) = (room.clone(), floor.clone());
            for c in 0..room.len() {
                room[c] -= step.options.iter().map(|o| o.uses[c]).min().unwrap_or(0);
                if c > 0 {
                    floor[c] -= step.options.iter().map(|o| o.uses[c]).max().unwrap_or(0);
                }
            }
            for (c, coef) in step.links.iter().flat_map(|link| &link.uses) {
                if *c > 0 {
                    floor[*c] -= coef;
                }
            }
        }
    }
}
