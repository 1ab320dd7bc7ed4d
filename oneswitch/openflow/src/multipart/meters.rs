//! Replies about meters.

use super::stats::sized_entry;
use super::Entry;
use crate::error::{ErrorCode, Refusal};
use crate::meter::check_bands;
use crate::wire::{patch_length, patch_u16, u16_at, Put, Reader};

/// `ofp_meter_band_stats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct MeterBandStats {
    pub packet_count: u64,
    pub byte_count: u64,
}

/// `ofp_meter_stats`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterStats {
    /// The meter.
    pub meter_id: u32,
    /// Rules that use it.
    pub flow_count: u32,
    /// Packets that reached it.
    pub packet_in_count: u64,
    /// Their bytes.
    pub byte_in_count: u64,
    /// Lifetime in seconds.
    pub duration_sec: u32,
    /// Nanoseconds beyond them.
    pub duration_nsec: u32,
    /// The counters of each band.
    pub bands: Vec<MeterBandStats>,
}

impl Entry for MeterStats {
    fn pull(reader: &mut Reader<'_>) -> Result<Self, Refusal> {
        // The length follows the 4-byte meter id.
        let length = u16_at(reader.peek(), 4).map_or(0, usize::from);
        if length < 40 || length > reader.len() {
            return Err(Refusal::new(
                ErrorCode::BAD_REQUEST_BAD_LEN,
                format!("meter statistics of length {length}"),
            ));
        }
        let mut entry = Reader::new(reader.bytes(length)?);
        let meter_id = entry.u32()?;
        entry.skip(8)?;
        let flow_count = entry.u32()?;
        let packet_in_count = entry.u64()?;
        let byte_in_count = entry.u64()?;
        let duration_sec = entry.u32()?;
        let duration_nsec = entry.u32()?;
        let mut bands = Vec::with_capacity(entry.len() / 16);
        while !entry.is_empty() {
            bands.push(MeterBandStats {
                packet_count: entry.u64()?,
                byte_count: entry.u64()?,
            });
        }
        Ok(Self {
            meter_id,
            flow_count,
            packet_in_count,
            byte_in_count,
            duration_sec,
            duration_nsec,
            bands,
        })
    }

    fn put(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.put_u32(self.meter_id);
        out.zeros(8);
        out.put_u32(self.flow_count);
        out.put_u64(self.packet_in_count);
        out.put_u64(self.byte_in_count);
        out.put_u32(self.duration_sec);
        out.put_u32(self.duration_nsec);
        for band in &self.bands {
            out.put_u64(band.packet_count);
            out.put_u64(band.byte_count);
        }
        let length = u16::try_from(out.len() - start).unwrap_or(u16::MAX);
        patch_u16(out, start + 4, length);
    }
}

/// `ofp_meter_config`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterConfig {
    /// Bits of `meter_flags`.
    pub flags: u16,
    /// The meter.
    pub meter_id: u32,
    /// Raw bands.
    pub bands: Box<[u8]>,
}

impl Entry for MeterConfig {
    fn pull(reader: &mut Reader<'_>) -> Result<Self, Refusal> {
        let mut entry = sized_entry(reader)?;
        entry.skip(2)?;
        let flags = entry.u16()?;
        let meter_id = entry.u32()?;
        let bands = entry.rest();
        check_bands(bands)?;
        Ok(Self {
            flags,
            meter_id,
            bands: bands.into(),
        })
    }

    fn put(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.zeros(2);
        out.put_u16(self.flags);
        out.put_u32(self.meter_id);
        out.put(&self.bands);
        patch_length(out, start, 0);
    }
}

/// `ofp_meter_features`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeterFeatures {
    /// Maximum number of meters.
    pub max_meter: u32,
    /// Bitmap of band types.
    pub band_types: u32,
    /// Bitmap of `meter_flags`.
    pub capabilities: u32,
    /// Maximum number of bands per meter.
    pub max_bands: u8,
    /// Largest colour.
    pub max_color: u8,
}

impl MeterFeatures {
    pub(crate) fn pull(reader: &mut Reader<'_>) -> Result<Self, Refusal> {
        let max_meter = reader.u32()?;
        let band_types = reader.u32()?;
        let capabilities = reader.u32()?;
        let [max_bands, max_color, _, _] = reader.array()?;
        Ok(Self {
            max_meter,
            band_types,
            capabilities,
            max_bands,
            max_color,
        })
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.put_u32(self.max_meter);
        out.put_u32(self.band_types);
        out.put_u32(self.capabilities);
        out.put(&[self.max_bands, self.max_color, 0, 0]);
    }
}
