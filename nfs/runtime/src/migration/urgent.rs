//! What is done at once, also while another verb waits: the ways out of that wait.

use super::socket::Over;
use crate::Refusal;

/// The ways out of what is going on now, of one epoch.
#[derive(Default)]
pub(super) struct Urgent {
    epoch: u64,
    way_out: Option<WayOut>,
}

enum WayOut {
    /// Ends the waits for the new instance.
    Old(Over),
    /// Says that the old instance writes nothing any more.
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

    /// Takes the way out that this verb is; most are none.
    ///
    /// # Errors
    /// Another migration is meant.
    pub(super) fn tell(&self, verb: &str, epoch: u64) -> Result<(), Refusal> {
        if epoch != self.epoch {
            let detail = format!("{verb:?} of epoch {epoch}; this is epoch {}", self.epoch);
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
