//! Health checks: starts those of all backends, and gives them their answers. `nf_balancing::health` is the client.

use nf_balancing::health::{numbers_at, Check, Step};
use nf_packet::{Headers, Tcp};

use crate::{
    pass::Pass,
    snapshot::{Backend, Snapshot, Target},
};

impl Pass<'_> {
    /// Starts checks, retransmits, and times checks out.
    pub(crate) fn check_health(&mut self) {
        let (snapshot, tables, now) = (self.snapshot, self.tables, self.now());
        for (row, backend) in snapshot.rows() {
            let Some((target, check)) = check_of(snapshot, row, backend) else {
                continue;
            };
            let done = tables
                .backends
                .check(row, target.key, |record| check.step(record, now));
            if let Some((step, probe)) = done {
                self.send_check(backend, target, probe.local_port(), &step);
            }
        }
    }

    /// Handles a segment to one of the function's own addresses. Returns false if it does not answer a health check.
    pub(crate) fn health_answer(&mut self, frame: &[u8], headers: &Headers) -> bool {
        let port = headers.destination_port;
        let from = (headers.source(frame), headers.source_port);
        let (snapshot, tables) = (self.snapshot, self.tables);
        let mut found = numbers_at(port).filter_map(|row| {
            let backend = snapshot.backend(row)?;
            let (target, check) = check_of(snapshot, row, backend)?;
            (target.end == from).then_some((backend, target, check))
        });
        let Some((backend, target, check)) = found.next() else {
            return false;
        };
        let Ok(tcp) = Tcp::new_checked(headers.segment(frame)) else {
            return false;
        };
        let done = tables.backends.check(check.number, target.key, |record| {
            check.answer(record, port, &tcp)
        });
        if let Some((step, _)) = done {
            self.send_check(backend, target, port, &step);
        }
        true
    }

    fn send_check(&mut self, backend: &Backend, target: Target, port: u16, step: &Step) {
        for segment in &step.segments {
            self.link()
                .send_segment(&backend.way, port, target.end, segment);
        }
    }
}

/// Returns the check of a backend and its endpoint. None: its pool has none.
fn check_of<'a>(
    snapshot: &'a Snapshot,
    row: u16,
    backend: &Backend,
) -> Option<(Target, Check<'a>)> {
    let pool = snapshot.config.pools.get(backend.pool)?;
    let check = Check {
        number: row,
        settings: pool.health.as_ref()?,
        host: &pool.name,
        agent: "nf-l7lb",
    };
    Some((backend.target?, check))
}
