//! The sockets of a port: created, configured, and joined to one fanout group.

use std::{
    io,
    net::IpAddr,
    os::fd::{AsFd, OwnedFd},
    sync::{
        atomic::{AtomicU64, Ordering},
        Arc,
    },
};

use libc::{c_int, sock_filter, sock_fprog};

use super::steering;
use crate::{
    error::{system, PortError},
    interface::{bind_to, take_all_addresses, Interface},
    system::{get_option, set_option, socket, Plain},
};

/// The socket buffer in each direction, in bytes. The default, 208 KiB, is full after 90 short frames.
pub(super) const BUFFER: c_int = 8 << 20;

// SAFETY: integers only.
unsafe impl Plain for libc::tpacket_stats {}
// SAFETY: an integer and a pointer, which may be null.
unsafe impl Plain for sock_fprog {}

/// Opens `count` sockets, over which the kernel spreads the interface's flows: by hash, or, for a function with connections from its `own` addresses, by
/// [`steering`].
pub(crate) fn open(
    interface: &Interface,
    count: usize,
    own: &[IpAddr],
) -> Result<Vec<Arc<OwnedFd>>, PortError> {
    let name = &interface.name;
    let sockets = (0..count)
        .map(|_| new_socket(interface).map(Arc::new))
        .collect::<Result<Vec<_>, _>>()?;
    for socket in &sockets {
        bind_to(socket, interface.index)
            .map_err(system(name, "cannot bind an AF_PACKET socket"))?;
    }
    if count > 1 {
        join(&sockets, own).map_err(system(
            name,
            "cannot share it between workers (PACKET_FANOUT)",
        ))?;
    }
    for socket in &sockets {
        open_filter(socket).map_err(system(name, "cannot remove the filter"))?;
    }
    Ok(sockets)
}

/// Creates a socket that receives nothing yet.
fn new_socket(interface: &Interface) -> Result<OwnedFd, PortError> {
    let name = &interface.name;
    // Protocol 0 receives nothing until the socket is bound.
    let socket = socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK)
        .map_err(system(name, "cannot make an AF_PACKET socket"))?;
    let set = |level, option, value: c_int, what| {
        set_option(socket.as_fd(), level, option, &value).map_err(system(name, what))
    };
    set(
        libc::SOL_PACKET,
        libc::PACKET_IGNORE_OUTGOING,
        1,
        "cannot ignore outgoing frames (needs Linux 4.20 or newer)",
    )?;
    set(
        libc::SOL_PACKET,
        libc::PACKET_AUXDATA,
        1,
        "cannot ask for VLAN tags",
    )?;
    set(
        libc::SOL_PACKET,
        libc::PACKET_VNET_HDR,
        1,
        "cannot ask for offloads",
    )?;
    for (forced, plain) in [
        (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF),
        (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF),
    ] {
        // The kernel doubles the requested size.
        if set_option(socket.as_fd(), libc::SOL_SOCKET, forced, &(BUFFER / 2)).is_err() {
            // Takes what is allowed; `open` reports it if it is too little.
            let _ = set_option(socket.as_fd(), libc::SOL_SOCKET, plain, &(BUFFER / 2));
        }
    }
    take_all_addresses(&socket, interface.index)
        .map_err(system(name, "cannot enable promiscuous mode"))?;
    close_filter(&socket).map_err(system(name, "cannot set a filter"))?;
    Ok(socket)
}

pub(super) fn receive_buffer(socket: &OwnedFd) -> c_int {
    get_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF).unwrap_or(0)
}

/// Installs a filter that drops everything: until the sockets are one group, each would receive every frame.
fn close_filter(socket: &OwnedFd) -> io::Result<()> {
    let mut nothing = sock_filter {
        code: (libc::BPF_RET | libc::BPF_K) as u16,
        jt: 0,
        jf: 0,
        k: 0,
    };
    let program = sock_fprog {
        len: 1,
        filter: &raw mut nothing,
    };
    // The kernel copies the program during the call, while `nothing` lives.
    set_option(
        socket.as_fd(),
        libc::SOL_SOCKET,
        libc::SO_ATTACH_FILTER,
        &program,
    )
}

fn open_filter(socket: &OwnedFd) -> io::Result<()> {
    set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0)
}

/// Joins the sockets to one group, in the order of the workers.
fn join(sockets: &[Arc<OwnedFd>], own: &[IpAddr]) -> io::Result<()> {
    let kind = match own {
        [] => libc::PACKET_FANOUT_HASH,
        _ => libc::PACKET_FANOUT_CBPF,
    };
    let kind = kind | libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING;
    let first = (kind | libc::PACKET_FANOUT_FLAG_UNIQUEID) << 16;
    let fanout = |socket: &OwnedFd, value: u32| {
        set_option(
            socket.as_fd(),
            libc::SOL_PACKET,
            libc::PACKET_FANOUT,
            &(value as c_int),
        )
    };
    fanout(&sockets[0], first)?;
    if !own.is_empty() {
        let mut steering = steering::program(own);
        let program = sock_fprog {
            len: steering.len() as u16,
            filter: steering.as_mut_ptr(),
        };
        // The kernel copies the program during the call, while `steering` lives.
        set_option(
            sockets[0].as_fd(),
            libc::SOL_PACKET,
            libc::PACKET_FANOUT_DATA,
            &program,
        )?;
    }
    let group: c_int = get_option(sockets[0].as_fd(), libc::SOL_PACKET, libc::PACKET_FANOUT)?;
    let value = kind << 16 | group as u32 & 0xffff;
    sockets[1..]
        .iter()
        .try_for_each(|socket| fanout(socket, value))
}

/// Returns a function that counts the frames lost to full sockets since they were opened.
pub(crate) fn overruns(sockets: Vec<Arc<OwnedFd>>) -> Box<dyn Fn() -> u64 + Send + Sync> {
    let total = AtomicU64::new(0);
    Box::new(move || {
        for socket in &sockets {
            // Reading resets the kernel's count to zero.
            let new = get_option::<libc::tpacket_stats>(
                socket.as_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
            );
            total.fetch_add(
                new.map_or(0, |new| u64::from(new.tp_drops)),
                Ordering::Relaxed,
            );
        }
        total.load(Ordering::Relaxed)
    })
}
