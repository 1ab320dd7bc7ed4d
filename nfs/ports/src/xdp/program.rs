//! The program that redirects each frame to its queue's socket. It is short enough to write by hand, without compiler or library:
//!
//! ```text
//! r2 = context.rx_queue_index
//! r1 = the map of sockets
//! r3 = XDP_PASS                     the action for frames of a queue without a socket
//! return bpf_redirect_map(r1, r2, r3)
//! ```

use std::{
    ffi::CStr,
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    sync::Arc,
};

use crate::{
    error::{system, PortError},
    interface::Interface,
    system::check,
};

// linux/bpf.h
const BPF_MAP_CREATE: u32 = 0;
const BPF_MAP_UPDATE_ELEM: u32 = 2;
const BPF_PROG_LOAD: u32 = 5;
const BPF_LINK_CREATE: u32 = 28;
const BPF_MAP_TYPE_XSKMAP: u32 = 17;
const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_XDP: u32 = 37;
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

/// Attaches a program that redirects each receive queue of the interface to the socket of its number.
pub(super) fn attach(
    interface: &Interface,
    sockets: &[Arc<OwnedFd>],
) -> Result<Attached, PortError> {
    let fail = |what| system(&interface.name, what);
    let map = make_map(sockets.len() as u32).map_err(fail("cannot make a BPF map"))?;
    for (queue, socket) in sockets.iter().enumerate() {
        put(&map, queue as u32, socket).map_err(fail("cannot put a socket into a BPF map"))?;
    }
    let program = load(&map).map_err(fail("cannot load a BPF program"))?;
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

/// The argument of a call: the leading bytes of `union bpf_attr`; the others are zero.
#[repr(C, align(8))]
struct Attribute([u32; 32]);

impl Attribute {
    fn new(words: &[u32]) -> Self {
        let mut attribute = [0; 32];
        attribute[..words.len()].copy_from_slice(words);
        Self(attribute)
    }

    /// Puts a pointer at this word, whose index is even.
    fn pointer<T: ?Sized>(mut self, word: usize, to: &T) -> Self {
        let address =
            (std::ptr::from_ref(to).cast::<u8>().expose_provenance() as u64).to_ne_bytes();
        let half = |at: usize| {
            u32::from_ne_bytes([
                address[at],
                address[at + 1],
                address[at + 2],
                address[at + 3],
            ])
        };
        self.0[word] = half(0);
        self.0[word + 1] = half(4);
        self
    }
}

/// Calls bpf(2). The target of each pointer in `attribute` must be alive and as large as the command requires: each caller is a few lines below.
fn bpf(command: u32, attribute: &Attribute) -> io::Result<i32> {
    let size = size_of::<Attribute>() as u32;
    // SAFETY: `attribute` is valid for `size` bytes; the kernel only reads it and, with these commands, the targets of its pointers.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attribute), size) };
    check(result as i32)
}

fn descriptor(command: u32, attribute: &Attribute) -> io::Result<OwnedFd> {
    let descriptor = bpf(command, attribute)?;
    // SAFETY: the commands used here return a new descriptor, close-on-exec, without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn make_map(queues: u32) -> io::Result<OwnedFd> {
    // map_type, key_size, value_size, max_entries
    descriptor(
        BPF_MAP_CREATE,
        &Attribute::new(&[BPF_MAP_TYPE_XSKMAP, 4, 4, queues]),
    )
}

fn put(map: &OwnedFd, queue: u32, socket: &OwnedFd) -> io::Result<()> {
    let value = socket.as_raw_fd();
    // map_fd, (padding), key, value, flags
    let attribute = Attribute::new(&[map.as_raw_fd() as u32])
        .pointer(2, &queue)
        .pointer(4, &value);
    bpf(BPF_MAP_UPDATE_ELEM, &attribute).map(drop)
}

/// Encodes one instruction: `code`, destination and source register, offset, immediate.
fn instruction(code: u8, destination: u8, source: u8, offset: i16, immediate: i32) -> u64 {
    let [low, high] = offset.to_ne_bytes();
    let [a, b, c, d] = immediate.to_ne_bytes();
    // struct bpf_insn has bit fields; the first is in the low half on little-endian machines.
    let registers = if cfg!(target_endian = "little") {
        source << 4 | destination
    } else {
        destination << 4 | source
    };
    u64::from_ne_bytes([code, registers, low, high, a, b, c, d])
}

fn load(map: &OwnedFd) -> io::Result<OwnedFd> {
    const LOAD_WORD: u8 = 0x61;
    const LOAD_IMMEDIATE: u8 = 0x18;
    const MOVE: u8 = 0xb7;
    const CALL: u8 = 0x85;
    const EXIT: u8 = 0x95;
    const MAP_DESCRIPTOR: u8 = 1;
    const LICENCE: &CStr = c"Apache-2.0";
    let code = [
        instruction(LOAD_WORD, 2, 1, RX_QUEUE_INDEX, 0),
        instruction(LOAD_IMMEDIATE, 1, MAP_DESCRIPTOR, 0, map.as_raw_fd()),
        instruction(0, 0, 0, 0, 0),
        instruction(MOVE, 3, 0, 0, XDP_PASS),
        instruction(CALL, 0, 0, 0, BPF_FUNC_REDIRECT_MAP),
        instruction(EXIT, 0, 0, 0, 0),
    ];
    // prog_type, insn_cnt, insns, license; word 17: expected_attach_type
    let mut attribute = Attribute::new(&[BPF_PROG_TYPE_XDP, code.len() as u32])
        .pointer(2, &code[..])
        .pointer(4, LICENCE);
    attribute.0[17] = BPF_XDP;
    descriptor(BPF_PROG_LOAD, &attribute)
}

fn link(program: &OwnedFd, interface: u32, flags: u32) -> io::Result<OwnedFd> {
    // prog_fd, target_ifindex, attach_type, flags
    descriptor(
        BPF_LINK_CREATE,
        &Attribute::new(&[program.as_raw_fd() as u32, interface, BPF_XDP, flags]),
    )
}
