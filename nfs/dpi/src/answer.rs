//! The verdict of nDPI about a flow, and its words in the ring of answers.

/// The longest host name that nDPI keeps, in bytes.
pub const HOST_BYTES: usize = 80;

/// The words of an answer in the ring: flow, sequence, verdict, flags, host, fingerprint of the client, of the server.
pub const ANSWER_WORDS: usize = 4 + HOST_BYTES / 8 + 2 + 2;

const HAS_JA3: u64 = 1;
const HAS_JA3_SERVER: u64 = 2;

/// The verdict of nDPI about a flow after one of its packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub flow: u64,
    /// The number that came with the packet.
    pub sequence: u64,
    pub state: State,
    pub protocol: Protocol,
    /// See [`Catalogue::category`](crate::Catalogue::category).
    pub category: u16,
    pub confidence: Confidence,
    /// TLS SNI, HTTP host, the name that DNS was asked for: bytes as the flow had them.
    pub host: Host,
    /// JA3, the fingerprint of a TLS client's hello (an MD5), and JA3S, of the server's. nDPI 4.2 has no JA4.
    pub ja3: Option<[u8; 16]>,
    pub ja3_server: Option<[u8; 16]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The next packet may change the answer. A protocol that is known already stays, or becomes more exact.
    MoreNeeded,
    /// It stays as it is. Packets that are on their way get it again; submit no more of the flow.
    Final,
}

/// Two of nDPI's numbers; 0: unknown. As ndpiReader prints it: `master.application`, or one of them if the other is 0 or the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Protocol {
    pub master: u16,
    pub application: u16,
}

/// Why nDPI says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confidence {
    /// It says nothing.
    Unknown,
    /// It has recognised nothing, and guesses by the port,
    Port,
    /// or by the address.
    Address,
    /// Earlier flows of these hosts.
    Cache,
    /// The bytes of the flow.
    Content,
}

impl Confidence {
    const ALL: [Self; 5] = [
        Self::Unknown,
        Self::Port,
        Self::Address,
        Self::Cache,
        Self::Content,
    ];

    /// Returns the one with nDPI's number.
    #[must_use]
    pub fn of(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

/// A name of at most [`HOST_BYTES`] bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Host {
    bytes: [u8; HOST_BYTES],
    length: u8,
}

impl Host {
    /// Takes as many bytes as fit.
    #[must_use]
    pub fn new(name: &[u8]) -> Self {
        let name = &name[..name.len().min(HOST_BYTES)];
        let mut bytes = [0; HOST_BYTES];
        bytes[..name.len()].copy_from_slice(name);
        Self {
            bytes,
            length: name.len() as u8,
        }
    }

    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(self.as_bytes()))
    }
}

impl Answer {
    #[must_use]
    pub fn to_words(&self) -> [u64; ANSWER_WORDS] {
        let mut words = [0; ANSWER_WORDS];
        words[0] = self.flow;
        words[1] = self.sequence;
        words[2] = u64::from(self.protocol.master)
            | u64::from(self.protocol.application) << 16
            | u64::from(self.category) << 32
            | (self.confidence as u64) << 48
            | u64::from(self.state == State::Final) << 56;
        words[3] = u64::from(self.host.length) << 8;
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words[4..]);
        bytes[..HOST_BYTES].copy_from_slice(&self.host.bytes);
        let mut flags = 0;
        for (value, flag, at) in [
            (self.ja3, HAS_JA3, 0),
            (self.ja3_server, HAS_JA3_SERVER, 16),
        ] {
            if let Some(value) = value {
                bytes[HOST_BYTES + at..HOST_BYTES + at + 16].copy_from_slice(&value);
                flags |= flag;
            }
        }
        words[3] |= flags;
        words
    }

    /// # Errors
    /// Words that the program never writes, with the reason.
    pub fn from_words(words: &[u64; ANSWER_WORDS]) -> Result<Self, String> {
        let [flow, sequence, verdict, flags, rest @ ..] = words;
        let part = |at: u32| (verdict >> at) as u16;
        let state = match verdict >> 56 {
            0 => State::MoreNeeded,
            1 => State::Final,
            other => return Err(format!("an answer of state {other}")),
        };
        let confidence = (verdict >> 48) as u8;
        let confidence = Confidence::of(confidence)
            .ok_or_else(|| format!("an answer of confidence {confidence}"))?;
        let length = flags >> 8;
        if length > HOST_BYTES as u64 || flags & 0xff & !(HAS_JA3 | HAS_JA3_SERVER) != 0 {
            return Err(format!("an answer with flags {flags:#x}"));
        }
        let bytes: &[u8] = bytemuck::cast_slice(rest);
        let fingerprint = |flag: u64, at: usize| {
            let mut value = [0; 16];
            value.copy_from_slice(&bytes[HOST_BYTES + at..HOST_BYTES + at + 16]);
            (flags & flag != 0).then_some(value)
        };
        Ok(Self {
            flow: *flow,
            sequence: *sequence,
            state,
            protocol: Protocol {
                master: part(0),
                application: part(16),
            },
            category: part(32),
            confidence,
            host: Host::new(&bytes[..length as usize]),
            ja3: fingerprint(HAS_JA3, 0),
            ja3_server: fingerprint(HAS_JA3_SERVER, 16),
        })
    }
}
