//! The register: hosts and what was found out about each, in the instance's state. When it is full, it forgets the host that was silent for longest.

use std::sync::{atomic::Ordering, Arc};

use bytemuck::{Pod, Zeroable};
use nf_arena::{Memory, Region};
use nf_runtime::{
    state::{ByteQueue, ChunkPool, FlowTable, Slab, SlabId, StateBuilder},
    Refusal,
};

#[cfg(test)]
mod tests;

/// The bytes of a chunk of text. Most texts fit one.
const CHUNK: usize = 64;
/// The most findings of a host. A host that offers more has its longest unseen one forgotten.
const MOST_FINDINGS: usize = 256;
/// Entries of the index end by removal only.
const NEVER: u64 = 1 << 62;

/// An address, and whether it is one of IPv4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Address {
    pub octets: [u8; 16],
    /// 4 or 6.
    pub version: u64,
}

/// A host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Host {
    pub address: Address,
    /// Zeros: unknown.
    pub mac: [u8; 6],
    /// The VLAN tag of its latest packet, with the priority.
    pub vlan: u16,
    /// The number of its first MAC address's vendor; 0: unknown.
    pub vendor: u32,
    reserved: u32,
    /// Seconds since 1970.
    pub first_seen: u64,
    pub last_seen: u64,
    findings: SlabId,
    /// Its neighbours in the order in which hosts are forgotten.
    older: SlabId,
    newer: SlabId,
}

/// The kinds of findings.
pub mod kind {
    /// A service that the host offers or uses.
    pub const SERVICE: u8 = 1;
    /// An operating system, known from a packet.
    pub const SYSTEM: u8 = 2;
}

/// A finding about a host: a service, or an operating system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Finding {
    pub kind: u8,
    /// The protocol of a service; the way in which an operating system was detected.
    pub way: u8,
    /// Whether the host is the service's server.
    pub is_server: u8,
    pub ttl: u8,
    pub port: u16,
    /// How often another program than the known one was seen.
    pub others: u16,
    /// The line of the signature of an operating system; 0: none.
    pub line: u32,
    /// Where the program's title starts in the text of a service.
    pub title: u16,
    pub(crate) reserved: u16,
    /// The time stamp of TCP of an operating system; 0: none.
    pub stamp: u32,
    pub(crate) reserved_2: u32,
    pub first_seen: u64,
    pub last_seen: u64,
    pub(crate) host: SlabId,
    pub(crate) next: SlabId,
    pub(crate) text: ByteQueue,
}

/// The limits of a register.
#[derive(Clone, Copy, Debug)]
pub struct Capacity {
    pub hosts: usize,
    pub findings: usize,
}

/// Words of the register's own: the ends of the order in which hosts are forgotten, and counts.
#[derive(Clone, Copy)]
enum Word {
    Oldest,
    Newest,
    Forgotten,
    ForgottenFindings,
}

const WORDS: usize = 4;

/// Hosts and findings.
pub struct Register {
    index: FlowTable<Address, SlabId>,
    hosts: Slab<Host>,
    findings: Slab<Finding>,
    texts: ChunkPool,
    words: Region,
}

impl Register {
    /// Declares the register's state.
    ///
    /// # Errors
    /// If it is too large.
    pub fn declare(capacity: Capacity, state: &mut StateBuilder) -> Result<Arc<Self>, Refusal> {
        let register = Arc::new(Self {
            // Twice the room: a part of the index must not be full while there are hosts left.
            index: state.flow_table("hosts by address", capacity.hosts.saturating_mul(2))?,
            hosts: state.slab("hosts", capacity.hosts)?,
            findings: state.slab("findings", capacity.findings)?,
            texts: state.chunk_pool("texts", capacity.findings.saturating_mul(2), CHUNK)?,
            words: state.region(
                "order of hosts",
                "oldest, newest, forgotten hosts and findings",
                WORDS,
            )?,
        });
        let repaired = Arc::clone(&register);
        state.on_repair(move || repaired.repair());
        Ok(register)
    }

    fn get(&self, word: Word) -> u64 {
        self.words.words()[word as usize].load(Ordering::Relaxed)
    }

    fn set(&self, word: Word, value: u64) {
        self.words.words()[word as usize].store(value, Ordering::Relaxed);
        self.words.touch(word as usize);
    }

    fn end(&self, word: Word) -> SlabId {
        bytemuck::cast(self.get(word))
    }

    fn set_end(&self, word: Word, id: SlabId) {
        self.set(word, bytemuck::cast(id));
    }

    fn count(&self, word: Word) {
        self.set(word, self.get(word) + 1);
    }

    /// Returns the number of hosts, of findings, and of both that were forgotten for lack of room.
    #[must_use]
    pub fn counts(&self) -> [u64; 4] {
        [
            self.hosts.len() as u64,
            self.findings.len() as u64,
            self.get(Word::Forgotten),
            self.get(Word::ForgottenFindings),
        ]
    }

    /// Returns the number of slots of hosts.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.hosts.capacity() as u32
    }

    /// Returns the host in a slot.
    #[must_use]
    pub fn in_slot(&self, slot: u32) -> Option<(SlabId, Host)> {
        let id = self.hosts.id(slot)?;
        Some((id, self.hosts.look(id)?))
    }

    #[must_use]
    pub fn host(&self, id: SlabId) -> Option<Host> {
        self.hosts.look(id)
    }

    /// Returns the host with an address.
    #[must_use]
    pub fn find(&self, address: &Address) -> Option<SlabId> {
        self.index.look(address, 0)
    }

    /// Notes a packet of a host, which is new if it was not known, and returns the host.
    pub fn see(&self, address: &Address, vlan: u16, time: u64) -> Option<SlabId> {
        if let Some(id) = self.find(address) {
            let host = self.hosts.look(id)?;
            if (host.vlan, host.last_seen) != (vlan, time) {
                self.hosts
                    .update(id, |host| (host.vlan, host.last_seen) = (vlan, time));
            }
            // Once a second is often enough for the order.
            if host.last_seen != time {
                self.make_newest(id);
            }
            return Some(id);
        }
        self.insert(Host {
            address: *address,
            vlan,
            first_seen: time,
            last_seen: time,
            ..Host::default()
        })
    }

    fn insert(&self, host: Host) -> Option<SlabId> {
        let id = loop {
            match self.hosts.insert(host) {
                Some(id) => break id,
                None => self.forget_oldest(SlabId::default()).then_some(())?,
            }
        };
        self.append(id);
        while self.index.insert(&host.address, 0, NEVER, id).is_err() {
            if !self.forget_oldest(id) {
                self.forget(id);
                return None;
            }
        }
        Some(id)
    }

    /// Sets the MAC address of a host.
    pub fn set_mac(&self, id: SlabId, mac: [u8; 6], vendor: u32) {
        self.hosts
            .update(id, |host| (host.mac, host.vendor) = (mac, vendor));
    }

    /// Sets when a host was last seen.
    pub fn touch(&self, id: SlabId, time: u64) {
        let before = self
            .hosts
            .update(id, |host| std::mem::replace(&mut host.last_seen, time));
        if before.is_some_and(|before| before != time) {
            self.make_newest(id);
        }
    }

    /// Forgets all findings about a host, and when it was first seen.
    pub fn begin_again(&self, id: SlabId, vlan: u16, time: u64) {
        self.drop_findings(id);
        self.hosts.update(id, |host| {
            (host.vlan, host.vendor, host.mac) = (vlan, 0, [0; 6]);
            (host.first_seen, host.last_seen) = (time, time);
        });
    }

    /// Calls `look` with each finding about a host, the latest first, until it returns something.
    pub fn search<R>(
        &self,
        host: SlabId,
        mut look: impl FnMut(SlabId, &Finding) -> Option<R>,
    ) -> Option<R> {
        let mut next = self.hosts.look(host)?.findings;
        for _ in 0..=MOST_FINDINGS {
            let finding = self.findings.look(next)?;
            if let Some(found) = look(next, &finding) {
                return Some(found);
            }
            next = finding.next;
        }
        None
    }

    /// Returns the text of a finding.
    #[must_use]
    pub fn text(&self, finding: &Finding) -> Vec<u8> {
        let mut text = vec![0; finding.text.len()];
        let read = finding.text.read_at(&self.texts, 0, &mut text);
        text.truncate(read);
        text
    }

    /// Tells whether a part of a finding's text, from an offset to its end, is this one.
    #[must_use]
    pub fn has_text(&self, finding: &Finding, from: usize, wanted: &[u8]) -> bool {
        finding.text.len() == from + wanted.len() && self.text(finding).ends_with(wanted)
    }

    /// Adds a finding about a host.
    pub fn add(&self, host: SlabId, finding: Finding, text: &[u8]) {
        let counted = self.make_room(host);
        let id = loop {
            let next = self.hosts.look(host).map(|host| host.findings);
            let Some(next) = next else { return };
            let finding = Finding {
                host,
                next,
                ..finding
            };
            match self.findings.insert(finding) {
                Some(id) => break id,
                None if self.forget_for(host) => {}
                None => return,
            }
        };
        let linked = self.hosts.update(host, |record| record.findings = id);
        if linked.is_some() && counted {
            self.set_text(host, id, text);
        }
    }

    /// Replaces the text of a finding.
    pub fn set_text(&self, host: SlabId, id: SlabId, text: &[u8]) {
        let Some(mut finding) = self.findings.look(id) else {
            return;
        };
        finding.text.clear(&self.texts);
        finding.text = ByteQueue::new(id.slot());
        while finding
            .text
            .append(&self.texts, &text[finding.text.len()..])
            < text.len()
            && finding.text.len() < text.len()
        {
            if !self.forget_oldest(host) {
                break;
            }
        }
        self.findings
            .update(id, |record| record.text = finding.text);
    }

    /// Changes a finding.
    pub fn change(&self, id: SlabId, change: impl FnOnce(&mut Finding)) {
        self.findings.update(id, change);
    }

    /// Makes room among a host's findings. False: the host is gone.
    fn make_room(&self, host: SlabId) -> bool {
        let (mut count, mut oldest) = (0, None);
        self.search(host, |id, finding| {
            count += 1;
            if oldest.is_none_or(|(_, seen)| finding.last_seen <= seen) {
                oldest = Some((id, finding.last_seen));
            }
            None::<()>
        });
        if let Some((id, _)) = oldest.filter(|_| count >= MOST_FINDINGS) {
            self.drop_finding(host, id);
        }
        self.hosts.look(host).is_some()
    }

    /// Forgets the oldest other host, or this one's findings if there is no other.
    fn forget_for(&self, host: SlabId) -> bool {
        if self.forget_oldest(host) {
            return true;
        }
        let had = self
            .hosts
            .look(host)
            .is_some_and(|host| !host.findings.is_none());
        self.drop_findings(host);
        had
    }

    /// Forgets the host that was silent for longest, except this one. False: there is no other.
    fn forget_oldest(&self, except: SlabId) -> bool {
        let mut oldest = self.end(Word::Oldest);
        if oldest == except {
            oldest = self
                .hosts
                .look(oldest)
                .map_or_else(SlabId::default, |host| host.newer);
        }
        let found = !oldest.is_none() && self.hosts.look(oldest).is_some();
        if found {
            self.forget(oldest);
            self.count(Word::Forgotten);
        }
        found
    }

    fn forget(&self, id: SlabId) {
        self.drop_findings(id);
        self.unlink(id);
        if let Some(host) = self.hosts.remove(id) {
            if self.find(&host.address) == Some(id) {
                self.index.remove(&host.address, 0);
            }
        }
    }

    fn drop_findings(&self, host: SlabId) {
        let first = self
            .hosts
            .update(host, |host| std::mem::take(&mut host.findings));
        let mut next = first.unwrap_or_default();
        while let Some(mut finding) = self.findings.remove(next) {
            finding.text.clear(&self.texts);
            next = finding.next;
        }
    }

    fn drop_finding(&self, host: SlabId, id: SlabId) {
        let before = self.search(host, |other, finding| (finding.next == id).then_some(other));
        let Some(mut finding) = self.findings.look(id) else {
            return;
        };
        match before {
            Some(before) => self
                .findings
                .update(before, |before| before.next = finding.next),
            None => self.hosts.update(host, |host| host.findings = finding.next),
        };
        self.findings.remove(id);
        finding.text.clear(&self.texts);
        self.count(Word::ForgottenFindings);
    }

    fn make_newest(&self, id: SlabId) {
        if self.end(Word::Newest) != id {
            self.unlink(id);
            self.append(id);
        }
    }

    fn append(&self, id: SlabId) {
        let newest = self.end(Word::Newest);
        self.hosts.update(id, |host| {
            (host.older, host.newer) = (newest, SlabId::default())
        });
        match self.hosts.update(newest, |host| host.newer = id) {
            Some(()) => {}
            None => self.set_end(Word::Oldest, id),
        }
        self.set_end(Word::Newest, id);
    }

    fn unlink(&self, id: SlabId) {
        let Some(host) = self.hosts.look(id) else {
            return;
        };
        if self
            .hosts
            .update(host.older, |older| older.newer = host.newer)
            .is_none()
        {
            self.set_end(Word::Oldest, host.newer);
        }
        if self
            .hosts
            .update(host.newer, |newer| newer.older = host.older)
            .is_none()
        {
            self.set_end(Word::Newest, host.older);
        }
    }

    /// Repairs the register after a kill: keeps all whole records, and links them again.
    fn repair(&self) {
        let mut hosts = Vec::new();
        self.hosts
            .for_each(|id, host| hosts.push((host.last_seen, id, host.address)));
        hosts.sort_by_key(|(seen, ..)| *seen);
        self.set_end(Word::Oldest, SlabId::default());
        self.set_end(Word::Newest, SlabId::default());
        for (_, id, _) in &hosts {
            self.hosts
                .update(*id, |host| host.findings = SlabId::default());
            self.append(*id);
        }
        self.repair_findings();
        let mut stale = Vec::new();
        self.index.for_each(0, |address, id| {
            let host = self.hosts.look(*id);
            if host.is_none_or(|host| host.address != *address) {
                stale.push(*address);
            }
        });
        for address in stale {
            self.index.remove(&address, 0);
        }
        for (_, id, address) in hosts {
            match self.index.insert(&address, 0, NEVER, id) {
                Ok(()) => {}
                Err(Some(same)) if same == id => {}
                Err(_) => self.forget(id),
            }
        }
    }

    fn repair_findings(&self) {
        let mut findings = Vec::new();
        self.findings
            .for_each(|id, finding| findings.push((id, *finding)));
        findings.sort_by_key(|(_, finding)| finding.first_seen);
        for (id, finding) in findings {
            let is_whole = finding.text.is_whole(&self.texts);
            let next = self.hosts.look(finding.host).map(|host| host.findings);
            match next.filter(|_| is_whole) {
                Some(next) => {
                    self.findings.update(id, |finding| finding.next = next);
                    self.hosts.update(finding.host, |host| host.findings = id);
                }
                None => drop(self.findings.remove(id)),
            }
        }
        self.texts.free_orphans(|slot, chunk| {
            let finding = self.findings.id(slot).and_then(|id| self.findings.look(id));
            finding
                .is_some_and(|finding| finding.text.chunks(&self.texts).any(|named| named == chunk))
        });
    }
}
