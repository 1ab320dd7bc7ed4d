//! The contract with an inspector, which finds out the applications of flows from their first packets.

use crate::{
    application::{Catalogue, Known},
    config::Inspecting,
};

/// A request. All requests are in the order in which their packets arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// A packet from its IP header on.
    Packet {
        flow: u64,
        sequence: u64,
        time_ms: u64,
        bytes: &'a [u8],
    },
    /// Asks for the best guess, as the answer, which is final.
    GiveUp { flow: u64, sequence: u64 },
}

/// The answer to a request. Each request gets one, in order, unless the inspector was restarted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub flow: u64,
    pub sequence: u64,
    /// The inspector has forgotten the flow and must not get more of its packets.
    pub is_final: bool,
    pub known: Known,
}

/// A request that the inspector has not got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It takes no more now.
    Later,
    /// It will never take packets of this flow.
    Never,
}

/// An inspector. No call waits for it.
pub trait Inspection: Send + Sync + Sized + 'static {
    /// Starts it. `wake` is called from another thread when there are answers.
    ///
    /// # Errors
    /// The reason for which it cannot be started.
    fn start(settings: &Inspecting, wake: impl Fn() + Send + 'static) -> Result<Self, String>;

    /// Returns the names of protocols and categories.
    fn catalogue(&self) -> Catalogue;

    /// Returns a number that grows with each restart. After it, the inspector knows nothing, and first gets the first packets of all flows by [`replay`](Self::replay).
    fn generation(&self) -> u64;

    /// # Errors
    /// If it has not got the request.
    fn submit(&self, request: Request<'_>) -> Result<(), Refused>;

    /// # Errors
    /// If it has not got the request. A generation that has passed is `Later` for ever.
    fn replay(&self, generation: u64, request: Request<'_>) -> Result<(), Refused>;

    /// Ends the replay. False: the inspector was restarted during it.
    fn replayed(&self, generation: u64) -> bool;

    /// Forgets a flow without a final answer.
    fn forget(&self, flow: u64);

    /// Calls `each` for answers that are there, and returns their number.
    fn poll(&self, each: &mut dyn FnMut(Answer)) -> usize;
}
