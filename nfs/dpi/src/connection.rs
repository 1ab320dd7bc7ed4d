//! The start of the program: the owner hands it the rings and the bells over a socket, its standard input, and it answers with its catalogue. After that the
//! socket only shows each side that the other has ended.

use std::{
    io::{self, IoSlice, IoSliceMut, Read},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::process::CommandExt,
    },
    process::{self, Command, Stdio},
    time::Duration,
};

use nf_arena::{Arena, Region};
use rustix::{
    event::{poll, PollFd, PollFlags, Timespec},
    net::{
        recvmsg, sendmsg, socketpair, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage,
        RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    },
};

use crate::{rings::Rings, Catalogue, Packets, Settings};

/// The first word of the owner's message. A program of another version does not know it.
const GREETING: &str = "nf-dpi/1";
const READY: &str = "ready\n";
const FAILED: &str = "failed\n";
/// The longest message.
const MESSAGE: usize = 128 * 1024;
/// How long the program may take to start, on a machine that is busy with other things.
const START: Duration = Duration::from_secs(20);
/// The longest message of a program that does not start.
const LAST_WORDS: u64 = 4096;

/// A program that has started.
#[derive(Debug)]
pub struct Ready {
    pub process: process::Child,
    /// Hangs up when the program has ended.
    pub socket: OwnedFd,
    pub catalogue: Catalogue,
}

impl Ready {
    /// Starts the program. The calling thread must live as long as the program: it ends with that thread.
    ///
    /// # Errors
    /// If the program cannot be started, or says why it cannot work.
    pub fn start(
        settings: &Settings,
        arena: &Arena,
        bells: [BorrowedFd<'_>; 2],
    ) -> Result<Self, String> {
        let path = settings.program.display();
        let failed = |error: &dyn std::fmt::Display| format!("cannot start {path}: {error}");
        let kind = SocketType::SEQPACKET;
        let (socket, theirs) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)
            .map_err(|error| failed(&error))?;
        let mut process = Command::new(&settings.program)
            .env_clear()
            .envs(std::env::vars_os().filter(|(name, _)| name == "LD_LIBRARY_PATH"))
            .current_dir("/")
            // A signal to the owner's group, such as a terminal's, is for the owner.
            .process_group(0)
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| failed(&error))?;
        match greet(&socket, settings, arena, bells) {
            Ok(catalogue) => Ok(Self {
                process,
                socket,
                catalogue,
            }),
            Err(reason) => {
                let _ = process.kill();
                let mut words = String::new();
                if let Some(errors) = process.stderr.take() {
                    let _ = errors.take(LAST_WORDS).read_to_string(&mut words);
                }
                let ended = process.wait().map_err(|error| failed(&error))?;
                let words = words.trim();
                let words = if words.is_empty() {
                    String::new()
                } else {
                    format!("; it said: {words}")
                };
                Err(failed(&format!("{reason} ({ended}){words}")))
            }
        }
    }
}

fn greet(
    socket: &OwnedFd,
    settings: &Settings,
    arena: &Arena,
    [requests, answers]: [BorrowedFd<'_>; 2],
) -> Result<Catalogue, String> {
    let Packets { tcp, udp } = settings.packets;
    let text = format!("{GREETING} {tcp} {udp} {}", settings.memory);
    // An error here and below means that it has ended, which shows as the end of the stream.
    let _ = send(socket, text.as_bytes(), &[arena.as_fd(), requests, answers]);
    let mut sockets = [PollFd::new(socket, PollFlags::IN)];
    let limit = Timespec {
        tv_sec: START.as_secs() as i64,
        tv_nsec: 0,
    };
    if poll(&mut sockets, Some(&limit)).map_err(|error| error.to_string())? == 0 {
        return Err(format!("it is not ready after {START:?}"));
    }
    let mut bytes = vec![0; MESSAGE];
    let (length, _) = receive(socket, &mut bytes).unwrap_or_default();
    let text = std::str::from_utf8(&bytes[..length])
        .map_err(|_| "it answers with other bytes than text".to_owned())?;
    if let Some(lines) = text.strip_prefix(READY) {
        return Catalogue::parse(lines).map_err(|what| format!("it answers with {what}"));
    }
    Err(match text.strip_prefix(FAILED) {
        Some(reason) => reason.to_owned(),
        None if text.is_empty() => "it ended".to_owned(),
        None => "it answers with something else".to_owned(),
    })
}

/// The program's side of the connection.
pub struct Child {
    pub rings: Rings<Region>,
    /// Readable when there are requests.
    pub requests: OwnedFd,
    /// For ringing when there are answers.
    pub answers: OwnedFd,
    pub packets: Packets,
    pub memory: u64,
}

impl Child {
    /// Receives the owner's message on the standard input.
    ///
    /// # Errors
    /// If there is none, as when the program is started by hand.
    pub fn receive() -> Result<Self, String> {
        let hand = |error: &dyn std::fmt::Display| {
            format!("the standard input is not a socket of a network function ({error}); nf starts this program by itself")
        };
        let mut bytes = [0; 256];
        let (length, mut descriptors) =
            receive(io::stdin(), &mut bytes).map_err(|error| hand(&error))?;
        let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
        let mut words = text.split(' ');
        if words.next() != Some(GREETING) {
            return Err(format!("the owner says {text:?}, expected {GREETING}: nf and nf-dpi must have the same version"));
        }
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
        let numbers = (number(), number(), number());
        let three = (descriptors.pop(), descriptors.pop(), descriptors.pop());
        let ((Some(tcp), Some(udp), Some(memory)), (Some(answers), Some(requests), Some(arena))) =
            (numbers, three)
        else {
            return Err(format!(
                "the owner says {text:?}, expected three numbers and three descriptors"
            ));
        };
        let rings = Rings::adopt(arena).map_err(|error| error.to_string())?;
        let count = |packets: u64| u32::try_from(packets).unwrap_or(u32::MAX);
        Ok(Self {
            rings,
            requests,
            answers,
            packets: Packets {
                tcp: count(tcp),
                udp: count(udp),
            },
            memory,
        })
    }

    /// Tells the owner that the program is ready.
    ///
    /// # Errors
    /// Those of the system call.
    pub fn ready(catalogue: &Catalogue) -> io::Result<()> {
        let text = format!("{READY}{}", catalogue.to_lines());
        send(io::stdin(), text.as_bytes(), &[])
    }

    /// Tells the owner why the program cannot work.
    pub fn fail(reason: &str) {
        // If this fails, too, the owner sees that the program has ended.
        let _ = send(io::stdin(), format!("{FAILED}{reason}").as_bytes(), &[]);
    }
}

fn send(to: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    sendmsg(
        to,
        &[IoSlice::new(bytes)],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

fn receive(from: impl AsFd, into: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut buffers = [IoSliceMut::new(into)];
    let message = recvmsg(from, &mut buffers, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = part {
            descriptors.extend(received);
        }
    }
    Ok((message.bytes, descriptors))
}
