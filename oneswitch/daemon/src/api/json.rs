//! The JSON of the contract, except the status.

use std::ops::RangeInclusive;
use std::time::Duration;

use oneswitch_core::{
    Claim, ExecutorRequest, MarkersRequest, MoveRequest, MoveStage, MoveUntil, PortError,
    PortRequest, PortView,
};
use serde::{Deserialize, Serialize};

use crate::events::Problem;

/// The default grace period of a move.
const GRACE_MS: u64 = 500;
/// The longest grace period.
const GRACE_MAX_MS: u64 = 600_000;

/// `Port` of the contract.
#[derive(Serialize)]
pub struct Port<'a> {
    number: u32,
    name: &'a str,
    switch: &'a str,
    interface: &'a str,
    executor: &'a str,
    executes_at: &'a str,
    flow_id: u32,
    ingress_id: Option<u32>,
    state: &'static str,
    reason: Option<&'a str>,
    config: &'a [&'static str],
    mac: Option<String>,
    owner: Option<&'a str>,
    r#move: Option<Move<'a>>,
}

#[derive(Serialize)]
struct Move<'a> {
    switch: &'a str,
    interface: &'a str,
    executor: &'a str,
    stage: &'static str,
    old_paths: &'a [String],
}

impl<'a> From<&'a PortView> for Port<'a> {
    fn from(view: &'a PortView) -> Self {
        Self {
            number: view.number,
            name: &view.name,
            switch: &view.switch,
            interface: &view.interface,
            executor: &view.executor,
            executes_at: &view.executes_at,
            flow_id: view.flow_id,
            ingress_id: view.ingress_id,
            state: if view.up { "up" } else { "down" },
            reason: view.reason.as_deref(),
            config: &view.config,
            mac: view.mac.map(|[a, b, c, d, e, f]| {
                format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
            }),
            owner: view.owner.as_deref(),
            r#move: view.moving.as_ref().map(|moving| Move {
                switch: &moving.switch,
                interface: &moving.interface,
                executor: &moving.executor,
                stage: match moving.stage {
                    MoveStage::Preparing => "preparing",
                    MoveStage::Prepared => "prepared",
                    MoveStage::Flipping => "flipping",
                    MoveStage::Flipped => "flipped",
                    MoveStage::Quiescing => "quiescing",
                },
                old_paths: &moving.old_paths,
            }),
        }
    }
}

/// Body of `POST /v1/ports`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddPort {
    number: Option<i128>,
    name: Option<String>,
    switch: String,
    interface: String,
    executor: Option<String>,
    owner: Option<String>,
}

impl TryFrom<AddPort> for PortRequest {
    type Error = Problem;

    fn try_from(body: AddPort) -> Result<Self, Problem> {
        check_owner(body.owner.as_deref())?;
        Ok(Self {
            number: body.number.map(port_number).transpose()?,
            name: body.name,
            switch: body.switch,
            interface: body.interface,
            executor: body.executor,
            owner: body.owner,
        })
    }
}

/// Bytes of an owner's name.
const OWNER_MAX: usize = 512;

/// # Errors
/// `malformed`: the owner's name is invalid.
fn check_owner(owner: Option<&str>) -> Result<(), Problem> {
    let is_name =
        |name: &str| (1..=OWNER_MAX).contains(&name.len()) && !name.contains(char::is_control);
    match owner {
        Some(name) if !is_name(name) => Err(Problem::malformed(format!(
            "owner {name:?}; expected a text of 1 to {OWNER_MAX} bytes without control characters"
        ))),
        _ => Ok(()),
    }
}

/// Body of `DELETE /v1/ports/{n}` and of `PUT /v1/ports/{n}/owner`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ownership {
    owner: Option<String>,
    #[serde(default)]
    force: bool,
}

impl TryFrom<Ownership> for Claim {
    type Error = Problem;

    fn try_from(body: Ownership) -> Result<Self, Problem> {
        check_owner(body.owner.as_deref())?;
        let (owner, force) = (body.owner, body.force);
        Ok(Self { owner, force })
    }
}

/// Converts a number to one that the core can judge.
fn port_number(number: i128) -> Result<u32, Problem> {
    u32::try_from(number).map_err(|_| {
        let shape = Problem::from(PortError::NumberOutOfRange(0));
        Problem {
            detail: format!("virtual port number {number} is outside 1..65023"),
            ..shape
        }
    })
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Until {
    Prepared,
    Flipped,
    #[default]
    Done,
}

impl From<Until> for MoveUntil {
    fn from(until: Until) -> Self {
        match until {
            Until::Prepared => Self::Prepared,
            Until::Flipped => Self::Flipped,
            Until::Done => Self::Done,
        }
    }
}

/// Body of `POST /v1/ports/{n}/move`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BeginMove {
    switch: String,
    interface: String,
    #[serde(default)]
    until: Until,
    grace_ms: Option<u64>,
    #[serde(default)]
    force: bool,
    owner: Option<String>,
}

impl TryFrom<BeginMove> for MoveRequest {
    type Error = Problem;

    fn try_from(body: BeginMove) -> Result<Self, Problem> {
        let grace = grace(body.grace_ms)?;
        Ok(Self {
            switch: body.switch,
            interface: body.interface,
            until: body.until.into(),
            settle: grace.min(SETTLE),
            grace,
            force: body.force,
            owner: body.owner,
        })
    }
}

/// A data path may still drop packets that it dropped before the new rules existed: Open vSwitch keeps a dropping megaflow for seconds
/// after a port has left, and renews it up to 90 ms after the barrier reply on a busy machine.
const SETTLE: Duration = Duration::from_millis(100);

fn grace(asked_ms: Option<u64>) -> Result<Duration, Problem> {
    let grace = asked_ms.unwrap_or(GRACE_MS);
    if grace > GRACE_MAX_MS {
        return Err(Problem::malformed(format!(
            "grace_ms is {grace}; expected at most {GRACE_MAX_MS}"
        )));
    }
    Ok(Duration::from_millis(grace))
}

/// Body of `POST /v1/ports/{n}/executor`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChangeExecutor {
    executor: String,
    #[serde(default)]
    until: Until,
    grace_ms: Option<u64>,
    #[serde(default)]
    force: bool,
}

impl TryFrom<ChangeExecutor> for ExecutorRequest {
    type Error = Problem;

    fn try_from(body: ChangeExecutor) -> Result<Self, Problem> {
        let grace = grace(body.grace_ms)?;
        Ok(Self {
            executor: body.executor,
            until: body.until.into(),
            settle: grace.min(SETTLE),
            grace,
            force: body.force,
        })
    }
}

/// Body of `POST /v1/ports/{n}/move/continue`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContinueMove {
    #[serde(default)]
    until: Until,
    #[serde(default)]
    pub force: bool,
}

impl ContinueMove {
    pub fn until(&self) -> MoveUntil {
        self.until.into()
    }
}

/// Body of `POST /v1/ports/{n}/move/markers`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SendMarkers {
    switch: String,
    interface: String,
    frames: Vec<String>,
    owner: Option<String>,
}

impl TryFrom<SendMarkers> for MarkersRequest {
    type Error = Problem;

    fn try_from(body: SendMarkers) -> Result<Self, Problem> {
        Ok(Self {
            switch: body.switch,
            interface: body.interface,
            owner: body.owner,
            frames: body
                .frames
                .iter()
                .map(|text| frame(text))
                .collect::<Result<_, _>>()?,
        })
    }
}

/// Bytes of a frame: the header, and what fits an MTU of 1,500.
const FRAME_BYTES: RangeInclusive<usize> = 14..=1_514;

/// Reads a frame from hexadecimal digits.
fn frame(text: &str) -> Result<Box<[u8]>, Problem> {
    let digits = text.as_bytes();
    let pairs = digits.chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair).ok()?;
        let is_pair = pair.len() == 2 && !pair.starts_with('+');
        u8::from_str_radix(pair, 16).ok().filter(|_| is_pair)
    });
    let bytes: Option<Box<[u8]>> = pairs.collect();
    bytes
        .filter(|bytes| FRAME_BYTES.contains(&bytes.len()))
        .ok_or_else(|| {
            let (least, most) = (FRAME_BYTES.start(), FRAME_BYTES.end());
            Problem::malformed(format!(
                "a frame is {text:?} where {least} to {most} bytes in hexadecimal are expected"
            ))
        })
}

/// Answer of `POST /v1/ports/{n}/move/markers`.
#[derive(Serialize)]
pub struct Markers {
    /// The switch that each frame was sent from, in the order of the frames.
    pub from: Vec<String>,
}
