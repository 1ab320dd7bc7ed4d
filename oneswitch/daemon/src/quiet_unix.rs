//! A unix stream socket that sleeps while its peer reads.
//!
//! Linux wakes a waiter for room in a unix socket each time its peer reads something (`unix_write_space` in net/unix/af_unix.c), whether or
//! not it was full, and tokio's own type always waits for room, so each written message later cost a needless wake-up. This type waits for
//! room only after a write found none.

use std::io::{self, ErrorKind, IoSlice, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::unix::pipe;
use tokio::net::UnixStream;

/// The same socket three times, because tokio registers pipe ends for one direction.
pub struct QuietUnixStream {
    reader: pipe::Receiver,
    socket: StdUnixStream,
    /// Present after a write found no room.
    full: Option<pipe::Sender>,
}

impl QuietUnixStream {
    /// # Errors
    /// The reason why the peer could not be reached.
    pub async fn connect(path: &Path) -> io::Result<Self> {
        Self::new(UnixStream::connect(path).await?)
    }

    /// # Errors
    /// The system's error, e.g. no file descriptors left.
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        // Stays non-blocking.
        let socket = stream.into_std()?;
        let reader = pipe::Receiver::from_owned_fd_unchecked(socket.try_clone()?.into())?;
        Ok(Self {
            reader,
            socket,
            full: None,
        })
    }

    fn poll_send(
        &mut self,
        now: impl FnOnce(&StdUnixStream) -> io::Result<usize>,
        later: impl FnOnce(Pin<&mut pipe::Sender>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let mut full = match self.full.take() {
            Some(full) => full,
            None => match now(&self.socket) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    pipe::Sender::from_owned_fd_unchecked(self.socket.try_clone()?.into())?
                }
                result => return Poll::Ready(result),
            },
        };
        let result = later(Pin::new(&mut full));
        if result.is_pending() {
            self.full = Some(full);
        }
        result
    }
}

impl AsFd for QuietUnixStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsyncRead for QuietUnixStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.reader).poll_read(cx, buf)
    }
}

impl AsyncWrite for QuietUnixStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_send(
            |mut socket| socket.write(bytes),
            |full| full.poll_write(cx, bytes),
        )
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_send(
            |mut socket| socket.write_vectored(slices),
            |full| full.poll_write_vectored(cx, slices),
        )
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Does nothing, because writes are not buffered.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.socket.shutdown(Shutdown::Write))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    fn pair() -> (QuietUnixStream, StdUnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let theirs = theirs.into_std().unwrap();
        theirs.set_nonblocking(false).unwrap();
        (QuietUnixStream::new(ours).unwrap(), theirs)
    }

    #[tokio::test]
    async fn more_than_the_socket_holds_arrives_in_order() {
        let (mut ours, mut theirs) = pair();
        let sent: Vec<u8> = (0..4_000_000_u32).map(|n| (n % 251) as u8).collect();
        let peer = std::thread::spawn(move || {
            let mut received = Vec::new();
            theirs.read_to_end(&mut received).unwrap();
            theirs.write_all(&received).unwrap();
        });
        ours.write_all(&sent).await.unwrap();
        ours.shutdown().await.unwrap();
        let mut back = Vec::new();
        ours.read_to_end(&mut back).await.unwrap();
        peer.join().unwrap();
        assert!(back == sent);
    }

    #[tokio::test]
    async fn a_peer_that_reads_wakes_nobody() {
        const ROUNDS: u64 = 20;
        let (mut ours, mut theirs) = pair();
        let peer = std::thread::spawn(move || {
            let mut byte = [0];
            for _ in 0..ROUNDS {
                theirs.read_exact(&mut byte).unwrap();
                // Until a needless wake-up would have happened: no event announces it.
                std::thread::sleep(std::time::Duration::from_millis(2));
                theirs.write_all(&byte).unwrap();
            }
        });
        let metrics = tokio::runtime::Handle::current().metrics();
        let before = metrics.worker_park_count(0);
        for _ in 0..ROUNDS {
            ours.write_all(b"x").await.unwrap();
            ours.read_u8().await.unwrap();
        }
        let slept = metrics.worker_park_count(0) - before;
        peer.join().unwrap();
        assert!(
            slept <= ROUNDS + 2,
            "slept {slept} times for {ROUNDS} answers"
        );
    }
}
