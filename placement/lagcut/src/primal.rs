//! Placements by simple means: a start for the search, and an answer where the clock runs out.

use crate::program::Program;

/// A placement with its use of every row kept up to date; the goal is the last.
struct Ledger<'a> {
    program: &'a Program,
    modes: Vec<u8>,
    used: Vec<i64>,
    unary: &'a [Vec<(usize, usize)>],
    arcs: &'a [Vec<usize>],
    arc_use: &'a [Vec<(usize, i64)>],
}

impl Ledger<'_> {
    fn form(&self, r: usize) -> &crate::program::Form {
        self.program
            .rows
            .get(r)
            .map_or(&self.program.goal, |row| &row.form)
    }

    fn crosses(&self, a: usize, nf: usize, site: u32) -> bool {
        let (i, j, k) = self.program.arcs[a];
        let at = |v: usize| {
            if v == nf {
                site
            } else {
                self.program.sites[v][self.modes[v] as usize]
            }
        };
        at(i) == k && at(j) != k
    }

    fn apply(&mut self, nf: usize, mode: u8) {
        let (before, after) = (
            self.program.sites[nf][self.modes[nf] as usize],
            self.program.sites[nf][mode as usize],
        );
        for &(r, position) in &self.unary[nf] {
            let coefs = &self.form(r).choice[position].1;
            self.used[r] += coefs[mode as usize] - coefs[self.modes[nf] as usize];
        }
        for &a in &self.arcs[nf] {
            let turned =
                i64::from(self.crosses(a, nf, after)) - i64::from(self.crosses(a, nf, before));
            for (r, coef) in &self.arc_use[a] {
                self.used[*r] += turned * coef;
            }
        }
        self.modes[nf] = mode;
    }

    fn feasible(&self) -> bool {
        self.program
            .rows
            .iter()
            .zip(&self.used)
            .all(|(row, used)| *used <= row.limit)
    }

    fn goal(&self) -> i64 {
        self.used[self.program.rows.len()]
    }
}

/// From a placement that satisfies all rows, take over from the others whatever keeps it so and lowers the goal: first
/// whole components of the traffic, then single NFs.
pub fn improve(program: &Program, start: &[u8], others: &[Vec<u8>]) -> Vec<u8> {
    let count = program.rows.len();
    let mut unary = vec![Vec::new(); program.sites.len()];
    let mut arc_use = vec![Vec::new(); program.arcs.len()];
    let forms = program.rows.iter().map(|row| &row.form);
    for (r, form) in forms.chain(std::iter::once(&program.goal)).enumerate() {
        for (position, (i, _)) in form.choice.iter().enumerate() {
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
    let crossing = program.crossing(start);
    let mut used: Vec<i64> = program
        .rows
        .iter()
        .map(|row| row.form.value(start, &crossing))
        .collect();
    used.push(program.goal.value(start, &crossing));
    debug_assert_eq!(used.len(), count + 1);
    let mut ledger = Ledger {
        program,
        modes: start.to_vec(),
        used,
        unary: &unary,
        arcs: &arcs,
        arc_use: &arc_use,
    };
    for component in components(program, &arcs) {
        for other in others {
            attempt(&mut ledger, &component, |i| other[i]);
        }
    }
    for i in 0..program.sites.len() {
        for mode in 0..program.sites[i].len() {
            attempt(&mut ledger, &[i], |_| mode as u8);
        }
    }
    ledger.modes
}

/// Change the modes of some NFs; undo it unless it keeps every row and lowers the goal.
fn attempt(ledger: &mut Ledger<'_>, nfs: &[usize], wanted: impl Fn(usize) -> u8) {
    let before: Vec<u8> = nfs.iter().map(|&i| ledger.modes[i]).collect();
    let goal = ledger.goal();
    nfs.iter().for_each(|&i| ledger.apply(i, wanted(i)));
    if !ledger.feasible() || ledger.goal() >= goal {
        nfs.iter()
            .zip(before)
            .for_each(|(&i, mode)| ledger.apply(i, mode));
    }
}

/// NFs that traffic connects; the larger groups last, so that the small ones fill what is left by nothing else.
fn components(program: &Program, arcs: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut seen = vec![false; program.sites.len()];
    let mut found = Vec::new();
    for start in 0..program.sites.len() {
        if std::mem::replace(&mut seen[start], true) {
            continue;
        }
        let mut component = vec![start];
        let mut next = 0;
        while next < component.len() {
            for &a in &arcs[component[next]] {
                let (i, j, _) = program.arcs[a];
                for v in [i, j] {
                    if !std::mem::replace(&mut seen[v], true) {
                        component.push(v);
                    }
                }
            }
            next += 1;
        }
        found.push(component);
    }
    found
}
