//! Runs network functions: one binary, all kinds. See `nfs/README.md`.

mod check;
mod config;
mod failure;
mod forward;
mod kinds;
mod replay;
mod run;
mod signer;
mod table;

use std::{io, io::Write, path::PathBuf, process::ExitCode};

use clap::{value_parser, Arg, ArgAction, ArgMatches, Command};
use clap_complete::Shell;
use nf_ports::Choice;
use serde_json::json;

use failure::Failure;
use kinds::{find, KINDS};
use replay::Files;
use run::Running;
use table::{Chosen, EdgePort};

fn command() -> Command {
    let kind = || {
        Arg::new("kind")
            .value_name("KIND")
            .required(true)
            .help("A kind listed by `nf list`")
    };
    let path = |name: &'static str| Arg::new(name).value_parser(value_parser!(PathBuf));
    let config = || {
        path("config")
            .long("config")
            .value_name("FILE")
            .required(true)
            .help("The configuration, .toml or .json")
    };
    let run = Command::new("run")
        .about("Run a network function on network interfaces")
        .arg(kind())
        .arg(config())
        .arg(
            Arg::new("port")
                .long("port")
                .value_name("IF")
                .required(true)
                .action(ArgAction::Append)
                .help("A network interface. Given once: packets addressed to it leave by it again. Given twice: a bump in the wire"),
        )
        .arg(path("control").long("control").value_name("SOCKET").help("Path of the control socket"))
        .arg(
            Arg::new("backend")
                .long("backend")
                .value_parser(["auto", "xdp", "packet"])
                .default_value("auto")
                .help("AF_XDP, AF_PACKET, or the first that works"),
        )
        .arg(
            Arg::new("workers")
                .long("workers")
                .value_name("N")
                .value_parser(value_parser!(u16).range(1..=256))
                .default_value("1")
                .help("Number of threads, each with a queue of every port"),
        )
        .arg(Arg::new("hold").long("hold").action(ArgAction::SetTrue).help("Hold arriving packets until a migration commits"))
        .arg(
            Arg::new("arena-fd")
                .long("arena-fd")
                .value_name("N")
                .value_parser(value_parser!(u32))
                .help("Adopt the state behind this file descriptor, whose owner has ended"),
        )
        .arg(
            Arg::new("rings-fd")
                .long("rings-fd")
                .value_name("N")
                .value_parser(value_parser!(u32))
                .requires("arena-fd")
                .help("First process the packets left in the rings behind this file descriptor"),
        )
        .arg(
            Arg::new("offload")
                .long("offload")
                .value_name("TABLE")
                .help("A faster table for heavy flows: the path of oneswitchd's offload socket; xdp or ntuple, a program on the port or the rules of its network card, which mark their packets; or tnic: and the path of a T-NIC's socket"),
        )
        .arg(
            Arg::new("offload-port")
                .long("offload-port")
                .value_name("N")
                .value_parser(value_parser!(u32).range(1..=65023))
                .action(ArgAction::Append)
                .requires("offload")
                .help("Number of the virtual port that --port is; one for each --port, in the same order"),
        )
        .arg(
            Arg::new("offload-owner")
                .long("offload-owner")
                .value_name("OWNER")
                .requires("offload")
                .help("Owner of the virtual ports"),
        );
    let check = Command::new("check")
        .about("Examine a configuration as `run` would, without interfaces; says what is wrong")
        .arg(kind())
        .arg(config())
        .arg(
            Arg::new("ports")
                .long("ports")
                .value_name("N")
                .value_parser(value_parser!(u16).range(1..=2))
                .default_value("1")
                .help("Number of interfaces that it will have"),
        );
    let list = Command::new("list")
        .about("Print the kinds of network functions")
        .arg(
            Arg::new("format")
                .long("format")
                .value_parser(["text", "json"])
                .default_value("text"),
        );
    let replay = Command::new("replay")
        .about("Send a capture file through a network function; prints a summary as JSON")
        .arg(kind())
        .arg(
            path("input")
                .value_name("IN.pcap")
                .required(true)
                .help("Capture file to read; its packets arrive by the first port"),
        )
        .arg(
            path("output")
                .value_name("OUT.pcap")
                .required(true)
                .help("Capture file to write, with the packets sent by any port"),
        )
        .arg(config());
    let signer = Command::new("signer")
        .about("Hold a private key, and sign TLS handshakes of functions with it")
        .arg(
            path("key")
                .long("key")
                .value_name("FILE")
                .required(true)
                .help("The private key, a PEM file"),
        )
        .arg(
            Arg::new("listen")
                .long("listen")
                .value_name("ADDRESS")
                .required(true)
                .value_parser(signer::address)
                .help("unix: and the path of a socket, which only the same user can open"),
        );
    Command::new("nf")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Runs network functions")
        .subcommand_required(true)
        .subcommands([run, check, list, replay, signer, completion()])
}

fn completion() -> Command {
    Command::new("completion")
        .about("Print a script that completes commands and options")
        .arg(
            Arg::new("shell")
                .value_name("SHELL")
                .required(true)
                .value_parser(value_parser!(Shell))
                .help("The shell that reads the script"),
        )
}

fn main() -> ExitCode {
    let matches = command().get_matches();
    let done = match matches.subcommand() {
        Some(("run", arguments)) => run_kind(arguments),
        Some(("check", arguments)) => check_kind(arguments),
        Some(("replay", arguments)) => replay_kind(arguments),
        Some(("signer", arguments)) => {
            signer::run(required(arguments, "key"), required(arguments, "listen"))
        }
        Some(("completion", arguments)) => complete(arguments),
        Some((_, arguments)) => {
            list(arguments);
            Ok(())
        }
        None => Ok(()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("nf: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn text<'a>(arguments: &'a ArgMatches, name: &str) -> &'a str {
    arguments.get_one::<String>(name).map_or("", String::as_str)
}

fn file<'a>(arguments: &'a ArgMatches, name: &str) -> Option<&'a std::path::Path> {
    arguments.get_one::<PathBuf>(name).map(PathBuf::as_path)
}

fn required<'a>(arguments: &'a ArgMatches, name: &str) -> &'a std::path::Path {
    file(arguments, name).unwrap_or(std::path::Path::new(""))
}

fn run_kind(arguments: &ArgMatches) -> Result<(), Failure> {
    let kind = find(text(arguments, "kind"))?;
    let ports = arguments.get_many::<String>("port").unwrap_or_default();
    (kind.run)(&Running {
        config: required(arguments, "config"),
        ports: ports.map(String::as_str).collect(),
        backend: match text(arguments, "backend") {
            "xdp" => Choice::Xdp,
            "packet" => Choice::Packet,
            _ => Choice::Auto,
        },
        workers: arguments
            .get_one::<u16>("workers")
            .copied()
            .map_or(1, usize::from),
        control: file(arguments, "control"),
        hold: arguments.get_flag("hold"),
        arena: arguments.get_one::<u32>("arena-fd").copied(),
        rings: arguments.get_one::<u32>("rings-fd").copied(),
        table: table(arguments)?,
    })
}

fn table(arguments: &ArgMatches) -> Result<Option<Chosen>, Failure> {
    let Some(named) = arguments.get_one::<String>("offload") else {
        return Ok(None);
    };
    let edge = EdgePort {
        ports: arguments
            .get_many::<u32>("offload-port")
            .unwrap_or_default()
            .copied()
            .collect(),
        owner: arguments.get_one::<String>("offload-owner").cloned(),
    };
    Chosen::of(named, edge).map(Some)
}

fn check_kind(arguments: &ArgMatches) -> Result<(), Failure> {
    let kind = find(text(arguments, "kind"))?;
    let ports = arguments.get_one::<u16>("ports").copied();
    (kind.check)(required(arguments, "config"), ports.map_or(1, usize::from))
}

fn replay_kind(arguments: &ArgMatches) -> Result<(), Failure> {
    let kind = find(text(arguments, "kind"))?;
    (kind.replay)(&Files {
        config: required(arguments, "config"),
        input: required(arguments, "input"),
        output: required(arguments, "output"),
    })
}

fn complete(arguments: &ArgMatches) -> Result<(), Failure> {
    let mut script = Vec::new();
    if let Some(&shell) = arguments.get_one::<Shell>("shell") {
        clap_complete::generate(shell, &mut command(), "nf", &mut script);
    }
    let written = io::stdout().write_all(&script);
    written.map_err(|error| Failure::new(format!("the script cannot be written: {error}")))
}

fn list(arguments: &ArgMatches) {
    if text(arguments, "format") == "json" {
        let each = |kind: &kinds::Kind| json!({ "kind": kind.name, "summary": kind.summary, "schema": kind.schema, "offloaded_ports": kind.offloaded_ports, "files": kind.files });
        println!("{}", json!(KINDS.iter().map(each).collect::<Vec<_>>()));
        return;
    }
    for kind in KINDS {
        println!("{:10} {}", kind.name, kind.summary);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_consistent() {
        super::command().debug_assert();
    }
}
