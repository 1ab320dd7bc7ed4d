//! Reduction of a program after modes are closed: smaller, with settled NFs folded into limits and single NFs.

use crate::lists::Lists;
use crate::program::{Arc, Dual, Form, Program, Row};

/// A part of a program: the NFs that are still open.
#[derive(Clone)]
pub struct Part {
    pub program: Program,
    /// Per NF of the part, its index in the whole.
    pub nfs: Vec<usize>,
    /// Per NF and mode of the part, the mode in the whole.
    pub modes: Lists<u8>,
    /// A mode for each NF of the whole; valid for settled NFs only.
    pub settled: Vec<u8>,
    /// The goal of the settled part.
    pub goal: i64,
}

/// Return all modes of a program, but only one mode of one NF.
pub fn pinned(program: &Program, nf: usize, mode: u8) -> Lists<u8> {
    let modes = |(i, sites): (usize, &[u32])| match i == nf {
        true => mode..mode + 1,
        false => 0..sites.len() as u8,
    };
    program.sites.iter().enumerate().map(modes).collect()
}

/// Express a placement of a part in terms of the part that keeps `open`; a closed mode becomes its NF's first open mode.
pub fn project(modes: &[u8], open: &Lists<u8>) -> Vec<u8> {
    let place = |(left, m): (&[u8], &u8)| left.iter().position(|o| o == m).unwrap_or(0) as u8;
    let stays = |(left, _): &(&[u8], &u8)| left.len() > 1;
    open.iter().zip(modes).filter(stays).map(place).collect()
}

impl Part {
    /// Make a program a part of itself.
    pub fn whole(program: &Program) -> Self {
        let modes = |sites: &[u32]| 0..sites.len() as u8;
        Part {
            program: program.clone(),
            nfs: (0..program.sites.len()).collect(),
            modes: program.sites.iter().map(modes).collect(),
            settled: vec![0; program.sites.len()],
            goal: 0,
        }
    }

    /// Convert a placement of the part to one of the whole.
    pub fn lift(&self, modes: &[u8]) -> Vec<u8> {
        let mut whole = self.settled.clone();
        for (i, m) in modes.iter().enumerate() {
            whole[self.nfs[i]] = self.modes[i][*m as usize];
        }
        whole
    }

    /// Convert multipliers of this part to the part in which one NF is settled, without its arcs.
    pub fn without(&self, nf: usize, dual: &Dual) -> Dual {
        let stays = |&(a, _): &(usize, &i64)| {
            let (i, j, _) = self.program.arcs[a];
            i != nf && j != nf
        };
        let flows = dual.flows.iter().enumerate().filter(stays).map(|(_, f)| *f);
        Dual {
            weights: dual.weights.clone(),
            goal: dual.goal,
            flows: flows.collect(),
        }
    }

    /// Return its part in which each NF has only the modes in `open` (of this part; at least one for each NF).
    pub fn keep(&self, open: &Lists<u8>) -> Part {
        let before = &self.program;
        let mut settled = self.settled.clone();
        let mut place = vec![usize::MAX; open.len()];
        let mut nfs = Vec::with_capacity(open.len());
        let mut modes = Lists::with_capacity(open.len(), open.items().len());
        let mut sites = Lists::with_capacity(open.len(), open.items().len());
        for (i, left) in open.iter().enumerate() {
            if let [mode] = left {
                settled[self.nfs[i]] = self.modes[i][*mode as usize];
                continue;
            }
            place[i] = nfs.len();
            nfs.push(self.nfs[i]);
            modes.push(left.iter().map(|&m| self.modes[i][m as usize]));
            sites.push(left.iter().map(|&m| before.sites[i][m as usize]));
        }
        let (arcs, fates) = fates(before, open, &place);
        let mut folder = Folder {
            open,
            place: &place,
            fates: &fates,
            sites: &sites,
            slot: vec![usize::MAX; nfs.len()],
        };
        let rows = before
            .rows
            .iter()
            .map(|row| {
                let (form, constant) = folder.form(&row.form);
                let limit = row.limit - constant;
                Row { form, limit }
            })
            .collect();
        let (goal, constant) = folder.form(&before.goal);
        Part {
            program: Program {
                sites,
                arcs,
                rows,
                goal,
            },
            nfs,
            modes,
            settled,
            goal: self.goal + constant,
        }
    }
}

/// The fate of an arc's crossing.
#[derive(Clone, Copy)]
enum Fate {
    /// Known.
    Known(bool),
    /// Crossed if this NF is on sNIC k.
    Where(usize, u32),
    /// Crossed unless this NF is on sNIC k.
    Unless(usize, u32),
    Arc(usize),
}

/// Compute the remaining arcs, and the fate of each arc.
fn fates(before: &Program, open: &Lists<u8>, place: &[usize]) -> (Vec<Arc>, Vec<Fate>) {
    const SETTLED: usize = usize::MAX;
    let mut arcs: Vec<Arc> = Vec::with_capacity(before.arcs.len());
    let at = |v: usize| before.sites[v][open[v][0] as usize];
    let fates = before
        .arcs
        .iter()
        .map(|&(i, j, k)| match (place[i], place[j]) {
            (SETTLED, SETTLED) => Fate::Known(at(i) == k && at(j) != k),
            (SETTLED, second) if at(i) == k => Fate::Unless(second, k),
            (first, SETTLED) if at(j) != k => Fate::Where(first, k),
            (SETTLED, _) | (_, SETTLED) => Fate::Known(false),
            (first, second) => {
                arcs.push((first, second, k));
                Fate::Arc(arcs.len() - 1)
            }
        });
    let fates = fates.collect();
    (arcs, fates)
}

struct Folder<'a> {
    open: &'a Lists<u8>,
    place: &'a [usize],
    fates: &'a [Fate],
    sites: &'a Lists<u32>,
    /// Per NF of the part, its index in the current form.
    slot: Vec<usize>,
}

impl Folder<'_> {
    /// Compute the form over the open modes, and the constant of the settled part.
    fn form(&mut self, form: &Form) -> (Form, i64) {
        let mut made = Form {
            nfs: Vec::with_capacity(self.sites.len()),
            coefs: Lists::with_capacity(self.sites.len(), self.sites.items().len()),
            cross: Vec::with_capacity(form.cross.len()),
        };
        self.slot.fill(usize::MAX);
        let mut constant = 0;
        for (i, coefs) in form.choice() {
            let (place, left) = (self.place[i], &self.open[i]);
            if place == usize::MAX {
                constant += coefs[left[0] as usize];
            } else {
                self.slot[place] = made.nfs.len();
                made.push(place, left.iter().map(|&m| coefs[m as usize]));
            }
        }
        for &(a, coef) in &form.cross {
            match self.fates[a] {
                Fate::Known(crossed) => constant += if crossed { coef } else { 0 },
                Fate::Arc(arc) => made.cross.push((arc, coef)),
                Fate::Where(nf, k) => self.add(&mut made, nf, coef, |site| site == k),
                Fate::Unless(nf, k) => self.add(&mut made, nf, coef, |site| site != k),
            }
        }
        (made, constant)
    }

    /// Add an amount to those modes of an NF that are at certain locations.
    fn add(&mut self, form: &mut Form, nf: usize, amount: i64, counts: impl Fn(u32) -> bool) {
        let sites = &self.sites[nf];
        if self.slot[nf] == usize::MAX {
            self.slot[nf] = form.nfs.len();
            form.push(nf, sites.iter().map(|_| 0));
        }
        for (coef, site) in form.coefs[self.slot[nf]].iter_mut().zip(sites) {
            *coef += if counts(*site) { amount } else { 0 };
        }
    }
}
