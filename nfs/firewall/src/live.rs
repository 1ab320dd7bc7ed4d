//! The rules in force.

use nf_runtime::Refusal;
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    application::{Catalogue, Known},
    compile,
    config::{Action, Config, Undecided},
    rows::{self, Rows},
    rules::{Choice, Opening, Rule, Rules},
};

const SECOND: u64 = 1_000_000_000;

/// A configuration with its rules.
pub struct Live {
    pub config: Config,
    pub rules: Rules,
    pub catalogue: Catalogue,
    /// The row of each rule, and the rule of each row plus 1.
    rows: Vec<u16>,
    by_row: Vec<u16>,
    /// Nanoseconds, by `connection`.
    pub lifetimes: [u64; 4],
    pub wait: u64,
    /// The most unanswered flows.
    pub unanswered: usize,
}

/// The treatment of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Treatment {
    pub action: Action,
    /// The index of the rule. None: the default.
    pub rule: Option<usize>,
    /// No answer about the application came.
    pub is_undecided: bool,
}

impl Live {
    /// # Errors
    /// If the configuration is wrong.
    pub fn new(config: Config, catalogue: Catalogue) -> Result<Self, Refusal> {
        let rules = compile::rules(&config, &catalogue)?;
        let seconds = |seconds: u32| u64::from(seconds.max(1)) * SECOND;
        let timeouts = &config.timeouts;
        Ok(Self {
            lifetimes: [
                seconds(timeouts.unanswered_s),
                seconds(timeouts.established_s),
                seconds(timeouts.closing_s),
                seconds(timeouts.datagrams_s),
            ],
            wait: u64::from(config.inspection.wait_ms) * 1_000_000,
            unanswered: config.unanswered.unwrap_or(config.flows.div_ceil(4)).max(1),
            rows: vec![rows::DEFAULT; rules.rules.len()],
            by_row: Vec::new(),
            config,
            rules,
            catalogue,
        })
    }

    /// Gives the rules their rows, which the state must own.
    pub fn take_rows(&mut self, rows: &Rows, is_named: impl Fn(u16) -> bool, clear: impl Fn(u16)) {
        let names = self.rules.rules.iter().map(|rule| rule.name.as_str());
        self.rows = rows.assign(names, is_named, clear);
        let most = self.rows.iter().copied().max().unwrap_or_default();
        self.by_row = vec![0; usize::from(most) + 1];
        for (index, row) in self.rows.iter().enumerate() {
            self.by_row[usize::from(*row)] = index as u16 + 1;
        }
    }

    /// Returns a number that tells this configuration from others.
    pub fn digest(&self) -> u64 {
        let text = serde_json::to_vec(&self.config).unwrap_or_default();
        xxh3_64(&text).max(1)
    }

    pub fn rule(&self, treatment: Treatment) -> Option<&Rule> {
        treatment.rule.and_then(|index| self.rules.rules.get(index))
    }

    pub fn row(&self, rule: Option<usize>) -> u16 {
        let row = rule.and_then(|index| self.rows.get(index));
        row.copied().unwrap_or(rows::DEFAULT)
    }

    /// Returns the index of the rule of a row. None: the default.
    #[inline]
    pub fn index_of(&self, row: u16) -> Option<usize> {
        let index = self.by_row.get(usize::from(row))?.checked_sub(1)?;
        Some(index.into())
    }

    /// Returns the rule of a row.
    #[inline]
    pub fn by_row(&self, row: u16) -> Option<&Rule> {
        self.rules.rules.get(self.index_of(row)?)
    }

    /// Returns the treatment of a connection about whose application nothing more will be known.
    pub fn treat(&self, opening: &Opening, known: Option<&Known>) -> Treatment {
        match self.rules.choose(opening, known) {
            Choice::Taken(rule, action) => Treatment {
                action,
                rule,
                is_undecided: false,
            },
            Choice::Depends(index) => {
                let action = match self.rules.rules[index].undecided {
                    Undecided::Allow => Action::Allow,
                    Undecided::Drop => Action::Drop,
                };
                Treatment {
                    action,
                    rule: Some(index),
                    is_undecided: true,
                }
            }
        }
    }
}
