//! Ports (OpenFlow 1.3.5, section 7.2.1; lib/ofp-port.c).

use std::borrow::Cow;

use crate::error::Refusal;
use crate::wire::{Put, Reader};

/// Reserved port numbers (`ofp_port_no`).
pub mod port_no {
    #![allow(missing_docs)]
    /// Ordinary ports have lower numbers; Open vSwitch's end at 0xfeff.
    pub const MAX: u32 = 0xffff_ff00;
    pub const IN_PORT: u32 = 0xffff_fff8;
    pub const TABLE: u32 = 0xffff_fff9;
    pub const NORMAL: u32 = 0xffff_fffa;
    pub const FLOOD: u32 = 0xffff_fffb;
    pub const ALL: u32 = 0xffff_fffc;
    pub const CONTROLLER: u32 = 0xffff_fffd;
    pub const LOCAL: u32 = 0xffff_fffe;
    pub const ANY: u32 = 0xffff_ffff;
}

/// The first non-ordinary one of Open vSwitch's 16-bit port numbers
/// (`OFPP_MAX`).
const MAX16: u32 = 0xff00;

/// Converts a 16-bit port number to OpenFlow 1.3 (`ofputil_port_to_ofp11`).
pub fn from_openflow10(port: u16) -> u32 {
    match u32::from(port) {
        ordinary @ 0..MAX16 => ordinary,
        reserved => reserved | 0xffff_0000,
    }
}

/// Tells whether Open vSwitch can have or name this port at all
/// (`ofputil_port_from_ofp11`).
pub fn is_representable(port: u32) -> bool {
    !(MAX16..port_no::MAX).contains(&port)
}

/// Tells whether a packet-out may come from this port
/// (`ofputil_decode_packet_out`).
pub(crate) fn is_ingress(port: u32) -> bool {
    port < port_no::MAX || matches!(port, port_no::LOCAL | port_no::ANY | port_no::CONTROLLER)
}

/// Tells whether an output to this port is accepted
/// (`ofpact_check_output_port`).
pub fn is_output(port: u32) -> bool {
    matches!(port, 0..MAX16 | port_no::IN_PORT..=port_no::LOCAL)
}

/// Bits of [`Port::config`] (`ofp_port_config`). OpenFlow 1.3 has only four of
/// them: Open vSwitch masks port-status, port-desc and port-mod messages of 1.1
/// and later with `OFPPC11_ALL`, so OpenFlow 1.3 can neither see nor set its
/// NO_FLOOD, NO_STP and NO_RECV_STP.
pub mod config {
    #![allow(missing_docs)]
    pub const PORT_DOWN: u32 = 1 << 0;
    /// Open vSwitch keeps it for OpenFlow 1.0, but does not heed it.
    pub const NO_STP: u32 = 1 << 1;
    pub const NO_RECV: u32 = 1 << 2;
    pub const NO_RECV_STP: u32 = 1 << 3;
    pub const NO_FLOOD: u32 = 1 << 4;
    pub const NO_FWD: u32 = 1 << 5;
    pub const NO_PACKET_IN: u32 = 1 << 6;
    /// The bits that OpenFlow 1.3 defines.
    pub const ALL: u32 = PORT_DOWN | NO_RECV | NO_FWD | NO_PACKET_IN;
    /// The bits that only OpenFlow 1.0 defines (`OFPPC10_ALL`).
    pub const ONLY_10: u32 = NO_STP | NO_RECV_STP | NO_FLOOD;
    /// Those of them that Open vSwitch heeds.
    pub const HEEDED_10: u32 = NO_RECV_STP | NO_FLOOD;
}

/// Bits of [`Port::state`] (`ofp_port_state`).
pub mod state {
    #![allow(missing_docs)]
    pub const LINK_DOWN: u32 = 1 << 0;
    pub const BLOCKED: u32 = 1 << 1;
    pub const LIVE: u32 = 1 << 2;
}

/// `ofp_port`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Port {
    /// OpenFlow port number.
    pub number: u32,
    /// Ethernet address.
    pub hw_addr: [u8; 6],
    /// Padded with zeros; Open vSwitch leaves at least one.
    pub name: [u8; 16],
    /// Bits of [`config`].
    pub config: u32,
    /// Bits of [`state`].
    pub state: u32,
    /// Features in use (`ofp_port_features`).
    pub curr: u32,
    /// Features announced.
    pub advertised: u32,
    /// Features possible.
    pub supported: u32,
    /// Features announced by the peer.
    pub peer: u32,
    /// Speed in kbit/s.
    pub curr_speed: u32,
    /// Largest speed in kbit/s.
    pub max_speed: u32,
}

impl Port {
    /// Bytes on the wire.
    pub const LEN: usize = 64;

    /// Returns the port without the configuration that OpenFlow 1.3 cannot say.
    #[must_use]
    pub fn in_openflow13(mut self) -> Self {
        self.config &= config::ALL;
        self
    }

    /// Returns the name without its padding.
    pub fn name_str(&self) -> Cow<'_, str> {
        let end = self.name.iter().position(|&b| b == 0).unwrap_or(16);
        String::from_utf8_lossy(self.name.get(..end).unwrap_or_default())
    }

    /// Converts a name to [`Port::name`], truncated to 15 bytes.
    pub fn name_bytes(name: &str) -> [u8; 16] {
        let mut bytes = [0; 16];
        for (slot, byte) in bytes.iter_mut().take(15).zip(name.bytes()) {
            *slot = byte;
        }
        bytes
    }

    pub(crate) fn pull(reader: &mut Reader<'_>) -> Result<Self, Refusal> {
        let number = reader.u32()?;
        reader.skip(4)?;
        let hw_addr = reader.array()?;
        reader.skip(2)?;
        Ok(Self {
            number,
            hw_addr,
            name: reader.array()?,
            config: reader.u32()?,
            state: reader.u32()?,
            curr: reader.u32()?,
            advertised: reader.u32()?,
            supported: reader.u32()?,
            peer: reader.u32()?,
            curr_speed: reader.u32()?,
            max_speed: reader.u32()?,
        })
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.put_u32(self.number);
        out.zeros(4);
        out.put(&self.hw_addr);
        out.zeros(2);
        out.put(&self.name);
        out.put_u32(self.config);
        out.put_u32(self.state);
        self.put_ethernet(out);
    }

    /// Writes what OpenFlow 1.4 puts into the property of Ethernet ports.
    pub(crate) fn put_ethernet(&self, out: &mut Vec<u8>) {
        for number in [
            self.curr,
            self.advertised,
            self.supported,
            self.peer,
            self.curr_speed,
            self.max_speed,
        ] {
            out.put_u32(number);
        }
    }
}

/// `ofp_port_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortStatus {
    /// One of the constants.
    pub reason: u8,
    /// The port as it is now, or was before its deletion.
    pub port: Port,
}

impl PortStatus {
    /// `OFPPR_ADD`.
    pub const ADD: u8 = 0;
    /// `OFPPR_DELETE`.
    pub const DELETE: u8 = 1;
    /// `OFPPR_MODIFY`.
    pub const MODIFY: u8 = 2;

    pub(crate) fn decode(body: &[u8]) -> Result<Self, Refusal> {
        let mut reader = Reader::new(body);
        let reason = reader.u8()?;
        reader.skip(7)?;
        let port = Port::pull(&mut reader)?;
        Ok(Self { reason, port })
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.put_u8(self.reason);
        out.zeros(7);
        self.port.put(out);
    }
}

/// `ofp_port_mod`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortMod {
    /// OpenFlow port number.
    pub port: u32,
    /// Must be the port's.
    pub hw_addr: [u8; 6],
    /// Bits of [`config`].
    pub config: u32,
    /// The bits to change.
    pub mask: u32,
    /// Features to announce; zero: no change.
    pub advertise: u32,
}

impl PortMod {
    pub(crate) fn decode(body: &[u8]) -> Result<Self, Refusal> {
        let mut reader = Reader::new(body);
        let port = reader.u32()?;
        reader.skip(4)?;
        let hw_addr = reader.array()?;
        reader.skip(2)?;
        Ok(Self {
            port,
            hw_addr,
            config: reader.u32()?,
            mask: reader.u32()?,
            advertise: reader.u32()?,
        })
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.put_u32(self.port);
        out.zeros(4);
        out.put(&self.hw_addr);
        out.zeros(2);
        out.put_u32(self.config);
        out.put_u32(self.mask);
        out.put_u32(self.advertise);
        out.zeros(4);
    }
}
