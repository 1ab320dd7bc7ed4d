//! Big-endian reading and writing shared by all message modules.

use crate::error::{ErrorCode, Refusal};

/// The message ended before a required field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Short;

impl From<Short> for Refusal {
    fn from(_: Short) -> Self {
        Refusal::new(ErrorCode::BAD_REQUEST_BAD_LEN, "message too short")
    }
}

/// Consumes a byte slice from the front.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Short> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(Short)?;
        self.rest = rest;
        Ok(*head)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Short> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Short> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Short> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Short> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    pub(crate) fn skip(&mut self, count: usize) -> Result<(), Short> {
        self.bytes(count).map(|_| ())
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], Short> {
        let (head, rest) = self.rest.split_at_checked(count).ok_or(Short)?;
        self.rest = rest;
        Ok(head)
    }

    pub(crate) fn peek(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.rest.len()
    }
}

/// Rounds up to OpenFlow's alignment of 8 bytes.
pub(crate) const fn padded(length: usize) -> usize {
    length.div_ceil(8) * 8
}

/// Reads the 16-bit length at the start of an entry, at `offset` of `bytes`.
pub(crate) fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    let chunk = bytes.get(offset..)?.first_chunk::<2>()?;
    Some(u16::from_be_bytes(*chunk))
}

/// Reads the 32-bit number at `offset` of `bytes`.
pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    let chunk = bytes.get(offset..)?.first_chunk::<4>()?;
    Some(u32::from_be_bytes(*chunk))
}

/// Appends to a byte vector.
pub(crate) trait Put {
    fn put(&mut self, bytes: &[u8]);
    fn zeros(&mut self, count: usize);

    fn put_u8(&mut self, value: u8) {
        self.put(&[value]);
    }
    fn put_u16(&mut self, value: u16) {
        self.put(&value.to_be_bytes());
    }
    fn put_u32(&mut self, value: u32) {
        self.put(&value.to_be_bytes());
    }
    fn put_u64(&mut self, value: u64) {
        self.put(&value.to_be_bytes());
    }
}

impl Put for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    fn zeros(&mut self, count: usize) {
        self.resize(self.len() + count, 0);
    }
}

/// Overwrites the 16-bit number at `offset`; does nothing if it is out of
/// range.
pub(crate) fn patch_u16(bytes: &mut [u8], offset: usize, value: u16) {
    if let Some(slot) = bytes.get_mut(offset..offset + 2) {
        slot.copy_from_slice(&value.to_be_bytes());
    }
}

/// Writes the length of everything from `start` on into the 16-bit field at
/// `start + offset`, saturating: the caller checks the length of the whole
/// frame.
pub(crate) fn patch_length(bytes: &mut [u8], start: usize, offset: usize) {
    let length = u16::try_from(bytes.len().saturating_sub(start)).unwrap_or(u16::MAX);
    patch_u16(bytes, start + offset, length);
}
