//! Lets the switches on this machine forward all that waits at their ports: what the new instance sends must not overtake what the old one has sent.
//!
//! In each turn the main thread of Open vSwitch's `ovs-vswitchd` polls every port, takes up to 32 packets of each, and then accepts connections to its
//! control socket (`bridge_run`, `unixctl_server_run`). So between the answers on two connections, one after the other, every port was polled. (On one
//! connection a turn answers several requests.) Ports that are polled by threads of their own (DPDK, AF_XDP) do not let packets wait.
//!
//! While packets wait, new connections would take longer than the turns: of each, the daemon accepts it, and has one more turn to notice its end; and
//! each answer waits for this thread to run. So they are kept from before. A turn answers at most ten requests of a connection (`run_connection`): of
//! eleven that are sent at once, the last one's answer is of a later turn than the first one's. A thread that waited for the first ten would be woken
//! ten times, which costs the daemon as much as answering does; so it waits on a second kept connection, whose turn comes after theirs.

use std::{
    io::{self, BufReader, ErrorKind, Read, Write},
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
/// The command that costs the daemon nothing but a turn.
const VERSION: &str = "version";
/// The longest answer to it.
const LONGEST: usize = 4096;
/// The requests that one turn does not answer.
const TOO_MANY: usize = 11;

/// The switches that packets pass, in this order.
pub(super) struct Passing {
    switches: Vec<Switch>,
    /// When none had a backlog.
    passed: Option<Instant>,
}

struct Switch {
    socket: PathBuf,
    kept: Option<Line>,
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
        let sockets: Vec<PathBuf> = named.ok_or_else(|| {
            let detail = "\"passes\": expected a list of paths of switches' control sockets";
            Refusal::new("malformed", detail)
        })?;
        let switch = |socket| Switch { socket, kept: None };
        Ok(Self {
            switches: sockets.into_iter().map(switch).collect(),
            passed: None,
        })
    }

    /// Waits until no switch has a backlog, as after it has stood still, and prepares for `after`.
    ///
    /// # Errors
    /// If a switch does not answer.
    pub(super) fn before(&mut self) -> Result<(), Refusal> {
        for switch in &mut self.switches {
            switch.prepare().map_err(|error| {
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
        let pass = |switch: &Switch| match is_fresh {
            true => switch.turn(),
            false => empty(&switch.socket, BACKLOG_FROZEN),
        };
        let failed = self.switches.iter().try_for_each(pass).err();
        failed.map(|error| error.to_string())
    }
}

impl Switch {
    fn prepare(&mut self) -> io::Result<()> {
        let line = Line::open(&self.socket);
        self.kept = Some(line.map_err(|error| explained(&self.socket, VERSION, &error))?);
        empty(&self.socket, BACKLOG)
    }

    /// Waits until every port was polled once more.
    fn turn(&self) -> io::Result<()> {
        match self.kept.as_ref().map(Line::turn) {
            Some(Ok(())) => return Ok(()),
            // It hangs: asking in another way would wait as long again.
            Some(Err(error)) if error.kind() == ErrorKind::WouldBlock => {
                return Err(explained(&self.socket, VERSION, &error));
            }
            // It has been restarted, for example.
            Some(Err(_)) | None => {}
        }
        (0..TURNS).try_for_each(|_| ask(&self.socket, VERSION).map(drop))
    }
}

/// Connections to a daemon on which one command is repeated, so that its answers need no parsing.
struct Line {
    /// Accepted first, so that each turn answers it first (`unixctl_server_run`).
    daemon: UnixStream,
    /// Tells that a turn has answered what it could.
    bell: UnixStream,
    requests: Vec<u8>,
    answers: Vec<u8>,
}

impl Line {
    fn open(path: &Path) -> io::Result<Self> {
        let request = request(VERSION).into_bytes();
        let (daemon, answer) = first_answer(path, &request)?;
        let (bell, _) = first_answer(path, &request)?;
        Ok(Self {
            daemon,
            bell,
            requests: request.repeat(TOO_MANY),
            answers: answer.repeat(TOO_MANY),
        })
    }

    /// Asks so often that more than one turn answers, and waits for the same answers as before.
    fn turn(&self) -> io::Result<()> {
        (&self.daemon).write_all(&self.requests)?;
        (&self.bell).write_all(&self.requests[..self.requests.len() / TOO_MANY])?;
        expect(&self.bell, &self.answers[..self.answers.len() / TOO_MANY])?;
        expect(&self.daemon, &self.answers)
    }
}

/// Opens a connection and asks once; returns it with the answer.
fn first_answer(path: &Path, request: &[u8]) -> io::Result<(UnixStream, Vec<u8>)> {
    let mut daemon = dial(path)?;
    daemon.write_all(request)?;
    let (mut answer, mut part) = (Vec::new(), [0; LONGEST]);
    loop {
        match daemon.read(&mut part)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            count => answer.extend_from_slice(&part[..count]),
        }
        match serde_json::from_slice::<Value>(&answer) {
            Ok(_) => return Ok((daemon, answer)),
            Err(error) if error.is_eof() && answer.len() < LONGEST => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Reads these bytes.
fn expect(mut daemon: &UnixStream, mut answers: &[u8]) -> io::Result<()> {
    let mut part = [0; LONGEST];
    while !answers.is_empty() {
        let count = match daemon.read(&mut part)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            count => count,
        };
        answers = answers.strip_prefix(&part[..count]).ok_or_else(|| {
            io::Error::new(ErrorKind::InvalidData, "it answers otherwise than before")
        })?;
    }
    Ok(())
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
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            ask(socket, VERSION).map(|_| 0) // it lives, or this fails, too
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
    exchange(path, command).map_err(|error| explained(path, command, &error))
}

fn explained(path: &Path, command: &str, error: &io::Error) -> io::Error {
    let told = format!("{}: {command}: {error}", path.display());
    io::Error::new(error.kind(), told)
}

fn request(command: &str) -> String {
    json!({"id": 0, "method": command, "params": []}).to_string()
}

/// Connects to a daemon; waits for its answers are limited.
fn dial(path: &Path) -> io::Result<UnixStream> {
    // A connection to a daemon that hangs would wait for room in its queue.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    let daemon = UnixStream::from(socket);
    daemon.set_nonblocking(false)?;
    daemon.set_read_timeout(Some(ANSWER))?;
    daemon.set_write_timeout(Some(ANSWER))?;
    Ok(daemon)
}

fn exchange(path: &Path, command: &str) -> io::Result<String> {
    let mut daemon = dial(path)?;
    daemon.write_all(request(command).as_bytes())?;
    // JSON-RPC has no framing here: an answer ends where it parses.
    let mut answers = Deserializer::from_reader(BufReader::new(daemon)).into_iter::<Value>();
    let Some(answer) = answers.next() else {
        return Err(ErrorKind::UnexpectedEof.into());
    };
    let answer = answer.map_err(io::Error::from)?;
    match answer.get("error") {
        None | Some(Value::Null) => Ok(answer["result"].as_str().unwrap_or_default().into()),
        Some(refused) => Err(io::Error::new(ErrorKind::Unsupported, refused.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::net::UnixListener,
        sync::{
            atomic::{AtomicU64, Ordering},
            Arc, Mutex,
        },
        thread,
    };

    use super::*;

    type Log = Arc<Mutex<Vec<(usize, String)>>>;

    /// A daemon that answers commands on any number of connections.
    struct Daemon {
        _directory: tempfile::TempDir,
        socket: PathBuf,
        /// The connection, by its number, and the command.
        asked: Log,
    }

    impl Daemon {
        /// `answer`: to a command; `None`: the connection ends.
        fn answering(answer: impl Fn(&str) -> Option<Value> + Send + Sync + 'static) -> Self {
            let directory = tempfile::tempdir().unwrap();
            let socket = directory.path().join("ctl");
            let listener = UnixListener::bind(&socket).unwrap();
            let (asked, answer) = (Log::default(), Arc::new(answer));
            let log = Arc::clone(&asked);
            thread::spawn(move || {
                for (number, client) in listener.incoming().enumerate() {
                    let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
                    thread::spawn(move || serve(number, client.unwrap(), &log, answer.as_ref()));
                }
            });
            Self {
                _directory: directory,
                socket,
                asked,
            }
        }

        /// Reports these numbers of packets, one after the other.
        fn counting(packets: Vec<u64>) -> Self {
            let next = AtomicU64::new(0);
            Self::answering(move |command| match command {
                STATISTICS => {
                    let next = next.fetch_add(1, Ordering::Relaxed) as usize;
                    Some(counted(*packets.get(next)?))
                }
                _ => Some(version()),
            })
        }

        fn asked(&self) -> Vec<(usize, String)> {
            std::mem::take(&mut self.asked.lock().unwrap())
        }
    }

    fn serve(
        number: usize,
        mut client: UnixStream,
        log: &Log,
        answer: &dyn Fn(&str) -> Option<Value>,
    ) {
        let requests = Deserializer::from_reader(client.try_clone().unwrap()).into_iter::<Value>();
        for request in requests.map_while(Result::ok) {
            let command = request["method"].as_str().unwrap();
            log.lock().unwrap().push((number, command.into()));
            let Some(answer) = answer(command) else {
                return;
            };
            client.write_all(answer.to_string().as_bytes()).unwrap();
        }
    }

    fn asked(commands: &[(usize, &str)]) -> Vec<(usize, String)> {
        let owned = commands.iter().map(|(number, c)| (*number, (*c).into()));
        owned.collect()
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
        let busy = Daemon::counting(vec![100, 132, 200, 231]);
        let idle = Daemon::counting(vec![5, 5]);
        let mut passing = passing(&[&busy, &idle]);
        passing.before().unwrap();
        let kept = [(0, VERSION), (1, VERSION)];
        let counts = [2, 3, 4, 5].map(|number| (number, STATISTICS));
        assert_eq!(busy.asked(), asked(&[&kept[..], &counts].concat()));
        assert_eq!(idle.asked(), asked(&[&kept[..], &counts[..2]].concat()));
        passing.passed = Some(Instant::now());
        assert_eq!(passing.after(), None);
        let turn = asked(&[&[(0, VERSION); 11][..], &[(1, VERSION)]].concat());
        for daemon in [busy, idle] {
            let mut told = daemon.asked();
            told.sort(); // by connections, which it serves on a thread each
            assert_eq!(told, turn);
        }
    }

    /// Returns on which connections, beside the two kept ones, a daemon is asked for its version after the freeze. It gives `odd` as the answer to one
    /// such request, the first two of which prepare the kept connections.
    fn others_asked(odd_request: u64, odd: fn() -> Option<Value>) -> Vec<usize> {
        let versions = AtomicU64::new(0);
        let daemon = Daemon::answering(move |command| match command {
            STATISTICS => Some(counted(5)),
            _ if versions.fetch_add(1, Ordering::Relaxed) == odd_request => odd(),
            _ => Some(version()),
        });
        let mut passing = passing(&[&daemon]);
        passing.before().unwrap();
        daemon.asked();
        passing.passed = Some(Instant::now());
        assert_eq!(passing.after(), None);
        daemon
            .asked()
            .into_iter()
            .map(|(number, _)| number)
            .filter(|number| *number > 1)
            .collect()
    }

    #[test]
    fn a_daemon_that_closed_a_kept_connection_is_asked_on_others() {
        assert_eq!(others_asked(2, || None), [4, 5]);
        assert_eq!(others_asked(13, || None), [4, 5]);
    }

    #[test]
    fn a_daemon_that_answers_otherwise_is_asked_on_other_connections() {
        assert_eq!(others_asked(5, || Some(refused())), [4, 5]);
    }

    #[test]
    fn a_backlog_may_have_come_to_be_since() {
        let daemon = Daemon::counting(vec![1, 40, 41]);
        assert_eq!(passing(&[&daemon]).after(), None);
        let counts = [0, 1, 2].map(|number| (number, STATISTICS));
        assert_eq!(daemon.asked(), asked(&counts));
    }

    #[test]
    fn a_kernel_datapath_has_no_backlog_here() {
        let daemon = Daemon::answering(|command| match command {
            STATISTICS => Some(refused()),
            _ => Some(version()),
        });
        passing(&[&daemon]).before().unwrap();
        let commands: Vec<_> = daemon.asked().into_iter().map(|(_, c)| c).collect();
        assert_eq!(
            commands,
            [VERSION, VERSION, STATISTICS, VERSION, STATISTICS, VERSION]
        );
    }

    #[test]
    fn a_switch_that_does_not_answer_is_named() {
        let refuses = |_: &str| Some(json!({"id": 0, "error": "no", "result": null}));
        let daemon = Daemon::answering(refuses);
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
