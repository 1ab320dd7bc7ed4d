//! `GET /metrics`: the status as Prometheus text (exposition format 0.0.4).

use std::fmt::Write;

use crate::events::{OffloadStatus, Status, SwitchStatus};

/// Name, kind and help of a metric, then its lines.
struct Page(String);

impl Page {
    fn metric(&mut self, name: &str, kind: &str, help: &str, samples: &[(Labels<'_>, u64)]) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in samples {
            let labels: Vec<_> = labels
                .iter()
                .map(|(key, text)| format!("{key}=\"{}\"", escape(text)))
                .collect();
            let braces = if labels.is_empty() {
                String::new()
            } else {
                format!("{{{}}}", labels.join(","))
            };
            let _ = writeln!(self.0, "{name}{braces} {value}");
        }
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: u64) {
        self.metric(name, kind, help, &[(Vec::new(), value)]);
    }
}

type Labels<'a> = Vec<(&'static str, &'a str)>;

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

impl Status {
    /// Renders the page; every line is a number of the status.
    pub fn metrics(&self) -> String {
        let mut page = Page(String::new());
        page.one(
            "oneswitch_uptime_seconds",
            "gauge",
            "Seconds since oneswitchd started.",
            self.uptime_s,
        );
        let virtual_switch = &self.virtual_switch;
        for (name, help, value) in [
            (
                "oneswitch_virtual_ports",
                "Mapped virtual ports.",
                virtual_switch.ports,
            ),
            (
                "oneswitch_virtual_flows",
                "Rules of the controllers.",
                virtual_switch.flows,
            ),
            (
                "oneswitch_virtual_groups",
                "Groups of the controllers.",
                virtual_switch.groups,
            ),
            (
                "oneswitch_virtual_meters",
                "Meters of the controllers.",
                virtual_switch.meters,
            ),
        ] {
            page.one(name, "gauge", help, value as u64);
        }
        let help = "Messages of controllers answered with an error.";
        page.one(
            "oneswitch_refused_messages_total",
            "counter",
            help,
            self.refused,
        );
        self.switch_metrics(&mut page);
        self.controller_metrics(&mut page);
        self.offload_metrics(&mut page);
        page.0
    }

    fn switch_metrics(&self, page: &mut Page) {
        let mut up = Vec::new();
        for switch in &self.switches {
            for (bridge, status) in [("virt", &switch.virt), ("edge", &switch.edge)] {
                let labels = vec![("switch", switch.name.as_str()), ("bridge", bridge)];
                up.push((labels, u64::from(status.state == "up")));
            }
        }
        page.metric(
            "oneswitch_bridge_up",
            "gauge",
            "Whether a bridge is connected and in sync.",
            &up,
        );
        let links: Vec<_> = self
            .switches
            .iter()
            .filter_map(|s| {
                Some((
                    vec![("switch", s.name.as_str())],
                    u64::from(s.link.as_ref()?.state == "up"),
                ))
            })
            .collect();
        page.metric(
            "oneswitch_pcie_link_up",
            "gauge",
            "Whether a PCIe link carries packets.",
            &links,
        );
        let per_switch = |value: &dyn Fn(&SwitchStatus) -> u64| -> Vec<_> {
            self.switches
                .iter()
                .map(|s| (vec![("switch", s.name.as_str())], value(s)))
                .collect()
        };
        let flows = per_switch(&|s| s.physical_flows as u64);
        page.metric(
            "oneswitch_physical_flows",
            "gauge",
            "Copies of virtual rules on a switch.",
            &flows,
        );
        let edge = per_switch(&|s| s.edge_flows as u64);
        page.metric(
            "oneswitch_edge_flows",
            "gauge",
            "Rules that connect a switch's ports and links.",
            &edge,
        );
        let repairs = per_switch(&|s| s.repairs);
        let help = "Rules, groups and meters that had to be repaired on a switch.";
        page.metric("oneswitch_repairs_total", "counter", help, &repairs);
    }

    fn offload_metrics(&self, page: &mut Page) {
        let ports: Vec<String> = self.offload.iter().map(|p| p.port.to_string()).collect();
        let per_port = |value: &dyn Fn(&OffloadStatus) -> u64| -> Vec<_> {
            let ports = self.offload.iter().zip(&ports);
            ports
                .map(|(status, port)| (vec![("port", port.as_str())], value(status)))
                .collect()
        };
        for (name, kind, help, samples) in [
            (
                "oneswitch_offload_writer_connected",
                "gauge",
                "Whether a writer of offloaded flows is connected.",
                per_port(&|p| u64::from(p.writer)),
            ),
            (
                "oneswitch_offload_flows",
                "gauge",
                "Flows that a switch carries for a port.",
                per_port(&|p| p.flows as u64),
            ),
            (
                "oneswitch_offload_targets",
                "gauge",
                "Targets of the flows of a port.",
                per_port(&|p| p.targets as u64),
            ),
            (
                "oneswitch_offload_packets_total",
                "counter",
                "Packets that a switch carried for a port.",
                per_port(&|p| p.packets),
            ),
            (
                "oneswitch_offload_bytes_total",
                "counter",
                "Bytes of these packets.",
                per_port(&|p| p.bytes),
            ),
        ] {
            page.metric(name, kind, help, &samples);
        }
        let mut refused = Vec::new();
        for (status, port) in self.offload.iter().zip(&ports) {
            for (reason, count) in &status.refused {
                refused.push((vec![("port", port.as_str()), ("reason", *reason)], *count));
            }
        }
        let help = "Refused installs of offloaded flows.";
        page.metric("oneswitch_offload_refused_total", "counter", help, &refused);
    }

    fn controller_metrics(&self, page: &mut Page) {
        let mut connected = Vec::new();
        let mut messages = Vec::new();
        let mut dropped = Vec::new();
        for controller in &self.controllers {
            let who = vec![
                ("target", controller.target.as_str()),
                ("peer", controller.peer.as_str()),
            ];
            connected.push((who.clone(), u64::from(controller.id.is_some())));
            dropped.push((who.clone(), controller.packet_ins_dropped));
            for (direction, count) in [
                ("in", controller.messages_in),
                ("out", controller.messages_out),
            ] {
                let labels = [who.clone(), vec![("direction", direction)]].concat();
                messages.push((labels, count));
            }
        }
        page.metric(
            "oneswitch_controller_connected",
            "gauge",
            "Whether a controller is connected.",
            &connected,
        );
        let help = "OpenFlow messages from (in) and to (out) a controller.";
        page.metric(
            "oneswitch_controller_messages_total",
            "counter",
            help,
            &messages,
        );
        let help = "Packet-ins that a controller lost because it did not read.";
        page.metric(
            "oneswitch_controller_packet_ins_dropped_total",
            "counter",
            help,
            &dropped,
        );
    }
}
