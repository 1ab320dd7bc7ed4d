//! Verbs that act at once, even while another verb waits: they end that wait.

use super::socket::Over;
use crate::Refusal;

/// The ways to end the current wait, for one epoch.
#[derive(Default)]
pub(super) struct Urgent {
    epoch: u64,
    way_out: Option<WayOut>,
}

enum WayOut {
    /// Ends waits for the new instance.
    Old(Over),
    /// Notes that the old instance writes nothing any more.
    New(Box<dyn Fn() + Send + Sync>),
}

impl Urgent {
    pub(super) fn none(epoch: u64) -> Self {
        Self {
            epoch,
            way_out: None,
        }
    }

    pub(super) fn of_old(epoch: u64, over: Over) -> Self {
        Self {
            epoch,
            way_out: Some(WayOut::Old(over)),
        }
    }

    pub(super) fn of_new(epoch: u64, orphan: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            epoch,
            way_out: Some(WayOut::New(Box::new(orphan))),
        }
    }

    /// Acts on a verb that ends a wait; most verbs do not.
    ///
    /// # Errors
    /// If the verb is meant for another migration.
    pub(super) fn tell(&self, verb: &str, epoch: u64) -> Result<(), Refusal> {
        if epoch != self.epoch {
            let detail = format!("{verb:?} of epoch {epoch}, expected epoch {}", self.epoch);
            return Err(Refusal::new("epoch", detail));
        }
        match (verb, &self.way_out) {
            ("thaw", Some(WayOut::Old(over))) => over.set(),
            ("orphaned", Some(WayOut::New(orphan))) => orphan(),
            _ => {}
        }
        Ok(())
    }
}
