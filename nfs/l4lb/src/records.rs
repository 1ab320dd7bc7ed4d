//! Connection records: every change of a record, and of the gauges that count records, is made here.
//!
//! A batch looks up its records before it decides its packets, so another packet or worker may have changed a record since. Every change therefore
//! names the entry that it replaces, and fails if the record has another one.

use nf_tables::{Class, Entry, Full, Insertion};

use crate::{flow::Flow, pass::Pass, snapshot::Backend, state::traffic};

impl<'a> Pass<'a> {
    /// Returns a flow's current entry; `seen` is the one found before the batch.
    #[inline]
    pub(crate) fn current<F: Flow>(&self, flow: &F, seen: Option<Entry>) -> Option<Entry> {
        let changed = self.changed.get();
        if changed == 0 || changed & mark(flow) == 0 {
            return seen;
        }
        F::table(self.state).lookup(flow, &self.now)
    }

    /// Returns the backend that a flow's record refers to. None: it is not in the configuration (any more), or belongs to another VIP.
    #[inline]
    pub(crate) fn backend_of<F: Flow>(&self, flow: &F, number: u16) -> Option<&'a Backend> {
        let backend = self.snapshot.backend_at(number)?;
        (backend.service == flow.service()).then_some(backend)
    }

    /// Returns a flow's entry if it refers to a configured backend. Deletes any other record: lookups would keep it alive until its number is reused.
    pub(crate) fn named<F: Flow>(&self, flow: &F) -> Option<Entry> {
        let entry = F::table(self.state).lookup(flow, &self.now)?;
        if self.backend_of(flow, entry.value).is_some() {
            return Some(entry);
        }
        self.forget(flow);
        None
    }

    /// Records a new connection. An existing record stays, and its entry is returned.
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

    /// Changes a record from `old` to `new`. Err: it has another entry, or does not exist.
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

    /// Adjusts the gauges when a record is deleted or changes its backend.
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

    /// Returns the row of a backend's VIP, even for a backend that was removed.
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

/// Returns a bit for a flow; other flows may have the same.
pub(crate) fn mark<F: Flow>(flow: &F) -> u64 {
    1 << (flow.flow_hash() & 63)
}
