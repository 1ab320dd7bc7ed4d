//! Brings a bridge to its wanted state: after it connected, and when it disagreed.

use crate::api::{Bridge, SwitchIndex};
use crate::layout::compare::{Comparison, Expired};
use crate::layout::findings::{Findings, CHANGED, FOREIGN, MISSING};
use crate::layout::messages::{everything, flood_groups, physical_group};
use crate::layout::repair::{self, before_flight};
use crate::model::in_flight::InFlight;
use crate::model::rule::Rule;
use crate::model::tlv_table::TlvTable;
use crate::model::truth::Truth;
use crate::server::Server;
use crate::switch_set::SwitchSet;
use crate::switches::reads::Purpose;
use crate::switches::session::{Inventory, SessionState};
use crate::switches::Switches;
use openflow13::tlv_table;
use openflow13::{
    meter_no, AsyncMasks, ErrorCode, Experimenter, FlowMod, FlowStats, GroupDesc, GroupMod,
    GroupModCommand, Message, MultipartReply, MultipartRequest, SwitchConfig,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::warn;

/// OFPT_SET_CONFIG: also asks a service connection of Open vSwitch for asynchronous messages.
pub(crate) const WHOLE_PACKET: u16 = 0xffff;
/// Limit of resyncs of a bridge per [`PAUSE`], however often it disagrees: some disagreements cannot be repaired.
const RESYNCS: u32 = 3;
const PAUSE: Duration = Duration::from_secs(1);
/// How long to postpone reading a bridge that is trying a bundle.
const TRIAL: Duration = Duration::from_millis(10);

/// Differences of a `virt` that are right: the virtual tables have to follow.
#[derive(Debug, Default)]
pub struct Compared {
    pub expired: Vec<Expired>,
    /// Rules that it has learned, or has changed by itself.
    pub learned: Vec<FlowStats>,
    /// Learned rules that it had lost.
    pub restored: Vec<Arc<Rule>>,
}

impl Switches {
    /// Requests the complete state of a newly connected bridge.
    pub fn synchronise(&mut self, switch: SwitchIndex, bridge: Bridge) {
        let config = SwitchConfig {
            flags: match bridge {
                Bridge::Virt => self.fragment_flags,
                Bridge::Edge => 0,
            },
            miss_send_len: WHOLE_PACKET,
        };
        self.send_to(switch, bridge, &Message::SetConfig(config));
        if bridge == Bridge::Virt {
            // Everything, even INVALID_TTL: each controller's own masks filter it.
            let masks = AsyncMasks {
                packet_in: [0b1111; 2],
                port_status: [0b111; 2],
                flow_removed: [0b11_1111; 2],
                ..AsyncMasks::NONE
            };
            self.send_to(switch, bridge, &Message::SetAsync(masks));
            self.send_packet_in_format(switch);
            self.send_to(switch, bridge, &Message::FeaturesRequest);
        }
        let mut inventory = self.request_inventory(switch, bridge);
        inventory.after_gap = true;
        self.list[switch].session_mut(bridge).state = SessionState::Syncing(inventory);
    }

    fn request_inventory(&mut self, switch: SwitchIndex, bridge: Bridge) -> Inventory {
        let meter = meter_no::ALL;
        let requests = [
            MultipartRequest::PortDesc,
            MultipartRequest::Flow(everything()),
            MultipartRequest::GroupDesc,
            MultipartRequest::MeterConfig { meter },
        ];
        let (missing, since) = (requests.len(), self.verdicts.sequence());
        let begun = self.questions;
        if bridge == Bridge::Virt {
            // The answer arrives before those to the requests after it.
            self.send_to(switch, bridge, &tlv_table::request());
        }
        for request in requests {
            self.read(Purpose::Inventory, bridge, SwitchSet::of(switch), request);
        }
        Inventory {
            missing,
            begun,
            since,
            bundles: self.list[switch].bundles,
            own_changes: self.list[switch].own_changes,
            ..Inventory::default()
        }
    }

    /// Reads a bridge again; it stays in service.
    pub fn request_resync(&mut self, switch: SwitchIndex, bridge: Bridge, now: Instant) {
        let session = self.list[switch].session_mut(bridge);
        if session.is_down() {
            return;
        }
        if let SessionState::Syncing(inventory) = &session.state {
            if inventory.missing == 0 {
                self.synchronise(switch, bridge); // its answer was incomplete
            }
            return;
        }
        if session.resync.is_some() {
            session.again = true;
            return;
        }
        if self.verdicts.is_joining() || self.verdicts.awaits_newer() {
            // It would lack what it has only tried, or gets over another connection.
            session.resync_at = Some(now + TRIAL);
            return;
        }
        if session
            .resync_window
            .is_none_or(|begin| begin + PAUSE <= now)
        {
            session.resync_window = Some(now);
            session.resyncs = 0;
        }
        session.resyncs += 1;
        if session.resyncs > RESYNCS {
            session.resync_at = session.resync_window.map(|begin| begin + PAUSE);
            return;
        }
        let inventory = self.request_inventory(switch, bridge);
        self.list[switch].session_mut(bridge).resync = Some(inventory);
    }

    /// Reads a bridge again that refused something of ours: at once, then, as long as that does not help, with growing delays.
    pub fn retry_resync(&mut self, switch: SwitchIndex, bridge: Bridge, now: Instant) {
        /// The longest delay is [`PAUSE`] doubled this many times.
        const DOUBLED: u32 = 5;
        self.doubt(switch, bridge, now);
        let session = self.list[switch].session_mut(bridge);
        let retries = session.retries;
        session.retries = retries.saturating_add(1);
        if retries == 0 {
            return self.request_resync(switch, bridge, now);
        }
        let at = now + PAUSE * 2u32.pow((retries - 1).min(DOUBLED));
        session.resync_at = Some(session.resync_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// Starts postponed resyncs.
    pub fn resync_overdue(&mut self, now: Instant) {
        for switch in 0..self.list.len() {
            for bridge in [Bridge::Virt, Bridge::Edge] {
                let session = self.list[switch].session_mut(bridge);
                if session.resync_at.is_some_and(|at| at <= now) {
                    session.resync_at = None;
                    self.request_resync(switch, bridge, now);
                }
            }
        }
    }

    pub fn next_resync(&self) -> Option<Instant> {
        let sessions = self.list.iter().flat_map(|s| [&s.virt, &s.edge]);
        sessions.filter_map(|s| s.resync_at).min()
    }

    /// Adds one answer to a bridge's inventory; returns whether it is complete.
    pub fn inventory_part(
        &mut self,
        switch: SwitchIndex,
        bridge: Bridge,
        parts: Vec<(SwitchIndex, MultipartReply)>,
        error: Option<ErrorCode>,
    ) -> bool {
        // A bridge that does not support a request has nothing of that kind, such as meters.
        let error = error.filter(|error| *error != ErrorCode::BAD_REQUEST_BAD_MULTIPART);
        if let Some(error) = error {
            warn!(target: "southbound", switch = %self.list[switch].name, ?bridge, %error, "does not report its complete state");
        }
        let session = self.list[switch].session_mut(bridge);
        let mut ports = None;
        let Some(inventory) = session.inventory_mut() else {
            return false;
        };
        inventory.missing = inventory.missing.saturating_sub(1);
        inventory.error = inventory.error.or(error);
        for (_, part) in parts {
            match part {
                MultipartReply::Flow(mut flows) => inventory.flows.append(&mut flows),
                MultipartReply::GroupDesc(mut groups) => inventory.groups.append(&mut groups),
                MultipartReply::MeterConfig(mut meters) => inventory.meters.append(&mut meters),
                MultipartReply::PortDesc(mut some) => {
                    ports.get_or_insert_with(Vec::new).append(&mut some)
                }
                _ => {}
            }
        }
        let complete = inventory.missing == 0;
        if let Some(ports) = ports.filter(|_| error.is_none()) {
            session.clear_ports();
            ports.into_iter().for_each(|p| session.set_port(p));
        }
        complete
    }

    /// Notes the fields for tunnels' options of a `virt` that is being read.
    pub fn tlv_table_reported(&mut self, switch: SwitchIndex, message: &Experimenter) {
        let inventory = self.list[switch].virt.inventory_mut();
        if let (Some(inventory), Some(reported)) = (inventory, tlv_table::reported(message)) {
            inventory.tlv_table = TlvTable::of(reported);
        }
    }

    /// Ends the reading of a bridge, which is in service from now on.
    pub fn take_inventory(&mut self, switch: SwitchIndex, bridge: Bridge) -> Inventory {
        let session = self.list[switch].session_mut(bridge);
        match std::mem::replace(&mut session.state, SessionState::Up) {
            SessionState::Syncing(inventory) => inventory,
            _ => session.resync.take().unwrap_or_default(),
        }
    }

    /// Tells whether a `virt` has not reported everything. It is then not compared, because unreported rules would count as expired.
    pub fn is_virt_untold(&mut self, switch: SwitchIndex) -> bool {
        let session = &mut self.list[switch].virt;
        let Some(error) = session.inventory_mut().and_then(|i| i.error) else {
            return false;
        };
        session.refusal = Some(error);
        session.resync = None;
        true
    }

    /// Compares `virt` with the virtual tables and repairs it; `None`: it could not be compared.
    pub fn compare_virt(
        &mut self,
        truth: &Truth,
        server: &mut Server,
        switch: SwitchIndex,
        inventory: Inventory,
        now: Instant,
    ) -> Option<Compared> {
        if !inventory.after_gap && inventory.own_changes != self.list[switch].own_changes {
            // It was read before it received its current rules.
            self.list[switch].virt.again = true;
            return None;
        }
        self.verdicts.adopt_others(switch);
        let here = SwitchSet::of(switch);
        let needed = server.executors.all().contains(switch);
        let in_flight = self.verdicts.in_flight_at(switch, inventory.since);
        self.refresh_all_patch_config(server);
        let comparison = Comparison {
            truth,
            hidden: &server.hidden,
            executors: &server.executors,
            switch,
            after_gap: inventory.after_gap,
            in_flight: &in_flight,
            learns: self.list[switch].virt.is_watched,
            is_unread: &|key| self.list[switch].virt.unread.contains(key),
            is_incomplete: &|key| {
                let rules = [&self.version10.rules, &self.properties.rules];
                rules.into_iter().any(|rules| rules.lacks(switch, key))
            },
            memory: &self.list[switch].virt.memory,
            now,
        };
        let flows = comparison.of_flows(&inventory.flows);
        self.list[switch].virt.memory = flows.memory;
        let mut found = Findings::default();
        for (kind, rules) in [
            (FOREIGN, &flows.surplus),
            (MISSING, &flows.missing),
            (CHANGED, &flows.changed),
        ] {
            let virt = &self.list[switch].virt;
            let name =
                |rule: &FlowMod| virt.rule_name(rule.table_id, rule.priority, &rule.matching);
            rules.iter().for_each(|rule| found.add(kind, || name(rule)));
        }
        for rule in flows.surplus {
            self.send_own_flow(rule, here, now);
        }
        // Rules may name its fields.
        let wanted = in_flight.tlv_table.as_ref().unwrap_or(&truth.tlv_table);
        for message in inventory.tlv_table.difference(wanted).into_iter().flatten() {
            self.send_own(&message.message(), here, now);
        }
        let mut again = flows.again;
        let meters = match needed {
            true => before_flight(&truth.meters, &in_flight.meters),
            false => BTreeMap::new(),
        };
        let is_in_flight = |id| in_flight.meters.contains_key(&id);
        let meters = repair::meters(&inventory.meters, meters, is_in_flight);
        let groups = self.wanted_groups(truth, server, switch, &inventory.groups, &in_flight);
        let is_in_flight = |id| in_flight.groups.contains_key(&id);
        let groups = repair::groups(&inventory.groups, groups, is_in_flight);
        again |= meters.again | groups.again;
        // Rules may name groups that are missing, and may still name groups that are not there any more.
        let (missing, others): (Vec<_>, Vec<_>) = groups.messages.iter().partition(|m| is_new(m));
        for message in meters.messages.iter().chain(missing) {
            self.send_own(message, here, now);
        }
        self.require_properties(here);
        self.require_version10(here);
        for copy in flows.missing.into_iter().chain(flows.changed) {
            self.send_own_flow(copy, here, now);
        }
        for message in others {
            self.send_own(message, here, now);
        }
        self.list[switch].virt.again |= again;
        found.append(meters.found);
        found.append(groups.found);
        self.keep_findings(switch, Bridge::Virt, inventory.after_gap, found, now);
        Some(Compared {
            expired: flows.expired,
            learned: flows.learned,
            restored: flows.restored,
        })
    }

    /// Returns the groups that `switch`, which has `found`, should have had before the messages in flight.
    fn wanted_groups(
        &mut self,
        truth: &Truth,
        server: &mut Server,
        switch: SwitchIndex,
        found: &[GroupDesc],
        in_flight: &InFlight,
    ) -> BTreeMap<u32, GroupMod> {
        let mut wanted = BTreeMap::new();
        let live = self.live_groups(truth, server, switch, found);
        if server.executors.all().contains(switch) {
            let groups = before_flight(&truth.groups, &in_flight.groups);
            wanted.extend(
                groups
                    .values()
                    .map(|g| (g.id, physical_group(g, &server.hidden))),
            );
        }
        let floods = flood_groups(&server.hidden, server.flood.of_senders(), switch);
        let hidden = floods.into_iter().chain(live);
        wanted.extend(hidden.map(|group| (group.group_id, group)));
        wanted
    }
}

/// Tells whether a message adds a group.
fn is_new(message: &Message) -> bool {
    let Message::GroupMod(group) = message else {
        return false;
    };
    matches!(
        group.command,
        GroupModCommand::Add | GroupModCommand::AddOrModify
    )
}
