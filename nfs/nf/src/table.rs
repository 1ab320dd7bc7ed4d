//! The faster tables that `--offload` can name.

use std::path::Path;

use nf_flow_director::FlowDirector;
use nf_offload::{Edge, Table};
use nf_ports::{Matching, Port};
use nf_tiara::Tnic;

use crate::failure::Failure;

/// The matches of Intel's Flow Director (HNLB, section II-B).
const MATCHES: u32 = 8000;

/// A table that carries heavy flows.
#[derive(Clone, Debug)]
pub(crate) enum Chosen {
    /// The rules of the server's switches: a path of oneswitchd's socket.
    Edge(Edge),
    /// `xdp`: a program on the port, in place of a network card that matches.
    Xdp,
    /// `ntuple`: the rules of the port's network card.
    Ntuple,
    /// The memory of a T-NIC: `tnic:` and the path of its socket for this instance.
    Tnic(Tnic),
}

/// The options beside `--offload`, which only a path of oneswitchd's socket has.
#[derive(Clone, Debug, Default)]
pub(crate) struct EdgePort {
    pub(crate) ports: Vec<u32>,
    pub(crate) owner: Option<String>,
}

impl Chosen {
    /// Reads `--offload`.
    ///
    /// # Errors
    /// If the table needs another option, or does not have one that is given.
    pub(crate) fn of(named: &str, edge: EdgePort) -> Result<Self, Failure> {
        let of_port = match named {
            "xdp" => Some(Self::Xdp),
            "ntuple" => Some(Self::Ntuple),
            _ => None,
        };
        if let Some(chosen) = of_port {
            return match edge.ports.is_empty() {
                true => Ok(chosen),
                false => Err(Failure::new(format!(
                    "--offload {named}: the port itself has this table; run it without --offload-port"
                ))),
            };
        }
        if let Some(socket) = named.strip_prefix("tnic:") {
            if !edge.ports.is_empty() || edge.owner.is_some() {
                return Err(Failure::new(format!(
                    "--offload {named}: a T-NIC has no virtual ports; run it without --offload-port and --offload-owner"
                )));
            }
            let socket = Path::new(socket).to_owned();
            return Ok(Self::Tnic(Tnic { socket }));
        }
        if edge.ports.is_empty() {
            return Err(Failure::new(format!(
                "--offload {named}: the path of oneswitchd's socket needs --offload-port, the number of the virtual port (expected: that, xdp, ntuple, or tnic: and a path)"
            )));
        }
        Ok(Self::Edge(Edge {
            socket: Path::new(named).to_owned(),
            ports: edge.ports,
            owner: edge.owner,
        }))
    }

    /// Checks that a function with these ports can use the table. `most`: the most ports with which a function of this kind can.
    ///
    /// # Errors
    /// If it cannot.
    pub(crate) fn fits(&self, kind: &str, ports: usize, most: usize) -> Result<(), Failure> {
        if most == 0 {
            return Err(Failure::new(format!(
                "--offload: {kind} processes all its packets itself; run it without --offload"
            )));
        }
        if ports > most {
            return Err(Failure::new(format!(
                "--offload: {kind} with {ports} ports processes all its packets itself; run it with {most}, or without --offload"
            )));
        }
        match self {
            Self::Edge(edge) if edge.ports.len() != ports => Err(Failure::new(format!(
                "--offload-port: {} numbers for {ports} ports; expected one for each --port",
                edge.ports.len()
            ))),
            _ => Ok(()),
        }
    }

    /// Returns the matches that the port must have.
    pub(crate) fn matching(&self) -> Matching {
        match self {
            Self::Edge(_) | Self::Tnic(_) => Matching::None,
            Self::Xdp => Matching::Program(MATCHES),
            Self::Ntuple => Matching::Card,
        }
    }

    /// Returns the table of a function with these ports.
    ///
    /// # Errors
    /// If the ports cannot have it.
    pub(crate) fn into_table(self, ports: &mut [Port]) -> Result<Box<dyn Table>, Failure> {
        match self {
            Self::Edge(edge) => Ok(Box::new(edge)),
            Self::Tnic(tnic) => Ok(Box::new(tnic)),
            Self::Xdp => matches_of("xdp", ports),
            Self::Ntuple => matches_of("ntuple", ports),
        }
    }
}

/// Returns the table of the only port's matches.
fn matches_of(named: &str, ports: &mut [Port]) -> Result<Box<dyn Table>, Failure> {
    let [port] = ports else {
        return Err(Failure::new(format!(
            "--offload {named}: {} ports; expected one",
            ports.len()
        )));
    };
    let Some(matcher) = port.matcher.take() else {
        return Err(Failure::new(format!(
            "--offload {named}: port {} uses {}, which cannot mark frames; expected AF_XDP: --backend xdp says what it misses",
            port.name, port.backend
        )));
    };
    let table = FlowDirector::start(matcher);
    let table = table.map_err(|error| Failure::new(format!("cannot start a thread: {error}")))?;
    Ok(Box::new(table))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_oneswitchds_socket_and_needs_a_port() {
        let port = EdgePort {
            ports: vec![7],
            owner: None,
        };
        let Ok(Chosen::Edge(edge)) = Chosen::of("/run/x.sock", port.clone()) else {
            panic!("another table");
        };
        assert_eq!(
            (edge.socket.as_path(), edge.ports),
            (Path::new("/run/x.sock"), vec![7])
        );
        let refused = Chosen::of("/run/x.sock", EdgePort::default()).unwrap_err();
        assert!(refused.to_string().contains("--offload-port"), "{refused}");
        let refused = Chosen::of("xdp", port).unwrap_err();
        assert!(
            refused.to_string().contains("without --offload-port"),
            "{refused}"
        );
    }

    #[test]
    fn each_port_has_its_number() {
        let edge = |ports| {
            let owner = None;
            Chosen::of("/run/x.sock", EdgePort { ports, owner }).unwrap()
        };
        edge(vec![7]).fits("l4lb", 1, 1).unwrap();
        edge(vec![7, 8]).fits("firewall", 2, 2).unwrap();
        for (ports, count, most, part) in [
            (vec![7], 2, 2, "1 numbers for 2 ports"),
            (vec![7, 8], 2, 1, "l4lb with 2 ports"),
            (vec![7], 1, 0, "without --offload"),
        ] {
            let refused = edge(ports).fits("l4lb", count, most).unwrap_err();
            assert!(refused.to_string().contains(part), "{refused}");
        }
    }

    #[test]
    fn a_port_without_matches_cannot_have_the_table_of_marks() {
        let chosen = Chosen::of("xdp", EdgePort::default()).unwrap();
        assert_eq!(chosen.matching(), Matching::Program(8000));
        let (port, _) = nf_ports::memory::port(0, [2; 6], 1).unwrap();
        let refused = chosen.into_table(&mut [port]).err().unwrap();
        assert!(refused.to_string().contains("--backend xdp"), "{refused}");
    }

    #[test]
    fn a_t_nic_has_a_socket_and_no_port() {
        let Ok(Chosen::Tnic(tnic)) = Chosen::of("tnic:/run/mux.sock", EdgePort::default()) else {
            panic!("another table");
        };
        assert_eq!(tnic.socket, Path::new("/run/mux.sock"));
        let port = EdgePort {
            ports: vec![7],
            owner: None,
        };
        let refused = Chosen::of("tnic:/run/mux.sock", port).err().unwrap();
        assert!(refused.to_string().contains("--offload-port"), "{refused}");
    }
}
