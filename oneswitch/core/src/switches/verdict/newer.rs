//! Messages to switches over OpenFlow 1.5 (switches/newer.rs): no other operation is in flight beside them, so that their order is that of the
//! controllers.

use super::Verdicts;
use crate::api::SwitchIndex;

impl Verdicts {
    /// Makes the open batch wait for an answer over OpenFlow 1.5.
    pub fn touch_newer(&mut self, switch: SwitchIndex) {
        self.due = true;
        self.touched.newer.insert(switch);
    }

    /// Tells whether some switch has not answered over OpenFlow 1.5.
    pub fn awaits_newer(&self) -> bool {
        let batches = self.batches.iter().map(|batch| batch.awaited);
        let mut all = batches.chain([self.touched]);
        all.any(|awaited| !awaited.newer.is_empty())
    }

    /// Counts the answer to the barrier of a batch.
    pub fn newer_reply(&mut self, xid: u32, switch: SwitchIndex) {
        if let Some(batch) = self.batches.iter_mut().find(|b| b.barrier == xid) {
            batch.awaited.newer.remove(switch);
        }
    }

    /// Stops waiting for a connection that has ended; tells whether messages on it have no verdict.
    pub fn forget_newer(&mut self, switch: SwitchIndex) -> bool {
        let mut was_awaited = self.touched.newer.contains(switch);
        self.touched.newer.remove(switch);
        for batch in &mut self.batches {
            was_awaited |= batch.awaited.newer.contains(switch);
            batch.awaited.newer.remove(switch);
        }
        if was_awaited {
            self.operations.iter_mut().for_each(|o| o.forget(switch));
        }
        was_awaited
    }
}
