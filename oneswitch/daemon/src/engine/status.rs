//! The status: `GET /v1/status` and `GET /metrics`.

use oneswitch_core::{BridgeState, ControllerId, ControllerRole, OffloadView, SwitchView};

use super::report::ReportedSwitch;
use super::{BridgeLink, Engine, Session};
use crate::events::{
    BridgeStatus, ControllerStatus, GatheredStatus, Link, LinkStatus, OffloadStatus, Peer, Status,
    SwitchStatus, VirtualStatus,
};

impl Engine {
    pub(super) fn status(&self) -> Status {
        let view = self.core.status();
        let bridges = self.report.switches.iter().zip(&self.bridges);
        let switches = view.switches.into_iter().zip(bridges).enumerate();
        Status {
            version: env!("CARGO_PKG_VERSION"),
            datapath_id: format!("{:016x}", view.datapath_id),
            uptime_s: self.report.started.elapsed().as_secs(),
            listen: self.report.listen.clone(),
            api: self.report.api.clone(),
            controllers: self.controllers(),
            switches: switches
                .map(|(index, (view, (report, links)))| SwitchStatus {
                    misses: self.misses(index),
                    ..switch(index, view, report, links)
                })
                .collect(),
            virtual_switch: VirtualStatus {
                ports: view.ports,
                flows: view.flows,
                groups: view.groups,
                meters: view.meters,
                executors: view.executors,
                gathered: view.gathered.map(|gathered| GatheredStatus {
                    at: gathered.at,
                    ports: gathered.ports,
                    reason: gathered.reason,
                    choice: gathered.choice,
                }),
            },
            refused: view.refused,
            offload: self.core.offload_views().into_iter().map(offload).collect(),
        }
    }

    /// Returns whether packets that meet no rule come from a switch; `None`: no controller wants them.
    fn misses(&self, switch: usize) -> Option<&'static str> {
        let has_come =
            |session: &Session| matches!(session.peer, Peer::Misses(from) if from == switch);
        self.core.wants_misses().then(|| {
            if self.sessions.values().any(has_come) {
                "up"
            } else {
                "down"
            }
        })
    }

    /// Returns connected controllers by id, then disconnected ones that oneswitchd connects to.
    fn controllers(&self) -> Vec<ControllerStatus> {
        let mut connected: Vec<_> = self
            .sessions
            .iter()
            .filter_map(|(id, session)| self.controller(*id, session))
            .collect();
        connected.sort_by_key(|controller| controller.id);
        let missing = self
            .report
            .controllers
            .iter()
            .zip(&self.dialled)
            .filter(|(_, link)| **link != Link::Connected);
        connected.extend(missing.map(|(target, link)| ControllerStatus {
            id: None,
            target: target.clone(),
            peer: String::new(),
            state: link.state(),
            role: None,
            messages_in: 0,
            messages_out: 0,
            packet_ins_dropped: 0,
            last_error: link.last_error(),
        }));
        connected
    }

    fn controller(&self, id: u64, session: &Session) -> Option<ControllerStatus> {
        let Peer::Controller {
            target, address, ..
        } = &session.peer
        else {
            return None;
        };
        let role = self
            .core
            .controller_role(ControllerId(id))
            .map(|role| match role {
                ControllerRole::Equal => "equal",
                ControllerRole::Master => "master",
                ControllerRole::Slave => "slave",
            });
        Some(ControllerStatus {
            id: Some(id),
            target: target.to_string(),
            peer: address.clone(),
            state: Link::Connected.state(),
            role,
            messages_in: session.messages_in,
            messages_out: session.messages_out,
            packet_ins_dropped: self.core.packet_ins_dropped(ControllerId(id)),
            last_error: None,
        })
    }
}

fn offload(view: OffloadView) -> OffloadStatus {
    let refused = view.refused.into_iter();
    OffloadStatus {
        port: view.port,
        writer: view.has_writer,
        flows: view.flows,
        targets: view.targets,
        packets: view.carried.packets,
        bytes: view.carried.bytes,
        refused: refused
            .map(|(reason, count)| (reason.name(), count))
            .collect(),
    }
}

fn switch(
    index: usize,
    view: SwitchView,
    report: &ReportedSwitch,
    [virt, edge]: &[BridgeLink; 2],
) -> SwitchStatus {
    let [virt_refusal, edge_refusal] = view.refusals;
    // One process serves both; while it executes a long request on one, it may still answer on the other.
    let hangs = virt.link == Link::Silent && edge.link == Link::Silent;
    SwitchStatus {
        name: view.name,
        hub: index == 0,
        virt: bridge(&report.virt, view.virt, virt, virt_refusal, hangs),
        edge: bridge(&report.edge, view.edge, edge, edge_refusal, hangs),
        link: report
            .link
            .as_ref()
            .zip(view.link)
            .map(|((hypervisor, local), link)| LinkStatus {
                hypervisor: hypervisor.clone(),
                local: local.clone(),
                state: if link.up { "up" } else { "down" },
                r#type: link.kind,
                reason: link.reason,
            }),
        physical_flows: view.physical_flows,
        physical_groups: view.physical_groups,
        physical_meters: view.physical_meters,
        edge_flows: view.edge_flows,
        repairs: view.repairs,
        misses: None,
    }
}

fn bridge(
    target: &str,
    state: BridgeState,
    slot: &BridgeLink,
    refusal: Option<String>,
    hangs: bool,
) -> BridgeStatus {
    let refusal = refusal.map(|error| format!("lacks what it refused with {error}"));
    BridgeStatus {
        target: target.to_owned(),
        state: if hangs { "silent" } else { state.name() },
        last_error: slot.link.last_error().or(refusal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bridge_that_is_up_and_lacks_something_says_so() {
        let slot = BridgeLink {
            link: Link::Connected,
            connection: None,
        };
        let shown = |refusal: Option<&str>| {
            bridge("x", BridgeState::Up, &slot, refusal.map(Into::into), false).last_error
        };
        assert_eq!(shown(None), None);
        let lacks = "lacks what it refused with TABLE_FULL".into();
        assert_eq!(shown(Some("TABLE_FULL")), Some(lacks));
    }
}
