//! The program as the Python side writes it, and its losses under multipliers.

use crate::lists::Lists;

/// A linear form: per NF that occurs in it, its coefficient in each mode; per arc, its coefficient.
#[derive(Clone, Debug, Default)]
pub struct Form {
    /// The NFs that occur, each once.
    pub nfs: Vec<usize>,
    /// Their coefficients, in the same order.
    pub coefs: Lists<i64>,
    pub cross: Vec<(usize, i64)>,
}

/// A form and its limit.
#[derive(Clone, Debug)]
pub struct Row {
    pub form: Form,
    pub limit: i64,
}

/// `(i, j, k)`: 1 if NF i is on sNIC k and NF j is not.
pub type Arc = (usize, usize, u32);

/// A placement problem as equations.
#[derive(Clone, Debug)]
pub struct Program {
    /// Per NF the location of each of its modes.
    pub sites: Lists<u32>,
    pub arcs: Vec<Arc>,
    pub rows: Vec<Row>,
    pub goal: Form,
}

/// The reason why a program is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// A form or an arc names an NF, mode or arc that does not exist.
    Index(&'static str),
    /// An NF has no mode or more than 255.
    Modes(usize),
    /// Multipliers that do not fit the program.
    Dual,
    /// The numbers are too large for 64 bits.
    TooLarge,
}

impl std::fmt::Display for Malformed {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Malformed::Index(what) => write!(out, "{what} is out of range"),
            Malformed::Modes(nf) => write!(out, "NF {nf} has no mode, or more than 255"),
            Malformed::Dual => write!(out, "the multipliers do not fit the program"),
            Malformed::TooLarge => write!(out, "amounts too large for 64-bit arithmetic"),
        }
    }
}

impl Form {
    /// Add an NF that does not occur yet.
    pub fn push(&mut self, nf: usize, coefs: impl IntoIterator<Item = i64>) {
        self.nfs.push(nf);
        self.coefs.push(coefs);
    }

    /// Return the NFs that occur and their coefficients.
    pub fn choice(&self) -> impl Iterator<Item = (usize, &[i64])> + '_ {
        self.nfs.iter().copied().zip(self.coefs.iter())
    }

    /// Evaluate the form, without its constant.
    pub fn value(&self, modes: &[u8], crossing: &[bool]) -> i64 {
        let unary: i64 = self
            .choice()
            .map(|(i, coefs)| coefs[modes[i] as usize])
            .sum();
        let cross: i64 = self
            .cross
            .iter()
            .filter(|(a, _)| crossing[*a])
            .map(|(_, c)| c)
            .sum();
        unary + cross
    }

    /// Compute the form's maximum.
    pub fn most(&self) -> i64 {
        let unary: i64 = self
            .choice()
            .map(|(_, coefs)| coefs.iter().copied().max().unwrap_or(0))
            .sum();
        unary + self.cross.iter().map(|(_, c)| c).sum::<i64>()
    }

    fn fits(&self, program: &Program) -> Result<(), Malformed> {
        for (i, coefs) in self.choice() {
            if i >= program.sites.len() {
                return Err(Malformed::Index("an NF of a form"));
            }
            if program.sites[i].len() != coefs.len() {
                return Err(Malformed::Index("a mode of a form"));
            }
        }
        for (a, coef) in &self.cross {
            if *a >= program.arcs.len() || *coef < 0 {
                return Err(Malformed::Index("an arc of a form"));
            }
        }
        Ok(())
    }
}

impl Program {
    /// Check every index once, so that later code need not.
    pub fn check(&self) -> Result<(), Malformed> {
        for (i, sites) in self.sites.iter().enumerate() {
            if sites.is_empty() || sites.len() > 255 {
                return Err(Malformed::Modes(i));
            }
        }
        for &(i, j, _) in &self.arcs {
            if i >= self.sites.len() || j >= self.sites.len() || i == j {
                return Err(Malformed::Index("an NF of an arc"));
            }
        }
        for row in &self.rows {
            row.form.fits(self)?;
        }
        self.goal.fits(self)
    }

    /// Tell which arcs a placement crosses.
    pub fn crossing(&self, modes: &[u8]) -> Vec<bool> {
        let at = |i: usize| self.sites[i][modes[i] as usize];
        self.arcs
            .iter()
            .map(|&(i, j, k)| at(i) == k && at(j) != k)
            .collect()
    }

    /// Tell whether a placement satisfies every row.
    pub fn feasible(&self, modes: &[u8]) -> bool {
        let crossing = self.crossing(modes);
        self.rows
            .iter()
            .all(|row| row.form.value(modes, &crossing) <= row.limit)
    }

    /// Evaluate the goal at a placement, without its constant.
    pub fn goal_value(&self, modes: &[u8]) -> i64 {
        self.goal.value(modes, &self.crossing(modes))
    }
}

/// Multipliers: one per row, one for the goal, one per arc.
#[derive(Clone, Debug, Default)]
pub struct Dual {
    pub weights: Vec<i64>,
    pub goal: i64,
    pub flows: Vec<i64>,
}

/// The losses of a program under multipliers (the Python twin's `Losses`).
#[derive(Clone, Debug)]
pub struct Losses {
    /// Apart from `goal * (goal's value - target)`, the least value of any placement.
    pub base: i64,
    /// Per NF and mode, its extra cost over the NF's cheapest mode.
    pub mode: Lists<i64>,
    /// Per arc, its weighted coefficients.
    pub crossed: Vec<i64>,
}

/// Compute per NF and mode the weighted use, and per arc the weighted coefficients, without flows.
pub fn weighted(program: &Program, weights: &[i64], goal: i64) -> (Lists<i64>, Vec<i64>) {
    let mut alpha = program.sites.filled(0);
    let mut crossed = vec![0; program.arcs.len()];
    let forms = program.rows.iter().map(|row| &row.form).zip(weights.iter());
    for (form, &weight) in forms.chain(std::iter::once((&program.goal, &goal))) {
        if weight == 0 {
            continue;
        }
        for (i, coefs) in form.choice() {
            for (slot, coef) in alpha[i].iter_mut().zip(coefs) {
                *slot += weight * coef;
            }
        }
        for (a, coef) in &form.cross {
            crossed[*a] += weight * coef;
        }
    }
    (alpha, crossed)
}

impl Losses {
    /// Return each NF's cheapest mode.
    pub fn cheapest(&self) -> Vec<u8> {
        let first = |modes: &[i64]| modes.iter().position(|loss| *loss == 0).unwrap_or(0) as u8;
        self.mode.iter().map(first).collect()
    }

    /// Compute losses under multipliers.
    pub fn new(program: &Program, dual: &Dual) -> Result<Self, Malformed> {
        if dual.weights.len() != program.rows.len()
            || dual.flows.len() != program.arcs.len()
            || dual.weights.iter().any(|w| *w < 0)
            || dual.goal < 0
        {
            return Err(Malformed::Dual);
        }
        if !fits(program, &dual.weights, dual.goal) {
            return Err(Malformed::TooLarge);
        }
        let (mut alpha, crossed) = weighted(program, &dual.weights, dual.goal);
        for (a, &(i, j, k)) in program.arcs.iter().enumerate() {
            let flow = dual.flows[a];
            if flow < 0 || flow > crossed[a] {
                return Err(Malformed::Dual);
            }
            for (slot, site) in alpha[i].iter_mut().zip(&program.sites[i]) {
                *slot += if *site == k { flow } else { 0 };
            }
            for (slot, site) in alpha[j].iter_mut().zip(&program.sites[j]) {
                *slot -= if *site == k { flow } else { 0 };
            }
        }
        let mut base = 0;
        for i in 0..alpha.len() {
            let values = &mut alpha[i];
            let least = values.iter().copied().min().unwrap_or(0);
            base += least;
            values.iter_mut().for_each(|v| *v -= least);
        }
        for (row, weight) in program.rows.iter().zip(&dual.weights) {
            base -= weight * row.limit;
        }
        Ok(Losses {
            base,
            mode: alpha,
            crossed,
        })
    }
}

/// Tell whether all sums under these weights stay well within 64 bits.
pub fn fits(program: &Program, weights: &[i64], goal: i64) -> bool {
    let form = |form: &Form| -> i128 {
        let unary: i128 = form.coefs.items().iter().map(|c| i128::from(c.abs())).sum();
        unary
            + form
                .cross
                .iter()
                .map(|(_, c)| i128::from(c.abs()))
                .sum::<i128>()
    };
    let mut total = form(&program.goal) * i128::from(goal) * 4;
    for (row, weight) in program.rows.iter().zip(weights) {
        total += (form(&row.form) * 4 + i128::from(row.limit.abs())) * i128::from(*weight);
    }
    total < 1 << 62
}
