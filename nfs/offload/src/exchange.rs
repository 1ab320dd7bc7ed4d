//! The exchange with a table that may come and go.

use std::time::Duration;

use serde_json::{json, Map, Value};

use crate::{
    Capabilities, Driver, Event, Ledger, Limits, Outcome, Promoter, Refused, Rows, Unavailable,
};

/// The time until a table that cannot be used is opened again.
const RETRY: Duration = Duration::from_millis(500);

/// Counts since the table was opened first.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    pub installs: u64,
    pub removals: u64,
    pub refused: [u64; Refused::ALL.len()],
    pub packets: u64,
    pub bytes: u64,
    /// Of the packets in the last second.
    pub share: f64,
}

/// A ledger and the table that carries its flows.
pub struct Exchange<R> {
    pub ledger: Ledger<R>,
    /// Exists while the table is in use.
    pub promoter: Option<Promoter>,
    pub totals: Totals,
    driver: Option<Box<dyn Driver + Send>>,
    table: Option<Capabilities>,
    /// The reason for the missing table.
    why: Option<String>,
    is_replaced: bool,
    opened: Option<Duration>,
}

impl<R: Rows> Exchange<R> {
    pub fn new(ledger: Ledger<R>) -> Self {
        Self {
            ledger,
            promoter: None,
            totals: Totals::default(),
            driver: None,
            table: None,
            why: None,
            is_replaced: false,
            opened: None,
        }
    }

    /// Opens the table if it is not in use and may be tried again. False: it is not open.
    pub fn open(
        &mut self,
        now: Duration,
        open: impl FnOnce() -> Result<Box<dyn Driver + Send>, Unavailable>,
    ) -> bool {
        if self.driver.is_some() {
            return true;
        }
        if self.is_replaced || self.opened.is_some_and(|at| now < at + RETRY) {
            return false;
        }
        self.opened = Some(now);
        match open() {
            Ok(driver) => self.driver = Some(driver),
            Err(unavailable) => self.note(unavailable),
        }
        self.driver.is_some()
    }

    /// Tells whether the table is open; its answers may not have come yet.
    pub fn is_open(&self) -> bool {
        self.driver.is_some()
    }

    fn note(&mut self, unavailable: Unavailable) {
        self.why = Some(unavailable.why);
        self.is_replaced = unavailable.is_replaced;
    }

    /// Handles the table's events, and takes the table over once it tells its rules. Returns what the function must know.
    pub fn poll(&mut self, now: Duration, limits: Limits) -> Vec<Outcome> {
        let Some(driver) = &mut self.driver else {
            return Vec::new();
        };
        let mut events = Vec::new();
        driver.set_idle(limits.idle);
        let polled = driver.poll(&mut events);
        if self.promoter.is_none() {
            if let Some((listing, table)) = driver.list().zip(driver.capabilities()) {
                self.ledger.reconcile(&listing);
                self.promoter = Some(Promoter::new(limits, &table));
                self.table = Some(table);
                self.why = None;
            }
        }
        if let Some(promoter) = &mut self.promoter {
            promoter.set_limits(limits);
        }
        let mut outcomes = Vec::new();
        for event in events {
            self.totals.installs += u64::from(matches!(event, Event::Installed(_)));
            if let Some(outcome) = self.ledger.handle(event) {
                self.heed(&outcome, now);
                outcomes.push(outcome);
            }
        }
        if let Err(unavailable) = polled {
            self.leave(now);
            self.note(unavailable);
        }
        outcomes
    }

    fn heed(&mut self, outcome: &Outcome, now: Duration) {
        if let Some(promoter) = &mut self.promoter {
            promoter.note(outcome, now);
        }
        match outcome {
            Outcome::Free(_) => self.totals.removals += 1,
            Outcome::Refused(_, why) => {
                if let Some(at) = Refused::ALL.iter().position(|known| known == why) {
                    self.totals.refused[at] += 1;
                }
            }
            Outcome::Replaced => self.is_replaced = true,
            Outcome::Used(_) | Outcome::Reset => {}
        }
    }

    /// Gives the table the requests that it has room for.
    pub fn submit(&mut self) {
        if let Some(driver) = &mut self.driver {
            let taken = driver.submit(self.ledger.requests());
            self.ledger.taken(taken);
        }
    }

    /// Leaves the table; its rules stay.
    pub fn leave(&mut self, now: Duration) {
        self.driver = None;
        self.promoter = None;
        self.opened = Some(now);
    }

    /// Returns the abilities of the table that is, or was last, in use.
    pub fn table(&self) -> Option<&Capabilities> {
        self.table.as_ref()
    }

    /// Says why the table is not in use.
    pub fn say(&mut self, why: &str) {
        self.why = Some(why.to_owned());
    }

    /// Returns the status, as users see it. `targets`: how many there are.
    pub fn status(&self, targets: usize) -> Value {
        let (state, why) = self.state();
        let totals = &self.totals;
        let refused = Refused::ALL.iter().zip(totals.refused);
        let refused: Map<String, Value> = refused
            .filter(|(_, count)| *count > 0)
            .map(|(why, count)| (why.name().to_owned(), json!(count)))
            .collect();
        json!({
            "state": state,
            "why": why,
            "flows": self.ledger.live().count(),
            "capacity": self.table.map_or(0, |table| table.flows),
            "targets": targets,
            "packets": totals.packets,
            "bytes": totals.bytes,
            "share": totals.share,
            "installs": totals.installs,
            "removals": totals.removals,
            "refused": refused,
        })
    }

    /// Returns the state's name, and the reason if the table is not in use.
    pub fn state(&self) -> (&'static str, Option<&str>) {
        let state = match (self.is_replaced, &self.promoter) {
            (true, _) => "refused",
            (false, Some(_)) => "connected",
            (false, None) => "waiting",
        };
        (state, self.why.as_deref())
    }
}
