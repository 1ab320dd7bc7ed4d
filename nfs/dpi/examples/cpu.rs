//! Measures the CPU time that the program takes for the packets of capture files, from its start to the last verdict: `cpu PROGRAM CAPTURE...`. Each capture has a program
//! of its own, as ndpiReader would, so `time ndpiReader -q -t -i CAPTURE` for each is what to compare with. Prints a line of JSON.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../tests/common/capture.rs"]
mod capture;

use std::{
    collections::HashSet,
    env, fs,
    path::Path,
    sync::mpsc::{self, Receiver},
    time::Duration,
};

use capture::Captured;
use nf_dpi::{Inspector, Packet, Refused, Request, Settings, State};

/// So many packets arrive together: a batch of the runtime.
const BATCH: usize = 64;

#[derive(Default)]
struct Sum {
    captures: u32,
    packets: usize,
    inspected: u64,
    start_ns: u64,
    inspection_ns: u64,
}

fn main() {
    let mut arguments = env::args().skip(1);
    let program = arguments
        .next()
        .unwrap_or_else(|| panic!("usage: cpu PROGRAM CAPTURE..."));
    let mut sum = Sum::default();
    for path in arguments {
        let Some((packets, _)) = capture::read(Path::new(&path)) else {
            continue;
        };
        sum.captures += 1;
        sum.packets += packets.len();
        measure(&program, &packets, &mut sum);
    }
    let Sum {
        captures,
        packets,
        inspected,
        start_ns,
        inspection_ns,
    } = sum;
    let each = inspection_ns.checked_div(inspected).unwrap_or(0);
    println!(
        "{{\"captures\": {captures}, \"packets\": {packets}, \"inspected\": {inspected}, \"start_ns\": {start_ns}, \"inspection_ns\": {inspection_ns}, \"ns_per_inspected\": {each}}}"
    );
}

fn measure(program: &str, packets: &[Captured], sum: &mut Sum) {
    let (sender, bell) = mpsc::channel();
    let wake = move || sender.send(()).unwrap_or_default();
    let inspector = Inspector::start(Settings::new(program.into()), wake).unwrap();
    assert!(inspector.replayed(inspector.generation()));
    let start = cpu(&inspector);
    let (mut decided, mut seen) = (HashSet::new(), HashSet::new());
    for batch in packets.chunks(BATCH) {
        for packet in batch
            .iter()
            .filter(|packet| !decided.contains(&packet.flow))
            .collect::<Vec<_>>()
        {
            seen.insert(packet.flow);
            let request = Request::Packet(Packet {
                flow: packet.flow,
                sequence: 0,
                time_ms: packet.time_ms,
                bytes: &packet.bytes,
            });
            submit(&inspector, &bell, request, &mut decided);
            sum.inspected += 1;
        }
        poll(&inspector, &bell, &mut decided);
    }
    for flow in &seen {
        submit(
            &inspector,
            &bell,
            Request::GiveUp {
                flow: *flow,
                sequence: 1,
            },
            &mut decided,
        );
    }
    poll(&inspector, &bell, &mut decided);
    sum.start_ns += start;
    sum.inspection_ns += cpu(&inspector) - start;
}

fn submit(
    inspector: &Inspector,
    bell: &Receiver<()>,
    request: Request<'_>,
    decided: &mut HashSet<u64>,
) {
    while inspector.submit(request) == Err(Refused::Full) {
        poll(inspector, bell, decided);
    }
}

/// Takes all answers, and waits for those that are missing.
fn poll(inspector: &Inspector, bell: &Receiver<()>, decided: &mut HashSet<u64>) {
    while inspector.status().outstanding > 0 {
        let taken = inspector.poll(|answer| {
            if answer.state == State::Final {
                decided.insert(answer.flow);
            }
        });
        if taken == 0 {
            bell.recv_timeout(Duration::from_secs(60)).unwrap();
        }
    }
}

/// The program's time on a CPU so far, in nanoseconds.
fn cpu(inspector: &Inspector) -> u64 {
    let pid = inspector.status().pid.unwrap();
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}
