//! The new instance's hand-over to its own ports. Nothing older than the held frames can follow once every ring has ended, so it need not wait for the agent:
//! packets would.

use std::{
    sync::{Arc, Weak},
    thread,
    time::Duration,
};

use serde_json::json;

use super::{Part, Phase};
use crate::{gate::Gate, ORDER_TIMEOUT};

/// The pause between tries while a port takes no frames.
const PAUSE: Duration = Duration::from_millis(100);

/// Has a thread process the verb `handover` of this epoch once every ring has ended. The agent's request then gets its answer.
pub(super) fn follow(part: &Arc<Part>, epoch: u64) {
    let (gate, part) = (Arc::clone(part.subject.gate()), Arc::downgrade(part));
    let started = thread::Builder::new()
        .name("handover".into())
        .spawn(move || hand_over(&gate, &part, epoch));
    // Without a thread, the agent's request does it.
    drop(started);
}

fn hand_over(gate: &Gate, part: &Weak<Part>, epoch: u64) {
    loop {
        let ended = gate.wait_injected(ORDER_TIMEOUT);
        let Some(part) = part.upgrade() else { return };
        let done = ended.and_then(|()| part.answer("handover", &json!({"epoch": epoch}), vec![]));
        match done {
            // A worker is slow, or another verb is in progress.
            Err(refusal) if ["timeout", "busy"].contains(&refusal.code) && part.arrives(epoch) => {}
            // A port takes no frames.
            Err(refusal) if refusal.code == "worker" && part.arrives(epoch) => {
                drop(part);
                thread::sleep(PAUSE);
            }
            _ => return,
        }
    }
}

impl Part {
    /// Tells whether this epoch's frames of the old instance may not have ended. True while a verb is in progress.
    fn arrives(&self, epoch: u64) -> bool {
        self.current.try_lock().map_or(true, |current| {
            current.epoch == epoch && matches!(current.phase, Phase::Arriving(_))
        })
    }
}
