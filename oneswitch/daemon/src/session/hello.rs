//! Version negotiation as Open vSwitch does it (OpenFlow 1.3.5, sections 6.3.1 and A.5.1).

use openflow13::{encode_hello_failed, openflow10, openflow14, openflow15, Hello, VERSION};

use crate::events::Peer;

/// The version on connections to switches.
const SOUTHBOUND: u32 = 1 << VERSION;
/// The versions on connections for packet-ins by their id; the later one has more reasons.
const COLLECTING: u32 = 1 << VERSION | 1 << openflow14::VERSION;
/// The version on connections for packets that meet no rule, which Open vSwitch sends only before OpenFlow 1.3, and for what only it says.
const OLD: u32 = 1 << openflow10::VERSION;
/// The version on connections for the properties of groups, which earlier versions lack.
const GROUPS: u32 = 1 << openflow15::VERSION;
/// The version on connections for the counters of ports; earlier ones have fewer.
const PORT_COUNTERS: u32 = 1 << openflow14::VERSION;
/// The versions that controllers may choose from.
const NORTHBOUND: u32 =
    1 << openflow10::VERSION | 1 << VERSION | 1 << openflow14::VERSION | 1 << openflow15::VERSION;

/// The reason why no version was agreed on.
#[derive(Debug, PartialEq, Eq)]
pub struct Incompatible {
    /// For the log.
    pub text: String,
    /// The last message to the peer; empty if it offers no version at all.
    pub error: Vec<u8>,
}

/// Returns the versions that a peer may choose from, bit N for wire version N.
pub fn supported(peer: &Peer) -> u32 {
    match peer {
        Peer::Controller { .. } => NORTHBOUND,
        Peer::Switch(..) => SOUTHBOUND,
        Peer::Collector(..) => COLLECTING,
        Peer::Misses(_) | Peer::Version10(_) => OLD,
        Peer::Properties(_) => GROUPS,
        Peer::PortCounters(_) => PORT_COUNTERS,
    }
}

/// Returns the version agreed on with the sender of a HELLO, the highest common one.
///
/// # Errors
/// No version is common.
pub fn negotiate(frame: &[u8], ours: u32) -> Result<u8, Incompatible> {
    let hello = Hello::of_frame(frame);
    let theirs = hello.versions();
    hello.negotiate(ours).ok_or_else(|| {
        let text = format!(
            "We support {}, you support {}, no common versions.",
            show(ours),
            show(theirs)
        );
        let error = match theirs {
            0 => Vec::new(),
            _ => encode_hello_failed(&hello, &text),
        };
        Incompatible { text, error }
    })
}

/// Formats `version 0x04`, `version 0x04 and earlier`, or `versions 0x01, 0x04`.
fn show(versions: u32) -> String {
    let list: Vec<_> = (0..32)
        .filter(|version| versions & (1 << version) != 0)
        .map(|version| format!("0x{version:02x}"))
        .collect();
    let has_no_gap = ((versions >> 1) + 1).is_power_of_two();
    match list.as_slice() {
        [] => "no versions".into(),
        [one] => format!("version {one}"),
        [.., highest] if has_no_gap => format!("version {highest} and earlier"),
        many => format!("versions {}", many.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: u32 = 1 << VERSION;

    fn offer(version: u8, elements: &[u8]) -> Vec<u8> {
        let length = u8::try_from(8 + elements.len()).unwrap();
        let mut frame = vec![version, 0, 0, length, 0, 0, 0, 1];
        frame.extend_from_slice(elements);
        frame
    }

    fn refused(frame: &[u8], ours: u32) -> Incompatible {
        negotiate(frame, ours).unwrap_err()
    }

    #[test]
    fn our_own_hello_is_acceptable_to_us() {
        let hello = Hello::new(OURS).to_frame(7);
        assert_eq!(negotiate(&hello, OURS), Ok(VERSION));
        assert_eq!(hello, [4, 0, 0, 16, 0, 0, 0, 7, 0, 1, 0, 8, 0, 0, 0, 0x10]);
    }

    #[test]
    fn without_a_bitmap_every_version_up_to_the_headers_is_offered() {
        for version in [4, 5, 6, 30, 31, 255] {
            assert_eq!(negotiate(&offer(version, &[]), OURS), Ok(4), "{version}");
        }
        assert_eq!(negotiate(&offer(3, &[]), 0x12), Ok(1));
        assert_eq!(
            refused(&offer(3, &[]), OURS).text,
            "We support version 0x04, you support version 0x03 and earlier, no common versions."
        );
    }

    #[test]
    fn the_refusal_has_the_peers_highest_version() {
        // As Open vSwitch 3.1 with protocols=OpenFlow13 answers.
        let error = |frame: &[u8]| refused(frame, OURS).error;
        assert_eq!(error(&offer(1, &[]))[..2], [1, 1]);
        assert_eq!(error(&offer(3, &[]))[0], 3);
        assert_eq!(error(&offer(6, &[0, 1, 0, 8, 0, 0, 0, 0x60]))[0], 6);
        let unknown = error(&offer(9, &[0, 1, 0, 8, 0, 0, 2, 0]));
        assert_eq!(unknown[0], 1, "Open vSwitch has no errors of version 9");
        assert_eq!(unknown[8..12], [0, 0, 0, 0]);
        assert!(unknown.ends_with(b"no common versions."));
        let nothing = error(&offer(0, &[]));
        assert!(nothing.is_empty(), "an answer needs a version");
    }

    #[test]
    fn controllers_may_choose_openflow_10_and_switches_may_not() {
        let controller = Peer::Controller {
            target: "ptcp:6653".into(),
            dialled: None,
            address: String::new(),
        };
        let agreed = |peer: &Peer, version| negotiate(&offer(version, &[]), supported(peer)).ok();
        assert_eq!(agreed(&controller, 1), Some(1));
        assert_eq!(agreed(&controller, 3), Some(1));
        assert_eq!(agreed(&controller, 4), Some(4));
        assert_eq!(agreed(&controller, 5), Some(5));
        assert_eq!(agreed(&controller, 7), Some(6));
        let switch = Peer::Switch(0, oneswitch_core::Bridge::Virt);
        assert_eq!(agreed(&switch, 1), None);
        assert_eq!(agreed(&Peer::Misses(0), 6), Some(1));
    }

    #[test]
    fn a_bitmap_outweighs_the_header() {
        let accepted = |version, bitmap| {
            let element = [0, 1, 0, 8, 0, 0, 0, bitmap];
            negotiate(&offer(version, &element), OURS).is_ok()
        };
        assert!(accepted(6, 0x12) && accepted(1, 0x10));
        assert!(!accepted(4, 0x62));
        let error = refused(&offer(4, &[0, 1, 0, 8, 0, 0, 0, 0x62]), OURS).text;
        assert!(error.contains("versions 0x01, 0x05, 0x06"), "{error}");
        let unknown_first = [0, 9, 0, 5, 1, 0, 0, 0, 0, 1, 0, 8, 0, 0, 0, 2];
        assert!(
            negotiate(&offer(4, &unknown_first), OURS).is_err(),
            "elements are padded to 8 bytes"
        );
    }

    #[test]
    fn empty_and_broken_elements_fall_back_to_the_header() {
        for elements in [
            &[0, 1, 0, 8, 0, 0, 0, 0][..],
            &[0, 1, 0, 8, 0, 0, 0, 1],
            &[0, 1, 0, 3],
            &[0, 1, 0, 8, 0],
            &[0, 1, 0, 4],
            &[0, 2, 0, 200],
            &[0, 1, 0],
            &[0, 1, 0, 0],
        ] {
            assert_eq!(negotiate(&offer(4, elements), OURS), Ok(4), "{elements:?}");
            assert!(
                negotiate(&offer(1, elements), OURS).is_err(),
                "{elements:?}"
            );
        }
    }
}
