//! One virtual OpenFlow 1.3 switch over several Open vSwitch instances, as a state machine without I/O.
//!
//! The daemon feeds it whole OpenFlow messages (after version negotiation; echo and hello stay in the daemon), connection
//! events, management requests and time; it answers with bytes per [`Destination`]. It never blocks and never reads a clock.
//!
//! One round: feed events, [`Core::end_of_batch`], write what [`Core::take_outputs`] returns.

mod api;

pub use api::*;
use std::time::Instant;

/// Unacknowledged messages toward the switches above which the daemon stops reading from controllers.
pub const IN_FLIGHT_LIMIT: usize = 16_384;

pub struct Core {}

#[allow(unused_variables, missing_docs)]
impl Core {
    /// Starts with empty virtual tables and the configured ports.
    ///
    /// # Errors
    /// The first port that contradicts another one or the switches.
    pub fn new(config: CoreConfig, now: Instant) -> Result<Self, PortError> { Ok(Self {}) }

    pub fn controller_up(&mut self, id: ControllerId, now: Instant) {}
    pub fn controller_down(&mut self, id: ControllerId, now: Instant) {}
    /// `frame` is one whole message. A message that cannot be trusted is answered with an error or a disconnect.
    pub fn from_controller(&mut self, id: ControllerId, frame: &[u8], now: Instant) {}
    pub fn controller_role(&self, id: ControllerId) -> Option<ControllerRole> { None }

    /// A bridge's session has finished its OpenFlow handshake.
    pub fn switch_up(&mut self, switch: SwitchIndex, bridge: Bridge, now: Instant) {}
    pub fn switch_down(&mut self, switch: SwitchIndex, bridge: Bridge, now: Instant) {}
    pub fn from_switch(&mut self, switch: SwitchIndex, bridge: Bridge, frame: &[u8], now: Instant) {}

    /// Ends a batch of `from_*` calls: asks the switches for the verdict (barriers) on what was sent.
    pub fn end_of_batch(&mut self, now: Instant) {}
    /// When `tick` next has something to do.
    pub fn next_deadline(&self) -> Option<Instant> { None }
    pub fn tick(&mut self, now: Instant) {}

    /// Bytes to write now, in order per destination.
    pub fn take_outputs(&mut self) -> Vec<(Destination, Vec<u8>)> { Vec::new() }
    /// Controllers to disconnect after their pending bytes were written, with the reason for the log.
    pub fn take_disconnects(&mut self) -> Vec<(ControllerId, String)> { Vec::new() }
    /// Bridges to disconnect and dial again, with the reason for the log (their stream or state cannot be trusted).
    pub fn take_switch_disconnects(&mut self) -> Vec<(SwitchIndex, Bridge, String)> { Vec::new() }
    /// Messages sent to switches and not acknowledged yet; see [`IN_FLIGHT_LIMIT`].
    pub fn in_flight(&self) -> usize { 0 }

    /// # Errors
    /// See [`PortError`].
    pub fn add_port(&mut self, request: PortRequest, now: Instant) -> Result<u32, PortError> { Ok(0) }
    /// # Errors
    /// See [`PortError`].
    pub fn remove_port(&mut self, number: u32, now: Instant) -> Result<(), PortError> { Ok(()) }
    /// Starts a move; it goes on by itself with the switches' answers and `tick`. See `move_outcome`.
    /// # Errors
    /// See [`PortError`].
    pub fn begin_move(&mut self, number: u32, request: MoveRequest, now: Instant) -> Result<(), PortError> { Ok(()) }
    /// # Errors
    /// See [`PortError`].
    pub fn continue_move(&mut self, number: u32, until: MoveUntil, now: Instant) -> Result<(), PortError> { Ok(()) }
    /// # Errors
    /// See [`PortError`].
    pub fn abort_move(&mut self, number: u32, now: Instant) -> Result<(), PortError> { Ok(()) }
    /// `None` while the move is under way toward its `until`; then once `Some` with how that ended
    /// (reaching `prepared`/`flipped`/`done`, or failing). Callers poll it after every round.
    pub fn move_outcome(&mut self, number: u32) -> Option<Result<(), PortError>> { None }

    pub fn ports(&self) -> Vec<PortView> { Vec::new() }
    pub fn status(&self) -> StatusView {
        StatusView { datapath_id: 0, switches: vec![], ports: 0, flows: 0, groups: 0, meters: 0, executors: vec![], refused: 0 }
    }
    /// Grows with every change of the port map: the daemon then saves [`Core::port_configs`].
    pub fn ports_revision(&self) -> u64 { 0 }
    pub fn port_configs(&self) -> Vec<PortConfig> { Vec::new() }
}
