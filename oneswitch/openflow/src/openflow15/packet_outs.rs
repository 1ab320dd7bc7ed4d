//! Packet-outs: OpenFlow 1.5 has a match on pipeline fields in place of a port.

use crate::action::Strictness;
use crate::action_check::check;
use crate::error::{ErrorCode, Refusal};
use crate::field::{class, lookup};
use crate::header::HEADER_LEN;
use crate::oxm::{Match, OxmField, MATCH_TYPE_OXM};
use crate::packet::PacketOut;
use crate::port::is_ingress;
use crate::wire::{u16_at, u32_at, Reader};
use crate::{ActionList, NX_VENDOR};

use super::actions::{load_13, to_13};
use super::fields::{name_of, Name};

/// `OXM_OF_PACKET_TYPE`.
const PACKET_TYPE: Name = (class::OPENFLOW_BASIC, 44, None);

/// Decodes the body of a message (`ofputil_decode_packet_out`). Fields other than
/// the port become actions before all others, which set them.
pub(super) fn decode(body: &[u8]) -> Result<PacketOut, Refusal> {
    let mut reader = Reader::new(body);
    let buffer_id = reader.u32()?;
    let length = usize::from(reader.u16()?);
    reader.skip(2)?;
    let matching = metadata(&mut reader)?;
    let Some(in_port) = matching.in_port() else {
        let detail = "packet-out without a port";
        return Err(Refusal::new(ErrorCode::BAD_REQUEST_BAD_PORT, detail));
    };
    if length % 8 != 0 || length > reader.len() {
        let detail = format!("packet-out with {length} bytes of actions");
        return Err(Refusal::new(ErrorCode::BAD_REQUEST_BAD_LEN, detail));
    }
    let written = reader.bytes(length)?;
    check(written, Strictness::Request15)?;
    if !is_ingress(in_port) {
        let detail = format!("in_port {in_port:#x}");
        return Err(Refusal::new(ErrorCode::BAD_REQUEST_BAD_PORT, detail));
    }
    let mut packet_type = 0;
    let mut actions = Vec::with_capacity(HEADER_LEN + length);
    for field in matching.fields().filter(|field| !is_port(name_of(field))) {
        match name_of(&field) {
            PACKET_TYPE => packet_type = u32_at(field.value, 0).unwrap_or_default(),
            _ => load_13(&mut actions, &field),
        }
    }
    actions.extend(to_13(written)?);
    Ok(PacketOut {
        buffer_id,
        in_port,
        packet_type,
        actions: ActionList::from_bytes(actions)?,
        data: reader.rest().into(),
    })
}

/// Reads the match, ignoring fields that Open vSwitch does not know
/// (`oxm_pull_match_loose`).
fn metadata(reader: &mut Reader<'_>) -> Result<Match, Refusal> {
    let error = match (u16_at(reader.peek(), 0), u16_at(reader.peek(), 2)) {
        (_, None | Some(..4)) => Some(ErrorCode::BAD_MATCH_BAD_LEN),
        (kind, _) => (kind != Some(MATCH_TYPE_OXM)).then_some(ErrorCode::BAD_MATCH_BAD_TYPE),
    };
    if let Some(error) = error {
        return Err(Refusal::new(
            error,
            "packet-out with a match that is not OXM",
        ));
    }
    let oxm = Match::pull_oxm(reader)?;
    let mut rest = Reader::new(oxm);
    let mut known = Vec::new();
    while !rest.is_empty() {
        let before = rest.peek();
        let field = OxmField::pull(&mut rest)?;
        let raw = before.get(..before.len() - rest.len()).unwrap_or_default();
        let (class, number, vendor) = name_of(&field);
        if lookup(class, number, vendor).is_none() {
            continue;
        }
        known.extend_from_slice(raw);
        // Open vSwitch checks no prerequisites here.
        Match::from_oxm(known.clone())?.canonical()?;
        if !is_pipeline(name_of(&field)) {
            let detail = "packet-out with a field of a packet";
            return Err(Refusal::new(
                ErrorCode::BAD_REQUEST_PIPELINE_FIELDS_ONLY,
                detail,
            ));
        }
    }
    Match::from_oxm(known)
}

fn is_port(name: Name) -> bool {
    matches!(name, (class::OPENFLOW_BASIC | class::NXM_0, 0, _))
}

/// Tells whether a field belongs to the pipeline and not to the packet
/// (`mf_is_pipeline_field`).
fn is_pipeline(name: Name) -> bool {
    match name {
        (class::PACKET_REGS, ..) => true,
        (class::OPENFLOW_BASIC, 2 | 38 | 44, _) => true,
        // Registers, and fields of tunnels.
        (class::NXM_1, 0..=16 | 31 | 32 | 38..=104 | 109..=114, _) => true,
        (class::EXPERIMENTER, 11..=16, Some(NX_VENDOR)) => true,
        _ => is_port(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{padded, Put};

    fn body(oxm: &[u8], actions: &[u8]) -> Vec<u8> {
        let mut out = vec![0xff, 0xff, 0xff, 0xff, 0, actions.len() as u8, 0, 0];
        let length = 4 + oxm.len();
        out.put_u16(1);
        out.put_u16(length as u16);
        out.put(oxm);
        out.zeros(padded(length) - length);
        out.put(actions);
        out.put(&[1, 2, 3]);
        out
    }

    const PORT_5: [u8; 8] = [0x80, 0, 0, 4, 0, 0, 0, 5];
    const IP_PACKET: [u8; 8] = [0x80, 0, 88, 4, 0, 1, 8, 0];

    #[test]
    fn the_port_is_in_the_match() {
        let pop = [0, 18, 0, 8, 0, 0, 0, 0];
        let packet = decode(&body(&PORT_5, &pop)).unwrap();
        assert_eq!((packet.in_port, packet.actions.as_bytes()), (5, &pop[..]));
        assert_eq!(*packet.data, [1, 2, 3]);
    }

    #[test]
    fn other_fields_are_set_by_actions() {
        let metadata = [0x80, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, 7];
        let packet_type = [0x80, 0, 88, 4, 0, 0, 0, 0];
        let oxm = [&metadata[..], &PORT_5, &packet_type].concat();
        let packet = decode(&body(&oxm, &[])).unwrap();
        let expected = [0xff, 0xff, 0, 24, 0, 0, 0x23, 0x20, 0, 33];
        let expected = [&expected[..], &metadata, &[0, 0]].concat();
        assert_eq!(packet.actions.as_bytes(), expected);
    }

    #[test]
    fn a_match_without_a_port_or_with_other_fields_is_refused() {
        let eth_type = [0x80, 0, 10, 2, 8, 0];
        let unknown = [0x80, 0, 100, 2, 8, 0];
        for (oxm, error) in [
            (vec![], ErrorCode::BAD_REQUEST_BAD_PORT),
            (unknown.to_vec(), ErrorCode::BAD_REQUEST_BAD_PORT),
            (
                [0x80, 0, 0, 4, 0xff, 0xff, 0xff, 0xf8].to_vec(),
                ErrorCode::BAD_REQUEST_BAD_PORT,
            ),
            (
                [&eth_type[..], &PORT_5].concat(),
                ErrorCode::BAD_REQUEST_PIPELINE_FIELDS_ONLY,
            ),
            ([PORT_5, PORT_5].concat(), ErrorCode::BAD_MATCH_DUP_FIELD),
            (
                // A field of Ethernet, of a packet of IP.
                [&IP_PACKET[..], &[0x80, 0, 6, 6, 2, 0, 0, 0, 0, 1], &PORT_5].concat(),
                ErrorCode::BAD_REQUEST_PIPELINE_FIELDS_ONLY,
            ),
        ] {
            let refused = decode(&body(&oxm, &[])).unwrap_err();
            assert_eq!(refused.error, error, "{oxm:?}");
        }
    }
}
