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

use super::MAX_DESCRIPTORS;
use crate::Refusal;

/// A listening socket of this name, mode 0600. A file that a process left which is no more is replaced.
pub(super) fn bind(path: &Path) -> Result<UnixListener, Refusal> {
    let refused = |what: &str, error: io::Error| {
        Refusal::new(
            "control-socket",
            format!("control socket {}: {what}: {error}", path.display()),
        )
    };
    match UnixStream::connect(path) {
        Ok(_) => {
            let detail = format!(
                "control socket {}: somebody serves it already",
                path.display()
            );
            return Err(Refusal::new("control-socket", detail));
        }
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)
                .map_err(|error| refused("cannot replace the old one", error))?;
        }
        // Mostly: there is none. Anything else, bind says better.
        Err(_) => {}
    }
    listen(path).map_err(|error| refused("cannot be made", error))
}

fn listen(path: &Path) -> io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // Before it has a name: bind gives the file this mode.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, 16)?;
    Ok(UnixListener::from(socket))
}

/// What has come, at most `into`, and the descriptors with it; 0 bytes: the other end is closed.
pub(super) fn receive(from: &UnixStream, into: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    // One more than is taken, so that too many are seen to be too many; what is beyond, the kernel closes.
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

/// Sends all bytes, the descriptors with the first.
pub(super) fn send(to: &UnixStream, bytes: &[u8], descriptors: &[OwnedFd]) -> io::Result<()> {
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
