//! `nf-dpi`: takes packets from a network function through shared memory, and says what nDPI says about their flows. The network function starts it.

#[cfg(ndpi)]
mod engine;
#[cfg(ndpi)]
mod ndpi;
#[cfg(ndpi)]
mod sandbox;

use std::process::ExitCode;

use nf_dpi::Child;

fn main() -> ExitCode {
    // Before the standard input is read: a person asks this.
    match std::env::args_os().nth(1) {
        None => {}
        Some(asked) if asked == "--version" || asked == "-V" => {
            println!("nf-dpi {}", env!("CARGO_PKG_VERSION"));
            return ExitCode::SUCCESS;
        }
        Some(other) => {
            eprintln!("nf-dpi: unexpected argument {}, expected --version or none; nf starts this program by itself", other.to_string_lossy());
            return ExitCode::from(2);
        }
    }
    let child = match Child::receive() {
        Ok(child) => child,
        Err(reason) => {
            eprintln!("nf-dpi: {reason}");
            Child::fail(&reason);
            return ExitCode::FAILURE;
        }
    };
    let Err(reason) = run(child);
    eprintln!("nf-dpi: {reason}");
    Child::fail(&reason);
    ExitCode::FAILURE
}

#[cfg(not(ndpi))]
fn run(_: Child) -> Result<std::convert::Infallible, String> {
    Err("this nf-dpi was built without nDPI; install libndpi-dev and build it again".into())
}

/// Works until the owner ends, which ends this process, too.
#[cfg(ndpi)]
fn run(child: Child) -> Result<std::convert::Infallible, String> {
    use nf_dpi::rings::{AnswerWriter, RequestReader};
    use rustix::event::{poll, PollFd, PollFlags};

    /// So many answers wait at most before the owner is told, as long as there are requests.
    const ANSWERS: u32 = 64;

    sandbox::die_with_owner()?;
    let mut engine = engine::Engine::open(child.packets)?;
    let (mut requests, mut answers): (RequestReader<_>, AnswerWriter<_>) = child.rings.program();
    sandbox::confine(child.memory)?;
    let socket = std::io::stdin();
    Child::ready(&engine.catalogue()).map_err(|error| format!("cannot tell the owner: {error}"))?;
    loop {
        let mut silent = 0;
        while let Some(request) = requests.take().map_err(|garbage| garbage.to_string())? {
            if let Some(answer) = engine.answer(&request) {
                answers.write(&answer);
                silent += 1;
            }
            if silent == ANSWERS {
                ring(&child.answers);
                silent = 0;
            }
        }
        if silent > 0 {
            ring(&child.answers);
        }
        if requests.may_sleep() {
            let mut fds = [
                PollFd::new(&child.requests, PollFlags::IN),
                PollFd::new(&socket, PollFlags::IN),
            ];
            let _ = poll(&mut fds, None);
            // The owner sends nothing more: its end is all that there can be.
            if !fds[1].revents().is_empty() {
                std::process::exit(0);
            }
            let _ = rustix::io::read(&child.requests, &mut [0; 8]);
        }
    }
}

#[cfg(ndpi)]
fn ring(bell: &std::os::fd::OwnedFd) {
    // Fails when the bell has 2^64 - 2 unread rings, which are noticed as well.
    let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
}
