//! The operator's view.

use crate::offload::events::OffloadRefused;
use crate::offload::flows::{sum, Counted};
use crate::offload::ports::OffloadPort;
use crate::offload::Offload;

/// The offloaded flows of a virtual port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffloadView {
    pub port: u32,
    pub has_writer: bool,
    pub flows: usize,
    pub targets: usize,
    pub carried: Counted,
    pub refused: Vec<(OffloadRefused, u64)>,
}

impl Offload {
    /// `gone`: the packets of a port's meters that are gone.
    pub fn views(&self, gone: impl Fn(u32) -> Counted) -> Vec<OffloadView> {
        let is_shown = |port: &OffloadPort| port.is_active() || port.writer.is_some();
        let ports = self.ports.iter().filter(|(_, port)| is_shown(port));
        let views = ports.map(|(number, port)| OffloadView {
            port: *number,
            has_writer: port.writer.is_some(),
            flows: port.rules(|flow| !flow.is_leaving()).len(),
            targets: port.targets.len(),
            carried: gone(*number).plus(sum(&port.metered())),
            refused: OffloadRefused::ALL
                .map(|reason| (reason, port.refused.get(&reason).copied().unwrap_or(0)))
                .into(),
        });
        views.collect()
    }
}
