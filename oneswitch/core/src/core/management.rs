//! The port map at run time, and the operator's view.

use crate::api::{
    Claim, ExecutorRequest, GatheredView, MarkersRequest, MarkersSent, MoveRequest, MoveUntil,
    MoveView, PortConfig, PortError, PortRequest, PortView, StatusView, SwitchIndex, SwitchView,
};
use crate::core::Core;
use crate::layout::edge::patch_name;
use crate::server::executors::Executors;
use crate::server::flow_ids::MAX_TAGGED;
use crate::server::port_views::{config_names, Announced};
use crate::server::ports::VirtualPort;
use crate::switches::audit::BridgeAudit;
use openflow13::{config, state};
use std::time::Instant;
use tracing::info;

impl Core {
    /// Maps a virtual port to an interface.
    ///
    /// # Errors
    /// See [`PortError`].
    pub fn add_port(&mut self, request: PortRequest, now: Instant) -> Result<u32, PortError> {
        let home = self.switches.locate(&request.switch, &request.interface)?;
        let name = request.name.unwrap_or_else(|| request.interface.clone());
        let chosen = request.executor.as_deref();
        let chosen = chosen
            .map(|name| self.switches.executor_named(name))
            .transpose()?;
        let own = chosen.unwrap_or(self.server.default_executor);
        let executor =
            self.with_moves(now, |moves, below| moves.executor_beside(below, own, &home));
        self.server.release_retired_ids(now);
        let number = self.server.ports.insert(
            request.number,
            name,
            home.clone(),
            &request.switch,
            executor,
        )?;
        if let Some(port) = self.server.ports.get_mut(number) {
            port.executor_chosen = chosen.is_some();
            port.gathered_from = (executor != own).then_some(own);
            port.owner = request.owner;
        }
        let ready = self
            .switches
            .check_present(&home, number)
            .and_then(|()| self.switches.check_up(executor.of(&home)))
            .and_then(|()| self.check_state_of_new(number, executor.of(&home)));
        if let Err(error) = ready {
            self.server.ports.remove(number);
            return Err(error);
        }
        self.port_map_changed(now);
        self.switches.apply_port_config(&self.server, number);
        info!(target: "core", port = number, switch = %request.switch, interface = %request.interface, "port added");
        Ok(number)
    }

    /// # Errors
    /// `StatefulRules`, where the port that was just inserted would split what rules keep for all ports.
    fn check_state_of_new(&self, number: u32, executor: SwitchIndex) -> Result<(), PortError> {
        let executors = Executors::derive(&self.server.ports, self.server.default_executor, false);
        if executors.all().len() > 1 && self.truth.is_stateful() {
            let executor = self.switches.list[executor].name.clone();
            return Err(PortError::StatefulRules { number, executor });
        }
        Ok(())
    }

    /// Sends one frame down each path to the interface that a moving port leaves. Skips paths that begin at a switch that `is_dead`: the
    /// packets there died with it.
    ///
    /// # Errors
    /// `PortUnknown`, `PortOwned`, `SwitchUnknown`, `InterfaceReserved`, `NoMove`, `MarkersMissing`, `SwitchDown`, `InterfaceMissing`, `FlowIdsExhausted`. No frame
    /// has been sent then.
    pub fn send_markers(
        &mut self,
        number: u32,
        request: MarkersRequest,
        is_dead: impl Fn(SwitchIndex) -> bool,
    ) -> Result<MarkersSent, PortError> {
        let port = self.server.ports.get(number);
        let port = port.ok_or(PortError::PortUnknown(number))?;
        self.switches.send_markers(port, request, is_dead)
    }

    /// Returns the names of the switches that have neither confirmed these frames yet nor disconnected.
    pub fn silent_about(&self, sent: &MarkersSent) -> Option<String> {
        self.switches.silent_about(sent)
    }

    /// Starts to compare every connected bridge with its wanted state, and to repair it; returns the request for [`Self::audited`].
    pub fn request_audit(&mut self, now: Instant) -> u64 {
        self.switches.request_audit(now)
    }

    /// Returns each bridge's result of a requested audit.
    pub fn audited(&self, since: u64, now: Instant) -> Vec<BridgeAudit<'_>> {
        self.switches.audited(since, now).collect()
    }

    /// Unmaps a port. `claim` must match its owner.
    ///
    /// # Errors
    /// `PortUnknown`, `PortOwned`, `MoveInProgress`.
    pub fn remove_port(
        &mut self,
        number: u32,
        claim: &Claim,
        now: Instant,
    ) -> Result<(), PortError> {
        let port = self.server.ports.get(number);
        let port = port.ok_or(PortError::PortUnknown(number))?;
        port.check_claim(claim)?;
        if port.moving.is_some() {
            return Err(PortError::MoveInProgress(number));
        }
        // A later port with this number does not get it.
        self.moves.take_outcome(number);
        if let Some(removed) = self.server.ports.retire(number) {
            let last = removed
                .announced
                .unwrap_or_else(|| removed.view(None, false));
            self.switches.clear_offload(&mut self.server, number);
            self.port_map_changed(now);
            self.controllers
                .tell_port_status(&Announced::deletion(last), None);
            info!(target: "core", port = number, name = %removed.name, "port removed");
        }
        Ok(())
    }

    /// Gives a port to the owner that `claim` names; `None` releases it. Taking a port from another owner requires force.
    ///
    /// # Errors
    /// `PortUnknown`, `PortOwned`.
    pub fn give_port(&mut self, number: u32, claim: Claim) -> Result<(), PortError> {
        let port = self.server.ports.get_mut(number);
        let port = port.ok_or(PortError::PortUnknown(number))?;
        port.check_claim(&claim)?;
        if port.owner != claim.owner {
            info!(target: "core", port = number, old = ?port.owner, new = ?claim.owner, "the port has another owner");
            port.owner = claim.owner;
            self.server.ports.revision += 1;
        }
        Ok(())
    }

    fn port_map_changed(&mut self, now: Instant) {
        let (old, new) = self.server.derive_executors();
        self.with_moves(now, |moves, below| moves.install_copies(below, &old, &new));
        self.with_moves(now, |moves, below| moves.retire_copies(below, &old, &new));
        self.switches.refresh_paths(&mut self.server);
        self.announce_ports(None);
    }

    pub fn ports(&self) -> Vec<PortView> {
        self.server
            .ports
            .iter()
            .map(|p| self.port_view(p))
            .collect()
    }

    fn port_view(&self, port: &VirtualPort) -> PortView {
        let location = port.delivery();
        let reason = self.down_reason(port);
        PortView {
            number: port.number,
            name: port.name.clone(),
            switch: self.switches.list[location.switch].name.clone(),
            interface: location.interface.clone(),
            executor: self.switches.executor_name(port.executor),
            executes_at: self.switches.list[port.executor_for(location)].name.clone(),
            flow_id: port.flow_id,
            ingress_id: port.ingress_id,
            up: reason.is_none(),
            reason,
            config: config_names(port.config),
            mac: port.hw_addr,
            owner: port.owner.clone(),
            moving: port.moving.as_ref().map(|m| MoveView {
                switch: self.switches.list[m.to.switch].name.clone(),
                interface: m.to.interface.clone(),
                executor: self.switches.executor_name(m.executor),
                stage: m.stage,
                old_paths: self.switches.old_path_names(port, &m.to),
            }),
        }
    }

    fn down_reason(&self, port: &VirtualPort) -> Option<String> {
        let location = port.delivery();
        let switch = &self.switches.list[location.switch];
        let needed = port.needs();
        if let Some(away) = needed.iter().find(|s| self.switches.check_up(*s).is_err()) {
            let name = &self.switches.list[away].name;
            return Some(format!("switch {name} is not connected"));
        }
        let mut ids = std::iter::once(port.flow_id).chain(port.ingress_id);
        if let Some(id) = ids.find(|id| !self.server.ports.id_space.contains(*id)) {
            return Some(format!(
                "its flow-id {id} is above {MAX_TAGGED}, so no link of type vlan carries it; map the port again"
            ));
        }
        let Some(interface) = switch.edge.port_named(&location.interface) else {
            return Some(format!(
                "interface {} is not on bridge edge of {}",
                location.interface, switch.name
            ));
        };
        if let Some(missing) = self
            .switches
            .list
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
        if let Some(cut_off) = needed.iter().find(|s| self.switches.link_dead(*s)) {
            let name = &self.switches.list[cut_off].name;
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

    /// Returns the executors if there are several and some rule keeps state that all ports share. Requests cannot cause this, but a
    /// configuration changed between two starts can.
    pub fn splits_state(&self) -> Option<String> {
        let all = self.server.executors.all();
        let is_split = all.len() > 1 && self.truth.is_stateful();
        (is_split && !self.moves.gathering.is_allowed).then(|| self.switches.switch_names(all))
    }

    pub fn status(&self) -> StatusView {
        StatusView {
            datapath_id: self.datapath_id,
            switches: (0..self.switches.list.len())
                .map(|s| self.switch_view(s))
                .collect(),
            ports: self.server.ports.len(),
            flows: self.truth.tables.len(),
            groups: self.truth.groups.len(),
            meters: self.truth.meters.len(),
            executors: self
                .server
                .executors
                .all()
                .iter()
                .map(|s| self.switches.list[s].name.clone())
                .collect(),
            refused: self.controllers.refused,
            gathered: self.gathered_view(),
        }
    }

    fn gathered_view(&self) -> Option<GatheredView> {
        let (at, choice) = self.moves.gathering_place(&self.server)?;
        let ports = self.server.ports.gathered();
        let reason = match (self.is_holding(), self.truth.is_stateful()) {
            (true, _) => "messages with NORMAL, ct or learn wait for it",
            (false, true) => "rules or groups with NORMAL, ct or learn share state",
            _ if self.needs_one_executor() => "meters are shared",
            _ => "nothing needs it any more: the ports go home soon",
        };
        Some(GatheredView {
            at: self.switches.list[at].name.clone(),
            ports: ports.map(|port| port.number).collect(),
            reason,
            choice,
        })
    }

    fn switch_view(&self, index: usize) -> SwitchView {
        let switch = &self.switches.list[index];
        let executes = self.server.executors.all().contains(index);
        let share = |count: usize| if executes { count } else { 0 };
        SwitchView {
            name: switch.name.clone(),
            virt: switch.virt.view(),
            edge: switch.edge.view(),
            link: self.switches.link_view(index),
            physical_flows: self
                .truth
                .tables
                .iter()
                .filter(|r| self.server.executors.of_rule(r).contains(index))
                .count(),
            physical_groups: share(self.truth.groups.len()),
            physical_meters: share(self.truth.meters.len()),
            edge_flows: switch.installed.len(),
            repairs: switch.repairs,
            refusals: [&switch.virt, &switch.edge].map(|s| s.refusal.map(|e| e.to_string())),
        }
    }

    /// Returns a number that grows with every change of the port map; the daemon then saves [`Core::port_configs`].
    pub fn ports_revision(&self) -> u64 {
        self.server.ports.revision
    }

    pub fn port_configs(&self) -> Vec<PortConfig> {
        self.server
            .ports
            .configs(|s| self.switches.list[s].name.clone())
    }

    /// Starts a move, which proceeds with the switches' answers and `tick`. See [`Core::move_outcome`].
    ///
    /// # Errors
    /// `PortUnknown`, `PortOwned`, `SwitchUnknown`, `MoveInProgress`, `InterfaceTaken`, `SwitchDown`, `InterfaceMissing`, `PatchMissing`,
    /// `StatefulRules`.
    pub fn begin_move(
        &mut self,
        number: u32,
        request: MoveRequest,
        now: Instant,
    ) -> Result<(), PortError> {
        self.with_moves(now, |moves, below| moves.begin_move(below, number, request))
    }

    /// Starts to run the port's pipeline on another switch: a move with the same interface. See [`Core::begin_move`].
    ///
    /// # Errors
    /// `PortUnknown`, `SwitchUnknown`, `MoveInProgress`, `SwitchDown`, `InterfaceMissing`, `PatchMissing`, `StatefulRules`,
    /// `FlowIdsExhausted`.
    pub fn begin_executor_change(
        &mut self,
        number: u32,
        request: &ExecutorRequest,
        now: Instant,
    ) -> Result<(), PortError> {
        self.with_moves(now, |moves, below| {
            moves.begin_executor_change(below, number, request)
        })
    }

    /// Resumes a waiting move.
    ///
    /// # Errors
    /// `PortUnknown`, `NoMove`.
    pub fn continue_move(
        &mut self,
        number: u32,
        until: MoveUntil,
        now: Instant,
    ) -> Result<(), PortError> {
        self.with_moves(now, |moves, below| {
            moves.continue_move(below, number, until)
        })
    }

    /// Makes a move proceed without bridges that have not confirmed their rules, because their switch is known to be dead. Before the flip
    /// it fails if it depends on one of them.
    ///
    /// # Errors
    /// `PortUnknown`, `NoMove`.
    pub fn force_move(&mut self, number: u32) -> Result<(), PortError> {
        let moving = self.server.moving(number)?;
        moving.forced = true;
        Ok(())
    }

    /// Undoes a move that has not flipped.
    ///
    /// # Errors
    /// `PortUnknown`, `NoMove`, `MovePastAbort`.
    pub fn abort_move(&mut self, number: u32, now: Instant) -> Result<(), PortError> {
        self.with_moves(now, |moves, below| moves.abort_move(below, number))
    }

    /// Returns `None` while the move is in progress toward its `until`; then once `Some` with the result (reached
    /// `prepared`/`flipped`/`done`, or failed). Callers poll it after every round.
    pub fn move_outcome(&mut self, number: u32) -> Option<Result<(), PortError>> {
        self.moves.take_outcome(number)
    }
}
