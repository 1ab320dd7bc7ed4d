//! Steering: which socket of a fanout group gets a frame.
//!
//! A function that opens connections of its own handles both directions of a connection at best on one worker. The
//! kernel's hash does not know that they belong together. A classic BPF program does: frames to an address of the
//! function go to the worker that their destination port names, so a worker opens connections from ports that lead back
//! to it. Other TCP frames are spread by their source, so that all frames of a client's connection reach one worker.

use std::net::IpAddr;

use libc::sock_filter;

/// Offsets beyond all frames: the protocol as a value, and the network header (Linux, include/uapi/linux/filter.h: SKF_AD_OFF + SKF_AD_PROTOCOL, SKF_NET_OFF).
const PROTOCOL: u32 = 0xffff_f000;
const NETWORK: u32 = 0xfff0_0000;

const LOAD: u32 = libc::BPF_LD | libc::BPF_ABS;
const TCP: u32 = 6;

/// The headers of an IP version, as offsets from the network header.
struct Version {
    ethertype: u32,
    protocol: u32,
    source: u32,
    destination: u32,
    words: u32,
    tcp: u32,
}

const V4: Version = Version {
    ethertype: 0x0800,
    protocol: 9,
    source: 12,
    destination: 16,
    words: 1,
    tcp: 20,
};
const V6: Version = Version {
    ethertype: 0x86dd,
    protocol: 6,
    source: 8,
    destination: 24,
    words: 4,
    tcp: 40,
};

/// Returns the program for a function with these addresses; its result modulo the number of sockets is the index of the socket. Frames that are not
/// TCP, fragments, and frames with IP options or extension headers get 0.
pub(super) fn program(own: &[IpAddr]) -> Vec<sock_filter> {
    let mut program = vec![load(libc::BPF_H, PROTOCOL)];
    for version in [V4, V6] {
        let part = version.program(own);
        // Beyond what a conditional jump reaches.
        program.push(jump(libc::BPF_JEQ, version.ethertype, 1, 0));
        program.push(always(part.len() as u32));
        program.extend(part);
    }
    program.push(result(libc::BPF_K, 0));
    program
}

impl Version {
    fn program(&self, own: &[IpAddr]) -> Vec<sock_filter> {
        let mut program = vec![
            load(libc::BPF_B, NETWORK + self.protocol),
            jump(libc::BPF_JEQ, TCP, 1, 0),
            result(libc::BPF_K, 0),
        ];
        if self.words == 1 {
            // Version 4 with a header of 20 bytes, and no fragment.
            program.extend([
                load(libc::BPF_B, NETWORK),
                jump(libc::BPF_JEQ, 0x45, 1, 0),
                result(libc::BPF_K, 0),
                load(libc::BPF_H, NETWORK + 6),
                jump(libc::BPF_JSET, 0x3fff, 0, 1),
                result(libc::BPF_K, 0),
            ]);
        }
        for address in own {
            let words = words(*address);
            if words.len() == self.words as usize {
                program.extend(self.to_own(&words));
            }
        }
        program.push(load(libc::BPF_W, NETWORK + self.source));
        for word in 1..self.words {
            program.extend([
                copy(),
                load(libc::BPF_W, NETWORK + self.source + 4 * word),
                mix(),
            ]);
        }
        program.extend([copy(), load(libc::BPF_H, NETWORK + self.tcp), mix()]);
        program.push(result(libc::BPF_A, 0));
        program
    }

    /// Returns the part for one address of the function.
    fn to_own(&self, words: &[u32]) -> Vec<sock_filter> {
        let count = words.len();
        let mut part = Vec::new();
        for (index, word) in words.iter().enumerate() {
            // If it differs: past the rest of the comparison, and past the result.
            let rest = 2 * (count - 1 - index) + 2;
            part.push(load(
                libc::BPF_W,
                NETWORK + self.destination + 4 * index as u32,
            ));
            part.push(jump(libc::BPF_JEQ, *word, 0, rest as u8));
        }
        part.push(load(libc::BPF_H, NETWORK + self.tcp + 2));
        part.push(result(libc::BPF_A, 0));
        part
    }
}

fn words(address: IpAddr) -> Vec<u32> {
    match address {
        IpAddr::V4(address) => vec![address.into()],
        IpAddr::V6(address) => {
            let number = u128::from(address);
            [96, 64, 32, 0].map(|shift| (number >> shift) as u32).into()
        }
    }
}

fn instruction(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    }
}

/// Loads a number of this size into A.
fn load(size: u32, at: u32) -> sock_filter {
    instruction(LOAD | size, at, 0, 0)
}

/// Compares A with a constant, and skips this many instructions if it holds or not.
fn jump(test: u32, value: u32, holds: u8, fails: u8) -> sock_filter {
    instruction(libc::BPF_JMP | test | libc::BPF_K, value, holds, fails)
}

fn always(skip: u32) -> sock_filter {
    instruction(libc::BPF_JMP | libc::BPF_JA, skip, 0, 0)
}

/// Copies A to X.
fn copy() -> sock_filter {
    instruction(libc::BPF_MISC | libc::BPF_TAX, 0, 0, 0)
}

/// Replaces A by A xor X.
fn mix() -> sock_filter {
    instruction(libc::BPF_ALU | libc::BPF_XOR | libc::BPF_X, 0, 0, 0)
}

fn result(source: u32, value: u32) -> sock_filter {
    instruction(libc::BPF_RET | source, value, 0, 0)
}
