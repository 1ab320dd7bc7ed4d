//! Byte streams to peers over any transport, and the listening sockets.

use std::fs::{self, File, Permissions};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener as StdUnixListener, UnixStream as StdUnixStream};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio_rustls::TlsStream;

use crate::endpoint::{Active, Passive};
use crate::quiet_unix::QuietUnixStream;
use crate::tls::Tls;

/// A byte stream to a peer.
pub trait Transport: AsyncRead + AsyncWrite + Unpin {
    /// Returns a duplicate of its socket; `None` if the stream transforms its bytes.
    fn socket(&self) -> Option<socket2::Socket>;
}

/// A connection, ready for OpenFlow.
pub enum Stream {
    Tcp(TcpStream),
    Unix(QuietUnixStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    /// Connects to a peer; TLS included.
    ///
    /// # Errors
    /// The reason why it could not be reached.
    pub async fn connect(target: &Active, tls: Option<&Tls>) -> io::Result<Self> {
        match target {
            Active::Unix(path) => QuietUnixStream::connect(path).await.map(Self::Unix),
            Active::Tcp { host, port } => dial_tcp(host, *port).await.map(Self::Tcp),
            Active::Ssl { host, port } => {
                let tls = tls.ok_or_else(no_tls)?;
                let stream = tls.connect(host, dial_tcp(host, *port).await?).await?;
                Ok(Self::Tls(Box::new(stream)))
            }
        }
    }

    /// Returns the peer's address for people; empty for unix sockets, which have none.
    pub fn peer(&self) -> String {
        let address = match self {
            Self::Tcp(stream) => stream.peer_addr(),
            Self::Tls(stream) => stream.get_ref().0.peer_addr(),
            Self::Unix(_) => return String::new(),
        };
        address.map_or_else(|_| String::new(), |address| address.to_string())
    }
}

fn no_tls() -> io::Error {
    io::Error::other("[oneswitchd.tls] is not configured")
}

async fn dial_tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((host, port)).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

macro_rules! each {
    ($self:expr, $stream:ident => $call:expr) => {
        match $self.get_mut() {
            Stream::Tcp($stream) => $call,
            Stream::Unix($stream) => $call,
            Stream::Tls($stream) => $call,
        }
    };
}

impl Transport for Stream {
    /// Returns `None` for TLS, and if no file descriptor is free.
    fn socket(&self) -> Option<socket2::Socket> {
        let socket = match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
            Self::Tls(_) => return None,
        };
        socket.try_clone_to_owned().ok().map(Into::into)
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        each!(self, stream => Pin::new(stream).poll_read(cx, buf))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        each!(self, stream => Pin::new(stream).poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each!(self, stream => Pin::new(stream).poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => Pin::new(stream).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => Pin::new(stream).poll_shutdown(cx))
    }
}

/// A listening socket. Dropping it removes its file, if it has one.
pub struct Listener {
    /// Its address, with the port that the system chose.
    pub endpoint: Passive,
    socket: Socket,
}

enum Socket {
    Tcp(TcpListener),
    Unix(
        UnixListener,
        #[allow(dead_code, reason = "removes the file when dropped")] SocketFile,
    ),
}

/// An accepted connection before its TLS handshake, if any, which must not delay the next connection.
pub enum Accepted {
    Ready(Stream),
    BeforeTls(TcpStream),
}

impl Accepted {
    /// # Errors
    /// The reason why the TLS handshake failed.
    pub async fn ready(self, tls: Option<&Tls>) -> io::Result<Stream> {
        match self {
            Self::Ready(stream) => Ok(stream),
            Self::BeforeTls(stream) => {
                let tls = tls.ok_or_else(no_tls)?;
                Ok(Stream::Tls(Box::new(tls.accept(stream).await?)))
            }
        }
    }

    pub fn peer(&self) -> String {
        match self {
            Self::Ready(stream) => stream.peer(),
            Self::BeforeTls(stream) => stream
                .peer_addr()
                .map_or_else(|_| String::new(), |address| address.to_string()),
        }
    }
}

impl Listener {
    /// # Errors
    /// The reason why it cannot listen.
    pub async fn bind(endpoint: &Passive) -> Result<Self, String> {
        match endpoint {
            Passive::Tcp(address) | Passive::Ssl(address) => {
                let listener = TcpListener::bind(address)
                    .await
                    .map_err(|error| format!("{endpoint}: {error}"))?;
                let port = listener
                    .local_addr()
                    .map_err(|error| format!("{endpoint}: {error}"))?
                    .port();
                Ok(Self {
                    endpoint: endpoint.with_port(port),
                    socket: Socket::Tcp(listener),
                })
            }
            Passive::Unix(path) => {
                // As in Open vSwitch: the owner and the group may connect.
                let (listener, file) = bind_unix(path, 0o770)?;
                Ok(Self {
                    endpoint: endpoint.clone(),
                    socket: Socket::Unix(listener, file),
                })
            }
        }
    }

    /// # Errors
    /// The system's error, e.g. no file descriptors left.
    pub async fn accept(&self) -> io::Result<Accepted> {
        match &self.socket {
            Socket::Unix(listener, _) => {
                let stream = QuietUnixStream::new(listener.accept().await?.0)?;
                Ok(Accepted::Ready(Stream::Unix(stream)))
            }
            Socket::Tcp(listener) => {
                let stream = listener.accept().await?.0;
                stream.set_nodelay(true)?;
                Ok(if self.endpoint.needs_tls() {
                    Accepted::BeforeTls(stream)
                } else {
                    Accepted::Ready(Stream::Tcp(stream))
                })
            }
        }
    }
}

/// A unix socket's name in the file system; removed when dropped, unless another process has taken the name since.
pub struct SocketFile {
    path: PathBuf,
    identity: Option<(u64, u64)>,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.identity.is_some() && identity(&self.path) == self.identity {
            // A missing file is fine.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path)
        .ok()
        .map(|file| (file.dev(), file.ino()))
}

/// Listens on a unix socket whose mode is set before it has a name. Replaces a stale socket, but not one with a listener, or any other
/// file.
///
/// # Errors
/// The reason why it cannot listen.
pub fn bind_unix(path: &Path, mode: u32) -> Result<(UnixListener, SocketFile), String> {
    let shown = path.display();
    if let Ok(file) = fs::symlink_metadata(path) {
        if !file.file_type().is_socket() {
            return Err(format!(
                "{shown} exists and is not a socket; remove it or choose another path"
            ));
        }
        if StdUnixStream::connect(path).is_ok() {
            return Err(format!(
                "{shown}: another process is already listening there"
            ));
        }
        fs::remove_file(path)
            .map_err(|error| format!("{shown}: cannot remove a stale socket: {error}"))?;
    }
    make_parent(path).map_err(|error| format!("{shown}: {error}"))?;
    let listener = bind_with_mode(path, mode).map_err(|error| format!("{shown}: {error}"))?;
    let file = SocketFile {
        path: path.to_owned(),
        identity: identity(path),
    };
    Ok((listener, file))
}

fn bind_with_mode(path: &Path, mode: u32) -> io::Result<UnixListener> {
    let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None)?;
    // Linux gives the name the mode that the socket has at bind.
    let file = File::from(OwnedFd::from(socket));
    file.set_permissions(Permissions::from_mode(mode))?;
    let socket = socket2::Socket::from(OwnedFd::from(file));
    socket.bind(&socket2::SockAddr::unix(path)?)?;
    socket.listen(128)?;
    socket.set_nonblocking(true)?;
    UnixListener::from_std(StdUnixListener::from(OwnedFd::from(socket)))
}

/// Creates the folder of a file if it is missing.
///
/// # Errors
/// The system's error.
pub fn make_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => fs::create_dir_all(parent),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::UnixStream;

    #[tokio::test]
    async fn a_socket_has_its_mode_and_goes_with_its_listener() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("made/on/demand.sock");
        let (listener, file) = bind_unix(&path, 0o600).unwrap();
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        UnixStream::connect(&path).await.unwrap();
        drop((listener, file));
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn only_stale_sockets_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        drop(StdUnixListener::bind(&path).unwrap());
        assert!(path.exists(), "std leaves the file, which is stale now");
        let (_listener, first) = bind_unix(&path, 0o600).unwrap();
        let error = bind_unix(&path, 0o600).err().unwrap();
        assert!(
            error.contains("another process is already listening"),
            "{error}"
        );

        let plain = folder.path().join("plain");
        fs::write(&plain, "mine").unwrap();
        let error = bind_unix(&plain, 0o600).err().unwrap();
        assert!(error.contains("not a socket"), "{error}");
        assert_eq!(fs::read_to_string(&plain).unwrap(), "mine");

        fs::remove_file(&path).unwrap();
        fs::write(&path, "a successor's").unwrap();
        drop(first);
        assert!(path.exists(), "another owner's file must not be removed");
    }

    #[tokio::test]
    async fn a_chosen_port_is_shown() {
        let listener = Listener::bind(&Passive::parse("ptcp:0:127.0.0.1").unwrap())
            .await
            .unwrap();
        let Passive::Tcp(address) = &listener.endpoint else {
            panic!("not TCP")
        };
        assert_ne!(address.port(), 0);
        let target = Active::Tcp {
            host: "127.0.0.1".into(),
            port: address.port(),
        };
        let (dialled, accepted) = tokio::join!(Stream::connect(&target, None), listener.accept());
        assert_eq!(dialled.unwrap().peer(), address.to_string());
        assert!(accepted.unwrap().peer().starts_with("127.0.0.1:"));
    }
}
