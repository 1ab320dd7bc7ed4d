//! Bundles on the switches.
//!
//! Open vSwitch applies a bundle to one bridge atomically, but cannot vote on one: its commit decides. So each switch first gets a *trial*, the
//! bundle with a port-mod behind it. Open vSwitch refuses port-mods in atomic bundles, but only in their turn (do_bundle_commit(),
//! ofproto/ofproto.c): it carries out everything before, and takes it back. An error about the port-mod thus says that everything else would
//! succeed; an earlier error names the part that would not.
//!
//! Open vSwitch 3.1 crashes when it takes the deletion of a group back that rules use, so a trial deletes those rules before it.

use crate::api::{Bridge, Destination, SwitchIndex};
use crate::outbox::Outbox;
use crate::switch_set::SwitchSet;
use crate::switches::Switches;
use crate::wire::wire;
use openflow13::{bundle, frame_length, group_mod_before_15, kind, set_xid, Message, PortMod};
use std::borrow::Cow;

/// Numbers of our bundles on a `virt`. None of them outlives the messages that are written with its opening.
const CHECKED: u32 = 1;
const TRIAL: u32 = 2;
const FINAL: u32 = 3;

/// The messages to each `virt`.
type Messages = Vec<(SwitchIndex, Vec<u8>)>;

/// The messages of a bundle.
#[derive(Debug, Default)]
pub struct Collected {
    tried: Messages,
    committed: Messages,
    /// Whether it goes over OpenFlow 1.5.
    is_newer: bool,
}

impl Collected {
    /// Tells whether one switch gets it all, and its trial would be the same.
    pub fn is_for_one_switch(&self) -> bool {
        self.committed.len() == 1 && self.tried == self.committed
    }
}

/// As [`Collected`], while they are being made.
#[derive(Debug, Default)]
pub(super) struct Collecting {
    tried: Outbox,
    committed: Outbox,
}

fn of_switches(mut outbox: Outbox) -> Messages {
    let of_switch = |(to, messages)| match to {
        Destination::Switch(switch, Bridge::Virt) => Some((switch, messages)),
        _ => None,
    };
    outbox.take().into_iter().filter_map(of_switch).collect()
}

/// The switches' votes on a bundle. By default, it needs none.
#[derive(Debug, Default)]
pub struct Trial {
    /// xid of the port-mod behind the bundle.
    end: u32,
    commit: u32,
    barrier: u32,
    pub asked: SwitchSet,
    awaited: SwitchSet,
    /// Switches that would accept it.
    ready: SwitchSet,
}

impl Trial {
    /// Tells whether an error of a switch is its vote.
    pub fn vote(&mut self, xid: u32, switch: SwitchIndex) -> bool {
        if xid == self.end {
            self.ready.insert(switch);
        }
        xid == self.end || xid == self.commit
    }

    /// Counts an answered barrier; tells whether it is of this trial.
    pub fn barrier_reply(&mut self, xid: u32, switch: SwitchIndex) -> bool {
        if xid == self.barrier {
            self.awaited.remove(switch);
        }
        xid == self.barrier
    }

    pub fn forget(&mut self, switch: SwitchIndex) {
        self.awaited.remove(switch);
        self.ready.remove(switch);
    }

    /// Tells whether all switches would accept the bundle; `None`: some have not answered.
    pub fn outcome(&self) -> Option<bool> {
        self.awaited
            .is_empty()
            .then(|| self.asked.minus(self.ready).is_empty())
    }
}

impl Switches {
    /// Lets `switch` check whether a message can be part of a bundle. `xid`: of the operation that gets the verdict.
    pub fn check_part(&mut self, switch: SwitchIndex, message: &[u8], xid: u32) {
        let (open, discard) = (self.fresh_xid(), self.fresh_xid());
        let to = (switch, self.speaks_newer);
        let mut message = match self.speaks_newer {
            true => message.to_vec(),
            false => sayable(message).into_owned(),
        };
        set_xid(&mut message, xid);
        self.put_of_bundle(to, &bundle::encode_open(open, CHECKED));
        self.put_of_bundle(to, &wrapped(CHECKED, &message));
        self.put_of_bundle(to, &bundle::encode_discard(discard, CHECKED));
    }

    /// Collects the messages to each `virt` from now on, instead of sending them.
    pub fn begin_bundle(&mut self) {
        self.collecting = Some(Collecting::default());
    }

    /// Ends [`Self::begin_bundle`]; returns what was collected.
    pub fn end_bundle(&mut self) -> Collected {
        let made = self.collecting.take().unwrap_or_default();
        Collected {
            tried: of_switches(made.tried),
            committed: of_switches(made.committed),
            is_newer: self.speaks_newer,
        }
    }

    pub fn is_collecting(&self) -> bool {
        self.collecting.is_some()
    }

    /// Sends a message to a `virt`, or adds it to the bundle that is being collected.
    pub(super) fn put_to_virt(&mut self, switch: SwitchIndex, frame: &[u8], xid: u32) {
        let to = Destination::Switch(switch, Bridge::Virt);
        let Some(made) = &mut self.collecting else {
            if !self.speaks_newer {
                self.outbox.put_with_xid(to, &sayable(frame), xid);
                return;
            }
            let mut message = frame.to_vec();
            set_xid(&mut message, xid);
            return self.operate_newer(switch, &message);
        };
        let frame = match self.speaks_newer {
            true => Cow::Borrowed(frame),
            false => sayable(frame),
        };
        made.tried.put_with_xid(to, &frame, xid);
        made.committed.put_with_xid(to, &frame, xid);
    }

    /// Adds a message only to the trial of the bundle that is being collected.
    pub fn put_to_trial(&mut self, message: &Message, targets: SwitchSet) {
        let frame = wire(self.fresh_xid(), message);
        if let Some(made) = &mut self.collecting {
            for switch in targets.iter() {
                let to = Destination::Switch(switch, Bridge::Virt);
                made.tried.put(to, &frame);
            }
        }
    }

    /// Asks the switches whether they would accept what was collected.
    pub fn try_bundle(&mut self, collected: &Collected) -> Trial {
        let (end, commit, barrier) = (self.fresh_xid(), self.fresh_xid(), self.fresh_xid());
        let unacceptable = PortMod {
            port: 1,
            hw_addr: [0; 6],
            config: 0,
            mask: 0,
            advertise: 0,
        };
        let unacceptable = wire(end, &Message::PortMod(unacceptable));
        let mut asked = SwitchSet::EMPTY;
        let is_newer = collected.is_newer;
        for (switch, messages) in &collected.tried {
            let messages = [&messages[..], &unacceptable].concat();
            self.put_bundle((*switch, is_newer), TRIAL, commit, &messages);
            let end = wire(barrier, &Message::BarrierRequest);
            self.put_of_bundle((*switch, is_newer), &end);
            asked.insert(*switch);
        }
        Trial {
            end,
            commit,
            barrier,
            asked,
            awaited: asked,
            ready: SwitchSet::EMPTY,
        }
    }

    /// Sends what was collected for good; returns the xid of the commits.
    pub fn commit_bundle(&mut self, collected: &Collected) -> u32 {
        let commit = self.fresh_xid();
        for (switch, messages) in &collected.committed {
            self.put_bundle((*switch, collected.is_newer), FINAL, commit, messages);
        }
        commit
    }

    /// Sends a whole bundle.
    fn put_bundle(&mut self, to: (SwitchIndex, bool), id: u32, commit: u32, mut messages: &[u8]) {
        let open = bundle::encode_open(self.fresh_xid(), id);
        self.put_of_bundle(to, &open);
        while let Ok(Some(length)) = frame_length(messages) {
            let (message, rest) = messages.split_at(length);
            self.put_of_bundle(to, &wrapped(id, message));
            messages = rest;
        }
        self.put_of_bundle(to, &bundle::encode_commit(commit, id));
    }

    /// Sends a message about a bundle, perhaps over OpenFlow 1.5.
    fn put_of_bundle(&mut self, (switch, is_newer): (SwitchIndex, bool), message: &[u8]) {
        match is_newer {
            true => self.operate_newer(switch, message),
            false => {
                let to = Destination::Switch(switch, Bridge::Virt);
                self.outbox.put(to, message);
            }
        }
    }
}

/// Returns a message as OpenFlow 1.3 says it.
fn sayable(frame: &[u8]) -> Cow<'_, [u8]> {
    match frame.get(1) {
        Some(&kind::GROUP_MOD) => Cow::Owned(group_mod_before_15(frame)),
        _ => Cow::Borrowed(frame),
    }
}

/// A message that came in a bundle fits into another one.
fn wrapped(id: u32, message: &[u8]) -> Vec<u8> {
    bundle::encode_add(id, message).unwrap_or_else(|oversize| {
        tracing::error!(target: "core", length = oversize.length, "a message is too long for a bundle; left out");
        Vec::new()
    })
}
