//! Splits input into messages, and rejects what cannot be trusted.

use openflow13::{encode_error, frame_length, kind, ErrorCode, Header, HEADER_LEN, VERSION};

/// The content at the start of a read buffer.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// Bytes of complete messages that can be handed on.
    pub whole: usize,
    pub messages: u64,
    /// Replies to contained echo requests.
    pub echo_replies: Vec<u8>,
    /// The reason why nothing after `whole` can be trusted.
    pub trouble: Option<Trouble>,
}

/// The end of an invalid stream.
#[derive(Debug, PartialEq, Eq)]
pub struct Trouble {
    /// For the log.
    pub reason: String,
    /// The last message to the peer, if any.
    pub error: Vec<u8>,
}

/// Tells whether a message is an echo, of any version. It concerns only the session, not the core.
pub fn is_echo(header: Header) -> bool {
    matches!(header.kind, kind::ECHO_REQUEST | kind::ECHO_REPLY)
}

/// Tells whether a switch's message concerns only the session. Its hellos and its errors of another version are harmless.
pub fn is_private(header: Header) -> bool {
    match header.kind {
        kind::HELLO => true,
        kind::ERROR => header.version != VERSION,
        _ => is_echo(header),
    }
}

/// Scans the complete messages at the start of `buffer`. A switch that changes the version cannot be trusted; the core refuses such messages
/// of controllers one by one, as Open vSwitch does.
pub fn scan(buffer: &[u8], is_switch: bool) -> Scan {
    let mut scan = Scan::default();
    let mut rest = buffer;
    while let Some(header) = Header::parse(rest) {
        if is_switch && header.version != VERSION && !is_private(header) {
            let reason = format!(
                "a message of OpenFlow version 0x{:02x} after 0x{VERSION:02x} was agreed on",
                header.version
            );
            let error = encode_error(
                header.xid,
                ErrorCode::BAD_REQUEST_BAD_VERSION,
                offending(rest, header),
            );
            scan.trouble = Some(Trouble { reason, error });
            break;
        }
        let length = match frame_length(rest) {
            Ok(Some(length)) => length,
            Ok(None) => break,
            // Open vSwitch disconnects without an error, too.
            Err(refusal) => {
                scan.trouble = Some(Trouble {
                    reason: refusal.detail.into_owned(),
                    error: Vec::new(),
                });
                break;
            }
        };
        let Some((frame, after)) = rest.split_at_checked(length) else {
            break;
        };
        if header.kind == kind::ECHO_REQUEST {
            scan.echo_replies
                .extend_from_slice(&echo_reply(frame, header));
        }
        scan.whole += length;
        scan.messages += 1;
        rest = after;
    }
    scan
}

/// Returns at most 64 bytes of a message that is refused unread (OpenFlow 1.3.5, section 7.4.4), fewer if fewer have arrived.
fn offending(buffer: &[u8], header: Header) -> &[u8] {
    let end = usize::from(header.length)
        .clamp(HEADER_LEN, 64)
        .min(buffer.len());
    buffer.get(..end).unwrap_or_default()
}

fn echo_reply(frame: &[u8], header: Header) -> Vec<u8> {
    let mut reply = frame.to_vec();
    if let Some(kind) = reply.get_mut(1) {
        *kind = kind::ECHO_REPLY;
    }
    debug_assert_eq!(
        Header::parse(&reply).map(|reply| reply.xid),
        Some(header.xid)
    );
    reply
}

/// Builds a message without a body.
pub fn bare(version: u8, kind: u8, xid: u32) -> Vec<u8> {
    let mut frame = vec![version, kind, 0, 8];
    frame.extend_from_slice(&xid.to_be_bytes());
    frame
}

/// Iterates over the complete messages of a chunk that `scan` has passed.
pub fn messages(chunk: &[u8]) -> impl Iterator<Item = (Header, &[u8])> {
    let mut rest = chunk;
    std::iter::from_fn(move || {
        let header = Header::parse(rest)?;
        let (frame, after) = rest.split_at_checked(usize::from(header.length).max(HEADER_LEN))?;
        rest = after;
        Some((header, frame))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BARRIER: [u8; 8] = [4, 20, 0, 8, 0, 0, 0, 9];

    #[test]
    fn whole_messages_are_counted_and_the_rest_waits() {
        let mut bytes = BARRIER.repeat(3);
        for cut in 1..8 {
            bytes.truncate(24 - cut);
            let scan = scan(&bytes, false);
            assert_eq!((scan.whole, scan.messages, scan.trouble), (16, 2, None));
        }
        assert_eq!(scan(&[], false), Scan::default());
        let big = [&[4, 13, 0xff, 0xff, 0, 0, 0, 1][..], &[0; 65_527]].concat();
        assert_eq!(scan(&big, false).whole, 65_535);
        assert_eq!(messages(&big).count(), 1);
    }

    #[test]
    fn echo_requests_are_answered_with_their_body() {
        for version in [1, 4, 9] {
            let request = [version, 2, 0, 10, 0, 0, 0, 3, 0xaa, 0xbb];
            let scan = scan(&[&BARRIER[..], &request].concat(), false);
            let reply = [version, 3, 0, 10, 0, 0, 0, 3, 0xaa, 0xbb];
            assert_eq!((scan.echo_replies, scan.messages), (reply.to_vec(), 2));
        }
    }

    #[test]
    fn a_short_length_ends_the_stream() {
        let bytes = [&BARRIER[..], &[4, 14, 0, 7, 1, 2, 3, 4, 5]].concat();
        let scan = scan(&bytes, false);
        assert_eq!(scan.whole, 8);
        let trouble = scan.trouble.unwrap();
        assert!(trouble.reason.contains("length 7"), "{}", trouble.reason);
        assert!(trouble.error.is_empty());
    }

    #[test]
    fn another_version_ends_a_switchs_stream_before_its_body_has_come() {
        let bytes = [1, 14, 0, 80, 0, 0, 0, 5, 1, 2];
        assert_eq!(scan(&bytes, false).trouble, None);
        let trouble = scan(&bytes, true).trouble.unwrap();
        assert!(trouble.reason.contains("0x01"), "{}", trouble.reason);
        assert_eq!(
            trouble.error,
            [1, 1, 0, 22, 0, 0, 0, 5, 0, 1, 0, 0, 1, 14, 0, 80, 0, 0, 0, 5, 1, 2]
        );
    }

    #[test]
    fn hellos_echoes_and_errors_of_other_versions_pass() {
        let bytes: Vec<u8> = [0, 1, 2, 3]
            .into_iter()
            .flat_map(|kind| [6, kind, 0, 8, 0, 0, 0, kind])
            .collect();
        let scan = scan(&bytes, true);
        assert_eq!((scan.messages, scan.trouble), (4, None));
        assert!(messages(&bytes).all(|(header, _)| is_private(header)));
        assert!(!is_private(
            Header::parse(&[4, 1, 0, 12, 0, 0, 0, 0]).unwrap()
        ));
    }
}
