//! TCP options: those of a SYN, and those of later segments, which are translated in place.

use nf_packet::{tcp_flags, Malformed, Tcp};

use crate::{segment::is_before, window::MAX_SCALE, Map, TimestampMap};

mod kind {
    pub(super) const END: u8 = 0;
    pub(super) const NOP: u8 = 1;
    pub(super) const MSS: u8 = 2;
    pub(super) const WINDOW_SCALE: u8 = 3;
    pub(super) const SACK_PERMITTED: u8 = 4;
    pub(super) const SACK: u8 = 5;
    pub(super) const TIMESTAMPS: u8 = 8;
}

/// Two NOPs before timestamps: the layout of nearly all segments (RFC 7323, appendix A).
const ALIGNED_TIMESTAMPS: u32 = 0x0101_080a;

const NOPS: u32 = 0x0101_0101;

/// Bytes of one SACK block.
const BLOCK: usize = 8;

/// TSval and TSecr.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timestamps {
    pub value: u32,
    pub echo: u32,
}

/// The options of a SYN or SYN-ACK.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Syn {
    pub mss: Option<u16>,
    pub window_scale: Option<u8>,
    pub sack_permitted: bool,
    pub timestamps: Option<Timestamps>,
}

impl Syn {
    /// The bytes of all four options with padding.
    pub const MAX_LENGTH: usize = 20;

    /// Parses the options of a SYN. Unknown ones do not count.
    ///
    /// # Errors
    /// If an option is malformed.
    pub fn parse<T: AsRef<[u8]>>(tcp: &Tcp<T>) -> Result<Self, Malformed> {
        check(tcp)?;
        let mut syn = Self::default();
        for option in tcp.options() {
            match (option.kind, option.data) {
                (kind::MSS, &[high, low]) => syn.mss = Some(u16::from_be_bytes([high, low])),
                (kind::WINDOW_SCALE, &[scale]) => syn.window_scale = Some(scale.min(MAX_SCALE)),
                (kind::SACK_PERMITTED, _) => syn.sack_permitted = true,
                (kind::TIMESTAMPS, _) => syn.timestamps = Some(timestamps_at(tcp, option.at)),
                _ => {}
            }
        }
        Ok(syn)
    }

    /// Writes the options, in Linux's order and padded to whole words; returns them and their length.
    #[must_use]
    pub fn write(&self) -> ([u8; Self::MAX_LENGTH], usize) {
        let (mut bytes, mut length) = ([kind::NOP; Self::MAX_LENGTH], 0);
        let mut put = |option: &[u8], padding: usize| {
            length += padding;
            bytes[length..length + option.len()].copy_from_slice(option);
            length += option.len();
        };
        if let Some(mss) = self.mss {
            let [high, low] = mss.to_be_bytes();
            put(&[kind::MSS, 4, high, low], 0);
        }
        let permitted = [kind::SACK_PERMITTED, 2];
        if let Some(Timestamps { value, echo }) = self.timestamps {
            let mut option = [kind::TIMESTAMPS, 10, 0, 0, 0, 0, 0, 0, 0, 0];
            option[2..6].copy_from_slice(&value.to_be_bytes());
            option[6..10].copy_from_slice(&echo.to_be_bytes());
            if self.sack_permitted {
                put(&permitted, 0);
                put(&option, 0);
            } else {
                put(&option, 2);
            }
        } else if self.sack_permitted {
            put(&permitted, 2);
        }
        if let Some(scale) = self.window_scale {
            put(&[kind::WINDOW_SCALE, 3, scale.min(MAX_SCALE)], 1);
        }
        (bytes, length)
    }
}

/// Returns the timestamps of a segment.
///
/// # Errors
/// If an option is malformed.
#[inline]
pub fn timestamps<T: AsRef<[u8]>>(tcp: &Tcp<T>) -> Result<Option<Timestamps>, Malformed> {
    if let Some(at) = aligned_timestamps(tcp) {
        return Ok(Some(timestamps_at(tcp, at)));
    }
    check(tcp)?;
    let mut options = tcp.options();
    let option = options.find(|option| option.kind == kind::TIMESTAMPS);
    Ok(option.map(|option| timestamps_at(tcp, option.at)))
}

/// The blocks of a SACK option for which timestamps leave room.
pub const SACK_BLOCKS: usize = 3;

/// The most bytes of such an option and its padding.
pub const SACK_LENGTH: usize = 4 + SACK_BLOCKS * BLOCK;

/// Writes a SACK option with up to [`SACK_BLOCKS`] blocks, behind two NOPs; returns it and its length.
#[must_use]
pub fn sack(blocks: &[(u32, u32)]) -> ([u8; SACK_LENGTH], usize) {
    let blocks = &blocks[..blocks.len().min(SACK_BLOCKS)];
    let mut option = [kind::NOP; SACK_LENGTH];
    if blocks.is_empty() {
        return (option, 0);
    }
    let length = blocks.len() * BLOCK;
    option[2] = kind::SACK;
    option[3] = 2 + length as u8;
    let edges = blocks.iter().flat_map(|(start, end)| [*start, *end]);
    for (place, edge) in option[4..].chunks_exact_mut(4).zip(edges) {
        place.copy_from_slice(&edge.to_be_bytes());
    }
    (option, 4 + length)
}

/// The maps for the options of segments from one side: its acknowledgements refer to the other direction.
#[derive(Debug)]
pub struct Translation<'a> {
    /// The map of the bytes that the segment's sender receives.
    pub blocks: &'a Map,
    /// The clock of the segment's sender, for TSval.
    pub value: &'a mut TimestampMap,
    /// The clock of its receiver, for TSecr.
    pub echo: &'a TimestampMap,
}

impl Translation<'_> {
    /// Translates SACK blocks and timestamps in place, and updates the checksum. Blocks without a byte of the sender become NOPs. A SYN's options stay.
    ///
    /// # Errors
    /// If an option is malformed. Nothing is changed then.
    #[inline]
    pub fn apply<T: AsRef<[u8]> + AsMut<[u8]>>(
        mut self,
        tcp: &mut Tcp<T>,
    ) -> Result<(), Malformed> {
        if let Some(at) = aligned_timestamps(tcp) {
            self.set_timestamps(tcp, at);
            return Ok(());
        }
        if tcp.flags() & tcp_flags::SYN != 0 {
            return check(tcp);
        }
        each_option(tcp, |tcp, option| match option.kind {
            kind::SACK => set_blocks(tcp, option, self.blocks),
            kind::TIMESTAMPS => self.set_timestamps(tcp, option.data),
            _ => {}
        })
    }

    fn set_timestamps<T: AsRef<[u8]> + AsMut<[u8]>>(&mut self, tcp: &mut Tcp<T>, at: usize) {
        let Timestamps { value, echo } = timestamps_at(tcp, at);
        tcp.replace32(at, self.value.show(value));
        // Without an acknowledgement, TSecr is not in use (RFC 7323, 3.2).
        if tcp.flags() & tcp_flags::ACK != 0 {
            tcp.replace32(at + 4, self.echo.back(echo));
        }
    }
}

/// Translates the SACK blocks of a segment in place, and updates the checksum; `map` is that of the bytes that the segment's sender receives.
/// Blocks without a byte of the other side become NOPs.
///
/// # Errors
/// If an option is malformed. Nothing is changed then.
pub fn translate_blocks<T: AsRef<[u8]> + AsMut<[u8]>>(
    tcp: &mut Tcp<T>,
    map: &Map,
) -> Result<(), Malformed> {
    each_option(tcp, |tcp, option| {
        if option.kind == kind::SACK {
            set_blocks(tcp, option, map);
        }
    })
}

/// Returns the place of TSval if timestamps are the only option, in the usual layout, and the segment is not a SYN.
#[inline]
fn aligned_timestamps<T: AsRef<[u8]>>(tcp: &Tcp<T>) -> Option<usize> {
    let usual = tcp.header_length() == Tcp::MIN_HEADER + 12
        && tcp.word(Tcp::MIN_HEADER) == ALIGNED_TIMESTAMPS
        && tcp.flags() & tcp_flags::SYN == 0;
    usual.then_some(Tcp::MIN_HEADER + 4)
}

fn timestamps_at<T: AsRef<[u8]>>(tcp: &Tcp<T>, at: usize) -> Timestamps {
    Timestamps {
        value: tcp.word(at),
        echo: tcp.word(at + 4),
    }
}

/// An option's kind, and the places of its data in the segment.
struct Place {
    kind: u8,
    data: usize,
    end: usize,
}

/// Finds the first option from `at` on that is not a NOP.
#[inline]
fn next_option(header: &[u8], mut at: usize) -> Result<Option<Place>, Malformed> {
    loop {
        match header.get(at) {
            None | Some(&kind::END) => return Ok(None),
            Some(&kind::NOP) => at += 1,
            Some(&kind) => {
                let length = *header.get(at + 1).ok_or(Malformed::Truncated)?;
                let (data, end) = (at + 2, at + usize::from(length));
                if end > header.len() {
                    return Err(Malformed::Truncated);
                }
                let fits = match kind {
                    kind::MSS => length == 4,
                    kind::WINDOW_SCALE => length == 3,
                    kind::SACK_PERMITTED => length == 2,
                    kind::SACK => end > data && (end - data) % BLOCK == 0,
                    kind::TIMESTAMPS => length == 10,
                    _ => length >= 2,
                };
                if !fits {
                    return Err(Malformed::Length);
                }
                return Ok(Some(Place { kind, data, end }));
            }
        }
    }
}

/// Checks the lengths of all options.
fn check<T: AsRef<[u8]>>(tcp: &Tcp<T>) -> Result<(), Malformed> {
    let (header, mut at) = (tcp.header(), Tcp::MIN_HEADER);
    while let Some(option) = next_option(header, at)? {
        at = option.end;
    }
    Ok(())
}

/// Changes each option, if all are well-formed.
fn each_option<T: AsRef<[u8]> + AsMut<[u8]>>(
    tcp: &mut Tcp<T>,
    mut change: impl FnMut(&mut Tcp<T>, &Place),
) -> Result<(), Malformed> {
    check(tcp)?;
    let mut at = Tcp::MIN_HEADER;
    while let Some(option) = next_option(tcp.header(), at)? {
        change(tcp, &option);
        at = option.end;
    }
    Ok(())
}

/// Translates SACK blocks, and closes up behind those that become empty.
fn set_blocks<T: AsRef<[u8]> + AsMut<[u8]>>(tcp: &mut Tcp<T>, option: &Place, map: &Map) {
    let mut kept = option.data;
    for block in (option.data..option.end).step_by(BLOCK) {
        let start = map.back_start(tcp.word(block));
        let end = map.back(tcp.word(block + 4));
        if is_before(start, end) {
            tcp.replace32(kept, start);
            tcp.replace32(kept + 4, end);
            kept += BLOCK;
        }
    }
    for freed in (kept..option.end).step_by(4) {
        tcp.replace32(freed, NOPS);
    }
    // Kind and length are the first half of the word before the blocks' second half-word.
    let head = option.data - 2;
    if kept == option.data {
        tcp.replace32(head, NOPS);
    } else if kept < option.end {
        let length = (kept - head) as u32;
        tcp.replace32(head, (tcp.word(head) & 0xff00_ffff) | length << 16);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use etherparse::{PacketBuilder, TcpOptionElement};
    use proptest::prelude::*;

    use super::*;

    const ENDS: (IpAddr, IpAddr) = (
        IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
        IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)),
    );

    /// A segment with these options (padded with zeros) and 5 bytes of data.
    fn segment(flags: u8, options: &[u8]) -> Vec<u8> {
        let padded = options.len().div_ceil(4) * 4;
        let mut bytes = vec![0; 20 + padded + 5];
        Tcp::write(&mut bytes[..], (80, 4000), 1, 2, flags, 3).unwrap();
        bytes[12] = ((20 + padded) * 4) as u8;
        bytes[20..20 + options.len()].copy_from_slice(options);
        bytes[20 + padded..].copy_from_slice(b"hello");
        Tcp::new_checked(&mut bytes[..])
            .unwrap()
            .fill_checksum(ENDS.0, ENDS.1);
        bytes
    }

    fn holds(bytes: &[u8]) -> bool {
        Tcp::new_checked(bytes)
            .unwrap()
            .checksum_holds(ENDS.0, ENDS.1)
    }

    fn clocks() -> (TimestampMap, TimestampMap) {
        let (mut value, mut echo) = (
            TimestampMap::starting_at(500),
            TimestampMap::starting_at(9_000),
        );
        value.change(100);
        echo.change(8_000);
        let _ = echo.show(8_500);
        (value, echo)
    }

    /// Translates with a map of one insertion of 100 bytes at 1000, and with `clocks`.
    fn translated(bytes: &[u8]) -> Result<Vec<u8>, Malformed> {
        let mut bytes = bytes.to_vec();
        let mut map = Map::with_delta(0);
        map.insert(1_000, 0, 100).unwrap();
        let (mut value, echo) = clocks();
        let translation = Translation {
            blocks: &map,
            value: &mut value,
            echo: &echo,
        };
        translation.apply(&mut Tcp::new_checked(&mut bytes[..]).unwrap())?;
        assert!(holds(&bytes));
        Ok(bytes)
    }

    fn sack(blocks: &[(u32, u32)]) -> Vec<u8> {
        let mut option = vec![5, (2 + 8 * blocks.len()) as u8];
        for (start, end) in blocks {
            option.extend([start.to_be_bytes(), end.to_be_bytes()].concat());
        }
        option
    }

    const TIMESTAMPS: [u8; 10] = [8, 10, 0, 0, 0, 150, 0, 0, 36, 0x68]; // 150, 9320
    const TRANSLATED: [u8; 10] = [8, 10, 0, 0, 2, 38, 0, 0, 32, 128]; // 550, 8320

    #[test]
    fn timestamps_are_translated_in_every_layout() {
        for (before, after) in [
            (&[1, 1][..], &[][..]),
            (&[], &[1, 1]),
            (&[1], &[]),
            (&[4, 2], &[]),
            (&[], &[77, 2]),
        ] {
            let options = [before, &TIMESTAMPS, after].concat();
            let expected = [before, &TRANSLATED, after].concat();
            let found = translated(&segment(tcp_flags::ACK, &options)).unwrap();
            assert_eq!(found[20..20 + options.len()], expected);
        }
        // Without an acknowledgement the echo is not in use; a SYN's options stay.
        let reset = segment(tcp_flags::RST, &[&[1, 1], &TIMESTAMPS[..]].concat());
        assert_eq!(
            translated(&reset).unwrap()[24..32],
            [0, 0, 2, 38, 0, 0, 36, 0x68]
        );
        let syn = segment(tcp_flags::SYN, &[&[1, 1], &TIMESTAMPS[..]].concat());
        assert_eq!(translated(&syn).unwrap(), syn);
        let parsed = timestamps(&Tcp::new_checked(&reset[..]).unwrap());
        assert_eq!(
            parsed,
            Ok(Some(Timestamps {
                value: 150,
                echo: 9_320
            }))
        );
    }

    /// The layout of Linux's segments with SACK blocks.
    #[test]
    fn timestamps_before_blocks_are_translated_with_them() {
        let layout =
            |timestamps: &[u8], block| [&[1, 1], timestamps, &[1, 1], &sack(&[block])].concat();
        let bytes = segment(tcp_flags::ACK, &layout(&TIMESTAMPS, (1_150, 1_200)));
        let found = translated(&bytes).unwrap();
        assert_eq!(found[20..44], layout(&TRANSLATED, (1_050, 1_100)));
        let parsed = timestamps(&Tcp::new_checked(&bytes[..]).unwrap());
        let expected = Timestamps {
            value: 150,
            echo: 9_320,
        };
        assert_eq!(parsed, Ok(Some(expected)));
        let without = segment(tcp_flags::ACK, &sack(&[(1, 2)]));
        assert_eq!(
            timestamps(&Tcp::new_checked(&without[..]).unwrap()),
            Ok(None)
        );
    }

    #[test]
    fn blocks_are_translated_and_empty_ones_removed() {
        for (blocks, expected) in [
            (vec![(900, 950)], vec![(900, 950)]),
            (vec![(1_150, 1_200)], vec![(1_050, 1_100)]),
            (vec![(900, 1_200)], vec![(900, 1_100)]),
            // Edges inside the inserted bytes.
            (vec![(900, 1_050)], vec![(900, 1_000)]),
            (vec![(1_050, 1_200)], vec![(1_000, 1_100)]),
            (vec![(1_010, 1_020), (1_150, 1_200)], vec![(1_050, 1_100)]),
            (
                vec![(1_150, 1_200), (1_010, 1_020), (900, 910)],
                vec![(1_050, 1_100), (900, 910)],
            ),
            (vec![(1_150, 1_200), (1_000, 1_100)], vec![(1_050, 1_100)]),
        ] {
            for before in [&[1, 1][..], &[1], &[]] {
                let options = [before, &sack(&blocks)].concat();
                let mut wanted = [before, &sack(&expected)].concat();
                wanted.resize(options.len(), kind::NOP);
                let found = translated(&segment(tcp_flags::ACK, &options)).unwrap();
                assert_eq!(found[20..20 + options.len()], wanted, "{blocks:?}");
                assert_eq!(&found[found.len() - 5..], b"hello");
            }
        }
    }

    #[test]
    fn a_list_without_blocks_disappears() {
        let options = [&sack(&[(1_010, 1_020), (1_000, 1_099)]), &TIMESTAMPS[..]].concat();
        let found = translated(&segment(tcp_flags::ACK, &options)).unwrap();
        assert_eq!(found[20..48], [&[1; 18], &TRANSLATED[..]].concat());
    }

    #[test]
    fn malformed_options_change_nothing() {
        let good = [&TIMESTAMPS[..], &sack(&[(1_150, 1_200)])].concat();
        for (bad, fault) in [
            (&[8, 9, 0, 0, 0, 0, 0, 0, 0][..], Malformed::Length),
            (&[5, 9, 0, 0, 0, 0, 0, 0, 0], Malformed::Length),
            (&[5, 2], Malformed::Length),
            (&[2, 3, 0], Malformed::Length),
            (&[3, 2], Malformed::Length),
            (&[4, 3, 0], Malformed::Length),
            (&[77, 1], Malformed::Length),
            (&[77, 0], Malformed::Length),
            (&[77, 30], Malformed::Truncated),
            (&[1, 1, 1, 77], Malformed::Truncated),
        ] {
            let options = [&good, bad].concat();
            assert_eq!(
                translated(&segment(tcp_flags::ACK, &options)),
                Err(fault),
                "{bad:?}"
            );
            let mut bytes = segment(tcp_flags::ACK, &options);
            let before = bytes.clone();
            let (mut value, echo) = clocks();
            let translation = Translation {
                blocks: &Map::with_delta(9),
                value: &mut value,
                echo: &echo,
            };
            let mut tcp = Tcp::new_checked(&mut bytes[..]).unwrap();
            assert_eq!(translation.apply(&mut tcp), Err(fault));
            assert_eq!(Syn::parse(&tcp), Err(fault));
            assert_eq!(timestamps(&tcp), Err(fault));
            assert_eq!((bytes, value), (before, clocks().0));
        }
        // Bytes behind the end of the list are not options.
        let ended = [&TIMESTAMPS[..], &[0, 8, 1]].concat();
        assert!(translated(&segment(tcp_flags::ACK, &ended)).is_ok());
    }

    fn syn() -> impl Strategy<Value = Syn> {
        let timestamps = prop::option::of(any::<(u32, u32)>());
        (
            any::<Option<u16>>(),
            prop::option::of(0_u8..=14),
            any::<bool>(),
            timestamps,
        )
            .prop_map(|(mss, window_scale, sack_permitted, timestamps)| Syn {
                mss,
                window_scale,
                sack_permitted,
                timestamps: timestamps.map(|(value, echo)| Timestamps { value, echo }),
            })
    }

    proptest! {
        /// etherparse reads what is written, and so does `parse`.
        #[test]
        fn options_of_a_syn_are_read_as_written(syn in syn()) {
            let (bytes, length) = syn.write();
            prop_assert_eq!(length % 4, 0);
            let bytes = segment(tcp_flags::SYN, &bytes[..length]);
            prop_assert_eq!(Syn::parse(&Tcp::new_checked(&bytes[..]).unwrap()), Ok(syn));
            let mut found = Syn::default();
            let read = etherparse::TcpSlice::from_slice(&bytes).unwrap();
            for option in read.options_iterator() {
                match option.unwrap() {
                    TcpOptionElement::MaximumSegmentSize(mss) => found.mss = Some(mss),
                    TcpOptionElement::WindowScale(scale) => found.window_scale = Some(scale),
                    TcpOptionElement::SelectiveAcknowledgementPermitted => found.sack_permitted = true,
                    TcpOptionElement::Timestamp(value, echo) => found.timestamps = Some(Timestamps { value, echo }),
                    _ => {}
                }
            }
            prop_assert_eq!(found, syn);
        }

        /// Segments that etherparse builds come out as the maps say, with a right checksum.
        #[test]
        fn segments_of_another_builder_are_translated(
            delta: u32,
            (value, echo) in any::<(u32, u32)>(),
            blocks in prop::collection::vec((any::<u32>(), 1_u32..1 << 30), 1..4),
            payload in prop::collection::vec(any::<u8>(), 0..9),
        ) {
            let blocks: Vec<(u32, u32)> = blocks.iter().map(|(start, length)| (*start, start.wrapping_add(*length))).collect();
            let mut rest = [None; 3];
            for (slot, block) in rest.iter_mut().zip(&blocks[1..]) {
                *slot = Some(*block);
            }
            let list = TcpOptionElement::SelectiveAcknowledgement(blocks[0], rest);
            let mut packet = Vec::new();
            PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
                .tcp(1, 2, 3, 4)
                .ack(7)
                .options(&[TcpOptionElement::Timestamp(value, echo), list])
                .unwrap()
                .write(&mut packet, &payload)
                .unwrap();
            let bytes = &mut packet[20..];
            let (mut clock, other) = clocks();
            let expected = TcpOptionElement::Timestamp(clock.clone().show(value), other.back(echo));
            let translation = Translation { blocks: &Map::with_delta(delta), value: &mut clock, echo: &other };
            prop_assert_eq!(translation.apply(&mut Tcp::new_checked(&mut bytes[..]).unwrap()), Ok(()));
            prop_assert!(holds(bytes));
            let read = etherparse::TcpSlice::from_slice(bytes).unwrap();
            let found: Vec<TcpOptionElement> = read.options_iterator().map(Result::unwrap).collect();
            prop_assert_eq!(&found[0], &expected);
            let back = |(start, end): (u32, u32)| (start.wrapping_sub(delta), end.wrapping_sub(delta));
            let rest = rest.map(|block| block.map(back));
            prop_assert!(found.contains(&TcpOptionElement::SelectiveAcknowledgement(back(blocks[0]), rest)));
            prop_assert_eq!(read.payload(), &payload[..]);
        }
    }
}
