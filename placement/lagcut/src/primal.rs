//! Heuristic placements: a start for the search, and an answer if the time limit expires.

use crate::program::{Form, Losses, Program};

/// Limit of changes per repair.
const REPAIRS: usize = 200;
/// Limit of pairs that may change together, one pair after the other.
const EXCHANGES: usize = 60;
/// Limit of changes whose pairs are examined: those that lower the goal, and those that make room.
const PAIRED: usize = 700;

/// A program with the use of each NF and arc at hand, per row; the goal is the last row.
pub struct Workshop<'a> {
    program: &'a Program,
    /// Per NF, the rows in which it occurs and its index there.
    unary: Vec<Vec<(usize, usize)>>,
    arcs: Vec<Vec<usize>>,
    arc_use: Vec<Vec<(usize, i64)>>,
    /// Modes that are not their NF's cheapest under the multipliers, the nearly as cheap first.
    doubtful: Vec<(usize, u8)>,
    losses: &'a Losses,
}

/// A placement with its use of every row.
struct Ledger<'a> {
    shop: &'a Workshop<'a>,
    modes: Vec<u8>,
    used: Vec<i64>,
}

/// The effect of one mode's change on the goal and on each row.
struct Change {
    nf: usize,
    mode: u8,
    goal: i64,
    rows: Vec<i64>,
}

impl<'a> Workshop<'a> {
    pub fn new(program: &'a Program, losses: &'a Losses) -> Self {
        let mut unary = vec![Vec::new(); program.sites.len()];
        let mut arc_use = vec![Vec::new(); program.arcs.len()];
        let forms = program.rows.iter().map(|row| &row.form);
        for (r, form) in forms.chain([&program.goal]).enumerate() {
            for (position, i) in form.nfs.iter().enumerate() {
                unary[*i].push((r, position));
            }
            for (a, coef) in &form.cross {
                arc_use[*a].push((r, *coef));
            }
        }
        let mut arcs = vec![Vec::new(); program.sites.len()];
        for (a, &(i, j, _)) in program.arcs.iter().enumerate() {
            arcs[i].push(a);
            arcs[j].push(a);
        }
        let modes = |(i, modes): (usize, &[i64])| (0..modes.len()).map(move |m| (i, m as u8));
        let mut doubtful: Vec<(usize, u8)> =
            losses.mode.iter().enumerate().flat_map(modes).collect();
        // Both modes of an NF count, because it is unknown which one a placement has.
        doubtful.sort_by_key(|&(i, _)| losses.mode[i].iter().max().copied().unwrap_or(0));
        Workshop {
            program,
            unary,
            arcs,
            arc_use,
            doubtful,
            losses,
        }
    }

    /// Find a placement near `start` that satisfies all rows and that no simple change improves.
    pub fn polish(&self, start: &[u8]) -> Option<Vec<u8>> {
        let crossing = self.program.crossing(start);
        let rows = self.program.rows.iter().map(|row| &row.form);
        let mut ledger = Ledger {
            shop: self,
            modes: start.to_vec(),
            used: rows
                .chain([&self.program.goal])
                .map(|form| form.value(start, &crossing))
                .collect(),
        };
        if !ledger.repair() {
            return None;
        }
        for &(i, mode) in &self.doubtful {
            ledger.attempt(&[(i, mode)]);
        }
        for _ in 0..EXCHANGES {
            if !ledger.exchange() {
                break;
            }
        }
        Some(ledger.modes)
    }
}

impl Ledger<'_> {
    fn form(&self, r: usize) -> &Form {
        let program = self.shop.program;
        program.rows.get(r).map_or(&program.goal, |row| &row.form)
    }

    fn crosses(&self, a: usize, nf: usize, site: u32) -> bool {
        let program = self.shop.program;
        let (i, j, k) = program.arcs[a];
        let at = |v: usize| match v == nf {
            true => site,
            false => program.sites[v][self.modes[v] as usize],
        };
        at(i) == k && at(j) != k
    }

    fn apply(&mut self, nf: usize, mode: u8) {
        let (shop, now) = (self.shop, self.modes[nf]);
        if mode == now {
            return;
        }
        for &(r, position) in &shop.unary[nf] {
            let coefs = &self.form(r).coefs[position];
            self.used[r] += coefs[mode as usize] - coefs[now as usize];
        }
        let sites = &shop.program.sites[nf];
        let (before, after) = (sites[now as usize], sites[mode as usize]);
        for &a in &shop.arcs[nf] {
            let turned =
                i64::from(self.crosses(a, nf, after)) - i64::from(self.crosses(a, nf, before));
            for (r, coef) in &shop.arc_use[a] {
                self.used[*r] += turned * coef;
            }
        }
        self.modes[nf] = mode;
    }

    /// Sum the excess of the rows, each as a fraction of its limit.
    fn excess(&self) -> f64 {
        let rows = self.shop.program.rows.iter().zip(&self.used);
        let over = rows.filter(|(row, used)| **used > row.limit);
        over.map(|(row, used)| (used - row.limit) as f64 / row.limit.max(1) as f64)
            .sum()
    }

    fn feasible(&self) -> bool {
        let mut rows = self.shop.program.rows.iter().zip(&self.used);
        rows.all(|(row, used)| *used <= row.limit)
    }

    fn goal(&self) -> i64 {
        self.used[self.shop.program.rows.len()]
    }

    /// Change modes, each time the one with the best ratio of relief to loss, until all rows are satisfied.
    fn repair(&mut self) -> bool {
        for _ in 0..REPAIRS {
            let excess = self.excess();
            if excess == 0.0 {
                return true;
            }
            let mut best: Option<(f64, usize, u8)> = None;
            for &(i, mode) in &self.shop.doubtful {
                let before = self.modes[i];
                if mode == before {
                    continue;
                }
                self.apply(i, mode);
                let mended = excess - self.excess();
                self.apply(i, before);
                let losses = &self.shop.losses.mode[i];
                let lost = (losses[mode as usize] - losses[before as usize]).max(0) + 1;
                let price = lost as f64 / mended;
                if mended > 0.0 && best.is_none_or(|(least, ..)| price < least) {
                    best = Some((price, i, mode));
                }
            }
            let Some((_, i, mode)) = best else {
                return false;
            };
            self.apply(i, mode);
        }
        self.feasible()
    }

    /// Change the two modes that together lower the goal most; tell whether such a pair exists.
    fn exchange(&mut self) -> bool {
        let shop = self.shop;
        let (mut gains, mut gives) = (Vec::new(), Vec::new());
        for &(i, mode) in &shop.doubtful {
            if self.modes[i] == mode {
                continue;
            }
            let change = self.change(i, mode);
            let side = match change.goal < 0 {
                true => &mut gains,
                false => &mut gives,
            };
            if side.len() < PAIRED {
                side.push(change);
            }
        }
        gives.sort_by_key(|change| change.goal);
        let limits = shop.program.rows.iter().map(|row| row.limit);
        let room: Vec<i64> = limits
            .zip(&self.used)
            .map(|(limit, used)| limit - used)
            .collect();
        let mut best: Option<(i64, usize, usize)> = None;
        for (g, gain) in gains.iter().enumerate() {
            for (h, give) in gives.iter().enumerate() {
                let goal = gain.goal + give.goal;
                if goal >= best.map_or(0, |(least, ..)| least) {
                    break;
                }
                let mut rows = gain.rows.iter().zip(&give.rows).zip(&room);
                if gain.nf != give.nf && rows.all(|((a, b), room)| a + b <= *room) {
                    best = Some((goal, g, h));
                    break;
                }
            }
        }
        let Some((_, g, h)) = best else { return false };
        let pair = [&gives[h], &gains[g]].map(|change| (change.nf, change.mode));
        self.attempt(&pair)
    }

    /// Compute the effect of one change.
    fn change(&mut self, nf: usize, mode: u8) -> Change {
        let (now, before) = (self.modes[nf], self.used.clone());
        self.apply(nf, mode);
        let moved = self
            .used
            .iter()
            .zip(&before)
            .map(|(after, before)| after - before);
        let mut rows: Vec<i64> = moved.collect();
        self.apply(nf, now);
        let goal = rows.pop().unwrap_or(0);
        Change {
            nf,
            mode,
            goal,
            rows,
        }
    }

    /// Change modes; undo it unless that keeps every row and lowers the goal, and tell which.
    fn attempt(&mut self, changes: &[(usize, u8)]) -> bool {
        let goal = self.goal();
        let mut before = [0; 2];
        for (slot, &(i, mode)) in before.iter_mut().zip(changes) {
            *slot = self.modes[i];
            self.apply(i, mode);
        }
        let better = self.goal() < goal && self.feasible();
        if !better {
            for (&(i, _), mode) in changes.iter().zip(before).rev() {
                self.apply(i, mode);
            }
        }
        better
    }
}
