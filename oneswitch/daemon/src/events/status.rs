//! `Status` of the contract.

use std::collections::BTreeMap;

use serde::Serialize;

#[derive(Debug, Serialize)]
pub struct Status {
    pub version: &'static str,
    pub datapath_id: String,
    pub uptime_s: u64,
    pub listen: Vec<String>,
    pub api: String,
    pub controllers: Vec<ControllerStatus>,
    pub switches: Vec<SwitchStatus>,
    #[serde(rename = "virtual")]
    pub virtual_switch: VirtualStatus,
    pub refused: u64,
    /// Ports with a writer, or with offloaded flows.
    pub offload: Vec<OffloadStatus>,
}

/// The offloaded flows of a virtual port.
#[derive(Debug, Serialize)]
pub struct OffloadStatus {
    pub port: u32,
    /// Whether a writer is connected.
    pub writer: bool,
    pub flows: usize,
    pub targets: usize,
    /// Carried by rules, also by those that are gone.
    pub packets: u64,
    pub bytes: u64,
    /// Refused installs by reason.
    pub refused: BTreeMap<&'static str, u64>,
}

#[derive(Debug, Serialize)]
pub struct ControllerStatus {
    /// `None` while disconnected.
    pub id: Option<u64>,
    pub target: String,
    pub peer: String,
    pub state: &'static str,
    pub role: Option<&'static str>,
    pub messages_in: u64,
    pub messages_out: u64,
    /// Packet-ins that it lost because it did not read.
    pub packet_ins_dropped: u64,
    pub last_error: Option<String>,
}

#[derive(Debug, Serialize)]
pub struct SwitchStatus {
    pub name: String,
    pub hub: bool,
    pub virt: BridgeStatus,
    pub edge: BridgeStatus,
    pub link: Option<LinkStatus>,
    pub physical_flows: usize,
    pub physical_groups: usize,
    pub physical_meters: usize,
    pub edge_flows: usize,
    pub repairs: u64,
    /// Whether packets that meet no rule come from it, `up` or `down`; `None`: no controller wants them.
    pub misses: Option<&'static str>,
}

#[derive(Debug, Serialize)]
pub struct BridgeStatus {
    pub target: String,
    pub state: &'static str,
    pub last_error: Option<String>,
}

#[derive(Debug, Serialize)]
pub struct LinkStatus {
    pub hypervisor: String,
    pub local: String,
    pub state: &'static str,
    /// `vlan` or `pcie`; `None`: its ends differ, or are not known.
    pub r#type: Option<&'static str>,
    /// Why it has this type.
    pub reason: String,
}

#[derive(Debug, Serialize)]
pub struct VirtualStatus {
    pub ports: usize,
    pub flows: usize,
    pub groups: usize,
    pub meters: usize,
    pub executors: Vec<String>,
    pub gathered: Option<GatheredStatus>,
}

/// Ports that execute at one switch for state that they share.
#[derive(Debug, Serialize)]
pub struct GatheredStatus {
    pub at: String,
    /// Those that have left their own executors.
    pub ports: Vec<u32>,
    /// Why ports are gathered, and why at this switch.
    pub reason: &'static str,
    pub choice: String,
}
