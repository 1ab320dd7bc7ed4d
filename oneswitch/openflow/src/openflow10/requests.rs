//! Requests of OpenFlow 1.0.

use crate::action::ActionList;
use crate::error::{ErrorCode, Refusal};
use crate::flow_monitor::{Form, MonitorRequests, NICIRA_STATS};
use crate::group::group_no;
use crate::header::{kind as k, Header, HEADER_LEN};
use crate::message::Message;
use crate::multipart::{multipart_kind as stats, FlowStatsRequest, Multipart, MultipartRequest};
use crate::packet::PacketOut;
use crate::port::{config, from_openflow10, port_no, PortMod};
use crate::session::{ErrorMessage, SwitchConfig};
use crate::wire::Reader;
use crate::NX_VENDOR;

use super::flow_mods::{flow_mod, FlowMod10};
use super::{
    actions, groups, kind, lenient, matching, nicira, Formats, Request, StatsForm,
    NICIRA_AGGREGATE, NICIRA_FLOW, STATS_VENDOR,
};

/// The priority of a rule that fixes all fields.
const EXACT_PRIORITY: u16 = u16::MAX;

fn refuse<T>(error: ErrorCode, detail: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::new(error, detail.into()))
}

/// Decodes exactly one message of version 1.0, and tells the form of the reply
/// to it.
pub fn decode(frame: &[u8], formats: &Formats) -> Result<(Request, StatsForm), Refusal> {
    let bad_length = || Refusal::new(ErrorCode::BAD_REQUEST_BAD_LEN, "wrong length");
    let header = Header::parse(frame)
        .filter(|header| usize::from(header.length) == frame.len())
        .ok_or_else(bad_length)?;
    let body = frame.get(HEADER_LEN..).unwrap_or_default();
    if !fits(header.kind, body.len()) {
        return Err(bad_length());
    }
    if header.kind == kind::STATS_REQUEST {
        let (request, form) = stats_request(body)?;
        let message = Message::MultipartRequest(Multipart::last(request));
        return Ok((Request::Message(message), form));
    }
    let mut reader = Reader::new(body);
    let message = match header.kind {
        k::ERROR => Message::Error(ErrorMessage::decode(body)?),
        k::ECHO_REQUEST => Message::EchoRequest(body.to_vec()),
        k::ECHO_REPLY => Message::EchoReply(body.to_vec()),
        k::EXPERIMENTER => return Ok((nicira::decode(body, formats)?, StatsForm::Standard)),
        k::FEATURES_REQUEST => Message::FeaturesRequest,
        k::GET_CONFIG_REQUEST => Message::GetConfigRequest,
        k::SET_CONFIG => Message::SetConfig(SwitchConfig::decode_request10(body)?),
        k::PACKET_OUT => packet_out(&mut reader)?,
        kind::FLOW_MOD => {
            let request = standard_flow_mod(&mut reader, formats)?;
            return Ok((request, StatsForm::Standard));
        }
        kind::PORT_MOD => port_mod(&mut reader)?,
        kind::BARRIER_REQUEST => Message::BarrierRequest,
        kind::QUEUE_GET_CONFIG_REQUEST => Message::QueueGetConfigRequest {
            port: from_openflow10(reader.u16()?),
        },
        other => {
            return refuse(
                ErrorCode::BAD_REQUEST_BAD_TYPE,
                format!("message type {other} of OpenFlow 1.0"),
            )
        }
    };
    Ok((Request::Message(message), StatsForm::Standard))
}

/// Tells whether a message of this kind can have a body of `length` bytes.
fn fits(kind: u8, length: usize) -> bool {
    match kind {
        k::FEATURES_REQUEST
        | k::GET_CONFIG_REQUEST
        | kind::BARRIER_REQUEST
        | kind::BARRIER_REPLY => length == 0,
        k::PACKET_IN => length >= 10,
        k::FLOW_REMOVED => length == 80,
        k::PORT_STATUS => length == 56,
        k::GET_CONFIG_REPLY | k::SET_CONFIG | kind::QUEUE_GET_CONFIG_REQUEST => length == 4,
        kind::PORT_MOD => length == 24,
        k::PACKET_OUT => length >= 8,
        kind::FLOW_MOD => length >= 64 && length % 8 == 0,
        _ => true,
    }
}

/// Tells whether Open vSwitch refuses a message to slaves, which it does right
/// after checking its length.
pub fn is_write(frame: &[u8]) -> bool {
    Header::parse(frame).is_some_and(|header| match header.kind {
        k::PACKET_OUT | kind::FLOW_MOD | kind::PORT_MOD => {
            fits(header.kind, frame.len() - HEADER_LEN)
        }
        k::EXPERIMENTER => nicira::is_write(frame),
        _ => false,
    })
}

fn packet_out(reader: &mut Reader<'_>) -> Result<Message, Refusal> {
    let buffer_id = reader.u32()?;
    let in_port = from_openflow10(reader.u16()?);
    let length = usize::from(reader.u16()?);
    if length > reader.len() {
        return refuse(
            ErrorCode::BAD_REQUEST_BAD_LEN,
            format!("packet-out with {length} bytes of actions"),
        );
    }
    let list = actions::to_13(reader.bytes(length)?)?;
    let may_send = in_port < port_no::MAX
        || matches!(in_port, port_no::LOCAL | port_no::ANY | port_no::CONTROLLER);
    if !may_send {
        return refuse(
            ErrorCode::BAD_REQUEST_BAD_PORT,
            format!("in_port {in_port:#x}"),
        );
    }
    let actions = ActionList::from_bytes(list)?;
    let data = reader.rest();
    Ok(Message::PacketOut(PacketOut {
        packet_type: 0,
        buffer_id,
        in_port,
        actions: lenient::without_idle(data, &actions).unwrap_or(actions),
        data: data.into(),
    }))
}

fn port_mod(reader: &mut Reader<'_>) -> Result<Message, Refusal> {
    let port = from_openflow10(reader.u16()?);
    let hw_addr = reader.array()?;
    let (wanted, mask) = (reader.u32()?, reader.u32()?);
    let advertise = reader.u32()?;
    let mask = mask & (config::ALL | config::ONLY_10);
    Ok(Message::PortMod(PortMod {
        port,
        hw_addr,
        config: wanted,
        mask,
        advertise: super::replies::features_13(advertise),
    }))
}

fn standard_flow_mod(reader: &mut Reader<'_>, formats: &Formats) -> Result<Request, Refusal> {
    let (matching, is_exact) = matching::pull(reader)?;
    let new_cookie = reader.u64()?;
    let command = reader.u16()?;
    let (idle_timeout, hard_timeout) = (reader.u16()?, reader.u16()?);
    let priority = reader.u16()?;
    let buffer_id = reader.u32()?;
    let (out_port, flags) = (reader.u16()?, reader.u16()?);
    let message = FlowMod10 {
        matching,
        cookie: 0,
        cookie_mask: 0,
        new_cookie,
        command,
        idle_timeout,
        hard_timeout,
        priority: if is_exact { EXACT_PRIORITY } else { priority },
        buffer_id,
        out_port,
        flags,
        actions: reader.rest(),
    };
    flow_mod(message, formats)
}

fn stats_request(body: &[u8]) -> Result<(MultipartRequest, StatsForm), Refusal> {
    let mut reader = Reader::new(body);
    let number = reader.u16()?;
    reader.skip(2)?;
    let mut form = StatsForm::Standard;
    let request = match number {
        stats::DESC => MultipartRequest::Desc,
        stats::FLOW => MultipartRequest::Flow(flow_request(&mut reader)?),
        stats::AGGREGATE => MultipartRequest::Aggregate(flow_request(&mut reader)?),
        stats::TABLE => MultipartRequest::Table,
        stats::PORT_STATS => {
            let port = from_openflow10(reader.u16()?);
            reader.skip(6)?;
            MultipartRequest::PortStats { port }
        }
        stats::QUEUE => {
            // OpenFlow 1.0 asks for all ports by ALL.
            let port = match from_openflow10(reader.u16()?) {
                port_no::ALL => port_no::ANY,
                port => port,
            };
            reader.skip(2)?;
            let queue = reader.u32()?;
            MultipartRequest::Queue { port, queue }
        }
        stats::PORT_DESC => MultipartRequest::PortDesc,
        STATS_VENDOR => {
            let (request, own) = nicira_request(&mut reader)?;
            form = own;
            request
        }
        other => {
            return refuse(
                ErrorCode::BAD_REQUEST_BAD_MULTIPART,
                format!("statistics of type {other}"),
            )
        }
    };
    if !reader.is_empty() {
        return refuse(
            ErrorCode::BAD_REQUEST_BAD_LEN,
            format!("statistics request of type {number} is too long"),
        );
    }
    Ok((request, form))
}

fn flow_request(reader: &mut Reader<'_>) -> Result<FlowStatsRequest, Refusal> {
    let matching = matching::pull_asked(reader)?;
    let [table_id, _] = reader.array()?;
    Ok(FlowStatsRequest {
        table_id,
        out_port: from_openflow10(reader.u16()?),
        out_group: group_no::ANY,
        cookie: 0,
        cookie_mask: 0,
        matching,
    })
}

fn nicira_request(reader: &mut Reader<'_>) -> Result<(MultipartRequest, StatsForm), Refusal> {
    let vendor = reader.u32()?;
    if vendor != NX_VENDOR {
        return refuse(
            ErrorCode::BAD_REQUEST_BAD_EXPERIMENTER,
            format!("statistics of vendor {vendor:#x}"),
        );
    }
    let number = reader.u32()?;
    if number == NICIRA_STATS {
        reader.skip(4)?;
        let requests = MonitorRequests::pull(Form::Nicira, reader)?;
        return Ok((MultipartRequest::FlowMonitor(requests), StatsForm::Nicira));
    }
    if let Some(request) = groups::stats_request(number, reader) {
        return request;
    }
    if !matches!(number, NICIRA_FLOW | NICIRA_AGGREGATE) {
        return refuse(
            ErrorCode::BAD_REQUEST_BAD_EXP_TYPE,
            format!("Nicira statistics {number}"),
        );
    }
    reader.skip(4)?;
    let out_port = from_openflow10(reader.u16()?);
    let length = reader.u16()?;
    let [table_id, _, _, _] = reader.array()?;
    let found = matching::pull_nxm(reader, length)?;
    let request = FlowStatsRequest {
        table_id,
        out_port,
        out_group: group_no::ANY,
        cookie: found.cookie,
        cookie_mask: found.cookie_mask,
        matching: found.matching,
    };
    let request = match number {
        NICIRA_FLOW => MultipartRequest::Flow(request),
        _ => MultipartRequest::Aggregate(request),
    };
    Ok((request, StatsForm::Nicira))
}
