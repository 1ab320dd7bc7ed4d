//! Lets the switches on this machine forward all that waits at their ports: what the new instance sends must not overtake what the old one has sent.
//!
//! In each turn the main thread of Open vSwitch's `ovs-vswitchd` polls every port, takes up to 32 packets of each, and then accepts connections to its
//! control socket (`bridge_run`, `unixctl_server_run`). So between the answers on two connections, one after the other, every port was polled. (On one
//! connection a turn answers several requests.) Ports that are polled by threads of their own (DPDK, AF_XDP) do not let packets wait.

use std::{
    io::{self, BufReader, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::net::{connect, socket_with, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde_json::{json, Deserializer, Value};

use crate::Refusal;

/// `NETDEV_MAX_BURST`.
const BATCH: u64 = 32;
/// Before the first answer the switch may have polled too early.
const TURNS: usize = 2;
/// The time in which no backlog comes to be that one more turn does not forward.
const FRESH: Duration = Duration::from_millis(10);
/// The limit of an answer.
const ANSWER: Duration = Duration::from_secs(1);
/// The limit for a switch whose backlog cannot be told from traffic: at 32 packets in each turn, some 160,000/s.
const BACKLOG: Duration = Duration::from_secs(1);
/// The same while packets wait.
const BACKLOG_FROZEN: Duration = Duration::from_millis(50);
const STATISTICS: &str = "dpif-netdev/pmd-stats-show";

/// The switches that packets pass, in this order.
pub(super) struct Passing {
    sockets: Vec<PathBuf>,
    /// When none had a backlog.
    passed: Option<Instant>,
}

impl Passing {
    /// Reads the argument `passes`, the control sockets of the switches.
    pub(super) fn of(arguments: &Value) -> Result<Self, Refusal> {
        let named = match arguments.get("passes") {
            None | Some(Value::Null) => Some(Vec::new()),
            Some(all) => all.as_array().and_then(|all| {
                let text = |each: &Value| each.as_str().map(PathBuf::from);
                all.iter().map(text).collect()
            }),
        };
        let sockets = named.ok_or_else(|| {
            let detail = "\"passes\": expected a list of paths of switches' control sockets";
            Refusal::new("malformed", detail)
        })?;
        Ok(Self {
            sockets,
            passed: None,
        })
    }

    /// Waits until no switch has a backlog, as after it has stood still.
    ///
    /// # Errors
    /// If a switch does not answer.
    pub(super) fn before(&mut self) -> Result<(), Refusal> {
        for socket in &self.sockets {
            empty(socket, BACKLOG).map_err(|error| {
                let detail = format!("a switch on the way does not answer: {error}");
                Refusal::new("switch", detail)
            })?;
        }
        self.passed = Some(Instant::now());
        Ok(())
    }

    /// Waits until all packets sent have passed the switches; returns the reason if some may not have.
    pub(super) fn after(&self) -> Option<String> {
        let is_fresh = self.passed.is_some_and(|passed| passed.elapsed() < FRESH);
        let pass = |socket| {
            if is_fresh {
                (0..TURNS).try_for_each(|_| ask(socket, "version").map(drop))
            } else {
                empty(socket, BACKLOG_FROZEN)
            }
        };
        let failed = self
            .sockets
            .iter()
            .try_for_each(|socket| pass(socket))
            .err();
        failed.map(|error| error.to_string())
    }
}

/// Waits until a switch's main thread has no backlog at its ports, or for this long.
fn empty(socket: &Path, longest: Duration) -> io::Result<()> {
    let end = Instant::now() + longest;
    let mut before = received(socket)?;
    loop {
        let now = received(socket)?;
        if now < before + BATCH || Instant::now() >= end {
            return Ok(());
        }
        before = now;
    }
}

/// Returns how many packets the main thread has taken from ports; 0: it has no datapath in user space.
fn received(socket: &Path) -> io::Result<u64> {
    match ask(socket, STATISTICS) {
        Ok(told) => Ok(packets_received(&told).unwrap_or(0)),
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {
            ask(socket, "version").map(|_| 0) // it lives, or this fails, too
        }
        Err(error) => Err(error),
    }
}

fn packets_received(told: &str) -> Option<u64> {
    let mut lines = told.lines().skip_while(|line| *line != "main thread:");
    let line = lines.nth(1)?.trim_start();
    line.strip_prefix("packets received: ")?.trim().parse().ok()
}

/// Sends a command on a connection of its own; `Unsupported`: the daemon refused it.
fn ask(path: &Path, command: &str) -> io::Result<String> {
    exchange(path, command).map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("{}: {command}: {error}", path.display()),
        )
    })
}

fn exchange(path: &Path, command: &str) -> io::Result<String> {
    // A connection to a daemon that hangs would wait for room in its queue.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    let mut daemon = UnixStream::from(socket);
    daemon.set_nonblocking(false)?;
    daemon.set_read_timeout(Some(ANSWER))?;
    daemon.set_write_timeout(Some(ANSWER))?;
    let request = json!({"id": 0, "method": command, "params": []});
    daemon.write_all(request.to_string().as_bytes())?;
    // JSON-RPC has no framing here: an answer ends where it parses.
    let mut answers = Deserializer::from_reader(BufReader::new(daemon)).into_iter::<Value>();
    let Some(answer) = answers.next() else {
        return Err(io::ErrorKind::UnexpectedEof.into());
    };
    let answer = answer.map_err(io::Error::from)?;
    match answer.get("error") {
        None | Some(Value::Null) => Ok(answer["result"].as_str().unwrap_or_default().into()),
        Some(refused) => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            refused.to_string(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::Read,
        os::unix::net::UnixListener,
        sync::{Arc, Mutex},
        thread,
    };

    use super::*;

    /// A daemon that answers commands, one per connection, until its answers are used up.
    struct Daemon {
        _directory: tempfile::TempDir,
        socket: PathBuf,
        asked: Arc<Mutex<Vec<String>>>,
    }

    impl Daemon {
        fn answering(answers: Vec<Value>) -> Self {
            let directory = tempfile::tempdir().unwrap();
            let socket = directory.path().join("ctl");
            let listener = UnixListener::bind(&socket).unwrap();
            let asked = Arc::<Mutex<Vec<String>>>::default();
            let log = Arc::clone(&asked);
            thread::spawn(move || {
                for answer in answers {
                    let (mut client, _) = listener.accept().unwrap();
                    let mut request = vec![0; 1000];
                    let count = client.read(&mut request).unwrap();
                    let request: Value = serde_json::from_slice(&request[..count]).unwrap();
                    log.lock()
                        .unwrap()
                        .push(request["method"].as_str().unwrap().into());
                    client.write_all(answer.to_string().as_bytes()).unwrap();
                    // The client closes the connection, not the daemon.
                    let _ = client.read(&mut [0; 1]);
                }
            });
            Self {
                _directory: directory,
                socket,
                asked,
            }
        }

        fn asked(&self) -> Vec<String> {
            std::mem::take(&mut self.asked.lock().unwrap())
        }
    }

    fn counted(packets: u64) -> Value {
        let told =
            format!("main thread:\n  packets received: {packets}\n  packet recirculations: 9\n");
        json!({"id": 0, "error": null, "result": told})
    }

    fn version() -> Value {
        json!({"id": 0, "error": null, "result": "ovs-vswitchd"})
    }

    fn refused() -> Value {
        json!({"id": 0, "error": "\"pmd-stats-show\" is not a valid command", "result": null})
    }

    fn passing(daemons: &[&Daemon]) -> Passing {
        let sockets: Vec<_> = daemons.iter().map(|daemon| &daemon.socket).collect();
        Passing::of(&json!({"passes": sockets})).unwrap()
    }

    #[test]
    fn a_backlog_is_awaited_before_and_one_turn_more_after_the_freeze() {
        let busy = [100, 132, 200, 231].map(counted).to_vec();
        let busy = Daemon::answering([busy, vec![version(), version()]].concat());
        let idle = Daemon::answering(vec![counted(5), counted(5), version(), version()]);
        let mut passing = passing(&[&busy, &idle]);
        passing.before().unwrap();
        assert_eq!(busy.asked(), [STATISTICS; 4]);
        assert_eq!(idle.asked(), [STATISTICS; 2]);
        passing.passed = Some(Instant::now());
        assert_eq!(passing.after(), None);
        assert_eq!(
            (busy.asked(), idle.asked()),
            (vec!["version".into(); 2], vec!["version".into(); 2])
        );
    }

    #[test]
    fn a_backlog_may_have_come_to_be_since() {
        let daemon = Daemon::answering([1, 40, 41].map(counted).to_vec());
        assert_eq!(passing(&[&daemon]).after(), None);
        assert_eq!(daemon.asked(), [STATISTICS; 3]);
    }

    #[test]
    fn a_kernel_datapath_has_no_backlog_here() {
        let daemon = Daemon::answering(vec![refused(), version(), refused(), version()]);
        passing(&[&daemon]).before().unwrap();
        assert_eq!(
            daemon.asked(),
            [STATISTICS, "version", STATISTICS, "version"]
        );
    }

    #[test]
    fn a_switch_that_does_not_answer_is_named() {
        let daemon = Daemon::answering(vec![json!({"id": 0, "error": "no", "result": null}); 2]);
        let refusal = passing(&[&daemon]).before().unwrap_err();
        assert_eq!(refusal.code, "switch");
        let missing = Passing::of(&json!({"passes": ["/nonexistent/ctl"]})).unwrap();
        let told = missing.after().unwrap();
        assert!(told.starts_with("/nonexistent/ctl: "), "{told}");
        for wrong in [json!("/ctl"), json!([1])] {
            let refusal = Passing::of(&json!({"passes": wrong})).err().unwrap();
            assert_eq!(refusal.code, "malformed");
        }
    }
}
