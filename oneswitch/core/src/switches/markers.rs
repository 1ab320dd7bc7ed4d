//! Frames down the paths to the interface that a moving port leaves. A path keeps the order of its packets: whatever a switch sent to the old
//! interface before such a frame arrives there before it.

use crate::api::{
    Bridge, Claim, LinkConfig, LinkKind, MarkersRequest, MarkersSent, PortError, SwitchIndex,
};
use crate::layout::carrier::Carrier;
use crate::server::executors::HUB;
use crate::server::flow_ids::FlowId;
use crate::server::ports::{Location, VirtualPort};
use crate::switch_set::SwitchSet;
use crate::switches::Switches;
use openflow13::{port_no, ActionList, Message, PacketOut, NO_BUFFER};

/// The last stretch of a path: an interface of an `edge`, and the flow-id that packets carry there.
struct Stretch<'a> {
    switch: SwitchIndex,
    interface: &'a str,
    /// On a PCIe link.
    carried: Option<(LinkKind, FlowId)>,
}

impl Switches {
    /// Sends one frame down each path to the interface that a moving port leaves. Skips paths that begin at a switch that `is_dead`: the
    /// packets there died with it.
    ///
    /// # Errors
    /// See [`Core::send_markers`](crate::Core::send_markers).
    pub fn send_markers(
        &mut self,
        port: &VirtualPort,
        request: MarkersRequest,
        is_dead: impl Fn(SwitchIndex) -> bool,
    ) -> Result<MarkersSent, PortError> {
        port.check_claim(&Claim {
            owner: request.owner,
            force: false,
        })?;
        let to = self.locate(&request.switch, &request.interface)?;
        let mut paths = self.old_paths(port, &to)?;
        paths.retain(|path| !is_dead(path.switch));
        if request.frames.len() < paths.len() {
            return Err(PortError::MarkersMissing {
                number: port.number,
                paths: paths.len(),
            });
        }
        let outputs: Vec<(SwitchIndex, ActionList)> = paths
            .iter()
            .map(|path| Ok((path.switch, self.output(path)?)))
            .collect::<Result<_, _>>()?;
        let switches: Vec<_> = outputs.iter().map(|(switch, _)| *switch).collect();
        for ((switch, actions), data) in outputs.into_iter().zip(request.frames) {
            let message = PacketOut {
                packet_type: 0,
                buffer_id: NO_BUFFER,
                in_port: port_no::CONTROLLER,
                actions,
                data,
            };
            self.send_to(switch, Bridge::Edge, &Message::PacketOut(message));
        }
        let name = |switch: &SwitchIndex| self.list[*switch].name.clone();
        Ok(MarkersSent {
            from: switches.iter().map(name).collect(),
            switches,
            batch: self.verdicts.current_batch(),
        })
    }

    /// Returns the names of the switches that have neither confirmed these frames yet nor disconnected.
    pub fn silent_about(&self, sent: &MarkersSent) -> Option<String> {
        let owes = |s: &SwitchIndex| self.verdicts.is_awaited(*s, Bridge::Edge, sent.batch);
        let silent: SwitchSet = sent.switches.iter().copied().filter(owes).collect();
        (!silent.is_empty()).then(|| self.switch_names(silent))
    }

    /// Returns the switch of each path to the interface that `port` leaves for `to`; none if it stays.
    pub fn old_path_names(&self, port: &VirtualPort, to: &Location) -> Vec<String> {
        let paths = self.old_paths(port, to).unwrap_or_default();
        let name = |path: &Stretch<'_>| self.list[path.switch].name.clone();
        paths.iter().map(name).collect()
    }

    /// Returns the last stretch of each path to the interface that `port` leaves for `to`. While a port moves, a switch sends what arrives for
    /// it to the new interface, but never back where it came from (`arrival_goal` in edge.rs): so packets reach the old interface from its
    /// own switch, from the hypervisor, and from the new switch.
    fn old_paths<'a>(
        &'a self,
        port: &'a VirtualPort,
        to: &Location,
    ) -> Result<Vec<Stretch<'a>>, PortError> {
        let old = &port.home;
        if old == to || port.moving.as_ref().is_none_or(|moving| moving.to != *to) {
            return Err(PortError::NoMove(port.number));
        }
        let mut paths = vec![Stretch {
            switch: old.switch,
            interface: &old.interface,
            carried: None,
        }];
        let link = |switch: SwitchIndex| self.list[switch].link.as_ref();
        let over = |link: &'a LinkConfig, switch, interface| Stretch {
            switch,
            interface,
            carried: Some((link.kind, port.flow_id)),
        };
        paths.extend(link(old.switch).map(|link| over(link, HUB, &link.hypervisor)));
        if to.switch != old.switch {
            paths.extend(link(to.switch).map(|link| over(link, to.switch, &link.local)));
        }
        Ok(paths)
    }

    /// # Errors
    /// `SwitchDown`, `InterfaceMissing`, `FlowIdsExhausted`.
    fn output(&self, path: &Stretch<'_>) -> Result<ActionList, PortError> {
        let switch = &self.list[path.switch];
        if !switch.edge.is_up() {
            return Err(PortError::SwitchDown(switch.name.clone()));
        }
        let number = switch.edge.number_of(path.interface);
        let number = number.ok_or_else(|| PortError::InterfaceMissing {
            switch: switch.name.clone(),
            interface: path.interface.into(),
        })?;
        let mut actions = ActionList::default();
        if let Some((kind, id)) = path.carried {
            let carrier = Carrier::of(kind, number);
            if !carrier.carries(id) {
                return Err(PortError::FlowIdsExhausted);
            }
            actions = carrier.put(actions, id);
        }
        Ok(actions.output(number, 0))
    }
}
