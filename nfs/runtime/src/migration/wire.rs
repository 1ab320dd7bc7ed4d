//! The messages from the old instance to the new one where state is copied.
//!
//! ```text
//! message: kind (1 byte) | length of the rest (4 bytes) | the rest              all little endian
//! HELLO  : epoch u64 | schema u64
//! BLOCKS : region u32 | first block u32 | words                                   consecutive blocks, at most 64 KiB
//! WHOLE  : clock of the arena, ns u64                                              every block was sent: both sides start computing the digest
//! DIGEST : digest of the whole arena u128
//! FRAME  : queue u32 | port u32 | bytes
//! LARGE  : queue u32 | port u32 | offloads u64 | bytes                             a frame with offloads
//! COMMIT :                                                                        the right to send is the new instance's
//! END    : queue u32                                                              no frame of this queue follows
//! ```
//! The new instance answers HELLO, DIGEST and COMMIT with a line of text: empty, or the reason of a refusal.

use std::io::{self, Read, Write};

use nf_arena::{Arena, BLOCK_WORDS};
use nf_ports::{Frame, Offloads, MAX_LARGE_FRAME};

/// The maximum of bytes of blocks in one message.
const BLOCKS_BYTES: usize = 64 * 1024;
/// The maximum length of a message: the longest frame, or a full BLOCKS.
const MESSAGE_BYTES: usize = BLOCKS_BYTES + 1024;
const _: () = assert!(MESSAGE_BYTES >= MAX_LARGE_FRAME + 16);

/// Not 1, as in versions whose new instance took over at DIGEST: the two refuse each other.
const HELLO: u8 = 8;
const BLOCKS: u8 = 2;
const DIGEST: u8 = 3;
const FRAME: u8 = 4;
const END: u8 = 5;
const WHOLE: u8 = 6;
const LARGE: u8 = 7;
const COMMIT: u8 = 9;

/// A message as read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Message<'a> {
    Hello {
        epoch: u64,
        schema: u64,
    },
    Blocks {
        region: usize,
        first: usize,
        words: &'a [u8],
    },
    Whole {
        clock: u64,
    },
    Digest {
        digest: u128,
    },
    Commit,
    Frame {
        queue: usize,
        port: usize,
        frame: Frame<'a>,
    },
    End {
        queue: usize,
    },
}

impl Message<'_> {
    pub(super) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        match self {
            Self::Hello { epoch, schema } => head(
                out,
                HELLO,
                16,
                &[&epoch.to_le_bytes(), &schema.to_le_bytes()],
            ),
            Self::Blocks {
                region,
                first,
                words,
            } => {
                let place = [
                    (*region as u32).to_le_bytes(),
                    (*first as u32).to_le_bytes(),
                ];
                head(out, BLOCKS, 8 + words.len(), &[&place[0], &place[1], words])
            }
            Self::Whole { clock } => head(out, WHOLE, 8, &[&clock.to_le_bytes()]),
            Self::Digest { digest } => head(out, DIGEST, 16, &[&digest.to_le_bytes()]),
            Self::Frame { queue, port, frame } => {
                let place = [(*queue as u32).to_le_bytes(), (*port as u32).to_le_bytes()];
                let offloads = frame.offloads.to_bits().to_le_bytes();
                let (kind, offloads) = match frame.offloads {
                    Offloads::None => (FRAME, &[][..]),
                    _ => (LARGE, &offloads[..]),
                };
                let length = 8 + offloads.len() + frame.bytes.len();
                let parts = [&place[0][..], &place[1], offloads, frame.bytes];
                head(out, kind, length, &parts)
            }
            Self::Commit => head(out, COMMIT, 0, &[]),
            Self::End { queue } => head(out, END, 4, &[&(*queue as u32).to_le_bytes()]),
        }
    }

    /// Reads one message, which borrows from `buffer`. None: the stream ended between two messages.
    pub(super) fn read<'a>(
        from: &mut impl Read,
        buffer: &'a mut Vec<u8>,
    ) -> io::Result<Option<Message<'a>>> {
        let mut head = [0; 5];
        match from.read(&mut head[..1])? {
            0 => return Ok(None),
            _ => from.read_exact(&mut head[1..])?,
        }
        let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if length > MESSAGE_BYTES {
            return Err(invalid(format!(
                "a message of {length} bytes, expected at most {MESSAGE_BYTES}"
            )));
        }
        buffer.resize(length, 0);
        from.read_exact(buffer)?;
        let message = parse(head[0], buffer);
        message.map(Some).ok_or_else(|| {
            invalid(format!(
                "a message of kind {} cannot have {length} bytes",
                head[0]
            ))
        })
    }
}

fn parse(kind: u8, rest: &[u8]) -> Option<Message<'_>> {
    let (mut rest, whole) = (rest, rest.len());
    Some(match kind {
        HELLO if whole == 16 => Message::Hello {
            epoch: take_u64(&mut rest)?,
            schema: take_u64(&mut rest)?,
        },
        BLOCKS => {
            let (region, first) = (take_u32(&mut rest)? as usize, take_u32(&mut rest)? as usize);
            Message::Blocks {
                region,
                first,
                words: rest,
            }
        }
        WHOLE if whole == 8 => Message::Whole {
            clock: take_u64(&mut rest)?,
        },
        DIGEST if whole == 16 => Message::Digest {
            digest: u128::from_le_bytes(*rest.first_chunk()?),
        },
        FRAME | LARGE => {
            let (queue, port) = (take_u32(&mut rest)? as usize, take_u32(&mut rest)? as usize);
            let offloads = match kind {
                LARGE => Offloads::from_bits(take_u64(&mut rest)?),
                _ => Offloads::None,
            };
            let frame = Frame {
                bytes: rest,
                offloads,
            };
            Message::Frame { queue, port, frame }
        }
        COMMIT if whole == 0 => Message::Commit,
        END if whole == 4 => Message::End {
            queue: take_u32(&mut rest)? as usize,
        },
        _ => return None,
    })
}

fn take_u32(from: &mut &[u8]) -> Option<u32> {
    let (bytes, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(u32::from_le_bytes(*bytes))
}

fn take_u64(from: &mut &[u8]) -> Option<u64> {
    let (bytes, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(u64::from_le_bytes(*bytes))
}

fn head(out: &mut impl Write, kind: u8, length: usize, parts: &[&[u8]]) -> io::Result<()> {
    out.write_all(&[kind])?;
    out.write_all(&(length as u32).to_le_bytes())?;
    parts.iter().try_for_each(|part| out.write_all(part))
}

fn invalid(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

/// Sends every dirty block, and clears its mark. Returns the bytes of state sent.
///
/// `pace` is called with each message's bytes, and may wait.
pub(super) fn send_dirty(
    arena: &Arena,
    out: &mut impl Write,
    mut pace: impl FnMut(usize),
) -> io::Result<u64> {
    let (mut run, mut block_words, mut sent) = (
        Vec::with_capacity(BLOCKS_BYTES),
        Vec::with_capacity(BLOCK_WORDS),
        0,
    );
    for (index, region) in arena.regions().iter().enumerate() {
        let mut first = 0;
        for block in 0..=region.blocks() {
            let taken = block < region.blocks() && region.take_block(block, &mut block_words);
            // A run ends at a clean block, the last block, or a full message.
            if !run.is_empty() && (!taken || run.len() + BLOCK_WORDS * 8 > BLOCKS_BYTES) {
                Message::Blocks {
                    region: index,
                    first,
                    words: &run,
                }
                .write(out)?;
                sent += run.len() as u64;
                pace(run.len());
                run.clear();
            }
            if taken {
                if run.is_empty() {
                    first = block;
                }
                block_words
                    .iter()
                    .for_each(|word| run.extend_from_slice(&word.to_le_bytes()));
            }
        }
    }
    Ok(sent)
}

/// Stores received blocks in their regions.
pub(super) fn put_blocks(
    arena: &Arena,
    region: usize,
    first: usize,
    bytes: &[u8],
) -> io::Result<()> {
    let Some(target) = arena.regions().get(region) else {
        return Err(invalid(format!(
            "blocks of region {region}, but there are {} regions",
            arena.regions().len()
        )));
    };
    let mut words = Vec::with_capacity(BLOCK_WORDS);
    for (offset, chunk) in bytes.chunks(BLOCK_WORDS * 8).enumerate() {
        words.clear();
        words.extend(chunk.chunks_exact(8).map(|word| {
            word.iter()
                .rev()
                .fold(0, |value, byte| value << 8 | u64::from(*byte))
        }));
        if chunk.len() % 8 != 0 || !target.put_block(first + offset, &words) {
            let name = target.name();
            return Err(invalid(format!(
                "block {} of region {name:?} with {} bytes does not fit",
                first + offset,
                chunk.len()
            )));
        }
    }
    Ok(())
}

/// Returns the bytes of dirty blocks.
pub(super) fn dirty_bytes(arena: &Arena) -> u64 {
    arena
        .regions()
        .iter()
        .map(|region| (region.dirty_blocks() * BLOCK_WORDS * 8) as u64)
        .sum()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use nf_arena::{ArenaBuilder, Memory};
    use proptest::prelude::*;

    use super::*;

    fn arena() -> Arena {
        let mut builder = ArenaBuilder::fresh("test", 1).unwrap();
        builder.region("small", "u64", 10).unwrap();
        builder.region("large", "u64", 30_000).unwrap();
        builder.finish().unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
        #[test]
        fn dirty_blocks_arrive(writes in prop::collection::vec((0_usize..30_000, any::<u64>()), 0..500)) {
            let (from, to) = (arena(), arena());
            let mut stream = Vec::new();
            send_dirty(&from, &mut stream, |_| ()).unwrap();
            for (index, value) in &writes {
                let region = &from.regions()[1];
                region.words()[*index].store(*value, Ordering::Relaxed);
                region.touch(*index);
            }
            let dirty = dirty_bytes(&from);
            let sent = send_dirty(&from, &mut stream, |_| ()).unwrap();
            prop_assert!(sent <= dirty, "the last block of a region may be shorter");
            prop_assert_eq!(dirty_bytes(&from), 0);
            let (mut read, mut buffer) = (stream.as_slice(), Vec::new());
            while let Some(message) = Message::read(&mut read, &mut buffer).unwrap() {
                let Message::Blocks { region, first, words } = message else { panic!("{message:?}") };
                put_blocks(&to, region, first, words).unwrap();
            }
            prop_assert_eq!(from.digest(), to.digest());
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300), kind in 0_u8..11, length in 0_u32..400) {
            let mut stream = vec![kind];
            stream.extend_from_slice(&length.to_le_bytes());
            stream.extend_from_slice(&bytes);
            let (mut read, mut buffer) = (stream.as_slice(), Vec::new());
            let to = arena();
            while let Ok(Some(message)) = Message::read(&mut read, &mut buffer) {
                let mut again = Vec::new();
                message.write(&mut again).unwrap();
                let mut second = Vec::new();
                let read_again = Message::read(&mut again.as_slice(), &mut second).unwrap();
                prop_assert_eq!(read_again.as_ref(), Some(&message));
                if let Message::Blocks { region, first, words } = message {
                    let _ = put_blocks(&to, region, first, words);
                }
            }
        }
    }

    #[test]
    fn blocks_that_do_not_fit_are_refused_and_name_the_region() {
        let to = arena();
        let refused = |region, first, bytes: usize| {
            put_blocks(&to, region, first, &vec![0; bytes])
                .err()
                .unwrap()
                .to_string()
        };
        assert_eq!(
            refused(2, 0, 512),
            "blocks of region 2, but there are 2 regions"
        );
        assert_eq!(
            refused(1, 469, 8),
            "block 469 of region \"large\" with 8 bytes does not fit"
        );
        assert_eq!(
            refused(0, 0, 81),
            "block 0 of region \"small\" with 81 bytes does not fit"
        );
        let mut huge = vec![FRAME];
        huge.extend_from_slice(&u32::MAX.to_le_bytes());
        let error = Message::read(&mut huge.as_slice(), &mut Vec::new())
            .err()
            .unwrap();
        assert!(error.to_string().contains("4294967295 bytes"), "{error}");
    }
}
