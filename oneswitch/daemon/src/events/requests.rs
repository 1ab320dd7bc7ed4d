//! Requests of the REST API to the engine, and its answers.

use oneswitch_core::{
    Claim, ExecutorRequest, MarkersRequest, MoveRequest, MoveUntil, PortRequest, PortView,
};
use serde_json::Value;

use super::{Problem, Status};

/// One request of the contract (docs/architecture.md, "REST of oneswitchd").
#[derive(Debug)]
pub enum Request {
    Status,
    /// The status when all switches are in sync and this many controllers are connected.
    AwaitUp {
        controllers: usize,
    },
    Ports,
    Port(u32),
    AddPort(PortRequest),
    RemovePort(u32, Claim),
    /// Sets the owner that the claim names.
    GivePort(u32, Claim),
    Move(u32, MoveRequest),
    Execute(u32, ExecutorRequest),
    ContinueMove {
        number: u32,
        until: MoveUntil,
        force: bool,
    },
    AbortMove(u32),
    SendMarkers(u32, MarkersRequest),
    Audit,
}

/// An answer of the engine.
#[derive(Debug)]
pub enum Answer {
    Status(Box<Status>),
    Ports(Vec<PortView>),
    Port(PortView),
    /// A new port.
    Added(PortView),
    /// Markers were sent from these switches.
    Markers(Vec<String>),
    Audit(Vec<Value>),
    /// Success without content.
    Nothing,
}

pub type Reply = Result<Answer, Problem>;
