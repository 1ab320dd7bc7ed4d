//! nDPI, behind functions that cannot be used wrongly. This module has all `unsafe` code of the program.
//!
//! nDPI itself may still be wrong about the packets that it parses: that is why it runs here, see [`sandbox`](crate::sandbox).

use std::{
    ffi::{c_char, c_int, c_uint, c_void, CStr},
    ptr::{null, NonNull},
};

/// As `struct nf_seen` in ndpi.c.
#[repr(C)]
struct RawSeen {
    master: u16,
    application: u16,
    category: u16,
    confidence: u8,
    last: u8,
    host: *const c_char,
    ja3_client: *const c_char,
    ja3_server: *const c_char,
}

extern "C" {
    fn nf_open() -> *mut c_void;
    fn nf_flow() -> *mut c_void;
    fn nf_free(flow: *mut c_void);
    fn nf_layer4(packet: *const u8, length: u16) -> u8;
    fn nf_packet(
        module: *mut c_void,
        flow: *mut c_void,
        packet: *const u8,
        length: u16,
        time_ms: u64,
        enough: c_int,
        seen: *mut RawSeen,
    );
    fn nf_give_up(module: *mut c_void, flow: *mut c_void, seen: *mut RawSeen);
    fn nf_protocols(module: *mut c_void) -> c_uint;
    fn nf_categories() -> c_uint;
    fn nf_protocol(module: *mut c_void, id: u16) -> *const c_char;
    fn nf_category(module: *mut c_void, id: u16) -> *const c_char;
    fn nf_version() -> *const c_char;
}

/// nDPI with all its protocols.
pub(crate) struct Module(NonNull<c_void>);

/// The memory of nDPI about a flow.
pub(crate) struct Flow(NonNull<c_void>);

/// The verdict of nDPI about a flow; the texts are the flow's.
pub(crate) struct Seen<'a> {
    pub(crate) master: u16,
    pub(crate) application: u16,
    pub(crate) category: u16,
    pub(crate) confidence: u8,
    pub(crate) last: bool,
    pub(crate) host: &'a [u8],
    pub(crate) ja3_client: &'a [u8],
    pub(crate) ja3_server: &'a [u8],
}

impl Module {
    /// Sets nDPI up; None: its library is not the one of its headers, or there is no memory.
    pub(crate) fn open() -> Option<Self> {
        // SAFETY: it has no preconditions. It is called once, before there are other threads.
        NonNull::new(unsafe { nf_open() }).map(Self)
    }

    /// Gives nDPI the next packet of a flow. `enough`: it is the last one.
    pub(crate) fn packet<'a>(
        &mut self,
        flow: &'a mut Flow,
        packet: &[u8],
        time_ms: u64,
        enough: bool,
    ) -> Seen<'a> {
        let length = packet.len().min(usize::from(u16::MAX)) as u16;
        let mut seen = RawSeen::nothing();
        // SAFETY: module and flow are nDPI's own and borrowed alone; `packet` has at least `length` bytes; `seen` is of the type that C fills in.
        unsafe {
            nf_packet(
                self.0.as_ptr(),
                flow.0.as_ptr(),
                packet.as_ptr(),
                length,
                time_ms,
                c_int::from(enough),
                &mut seen,
            );
        }
        seen.of(flow)
    }

    /// Asks for the best guess.
    pub(crate) fn give_up<'a>(&mut self, flow: &'a mut Flow) -> Seen<'a> {
        let mut seen = RawSeen::nothing();
        // SAFETY: as in `packet`.
        unsafe { nf_give_up(self.0.as_ptr(), flow.0.as_ptr(), &mut seen) };
        seen.of(flow)
    }

    /// Returns the names of all protocols, by number.
    pub(crate) fn protocols(&self) -> Vec<String> {
        // SAFETY: the module is nDPI's own.
        let count = unsafe { nf_protocols(self.0.as_ptr()) };
        // SAFETY: as above, and the numbers are below nDPI's count; the names belong to the module, which is never freed.
        numbers(count)
            .map(|id| name(unsafe { nf_protocol(self.0.as_ptr(), id) }))
            .collect()
    }

    pub(crate) fn categories(&self) -> Vec<String> {
        // SAFETY: it has no preconditions.
        let count = unsafe { nf_categories() };
        // SAFETY: as in `protocols`.
        numbers(count)
            .map(|id| name(unsafe { nf_category(self.0.as_ptr(), id) }))
            .collect()
    }
}

impl Flow {
    /// Makes a flow without packets; None: there is no memory.
    pub(crate) fn new() -> Option<Self> {
        // SAFETY: it has no preconditions once a module is open, and nothing else calls it.
        NonNull::new(unsafe { nf_flow() }).map(Self)
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        // SAFETY: the flow is nDPI's own, and this is its only owner.
        unsafe { nf_free(self.0.as_ptr()) };
    }
}

impl RawSeen {
    fn nothing() -> Self {
        Self {
            master: 0,
            application: 0,
            category: 0,
            confidence: 0,
            last: 0,
            host: null(),
            ja3_client: null(),
            ja3_server: null(),
        }
    }

    /// Takes the texts, which are in the flow: its borrow keeps nDPI from changing them.
    fn of(self, _flow: &mut Flow) -> Seen<'_> {
        Seen {
            master: self.master,
            application: self.application,
            category: self.category,
            confidence: self.confidence,
            last: self.last != 0,
            host: text(self.host),
            ja3_client: text(self.ja3_client),
            ja3_server: text(self.ja3_server),
        }
    }
}

/// Returns the number of the protocol behind the IP header.
pub(crate) fn layer4(packet: &[u8]) -> u8 {
    let length = packet.len().min(usize::from(u16::MAX)) as u16;
    // SAFETY: `packet` has at least `length` bytes.
    unsafe { nf_layer4(packet.as_ptr(), length) }
}

pub(crate) fn version() -> String {
    // SAFETY: it returns a constant.
    name(unsafe { nf_version() })
}

fn numbers(count: c_uint) -> std::ops::Range<u16> {
    0..u16::try_from(count).unwrap_or(u16::MAX)
}

fn name(text: *const c_char) -> String {
    String::from_utf8_lossy(self::text(text)).into_owned()
}

/// Takes a text of C; null is an empty one. The callers know how long it lives.
fn text<'a>(text: *const c_char) -> &'a [u8] {
    if text.is_null() {
        return &[];
    }
    // SAFETY: ndpi.c passes only texts that end with 0: arrays in a flow, which nDPI keeps terminated, and constants.
    unsafe { CStr::from_ptr(text) }.to_bytes()
}
