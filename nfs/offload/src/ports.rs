//! The ports of a function as one table: rules carry packets that would come by different ports.

use std::{collections::HashMap, time::Duration};

use crate::{
    Capabilities, CounterId, Driver, Event, Listing, Request, RuleId, Table, TargetId, Unavailable,
    Writer,
};

/// Opens a table for the first `ports` ports of a function. A target belongs to one of them: that with the target's number modulo `ports`.
///
/// # Errors
/// Those of [`Table::open`].
pub fn open_ports(
    table: &mut dyn Table,
    writer: Writer,
    ports: usize,
) -> Result<Box<dyn Driver + Send>, Unavailable> {
    let open = |port| {
        Ok(Port {
            driver: table.open(writer, port)?,
            listing: None,
            totals: HashMap::new(),
        })
    };
    Ok(Box::new(Ports {
        ports: (0..ports.max(1)).map(open).collect::<Result<_, _>>()?,
        rules: HashMap::new(),
    }))
}

struct Port {
    driver: Box<dyn Driver + Send>,
    listing: Option<Listing>,
    totals: HashMap<CounterId, [u64; 2]>,
}

struct Ports {
    ports: Vec<Port>,
    rules: HashMap<RuleId, usize>,
}

impl Ports {
    fn port_of(&self, target: TargetId) -> usize {
        target.0 as usize % self.ports.len()
    }

    /// Returns the port that gets a request.
    fn route(&self, request: &Request) -> usize {
        match request {
            Request::PutTarget(target, _)
            | Request::DropTarget(target)
            | Request::Install(_, _, target, ..) => self.port_of(*target),
            // Any port answers the removal of a rule that no port has.
            Request::Remove(rule) => self.rules.get(rule).copied().unwrap_or_default(),
        }
    }

    /// Returns what all ports have counted.
    fn total(&self, counter: CounterId) -> [u64; 2] {
        let totals = self
            .ports
            .iter()
            .filter_map(|port| port.totals.get(&counter));
        totals.fold([0; 2], |[packets, bytes], more| {
            [packets + more[0], bytes + more[1]]
        })
    }

    /// Converts an event of a port.
    fn take(&mut self, port: usize, event: Event) -> Result<Event, Unavailable> {
        match event {
            Event::Carried(counter, packets, bytes) => {
                self.ports[port].totals.insert(counter, [packets, bytes]);
                let [packets, bytes] = self.total(counter);
                return Ok(Event::Carried(counter, packets, bytes));
            }
            Event::Effective(rule) | Event::Refused(rule, _) => {
                self.rules.remove(&rule);
            }
            // Of the others' rules nothing is lost: `list` tells what is left.
            Event::Reset if self.ports.len() > 1 => {
                return Err(Unavailable {
                    why: format!("the table of port {port} has lost its rules"),
                    is_replaced: false,
                })
            }
            _ => {}
        }
        Ok(event)
    }
}

impl Driver for Ports {
    fn capabilities(&self) -> Option<Capabilities> {
        let all = self.ports.iter().map(|port| port.driver.capabilities());
        let all: Option<Vec<Capabilities>> = all.collect();
        // All of them are of one table.
        all?.into_iter().min_by_key(|each| each.flows)
    }

    fn set_idle(&mut self, idle: Duration) {
        self.ports
            .iter_mut()
            .for_each(|port| port.driver.set_idle(idle));
    }

    fn submit(&mut self, requests: &[Request]) -> usize {
        for (index, request) in requests.iter().enumerate() {
            let port = self.route(request);
            if self.ports[port]
                .driver
                .submit(std::slice::from_ref(request))
                == 0
            {
                return index;
            }
            if let Request::Install(rule, ..) = request {
                self.rules.insert(*rule, port);
            }
        }
        requests.len()
    }

    fn poll(&mut self, events: &mut Vec<Event>) -> Result<(), Unavailable> {
        let mut lost = Ok(());
        for port in 0..self.ports.len() {
            let mut own = Vec::new();
            lost = lost.and(self.ports[port].driver.poll(&mut own));
            for event in own {
                events.push(self.take(port, event)?);
            }
        }
        lost
    }

    fn list(&mut self) -> Option<Listing> {
        for port in &mut self.ports {
            if port.listing.is_none() {
                port.listing = port.driver.list();
            }
        }
        if self.ports.iter().any(|port| port.listing.is_none()) {
            return None;
        }
        let mut all = Listing::default();
        for (index, port) in self.ports.iter_mut().enumerate() {
            let listing = port.listing.take()?;
            for rule in listing.rules {
                self.rules.insert(rule.rule, index);
                all.rules.push(rule);
            }
            for (counter, packets, bytes) in listing.carried {
                port.totals.insert(counter, [packets, bytes]);
            }
        }
        let mut counters: Vec<CounterId> = Vec::new();
        for port in &self.ports {
            counters.extend(port.totals.keys());
        }
        counters.sort_unstable();
        counters.dedup();
        all.carried = counters
            .into_iter()
            .map(|counter| (counter, self.total(counter)))
            .map(|(counter, [packets, bytes])| (counter, packets, bytes))
            .collect();
        Some(all)
    }
}
