//! The keys' positions in the process that owns the state.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Weak},
};

use crate::{
    cipher::Identity,
    config,
    keys::{both, inbound, Rows},
    sequence::Sequence,
    setup::Setup,
    window::Window,
};

/// What outlives a setup. A key that leaves the configuration stays here, so that it continues if it comes back; a negotiated one is forgotten.
#[derive(Default)]
pub struct Living {
    sequences: HashMap<usize, Arc<Sequence>>,
    windows: HashMap<usize, Arc<Window>>,
    /// The tunnels that a key exchange has made.
    pub negotiated: Vec<config::Tunnel>,
    /// Setups that workers may still use for a batch.
    past: Vec<Weak<Setup>>,
}

/// The rows of both directions, outbound first.
pub type Both<'a> = (&'a Rows, &'a Rows);

impl Living {
    /// Gives each association of a setup its place in the state; false: some keys found no room.
    pub fn bind(
        &mut self,
        setup: &Setup,
        (outbound, inbound): Both<'_>,
        now: u64,
        unix_ns: u64,
    ) -> bool {
        let mut fits = true;
        for tunnel in &setup.tunnels {
            for association in &tunnel.outbound {
                let Some(row) = outbound.claim(association.life.cipher.identity(), now) else {
                    fits = false;
                    continue;
                };
                let new = || Arc::new(Sequence::behind(outbound, row, unix_ns));
                let sequence = self.sequences.entry(row).or_insert_with(new);
                let _ = association.sequence.set(Arc::clone(sequence));
            }
            for association in &tunnel.inbound {
                let Some(row) = inbound.claim(association.life.cipher.identity(), now) else {
                    fits = false;
                    continue;
                };
                let new = || Arc::new(Window::new(row, association.size));
                let window = self.windows.entry(row).or_insert_with(new);
                window.resize(association.size);
                let _ = association.window.set(Arc::clone(window));
            }
            tunnel.restore_peer(inbound);
        }
        self.mark(setup, (outbound, inbound));
        fits
    }

    /// Notes in the state which keys were negotiated.
    fn mark(&self, setup: &Setup, (outbound, inbound): Both<'_>) {
        let own = setup.tunnels.len() - self.negotiated.len().min(setup.tunnels.len());
        for tunnel in &setup.tunnels[own..] {
            let sequences = tunnel
                .outbound
                .iter()
                .filter_map(|each| each.sequence.get());
            sequences.for_each(|each| outbound.set(each.row(), both::NEGOTIATED, 1));
            let windows = tunnel.inbound.iter().filter_map(|each| each.window.get());
            windows.for_each(|each| inbound.set(each.row(), both::NEGOTIATED, 1));
        }
    }

    /// Frees the rows of negotiated keys that are in neither setup, nor in one that a worker still uses: such a worker writes to the row of its key.
    pub fn forget(&mut self, (outbound, inbound): Both<'_>, present: &Setup, next: &Setup) {
        let past: Vec<Arc<Setup>> = self.past.iter().filter_map(Weak::upgrade).collect();
        let setups = past.iter().map(|each| &**each).chain([present, next]);
        let kept: HashSet<Identity> = setups.flat_map(identities).collect();
        for row in outbound.forget(|identity| kept.contains(&identity)) {
            self.sequences.remove(&row);
        }
        for row in inbound.forget(|identity| kept.contains(&identity)) {
            self.windows.remove(&row);
        }
    }

    /// Notes a setup that no new batch uses.
    pub fn retire(&mut self, setup: &Arc<Setup>) {
        self.past.retain(|each| each.strong_count() > 0);
        self.past.push(Arc::downgrade(setup));
    }

    /// Continues behind all that the state has reserved meanwhile.
    pub fn take_over(&self, outbound: &Rows, unix_ns: u64) {
        let sequences = self.sequences.values();
        sequences.for_each(|sequence| sequence.take_over(outbound, unix_ns));
    }
}

/// Lets the peers of tunnels with new ends be those of the configuration, no longer those that the state has noted.
pub fn follow_configuration(present: &Setup, next: &Setup, inbound: &Rows) {
    for tunnel in &next.tunnels {
        let mut others = present.tunnels.iter().map(|each| &each.config);
        let old = others.find(|other| other.name == tunnel.config.name);
        let end = |config: &config::Tunnel| (config.remote, config.remote_port);
        if old.is_none_or(|old| end(old) == end(&tunnel.config)) {
            continue;
        }
        for association in &tunnel.inbound {
            if let Some(row) = inbound.find(association.life.cipher.identity()) {
                inbound.set(row, inbound::PEER_PORT, 0);
            }
        }
    }
}

fn identities(setup: &Setup) -> impl Iterator<Item = Identity> + '_ {
    setup.tunnels.iter().flat_map(|tunnel| {
        let outbound = tunnel.outbound.iter().map(|each| &each.life);
        let lives = outbound.chain(tunnel.inbound.iter().map(|each| &each.life));
        lives.map(|life| life.cipher.identity())
    })
}
