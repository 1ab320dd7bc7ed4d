//! Meters (OpenFlow 1.3.5, section 7.3.4.4; lib/ofp-meter.c).

use crate::error::{ErrorCode, Refusal};
use crate::wire::{Put, Reader};

/// Meter numbers (`ofp_meter`).
pub mod meter_no {
    #![allow(missing_docs)]
    pub const MAX: u32 = 0xffff_0000;
    pub const SLOWPATH: u32 = 0xffff_fffd;
    pub const CONTROLLER: u32 = 0xffff_fffe;
    pub const ALL: u32 = 0xffff_ffff;
}

/// Bits of [`MeterMod::flags`] (`ofp_meter_flags`).
pub mod meter_flags {
    #![allow(missing_docs)]
    pub const KBPS: u16 = 1 << 0;
    pub const PKTPS: u16 = 1 << 1;
    pub const BURST: u16 = 1 << 2;
    pub const STATS: u16 = 1 << 3;
}

/// Bytes of a band; all supported bands have the same length.
const BAND_LEN: usize = 16;
const BAND_DROP: u16 = 1;
const BAND_DSCP_REMARK: u16 = 2;

/// `ofp_meter_mod_command`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum MeterModCommand {
    Add = 0,
    Modify = 1,
    Delete = 2,
}

/// One band.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeterBand {
    /// 1 drops, 2 remarks DSCP.
    pub kind: u16,
    /// In kbit/s or packets/s, as the flags say.
    pub rate: u32,
    /// In kbit or packets.
    pub burst_size: u32,
    /// Drop precedence to add when remarking.
    pub prec_level: u8,
}

impl MeterBand {
    /// Iterates over the bands in raw bytes of known structure.
    pub fn iter(bands: &[u8]) -> impl Iterator<Item = MeterBand> + '_ {
        bands.chunks_exact(BAND_LEN).filter_map(|band| {
            let mut reader = Reader::new(band);
            let kind = reader.u16().ok()?;
            reader.skip(2).ok()?;
            Some(MeterBand {
                kind,
                rate: reader.u32().ok()?,
                burst_size: reader.u32().ok()?,
                prec_level: reader.u8().ok()?,
            })
        })
    }

    /// Appends the band in wire format.
    pub fn put(&self, out: &mut Vec<u8>) {
        out.put_u16(self.kind);
        out.put_u16(BAND_LEN as u16);
        out.put_u32(self.rate);
        out.put_u32(self.burst_size);
        out.put(&[self.prec_level, 0, 0, 0]);
    }
}

/// `ofputil_pull_bands`.
pub(crate) fn check_bands(bands: &[u8]) -> Result<(), Refusal> {
    let mut reader = Reader::new(bands);
    while reader.len() >= BAND_LEN {
        let mut band = Reader::new(reader.bytes(BAND_LEN)?);
        let kind = band.u16()?;
        if usize::from(band.u16()?) != BAND_LEN {
            return Err(Refusal::new(
                ErrorCode::BAD_REQUEST_BAD_LEN,
                "meter band of a wrong length",
            ));
        }
        if kind != BAND_DROP && kind != BAND_DSCP_REMARK {
            return Err(Refusal::new(
                ErrorCode::METER_MOD_FAILED_BAD_BAND,
                format!("meter band of type {kind}"),
            ));
        }
    }
    if !reader.is_empty() {
        return Err(Refusal::new(
            ErrorCode::BAD_REQUEST_BAD_LEN,
            "meter bands end with leftover bytes",
        ));
    }
    Ok(())
}

/// `ofp_meter_mod`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterMod {
    /// The command.
    pub command: MeterModCommand,
    /// Bits of [`meter_flags`].
    pub flags: u16,
    /// The meter; `meter_no::ALL` to delete all.
    pub meter_id: u32,
    /// Raw bands; ignored in a deletion.
    pub bands: Box<[u8]>,
}

impl MeterMod {
    pub(crate) fn decode(body: &[u8]) -> Result<Self, Refusal> {
        let mut reader = Reader::new(body);
        let command = reader.u16()?;
        let flags = reader.u16()?;
        let meter_id = reader.u32()?;
        if reader.len() % 8 != 0 {
            return Err(Refusal::new(
                ErrorCode::BAD_REQUEST_BAD_LEN,
                "meter-mod is not padded to 8 bytes",
            ));
        }
        let command = match command {
            0 => MeterModCommand::Add,
            1 => MeterModCommand::Modify,
            2 => MeterModCommand::Delete,
            _ => {
                return Err(Refusal::new(
                    ErrorCode::METER_MOD_FAILED_BAD_COMMAND,
                    format!("meter-mod command {command}"),
                ))
            }
        };
        let bands = reader.rest();
        if command != MeterModCommand::Delete {
            let both = meter_flags::KBPS | meter_flags::PKTPS;
            if flags & both == both {
                return Err(Refusal::new(
                    ErrorCode::METER_MOD_FAILED_BAD_FLAGS,
                    "meter in both kbit/s and packets/s",
                ));
            }
            check_bands(bands)?;
        }
        Ok(Self {
            command,
            flags,
            meter_id,
            bands: bands.into(),
        })
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.put_u16(self.command as u16);
        out.put_u16(self.flags);
        out.put_u32(self.meter_id);
        out.put(&self.bands);
    }
}
