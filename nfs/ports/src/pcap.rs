//! Capture files: classic pcap, Ethernet.

use std::{
    fs::File,
    io::{BufReader, BufWriter},
    path::{Path, PathBuf},
    time::Duration,
};

use pcap_file::{
    pcap::{PcapHeader, PcapPacket, PcapReader, PcapWriter},
    DataLink, TsResolution,
};

use crate::{
    error::PortError,
    frame::Frame,
    packet::Packet,
    segment::{finish, Unfit},
};

/// A reader of a capture file.
pub struct Reader {
    path: PathBuf,
    reader: PcapReader<BufReader<File>>,
    /// The number of packets read.
    count: u64,
}

/// A writer of a capture file, with times in nanoseconds.
pub struct Writer {
    path: PathBuf,
    writer: PcapWriter<BufWriter<File>>,
    /// Memory for segments.
    buffer: Vec<u8>,
}

fn error(path: &Path, reason: impl std::fmt::Display) -> PortError {
    PortError::File {
        path: path.display().to_string(),
        reason: reason.to_string(),
    }
}

impl Reader {
    /// # Errors
    /// If the file does not exist, is not a classic pcap file, or does not contain Ethernet frames.
    pub fn open(path: &Path) -> Result<Self, PortError> {
        let file = File::open(path).map_err(|cause| error(path, cause))?;
        let reader = PcapReader::new(BufReader::new(file))
            .map_err(|cause| error(path, format!("not a classic pcap file: {cause}")))?;
        let link = reader.header().datalink;
        if link != DataLink::ETHERNET {
            let reason = format!("its frames are of link type {link:?}, expected ETHERNET");
            return Err(error(path, reason));
        }
        Ok(Self {
            path: path.to_owned(),
            reader,
            count: 0,
        })
    }

    /// Reads the next packet, as if it had arrived by port 0, and its time since 1970; None at the end.
    ///
    /// # Errors
    /// If the file is damaged, or the frame longer than a packet can be; the next call continues after it.
    pub fn next_packet(&mut self, packet: &mut Packet) -> Result<Option<Duration>, PortError> {
        let Some(next) = self.reader.next_packet() else {
            return Ok(None);
        };
        self.count += 1;
        let number = self.count;
        let next = next.map_err(|cause| error(&self.path, format!("packet {number}: {cause}")))?;
        if !packet.fill(0, &next.data) {
            let reason = format!("packet {number}: {} bytes, too long", next.data.len());
            return Err(error(&self.path, reason));
        }
        Ok(Some(next.timestamp))
    }
}

impl Writer {
    /// # Errors
    /// If the file cannot be created.
    pub fn create(path: &Path) -> Result<Self, PortError> {
        let file = File::create(path).map_err(|cause| error(path, cause))?;
        let header = PcapHeader {
            ts_resolution: TsResolution::NanoSecond,
            datalink: DataLink::ETHERNET,
            ..PcapHeader::default()
        };
        let writer = PcapWriter::with_header(BufWriter::new(file), header)
            .map_err(|cause| error(path, cause))?;
        Ok(Self {
            path: path.to_owned(),
            writer,
            buffer: Vec::new(),
        })
    }

    /// Writes a frame as it appears on the wire: in segments, if its offloads say so. Returns the number of frames written.
    ///
    /// # Errors
    /// If the disk is full, or the offloads do not fit the frame.
    pub fn write(&mut self, time: Duration, frame: Frame<'_>) -> Result<u64, PortError> {
        let (mut count, mut failed) = (0, None);
        let writer = &mut self.writer;
        let finished = finish(frame, &mut self.buffer, |bytes| {
            let packet = PcapPacket::new(time, bytes.len() as u32, bytes);
            failed = failed.take().or(writer.write_packet(&packet).err());
            count += 1;
        });
        if let Some(cause) = failed {
            return Err(error(&self.path, cause));
        }
        if let Err(Unfit) = finished {
            let reason = format!(
                "a frame of {} bytes whose headers do not fit its offloads {:?}",
                frame.bytes.len(),
                frame.offloads
            );
            return Err(error(&self.path, reason));
        }
        Ok(count)
    }

    /// Flushes buffered packets.
    ///
    /// # Errors
    /// If the disk is full.
    pub fn finish(self) -> Result<(), PortError> {
        let mut file = self.writer.into_writer();
        std::io::Write::flush(&mut file).map_err(|cause| error(&self.path, cause))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_packets_are_read_back() {
        let path = std::env::temp_dir().join(format!("nf-pcap-{}", std::process::id()));
        let time = Duration::new(1_700_000_000, 123_456_789);
        let mut writer = Writer::create(&path).unwrap();
        for frame in [&[7; 60][..], &[8; 9000], &[9; 60_000]] {
            assert_eq!(writer.write(time, frame.into()).unwrap(), 1);
        }
        writer.finish().unwrap();
        let mut reader = Reader::open(&path).unwrap();
        let mut packet = Packet::new();
        assert_eq!(reader.next_packet(&mut packet).unwrap(), Some(time));
        assert_eq!(packet.bytes(), [7; 60]);
        assert_eq!(reader.next_packet(&mut packet).unwrap(), Some(time));
        assert_eq!(packet.len(), 9000);
        let long = reader.next_packet(&mut packet).unwrap_err().to_string();
        assert!(long.ends_with("packet 3: 60000 bytes, too long"), "{long}");
        assert!(reader.next_packet(&mut packet).unwrap().is_none());
        std::fs::write(&path, b"not a capture file, but long enough for a header").unwrap();
        let refused = Reader::open(&path).err().unwrap().to_string();
        assert!(refused.contains("not a classic pcap file"), "{refused}");
        std::fs::remove_file(&path).unwrap();
    }
}
