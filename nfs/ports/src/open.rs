//! Chooses a port's back end and opens it.

use crate::{
    error::PortError,
    interface::Interface,
    packet_socket,
    queue::Port,
    wanted::{Choice, Wanted},
    xdp,
};

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
        Choice::Xdp => xdp::open(&interface, index, wanted.queues, wanted.matching),
        Choice::Auto if wanted.large && (interface.merges || interface.splits) => {
            let mut port = packet_socket::open(&interface, index, &wanted)?;
            port.how
                .push_str("; chosen for frames of several segments, which AF_XDP does not have");
            Ok(port)
        }
        Choice::Auto => match xdp::open(&interface, index, wanted.queues, wanted.matching) {
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
