//! Sends frames into one interface as fast as possible, or counts them at another: the two ends of a measurement.
//!
//! ```console
//! $ blast send a0 SECONDS BYTES FLOWS     UDP over IPv4, 10.9.0.1 to 10.9.0.2, source ports in turn
//! $ blast count b0 SECONDS                 prints {"frames", "seconds"}
//! ```

#![allow(clippy::unwrap_used)]

use std::{
    env, thread,
    time::{Duration, Instant},
};

use nf_ports::{open, Choice, Frame, Packet, Wanted};

fn frame(bytes: usize, flow: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 9, 2, 2, 0, 0, 0, 9, 1, 8, 0, 0x45, 0];
    frame.resize(bytes.max(60), 0);
    let total = (frame.len() - 14) as u16;
    frame[16..18].copy_from_slice(&total.to_be_bytes());
    frame[22..24].copy_from_slice(&[64, 17]);
    frame[26..34].copy_from_slice(&[10, 9, 0, 1, 10, 9, 0, 2]);
    frame[34..36].copy_from_slice(&(1024 + flow as u16).to_be_bytes());
    frame[36..38].copy_from_slice(&7000_u16.to_be_bytes());
    frame[38..40].copy_from_slice(&(total - 20).to_be_bytes());
    frame
}

fn main() {
    let arguments: Vec<String> = env::args().collect();
    let number = |index: usize| arguments[index].parse::<u64>().unwrap();
    let mut port = open(
        &arguments[2],
        0,
        Wanted {
            choice: Choice::Packet,
            ..Wanted::default()
        },
    )
    .unwrap();
    let queue = &mut port.queues[0];
    let start = Instant::now();
    let end = start + Duration::from_secs(number(3));
    let mut count = 0;
    if arguments[1] == "send" {
        let frames: Vec<Vec<u8>> = (0..number(5))
            .map(|flow| frame(number(4) as usize, flow as usize))
            .collect();
        let all: Vec<Frame> = frames
            .iter()
            .map(|frame| Frame::from(&frame[..]))
            .cycle()
            .take(4096)
            .collect();
        for burst in all.chunks(32).cycle() {
            count += queue.transmit(burst);
            if Instant::now() > end {
                break;
            }
        }
    } else {
        let mut packets: Vec<Packet> = (0..64).map(|_| Packet::new()).collect();
        while Instant::now() < end {
            match queue.receive(&mut packets).unwrap() {
                0 => thread::sleep(Duration::from_micros(200)),
                more => count += more,
            }
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("{{\"frames\": {count}, \"seconds\": {seconds:.3}}}");
}
