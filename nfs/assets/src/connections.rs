//! Connections: which side of one opened it, and what need not be looked for in its packets any more.

use bytemuck::{Pod, Zeroable};
use nf_runtime::{
    state::{FlowTable, StateBuilder},
    Refusal,
};

/// Connections never end by time. A full part of the table forgets its connection that was silent for longest.
const NEVER: u64 = 1 << 62;

/// Facts about a connection, as bits.
pub mod known {
    pub const SERVICE: u8 = 0x04;
    pub const CLIENT: u8 = 0x08;
    pub const SERVICE_BY_PORT: u8 = 0x10;
    pub const CLIENT_BY_PORT: u8 = 0x20;
    pub const ICMP: u8 = 0x10;
}

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct End {
    pub address: [u8; 16],
    pub port: u16,
}

/// The ends of a connection in their own order, its protocol, and its version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
struct Key {
    ends: [End; 2],
    protocol: u8,
    version: u8,
    reserved: u16,
}

/// The value of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
struct State {
    /// The index of the client's end in the key.
    client: u8,
    known: u8,
    reserved: [u8; 6],
}

/// The side of a connection that sent a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The connection is new.
    New,
    Client,
    Server,
}

/// A packet's connection.
#[derive(Clone, Copy, Debug)]
pub struct Connection {
    key: Key,
    state: State,
    pub side: Side,
}

/// All connections.
pub struct Connections(FlowTable<Key, State>);

impl Connections {
    /// Declares the table.
    ///
    /// # Errors
    /// If it is too large.
    pub fn declare(capacity: usize, state: &mut StateBuilder) -> Result<Self, Refusal> {
        Ok(Self(state.flow_table("connections", capacity)?))
    }

    /// Finds the connection of a packet from `from` to `to`, or makes one.
    pub fn of(&self, from: End, to: End, protocol: u8, version: u8, now: u64) -> Connection {
        let sender = u8::from(from > to);
        let mut ends = [from, to];
        ends.sort_unstable();
        let key = Key {
            ends,
            protocol,
            version,
            reserved: 0,
        };
        let (state, side) = match self.0.get(&key, now, NEVER) {
            // A station that talks to itself by one port is the client of both sides.
            Some(state) if state.client == sender || from == to => (state, Side::Client),
            Some(state) => (state, Side::Server),
            None => {
                let state = State {
                    client: sender,
                    ..State::default()
                };
                self.0.replace(&key, now, NEVER, state);
                (state, Side::New)
            }
        };
        Connection { key, state, side }
    }

    /// Notes that something about a connection is known.
    pub fn note(&self, connection: &mut Connection, bit: u8, now: u64) {
        if connection.state.known & bit == 0 {
            connection.state.known |= bit;
            self.write(connection, now);
        }
    }

    /// Makes the client the server, and the reverse, and forgets what is known.
    pub fn reverse(&self, connection: &mut Connection, now: u64) {
        connection.state.client ^= 1;
        connection.state.known = 0;
        connection.side = match connection.side {
            Side::Client => Side::Server,
            Side::New | Side::Server => Side::Client,
        };
        self.write(connection, now);
    }

    fn write(&self, connection: &Connection, now: u64) {
        self.0.update(&connection.key, now, NEVER, |state| {
            *state = connection.state
        });
    }

    /// Returns the number of connections. Scans the table.
    #[must_use]
    pub fn len(&self, now: u64) -> usize {
        self.0.len(now)
    }
}

impl Connection {
    #[must_use]
    pub fn knows(&self, bit: u8) -> bool {
        self.state.known & bit != 0
    }

    /// Tells whether something is known about it.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.state.known != 0
    }
}
