//! Workers: forwarding, counting, ticking, idling, and failing.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use nf_runtime::{
    gate::{MemoryStore, Order},
    state::StateBuilder,
    Batch, Context, Instance, NetworkFunction, Options, Prepared, Refusal,
};
use rustix::time::{clock_gettime, ClockId};
use serde_json::json;

use crate::support::{Config, Echo, Rig, SOON};

#[test]
fn each_worker_forwards_its_queues_and_verdicts_are_counted() {
    let rig = Rig::new(2, Config::default());
    for worker in 0..2 {
        rig.wires[0][worker].send(&[b'a', worker as u8]);
        rig.wires[1][worker].send(b"back");
        assert_eq!(rig.out(1, worker), [b'a', worker as u8]);
        assert_eq!(rig.out(0, worker), b"back");
    }
    for frame in [&b"d"[..], b"d", b"n", b"x", b"", b"e", b"last"] {
        rig.wires[0][0].send(frame);
    }
    assert_eq!(rig.out(1, 0), b"e");
    assert_eq!(rig.out(1, 0), b"last");
    assert_eq!(rig.out(0, 0), b"extra");
    rig.instance.stop_workers().unwrap();
    let status = rig.instance.status();
    assert_eq!(status["packets_in"], 11);
    assert_eq!(status["packets_out"], 7);
    let dropped = &status["packets_dropped"];
    assert_eq!(dropped["asked to"], 2);
    assert_eq!(dropped["no verdict"], 1);
    assert_eq!(dropped["empty"], 1);
    assert_eq!(dropped["sent to a port that does not exist"], 1);
    let mut counters = rig.instance.counters().json();
    let all = counters.as_object_mut().unwrap();
    for name in ["busy_ns", "batches"] {
        assert!(all.remove(name).unwrap().as_u64() > Some(0));
    }
    // The overruns of each port.
    let overruns = |port| format!("port_receive_overruns{{port=\"memory{port}\"}}");
    assert!([0, 1].iter().all(|port| all.contains_key(&overruns(port))));
    all.retain(|name, count| !name.starts_with("port_") || *count != 0);
    let expected = json!({
        "packets_in": 11, "bytes_in": 21, "packets_out": 7, "bytes_out": 22,
        "packets_processed{worker=\"0\"}": 9, "packets_processed{worker=\"1\"}": 2,
        "packets_kept_or_relayed": 0, "frames_not_emitted": 0,
        "packets_dropped{reason=\"asked to\"}": 2, "packets_dropped{reason=\"no verdict\"}": 1,
        "packets_dropped{reason=\"empty\"}": 1,
        "packets_dropped{reason=\"sent to a port that does not exist\"}": 1,
        "seen": 11,
    });
    assert_eq!(counters, expected);
}

#[test]
fn many_packets_stay_in_order() {
    let rig = Rig::new(1, Config::default());
    for number in 0..20_000_u32 {
        rig.wires[(number % 2) as usize][0].send(&[&b"a"[..], &number.to_le_bytes()].concat());
    }
    for number in 0..20_000_u32 {
        let frame = rig.out(1 - (number % 2) as usize, 0);
        assert_eq!(frame[1..], number.to_le_bytes());
    }
}

#[test]
fn frames_that_replace_a_packet_leave_in_its_place() {
    let rig = Rig::new(1, Config::default());
    let order = |what: fn() -> Order| rig.instance.gate().order(SOON, |_| vec![what()]).unwrap();
    // Held frames are processed in full batches.
    order(|| Order::Hold(Box::new(MemoryStore::new(16 << 20))));
    for number in 0..Batch::MAX as u8 {
        rig.wires[0][0].send(&[b'r', number, 1, number, 2]);
        rig.wires[0][0].send(&[b'a', number, 3]);
    }
    order(|| Order::Sweep);
    order(|| Order::Run);
    for number in 0..Batch::MAX as u8 {
        assert_eq!(rig.out(1, 0), [number, 1]);
        assert_eq!(rig.out(1, 0), [number, 2]);
        assert_eq!(rig.out(1, 0), [b'a', number, 3]);
    }
}

#[test]
fn a_worker_ticks_when_the_function_wants_it() {
    let rig = Rig::new(
        2,
        Config {
            ticks: true,
            ..Config::default()
        },
    );
    assert_eq!(rig.out(1, 0), b"first tick");
    let ticks = || {
        rig.instance
            .loaded()
            .unwrap()
            .function
            .ticks
            .load(Ordering::Relaxed)
    };
    let end = Instant::now() + SOON;
    while ticks() < 5 {
        assert!(Instant::now() < end);
        std::thread::yield_now();
    }
    rig.instance.configure(Config::default()).unwrap();
    // A tick may be in progress.
    rig.instance.gate().order(SOON, |_| vec![]).unwrap();
    let after = ticks();
    rig.wires[0][0].send(b"a");
    rig.out(1, 0);
    assert!(ticks() <= after + 1);
}

#[test]
fn only_turns_that_brought_packets_are_busy() {
    let rig = Rig::new(1, Config::default());
    let begun = Instant::now();
    for _ in 0..10 {
        rig.wires[0][0].send(b"a");
        rig.out(1, 0);
    }
    // The worker answers after its current turn.
    rig.instance.gate().order(SOON, |_| vec![]).unwrap();
    let elapsed = begun.elapsed().as_nanos() as u64;
    let status = rig.instance.status();
    let busy = status["busy_ns"].as_u64().unwrap();
    assert!(busy > 0 && busy <= elapsed, "{busy} of {elapsed}");
    assert_eq!(status["batches"], 10);
    assert_eq!(rig.instance.counters().json()["busy_ns"], busy);
}

/// Measures CPU time, which other processes do not affect. Other tests of this process would, so it runs in its own process.
#[test]
fn an_idle_instance_takes_no_cpu_time() {
    if std::env::var_os("NF_IDLE_TEST").is_none() {
        let own = std::env::current_exe().unwrap();
        let mut command = std::process::Command::new(own);
        command.args(["--exact", "workers::an_idle_instance_takes_no_cpu_time"]);
        let status = command.env("NF_IDLE_TEST", "1").status().unwrap();
        assert!(status.success());
        return;
    }
    let rig = Rig::new(2, Config::default());
    rig.wires[0][0].send(b"a");
    rig.out(1, 0);
    let cpu = || {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    let before = cpu();
    std::thread::sleep(Duration::from_secs(1));
    let used = cpu() - before;
    assert!(used < Duration::from_millis(10), "{used:?} in a second");
}

#[test]
fn ports_without_a_queue_per_worker_are_refused() {
    let refused = |queues: &[usize]| {
        let mut options = Options::default();
        for (index, queues) in queues.iter().enumerate() {
            let (port, _) = nf_ports::memory::port(index, [0; 6], *queues).unwrap();
            options.ports.push(port);
        }
        let prepared = Prepared::<Echo>::new(Config::default(), 2, None).unwrap();
        Instance::start(options, prepared).err().unwrap().detail
    };
    assert!(refused(&[]).contains("needs at least one port"));
    assert!(refused(&[1]).contains("1 port(s), prepared for 2"));
    assert!(refused(&[2, 1]).contains("port memory1: 1 queues, expected 2"));
}

#[test]
fn a_panicking_function_ends_the_instance_with_an_error() {
    let rig = Rig::new(2, Config::default());
    rig.wires[0][1].send(b"p");
    let refusal = rig.instance.wait().unwrap_err();
    assert!(
        refusal
            .detail
            .contains("worker-1 ended: the network function echo panicked"),
        "{refusal}"
    );
    assert_eq!(
        rig.instance
            .gate()
            .order(SOON, |_| vec![])
            .unwrap_err()
            .detail,
        "worker 1 has ended"
    );
}

/// A function for which the order of all packets matters.
struct Single;

impl NetworkFunction for Single {
    const KIND: &'static str = "single";
    const SUMMARY: &'static str = "for tests";
    const ONE_WORKER: bool = true;
    const SCHEMA: u32 = 1;
    type Config = ();

    fn create((): (), _: &mut StateBuilder) -> Result<Self, Refusal> {
        Ok(Self)
    }

    fn process(&self, _: &mut Batch, _: &Context<'_>) {}

    fn configure(&self, (): ()) -> Result<(), Refusal> {
        Ok(())
    }
}

#[test]
fn a_function_with_one_worker_refuses_more() {
    let start = |queues| {
        let (port, _wires) = nf_ports::memory::port(0, [0; 6], queues).unwrap();
        let mut options = Options::default();
        options.ports.push(port);
        let prepared = Prepared::<Single>::new((), 1, None)?;
        Instance::start(options, prepared).map(|instance| instance.stop_workers())
    };
    let detail = start(3).unwrap_err().to_string();
    assert!(detail.contains("3 workers, expected 1: single"), "{detail}");
    assert!(detail.contains("--workers 1"), "{detail}");
    assert!(start(1).unwrap().is_ok());
}
