//! The configuration's part of the status.

use std::time::Instant;

use oneswitch_core::{Bridge, SwitchIndex};

use crate::config::Config;

/// The constant part of the status.
#[derive(Debug)]
pub struct Report {
    pub started: Instant,
    /// With the ports that the system chose.
    pub listen: Vec<String>,
    pub api: String,
    /// Targets of the controllers that oneswitchd connects to.
    pub controllers: Vec<String>,
    pub switches: Vec<ReportedSwitch>,
}

#[derive(Debug)]
pub struct ReportedSwitch {
    pub name: String,
    pub virt: String,
    pub edge: String,
    /// Names of the PCIe ports: on the hypervisor, on the switch.
    pub link: Option<(String, String)>,
}

impl Report {
    pub fn new(config: &Config, listen: Vec<String>, api: String, started: Instant) -> Self {
        let switches = config.switches.iter().map(|switch| ReportedSwitch {
            name: switch.name.clone(),
            virt: switch.virt.to_string(),
            edge: switch.edge.to_string(),
            link: switch
                .link
                .as_ref()
                .map(|link| (link.hypervisor.clone(), link.local.clone())),
        });
        Self {
            started,
            listen,
            api,
            controllers: config.controllers.iter().map(ToString::to_string).collect(),
            switches: switches.collect(),
        }
    }

    /// Names a bridge for the log.
    pub fn bridge(&self, switch: SwitchIndex, bridge: Bridge) -> String {
        let Some(switch) = self.switches.get(switch) else {
            return "unknown switch".into();
        };
        match bridge {
            Bridge::Virt => format!("switch {}, bridge virt ({})", switch.name, switch.virt),
            Bridge::Edge => format!("switch {}, bridge edge ({})", switch.name, switch.edge),
        }
    }
}
