//! Messages of OpenFlow 1.4 that can also be in a bundle.

use crate::error::{ErrorCode, Refusal};
use crate::header::VERSION;
use crate::later_fields::without_later_fields;
use crate::message::Message;
use crate::port::{is_representable, PortMod};
use crate::properties::{bad_content, unknown, Properties};
use crate::wire::Reader;

/// `OFPPMPT14_ETHERNET`, a property of a port-mod.
const ETHERNET: u16 = 0;

/// Changes the version of a message of the same form.
pub(super) fn in_version_13(frame: &[u8]) -> Vec<u8> {
    let mut translated = without_later_fields(frame).unwrap_or_else(|| frame.to_vec());
    if let Some(version) = translated.first_mut() {
        *version = VERSION;
    }
    translated
}

pub(super) fn port_mod(body: &[u8]) -> Result<Message, Refusal> {
    let mut reader = Reader::new(body);
    let port = reader.u32()?;
    reader.skip(4)?;
    let hw_addr = reader.array()?;
    reader.skip(2)?;
    let mut message = PortMod {
        port,
        hw_addr,
        config: reader.u32()?,
        mask: reader.u32()?,
        advertise: 0,
    };
    if !is_representable(port) {
        let detail = format!("port {port:#x}");
        return Err(Refusal::new(ErrorCode::BAD_ACTION_BAD_OUT_PORT, detail));
    }
    for property in Properties::new(reader.rest()) {
        let (kind, content) = property?;
        if kind != ETHERNET {
            return Err(unknown(kind));
        }
        let advertise = <[u8; 4]>::try_from(content).map_err(|_| bad_content(kind, content))?;
        message.advertise = u32::from_be_bytes(advertise);
    }
    Ok(Message::PortMod(message))
}
