//! The port map at run time, and what the operator sees.

use crate::api::{
    Bridge, Claim, MoveView, PortConfig, PortError, PortRequest, PortView, StatusView, SwitchIndex,
    SwitchView, HOME,
};
use crate::layout::edge::patch_name;
use crate::server::executors::Executors;
use crate::server::ports::{config_names, Executor, Location, VirtualPort};
use crate::switch_set::SwitchSet;
use crate::Core;
use openflow13::{config, state, Message, PortMod, PortStatus};
use std::time::Instant;
use tracing::info;

impl Core {
    /// Maps a virtual port to an interface.
    ///
    /// # Errors
    /// See [`PortError`].
    pub fn add_port(&mut self, request: PortRequest, now: Instant) -> Result<u32, PortError> {
        let home = self.locate(&request.switch, &request.interface)?;
        let name = request.name.unwrap_or_else(|| request.interface.clone());
        let chosen = request.executor.as_deref();
        let chosen = chosen.map(|name| self.executor_named(name)).transpose()?;
        let executor = chosen.unwrap_or(self.default_executor);
        self.release_retired_ids(now);
        let number = self.ports.insert(
            request.number,
            name,
            home.clone(),
            &request.switch,
            executor,
        )?;
        if let Some(port) = self.ports.get_mut(number) {
            port.executor_chosen = chosen.is_some();
            port.owner = request.owner;
        }
        let ready = self
            .check_present(&home, number)
            .and_then(|()| self.check_up(executor.of(&home)))
            .and_then(|()| self.check_state_of_new(number, executor.of(&home)));
        if let Err(error) = ready {
            self.ports.remove(number);
            return Err(error);
        }
        self.port_map_changed(now);
        self.apply_port_config(number);
        info!(target: "core", port = number, switch = %request.switch, interface = %request.interface, "port added");
        Ok(number)
    }

    /// # Errors
    /// `StatefulRules`, where the port that was just inserted would split what rules keep for all ports.
    fn check_state_of_new(&self, number: u32, executor: SwitchIndex) -> Result<(), PortError> {
        let executors = Executors::derive(&self.ports, self.default_executor, false);
        if executors.all().len() > 1 && self.truth.is_stateful() {
            let executor = self.switches[executor].name.clone();
            return Err(PortError::StatefulRules { number, executor });
        }
        Ok(())
    }

    /// Unmaps a port. `claim` must suit its owner.
    ///
    /// # Errors
    /// `PortUnknown`, `PortOwned`, `MoveInProgress`.
    pub fn remove_port(
        &mut self,
        number: u32,
        claim: &Claim,
        now: Instant,
    ) -> Result<(), PortError> {
        let port = self.ports.get(number);
        let port = port.ok_or(PortError::PortUnknown(number))?;
        port.check_claim(claim)?;
        if port.moving.is_some() {
            return Err(PortError::MoveInProgress(number));
        }
        self.move_outcomes.remove(&number);
        if let Some(removed) = self.ports.retire(number) {
            let last = removed
                .announced
                .unwrap_or_else(|| removed.view(None, false));
            self.port_map_changed(now);
            self.tell_port_status(PortStatus::DELETE, last, None);
            info!(target: "core", port = number, name = %removed.name, "port removed");
        }
        Ok(())
    }

    /// Gives a port to the owner that `claim` names; `None` releases it. A port of another owner is given with force only.
    ///
    /// # Errors
    /// `PortUnknown`, `PortOwned`.
    pub fn give_port(&mut self, number: u32, claim: Claim) -> Result<(), PortError> {
        let port = self.ports.get_mut(number);
        let port = port.ok_or(PortError::PortUnknown(number))?;
        port.check_claim(&claim)?;
        if port.owner != claim.owner {
            info!(target: "core", port = number, old = ?port.owner, new = ?claim.owner, "the port has another owner");
            port.owner = claim.owner;
            self.ports.revision += 1;
        }
        Ok(())
    }

    fn port_map_changed(&mut self, now: Instant) {
        let (old, new) = self.derive_executors(self.executors.is_everywhere());
        self.install_copies(&old, &new, now);
        self.retire_copies(&old, &new, now);
        self.refresh_paths();
        self.announce_ports(None);
    }

    /// Puts a controller's port configuration where it acts: on the patch ports in `virt`, PORT_DOWN on the interface.
    pub(crate) fn apply_port_config(&mut self, number: u32) {
        self.refresh_patch_config(number);
        let Some(port) = self.ports.get(number) else {
            return;
        };
        let config = port.config & config::PORT_DOWN;
        let locations: Vec<Location> = port.locations().cloned().collect();
        for location in locations {
            self.apply_interface_config(&location, config);
        }
    }

    fn apply_interface_config(&mut self, location: &Location, config: u32) {
        let edge = &mut self.switches[location.switch].edge;
        if !edge.is_up() {
            return;
        }
        let Some(interface) = edge.port_named_mut(&location.interface) else {
            return;
        };
        if (interface.config ^ config) & config::PORT_DOWN != 0 {
            let message = PortMod {
                port: interface.number,
                hw_addr: interface.hw_addr,
                config,
                mask: config::PORT_DOWN,
                advertise: 0,
            };
            // Open vSwitch does not tell the sender of a port-mod of its effect.
            interface.config = (interface.config & !config::PORT_DOWN) | config;
            let number = interface.number;
            self.send_to(location.switch, Bridge::Edge, &Message::PortMod(message));
            let batch = self.verdicts.current_batch();
            let edge = &mut self.switches[location.switch].edge;
            edge.port_mods.insert(number, batch);
        }
    }

    /// Puts what controllers configured on the interfaces of a bridge that came up.
    pub(crate) fn apply_port_configs(&mut self, switch: SwitchIndex) {
        let numbers: Vec<u32> = self
            .ports
            .iter()
            .filter(|p| p.locations().any(|l| l.switch == switch))
            .map(|p| p.number)
            .collect();
        numbers.into_iter().for_each(|n| self.apply_port_config(n));
    }

    pub(crate) fn refresh_all_patch_config(&mut self) {
        let numbers: Vec<u32> = self.ports.iter().map(|p| p.number).collect();
        numbers
            .into_iter()
            .for_each(|n| self.refresh_patch_config(n));
    }

    /// What a controller configured, on the patch ports; PORT_DOWN, which they do not have, acts on the interface and on who watches it
    /// (liveness.rs).
    pub(crate) fn refresh_patch_config(&mut self, number: u32) {
        const ALL: u32 = config::NO_RECV | config::NO_FWD | config::NO_PACKET_IN;
        let Some(port) = self.ports.get(number) else {
            return;
        };
        let wanted = port.config & ALL;
        for switch in self.up().iter() {
            let Some(patch) = self.switches[switch].virt.ports.get_mut(&number) else {
                continue;
            };
            if patch.config & ALL != wanted {
                let message = PortMod {
                    port: number,
                    hw_addr: patch.hw_addr,
                    config: wanted,
                    mask: ALL,
                    advertise: 0,
                };
                patch.config = (patch.config & !ALL) | wanted;
                self.send_to(switch, Bridge::Virt, &Message::PortMod(message));
            }
        }
    }

    pub fn ports(&self) -> Vec<PortView> {
        self.ports.iter().map(|p| self.port_view(p)).collect()
    }

    fn port_view(&self, port: &VirtualPort) -> PortView {
        let location = port.delivery();
        let reason = self.down_reason(port);
        PortView {
            number: port.number,
            name: port.name.clone(),
            switch: self.switches[location.switch].name.clone(),
            interface: location.interface.clone(),
            executor: self.executor_name(port.executor),
            executes_at: self.switches[port.executor_for(location)].name.clone(),
            flow_id: port.flow_id,
            ingress_id: port.ingress_id,
            up: reason.is_none(),
            reason,
            config: config_names(port.config),
            mac: port.hw_addr,
            owner: port.owner.clone(),
            moving: port.moving.as_ref().map(|m| MoveView {
                switch: self.switches[m.to.switch].name.clone(),
                interface: m.to.interface.clone(),
                executor: self.executor_name(m.executor),
                stage: m.stage,
            }),
        }
    }

    fn executor_name(&self, executor: Executor) -> String {
        match executor {
            Executor::Home => HOME.into(),
            Executor::At(switch) => self.switches[switch].name.clone(),
        }
    }

    /// Switches that no packet reaches, or leaves: their PCIe link is dead, or nothing is known of them.
    pub(crate) fn out_of_reach(&self) -> SwitchSet {
        let lost = |s: &usize| self.link_dead(*s) || !self.switches[*s].edge.is_up();
        (0..self.switches.len()).filter(lost).collect()
    }

    fn down_reason(&self, port: &VirtualPort) -> Option<String> {
        let location = port.delivery();
        let switch = &self.switches[location.switch];
        let needed = port.needs();
        if let Some(away) = needed.iter().find(|s| self.check_up(*s).is_err()) {
            let name = &self.switches[away].name;
            return Some(format!("switch {name} is not connected"));
        }
        let Some(interface) = switch.edge.port_named(&location.interface) else {
            return Some(format!(
                "interface {} is not on bridge edge of {}",
                location.interface, switch.name
            ));
        };
        if let Some(missing) = self
            .switches
            .iter()
            .find(|s| s.edge.is_up() && s.edge.number_of(&patch_name(port.number)).is_none())
        {
            return Some(format!(
                "patch port {} is missing on {}",
                patch_name(port.number),
                missing.name
            ));
        }
        if port.config & config::PORT_DOWN != 0 {
            return Some("a controller took it down (PORT_DOWN)".into());
        }
        if let Some(cut_off) = needed.iter().find(|s| self.link_dead(*s)) {
            let name = &self.switches[cut_off].name;
            return Some(format!("the PCIe link of {name} is down"));
        }
        let dead = interface.state & state::LINK_DOWN != 0;
        dead.then(|| {
            format!(
                "interface {} of {} has no link",
                location.interface, switch.name
            )
        })
    }

    /// The executors, where there are several and some rule keeps state that all ports share. No request leads there, but a configuration
    /// that was changed between two starts can.
    pub fn splits_state(&self) -> Option<String> {
        let all = self.executors.all();
        (all.len() > 1 && self.truth.is_stateful()).then(|| self.switch_names(all))
    }

    pub fn status(&self) -> StatusView {
        StatusView {
            datapath_id: self.datapath_id,
            switches: (0..self.switches.len())
                .map(|s| self.switch_view(s))
                .collect(),
            ports: self.ports.len(),
            flows: self.truth.tables.len(),
            groups: self.truth.groups.len(),
            meters: self.truth.meters.len(),
            executors: self
                .executors
                .all()
                .iter()
                .map(|s| self.switches[s].name.clone())
                .collect(),
            refused: self.refused,
        }
    }

    fn switch_view(&self, index: usize) -> SwitchView {
        let switch = &self.switches[index];
        let executes = self.executors.all().contains(index);
        let share = |count: usize| if executes { count } else { 0 };
        SwitchView {
            name: switch.name.clone(),
            virt: switch.virt.view(),
            edge: switch.edge.view(),
            link_up: self.link_up(index),
            physical_flows: self
                .truth
                .tables
                .iter()
                .filter(|r| self.executors.of_rule(r).contains(index))
                .count(),
            physical_groups: share(self.truth.groups.len()),
            physical_meters: share(self.truth.meters.len()),
            edge_flows: switch.installed.len(),
            repairs: switch.repairs,
            refusals: [&switch.virt, &switch.edge].map(|s| s.refusal.map(|e| e.to_string())),
        }
    }

    /// Both ends of the switch's PCIe link are there and have carrier; `None` for the hypervisor.
    fn link_up(&self, index: usize) -> Option<bool> {
        let link = self.switches[index].link.as_ref()?;
        let hub = self.switches[crate::server::executors::HUB]
            .edge
            .port_named(&link.hypervisor);
        let local = self.switches[index].edge.port_named(&link.local);
        let alive =
            |port: Option<&openflow13::Port>| port.is_some_and(|p| p.state & state::LINK_DOWN == 0);
        Some(alive(hub) && alive(local))
    }

    /// An end of the switch's PCIe link is known to be missing or without carrier. Of a switch that is not connected nothing is known.
    pub(crate) fn link_dead(&self, index: usize) -> bool {
        let Some(link) = &self.switches[index].link else {
            return false;
        };
        let ends = [
            (
                &self.switches[crate::server::executors::HUB].edge,
                &link.hypervisor,
            ),
            (&self.switches[index].edge, &link.local),
        ];
        ends.into_iter().any(|(edge, name)| {
            let carrier = |p: &openflow13::Port| p.state & state::LINK_DOWN == 0;
            edge.is_up() && !edge.port_named(name).is_some_and(carrier)
        })
    }

    /// # Errors
    /// `SwitchUnknown`, `InterfaceReserved`.
    pub(crate) fn locate(&self, switch: &str, interface: &str) -> Result<Location, PortError> {
        let index = self
            .switches
            .iter()
            .position(|s| s.name == switch)
            .ok_or_else(|| PortError::SwitchUnknown(switch.into()))?;
        let is_pcie = self
            .switches
            .iter()
            .enumerate()
            .filter_map(|(at, s)| Some((at, s.link.as_ref()?)))
            .any(|(at, link)| {
                (index == crate::server::executors::HUB && link.hypervisor == interface)
                    || (index == at && link.local == interface)
            });
        if is_pcie || interface == "edge" || interface.starts_with("edge-") {
            return Err(PortError::InterfaceReserved {
                switch: switch.into(),
                interface: interface.into(),
            });
        }
        Ok(Location {
            switch: index,
            interface: interface.into(),
        })
    }

    /// # Errors
    /// `SwitchUnknown`.
    pub(crate) fn executor_named(&self, name: &str) -> Result<Executor, PortError> {
        if name == HOME {
            return Ok(Executor::Home);
        }
        let index = self.switches.iter().position(|s| s.name == name);
        index
            .map(Executor::At)
            .ok_or_else(|| PortError::SwitchUnknown(name.into()))
    }

    /// Grows with every change of the port map: the daemon then saves [`Core::port_configs`].
    pub fn ports_revision(&self) -> u64 {
        self.ports.revision
    }

    pub fn port_configs(&self) -> Vec<PortConfig> {
        self.ports.configs(|s| self.switches[s].name.clone())
    }
}
