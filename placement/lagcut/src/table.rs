//! The effect of each NF's turn in a walk: its modes, its arcs to earlier NFs, and the room that later ones leave.

use crate::core::{arc_loss, Core};
use crate::program::Program;

/// The effect of one NF's turn.
pub struct Step {
    pub nf: usize,
    pub options: Vec<Opt>,
    links: Vec<Link>,
    /// Places of the state that are still needed.
    pub keep: Vec<usize>,
    /// Whether this NF is still needed.
    pub stays: bool,
    /// Per column: the target or limit less the least use still to come.
    pub room: Vec<i64>,
    /// Per column: use below this cannot bind any more.
    pub floor: Vec<i64>,
}

/// An open mode, with its total cost against settled neighbours.
pub struct Opt {
    pub mode: u8,
    pub site: u32,
    loss: i64,
    uses: Vec<i64>,
}

/// An arc to an NF that had its turn.
struct Link {
    place: usize,
    first: bool,
    k: u32,
    /// Its cost when it crosses, and when only its second end is on the sNIC.
    cost: (i64, i64),
    uses: Vec<(usize, i64)>,
}

impl Step {
    /// Compute what a mode adds to the value and the use of labels of a state.
    pub fn cost(&self, option: &Opt, state: &[u32]) -> (i64, Vec<i64>) {
        let (mut extra, mut added) = (option.loss, option.uses.clone());
        for link in &self.links {
            let (here, there) = (option.site, state[link.place]);
            let (first, second) = if link.first {
                (here, there)
            } else {
                (there, here)
            };
            extra += arc_loss(link.k, first, second, link.cost.0, link.cost.1);
            if first == link.k && second != link.k {
                link.uses.iter().for_each(|(c, amount)| added[*c] += amount);
            }
        }
        (extra, added)
    }
}

/// The columns of labels: the goal, then the rows that can bind, each with its unary and crossing use.
pub struct Table {
    /// Index of the row, None for the goal.
    pub columns: Vec<Option<usize>>,
    /// Per NF and mode, its use per column.
    pub unary: Vec<Vec<Vec<i64>>>,
    /// Per arc, its use per column.
    pub cross: Vec<Vec<(usize, i64)>>,
}

impl Table {
    pub fn new(program: &Program, open: &[Vec<u8>]) -> Self {
        let binding = program.rows.iter().enumerate().filter(|(_, row)| {
            let most = |(i, coefs): (usize, &[i64])| {
                open[i]
                    .iter()
                    .map(|m| coefs[*m as usize])
                    .max()
                    .unwrap_or(0)
            };
            let unary: i64 = row.form.choice().map(most).sum();
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
            for (i, coefs) in form.choice() {
                coefs
                    .iter()
                    .enumerate()
                    .for_each(|(m, coef)| unary[i][m][c] += coef);
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

    /// Build the turns, in the order of the core.
    pub fn steps(&self, program: &Program, core: &Core, target: i64) -> Vec<Step> {
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
        Link {
            place,
            first: i == nf,
            k,
            cost: core.bound.arc(a),
            uses: self.cross[a].clone(),
        }
    }

    fn option(&self, program: &Program, core: &Core, nf: usize, mode: u8, known: &[usize]) -> Opt {
        let site = program.sites[nf][mode as usize];
        let mut loss = core.bound.losses.mode[nf][mode as usize];
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
            let (crossing, lone) = core.bound.arc(a);
            loss += arc_loss(k, first, second, crossing, lone);
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

    /// Compute per step and column the room that the remaining NFs leave, and the use below which a row cannot bind.
    fn rests(&self, program: &Program, target: i64, steps: &mut [Step]) {
        let limits: Vec<i64> = self
            .columns
            .iter()
            .map(|c| c.map_or(target, |r| program.rows[r].limit))
            .collect();
        let (mut room, mut floor) = (limits.clone(), limits);
        floor[0] = i64::MIN; // the goal must be exact
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
