//! bpf(2): maps, programs and links.

use std::{
    ffi::CStr,
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

use crate::system::check;

// linux/bpf.h
const BPF_MAP_CREATE: u32 = 0;
const BPF_MAP_UPDATE_ELEM: u32 = 2;
const BPF_MAP_DELETE_ELEM: u32 = 3;
const BPF_PROG_LOAD: u32 = 5;
const BPF_LINK_CREATE: u32 = 28;
const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_XDP: u32 = 37;

pub(super) const BPF_MAP_TYPE_HASH: u32 = 1;
pub(super) const BPF_MAP_TYPE_ARRAY: u32 = 2;
pub(super) const BPF_MAP_TYPE_ARRAY_OF_MAPS: u32 = 12;
pub(super) const BPF_MAP_TYPE_XSKMAP: u32 = 17;

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

/// A map whose keys and values have these types, plain data without padding.
pub(super) struct Map<K, V> {
    descriptor: OwnedFd,
    types: std::marker::PhantomData<fn(K, V)>,
}

impl<K, V> Map<K, V> {
    /// `inner`: the map that a map of maps is given as an example of its values.
    pub(super) fn new(kind: u32, entries: u32, inner: Option<&OwnedFd>) -> io::Result<Self> {
        let (key, value) = (size_of::<K>() as u32, size_of::<V>() as u32);
        let inner = inner.map_or(0, |inner| inner.as_raw_fd() as u32);
        // map_type, key_size, value_size, max_entries, map_flags, inner_map_fd
        let attribute = Attribute::new(&[kind, key, value, entries, 0, inner]);
        Ok(Self {
            descriptor: descriptor(BPF_MAP_CREATE, &attribute)?,
            types: std::marker::PhantomData,
        })
    }

    pub(super) fn put(&self, key: &K, value: &V) -> io::Result<()> {
        // map_fd, (padding), key, value, flags
        let attribute = Attribute::new(&[self.descriptor.as_raw_fd() as u32])
            .pointer(2, key)
            .pointer(4, value);
        bpf(BPF_MAP_UPDATE_ELEM, &attribute).map(drop)
    }

    pub(super) fn remove(&self, key: &K) -> io::Result<()> {
        let attribute = Attribute::new(&[self.descriptor.as_raw_fd() as u32]).pointer(2, key);
        bpf(BPF_MAP_DELETE_ELEM, &attribute).map(drop)
    }

    pub(super) fn descriptor(&self) -> &OwnedFd {
        &self.descriptor
    }
}

/// Loads an XDP program.
pub(super) fn load(code: &[u64]) -> io::Result<OwnedFd> {
    const LICENCE: &CStr = c"Apache-2.0";
    // prog_type, insn_cnt, insns, license; word 17: expected_attach_type
    let mut attribute = Attribute::new(&[BPF_PROG_TYPE_XDP, code.len() as u32])
        .pointer(2, code)
        .pointer(4, LICENCE);
    attribute.0[17] = BPF_XDP;
    descriptor(BPF_PROG_LOAD, &attribute)
}

/// Runs an XDP program on a frame; returns its action, and the frame with the bytes that it has put in front.
#[cfg(test)]
pub(super) fn run(program: &OwnedFd, frame: &[u8]) -> io::Result<(u32, Vec<u8>)> {
    const BPF_PROG_TEST_RUN: u32 = 10;
    let out = vec![std::cell::Cell::new(0_u8); frame.len() + 256];
    // prog_fd, retval, data_size_in, data_size_out, data_in, data_out
    let mut attribute = Attribute::new(&[
        program.as_raw_fd() as u32,
        0,
        frame.len() as u32,
        out.len() as u32,
    ])
    .pointer(4, frame)
    .pointer(6, &out[..]);
    let size = size_of::<Attribute>() as u32;
    // SAFETY: as in `bpf`; the kernel writes to `attribute` and at most its `data_size_out` bytes to `out`.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_PROG_TEST_RUN,
            std::ptr::from_mut(&mut attribute),
            size,
        )
    };
    check(result as i32)?;
    let written = out.iter().take(attribute.0[3] as usize);
    Ok((attribute.0[1], written.map(std::cell::Cell::get).collect()))
}

/// Attaches a program to an interface.
pub(super) fn link(program: &OwnedFd, interface: u32, flags: u32) -> io::Result<OwnedFd> {
    // prog_fd, target_ifindex, attach_type, flags
    descriptor(
        BPF_LINK_CREATE,
        &Attribute::new(&[program.as_raw_fd() as u32, interface, BPF_XDP, flags]),
    )
}
