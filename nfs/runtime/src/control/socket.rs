//! A unix stream socket with file descriptors beside the bytes.

use std::{
    io::{self, ErrorKind},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::{UnixListener, UnixStream},
    },
    path::Path,
};

use rustix::{
    fs::Mode,
    io::{IoSlice, IoSliceMut},
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    },
};

use crate::Refusal;

/// The maximum of descriptors with one line.
pub const MAX_DESCRIPTORS: usize = 8;

/// Binds a listening socket at this path, with mode 0600. Replaces a file left by a process that has ended.
///
/// # Errors
/// If another process serves it, or it cannot be created.
pub fn bind(path: &Path) -> Result<UnixListener, Refusal> {
    let refused = |what: &str, error: io::Error| {
        Refusal::new(
            "control-socket",
            format!("control socket {}: {what}: {error}", path.display()),
        )
    };
    match UnixStream::connect(path) {
        Ok(_) => {
            let detail = format!(
                "control socket {}: another process serves it",
                path.display()
            );
            return Err(Refusal::new("control-socket", detail));
        }
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)
                .map_err(|error| refused("cannot replace the old socket", error))?;
        }
        // Usually the file does not exist. bind reports everything else better.
        Err(_) => {}
    }
    listen(path).map_err(|error| refused("cannot be created", error))
}

fn listen(path: &Path) -> io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // Set before bind, which gives the file this mode.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, 16)?;
    Ok(UnixListener::from(socket))
}

/// Receives at most `into` bytes, and the descriptors with them; 0 bytes: the other end has closed.
///
/// # Errors
/// Those of the system call.
pub fn receive(from: &UnixStream, into: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    // One more than allowed, so that too many are noticed; the kernel closes the rest.
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS + 1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut buffers = [IoSliceMut::new(into)];
    let message = loop {
        match rustix::net::recvmsg(from, &mut buffers, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other?,
        }
    };
    let mut descriptors = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = part {
            descriptors.extend(received);
        }
    }
    Ok((message.bytes, descriptors))
}

/// Sends all bytes, with the descriptors beside the first.
///
/// # Errors
/// Those of the system call, or if there are more than [`MAX_DESCRIPTORS`].
pub fn send(to: &UnixStream, bytes: &[u8], descriptors: &[OwnedFd]) -> io::Result<()> {
    let mut descriptors: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
    let mut rest = bytes;
    while !rest.is_empty() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
            return Err(io::Error::new(
                ErrorKind::InvalidInput,
                "too many file descriptors in one answer",
            ));
        }
        match rustix::net::sendmsg(to, &[IoSlice::new(rest)], &mut control, SendFlags::NOSIGNAL) {
            Ok(count) => rest = &rest[count..],
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        descriptors.clear();
    }
    Ok(())
}
