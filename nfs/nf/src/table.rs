//! The faster tables that `--offload` can name.

use std::path::Path;

use nf_offload::{Edge, Table};

use crate::failure::Failure;

/// A table that carries heavy flows.
#[derive(Clone, Debug)]
pub(crate) enum Chosen {
    /// The rules of the server's switches: a path of oneswitchd's socket.
    Edge(Edge),
}

/// The options beside `--offload`, which only a path of oneswitchd's socket has.
#[derive(Clone, Debug, Default)]
pub(crate) struct EdgePort {
    pub(crate) port: Option<u32>,
    pub(crate) owner: Option<String>,
}

impl Chosen {
    /// Reads `--offload`.
    ///
    /// # Errors
    /// If the table needs another option, or does not have one that is given.
    pub(crate) fn of(named: &str, edge: EdgePort) -> Result<Self, Failure> {
        let Some(port) = edge.port else {
            return Err(Failure::new(format!(
                "--offload {named}: the path of oneswitchd's socket needs --offload-port, the number of the virtual port"
            )));
        };
        Ok(Self::Edge(Edge {
            socket: Path::new(named).to_owned(),
            port,
            owner: edge.owner,
        }))
    }

    /// Returns the table.
    pub(crate) fn into_table(self) -> Box<dyn Table> {
        match self {
            Self::Edge(edge) => Box::new(edge),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_oneswitchds_socket_and_needs_a_port() {
        let port = EdgePort {
            port: Some(7),
            owner: None,
        };
        let Chosen::Edge(edge) = Chosen::of("/run/x.sock", port).unwrap();
        assert_eq!(
            (edge.socket.as_path(), edge.port),
            (Path::new("/run/x.sock"), 7)
        );
        let refused = Chosen::of("/run/x.sock", EdgePort::default()).unwrap_err();
        assert!(refused.to_string().contains("--offload-port"), "{refused}");
    }
}
