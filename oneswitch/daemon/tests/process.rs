//! The program as its users start and stop it, without switches: it waits for missing ones.
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests fail tests

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};

/// A folder with a configuration whose sockets are in it.
struct Fixture {
    folder: tempfile::TempDir,
}

/// A running daemon; killed when the test fails.
struct Daemon {
    process: Child,
    log: BufReader<ChildStderr>,
}

impl Fixture {
    fn new() -> Self {
        let fixture = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        fixture.write("");
        fixture
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes the configuration with further lines in `[oneswitchd]`.
    fn write(&self, more: &str) {
        let folder = self.folder.path().display();
        let text = format!(
            "[oneswitchd]\ndatapath_id = \"0000000000000001\"\nlisten = [\"punix:{folder}/mgmt\"]\n\
             api = \"unix:{folder}/api\"\nstate = \"{folder}/ports.json\"\n{more}\n\
             [[switch]]\nname = \"hypervisor\"\nvirt = \"unix:{folder}/virt\"\nedge = \"unix:{folder}/edge\"\n\
             [[port]]\nnumber = 1\nswitch = \"hypervisor\"\ninterface = \"vm1\"\n"
        );
        fs::write(self.path("server.toml"), text).unwrap();
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_oneswitchd"));
        command.env("ONESWITCH_CONFIG", self.path("server.toml"));
        command
    }

    fn output(&self, arguments: &[&str]) -> Output {
        self.command().args(arguments).output().unwrap()
    }

    /// Returns the error of a start that must fail.
    fn refused(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Starts the daemon and waits until its sockets are open.
    fn start(&self) -> Daemon {
        let pidfile = self.path("pid");
        let mut process = self
            .command()
            .arg("--pidfile")
            .arg(pidfile)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = BufReader::new(process.stderr.take().unwrap());
        let mut daemon = Daemon { process, log };
        daemon.await_line("waits for hypervisor");
        daemon
    }
}

impl Daemon {
    /// Returns the next line of the log that contains the text.
    fn await_line(&mut self, text: &str) -> String {
        let mut line = String::new();
        while self.log.read_line(&mut line).unwrap() > 0 {
            if line.contains(text) {
                return line;
            }
            line.clear();
        }
        panic!("the log ended without \"{text}\"");
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill")
            .arg(format!("-{name}"))
            .arg(self.process.id().to_string())
            .status()
            .unwrap();
        assert!(status.success());
    }

    /// Ends it and returns its exit status.
    fn end(mut self, signal: &str) -> Option<i32> {
        self.signal(signal);
        self.process.wait().unwrap().code()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Completes the handshake and requests the features.
fn ask_features(path: &Path) -> Vec<u8> {
    let mut stream = UnixStream::connect(path).unwrap();
    stream
        .write_all(&[4, 0, 0, 8, 0, 0, 0, 1, 4, 5, 0, 8, 0, 0, 0, 2])
        .unwrap();
    let mut answer = vec![0; 16 + 32];
    stream.read_exact(&mut answer).unwrap();
    answer.split_off(16)
}

#[test]
fn it_answers_without_any_switch_and_leaves_nothing_behind() {
    for signal in ["TERM", "INT"] {
        let fixture = Fixture::new();
        let daemon = fixture.start();
        assert_eq!(
            fs::read_to_string(fixture.path("pid")).unwrap(),
            format!("{}\n", daemon.process.id())
        );
        let reply = ask_features(&fixture.path("mgmt"));
        assert_eq!((reply[1], reply[7], reply[15]), (6, 2, 1));
        assert_eq!(daemon.end(signal), Some(0));
        for name in ["mgmt", "api", "pid"] {
            assert!(!fixture.path(name).exists(), "{name} is left behind");
        }
    }
}

#[test]
fn a_lost_terminal_does_not_end_it() {
    let fixture = Fixture::new();
    let daemon = fixture.start();
    daemon.signal("HUP");
    assert_eq!(ask_features(&fixture.path("mgmt"))[1], 6);
    assert_eq!(daemon.end("TERM"), Some(0));
}

#[test]
fn after_a_kill_it_starts_again() {
    let fixture = Fixture::new();
    let daemon = fixture.start();
    assert_eq!(daemon.end("KILL"), None);
    assert!(
        fixture.path("mgmt").exists(),
        "a killed process does not clean up"
    );
    let daemon = fixture.start();
    assert_eq!(ask_features(&fixture.path("mgmt"))[1], 6);
    assert_eq!(daemon.end("TERM"), Some(0));
}

#[test]
fn a_second_one_is_refused_and_harms_nothing() {
    let fixture = Fixture::new();
    let daemon = fixture.start();
    let complaint = fixture.refused(&[]);
    assert!(
        complaint.contains("mgmt: another process is already listening there"),
        "{complaint}"
    );
    assert_eq!(ask_features(&fixture.path("mgmt"))[1], 6);
    assert_eq!(daemon.end("TERM"), Some(0));
}

#[test]
fn a_switch_that_comes_late_is_connected_to_and_again_when_it_comes_back() {
    let fixture = Fixture::new();
    let mut daemon = fixture.start();
    daemon.await_line("bridge virt");
    for _ in 0..2 {
        let listener = UnixListener::bind(fixture.path("virt")).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&[4, 0, 0, 8, 0, 0, 0, 1]).unwrap();
        daemon.await_line("bridge virt");
        let mut hello = [0; 16];
        stream.read_exact(&mut hello).unwrap();
        assert_eq!(hello[..2], [4, 0]);
        fs::remove_file(fixture.path("virt")).unwrap();
        drop((stream, listener));
        let line = daemon.await_line("disconnected");
        assert!(line.contains("switch hypervisor, bridge virt"), "{line}");
    }
    assert_eq!(daemon.end("TERM"), Some(0));
}

#[test]
fn version_help_and_usage() {
    let fixture = Fixture::new();
    let output = fixture.output(&["--version"]);
    let version = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        version,
        format!("oneswitchd {}\n", env!("CARGO_PKG_VERSION"))
    );
    let help = String::from_utf8(fixture.output(&["--help"]).stdout).unwrap();
    for word in ["--config", "ONESWITCH_CONFIG", "--check", "--pidfile"] {
        assert!(help.contains(word), "{help}");
    }
    let output = fixture.output(&["--nonsense"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn check_reads_everything_and_opens_nothing() {
    let fixture = Fixture::new();
    let output = fixture.output(&["--check"]);
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8(output.stdout)
        .unwrap()
        .contains("server.toml: ok: 1 switches, 1 ports"));
    assert!(!fixture.path("mgmt").exists());

    fs::write(fixture.path("ports.json"), "{").unwrap();
    let complaint = fixture.refused(&["--check"]);
    assert!(
        complaint.contains("ports.json:1: not a state file"),
        "{complaint}"
    );

    fixture.write("log = \"loud\"\ncolour = 1");
    let complaint = fixture.refused(&["--check"]);
    let lines: Vec<_> = complaint.lines().collect();
    assert_eq!(lines.len(), 2, "{complaint}");
    assert!(
        lines[0].contains("server.toml:6: oneswitchd.log: \"loud\""),
        "{complaint}"
    );
    assert!(
        lines[1].contains("server.toml:7: oneswitchd.colour: unknown key"),
        "{complaint}"
    );

    fixture.write("[oneswitchd.tls]\nprivate_key = \"/nowhere/k\"\ncertificate = \"c\"\nca_certificate = \"a\"");
    fs::remove_file(fixture.path("ports.json")).unwrap();
    let complaint = fixture.refused(&["--check"]);
    assert!(complaint.contains("cannot be read"), "{complaint}");

    let complaint = fixture.refused(&["--config", "/nowhere/server.toml"]);
    assert!(
        complaint.contains("/nowhere/server.toml: cannot be read"),
        "{complaint}"
    );
}

#[test]
fn a_file_in_the_way_of_a_socket_is_not_touched() {
    let fixture = Fixture::new();
    fs::write(fixture.path("api"), "precious").unwrap();
    let complaint = fixture.refused(&[]);
    assert!(
        complaint.contains("api exists and is not a socket"),
        "{complaint}"
    );
    assert_eq!(fs::read_to_string(fixture.path("api")).unwrap(), "precious");
    assert!(
        !fixture.path("mgmt").exists(),
        "what was opened is closed again"
    );
}
