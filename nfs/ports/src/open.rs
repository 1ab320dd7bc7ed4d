//! Chooses a port's back end and opens it.

use std::net::IpAddr;

use crate::{error::PortError, interface::Interface, packet_socket, queue::Port, xdp};

/// The requested back end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// AF_XDP where it works, else AF_PACKET; AF_PACKET also where packets are large and the interface has offloads for
    /// such frames.
    #[default]
    Auto,
    Xdp,
    Packet,
}

/// The use that a network function makes of a port.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted<'a> {
    pub choice: Choice,
    /// The number of workers: each gets a queue. 0 counts as 1.
    pub queues: usize,
    /// Whether packets are [large](crate::Packet::large), of which only AF_PACKET makes use.
    pub large: bool,
    /// The addresses from which the function opens connections. AF_PACKET gives the frames to them to the worker with the index destination port modulo
    /// number of workers, and spreads the frames to others by their source; without such addresses, by a hash of the flow.
    pub own: &'a [IpAddr],
}

/// Opens an interface. `index` is the port number that its packets carry.
///
/// # Errors
/// If the interface does not exist, or cannot be used like this; the error says what to do.
pub fn open(name: &str, index: usize, wanted: Wanted<'_>) -> Result<Port, PortError> {
    let interface = Interface::look(name)?;
    let wanted = Wanted {
        queues: wanted.queues.max(1),
        ..wanted
    };
    if !interface.is_up {
        return Err(PortError::Unfit {
            interface: name.to_owned(),
            reason: format!("it is down: ip link set {name} up"),
        });
    }
    match wanted.choice {
        Choice::Packet => packet_socket::open(&interface, index, &wanted),
        Choice::Xdp => xdp::open(&interface, index, wanted.queues),
        Choice::Auto if wanted.large && (interface.merges || interface.splits) => {
            let mut port = packet_socket::open(&interface, index, &wanted)?;
            port.how
                .push_str("; chosen for frames of several segments, which AF_XDP does not have");
            Ok(port)
        }
        Choice::Auto => match xdp::open(&interface, index, wanted.queues) {
            Ok(port) => Ok(port),
            Err(refused) => {
                let mut port = packet_socket::open(&interface, index, &wanted)?;
                port.how
                    .push_str(&format!("; AF_XDP was not possible: {refused}"));
                Ok(port)
            }
        },
    }
}
