//! `ofp_multipart_request`.

use super::{multipart_kind as k, Body};
use crate::error::{ErrorCode, Refusal};
use crate::flow_monitor::{of_extension, Form, MonitorRequests, STANDARD_STATS};
use crate::oxm::Match;
use crate::port::is_representable;
use crate::session::Experimenter;
use crate::wire::{Put, Reader};

/// `ofp_flow_stats_request`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowStatsRequest {
    /// Table, or `ALL_TABLES`.
    pub table_id: u8,
    /// Only rules that output there, or `ANY`.
    pub out_port: u32,
    /// Only rules that use the group, or `ANY`.
    pub out_group: u32,
    /// Bits that the rule's cookie must have.
    pub cookie: u64,
    /// The mask of these bits.
    pub cookie_mask: u64,
    /// Only rules that this match covers.
    pub matching: Match,
}

impl FlowStatsRequest {
    /// `ofputil_decode_ofpst11_flow_request`.
    fn pull(reader: &mut Reader<'_>) -> Result<Self, Refusal> {
        if reader.len() % 8 != 0 {
            return Err(Refusal::new(
                ErrorCode::BAD_REQUEST_BAD_LEN,
                "flow statistics request is not padded to 8 bytes",
            ));
        }
        let table_id = reader.u8()?;
        reader.skip(3)?;
        let out_port = reader.u32()?;
        let out_group = reader.u32()?;
        reader.skip(4)?;
        let cookie = reader.u64()?;
        let cookie_mask = reader.u64()?;
        if !is_representable(out_port) {
            return Err(Refusal::new(
                ErrorCode::BAD_ACTION_BAD_OUT_PORT,
                format!("out_port {out_port:#x}"),
            ));
        }
        let (matching, _) = Match::pull_checked(reader)?;
        // Open vSwitch ignores anything after the match.
        reader.rest();
        Ok(Self {
            table_id,
            out_port,
            out_group,
            cookie,
            cookie_mask,
            matching,
        })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put(&[self.table_id, 0, 0, 0]);
        out.put_u32(self.out_port);
        out.put_u32(self.out_group);
        out.zeros(4);
        out.put_u64(self.cookie);
        out.put_u64(self.cookie_mask);
        self.matching.put(out);
    }
}

/// The content of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum MultipartRequest {
    Desc,
    Flow(FlowStatsRequest),
    Aggregate(FlowStatsRequest),
    Table,
    PortStats {
        port: u32,
    },
    Queue {
        port: u32,
        queue: u32,
    },
    Group {
        group: u32,
    },
    GroupDesc,
    GroupFeatures,
    Meter {
        meter: u32,
    },
    MeterConfig {
        meter: u32,
    },
    MeterFeatures,
    /// Raw `ofp_table_features`; empty to read.
    TableFeatures(Box<[u8]>),
    PortDesc,
    /// A request of OpenFlow 1.3 is an experimenter's; one of another version
    /// has another form.
    FlowMonitor(MonitorRequests),
    Experimenter(Experimenter),
}

impl Body for MultipartRequest {
    fn kind(&self) -> u16 {
        match self {
            Self::Desc => k::DESC,
            Self::Flow(_) => k::FLOW,
            Self::Aggregate(_) => k::AGGREGATE,
            Self::Table => k::TABLE,
            Self::PortStats { .. } => k::PORT_STATS,
            Self::Queue { .. } => k::QUEUE,
            Self::Group { .. } => k::GROUP,
            Self::GroupDesc => k::GROUP_DESC,
            Self::GroupFeatures => k::GROUP_FEATURES,
            Self::Meter { .. } => k::METER,
            Self::MeterConfig { .. } => k::METER_CONFIG,
            Self::MeterFeatures => k::METER_FEATURES,
            Self::TableFeatures(_) => k::TABLE_FEATURES,
            Self::PortDesc => k::PORT_DESC,
            Self::FlowMonitor(requests) if requests.form == Form::Standard => STANDARD_STATS,
            Self::FlowMonitor(_) | Self::Experimenter(_) => k::EXPERIMENTER,
        }
    }

    fn pull(kind: u16, reader: &mut Reader<'_>) -> Result<Self, Refusal> {
        let padded_number = |reader: &mut Reader<'_>| -> Result<u32, Refusal> {
            let number = reader.u32()?;
            reader.skip(4)?;
            Ok(number)
        };
        Ok(match kind {
            k::DESC => Self::Desc,
            k::FLOW => Self::Flow(FlowStatsRequest::pull(reader)?),
            k::AGGREGATE => Self::Aggregate(FlowStatsRequest::pull(reader)?),
            k::TABLE => Self::Table,
            k::PORT_STATS => Self::PortStats {
                port: padded_number(reader)?,
            },
            k::QUEUE => Self::Queue {
                port: reader.u32()?,
                queue: reader.u32()?,
            },
            k::GROUP => Self::Group {
                group: padded_number(reader)?,
            },
            k::GROUP_DESC => Self::GroupDesc,
            k::GROUP_FEATURES => Self::GroupFeatures,
            k::METER => Self::Meter {
                meter: padded_number(reader)?,
            },
            k::METER_CONFIG => Self::MeterConfig {
                meter: padded_number(reader)?,
            },
            k::METER_FEATURES => Self::MeterFeatures,
            k::TABLE_FEATURES if reader.len() % 8 == 0 => Self::TableFeatures(reader.rest().into()),
            k::TABLE_FEATURES => {
                return Err(Refusal::new(
                    ErrorCode::BAD_REQUEST_BAD_LEN,
                    "table features are not padded to 8 bytes",
                ))
            }
            k::PORT_DESC => Self::PortDesc,
            k::EXPERIMENTER => {
                let message = Experimenter::pull(reader)?;
                match of_extension(&message) {
                    Some(requests) => Self::FlowMonitor(requests?),
                    None => Self::Experimenter(message),
                }
            }
            _ => {
                return Err(Refusal::new(
                    ErrorCode::BAD_REQUEST_BAD_MULTIPART,
                    format!("multipart request of type {kind}"),
                ))
            }
        })
    }

    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Desc
            | Self::Table
            | Self::GroupDesc
            | Self::GroupFeatures
            | Self::MeterFeatures
            | Self::PortDesc => {}
            Self::Flow(request) | Self::Aggregate(request) => request.put(out),
            Self::PortStats { port: number }
            | Self::Group { group: number }
            | Self::Meter { meter: number }
            | Self::MeterConfig { meter: number } => {
                out.put_u32(*number);
                out.zeros(4);
            }
            Self::Queue { port, queue } => {
                out.put_u32(*port);
                out.put_u32(*queue);
            }
            Self::TableFeatures(body) => out.put(body),
            Self::FlowMonitor(requests) => requests.put(out),
            Self::Experimenter(message) => message.put(out),
        }
    }
}
