//! The new instance's hand-over to its own ports. Nothing older than the held frames can follow once every ring has ended, so it need not wait for the agent:
//! packets would.

use std::{sync::Arc, thread, time::Duration};

use crate::{gate::Gate, Refusal, ORDER_TIMEOUT};

/// The pause between tries while a port takes no frames.
const PAUSE: Duration = Duration::from_millis(100);

/// Has a thread call `hand_over` once every ring has ended, and again after an error that may pass, while `arrives`: while the hand-over may still be due.
pub(super) fn follow(
    gate: &Arc<Gate>,
    hand_over: impl Fn() -> Result<(), Refusal> + Send + 'static,
    arrives: impl Fn() -> bool + Send + 'static,
) {
    let gate = Arc::clone(gate);
    let started = thread::Builder::new()
        .name("handover".into())
        .spawn(move || loop {
            match gate.wait_injected(ORDER_TIMEOUT).and_then(|()| hand_over()) {
                // A worker is slow, or another verb is in progress.
                Err(refusal) if ["timeout", "busy"].contains(&refusal.code) && arrives() => {}
                // A port takes no frames.
                Err(refusal) if refusal.code == "worker" && arrives() => thread::sleep(PAUSE),
                _ => return,
            }
        });
    // Without a thread, the agent's request does it.
    drop(started);
}
