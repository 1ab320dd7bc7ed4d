//! Records of connections: every change of one, and of the gauges that count them, is made here.
//!
//! A batch looks its records up before it decides its packets, so a record may have changed since, by a packet before this one or by another worker. Changes
//! therefore name the entry that they replace, and fail where the record has another one.

use nf_tables::{Class, ConnectionTable, Entry, Full, Insertion};

use crate::{flow::Flow, pass::Pass, snapshot::Backend, state::traffic};

impl<'a> Pass<'a> {
    /// A flow's entry, which was `seen` before the batch.
    #[inline]
    pub(crate) fn current<F: Flow>(&self, flow: &F, seen: Option<Entry>) -> Option<Entry> {
        let changed = self.changed.get();
        if changed == 0 || changed & mark(flow) == 0 {
            return seen;
        }
        F::table(self.state).lookup(flow, &self.now)
    }

    /// The backend that a flow's record names; None: it is not in the configuration (any more), or of another VIP.
    #[inline]
    pub(crate) fn backend_of<F: Flow>(&self, flow: &F, number: u16) -> Option<&'a Backend> {
        let backend = self.snapshot.backend_at(number)?;
        (backend.service == flow.service()).then_some(backend)
    }

    /// A flow's entry, if the configuration has the backend that it names. Other records go: a lookup renews them, and their number will be another backend's.
    pub(crate) fn named<F: Flow>(&self, flow: &F) -> Option<Entry> {
        let entry = F::table(self.state).lookup(flow, &self.now)?;
        if self.backend_of(flow, entry.value).is_some() {
            return Some(entry);
        }
        self.forget(flow);
        None
    }

    /// Records a new connection. Answers the entry of a record that is there already, which stays.
    pub(crate) fn record<F: Flow>(&self, flow: &F, new: Entry) -> Result<Option<Entry>, Full> {
        match F::table(self.state).insert(flow, new, &self.now)? {
            Insertion::Existing(entry) => Ok(Some(entry)),
            Insertion::Inserted { expired } => {
                if let Some(expired) = expired {
                    self.ended(expired);
                }
                self.began(new);
                self.mark_changed(flow);
                Ok(None)
            }
        }
    }

    /// Changes a record from `old` to `new`. Err: its entry is another one, or it has no record.
    pub(crate) fn replace<F: Flow>(
        &self,
        flow: &F,
        old: Entry,
        new: Entry,
    ) -> Result<(), Option<Entry>> {
        self.mark_changed(flow);
        F::table(self.state).replace(flow, old, new, &self.now)?;
        if old.value != new.value {
            self.ended(old);
            self.began(new);
        } else if old.class == Class::Opening && new.class != Class::Opening {
            self.count_half_open(old.value, false);
        } else if old.class != Class::Opening && new.class == Class::Opening {
            self.count_half_open(new.value, true);
        }
        Ok(())
    }

    pub(crate) fn forget<F: Flow>(&self, flow: &F) {
        self.mark_changed(flow);
        if let Some(entry) = F::table(self.state).remove(flow, &self.now) {
            self.ended(entry);
        }
    }

    /// A record is gone, or names another backend now.
    pub(crate) fn ended(&self, entry: Entry) {
        self.state
            .active
            .subtract(self.worker, entry.value.into(), 1);
        if entry.class == Class::Opening {
            self.count_half_open(entry.value, false);
        }
    }

    fn began(&self, entry: Entry) {
        let row = usize::from(entry.value);
        self.state.active.add(self.worker, row, 1);
        if entry.class == Class::Opening {
            self.count_half_open(entry.value, true);
        }
        self.state
            .traffic
            .add(self.worker, row, traffic::CONNECTIONS, 1);
    }

    fn count_half_open(&self, number: u16, more: bool) {
        let Some(row) = self.row_of(number) else {
            return;
        };
        if more {
            self.state.half_open.add(self.worker, row, 1);
        } else {
            self.state.half_open.subtract(self.worker, row, 1);
        }
    }

    /// The row of a backend's VIP, also of a backend that is not in the configuration any more.
    fn row_of(&self, number: u16) -> Option<usize> {
        if let Some(backend) = self.snapshot.backend_at(number) {
            return Some(self.snapshot.vips[backend.vip].row);
        }
        let record = self.state.backends.get(number.into());
        self.state.vips.iter().position(|vip| {
            (vip.address, vip.port, vip.protocol)
                == (record.vip_address, record.vip_port, record.vip_protocol)
        })
    }

    fn mark_changed<F: Flow>(&self, flow: &F) {
        self.changed.set(self.changed.get() | mark(flow));
    }
}

/// A bit for a flow; others share it.
pub(crate) fn mark<F: Flow>(flow: &F) -> u64 {
    1 << (flow.flow_hash() & 63)
}
