//! Selects the switches that can answer a controller's multipart request, the request to them, and the limit of the answer.

use crate::api::Bridge;
use crate::controllers::View;
use crate::server::executors::HUB;
use crate::switch_set::SwitchSet;
use openflow13::extension::statistics_error;
use openflow13::{port_no, ErrorCode, FlowStatsRequest, Match, MultipartRequest};

impl View<'_> {
    /// Returns an upper estimate of a pending answer's bytes; more are reserved if it turns out to be longer.
    pub fn answer_size(&self, request: &MultipartRequest) -> usize {
        /// Of a reply without a list.
        const SMALL: usize = 1 << 10;
        const ENTRY: usize = 128;
        const TABLE_FEATURES: usize = 1 << 20;
        match request {
            MultipartRequest::Flow(_) => SMALL + self.truth.tables.journal_size(),
            MultipartRequest::Group { .. } | MultipartRequest::GroupDesc => {
                SMALL + ENTRY * self.truth.groups.len()
            }
            MultipartRequest::Meter { .. } | MultipartRequest::MeterConfig { .. } => {
                SMALL + ENTRY * self.truth.meters.len()
            }
            MultipartRequest::PortStats { .. } | MultipartRequest::Queue { .. } => {
                SMALL + ENTRY * self.server.ports.iter().count()
            }
            MultipartRequest::TableFeatures(_) => TABLE_FEATURES,
            _ => SMALL,
        }
    }

    /// Returns Open vSwitch's error for an invalid subject. (Statistics of an unknown port are empty, not an error.)
    pub fn unknown_subject(&self, request: &MultipartRequest) -> Option<ErrorCode> {
        match request {
            MultipartRequest::Queue { port, .. }
                if !matches!(*port, port_no::ANY | port_no::LOCAL)
                    && self.server.ports.get(*port).is_none() =>
            {
                Some(ErrorCode::QUEUE_OP_FAILED_BAD_PORT)
            }
            MultipartRequest::Flow(filter) | MultipartRequest::Aggregate(filter) => {
                filter.matching.canonical().err().map(|r| r.error)
            }
            MultipartRequest::Experimenter(request) => Some(statistics_error(request)),
            _ => None,
        }
    }

    /// Selects the switches to ask; none if the virtual tables suffice.
    pub fn sources(&self, request: &MultipartRequest) -> (Bridge, SwitchSet) {
        let executors = self.server.executors.all().intersection(self.switches.up());
        let edges: SwitchSet = self
            .switches
            .list
            .iter()
            .enumerate()
            .filter(|(_, s)| s.edge.is_up())
            .map(|(i, _)| i)
            .collect();
        match request {
            // For controllers nothing outputs to them.
            MultipartRequest::Flow(filter) | MultipartRequest::Aggregate(filter)
                if self.server.hidden.contain(filter.out_group) =>
            {
                (Bridge::Virt, SwitchSet::EMPTY)
            }
            MultipartRequest::Flow(filter) | MultipartRequest::Aggregate(filter) => {
                let concerned = self.server.executors.of_in_port(filter.matching.in_port());
                (Bridge::Virt, concerned.intersection(self.switches.up()))
            }
            // Former executors have counted, too.
            MultipartRequest::Table => (Bridge::Virt, self.switches.up()),
            MultipartRequest::Meter { .. } | MultipartRequest::Group { .. } => {
                (Bridge::Virt, executors)
            }
            MultipartRequest::PortStats { port } | MultipartRequest::Queue { port, .. }
                if *port == port_no::LOCAL =>
            {
                (
                    Bridge::Virt,
                    SwitchSet::of(HUB).intersection(self.switches.up()),
                )
            }
            MultipartRequest::PortStats { port } | MultipartRequest::Queue { port, .. } => {
                let port = self.server.ports.get(*port);
                let homes = port.map(|p| p.locations().map(|l| l.switch).collect());
                let homes: SwitchSet = homes.unwrap_or(edges);
                // A switch that the port has left answers only together with its offload rules.
                let left = self.offload_places(request);
                (Bridge::Edge, homes.union(left).intersection(edges))
            }
            MultipartRequest::GroupFeatures
            | MultipartRequest::MeterFeatures
            | MultipartRequest::TableFeatures(_) => (
                Bridge::Virt,
                SwitchSet::of(HUB).intersection(self.switches.up()),
            ),
            // All executors spell them alike.
            MultipartRequest::MeterConfig { .. } | MultipartRequest::GroupDesc => {
                (Bridge::Virt, executors.iter().take(1).collect())
            }
            MultipartRequest::Desc
            | MultipartRequest::PortDesc
            | MultipartRequest::FlowMonitor(_)
            | MultipartRequest::Experimenter { .. } => (Bridge::Virt, SwitchSet::EMPTY),
        }
    }

    /// Returns the ports whose offload rules count for an answer.
    pub fn offload_subjects(&self, request: &MultipartRequest) -> Vec<u32> {
        let MultipartRequest::PortStats { port: asked } = request else {
            return Vec::new();
        };
        // Packets of another port may have left as if the asked one had sent them.
        let peer = |number: &u32| self.server.offload.ports.get(number)?.peer;
        let is_asked =
            |number: &u32| [port_no::ANY, *number].contains(asked) || peer(number) == Some(*asked);
        let numbers = self.server.ports.iter().map(|port| port.number);
        numbers.filter(is_asked).collect()
    }

    fn offload_places(&self, request: &MultipartRequest) -> SwitchSet {
        let numbers = self.offload_subjects(request).into_iter();
        let places = numbers.map(|number| self.switches.places(self.server, number));
        places.fold(SwitchSet::EMPTY, SwitchSet::union)
    }

    /// Returns the request to the switches for answering `request`.
    pub fn physical_request(&self, request: &MultipartRequest) -> MultipartRequest {
        match request {
            // Physical port numbers differ between switches: ask for all, select when merging.
            MultipartRequest::PortStats { port } if *port != port_no::LOCAL => {
                MultipartRequest::PortStats { port: port_no::ANY }
            }
            MultipartRequest::Queue { port, queue } if *port != port_no::LOCAL => {
                MultipartRequest::Queue {
                    port: port_no::ANY,
                    queue: *queue,
                }
            }
            MultipartRequest::Flow(filter) | MultipartRequest::Aggregate(filter)
                if is_filtered_here(filter) =>
            {
                let matching = match filter.matching.lacks_prerequisite() {
                    true => Match::any(),
                    false => filter.matching.clone(),
                };
                MultipartRequest::Flow(FlowStatsRequest {
                    out_port: match filter.out_port {
                        port_no::FLOOD | port_no::ALL => port_no::ANY,
                        port => port,
                    },
                    matching,
                    ..filter.clone()
                })
            }
            other => other.clone(),
        }
    }
}

/// Tells whether switches are asked for more rules, of which those in the virtual tables that fit are shown: on the switches, outputs to
/// FLOOD and ALL are the flood group, and a match without prerequisites cannot be sent to them.
pub fn is_filtered_here(filter: &FlowStatsRequest) -> bool {
    matches!(filter.out_port, port_no::FLOOD | port_no::ALL) || filter.matching.lacks_prerequisite()
}
