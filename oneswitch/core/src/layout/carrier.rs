//! The ways to carry a flow-id over a PCIe link: the only place that knows how rules of `edge` write, match and remove one.

use crate::api::LinkKind;
use crate::layout::encoding::{appended, resubmit, set_field, NO_PORT, REG0, TAGGED, UNTAGGED};
use crate::server::flow_ids::FlowId;
use openflow13::{
    group_no, group_type, port_no, ActionList, Buckets, GroupMod, GroupModCommand, Match,
};
use std::ops::RangeInclusive;

/// OpenFlow port numbers that plumbing requests for ports of Open vSwitch's type `pcie`, on every `edge` (docs/architecture.md, "PCIe links").
/// OpenFlow does not tell the types of ports.
const PCIE_NUMBERS: RangeInclusive<u32> = 0xfe01..=0xfefe;
const ETHERTYPE_VLAN: u16 = 0x8100;
/// OXM_OF_TUNNEL_ID.
const TUNNEL_ID: [u8; 4] = [0x80, 0, 38 << 1, 8];

/// Packets that enter a PCIe link with tags of their own are parsed again before they get another one, because Open vSwitch keeps only two
/// tags of a packet that it is changing and would lose the third. Only a select group makes it recirculate a packet; this one has one
/// bucket, to table 1.
const REPARSE_GROUP: u32 = 1;
/// Leads to [`REPARSE_GROUP`]. After a clone that starts to recirculate, Open vSwitch 3.1 continues as if the packet had not left it
/// (`ctx->exit`, which `clone_xlate_actions` in ofproto-dpif-xlate.c does not restore), and repeats the clone in `virt` before anything
/// that a ct() or a select group recirculates there. The end of a group's bucket resets it.
const ENCLOSING_GROUP: u32 = 2;
/// The table of packets that were parsed again.
pub const REPARSED_TABLE: u8 = 1;

/// How a PCIe port carries flow-ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// A VLAN tag on the packet; any device can be such a port.
    Tag,
    /// The tunnel id beside the packet; only ports of Open vSwitch's type `pcie` carry it.
    TunnelId,
}

impl Carrier {
    /// Returns its name in server.toml and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tag => "vlan",
            Self::TunnelId => "pcie",
        }
    }

    /// Returns the carrier of a PCIe port with this OpenFlow port number.
    pub fn of(kind: LinkKind, number: u32) -> Self {
        match kind {
            LinkKind::Vlan => Self::Tag,
            LinkKind::Pcie => Self::TunnelId,
            LinkKind::Probed if PCIE_NUMBERS.contains(&number) => Self::TunnelId,
            LinkKind::Probed => Self::Tag,
        }
    }

    /// Tells whether it can carry an id.
    pub fn carries(self, id: FlowId) -> bool {
        match self {
            Self::Tag => id < 4096,
            Self::TunnelId => true,
        }
    }

    /// Encodes the fields, as OXM TLVs, of packets that carry an id.
    pub fn fields(self, id: FlowId) -> Vec<u8> {
        match self {
            Self::Tag => Match::any().with_vlan_vid(vid(id)).as_oxm().to_vec(),
            Self::TunnelId => tunnel_id(id),
        }
    }

    /// Gives a packet a flow-id.
    pub fn put(self, actions: ActionList, id: FlowId) -> ActionList {
        match self {
            Self::Tag => actions.push_vlan(ETHERTYPE_VLAN).set_vlan_vid(vid(id)),
            Self::TunnelId => appended(actions, &set_field(&tunnel_id(id))),
        }
    }

    /// Takes the flow-id off an arrived packet.
    pub fn take(self, actions: ActionList) -> ActionList {
        match self {
            Self::Tag => actions.pop_vlan(),
            Self::TunnelId => actions,
        }
    }

    /// Takes the flow-id off an arrived packet whose headers rules will match or change.
    ///
    /// With its default vlan-limit, Open vSwitch has not parsed the headers behind a tag. It parses the content of an NSH header again, so
    /// the packet gets one for a moment. (A select group would also do, but leaves a hash that select groups in `virt` would then use.)
    pub fn take_whole(self, actions: ActionList) -> ActionList {
        match self {
            Self::Tag => appended(self.take(actions), &[ENCAP_NSH, DECAP].concat()),
            Self::TunnelId => self.take(actions),
        }
    }
}

/// Converts an id that a tag carries ([`Carrier::carries`]).
fn vid(id: FlowId) -> u16 {
    id as u16 & 0xfff
}

/// Encodes a flow-id as the tunnel id's OXM TLV.
fn tunnel_id(id: FlowId) -> Vec<u8> {
    [&TUNNEL_ID[..], &u64::from(id).to_be_bytes()].concat()
}

/// NXAST_ENCAP: packet type (1, 0x894f).
const ENCAP_NSH: [u8; 16] = [
    0xff, 0xff, 0, 16, 0, 0, 0x23, 0x20, 0, 46, 0, 0, 0, 1, 0x89, 0x4f,
];
/// NXAST_DECAP: to what the header says (packet type (0, 0xfffe)).
const DECAP: [u8; 16] = [
    0xff, 0xff, 0, 16, 0, 0, 0x23, 0x20, 0, 47, 0, 0, 0, 0, 0xff, 0xfe,
];

/// NXAST_CLONE of [`ENCLOSING_GROUP`], preceded by a truncated output to no port. Hashing for the group makes Open vSwitch's userspace
/// datapath parse the packet again, two tags deep only, and its next change would write to the wrong place, so it must hash a copy. Open
/// vSwitch makes a copy only for a clone with an irreversible action, such as the truncation.
const REPARSED_COPY: [&[u8]; 3] = [
    &[0xff, 0xff, 0, 40, 0, 0, 0x23, 0x20, 0, 42, 0, 0, 0, 0, 0, 0], // clone
    &[
        0xff, 0xff, 0, 16, 0, 0, 0x23, 0x20, 0, 39, 0xfe, 0xff, 0, 0, 0, 64,
    ], // truncated output to port 0xfeff
    &[0, 22, 0, 8, 0, 0, 0, ENCLOSING_GROUP as u8],
];

/// Packets from a port of `edge` that have these fields, too.
#[derive(Clone, Copy)]
pub struct Packets<'a> {
    pub from: u32,
    pub oxm: &'a [u8],
}

impl Packets<'_> {
    /// Matches them.
    pub fn matching(self) -> Option<Match> {
        self.with(Match::any().with_in_port(self.from).as_oxm(), &[])
    }

    /// Returns the rules that do `before` to all of them, and then give each a tag and the rest, `tagging`: table, match and actions of
    /// each. Untagged ones get it at once, others after parsing again.
    ///
    /// In table 1 a register identifies the source. Open vSwitch then sees no ingress port: for a packet-out that came through a patch port,
    /// it would no longer know the bridge (ofproto-dpif-xlate.c, xlate_lookup_ofproto_()).
    pub fn tagged(
        self,
        before: &ActionList,
        tagging: &ActionList,
    ) -> impl Iterator<Item = (u8, Match, ActionList)> {
        let port = Match::any().with_in_port(self.from);
        let register = [&REG0[..], &self.from.to_be_bytes()].concat();
        let mut reparse = set_field(&register);
        reparse.extend(set_field(&NO_PORT));
        reparse.extend(REPARSED_COPY.concat());
        let at_once = appended(
            appended(ActionList::default(), before.as_bytes()),
            tagging.as_bytes(),
        );
        let later = appended(appended(ActionList::default(), before.as_bytes()), &reparse);
        let again = appended(ActionList::default(), tagging.as_bytes());
        let rules = [
            (0, self.with(port.as_oxm(), &UNTAGGED), at_once),
            (0, self.with(port.as_oxm(), &TAGGED), later),
            (REPARSED_TABLE, self.with(&register, &[]), again),
        ];
        let rules = rules.into_iter();
        rules.filter_map(|(table, matching, actions)| Some((table, matching?, actions)))
    }

    fn with(self, source: &[u8], vlan: &[u8]) -> Option<Match> {
        Match::from_oxm([source, vlan, self.oxm].concat()).ok()
    }
}

/// Returns the groups of every `edge`.
pub fn groups() -> [GroupMod; 2] {
    let enclosed = ActionList::new().group(REPARSE_GROUP);
    let enclosing = Buckets::build([(0, port_no::ANY, group_no::ANY, &enclosed)]);
    let reparsing = Buckets::from_bytes(reparse_bucket()).unwrap_or_default();
    [
        (REPARSE_GROUP, group_type::SELECT, reparsing),
        (ENCLOSING_GROUP, group_type::INDIRECT, enclosing),
    ]
    .map(|(group_id, group_type, buckets)| GroupMod {
        command: GroupModCommand::AddOrModify,
        group_type,
        group_id,
        buckets,
        selection: None,
    })
}

/// Encodes the bucket of [`REPARSE_GROUP`], as in OFPT_GROUP_MOD.
fn reparse_bucket() -> Vec<u8> {
    const WEIGHT: u8 = 1;
    const ANY: [u8; 4] = [0xff; 4];
    let mut bucket = vec![0, 32, 0, WEIGHT];
    bucket.extend(ANY); // watch_port
    bucket.extend(ANY); // watch_group
    bucket.extend([0; 4]);
    bucket.extend(resubmit(REPARSED_TABLE));
    bucket
}
