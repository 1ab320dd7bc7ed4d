//! The part of a program that a target leaves undecided, prepared for the walk of [`crate::labels`].
//!
//! NFs whose other modes cost more than the target allows are settled; this fixes costs of their neighbours and settles more NFs. The order
//! follows the traffic. Last, flow is pushed toward NFs that come early: the bound stays the same, and a partial placement's value then
//! includes the cost of its completion (exactly so if the traffic is a tree).

use crate::program::{Dual, Losses, Malformed, Program};

/// Multipliers and the losses that they induce.
#[derive(Clone)]
pub struct Bound {
    pub dual: Dual,
    pub losses: Losses,
}

impl Bound {
    fn new(program: &Program, dual: Dual) -> Result<Self, Malformed> {
        Ok(Bound {
            losses: Losses::new(program, &dual)?,
            dual,
        })
    }

    /// Return the cost of an arc when it crosses, and when only its second end is on the sNIC.
    pub fn arc(&self, a: usize) -> (i64, i64) {
        (
            self.losses.crossed[a] - self.dual.flows[a],
            self.dual.flows[a],
        )
    }
}

/// The undecided part, and its order.
pub struct Core {
    /// Open modes per NF; one for a settled NF.
    pub open: Vec<Vec<u8>>,
    /// The NFs with several open modes.
    pub order: Vec<usize>,
    /// Multipliers with flow pushed toward early NFs.
    pub bound: Bound,
    /// Whether no placement at or below the target remains.
    pub refuted: bool,
}

/// Arcs per NF.
fn incidence(program: &Program) -> Vec<Vec<usize>> {
    let mut made = vec![Vec::new(); program.sites.len()];
    for (a, &(i, j, _)) in program.arcs.iter().enumerate() {
        made[i].push(a);
        made[j].push(a);
    }
    made
}

/// Compute the loss that an arc adds when its ends are at these locations.
pub fn arc_loss(k: u32, first: u32, second: u32, crossing: i64, lone: i64) -> i64 {
    match (first == k, second == k) {
        (true, false) => crossing,
        (false, true) => lone,
        _ => 0,
    }
}

impl Core {
    /// Prepare for placements whose goal is at most `target`.
    pub fn new(program: &Program, dual: &Dual, target: i64) -> Result<Self, Malformed> {
        let arcs = incidence(program);
        let open = program
            .sites
            .iter()
            .map(|s| (0..s.len()).map(|m| m as u8).collect())
            .collect();
        let mut core = Core {
            open,
            order: Vec::new(),
            bound: Bound::new(program, dual.clone())?,
            refuted: false,
        };
        core.settle(program, &arcs, target);
        core.order = order(program, &core.bound.losses, &core.open, &arcs);
        if !core.refuted && program.sites.items().iter().all(|s| *s <= 1) {
            let mut bound = core.bound.clone();
            core.push(program, &arcs, &mut bound);
            core.bound = Bound::new(program, bound.dual)?;
            core.settle(program, &arcs, target);
            core.order.retain(|&i| core.open[i].len() > 1);
        }
        Ok(core)
    }

    fn settle(&mut self, program: &Program, arcs: &[Vec<usize>], target: i64) {
        let open = std::mem::take(&mut self.open);
        let (open, refuted) = settle(program, &self.bound, arcs, open, target);
        self.open = open;
        self.refuted |= refuted;
    }

    /// Return the locations and the sNIC of an arc between settled NFs.
    pub fn settled_arc(&self, program: &Program, a: usize) -> Option<(u32, u32, u32)> {
        let (i, j, k) = program.arcs[a];
        match (&self.open[i][..], &self.open[j][..]) {
            ([m], [n]) => Some((
                program.sites[i][*m as usize],
                program.sites[j][*n as usize],
                k,
            )),
            _ => None,
        }
    }

    /// Compute the value of the settled part.
    pub fn settled_value(&self, program: &Program, target: i64) -> i64 {
        let bound = &self.bound;
        let mut value = bound.losses.base - bound.dual.goal * target;
        for (i, modes) in self
            .open
            .iter()
            .enumerate()
            .filter(|(_, modes)| modes.len() == 1)
        {
            value += bound.losses.mode[i][modes[0] as usize];
        }
        for a in 0..program.arcs.len() {
            if let Some((first, second, k)) = self.settled_arc(program, a) {
                let (crossing, lone) = bound.arc(a);
                value += arc_loss(k, first, second, crossing, lone);
            }
        }
        value
    }

    /// Return all NFs, the settled ones first, as a certificate needs them.
    pub fn full_order(&self) -> Vec<usize> {
        let mut late = vec![false; self.open.len()];
        self.order.iter().for_each(|&i| late[i] = true);
        let mut made: Vec<usize> = (0..self.open.len()).filter(|&i| !late[i]).collect();
        made.extend(&self.order);
        made
    }

    /// Push the worth of one NF's location to NFs before it, as far as the arcs' capacities allow.
    fn push(&self, program: &Program, arcs: &[Vec<usize>], bound: &mut Bound) {
        let mut turn = vec![usize::MAX; self.open.len()];
        self.order
            .iter()
            .enumerate()
            .for_each(|(t, &i)| turn[i] = t);
        let mut excess: Vec<i64> = (0..self.open.len())
            .map(|i| self.excess(program, arcs, bound, i))
            .collect();
        for (t, &j) in self.order.iter().enumerate().rev() {
            // Toward the nearest NF before it first: it is the next one in this loop.
            let mut before: Vec<usize> = arcs[j]
                .iter()
                .map(|&a| {
                    if program.arcs[a].0 == j {
                        program.arcs[a].1
                    } else {
                        program.arcs[a].0
                    }
                })
                .filter(|&i| turn[i] < t)
                .collect();
            before.sort_unstable_by_key(|&i| std::cmp::Reverse(turn[i]));
            before.dedup();
            for i in before {
                if excess[j] == 0 {
                    break;
                }
                let toward = bound.shift(program, &arcs[j], i, j, excess[j]);
                excess[j] -= toward;
                excess[i] += toward;
            }
        }
    }

    /// Compute how much more the sNIC costs than the host for an NF, including its settled neighbours.
    fn excess(&self, program: &Program, arcs: &[Vec<usize>], bound: &Bound, i: usize) -> i64 {
        let mut least = [i64::MAX; 2];
        for (loss, site) in bound.losses.mode[i].iter().zip(&program.sites[i]) {
            let slot = &mut least[usize::from(*site == 1)];
            *slot =
                (*slot).min(loss + settled_loss(program, bound, &self.open, &arcs[i], i, *site));
        }
        if least.contains(&i64::MAX) {
            return 0;
        }
        least[1] - least[0]
    }
}

impl Bound {
    /// Move up to `amount` (its sign is its direction) from j to i over the arcs between them; return the moved amount.
    fn shift(&mut self, program: &Program, arcs: &[usize], i: usize, j: usize, amount: i64) -> i64 {
        let (from, to) = if amount > 0 { (i, j) } else { (j, i) };
        let mut left = amount.abs();
        for &a in arcs {
            if (program.arcs[a].0, program.arcs[a].1) == (to, from) {
                let taken = left.min(self.dual.flows[a]);
                self.dual.flows[a] -= taken;
                left -= taken;
            }
        }
        for &a in arcs {
            if (program.arcs[a].0, program.arcs[a].1) == (from, to) {
                let added = left.min(self.losses.crossed[a] - self.dual.flows[a]);
                self.dual.flows[a] += added;
                left -= added;
            }
        }
        (amount.abs() - left) * amount.signum()
    }
}

/// Compute the cost of the arcs from NF i at a location to settled NFs.
fn settled_loss(
    program: &Program,
    bound: &Bound,
    open: &[Vec<u8>],
    arcs: &[usize],
    i: usize,
    site: u32,
) -> i64 {
    let mut total = 0;
    for &a in arcs {
        let (first, second, k) = program.arcs[a];
        let other = if first == i { second } else { first };
        if let [mode] = open[other][..] {
            let there = program.sites[other][mode as usize];
            let (crossing, lone) = bound.arc(a);
            let (one, two) = if first == i {
                (site, there)
            } else {
                (there, site)
            };
            total += arc_loss(k, one, two, crossing, lone);
        }
    }
    total
}

/// Close modes that the target cannot afford, until nothing changes; tell whether no placement remains.
fn settle(
    program: &Program,
    bound: &Bound,
    arcs: &[Vec<usize>],
    mut open: Vec<Vec<u8>>,
    target: i64,
) -> (Vec<Vec<u8>>, bool) {
    let losses = &bound.losses;
    let base = losses.base - bound.dual.goal * target;
    for _ in 0..6 {
        // The cost of settled NFs to each other and to their neighbours is unavoidable.
        let mut floor = base;
        let mut costs: Vec<Vec<i64>> = Vec::with_capacity(open.len());
        for (i, modes) in open.iter().enumerate() {
            let cost: Vec<i64> = modes
                .iter()
                .map(|&m| {
                    let known = if modes.len() > 1 {
                        settled_loss(
                            program,
                            bound,
                            &open,
                            &arcs[i],
                            i,
                            program.sites[i][m as usize],
                        )
                    } else {
                        0
                    };
                    losses.mode[i][m as usize] + known
                })
                .collect();
            floor += cost.iter().copied().min().unwrap_or(0);
            costs.push(cost);
        }
        for (a, &(i, j, k)) in program.arcs.iter().enumerate() {
            if let ([m], [n]) = (&open[i][..], &open[j][..]) {
                let (first, second) =
                    (program.sites[i][*m as usize], program.sites[j][*n as usize]);
                let (crossing, lone) = bound.arc(a);
                floor += arc_loss(k, first, second, crossing, lone);
            }
        }
        if floor > 0 {
            return (open, true);
        }
        let mut changed = false;
        for (modes, cost) in open.iter_mut().zip(&costs) {
            let least = cost.iter().copied().min().unwrap_or(0);
            let mut fits = cost.iter().map(|c| floor + c - least <= 0);
            let before = modes.len();
            modes.retain(|_| fits.next().unwrap_or(true));
            changed |= modes.len() != before;
        }
        if !changed {
            break;
        }
    }
    (open, false)
}

/// Order components by their most expensive choice, descending; in each, always the NF that keeps fewest waiting.
fn order(program: &Program, losses: &Losses, open: &[Vec<u8>], arcs: &[Vec<usize>]) -> Vec<usize> {
    let undecided: Vec<bool> = open.iter().map(|modes| modes.len() > 1).collect();
    let mut near: Vec<Vec<usize>> = vec![Vec::new(); open.len()];
    for (i, found) in near.iter_mut().enumerate().filter(|(i, _)| undecided[*i]) {
        let ends = arcs[i].iter().map(|&a| {
            if program.arcs[a].0 == i {
                program.arcs[a].1
            } else {
                program.arcs[a].0
            }
        });
        found.extend(ends.filter(|&j| undecided[j]));
        found.sort_unstable();
        found.dedup();
    }
    let dear = |i: usize| losses.mode[i].iter().copied().max().unwrap_or(0);
    let mut components = components(&near, &undecided);
    components.sort_by_key(|c| std::cmp::Reverse(c.iter().map(|&i| dear(i)).max()));
    components
        .iter()
        .flat_map(|component| along(&near, component))
        .collect()
}

fn components(near: &[Vec<usize>], undecided: &[bool]) -> Vec<Vec<usize>> {
    let mut seen = vec![false; near.len()];
    let mut found = Vec::new();
    for start in (0..near.len()).filter(|&i| undecided[i]) {
        if seen[start] {
            continue;
        }
        seen[start] = true;
        let mut component = vec![start];
        let mut next = 0;
        while next < component.len() {
            for &j in &near[component[next]] {
                if !seen[j] {
                    seen[j] = true;
                    component.push(j);
                }
            }
            next += 1;
        }
        found.push(component);
    }
    found
}

/// Order one component along its traffic, from an NF with few neighbours.
fn along(near: &[Vec<usize>], component: &[usize]) -> Vec<usize> {
    let mut state = vec![0_u8; near.len()]; // 0 untouched, 1 waiting, 2 done
    let mut order = Vec::with_capacity(component.len());
    let mut waiting: Vec<usize> = component
        .iter()
        .copied()
        .min_by_key(|&i| near[i].len())
        .into_iter()
        .collect();
    while let Some(chosen) = waiting
        .iter()
        .copied()
        .min_by_key(|&i| (near[i].iter().filter(|&&j| state[j] == 0).count(), i))
    {
        waiting.retain(|&i| i != chosen);
        state[chosen] = 2;
        order.push(chosen);
        for &j in &near[chosen] {
            if state[j] == 0 {
                state[j] = 1;
                waiting.push(j);
            }
        }
    }
    order
}
