//! The program that redirects each frame to its queue's socket. It is short enough to write without compiler or library:
//!
//! ```text
//! r2 = context.rx_queue_index
//! r1 = the map of sockets
//! r3 = XDP_PASS                     the action for frames of a queue without a socket
//! return bpf_redirect_map(r1, r2, r3)
//! ```
//!
//! With matches, `marking` puts the mark of the frame's flow in front of it first.

use std::{
    os::fd::{AsRawFd, OwnedFd},
    sync::Arc,
};

use super::{
    assembly::{Assembly, Width},
    bpf::{link, load, Map, BPF_MAP_TYPE_XSKMAP},
    marking::{self, Marks},
};
use crate::{
    error::{system, PortError},
    interface::Interface,
};

const BPF_FUNC_REDIRECT_MAP: i32 = 51;
const XDP_PASS: i32 = 2;
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
/// Offset of `rx_queue_index` in `struct xdp_md`.
const RX_QUEUE_INDEX: i16 = 16;

/// A program attached to its interface. It is detached on drop, or when the process ends.
pub(super) struct Attached {
    _link: OwnedFd,
    pub(super) mode: &'static str,
    pub(super) is_native: bool,
}

/// Attaches a program that redirects each receive queue of the interface to the socket of its number. `marks`: the matches that it looks up.
pub(super) fn attach(
    interface: &Interface,
    sockets: &[Arc<OwnedFd>],
    marks: Option<&Marks>,
) -> Result<Attached, PortError> {
    let fail = |what| system(&interface.name, what);
    let map = Map::<u32, i32>::new(BPF_MAP_TYPE_XSKMAP, sockets.len() as u32, None)
        .map_err(fail("cannot make a BPF map"))?;
    for (queue, socket) in sockets.iter().enumerate() {
        map.put(&(queue as u32), &socket.as_raw_fd())
            .map_err(fail("cannot put a socket into a BPF map"))?;
    }
    let program =
        load(&code(map.descriptor(), marks)).map_err(fail("cannot load a BPF program"))?;
    match link(&program, interface.index, XDP_FLAGS_DRV_MODE) {
        Ok(link) => Ok(Attached {
            _link: link,
            mode: "native",
            is_native: true,
        }),
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
            Err(fail("another XDP program is attached (ip link shows it; `ip link set dev ... xdp off` detaches it)")(error))
        }
        // The driver has no XDP, or not with the interface's current settings.
        Err(_) => {
            let link = link(&program, interface.index, XDP_FLAGS_SKB_MODE).map_err(fail("cannot attach an XDP program"))?;
            Ok(Attached {
                _link: link,
                mode: "generic",
                is_native: false,
            })
        }
    }
}

fn code(sockets: &OwnedFd, marks: Option<&Marks>) -> Vec<u64> {
    let mut code = Assembly::default();
    let pass = code.label();
    code.copy(marking::CONTEXT, 1);
    if let Some(marks) = marks {
        marking::write(&mut code, marks, pass);
    }
    code.load(Width::Word, 2, marking::CONTEXT, RX_QUEUE_INDEX);
    code.load_map(1, sockets);
    code.set(3, XDP_PASS);
    code.call(BPF_FUNC_REDIRECT_MAP);
    code.exit();
    if marks.is_some() {
        code.place(pass);
        code.set(0, XDP_PASS);
        code.exit();
    }
    code.finish()
}
