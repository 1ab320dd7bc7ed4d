//! Matches in front of a port: a network card, or a program in its place, finds the frames of flows, and they carry a mark (HNLB, section III).

use std::io;

/// The endpoints and protocol of a flow's frames. IPv4 addresses are mapped (RFC 4291, 2.5.5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Match {
    pub source: [u8; 16],
    pub destination: [u8; 16],
    pub source_port: u16,
    pub destination_port: u16,
    pub protocol: u8,
}

/// A moment in the queues of a port: see [`Matcher::wait`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moment(pub Vec<u32>);

/// Tells whether an error says that a card refuses a match, and so does not have it. After others, such as a time limit, it may have it.
#[must_use]
pub fn is_refusal(error: &io::Error) -> bool {
    let refusals = [
        libc::EAGAIN,
        libc::EBUSY,
        libc::E2BIG,
        libc::EEXIST,
        libc::EINVAL,
        libc::ENODEV,
        libc::ENOMEM,
        libc::ENOSPC,
        libc::EOPNOTSUPP,
        libc::EPERM,
    ];
    let code = error.raw_os_error();
    code.is_some_and(|code| refusals.contains(&code))
}

/// Exact matches of flows. Calls may take milliseconds, so the thread of packets makes none.
///
/// The mark of a frame may be missing, also while its flow has a match. TCP segments with SYN, FIN or RST and fragments may have one.
pub trait Matcher: Send {
    /// Returns the most matches at a time.
    fn capacity(&self) -> u32;

    /// Removes the matches that an earlier process has left.
    ///
    /// # Errors
    /// If the card does not answer.
    fn clear(&mut self) -> io::Result<()>;

    /// Marks the frames of a flow from now on.
    ///
    /// # Errors
    /// If the card refuses it: no room (ENOSPC, E2BIG), or it cannot match this (EOPNOTSUPP, EINVAL). After an error that is not a
    /// [refusal](is_refusal), the match may exist all the same, until `remove` has succeeded.
    fn put(&mut self, flow: &Match, mark: u32) -> io::Result<()>;

    /// Removes the match of a flow, if it has one. Frames on their way may still carry its mark.
    ///
    /// # Errors
    /// If the card does not answer.
    fn remove(&mut self, flow: &Match) -> io::Result<()>;

    /// Waits until frames that arrive do not get the marks of removed matches any more; returns this moment.
    ///
    /// # Errors
    /// If the card does not answer.
    fn wait(&mut self) -> io::Result<Moment>;

    /// Tells whether all frames that had arrived by this moment were processed.
    fn is_past(&self, moment: &Moment) -> bool;
}
