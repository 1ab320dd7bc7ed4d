//! Any message: decoding and encoding.

use crate::action::Strictness;
use crate::error::{ErrorCode, Oversize, Refusal};
use crate::flow::{FlowMod, FlowRemoved};
use crate::group::GroupMod;
use crate::header::{finish, kind, start, Header, HEADER_LEN, VERSION};
use crate::meter::MeterMod;
use crate::multipart::{self, Multipart, MultipartReply, MultipartRequest};
use crate::packet::{PacketIn, PacketOut};
use crate::port::{PortMod, PortStatus};
use crate::session::{
    AsyncMasks, ErrorMessage, Experimenter, Features, Hello, Role, SwitchConfig, TableMod,
};
use crate::wire::{Put, Reader};

/// Any OpenFlow 1.3 message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Message {
    Hello(Hello),
    Error(ErrorMessage),
    EchoRequest(Vec<u8>),
    EchoReply(Vec<u8>),
    Experimenter(Experimenter),
    FeaturesRequest,
    FeaturesReply(Features),
    GetConfigRequest,
    GetConfigReply(SwitchConfig),
    SetConfig(SwitchConfig),
    PacketIn(PacketIn),
    FlowRemoved(FlowRemoved),
    PortStatus(PortStatus),
    PacketOut(PacketOut),
    FlowMod(FlowMod),
    GroupMod(GroupMod),
    PortMod(PortMod),
    TableMod(TableMod),
    MultipartRequest(Multipart<MultipartRequest>),
    MultipartReply(Multipart<MultipartReply>),
    BarrierRequest,
    BarrierReply,
    QueueGetConfigRequest {
        port: u32,
    },
    QueueGetConfigReply {
        port: u32,
        /// Raw `ofp_packet_queue`s.
        queues: Box<[u8]>,
    },
    RoleRequest(Role),
    RoleReply(Role),
    GetAsyncRequest,
    GetAsyncReply(AsyncMasks),
    SetAsync(AsyncMasks),
    MeterMod(MeterMod),
}

impl Message {
    /// Returns the message's [`kind`].
    pub fn kind(&self) -> u8 {
        match self {
            Self::Hello(_) => kind::HELLO,
            Self::Error(_) => kind::ERROR,
            Self::EchoRequest(_) => kind::ECHO_REQUEST,
            Self::EchoReply(_) => kind::ECHO_REPLY,
            Self::Experimenter(_) => kind::EXPERIMENTER,
            Self::FeaturesRequest => kind::FEATURES_REQUEST,
            Self::FeaturesReply(_) => kind::FEATURES_REPLY,
            Self::GetConfigRequest => kind::GET_CONFIG_REQUEST,
            Self::GetConfigReply(_) => kind::GET_CONFIG_REPLY,
            Self::SetConfig(_) => kind::SET_CONFIG,
            Self::PacketIn(_) => kind::PACKET_IN,
            Self::FlowRemoved(_) => kind::FLOW_REMOVED,
            Self::PortStatus(_) => kind::PORT_STATUS,
            Self::PacketOut(_) => kind::PACKET_OUT,
            Self::FlowMod(_) => kind::FLOW_MOD,
            Self::GroupMod(_) => kind::GROUP_MOD,
            Self::PortMod(_) => kind::PORT_MOD,
            Self::TableMod(_) => kind::TABLE_MOD,
            Self::MultipartRequest(_) => kind::MULTIPART_REQUEST,
            Self::MultipartReply(_) => kind::MULTIPART_REPLY,
            Self::BarrierRequest => kind::BARRIER_REQUEST,
            Self::BarrierReply => kind::BARRIER_REPLY,
            Self::QueueGetConfigRequest { .. } => kind::QUEUE_GET_CONFIG_REQUEST,
            Self::QueueGetConfigReply { .. } => kind::QUEUE_GET_CONFIG_REPLY,
            Self::RoleRequest(_) => kind::ROLE_REQUEST,
            Self::RoleReply(_) => kind::ROLE_REPLY,
            Self::GetAsyncRequest => kind::GET_ASYNC_REQUEST,
            Self::GetAsyncReply(_) => kind::GET_ASYNC_REPLY,
            Self::SetAsync(_) => kind::SET_ASYNC,
            Self::MeterMod(_) => kind::METER_MOD,
        }
    }
}

/// Returns the required length of a body, for kinds with a fixed length
/// (`ofpraw_check_length`).
fn fixed_length(kind_number: u8) -> Option<usize> {
    Some(match kind_number {
        kind::FEATURES_REQUEST
        | kind::GET_CONFIG_REQUEST
        | kind::BARRIER_REQUEST
        | kind::BARRIER_REPLY
        | kind::GET_ASYNC_REQUEST => 0,
        kind::GET_CONFIG_REPLY | kind::SET_CONFIG => 4,
        kind::TABLE_MOD | kind::QUEUE_GET_CONFIG_REQUEST => 8,
        kind::ROLE_REQUEST | kind::ROLE_REPLY => 16,
        kind::FEATURES_REPLY | kind::GET_ASYNC_REPLY | kind::SET_ASYNC => 24,
        kind::PORT_MOD => 32,
        kind::PORT_STATUS => 72,
        _ => return None,
    })
}

/// Decodes exactly one message. Refuses what Open vSwitch 3.1 certainly refuses
/// because of its structure, with the error that it sends; the switch itself
/// checks the meaning of actions and everything that depends on state.
pub fn decode(frame: &[u8]) -> Result<(Header, Message), Refusal> {
    let bad_length = |detail: &'static str| Refusal::new(ErrorCode::BAD_REQUEST_BAD_LEN, detail);
    let header = Header::parse(frame).ok_or_else(|| bad_length("shorter than a header"))?;
    if usize::from(header.length) != frame.len() {
        return Err(bad_length("length in the header differs from the frame's"));
    }
    let any_version = matches!(header.kind, kind::HELLO | kind::ERROR);
    if header.version != VERSION && !any_version {
        return Err(Refusal::new(
            ErrorCode::BAD_REQUEST_BAD_VERSION,
            format!("OpenFlow version {}", header.version),
        ));
    }
    let body = frame.get(HEADER_LEN..).unwrap_or_default();
    if fixed_length(header.kind).is_some_and(|length| length != body.len()) {
        return Err(Refusal::new(
            ErrorCode::BAD_REQUEST_BAD_LEN,
            format!("message of type {} has {} bytes", header.kind, frame.len()),
        ));
    }
    Ok((header, decode_body(header, body)?))
}

fn decode_body(header: Header, body: &[u8]) -> Result<Message, Refusal> {
    Ok(match header.kind {
        kind::HELLO => Message::Hello(Hello::decode(header.version, body)),
        kind::ERROR => Message::Error(ErrorMessage::decode(body)?),
        kind::ECHO_REQUEST => Message::EchoRequest(body.to_vec()),
        kind::ECHO_REPLY => Message::EchoReply(body.to_vec()),
        kind::EXPERIMENTER => Message::Experimenter(Experimenter::pull(&mut Reader::new(body))?),
        kind::FEATURES_REQUEST => Message::FeaturesRequest,
        kind::FEATURES_REPLY => Message::FeaturesReply(Features::decode(body)?),
        kind::GET_CONFIG_REQUEST => Message::GetConfigRequest,
        kind::GET_CONFIG_REPLY => Message::GetConfigReply(SwitchConfig::decode(body)?),
        kind::SET_CONFIG => Message::SetConfig(SwitchConfig::decode_request(body)?),
        kind::PACKET_IN => Message::PacketIn(PacketIn::decode(body)?),
        kind::FLOW_REMOVED => Message::FlowRemoved(FlowRemoved::decode(body)?),
        kind::PORT_STATUS => Message::PortStatus(PortStatus::decode(body)?),
        kind::PACKET_OUT => Message::PacketOut(PacketOut::decode(body)?),
        kind::FLOW_MOD => Message::FlowMod(FlowMod::decode(body, Strictness::Request)?),
        kind::GROUP_MOD => Message::GroupMod(GroupMod::decode(body)?),
        kind::PORT_MOD => Message::PortMod(PortMod::decode(body)?),
        kind::TABLE_MOD => Message::TableMod(TableMod::decode(body)?),
        kind::MULTIPART_REQUEST => Message::MultipartRequest(multipart::decode(body)?),
        kind::MULTIPART_REPLY => Message::MultipartReply(multipart::decode(body)?),
        kind::BARRIER_REQUEST => Message::BarrierRequest,
        kind::BARRIER_REPLY => Message::BarrierReply,
        kind::QUEUE_GET_CONFIG_REQUEST => Message::QueueGetConfigRequest {
            port: Reader::new(body).u32()?,
        },
        kind::QUEUE_GET_CONFIG_REPLY => {
            let mut reader = Reader::new(body);
            let port = reader.u32()?;
            reader.skip(4)?;
            Message::QueueGetConfigReply {
                port,
                queues: reader.rest().into(),
            }
        }
        kind::ROLE_REQUEST => Message::RoleRequest(Role::decode(body)?),
        kind::ROLE_REPLY => Message::RoleReply(Role::decode(body)?),
        kind::GET_ASYNC_REQUEST => Message::GetAsyncRequest,
        kind::GET_ASYNC_REPLY => Message::GetAsyncReply(AsyncMasks::decode(body)?),
        kind::SET_ASYNC => Message::SetAsync(AsyncMasks::decode(body)?),
        kind::METER_MOD => Message::MeterMod(MeterMod::decode(body)?),
        unknown => {
            return Err(Refusal::new(
                ErrorCode::BAD_REQUEST_BAD_TYPE,
                format!("message type {unknown}"),
            ))
        }
    })
}

/// Encodes a message. Fails only above 65,535 bytes, which no decoded message
/// has.
pub fn encode(xid: u32, message: &Message) -> Result<Vec<u8>, Oversize> {
    let mut out = start(xid, message.kind());
    match message {
        Message::Hello(hello) => {
            if let Some(version) = out.first_mut() {
                *version = hello.version;
            }
            hello.put(&mut out);
        }
        Message::Error(error) => error.encode(&mut out),
        Message::EchoRequest(data) | Message::EchoReply(data) => out.put(data),
        Message::Experimenter(experimenter) => experimenter.put(&mut out),
        Message::FeaturesRequest
        | Message::GetConfigRequest
        | Message::BarrierRequest
        | Message::BarrierReply
        | Message::GetAsyncRequest => {}
        Message::FeaturesReply(features) => features.put(&mut out),
        Message::GetConfigReply(config) | Message::SetConfig(config) => config.put(&mut out),
        Message::PacketIn(packet) => packet.put(&mut out),
        Message::FlowRemoved(removed) => removed.put(&mut out),
        Message::PortStatus(status) => status.put(&mut out),
        Message::PacketOut(packet) => packet.put(&mut out),
        Message::FlowMod(flow_mod) => flow_mod.put(&mut out),
        Message::GroupMod(group_mod) => group_mod.put(&mut out),
        Message::PortMod(port_mod) => port_mod.put(&mut out),
        Message::TableMod(table_mod) => table_mod.put(&mut out),
        Message::MultipartRequest(request) => multipart::put(request, &mut out),
        Message::MultipartReply(reply) => multipart::put(reply, &mut out),
        Message::QueueGetConfigRequest { port } => {
            out.put_u32(*port);
            out.zeros(4);
        }
        Message::QueueGetConfigReply { port, queues } => {
            out.put_u32(*port);
            out.zeros(4);
            out.put(queues);
        }
        Message::RoleRequest(role) | Message::RoleReply(role) => role.put(&mut out),
        Message::GetAsyncReply(masks) | Message::SetAsync(masks) => masks.put(&mut out),
        Message::MeterMod(meter_mod) => meter_mod.put(&mut out),
    }
    finish(out)
}
