//! Properties of a network interface, asked of the kernel. It avoids sysfs, which shows the network namespace in which it was mounted.

use std::{
    cell::Cell,
    ffi::CStr,
    io,
    os::fd::{AsFd, OwnedFd},
};

use crate::{
    error::{system, PortError},
    packet::Mac,
    system::{bind, ioctl, set_option, socket, zeroed, Plain},
};

const NAME_BYTES: usize = 16;

// linux/ethtool.h
const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GLINK: u32 = 0x0a;
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_GTSO: u32 = 0x1e;
const ETHTOOL_GGRO: u32 = 0x2b;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const ETH_FLAG_LRO: u32 = 1 << 15;
const SIOCETHTOOL: libc::c_ulong = 0x8946;

/// `struct ifreq` with 24 bytes of its union.
#[derive(Clone, Copy)]
#[repr(C)]
struct Request {
    name: [u8; NAME_BYTES],
    data: [u64; 3],
}
// SAFETY: integers only.
unsafe impl Plain for Request {}

/// `struct ethtool_channels`, `ethtool_value` and `ethtool_drvinfo` begin with the command and fit into it.
#[derive(Clone, Copy)]
#[repr(C)]
struct Ethtool {
    command: u32,
    words: [u32; 63],
}

/// An interface's properties when it was queried.
#[derive(Clone, Debug)]
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) index: u32,
    pub(crate) mac: Mac,
    pub(crate) mtu: u32,
    pub(crate) is_up: bool,
    /// Whether the link is up.
    pub(crate) has_carrier: bool,
    pub(crate) driver: String,
    /// The number of receive queues in use.
    pub(crate) queues: u32,
    /// Whether it merges frames (GRO, LRO).
    pub(crate) merges: bool,
    /// Whether it splits frames (TSO).
    pub(crate) splits: bool,
}

impl Interface {
    pub(crate) fn look(name: &str) -> Result<Self, PortError> {
        if name.is_empty() || name.len() >= NAME_BYTES || name.contains(['\0', '/']) {
            let reason = format!(
                "not a name of an interface: expected 1 to {} bytes",
                NAME_BYTES - 1
            );
            return Err(PortError::Unfit {
                interface: name.to_owned(),
                reason,
            });
        }
        let asker = Asker::new(name).map_err(system(name, "cannot make a socket"))?;
        let ask = |request, what| asker.ask(request).map_err(system(name, what));
        let index = ask(libc::SIOCGIFINDEX, "cannot find it")?[0] as u32;
        let mtu = ask(libc::SIOCGIFMTU, "cannot read its MTU")?[0] as u32;
        let flags = ask(libc::SIOCGIFFLAGS, "cannot read its flags")?[0] as u16;
        // struct sockaddr: the family, then the address.
        let address = ask(libc::SIOCGIFHWADDR, "cannot read its address")?;
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&address[0].to_ne_bytes());
        let mac = [bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]];
        // words: max_rx max_tx max_other max_combined rx tx other combined
        let queues = asker
            .ethtool(ETHTOOL_GCHANNELS)
            .map_or(0, |words| words[4] + words[7]);
        let has = |command, bit| {
            asker
                .ethtool(command)
                .is_some_and(|words| words[0] & bit != 0)
        };
        Ok(Self {
            name: name.to_owned(),
            index,
            mac,
            mtu,
            is_up: i32::from(flags) & libc::IFF_UP != 0,
            // Drivers that do not know have no link to lose. IFF_RUNNING would lag behind.
            has_carrier: asker
                .ethtool(ETHTOOL_GLINK)
                .is_none_or(|words| words[0] != 0),
            driver: asker.driver(),
            // Drivers without channels have one queue.
            queues: queues.max(1),
            merges: has(ETHTOOL_GGRO, 1) || has(ETHTOOL_GFLAGS, ETH_FLAG_LRO),
            splits: has(ETHTOOL_GTSO, 1),
        })
    }
}

impl Interface {
    /// Returns a function that reports the interface's state later: see `Port::state`.
    pub(crate) fn watch(&self) -> Box<dyn Fn() -> &'static str + Send + Sync> {
        let (name, index) = (self.name.clone(), self.index);
        Box::new(move || match Self::look(&name) {
            Ok(now) if now.index != index => "gone",
            Ok(now) if !now.is_up => "down",
            Ok(now) if !now.has_carrier => "no carrier",
            Ok(_) => "up",
            Err(_) => "gone",
        })
    }
}

/// Asks the kernel about one interface.
pub(crate) struct Asker {
    socket: OwnedFd,
    name: [u8; NAME_BYTES],
}

impl Asker {
    /// `name`: at most 15 bytes.
    pub(crate) fn new(name: &str) -> io::Result<Self> {
        let mut padded = [0; NAME_BYTES];
        padded[..name.len()].copy_from_slice(name.as_bytes());
        Ok(Self {
            socket: socket(libc::AF_INET, libc::SOCK_DGRAM)?,
            name: padded,
        })
    }

    fn ask(&self, request: libc::c_ulong) -> io::Result<[u64; 3]> {
        let mut argument = Request {
            name: self.name,
            data: [0; 3],
        };
        ioctl(self.socket.as_fd(), request, &mut argument)?;
        Ok(argument.data)
    }

    /// Queries a command; returns the words after it, or None if the driver does not support it.
    fn ethtool(&self, command: u32) -> Option<[u32; 63]> {
        let mut ethtool = Ethtool {
            command,
            words: [0; 63],
        };
        let mut argument = Request {
            name: self.name,
            data: [
                std::ptr::from_mut(&mut ethtool).expose_provenance() as u64,
                0,
                0,
            ],
        };
        // The kernel writes as much as the command defines, at most the 196 bytes of `ethtool_drvinfo`, which fit.
        ioctl(self.socket.as_fd(), SIOCETHTOOL, &mut argument).ok()?;
        // SAFETY: `ethtool` is alive and initialised; the read is volatile because the kernel wrote through an address that the compiler does not track.
        Some(unsafe { std::ptr::read_volatile(&raw const ethtool.words) })
    }

    /// Calls an ethtool command, the first word of its argument, which must be as long as the command defines.
    pub(crate) fn command(&self, argument: &[Cell<u32>]) -> io::Result<()> {
        let mut request = Request {
            name: self.name,
            data: [argument.as_ptr().expose_provenance() as u64, 0, 0],
        };
        // The cells may change behind the compiler's back; the kernel writes as much as the command defines.
        ioctl(self.socket.as_fd(), SIOCETHTOOL, &mut request)
    }

    /// Returns the driver's name; empty if unknown.
    fn driver(&self) -> String {
        let words = self.ethtool(ETHTOOL_GDRVINFO).unwrap_or([0; 63]);
        let bytes: Vec<u8> = words[..8]
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .collect();
        CStr::from_bytes_until_nul(&bytes)
            .map_or(String::new(), |text| text.to_string_lossy().into_owned())
    }
}

// SAFETY: integers only.
unsafe impl Plain for libc::packet_mreq {}
// SAFETY: integers only.
unsafe impl Plain for libc::sockaddr_ll {}

/// Enables promiscuous mode on the interface while `socket`, of family AF_PACKET, is open.
pub(crate) fn take_all_addresses(socket: &OwnedFd, index: u32) -> io::Result<()> {
    let mut membership: libc::packet_mreq = zeroed();
    membership.mr_ifindex = index as i32;
    membership.mr_type = libc::PACKET_MR_PROMISC as u16;
    set_option(
        socket.as_fd(),
        libc::SOL_PACKET,
        libc::PACKET_ADD_MEMBERSHIP,
        &membership,
    )
}

/// Binds a socket of family AF_PACKET to all frames of an interface.
pub(crate) fn bind_to(socket: &OwnedFd, index: u32) -> io::Result<()> {
    let mut address: libc::sockaddr_ll = zeroed();
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index as i32;
    bind(socket.as_fd(), &address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_found_and_errors_name_others() {
        let lo = Interface::look("lo").unwrap();
        assert_eq!(lo.watch()(), if lo.is_up { "up" } else { "down" });
        assert_eq!((lo.mac, lo.queues), ([0; 6], 1));
        let error = Interface::look("nosuch0").unwrap_err().to_string();
        assert!(error.contains("port nosuch0: cannot find it"), "{error}");
        assert!(
            error.contains("does not exist in this network namespace"),
            "{error}"
        );
        assert!(Interface::look("a-name-that-is-too-long").is_err());
        let other = Interface { index: 9999, ..lo };
        assert_eq!(other.watch()(), "gone");
    }
}
