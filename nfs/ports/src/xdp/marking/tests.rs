//! The program on frames made by hand, in the kernel; without the right to load programs, these tests check nothing.

use super::*;
use crate::xdp::{
    assembly::Assembly,
    bpf::{load, run},
};

const TCP: u8 = 6;
const UDP: u8 = 17;
const ACK: u8 = 0x10;

/// Returns the map and the program, whose action is 2 whether or not a frame has a mark. None: the kernel does not allow it.
fn program(flows: u32) -> Option<(Arc<Marks>, std::os::fd::OwnedFd)> {
    let marks = match marks(flows) {
        Ok(marks) => marks,
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => return None,
        Err(error) => panic!("{error}"),
    };
    let mut code = Assembly::default();
    let pass = code.label();
    code.copy(CONTEXT, 1);
    write(&mut code, &marks, pass);
    code.place(pass);
    code.set(0, 2);
    code.exit();
    let program = load(&code.finish()).unwrap();
    Some((Arc::new(marks), program))
}

fn flow(ports: (u16, u16), protocol: u8, is_ipv6: bool) -> Match {
    let address = |last| {
        let mut bytes = [0; 16];
        bytes[15] = last;
        if is_ipv6 {
            bytes[0] = 0xfd;
        } else {
            bytes[10..13].copy_from_slice(&[0xff, 0xff, 10]);
        }
        bytes
    };
    Match {
        source: address(1),
        destination: address(2),
        source_port: ports.0,
        destination_port: ports.1,
        protocol,
    }
}

/// Returns a frame of a flow.
fn frame(flow: &Match, flags: u8) -> Vec<u8> {
    let is_ipv6 = flow.source[0] == 0xfd;
    let mut bytes = vec![2; 12];
    if is_ipv6 {
        bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, flow.protocol, 64]);
        bytes.extend(flow.source);
        bytes.extend(flow.destination);
    } else {
        bytes.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, flow.protocol, 0, 0]);
        bytes.extend(&flow.source[12..]);
        bytes.extend(&flow.destination[12..]);
    }
    bytes.extend(flow.source_port.to_be_bytes());
    bytes.extend(flow.destination_port.to_be_bytes());
    bytes.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, flags, 1, 0, 0, 0, 0, 0]);
    bytes
}

fn mark(program: &std::os::fd::OwnedFd, frame: &[u8]) -> Option<u32> {
    let (action, out) = run(program, frame).unwrap();
    assert_eq!(action, 2);
    assert_eq!(&out[BYTES..], frame, "the frame has changed");
    mark_of(*out.first_chunk().unwrap())
}

#[test]
fn frames_of_a_flow_get_its_mark_and_no_others() {
    let Some((marks, program)) = program(16) else {
        return;
    };
    let mut marking = Marking::new(marks, 16, Vec::new()).unwrap();
    let kinds = [(TCP, false), (UDP, false), (TCP, true), (UDP, true)];
    for (number, (protocol, is_ipv6)) in (0..).zip(kinds) {
        let own = flow((1000, 80), protocol, is_ipv6);
        assert_eq!(mark(&program, &frame(&own, ACK)), None);
        marking.put(&own, number).unwrap();
        assert_eq!(mark(&program, &frame(&own, ACK)), Some(number));
        assert_eq!(mark(&program, &frame(&own, ACK)[..53]), None);
        for other in [
            flow((1001, 80), protocol, is_ipv6),
            flow((1000, 81), protocol, is_ipv6),
            flow((1000, 80), 132, is_ipv6),
            flow((1000, 80), UDP + TCP - protocol, !is_ipv6),
            Match {
                source: own.destination,
                destination: own.source,
                ..own
            },
        ] {
            let found = mark(&program, &frame(&other, ACK));
            assert!(
                found.is_none_or(|found| found < number),
                "{other:?}: {found:?}"
            );
        }
        marking.put(&own, number + 100).unwrap();
        assert_eq!(mark(&program, &frame(&own, ACK)), Some(number + 100));
        marking.put(&own, number).unwrap();
    }
    let own = flow((1000, 80), TCP, false);
    marking.remove(&own).unwrap();
    let moment = marking.wait().unwrap();
    assert!(marking.is_past(&moment), "no ring has frames");
    assert_eq!(mark(&program, &frame(&own, ACK)), None);
    marking.remove(&own).unwrap();
}

#[test]
fn the_ends_of_connections_fragments_and_options_get_no_mark() {
    let Some((marks, program)) = program(16) else {
        return;
    };
    let mut marking = Marking::new(marks, 16, Vec::new()).unwrap();
    for is_ipv6 in [false, true] {
        let own = flow((1000, 80), TCP, is_ipv6);
        marking.put(&own, 7).unwrap();
        for flags in 0..=u8::MAX {
            let expected = (flags & 7 == 0).then_some(7);
            assert_eq!(
                mark(&program, &frame(&own, flags)),
                expected,
                "flags {flags:#x}"
            );
        }
    }
    let own = frame(&flow((1000, 80), TCP, false), ACK);
    for (at, byte) in [(14, 0x46), (20, 0x20), (21, 1), (12, 9)] {
        let mut other = own.clone();
        other[at] = byte;
        assert_eq!(mark(&program, &other), None, "byte {at}");
    }
}

#[test]
fn a_full_table_refuses_a_flow_and_an_entry_is_free_after_its_removal() {
    let Some((marks, _program)) = program(2) else {
        return;
    };
    let mut marking = Marking::new(marks, 2, Vec::new()).unwrap();
    let each = |port| flow((port, 80), TCP, false);
    marking.put(&each(1), 1).unwrap();
    marking.put(&each(2), 2).unwrap();
    let refused = marking.put(&each(3), 3).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::E2BIG));
    marking.remove(&each(1)).unwrap();
    marking.put(&each(3), 3).unwrap();
}
