//! A stream that only holders of the secret can write, read, or change: it carries copied state.
//!
//! ```text
//! connection: nonce of the old instance (32 bytes) -> | <- nonce of the new one (32 bytes) | records each way
//! record    : length of the rest (4 bytes, little endian) | content, encrypted | tag (16 bytes)
//! ```
//! It uses AES-256-GCM. Each direction has its own key, derived from the secret and both nonces, and numbers its records. So records cannot be
//! replayed, omitted or moved, and the first one of each side proves knowledge of the secret.

use std::io::{self, ErrorKind, Read, Write};

use ring::aead::{Aad, LessSafeKey, Nonce, NONCE_LEN};

use super::secret::{nonce, Secret, NONCE_BYTES};

/// The maximum of content bytes in one record.
const RECORD_BYTES: usize = 1 << 18;
const TAG_BYTES: usize = 16;

/// Both directions of a connection.
pub(super) struct Sealed<S> {
    pub(super) out: Sealer<S>,
    pub(super) from: Opener<S>,
}

impl<S: Read + Write> Sealed<S> {
    /// Creates the old instance's end. `again` is the same connection.
    ///
    /// # Errors
    /// If the connection breaks.
    pub(super) fn of_old(mut socket: S, again: S, secret: &Secret) -> io::Result<Self> {
        let mine = nonce()?;
        socket.write_all(&mine)?;
        let mut theirs = [0; NONCE_BYTES];
        socket.read_exact(&mut theirs)?;
        let keys = secret.keys(&mine, &theirs).ok_or_else(no_keys)?;
        Ok(Self {
            out: Sealer::new(socket, keys.to_new),
            from: Opener::new(again, keys.to_old),
        })
    }

    /// Creates the new instance's end.
    ///
    /// # Errors
    /// If the connection breaks.
    pub(super) fn of_new(mut socket: S, again: S, secret: &Secret) -> io::Result<Self> {
        let mine = nonce()?;
        let mut theirs = [0; NONCE_BYTES];
        socket.read_exact(&mut theirs)?;
        socket.write_all(&mine)?;
        let keys = secret.keys(&theirs, &mine).ok_or_else(no_keys)?;
        Ok(Self {
            out: Sealer::new(socket, keys.to_old),
            from: Opener::new(again, keys.to_new),
        })
    }
}

fn no_keys() -> io::Error {
    io::Error::other("cannot derive keys")
}

/// A key and the number of its next record.
struct Numbered {
    key: LessSafeKey,
    next: u64,
}

impl Numbered {
    fn nonce(&mut self) -> Nonce {
        let mut nonce = [0; NONCE_LEN];
        nonce[NONCE_LEN - 8..].copy_from_slice(&self.next.to_le_bytes());
        self.next += 1;
        Nonce::assume_unique_for_key(nonce)
    }
}

/// A writer that encrypts; it sends a record when it is full, or on `flush`.
pub(super) struct Sealer<W> {
    to: W,
    key: Numbered,
    /// The record: room for the length, then content.
    record: Vec<u8>,
}

const LENGTH_BYTES: usize = 4;

impl<W: Write> Sealer<W> {
    fn new(to: W, key: LessSafeKey) -> Self {
        let mut record = Vec::with_capacity(LENGTH_BYTES + RECORD_BYTES + TAG_BYTES);
        record.extend_from_slice(&[0; LENGTH_BYTES]);
        Self {
            to,
            key: Numbered { key, next: 0 },
            record,
        }
    }

    pub(super) fn connection(&mut self) -> &mut W {
        &mut self.to
    }

    fn seal(&mut self) -> io::Result<()> {
        let (length, content) = self.record.split_at_mut(LENGTH_BYTES);
        if content.is_empty() {
            return Ok(());
        }
        length.copy_from_slice(&((content.len() + TAG_BYTES) as u32).to_le_bytes());
        let nonce = self.key.nonce();
        let tag = self
            .key
            .key
            .seal_in_place_separate_tag(nonce, Aad::from(&*length), content)
            .map_err(|_| io::Error::other("cannot encrypt a record"))?;
        self.record.extend_from_slice(tag.as_ref());
        let written = self.to.write_all(&self.record);
        self.record.truncate(LENGTH_BYTES);
        written
    }
}

impl<W: Write> Write for Sealer<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = LENGTH_BYTES + RECORD_BYTES - self.record.len();
        let taken = bytes.len().min(room);
        self.record.extend_from_slice(&bytes[..taken]);
        if taken == room {
            self.seal()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.seal()?;
        self.to.flush()
    }
}

/// A reader that decrypts. A record that was changed or is out of order is an error of kind `PermissionDenied`.
pub(super) struct Opener<R> {
    from: R,
    key: Numbered,
    record: Vec<u8>,
    /// The unread content in the record.
    unread: std::ops::Range<usize>,
}

impl<R: Read> Opener<R> {
    fn new(from: R, key: LessSafeKey) -> Self {
        Self {
            from,
            key: Numbered { key, next: 0 },
            record: Vec::new(),
            unread: 0..0,
        }
    }

    pub(super) fn connection(&mut self) -> &mut R {
        &mut self.from
    }

    /// Reads the next record; false: the stream ended before it.
    fn open(&mut self) -> io::Result<bool> {
        let mut length = [0; LENGTH_BYTES];
        match self.from.read(&mut length[..1])? {
            0 => return Ok(false),
            _ => self.from.read_exact(&mut length[1..])?,
        }
        let bytes = u32::from_le_bytes(length) as usize;
        if !(TAG_BYTES + 1..=RECORD_BYTES + TAG_BYTES).contains(&bytes) {
            return Err(forged());
        }
        self.record.resize(bytes, 0);
        self.from.read_exact(&mut self.record)?;
        let nonce = self.key.nonce();
        let opened = self
            .key
            .key
            .open_in_place(nonce, Aad::from(&length), &mut self.record);
        self.unread = 0..opened.map_err(|_| forged())?.len();
        Ok(true)
    }
}

fn forged() -> io::Error {
    io::Error::new(
        ErrorKind::PermissionDenied,
        "a record without the secret of this migration",
    )
}

impl<R: Read> Read for Opener<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.unread.is_empty() && !self.open()? {
            return Ok(0);
        }
        let count = into.len().min(self.unread.len());
        let start = self.unread.start;
        into[..count].copy_from_slice(&self.record[start..start + count]);
        self.unread.start += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::net::UnixStream, thread, time::Duration};

    use super::*;

    fn secret(digit: &str) -> Secret {
        Secret::parse(&digit.repeat(64)).unwrap()
    }

    fn pair(of_old: &str, of_new: &str) -> (Sealed<UnixStream>, Sealed<UnixStream>) {
        let (old, new) = UnixStream::pair().unwrap();
        for end in [&old, &new] {
            end.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            end.set_write_timeout(Some(Duration::from_secs(20)))
                .unwrap();
        }
        thread::scope(|scope| {
            let old = scope.spawn(move || {
                let again = old.try_clone().unwrap();
                Sealed::of_old(old, again, &secret(of_old)).unwrap()
            });
            let again = new.try_clone().unwrap();
            let new = Sealed::of_new(new, again, &secret(of_new)).unwrap();
            (old.join().unwrap(), new)
        })
    }

    #[test]
    fn content_is_read_both_ways_and_encrypted_on_the_wire() {
        let (mut old, mut new) = pair("1", "1");
        let long: Vec<u8> = (0..3 * RECORD_BYTES + 17)
            .map(|index| index as u8)
            .collect();
        let mut read = vec![0; long.len()];
        thread::scope(|scope| {
            scope.spawn(|| {
                old.out.write_all(&long).unwrap();
                old.out.flush().unwrap();
            });
            new.from.read_exact(&mut read).unwrap();
        });
        assert!(read == long);
        new.out.write_all(b"an answer").unwrap();
        new.out.flush().unwrap();
        let mut answer = [0; 9];
        old.from.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"an answer");
        new.out.write_all(b"an answer").unwrap();
        new.out.flush().unwrap();
        let mut raw = [0; LENGTH_BYTES + 9 + TAG_BYTES];
        old.from.connection().read_exact(&mut raw).unwrap();
        assert!(!raw.windows(9).any(|window| window == b"an answer"));
        drop(old);
        assert_eq!(new.from.read(&mut [0; 8]).unwrap(), 0);
    }

    #[test]
    fn a_peer_without_the_secret_is_refused() {
        let (mut old, mut new) = pair("1", "2");
        old.out.write_all(b"state").unwrap();
        old.out.flush().unwrap();
        let error = new.from.read(&mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        new.out.write_all(b"yes").unwrap();
        new.out.flush().unwrap();
        let error = old.from.read(&mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    }

    /// Returns the reader's result after `change` tampered with the records on the wire.
    fn tampered(change: impl FnOnce(&mut Vec<Vec<u8>>)) -> io::Result<Vec<u8>> {
        let (mut old, mut new) = pair("1", "1");
        let mut records = Vec::new();
        for word in [b"one", b"two"] {
            old.out.write_all(word).unwrap();
            old.out.flush().unwrap();
            let mut raw = vec![0; LENGTH_BYTES + 3 + TAG_BYTES];
            new.from.connection().read_exact(&mut raw).unwrap();
            records.push(raw);
        }
        change(&mut records);
        old.out.connection().write_all(&records.concat()).unwrap();
        drop(old);
        let mut read = Vec::new();
        new.from.read_to_end(&mut read).map(|_| read)
    }

    #[test]
    fn changed_replayed_and_omitted_records_are_refused() {
        assert_eq!(tampered(|_| ()).unwrap(), b"onetwo");
        type Change = fn(&mut Vec<Vec<u8>>);
        let changes: [Change; 6] = [
            |records| records[0][LENGTH_BYTES] ^= 1,
            |records| records[1][LENGTH_BYTES + 4] ^= 1,
            |records| drop(records.remove(0)),
            |records| records.swap(0, 1),
            |records| records[1] = records[0].clone(),
            |records| records[0] = vec![0xff; 40],
        ];
        for change in changes {
            let error = tampered(change).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        }
        let cut = tampered(|records| records[1].truncate(9)).unwrap_err();
        assert_eq!(cut.kind(), ErrorKind::UnexpectedEof);
    }
}
