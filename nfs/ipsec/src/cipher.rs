//! A key of AES-GCM with its salt, as ESP uses it (RFC 4106).

use aws_lc_rs::{
    aead::{Aad, LessSafeKey, Nonce, UnboundKey, AES_128_GCM, AES_256_GCM},
    digest::{Context, SHA256},
};

/// The bytes of an integrity check value.
pub const TAG: usize = 16;
const SALT: usize = 4;

/// The name of a key in the state. It does not lead back to the key.
pub type Identity = [u64; 2];

/// A key with its salt.
pub struct Cipher {
    key: LessSafeKey,
    salt: [u8; SALT],
    identity: Identity,
}

/// The additional data of a packet: SPI and sequence number, of which the packet has the low half only if it is extended (RFC 4106, 5).
#[derive(Clone, Copy)]
pub struct Numbers {
    pub spi: u32,
    pub sequence: u64,
    pub extended: bool,
}

/// The additional data as bytes. They are made some time before the cipher reads them, in pieces of another size: it would wait for the last stores.
#[derive(Clone, Copy)]
pub struct Data {
    bytes: [u8; 12],
    length: usize,
}

impl From<Numbers> for Data {
    #[inline]
    fn from(numbers: Numbers) -> Self {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&numbers.spi.to_be_bytes());
        let length = if numbers.extended {
            bytes[4..].copy_from_slice(&numbers.sequence.to_be_bytes());
            12
        } else {
            bytes[4..8].copy_from_slice(&(numbers.sequence as u32).to_be_bytes());
            8
        };
        Self { bytes, length }
    }
}

impl Data {
    #[inline]
    fn aad(&self) -> Aad<&[u8]> {
        Aad::from(self.bytes.get(..self.length).unwrap_or_default())
    }
}

impl Cipher {
    /// Takes the bytes of a key, 16 or 32, and of its salt, 4 (RFC 4106, 8.1).
    ///
    /// # Errors
    /// If the length is another.
    pub fn new(material: &[u8]) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{} bytes, expected 20 (AES-128) or 36 (AES-256): a key and the 4 bytes of its salt (RFC 4106, 8.1)",
                material.len()
            )
        };
        let (key, salt) = material.split_last_chunk::<SALT>().ok_or_else(wrong)?;
        let algorithm = match key.len() {
            16 => &AES_128_GCM,
            32 => &AES_256_GCM,
            _ => return Err(wrong()),
        };
        let unbound = UnboundKey::new(algorithm, key).map_err(|_| wrong())?;
        Ok(Self {
            key: LessSafeKey::new(unbound),
            salt: *salt,
            identity: identity(key),
        })
    }

    #[must_use]
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Returns the length of the key in bits.
    #[must_use]
    pub fn bits(&self) -> usize {
        8 * self.key.algorithm().key_len()
    }

    #[inline]
    fn nonce(&self, iv: [u8; 8]) -> Nonce {
        let mut nonce = [0; 12];
        nonce[..SALT].copy_from_slice(&self.salt);
        nonce[SALT..].copy_from_slice(&iv);
        Nonce::assume_unique_for_key(nonce)
    }

    /// Encrypts a packet in place and writes its integrity check value, of [`TAG`] bytes. False: it is too long. No two packets may have the same `iv`.
    #[inline]
    pub fn seal_into(&self, data: &Data, iv: [u8; 8], body: &mut [u8], tag: &mut [u8]) -> bool {
        let sealed = self
            .key
            .seal_in_place_scatter(self.nonce(iv), data.aad(), body, &[], tag);
        sealed.is_ok()
    }

    /// Encrypts a packet in place and returns its integrity check value.
    pub fn seal(&self, numbers: Numbers, iv: [u8; 8], body: &mut [u8]) -> Option<[u8; TAG]> {
        let mut tag = [0; TAG];
        self.seal_into(&numbers.into(), iv, body, &mut tag)
            .then_some(tag)
    }

    /// Decrypts a packet with its integrity check value in place. False: it is forged, and `body` has nothing useful.
    #[inline]
    pub fn open(&self, data: &Data, iv: [u8; 8], body: &mut [u8]) -> bool {
        let Some((body, tag)) = body.split_last_chunk_mut::<TAG>() else {
            return false;
        };
        // The library's `open_in_place` copies the plaintext onto itself.
        let nonce = self.nonce(iv);
        let opened = self
            .key
            .open_in_place_separate_tag(nonce, data.aad(), tag, body);
        opened.is_ok()
    }
}

/// Names a key: its nonces must not repeat even where the salt differs, because that could not be checked later.
fn identity(key: &[u8]) -> Identity {
    let mut digest = Context::new(&SHA256);
    digest.update(b"nf-ipsec key v1");
    digest.update(key);
    let digest = digest.finish();
    let half = |at: usize| {
        let bytes = digest.as_ref().get(at..at + 8);
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        u64::from_le_bytes(bytes.unwrap_or_default())
    };
    // Zeros mean an unused row of the state.
    [half(0) | 1, half(8)]
}

#[cfg(test)]
mod tests {
    use aes_gcm::{aead::AeadInPlace, aead::KeyInit, Aes128Gcm, Aes256Gcm};
    use proptest::prelude::*;

    use super::*;

    fn bytes(digits: &str) -> Vec<u8> {
        crate::Secret::from(digits).bytes().unwrap().to_vec()
    }

    struct Vector {
        material: &'static str,
        numbers: Numbers,
        iv: &'static str,
        plain: &'static str,
        sealed: &'static str,
    }

    /// draft-mcgrew-gcm-test-01, the test cases of RFC 4106's authors: with an extended sequence number, and without.
    const VECTORS: [Vector; 2] = [
        Vector {
            material: "4c80cdefbb5d10da906ac73c3613a6342e443b68",
            numbers: Numbers { spi: 0x4321, sequence: 0x8765_4321_0000_0000, extended: true },
            iv: "4956ed7e3b244cfe",
            plain: "45000048699a000080114db7c0a80102c0a801010a9bf15638d301000001000000000000045f736970045f756470037369700963796265726369747902646b000021000101020201",
            sealed: "fecf537e729d5b07dc30df528dd22b768d1b98736696a6fd348509fa13ceac34cfa2436f14a3f3cf65925bf1f4a13c5d15b21e1884f5ff6247aeabb786b93bce61bc17d768fd9732459018148f6cbe722fd04796562dfdb4",
        },
        Vector {
            material: "abbccddef00112233445566778899aababbccddef00112233445566778899aab11223344",
            numbers: Numbers { spi: 0x4a2c_bfe3, sequence: 2, extended: false },
            iv: "0102030405060708",
            plain: "4500003069a6400080062690c0a801029389155e0a9e008b2dc57ee0000000007002400020bf0000020405b40101040201020201",
            sealed: "ff425c9b724599df7a3bcd510194e00d6a78107f1b0b1cbf06efae9d65a5d763748a637985771d347f0545659f14e99def842d8eb335f4eecfdbf831824b4c4915956c96",
        },
    ];

    #[test]
    fn the_test_vectors_of_the_authors_hold() {
        for vector in VECTORS {
            let cipher = Cipher::new(&bytes(vector.material)).unwrap();
            let iv = bytes(vector.iv).try_into().unwrap();
            let mut body = bytes(vector.plain);
            let tag = cipher.seal(vector.numbers, iv, &mut body).unwrap();
            body.extend(tag);
            assert_eq!(body, bytes(vector.sealed));
            assert!(cipher.open(&vector.numbers.into(), iv, &mut body));
            assert_eq!(body[..body.len() - TAG], bytes(vector.plain));
        }
    }

    #[test]
    fn a_key_of_another_length_is_refused_and_the_salt_does_not_name_it() {
        for length in [0, 3, 4, 16, 19, 21, 28, 32, 37] {
            assert!(Cipher::new(&vec![1; length]).is_err(), "{length}");
        }
        let of = |key: u8, salt: u8| Cipher::new(&[vec![key; 16], vec![salt; 4]].concat()).unwrap();
        assert_eq!(of(1, 1).identity(), of(1, 2).identity());
        assert_ne!(of(1, 1).identity(), of(2, 1).identity());
        assert_eq!(of(1, 1).bits(), 128);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn both_implementations_agree(
            material in prop_oneof![prop::collection::vec(any::<u8>(), 20), prop::collection::vec(any::<u8>(), 36)],
            spi: u32, sequence: u64, extended: bool, iv: [u8; 8],
            plain in prop::collection::vec(any::<u8>(), 0..200), wrong in any::<prop::sample::Index>(),
        ) {
            let cipher = Cipher::new(&material).unwrap();
            let numbers = Numbers { spi, sequence, extended };
            let (key, salt) = material.split_at(material.len() - 4);
            let nonce: Vec<u8> = [salt, &iv].concat();
            let mut data = spi.to_be_bytes().to_vec();
            if extended {
                data.extend(sequence.to_be_bytes());
            } else {
                data.extend((sequence as u32).to_be_bytes());
            }
            let mut theirs = plain.clone();
            let nonce = aes_gcm::Nonce::from_slice(&nonce);
            let their_tag = match key.len() {
                16 => Aes128Gcm::new_from_slice(key).unwrap().encrypt_in_place_detached(nonce, &data, &mut theirs),
                _ => Aes256Gcm::new_from_slice(key).unwrap().encrypt_in_place_detached(nonce, &data, &mut theirs),
            }.unwrap();
            let mut ours = plain.clone();
            let tag = cipher.seal(numbers, iv, &mut ours).unwrap();
            prop_assert_eq!(&ours, &theirs);
            prop_assert_eq!(&tag[..], their_tag.as_slice());
            ours.extend(tag);
            let mut forged = ours.clone();
            let at = wrong.index(forged.len());
            forged[at] ^= 1;
            prop_assert!(!cipher.open(&numbers.into(), iv, &mut forged));
            prop_assert!(cipher.open(&numbers.into(), iv, &mut ours));
            prop_assert_eq!(&ours[..plain.len()], &plain[..]);
        }
    }
}
