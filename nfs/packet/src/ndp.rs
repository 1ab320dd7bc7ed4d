//! IPv6 neighbour discovery (RFC 4861): solicitations and advertisements. The caller checks the checksum, and that the hop limit is 255.

use std::net::Ipv6Addr;

use crate::{field, icmp6, MacAddress, Malformed};

const OPTION_SOURCE: u8 = 1;
const OPTION_TARGET: u8 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighbourSolicitation {
    pub target: Ipv6Addr,
    /// None: duplicate address detection (RFC 4862).
    pub source_mac: Option<MacAddress>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighbourAdvertisement {
    pub target: Ipv6Addr,
    pub target_mac: Option<MacAddress>,
    pub solicited: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeighbourMessage {
    Solicitation(NeighbourSolicitation),
    Advertisement(NeighbourAdvertisement),
}

impl NeighbourMessage {
    /// The length with one link-layer address option.
    pub const BYTES: usize = 32;

    /// Parses an ICMPv6 message; None if it is neither a solicitation nor an advertisement.
    ///
    /// # Errors
    /// If it is too short, or has an option of length 0.
    pub fn parse(message: &[u8]) -> Result<Option<Self>, Malformed> {
        let kind = *message.first().ok_or(Malformed::Truncated)?;
        if !matches!(
            kind,
            icmp6::NEIGHBOUR_SOLICITATION | icmp6::NEIGHBOUR_ADVERTISEMENT
        ) {
            return Ok(None);
        }
        if message.len() < 24 {
            return Err(Malformed::Truncated);
        }
        let target = Ipv6Addr::from(field::get::<16>(message, 8));
        Ok(Some(if kind == icmp6::NEIGHBOUR_SOLICITATION {
            Self::Solicitation(NeighbourSolicitation {
                target,
                source_mac: link_layer(&message[24..], OPTION_SOURCE)?,
            })
        } else {
            Self::Advertisement(NeighbourAdvertisement {
                target,
                target_mac: link_layer(&message[24..], OPTION_TARGET)?,
                solicited: message[4] & 0x40 != 0,
            })
        }))
    }

    /// Writes an ICMPv6 message without its checksum. A missing address is written as zero.
    pub fn write(&self, message: &mut [u8; Self::BYTES]) {
        *message = [0; Self::BYTES];
        let (kind, target, option, address) = match self {
            Self::Solicitation(solicitation) => (
                icmp6::NEIGHBOUR_SOLICITATION,
                solicitation.target,
                OPTION_SOURCE,
                solicitation.source_mac,
            ),
            Self::Advertisement(advertisement) => {
                // The override flag, and the solicited flag of an answer.
                message[4] = 0x20 | if advertisement.solicited { 0x40 } else { 0 };
                (
                    icmp6::NEIGHBOUR_ADVERTISEMENT,
                    advertisement.target,
                    OPTION_TARGET,
                    advertisement.target_mac,
                )
            }
        };
        message[0] = kind;
        field::set(message, 8, target.octets());
        message[24] = option;
        message[25] = 1;
        field::set(message, 26, address.unwrap_or_default().0);
    }
}

fn link_layer(mut options: &[u8], wanted: u8) -> Result<Option<MacAddress>, Malformed> {
    while let [kind, eights, ..] = *options {
        let length = usize::from(eights) * 8;
        if length == 0 {
            return Err(Malformed::Length);
        }
        if options.len() < length {
            return Err(Malformed::Truncated);
        }
        if kind == wanted {
            return Ok(Some(MacAddress(field::get(options, 2))));
        }
        options = &options[length..];
    }
    Ok(None)
}
