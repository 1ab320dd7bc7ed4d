//! `oneswitchd`: presents a server with smart NICs to its SDN controllers as one OpenFlow 1.3 switch.
//!
//! The core decides; this program does the I/O around it. Everything runs on one thread:
//!
//! ```text
//! controllers <-> session \                     / session <-> virt, edge of each switch
//!                          > engine (the core) <
//! REST clients <-> api   /                    | \ saver -> state file
//!                                             journal
//! ```

mod api;
mod aside;
mod config;
mod endpoint;
mod engine;
mod events;
mod journal;
mod log;
mod offload;
mod peers;
mod quiet_unix;
mod server;
mod session;
mod state;
mod stream;
mod subscriptions;
mod tls;
mod unixctl;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::{value_parser, Arg, ArgAction, ArgMatches, Command};
use clap_complete::Shell;

use config::Config;

/// Every rule is a few small long-lived allocations: 400,000 rules took half the CPU time of the C library's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const DEFAULT_CONFIG: &str = "/etc/oneswitch/server.toml";

fn command() -> Command {
    Command::new("oneswitchd")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Present a server with smart NICs to SDN controllers as one OpenFlow 1.3 switch")
        .arg(
            Arg::new("config")
                .long("config")
                .short('c')
                .value_name("FILE")
                .env("ONESWITCH_CONFIG")
                .default_value(DEFAULT_CONFIG)
                .value_parser(value_parser!(PathBuf))
                .help("The server's description"),
        )
        .arg(
            Arg::new("check")
                .long("check")
                .action(ArgAction::SetTrue)
                .help("Check the configuration, the state file, the journal and the certificates, and exit"),
        )
        .arg(
            Arg::new("pidfile")
                .long("pidfile")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help("Write the process id to FILE; remove it at exit"),
        )
        .arg(
            Arg::new("completion")
                .long("completion")
                .value_name("SHELL")
                .value_parser(value_parser!(Shell))
                .help("Print a script with which a shell completes options, and exit"),
        )
}

fn main() -> ExitCode {
    let arguments = command().get_matches();
    let result = match arguments.get_one::<Shell>("completion") {
        Some(&shell) => complete(shell),
        None => check_or_run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            for line in text.lines() {
                eprintln!("oneswitchd: {line}");
            }
            ExitCode::FAILURE
        }
    }
}

fn complete(shell: Shell) -> Result<(), String> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(), "oneswitchd", &mut script);
    let written = io::stdout().write_all(&script);
    written.map_err(|error| format!("the script cannot be written: {error}"))
}

fn check_or_run(arguments: &ArgMatches) -> Result<(), String> {
    let file = arguments
        .get_one::<PathBuf>("config")
        .map_or(Path::new(DEFAULT_CONFIG), PathBuf::as_path);
    let pidfile = arguments.get_one::<PathBuf>("pidfile");
    let config = Config::load(file).map_err(|problems| problems.to_string())?;
    if arguments.get_flag("check") {
        check(&config)
    } else {
        run(&config, pidfile.map(PathBuf::as_path))
    }
}

fn check(config: &Config) -> Result<(), String> {
    let now = Instant::now();
    let mut core = server::build_core(config, now)?;
    if let Some(path) = &config.journal {
        journal::restore(path, &mut core, now)?;
    }
    if let Some(files) = &config.tls {
        tls::Tls::load(files)?;
    }
    println!(
        "{}: ok: {} switches, {} ports",
        config.file,
        config.switches.len(),
        config.ports.len()
    );
    Ok(())
}

fn run(config: &Config, pidfile: Option<&Path>) -> Result<(), String> {
    let levels = log::Levels::new(config.log);
    log::install(&levels);
    let _pidfile = pidfile.map(PidFile::write).transpose()?;
    server::run(config, &levels)
}

/// A file with the process id, which exists while the process lives.
struct PidFile<'a>(&'a Path);

impl<'a> PidFile<'a> {
    fn write(path: &'a Path) -> Result<Self, String> {
        let text = format!("{}\n", std::process::id());
        fs::write(path, text)
            .map_err(|error| format!("{}: cannot be written: {error}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for PidFile<'_> {
    fn drop(&mut self) {
        // Nothing depends on its removal.
        let _ = fs::remove_file(self.0);
    }
}
