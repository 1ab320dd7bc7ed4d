//! The PCIe links: whether they carry packets, and how they carry flow-ids.

use crate::api::{LinkKind, LinkView, SwitchIndex};
use crate::layout::carrier::Carrier;
use crate::server::executors::HUB;
use crate::server::flow_ids::IdSpace;
use crate::switches::session::{Session, Switch};
use crate::switches::Switches;
use openflow13::{state, Port};

/// One end of a link.
struct End<'a> {
    switch: &'a Switch,
    name: &'a str,
}

impl End<'_> {
    fn edge(&self) -> &Session {
        &self.switch.edge
    }

    fn has_carrier(&self) -> bool {
        let alive = |port: &Port| port.state & state::LINK_DOWN == 0;
        self.edge().port_named(self.name).is_some_and(alive)
    }

    /// Returns how it carries flow-ids; `None`: not known, because its switch is not connected or lacks it.
    fn carrier(&self, kind: LinkKind) -> Option<Carrier> {
        let number = self.edge().number_of(self.name)?;
        Some(Carrier::of(kind, number))
    }

    /// Describes it for the operator.
    fn described(&self, carrier: Option<Carrier>) -> String {
        let (port, switch) = (self.name, &self.switch.name);
        match carrier {
            Some(Carrier::TunnelId) => format!("{port} of {switch} is a port of type pcie"),
            Some(Carrier::Tag) => format!("{port} of {switch} is not a port of type pcie"),
            None => format!("{port} of {switch} is not known"),
        }
    }
}

impl Switches {
    /// Returns the ends of a switch's link, the hypervisor's first, and the link's configured type; `None` for the hypervisor.
    fn ends(&self, index: SwitchIndex) -> Option<([End<'_>; 2], LinkKind)> {
        let (hub, switch) = (&self.list[HUB], &self.list[index]);
        let link = switch.link.as_ref()?;
        let ends = [(hub, &link.hypervisor), (switch, &link.local)];
        Some((ends.map(|(switch, name)| End { switch, name }), link.kind))
    }

    /// Returns the state of the switch's PCIe link; `None` for the hypervisor.
    pub fn link_view(&self, index: SwitchIndex) -> Option<LinkView> {
        let (ends, kind) = self.ends(index)?;
        let up = ends.iter().all(End::has_carrier);
        let [hub, local] = &ends;
        let carriers = [hub.carrier(kind), local.carrier(kind)];
        let (carrier, reason) = match (kind, carriers) {
            (LinkKind::Vlan, _) => (Some(Carrier::Tag), "server.toml says so".into()),
            (LinkKind::Pcie, _) => (Some(Carrier::TunnelId), "server.toml says so".into()),
            (_, [Some(Carrier::TunnelId), Some(Carrier::TunnelId)]) => {
                let reason = "both ends are ports of type pcie";
                (Some(Carrier::TunnelId), reason.into())
            }
            (_, [Some(Carrier::Tag), Some(Carrier::Tag)]) => {
                let reason = "its ends are not ports of type pcie";
                (Some(Carrier::Tag), reason.into())
            }
            (_, [at_hub, at_local]) => {
                let ends = [hub.described(at_hub), local.described(at_local)];
                (None, ends.join(", "))
            }
        };
        Some(LinkView {
            up,
            kind: carrier.map(Carrier::name),
            reason,
        })
    }

    /// Tells whether an end of the switch's PCIe link is known to be missing or without carrier. Nothing is known of a disconnected switch.
    pub fn link_dead(&self, index: SwitchIndex) -> bool {
        let mut ends = self.ends(index).into_iter().flat_map(|(ends, _)| ends);
        ends.any(|end| end.edge().is_up() && !end.has_carrier())
    }

    /// Returns the flow-ids that all links carry; `None`: not known yet.
    pub fn id_space(&self) -> Option<IdSpace> {
        let all = (0..self.list.len()).filter_map(|index| self.ends(index));
        let carriers: Vec<_> = all
            .flat_map(|(ends, kind)| ends.map(|end| configured(kind).or_else(|| end.carrier(kind))))
            .collect();
        if carriers.contains(&Some(Carrier::Tag)) {
            return Some(IdSpace::Tagged);
        }
        (!carriers.contains(&None)).then_some(IdSpace::Wide)
    }
}

/// Returns the carrier that server.toml demands.
fn configured(kind: LinkKind) -> Option<Carrier> {
    match kind {
        LinkKind::Vlan => Some(Carrier::Tag),
        LinkKind::Pcie => Some(Carrier::TunnelId),
        LinkKind::Probed => None,
    }
}
