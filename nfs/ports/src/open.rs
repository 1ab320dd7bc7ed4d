//! Chooses a port's back end and opens it.

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

/// Opens an interface with one queue per worker. `index` is the port number that its packets carry. `large`: the packets are
/// [large](crate::Packet::large), of which only AF_PACKET makes use.
///
/// # Errors
/// If the interface does not exist, or cannot be used like this; the error says what to do.
pub fn open(
    name: &str,
    index: usize,
    queues: usize,
    choice: Choice,
    large: bool,
) -> Result<Port, PortError> {
    let interface = Interface::look(name)?;
    let queues = queues.max(1);
    if !interface.is_up {
        return Err(PortError::Unfit {
            interface: name.to_owned(),
            reason: format!("it is down: ip link set {name} up"),
        });
    }
    match choice {
        Choice::Packet => packet_socket::open(&interface, index, queues, large),
        Choice::Xdp => xdp::open(&interface, index, queues),
        Choice::Auto if large && (interface.merges || interface.splits) => {
            let mut port = packet_socket::open(&interface, index, queues, large)?;
            port.how
                .push_str("; chosen for frames of several segments, which AF_XDP does not have");
            Ok(port)
        }
        Choice::Auto => match xdp::open(&interface, index, queues) {
            Ok(port) => Ok(port),
            Err(refused) => {
                let mut port = packet_socket::open(&interface, index, queues, large)?;
                port.how
                    .push_str(&format!("; AF_XDP was not possible: {refused}"));
                Ok(port)
            }
        },
    }
}
