//! An assembler for BPF programs: enough of the instruction set for those here (RFC 9669).

use std::os::fd::{AsRawFd, OwnedFd};

/// The width of a load or store.
#[derive(Clone, Copy)]
pub(super) enum Width {
    Word = 0x00,
    Half = 0x08,
    Byte = 0x10,
    Double = 0x18,
}

/// The target of jumps.
#[derive(Clone, Copy)]
pub(super) struct Label(usize);

/// A program being written. Registers are numbers: 0 is a call's result, 1 to 5 its arguments, 6 to 9 are kept, 10 is the end of the stack.
#[derive(Default)]
pub(super) struct Assembly {
    code: Vec<u64>,
    /// The position of each label, once it is placed.
    labels: Vec<Option<usize>>,
    /// Jumps, each with its label: their offsets are written at the end.
    jumps: Vec<(usize, Label)>,
}

impl Assembly {
    pub(super) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    pub(super) fn place(&mut self, label: Label) {
        self.labels[label.0] = Some(self.code.len());
    }

    pub(super) fn load(&mut self, width: Width, to: u8, from: u8, offset: i16) {
        self.add(0x61 | width as u8, to, from, offset, 0);
    }

    pub(super) fn store(&mut self, width: Width, to: u8, offset: i16, from: u8) {
        self.add(0x63 | width as u8, to, from, offset, 0);
    }

    pub(super) fn store_number(&mut self, width: Width, to: u8, offset: i16, number: i32) {
        self.add(0x62 | width as u8, to, 0, offset, number);
    }

    pub(super) fn set(&mut self, to: u8, number: i32) {
        self.add(0xb7, to, 0, 0, number);
    }

    pub(super) fn copy(&mut self, to: u8, from: u8) {
        self.add(0xbf, to, from, 0, 0);
    }

    pub(super) fn increase(&mut self, to: u8, number: i32) {
        self.add(0x07, to, 0, 0, number);
    }

    pub(super) fn mask(&mut self, to: u8, bits: i32) {
        self.add(0x57, to, 0, 0, bits);
    }

    pub(super) fn load_map(&mut self, to: u8, map: &OwnedFd) {
        const MAP_DESCRIPTOR: u8 = 1;
        self.add(0x18, to, MAP_DESCRIPTOR, 0, map.as_raw_fd());
        self.add(0, 0, 0, 0, 0);
    }

    pub(super) fn call(&mut self, helper: i32) {
        self.add(0x85, 0, 0, 0, helper);
    }

    pub(super) fn exit(&mut self) {
        self.add(0x95, 0, 0, 0, 0);
    }

    pub(super) fn jump(&mut self, label: Label) {
        self.jump_by(0x05, 0, 0, 0, label);
    }

    pub(super) fn jump_if_equal(&mut self, register: u8, number: i32, label: Label) {
        self.jump_by(0x15, register, 0, number, label);
    }

    pub(super) fn jump_unless_equal(&mut self, register: u8, number: i32, label: Label) {
        self.jump_by(0x55, register, 0, number, label);
    }

    pub(super) fn jump_if_greater(&mut self, register: u8, other: u8, label: Label) {
        self.jump_by(0x2d, register, other, 0, label);
    }

    fn jump_by(&mut self, code: u8, register: u8, other: u8, number: i32, label: Label) {
        self.jumps.push((self.code.len(), label));
        self.add(code, register, other, 0, number);
    }

    fn add(&mut self, code: u8, destination: u8, source: u8, offset: i16, immediate: i32) {
        let encoded = instruction(code, destination, source, offset, immediate);
        self.code.push(encoded);
    }

    /// Returns the instructions. A jump to a label that was never placed goes to the next instruction.
    pub(super) fn finish(mut self) -> Vec<u64> {
        for (at, label) in &self.jumps {
            let to = self.labels[label.0].unwrap_or(at + 1);
            let offset = (to as i64 - *at as i64 - 1) as i16;
            let mut bytes = self.code[*at].to_ne_bytes();
            bytes[2..4].copy_from_slice(&offset.to_ne_bytes());
            self.code[*at] = u64::from_ne_bytes(bytes);
        }
        self.code
    }
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
