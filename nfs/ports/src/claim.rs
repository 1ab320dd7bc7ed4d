//! Exclusive claims: one instance per interface, since two would each process every frame.
//!
//! The claim is the name of a socket in the abstract namespace, which like the interface belongs to the network namespace. The kernel releases
//! it when the process ends, for whatever reason.

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

/// The time that the kernel may take to end the previous holder.
const RELEASE: Duration = Duration::from_secs(2);
const RETRY: Duration = Duration::from_millis(20);
/// The length of an abstract name in bytes.
const NAME_MOST: usize = 107;

/// An exclusive claim to an interface, held until drop.
pub struct Claim {
    _name: OwnedFd,
    /// A second name that identifies the holder, shown to refused claimants.
    _holder: Option<OwnedFd>,
}

/// Claims an interface for `holder`, a few words about this instance. Waits for a predecessor that was killed a moment ago.
///
/// # Errors
/// If the interface does not exist, or another instance has it; names that instance.
pub fn claim(interface: &str, holder: &str) -> Result<Claim, PortError> {
    let found = Interface::look(interface)?;
    let name = format!("nf-port-{}", found.index);
    match take(&name, holder, RELEASE) {
        Ok(claim) => Ok(claim),
        Err(Errno::ADDRINUSE) => {
            let holder = holder_of(&name).unwrap_or_else(|| "a process not visible here".into());
            let reason = format!(
                "another instance runs on it ({holder}), and both would process every frame: stop that one, or use another interface"
            );
            Err(PortError::Unfit {
                interface: interface.to_owned(),
                reason,
            })
        }
        Err(errno) => Err(system(interface, "cannot claim it")(errno.into())),
    }
}

/// Takes a name, waiting up to `patience` for its holder to release it.
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

/// Creates a socket with this abstract name.
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

/// Returns the description of the holder of this name.
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
    fn a_name_has_one_holder_which_refusals_name() {
        // Concurrent runs of this test share the network namespace.
        let name = format!("nf-test-{}", std::process::id());
        let soon = Duration::from_millis(1);
        let held = take(&name, "forward, first.sock", soon).unwrap();
        assert_eq!(take(&name, "second", soon).err(), Some(Errno::ADDRINUSE));
        let holder = format!("pid {}, forward, first.sock", std::process::id());
        assert_eq!(holder_of(&name), Some(holder));
        assert_eq!(holder_of("nf-test-0"), None);
        // A claimant waits for a predecessor that is ending.
        let waiting = name.clone();
        let next = thread::spawn(move || take(&waiting, "third", RELEASE).is_ok());
        drop(held);
        assert!(next.join().unwrap());
        assert!(claim("nosuch0", "").is_err());
    }

    #[test]
    fn a_long_name_is_truncated_between_characters() {
        assert_eq!(cut("short"), "short");
        assert_eq!(cut(&"ä".repeat(60)), "ä".repeat(53));
    }
}
