//! Version negotiation as Open vSwitch does it (OpenFlow 1.3.5, sections 6.3.1 and A.5.1).

use openflow13::{kind, Header, HEADER_LEN, VERSION};

/// `OFPHET_VERSIONBITMAP`.
const VERSION_BITMAP: u16 = 1;
/// Supported versions, bit N for wire version N.
const OURS: u32 = 1 << VERSION;

/// Builds our HELLO: version 1.3, and a bitmap with only this version.
pub fn hello(xid: u32) -> Vec<u8> {
    let mut frame = vec![VERSION, kind::HELLO, 0, 16];
    frame.extend_from_slice(&xid.to_be_bytes());
    frame.extend_from_slice(&VERSION_BITMAP.to_be_bytes());
    frame.extend_from_slice(&8u16.to_be_bytes());
    frame.extend_from_slice(&OURS.to_be_bytes());
    frame
}

/// Negotiates the version with a peer's HELLO.
///
/// # Errors
/// The text of the HELLO_FAILED error if no version is common.
pub fn negotiate(frame: &[u8]) -> Result<(), String> {
    let theirs = versions(frame);
    if theirs & OURS != 0 {
        return Ok(());
    }
    let common = "no common versions";
    Err(format!(
        "We support {}, you support {}, {common}.",
        show(OURS),
        show(theirs)
    ))
}

/// Returns the versions that a HELLO offers: its bitmap, or else all up to its header's.
fn versions(frame: &[u8]) -> u32 {
    let Some(header) = Header::parse(frame) else {
        return 0;
    };
    let mut rest = frame.get(HEADER_LEN..).unwrap_or_default();
    while let Some((&[t0, t1, l0, l1], body)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes([l0, l1]));
        // A broken element ends the list, as in Open vSwitch.
        let Some(size) = length.checked_sub(4) else {
            break;
        };
        if u16::from_be_bytes([t0, t1]) == VERSION_BITMAP {
            if let (true, Some(bitmap)) = (size >= 4 && size <= body.len(), body.first_chunk()) {
                return u32::from_be_bytes(*bitmap);
            }
            break;
        }
        let Some(next) = body.get(length.next_multiple_of(8) - 4..) else {
            break;
        };
        rest = next;
    }
    match header.version {
        0 => 0,
        version @ 1..=30 => (1 << (version + 1)) - 2,
        _ => u32::MAX - 1,
    }
}

/// Formats `version 0x04`, or `versions 0x01, 0x04`.
fn show(versions: u32) -> String {
    let list: Vec<_> = (0..32)
        .filter(|version| versions & (1 << version) != 0)
        .map(|version| format!("0x{version:02x}"))
        .collect();
    match list.as_slice() {
        [] => "no versions".into(),
        [one] => format!("version {one}"),
        many => format!("versions {}", many.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(version: u8, elements: &[u8]) -> Vec<u8> {
        let length = u8::try_from(8 + elements.len()).unwrap();
        let mut frame = vec![version, 0, 0, length, 0, 0, 0, 1];
        frame.extend_from_slice(elements);
        frame
    }

    #[test]
    fn our_own_hello_is_acceptable_to_us() {
        assert_eq!(negotiate(&hello(7)), Ok(()));
        assert_eq!(
            hello(7),
            [4, 0, 0, 16, 0, 0, 0, 7, 0, 1, 0, 8, 0, 0, 0, 0x10]
        );
    }

    #[test]
    fn without_a_bitmap_every_version_up_to_the_headers_is_offered() {
        for version in [4, 5, 6, 30, 31, 255] {
            assert_eq!(negotiate(&offer(version, &[])), Ok(()), "{version}");
        }
        assert_eq!(
            negotiate(&offer(1, &[])).unwrap_err(),
            "We support version 0x04, you support version 0x01, no common versions."
        );
        assert!(negotiate(&offer(0, &[]))
            .unwrap_err()
            .contains("you support no versions"));
    }

    #[test]
    fn a_bitmap_outweighs_the_header() {
        assert_eq!(negotiate(&offer(6, &[0, 1, 0, 8, 0, 0, 0, 0x12])), Ok(()));
        assert_eq!(negotiate(&offer(1, &[0, 1, 0, 8, 0, 0, 0, 0x10])), Ok(()));
        let error = negotiate(&offer(4, &[0, 1, 0, 8, 0, 0, 0, 0x62])).unwrap_err();
        assert!(error.contains("versions 0x01, 0x05, 0x06"), "{error}");
        let unknown_first = [0, 9, 0, 5, 1, 0, 0, 0, 0, 1, 0, 8, 0, 0, 0, 2];
        assert!(
            negotiate(&offer(4, &unknown_first)).is_err(),
            "elements are padded to 8 bytes"
        );
    }

    #[test]
    fn broken_elements_fall_back_to_the_header() {
        for elements in [
            &[0, 1, 0, 3][..],
            &[0, 1, 0, 8, 0],
            &[0, 1, 0, 4],
            &[0, 2, 0, 200],
            &[0, 1, 0],
            &[0, 1, 0, 0],
        ] {
            assert_eq!(negotiate(&offer(4, elements)), Ok(()), "{elements:?}");
            assert!(negotiate(&offer(1, elements)).is_err(), "{elements:?}");
        }
    }
}
