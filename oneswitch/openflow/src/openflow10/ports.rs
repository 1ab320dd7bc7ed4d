//! The configurations of a switch's ports, which OpenFlow 1.3 says only in
//! part (`OFPPC11_ALL` in lib/ofp-port.c).

use crate::error::{ErrorCode, Refusal};
use crate::multipart::multipart_kind;
use crate::port::{from_openflow10, Port, PortMod};
use crate::wire::{u16_at, Put, Reader};

use super::frames::message;
use super::{kind, to_port16};

/// `OFPSF_REPLY_MORE`.
const MORE: u16 = 1;

/// Asks for the descriptions of all ports, which Open vSwitch also gives over
/// OpenFlow 1.0.
pub fn encode_port_request(xid: u32) -> Vec<u8> {
    let mut body = Vec::new();
    body.put_u16(multipart_kind::PORT_DESC);
    body.put_u16(0);
    message(kind::STATS_REQUEST, xid, &body)
}

/// Decodes a message of the reply: numbers, addresses and configurations; and
/// tells whether others follow.
///
/// # Errors
/// It is something else.
pub fn decode_ports(frame: &[u8]) -> Result<(Vec<Port>, bool), Refusal> {
    let mut reader = Reader::new(frame);
    let [_, told] = reader.array()?;
    reader.skip(6)?;
    if told != kind::STATS_REPLY || reader.u16()? != multipart_kind::PORT_DESC {
        return Err(Refusal::new(
            ErrorCode::BAD_REQUEST_BAD_TYPE,
            format!("message of type {told}"),
        ));
    }
    let flags = reader.u16()?;
    let mut ports = Vec::new();
    while !reader.is_empty() {
        let number = from_openflow10(reader.u16()?);
        let hw_addr = reader.array()?;
        let name = reader.array()?;
        let config = reader.u32()?;
        reader.skip(20)?;
        ports.push(Port {
            number,
            hw_addr,
            name,
            config,
            ..Port::default()
        });
    }
    Ok((ports, flags & MORE != 0))
}

/// Encodes a port-mod that announces no features.
pub fn encode_port_mod(xid: u32, port_mod: &PortMod) -> Vec<u8> {
    let mut body = Vec::new();
    body.put_u16(to_port16(port_mod.port));
    body.put(&port_mod.hw_addr);
    body.put_u32(port_mod.config);
    body.put_u32(port_mod.mask);
    body.zeros(8);
    message(kind::PORT_MOD, xid, &body)
}

/// Returns the type and the code of an error, which have the numbers of OpenFlow 1.0.
pub fn error_numbers(frame: &[u8]) -> Option<(u16, u16)> {
    let is_error = frame.get(1) == Some(&crate::header::kind::ERROR);
    is_error.then(|| Some((u16_at(frame, 8)?, u16_at(frame, 10)?)))?
}

/// Encodes a barrier.
pub fn encode_barrier(xid: u32) -> Vec<u8> {
    message(kind::BARRIER_REQUEST, xid, &[])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::config;

    fn described(more: u8) -> Vec<u8> {
        let mut body = vec![0, 13, 0, more];
        body.extend([0xff, 0xfe, 2, 0, 0, 0, 0, 1]);
        body.extend([0; 16]);
        body.extend([0, 0, 0, 1]);
        body.extend([0; 20]);
        body.extend([0, 7, 2, 0, 0, 0, 0, 2]);
        body.extend([0; 16]);
        body.extend([0, 0, 0, 0x10]);
        body.extend([0; 20]);
        message(kind::STATS_REPLY, 5, &body)
    }

    #[test]
    fn a_switch_tells_the_bits_of_its_ports() {
        let (ports, has_more) = decode_ports(&described(1)).unwrap();
        let told: Vec<_> = ports.iter().map(|p| (p.number, p.config)).collect();
        assert_eq!(
            told,
            [
                (crate::port_no::LOCAL, config::PORT_DOWN),
                (7, config::NO_FLOOD)
            ]
        );
        assert_eq!(ports[1].hw_addr, [2, 0, 0, 0, 0, 2]);
        assert!(has_more && !decode_ports(&described(0)).unwrap().1);
        for length in 0..described(0).len() {
            let _ = decode_ports(&described(0)[..length]);
        }
        assert!(decode_ports(&encode_barrier(1)).is_err());
    }

    #[test]
    fn a_port_mod_reads_as_it_was_written() {
        let port_mod = PortMod {
            port: 7,
            hw_addr: [2, 0, 0, 0, 0, 2],
            config: config::NO_FLOOD,
            mask: config::NO_FLOOD | config::NO_RECV_STP,
            advertise: 0,
        };
        let frame = encode_port_mod(5, &port_mod);
        let formats = super::super::Formats::default();
        let (read, _) = super::super::decode(&frame, &formats).unwrap();
        let wanted = super::super::Request::Message(crate::Message::PortMod(port_mod));
        assert_eq!(read, wanted);
    }
}
