//! Health checks: starts those of all backends, and gives them their answers. `nf_balancing::health` is the client.

use nf_balancing::{
    config::Health,
    health::{numbers_at, Check, Step},
    link::TAKEN,
};
use nf_packet::{Headers, Tcp};
use nf_runtime::Packet;

use crate::{
    events::Event,
    pass::Pass,
    snapshot::{Backend, Snapshot},
};

impl Pass<'_> {
    /// Starts checks, retransmits, and times checks out.
    pub(crate) fn check_health(&mut self) {
        let now = self.link.context.now();
        let (snapshot, checks) = (self.snapshot, self.checks);
        let vips = snapshot.vips.iter().filter(|vip| vip.health.is_some());
        for number in vips.flat_map(|vip| vip.backends.iter().copied()) {
            let Some(backend) = snapshot.backend_at(number) else {
                continue;
            };
            let Some(check) = check_of(snapshot, number, backend) else {
                continue;
            };
            let _lock = checks.lock();
            let mut record = self.state.backends.get(usize::from(number));
            let before = record;
            let step = check.step(&mut record.checked(), now);
            if record != before {
                self.state.backends.put(usize::from(number), &record);
            }
            self.follow(backend, check.settings, record.probe.local_port(), &step);
        }
    }

    /// Sends what a check wants to send, and notes whether the backend has come up or gone down.
    fn follow(&mut self, backend: &Backend, settings: &Health, port: u16, step: &Step) {
        for segment in &step.segments {
            let end = target(backend, settings);
            self.link.send_segment(&backend.way, port, end, segment);
        }
        if step.has_changed {
            self.checks.note_change();
        }
    }

    /// Handles a TCP packet to one of the load balancer's own addresses.
    pub(crate) fn health_answer(&mut self, packet: &mut Packet, headers: &Headers) {
        let port = headers.destination_port;
        let from = (headers.source(packet.bytes()), headers.source_port);
        let (snapshot, checks) = (self.snapshot, self.checks);
        let mut found = numbers_at(port).filter_map(|number| {
            let backend = snapshot.backend_at(number)?;
            let check = check_of(snapshot, number, backend)?;
            (target(backend, check.settings) == from).then_some((backend, check))
        });
        let Some((backend, check)) = found.next() else {
            return self.refuse(packet, None, Event::NotForUs);
        };
        if let Ok(tcp) = Tcp::new_checked(headers.segment(packet.bytes())) {
            let _lock = checks.lock();
            let number = usize::from(check.number);
            let mut record = self.state.backends.get(number);
            let before = record;
            let step = check.answer(&mut record.checked(), port, &tcp);
            if record != before {
                self.state.backends.put(number, &record);
            }
            self.follow(backend, check.settings, port, &step);
        }
        packet.drop_for(TAKEN);
    }
}

/// Returns the check of a backend. None: its VIP has none.
fn check_of<'a>(snapshot: &'a Snapshot, number: u16, backend: &Backend) -> Option<Check<'a>> {
    let vip = &snapshot.vips[backend.vip];
    Some(Check {
        number,
        settings: vip.health.as_ref()?,
        host: &vip.name,
        agent: "nf-l4lb",
    })
}

/// Returns the endpoint that a backend's check connects to.
fn target(backend: &Backend, settings: &Health) -> (std::net::IpAddr, u16) {
    (backend.address, settings.port.unwrap_or(backend.port))
}
