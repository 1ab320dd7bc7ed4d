//! Frames for tests.

#![allow(dead_code)] // each test uses some

/// A TCP segment with options and payload.
struct Segment<'a> {
    from: (u8, u16),
    to: (u8, u16),
    flags: u8,
    window: u16,
    options: &'a [u8],
    payload: &'a [u8],
}

pub const SYN: u8 = 2;
pub const ACK: u8 = 16;
pub const FIN: u8 = 1;
const LINUX: &[u8] = &[
    2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 9, 0, 0, 0, 0, 1, 3, 3, 7,
];

pub fn ipv4(protocol: u8, from: u8, to: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from, 8, 0, 0x45, 0];
    frame.extend((20 + payload.len() as u16).to_be_bytes());
    frame.extend([
        0, 1, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, from, 10, 0, 0, to,
    ]);
    frame.extend(payload);
    frame
}

fn tcp(segment: &Segment<'_>) -> Vec<u8> {
    let acknowledgement = u8::from(segment.flags & ACK != 0);
    let mut bytes = [segment.from.1.to_be_bytes(), segment.to.1.to_be_bytes()].concat();
    bytes.extend([0, 0, 0, 7, 0, 0, 0, acknowledgement]);
    bytes.extend([((20 + segment.options.len()) * 4) as u8, segment.flags]);
    bytes.extend(segment.window.to_be_bytes());
    bytes.extend([0; 4]);
    bytes.extend(segment.options);
    bytes.extend(segment.payload);
    ipv4(6, segment.from.0, segment.to.0, &bytes)
}

pub fn segment(from: (u8, u16), to: (u8, u16), flags: u8, payload: &[u8]) -> Vec<u8> {
    let (window, options) = match flags {
        SYN => (5840, LINUX),
        flags if flags == SYN | ACK => (5840, &LINUX[..4]),
        _ => (512, &[][..]),
    };
    tcp(&Segment {
        from,
        to,
        flags,
        window,
        options,
        payload,
    })
}

pub fn udp(from: (u8, u16), to: (u8, u16), payload: &[u8]) -> Vec<u8> {
    let length = 8 + payload.len() as u16;
    let mut bytes: Vec<u8> = [from.1, to.1, length, 0]
        .iter()
        .flat_map(|number| number.to_be_bytes())
        .collect();
    bytes.extend(payload);
    ipv4(17, from.0, to.0, &bytes)
}

pub fn arp_reply(from: u8, mac: u8) -> Vec<u8> {
    let mut frame = vec![
        2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, mac, 8, 6, 0, 1, 8, 0, 6, 4, 0, 2,
    ];
    frame.extend([
        2, 0, 0, 0, 0, mac, 10, 0, 0, from, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1,
    ]);
    frame
}

/// A neighbour advertisement of fe80::`from`.
pub fn advertisement(from: u8) -> Vec<u8> {
    let address = |last| {
        let mut address = [0; 16];
        (address[0], address[1], address[15]) = (0xfe, 0x80, last);
        address
    };
    let mut frame = vec![
        0x33, 0x33, 0, 0, 0, 1, 2, 0, 0, 0, 0, from, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 32, 58, 255,
    ];
    frame.extend(address(from));
    frame.extend(address(1));
    frame.extend([136, 0, 0, 0, 0x60, 0, 0, 0]);
    frame.extend(address(from));
    frame.extend([2, 1, 2, 0, 0, 0, 0, from]);
    frame
}

/// A client's DISCOVER, which asks for 10.0.0.`wanted`.
pub fn discover(wanted: u8) -> Vec<u8> {
    let mut message = vec![0; 240];
    message[236..].copy_from_slice(&[99, 130, 83, 99]);
    message.extend([53, 1, 1, 55, 3, 1, 3, 6, 255]);
    message.extend([0; 8]);
    let mut frame = udp((0, 68), (255, 67), &message);
    frame[26..30].copy_from_slice(&[0; 4]);
    // The requested address, in the field of one that the client has.
    frame[14 + 20 + 8 + 12..][..4].copy_from_slice(&[10, 0, 0, wanted]);
    frame
}
