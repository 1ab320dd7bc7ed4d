//! `enqueue` as OpenFlow 1.3 has it: `set_queue, output, pop_queue` (`encode_ENQUEUE`, lib/ofp-actions.c).
//!
//! A bucket is an action set, which has no place for `enqueue` (`ofpacts_execute_action_set`), but one for the first two of these: in
//! buckets, bytes of `pop_queue` that mean nothing tell that all three stand for an `enqueue`, which does nothing.

use crate::action::{Action, ActionItem, ActionIter, Actions};
use crate::wire::Put;

use super::to_port16;

/// OFPAT_ENQUEUE of OpenFlow 1.0.
pub(super) const KIND: u16 = 11;
pub(super) const POP_QUEUE: u16 = 5;
/// The `max_len` of the output that Open vSwitch shows for `enqueue`: others are outputs between two actions of their own.
pub(super) const ENQUEUED: u16 = u16::MAX;
/// What follows the subtype of the `pop_queue` that ends an `enqueue` in a bucket.
const MARK: [u8; 6] = *b"set/10";

/// Marks the last action of a list, the `pop_queue` of an `enqueue`.
pub(super) fn mark(list: &mut [u8]) {
    if let Some(padding) = list.last_chunk_mut() {
        *padding = MARK;
    }
}

/// Tells whether a whole action ends an `enqueue` in a bucket.
pub fn ends_idle_enqueue(action: &[u8]) -> bool {
    const POP: [u8; 10] = [0xff, 0xff, 0, 16, 0, 0, 0x23, 0x20, 0, POP_QUEUE as u8];
    action.len() == POP.len() + MARK.len() && action.starts_with(&POP) && action.ends_with(&MARK)
}

/// Returns a bucket's actions, a checked list, without each `enqueue`.
pub fn without_idle_enqueues(list: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(list.len());
    let mut rest = Actions::trusted(list, 0).iter();
    while let Some(item) = rest.next() {
        match enqueue(&item, &rest) {
            Some((.., pop, after)) if ends_idle_enqueue(pop.raw) => rest = after,
            _ => out.put(item.raw),
        }
    }
    out
}

/// The port and queue of an `enqueue`, its last action, and what follows.
type Enqueue<'a> = (u32, u32, ActionItem<'a>, ActionIter<'a>);

/// Returns the `enqueue` that an action begins; `None`: another action.
pub(super) fn enqueue<'a>(first: &ActionItem<'a>, rest: &ActionIter<'a>) -> Option<Enqueue<'a>> {
    let mut rest = rest.clone();
    match (first.action, rest.next()?.action, rest.next()?) {
        (
            Action::SetQueue(queue),
            Action::Output {
                port,
                max_len: ENQUEUED,
            },
            pop,
        ) if matches!(pop.action, Action::Nicira { subtype, .. } if subtype == POP_QUEUE) => {
            Some((port, queue, pop, rest))
        }
        _ => None,
    }
}

/// Encodes OpenFlow 1.0's action.
pub(super) fn put_enqueue(out: &mut Vec<u8>, port: u32, queue: u32) {
    out.put_u16(KIND);
    out.put_u16(16);
    out.put_u16(to_port16(port));
    out.zeros(6);
    out.put_u32(queue);
}
