//! The requirements of a random history on a table.

use std::collections::BTreeMap;

use nf_offload::{CounterId, Driver, FlowKey, Refused, TargetId};

/// The backends of a history.
pub const BACKENDS: u16 = 3;

/// A table that carries flows, with the delays and refusals of real ones, and two or more writers.
pub trait Model: Default + std::fmt::Debug {
    type Handle: Driver;

    /// The most flows at a time.
    const FLOWS: usize;
    /// Whether it counts what it carries. Otherwise the function sees and counts all packets.
    const COUNTS: bool;
    /// The most rounds of work until a history has ended.
    const ROUNDS: u32 = 200;

    /// Opens it.
    fn writer(&self, instance: u128, epoch: u64) -> Self::Handle;
    /// Carries a packet; returns the target, or None: it goes to the function. Of rules that fade, any may take it.
    fn carry(&self, flow: FlowKey, fades_too: bool) -> Option<TargetId>;
    /// Works on the oldest request. `refuses`: an install gets this answer.
    fn work(&self, refuses: Option<Refused>);
    /// Loses the device's next answer: the device does what it was asked, but the driver is not told.
    fn lose_answer(&self) {}
    /// Ends the fading of all removed rules: packets on the way have left.
    fn settle(&self);
    /// Tells the counts of all rules, and the totals.
    fn count(&self);
    /// Returns the packets of each counter.
    fn totals(&self) -> BTreeMap<CounterId, u64>;
    /// Loses all totals, and tells that.
    fn lose_totals(&self);
    /// Loses everything.
    fn reset(&self);
    /// Returns the flow and target of each rule that may act.
    fn acting(&self) -> Vec<(FlowKey, TargetId)>;
    fn is_empty(&self) -> bool;
}
