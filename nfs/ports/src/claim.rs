//! One instance for one interface: two would each process every frame.
//!
//! The claim is the name of a socket in the abstract namespace, which belongs to the network namespace as the interface does. The kernel gives it
//! back when the process ends, however it ends.

use std::{
    fs,
    os::fd::OwnedFd,
    thread,
    time::{Duration, Instant},
};

use rustix::io::Errno;
use rustix::net::{bind, socket_with, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::{
    error::{system, PortError},
    interface::Interface,
};

/// How long the kernel may take to end a process that had the interface.
const RELEASE: Duration = Duration::from_secs(2);
const RETRY: Duration = Duration::from_millis(20);
/// Bytes of an abstract name.
const NAME_MOST: usize = 107;

/// The right to an interface, until it is dropped.
pub struct Claim {
    _name: OwnedFd,
    /// A second name, that of the holder, for whoever is refused.
    _holder: Option<OwnedFd>,
}

/// Takes an interface for `holder`, a few words about this instance. A predecessor that was killed a moment ago is waited for.
///
/// # Errors
/// There is no such interface, or another instance has it; names that.
pub fn claim(interface: &str, holder: &str) -> Result<Claim, PortError> {
    let found = Interface::look(interface)?;
    let name = format!("nf-port-{}", found.index);
    match take(&name, holder, RELEASE) {
        Ok(claim) => Ok(claim),
        Err(Errno::ADDRINUSE) => {
            let holder =
                holder_of(&name).unwrap_or_else(|| "a process that is not visible here".into());
            let reason = format!(
                "another instance runs on it ({holder}), and both would process every frame: stop that one, or take another interface"
            );
            Err(PortError::Unfit {
                interface: interface.to_owned(),
                reason,
            })
        }
        Err(errno) => Err(system(interface, "cannot claim it")(errno.into())),
    }
}

/// Takes a name, as soon as whoever has it gives it back within `patience`.
fn take(name: &str, holder: &str, patience: Duration) -> Result<Claim, Errno> {
    let end = Instant::now() + patience;
    loop {
        match named(name) {
            Ok(socket) => {
                let text = format!("{name} pid {}, {holder}", std::process::id());
                return Ok(Claim {
                    _name: socket,
                    _holder: named(cut(&text)).ok(),
                });
            }
            Err(Errno::ADDRINUSE) if Instant::now() < end => thread::sleep(RETRY),
            Err(errno) => return Err(errno),
        }
    }
}

/// A socket of this abstract name.
fn named(name: &str) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
    bind(
        &socket,
        &SocketAddrUnix::new_abstract_name(name.as_bytes())?,
    )?;
    Ok(socket)
}

fn cut(text: &str) -> &str {
    let mut end = text.len().min(NAME_MOST);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// What the holder of this name says of itself.
fn holder_of(name: &str) -> Option<String> {
    let all = fs::read("/proc/self/net/unix").ok()?;
    let start = format!("@{name} ");
    String::from_utf8_lossy(&all)
        .lines()
        .find_map(|line| line.split_once(&start).map(|(_, holder)| holder.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_holder_who_is_told_to_others() {
        // Other runs of this test are in the same network namespace.
        let name = format!("nf-test-{}", std::process::id());
        let soon = Duration::from_millis(1);
        let held = take(&name, "forward, first.sock", soon).unwrap();
        assert_eq!(take(&name, "second", soon).err(), Some(Errno::ADDRINUSE));
        let holder = format!("pid {}, forward, first.sock", std::process::id());
        assert_eq!(holder_of(&name), Some(holder));
        assert_eq!(holder_of("nf-test-0"), None);
        // A predecessor that ends meanwhile is waited for.
        let waiting = name.clone();
        let next = thread::spawn(move || take(&waiting, "third", RELEASE).is_ok());
        drop(held);
        assert!(next.join().unwrap());
        assert!(claim("nosuch0", "").is_err());
    }

    #[test]
    fn a_long_name_is_cut_between_characters() {
        assert_eq!(cut("short"), "short");
        assert_eq!(cut(&"ä".repeat(60)), "ä".repeat(53));
    }
}
