//! Signatures of TCP stacks: what a SYN, SYN/ACK, FIN, RST or ACK looks like. The format is that of p0f 2: the files describe it themselves.

use super::fault::{trimmed, Fault};

/// The number of lists into which PRADS spreads signatures, by a hash of the packet's size, options, quirks and flag *don't fragment*.
/// A signature for packets of any size is found only where its hash, with size 0, falls on the packet's own list.
const LISTS: usize = 241;
/// Sizes from here on may be matched by a signature for any size.
const BIG: u16 = 100;

/// The most options of a packet.
pub const MAX_OPTIONS: usize = 16;

/// Peculiarities of a packet, as bits.
pub mod quirk {
    pub const PAST: u32 = 1 << 0;
    pub const ZERO_ID: u32 = 1 << 1;
    pub const IP_OPTIONS: u32 = 1 << 2;
    pub const URGENT: u32 = 1 << 3;
    pub const RESERVED: u32 = 1 << 4;
    pub const ACK: u32 = 1 << 5;
    pub const SECOND_STAMP: u32 = 1 << 6;
    pub const FLAGS: u32 = 1 << 7;
    pub const DATA: u32 = 1 << 8;
    pub const BROKEN: u32 = 1 << 9;
    pub const RST_ACK: u32 = 1 << 10;
    pub const SEQUENCE_IS_ACK: u32 = 1 << 11;
    pub const SEQUENCE_0: u32 = 1 << 12;
    pub const FIN_ACK: u32 = 1 << 13;
    pub const FLOW_LABEL: u32 = 1 << 14;

    /// All of them with their letters, in the order in which a fingerprint has them.
    pub const LETTERS: [(u32, u8); 15] = [
        (RST_ACK, b'K'),
        (SEQUENCE_IS_ACK, b'Q'),
        (SEQUENCE_0, b'0'),
        (PAST, b'P'),
        (ZERO_ID, b'Z'),
        (IP_OPTIONS, b'I'),
        (URGENT, b'U'),
        (RESERVED, b'X'),
        (ACK, b'A'),
        (SECOND_STAMP, b'T'),
        (FLAGS, b'F'),
        (DATA, b'D'),
        (FIN_ACK, b'N'),
        (FLOW_LABEL, b'L'),
        (BROKEN, b'!'),
    ];
}

/// Kinds of TCP options (RFC 9293, RFC 7323, RFC 2018).
pub mod option {
    pub const END: u8 = 0;
    pub const NOP: u8 = 1;
    pub const SEGMENT_SIZE: u8 = 2;
    pub const WINDOW_SCALE: u8 = 3;
    pub const SACK_PERMITTED: u8 = 4;
    pub const TIMESTAMP: u8 = 8;
}

/// The features of a packet by which signatures know its sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fingerprint {
    pub window: u16,
    pub ttl: u8,
    pub dont_fragment: bool,
    /// The length of the IP packet; 0: unknown, and any will do.
    pub size: u16,
    pub options: [u8; MAX_OPTIONS],
    pub option_count: u8,
    pub window_scale: u16,
    pub segment_size: u16,
    pub quirks: u32,
    /// The sender's time stamp; 0: none.
    pub stamp: u32,
}

/// A number that a packet must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Is(u16),
    MultipleOf(u16),
}

impl Wanted {
    fn allows(self, value: u16) -> bool {
        match self {
            Self::Is(wanted) => value == wanted,
            Self::MultipleOf(divisor) => value % divisor == 0,
        }
    }
}

/// The window that a packet must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Window {
    Number(Wanted),
    /// A multiple of the segment size.
    Segments(u16),
    /// A multiple of the packet size: segments with 40 bytes of headers.
    Packets(u16),
}

impl Window {
    fn allows(self, window: u16, segment_size: u16) -> bool {
        let (count, headers, usual) = match self {
            Self::Number(wanted) => return wanted.allows(window),
            Self::Segments(count) => (count, 0, 1460),
            Self::Packets(count) => (count, 40, 1500),
        };
        let window = u32::from(window);
        let unit = u32::from(segment_size) + headers;
        let unit = if segment_size != 0 && window % unit == 0 {
            unit
        } else {
            usual
        };
        window % unit == 0 && window / unit == u32::from(count)
    }
}

/// A signature, and the system that it stands for.
struct Signature {
    window: Window,
    ttl: u8,
    dont_fragment: bool,
    size: u16,
    options: Vec<u8>,
    window_scale: Wanted,
    segment_size: Wanted,
    quirks: u32,
    is_without_stamp: bool,
    line: u32,
    system: Vec<u8>,
    detail: Vec<u8>,
}

/// A system that a signature stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct System<'a> {
    /// The number of the signature's line, from 1 on.
    pub line: u32,
    pub name: &'a [u8],
    pub detail: &'a [u8],
}

/// The signatures of a file.
pub struct TcpSignatures {
    all: Vec<Signature>,
    lists: Vec<Vec<usize>>,
}

fn list_of(size: u16, options: usize, quirks: u32, dont_fragment: bool) -> usize {
    let hash = (u32::from(size) << 2) ^ ((options as u32) << 1) ^ u32::from(dont_fragment) ^ quirks;
    hash as usize % LISTS
}

impl TcpSignatures {
    /// # Errors
    /// If a line is not a signature.
    pub fn parse(text: &[u8]) -> Result<Self, Fault> {
        let mut lists = vec![Vec::new(); LISTS];
        let mut all = Vec::new();
        for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
            let line = trimmed(line);
            if line.is_empty() || line[0] == b'#' {
                continue;
            }
            let signature =
                Signature::parse(line, number).map_err(|reason| Fault::at(number, line, reason))?;
            let list = list_of(
                signature.size,
                signature.options.len(),
                signature.quirks,
                signature.dont_fragment,
            );
            lists[list].push(all.len());
            all.push(signature);
        }
        Ok(Self { all, lists })
    }

    /// Finds the first signature that a packet matches. A packet that may be fragmented is also compared, second, as one that may not, since firewalls change the
    /// flag; the fingerprint then says so, whether that finds a signature or not.
    pub fn find(&self, packet: &mut Fingerprint) -> Option<System<'_>> {
        loop {
            let list = list_of(
                packet.size,
                packet.option_count.into(),
                packet.quirks,
                packet.dont_fragment,
            );
            let found = self.lists[list]
                .iter()
                .map(|index| &self.all[*index])
                .find(|signature| signature.matches(packet));
            if found.is_some() || packet.dont_fragment {
                return found.map(Signature::system);
            }
            packet.dont_fragment = true;
        }
    }
}

impl Signature {
    fn system(&self) -> System<'_> {
        System {
            line: self.line,
            name: &self.system,
            detail: &self.detail,
        }
    }

    fn matches(&self, packet: &Fingerprint) -> bool {
        let has_size = match (packet.size, self.size) {
            (0, _) => true,
            (size, 0) => size >= BIG,
            (size, wanted) => size == wanted,
        };
        let options = packet.options.get(..packet.option_count.into());
        has_size
            && self.is_without_stamp == (packet.stamp == 0)
            && self.dont_fragment == packet.dont_fragment
            && self.quirks == packet.quirks
            && self.segment_size.allows(packet.segment_size)
            && self.window_scale.allows(packet.window_scale)
            && self.window.allows(packet.window, packet.segment_size)
            && options == Some(&self.options)
            && self.ttl >= packet.ttl
    }

    /// Parses `window:ttl:df:size:options:quirks:system:detail`.
    fn parse(line: &[u8], number: u32) -> Result<Self, &'static str> {
        let mut fields = line.splitn(9, |byte| *byte == b':');
        let mut field = |reason| {
            fields
                .next()
                .filter(|field| !field.is_empty())
                .ok_or(reason)
        };
        let window = field("expected a window size first")?;
        let ttl = number_of(field("expected a TTL after the window size")?)
            .ok_or("expected a TTL after the window size")?;
        let flag = number_of(field(
            "expected the flag `don't fragment`, 0 or 1, after the TTL",
        )?);
        let flag = flag.ok_or("expected the flag `don't fragment`, 0 or 1, after the TTL")?;
        let size = field("expected a packet size or * after the flag")?;
        let options = field("expected options, or a period for none, after the size")?;
        let quirks = field("expected quirks, or a period for none, after the options")?;
        let mut system = field("expected the name of a system after the quirks")?;
        let detail = field("expected details of the system after its name")?;
        // Marks for programs that guess distances: userland, no details, generic.
        while let [b'-' | b'*' | b'@', rest @ ..] = system {
            system = rest;
        }
        if system.is_empty() {
            return Err("expected the name of a system after its marks");
        }
        let mut signature = Self {
            window: window_of(window)?,
            ttl: ttl as u8,
            dont_fragment: flag != 0,
            size: size_of_packet(size)?,
            options: Vec::new(),
            window_scale: Wanted::Is(0),
            segment_size: Wanted::Is(0),
            quirks: quirks_of(quirks)?,
            is_without_stamp: true,
            line: number,
            system: system.to_vec(),
            detail: detail.to_vec(),
        };
        signature.parse_options(options)?;
        Ok(signature)
    }

    fn parse_options(&mut self, text: &[u8]) -> Result<(), &'static str> {
        let mut rest = text.strip_prefix(b".").unwrap_or(text);
        while let Some((letter, after)) = rest.split_first() {
            let kind = match letter.to_ascii_lowercase() {
                b'n' => option::NOP,
                b'e' => option::END,
                b's' => option::SACK_PERMITTED,
                b't' => {
                    match after.first() {
                        Some(b'0') => (),
                        Some(b'1'..=b'9') => return Err("expected T or T0 for a time stamp"),
                        _ => self.is_without_stamp = false,
                    }
                    option::TIMESTAMP
                }
                b'w' => {
                    self.window_scale =
                        wanted(after).ok_or("expected a number, *, or % and a number after W")?;
                    option::WINDOW_SCALE
                }
                b'm' => {
                    self.segment_size =
                        wanted(after).ok_or("expected a number, *, or % and a number after M")?;
                    option::SEGMENT_SIZE
                }
                b'?' => {
                    leading_number(after).ok_or("expected the number of an option after ?")? as u8
                }
                _ => return Err("expected options of the letters N, E, S, T, W, M or ?"),
            };
            self.options.push(kind);
            if self.options.len() >= MAX_OPTIONS {
                return Err("expected at most 15 options");
            }
            let next = after
                .iter()
                .position(|byte| byte.is_ascii_alphabetic() || *byte == b'?');
            rest = next.map_or(&[][..], |next| &after[next..]);
        }
        Ok(())
    }
}

/// Parses a decimal number that ends at another character, as C's `atoi`. None: it does not start with a digit.
fn leading_number(text: &[u8]) -> Option<u32> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit());
    let number = |sum: Option<u32>, byte: &u8| {
        Some(
            sum.unwrap_or(0)
                .wrapping_mul(10)
                .wrapping_add(u32::from(byte - b'0')),
        )
    };
    digits.fold(None, number)
}

fn number_of(text: &[u8]) -> Option<u32> {
    leading_number(text).filter(|_| text.iter().all(u8::is_ascii_digit))
}

/// Parses `5`, `*` or `%5`.
fn wanted(text: &[u8]) -> Option<Wanted> {
    match text {
        [b'*', ..] => Some(Wanted::MultipleOf(1)),
        [b'%', rest @ ..] => leading_number(rest)
            .map(|divisor| divisor as u16)
            .filter(|divisor| *divisor != 0)
            .map(Wanted::MultipleOf),
        _ => leading_number(text).map(|number| Wanted::Is(number as u16)),
    }
}

fn window_of(text: &[u8]) -> Result<Window, &'static str> {
    let allowed = |byte: &u8| byte.is_ascii_digit() || b"%*()ST".contains(byte);
    let reason =
        "expected a window of a number, *, % and a number, S and a number, or T and a number";
    if !text.iter().all(allowed) {
        return Err(reason);
    }
    let count = |rest| leading_number(rest).map(|count| count as u16);
    let window = match text {
        [b'S', rest @ ..] => count(rest).map(Window::Segments),
        [b'T', rest @ ..] => count(rest).map(Window::Packets),
        _ => wanted(text).map(Window::Number),
    };
    window.ok_or(reason)
}

fn size_of_packet(text: &[u8]) -> Result<u16, &'static str> {
    let allowed = |byte: &u8| byte.is_ascii_digit() || b"()*".contains(byte);
    if !text.iter().all(allowed) {
        return Err("expected a packet size or * after the flag");
    }
    Ok(leading_number(text).unwrap_or(0) as u16)
}

fn quirks_of(text: &[u8]) -> Result<u32, &'static str> {
    text.iter()
        .filter(|byte| **byte != b'.')
        .try_fold(0, |sum, letter| {
            let known = quirk::LETTERS
                .iter()
                .find(|(_, known)| *known == letter.to_ascii_uppercase());
            known.map(|(bit, _)| sum | bit).ok_or(
                "expected quirks of the letters K, Q, 0, P, Z, I, U, X, A, T, F, D, N, L or !",
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(file: &str, mut packet: Fingerprint) -> Option<String> {
        let signatures = TcpSignatures::parse(file.as_bytes()).unwrap();
        let system = signatures.find(&mut packet);
        system.map(|system| String::from_utf8_lossy(system.name).into_owned())
    }

    fn syn() -> Fingerprint {
        let mut options = [0; MAX_OPTIONS];
        options[..5].copy_from_slice(&[2, 4, 8, 1, 3]);
        Fingerprint {
            window: 5840,
            ttl: 60,
            dont_fragment: true,
            size: 60,
            options,
            option_count: 5,
            window_scale: 7,
            segment_size: 1460,
            quirks: 0,
            stamp: 99,
        }
    }

    #[test]
    fn each_field_decides() {
        let line = "S4:64:1:60:M*,S,T,N,W7:.:Linux:2.6";
        assert_eq!(found(line, syn()).as_deref(), Some("Linux"));
        for other in [
            "S3:64:1:60:M*,S,T,N,W7:.:Linux:2.6",
            "S4:59:1:60:M*,S,T,N,W7:.:Linux:2.6",
            "S4:64:1:52:M*,S,T,N,W7:.:Linux:2.6",
            "S4:64:1:60:M%7,S,T,N,W7:.:Linux:2.6",
            "S4:64:1:60:M*,N,T,N,W7:.:Linux:2.6",
            "S4:64:1:60:M*,S,T0,N,W7:.:Linux:2.6",
            "S4:64:1:60:M*,S,T,N,W6:.:Linux:2.6",
            "S4:64:1:60:M*,S,T,N,W7:Z:Linux:2.6",
            "S4:64:0:60:M*,S,T,N,W7:.:Linux:2.6",
        ] {
            assert_eq!(found(other, syn()), None, "{other}");
        }
        for same in [
            "5840:64:1:60:M1460,S,T,N,W7:.:Linux:2.6",
            "%584:64:1:60:M%73,S,T,N,W*:.:Linux:2.6",
            "*:255:1:60:M*,S,T,N,W%7:.:@-Linux:2.6",
        ] {
            assert_eq!(found(same, syn()).as_deref(), Some("Linux"), "{same}");
        }
    }

    #[test]
    fn the_first_line_wins_and_a_lost_flag_is_tried_second() {
        let file =
            "# comment\n\nS4:64:1:60:M*,S,T,N,W7:.:First:a\nS4:64:1:60:M*,S,T,N,W7:.:Second:b\n";
        assert_eq!(found(file, syn()).as_deref(), Some("First"));
        let mut cleared = Fingerprint {
            dont_fragment: false,
            ..syn()
        };
        let signatures = TcpSignatures::parse(file.as_bytes()).unwrap();
        assert_eq!(signatures.find(&mut cleared).unwrap().line, 3);
        assert!(cleared.dont_fragment);
    }

    #[test]
    fn faults_name_the_line_and_what_was_expected() {
        for (line, told) in [
            ("x:64:1:60:.:.:L:d", "expected a window"),
            ("S4:sixty:1:60:.:.:L:d", "expected a TTL"),
            ("S4:64:1:60:Y:.:L:d", "expected options"),
            ("S4:64:1:60:W:.:L:d", "after W"),
            ("S4:64:1:60:.:y:L:d", "expected quirks"),
            ("S4:64:1:60:.:.:@:d", "after its marks"),
            ("S4:64:1:60:.:.:L", "details"),
            ("%0:64:1:60:.:.:L:d", "expected a window"),
        ] {
            let text = format!("# a comment\n{line}\n");
            let fault = TcpSignatures::parse(text.as_bytes()).err().unwrap();
            let fault = fault.to_string();
            assert!(
                fault.starts_with("line 2: ") && fault.contains(told),
                "{fault}"
            );
        }
    }
}
