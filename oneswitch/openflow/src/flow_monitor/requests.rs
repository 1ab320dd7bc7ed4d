//! Requests for monitors.

use crate::error::{ErrorCode, Refusal};
use crate::group::group_no;
use crate::openflow10;
use crate::oxm::Match;
use crate::port::{from_openflow10, is_representable};
use crate::wire::{Put, Reader};

use super::forms::{Form, MonitorRequests};

/// Bits of [`MonitorRequest::flags`] (`ofp_flow_monitor_flags`).
pub mod flags {
    #![allow(missing_docs)]
    pub const INITIAL: u16 = 1 << 0;
    pub const ADD: u16 = 1 << 1;
    pub const REMOVED: u16 = 1 << 2;
    pub const MODIFY: u16 = 1 << 3;
    pub const INSTRUCTIONS: u16 = 1 << 4;
    /// The sender's own changes are reported in full, too. Open vSwitch 3.1
    /// takes `OFPFMF_ONLY_OWN` so, and refuses `OFPFMF_NO_ABBREV`.
    pub const OWN: u16 = 1 << 6;
    pub(super) const CHANGES: u16 = ADD | REMOVED | MODIFY;
    pub(super) const ALL: u16 = INITIAL | CHANGES | INSTRUCTIONS | OWN;
    /// `OWN` in the extensions of earlier versions.
    pub(super) const EXTENSION_OWN: u16 = 1 << 5;
}

/// The change that a request makes (`ofp_flow_monitor_command`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum MonitorCommand {
    Add,
    Modify,
    Delete,
    /// Open vSwitch ignores other commands.
    Unknown(u8),
}

/// One entry of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MonitorRequest {
    /// The controller's number of the monitor.
    pub id: u32,
    /// The change that it makes.
    pub command: MonitorCommand,
    /// See [`flags`].
    pub flags: u16,
    /// Only rules that output there, or `ANY`.
    pub out_port: u32,
    /// Only rules that use the group, or `ANY`.
    pub out_group: u32,
    /// Table, or `ALL_TABLES`.
    pub table_id: u8,
    /// Only rules that this match covers.
    pub matching: Match,
}

impl MonitorRequests {
    /// Decodes the entries; the first that cannot be read is the last.
    pub fn iter(&self) -> impl Iterator<Item = Result<MonitorRequest, Refusal>> + '_ {
        let form = self.form;
        self.parts.iter().flat_map(move |part| {
            let mut reader = Reader::new(part);
            std::iter::from_fn(move || {
                let more = !reader.is_empty();
                more.then(|| {
                    let entry = MonitorRequest::pull(form, &mut reader);
                    if entry.is_err() {
                        reader = Reader::new(&[]);
                    }
                    entry
                })
            })
        })
    }
}

impl MonitorRequest {
    /// `ofputil_decode_flow_monitor_request`.
    fn pull(form: Form, reader: &mut Reader<'_>) -> Result<Self, Refusal> {
        match form {
            Form::Nicira => Self::pull_nicira(reader),
            Form::Onf => Self::pull_onf(reader),
            Form::Standard => Self::pull_standard(reader),
        }
    }

    fn pull_nicira(reader: &mut Reader<'_>) -> Result<Self, Refusal> {
        let id = reader.u32()?;
        let given = reader.u16()?;
        let out_port = from_openflow10(reader.u16()?);
        let length = reader.u16()?;
        let table_id = reader.u8()?;
        let padding = reader.array::<5>()?;
        let flags = of_extension_flags(given)?;
        check_padding(&padding)?;
        let matching = openflow10::pull_checked_nxm(reader, length)?;
        Ok(Self {
            id,
            command: MonitorCommand::Add,
            flags,
            out_port,
            out_group: group_no::ANY,
            table_id,
            matching,
        })
    }

    fn pull_onf(reader: &mut Reader<'_>) -> Result<Self, Refusal> {
        let id = reader.u32()?;
        let given = reader.u16()?;
        // The length of the match, which it contains itself.
        reader.skip(2)?;
        let out_port = reader.u32()?;
        let table_id = reader.u8()?;
        let padding = reader.array::<3>()?;
        let flags = of_extension_flags(given)?;
        check_padding(&padding)?;
        check_port(out_port)?;
        let (matching, _) = Match::pull_checked(reader)?;
        Ok(Self {
            id,
            command: MonitorCommand::Add,
            flags,
            out_port,
            out_group: group_no::ANY,
            table_id,
            matching,
        })
    }

    fn pull_standard(reader: &mut Reader<'_>) -> Result<Self, Refusal> {
        let id = reader.u32()?;
        let out_port = reader.u32()?;
        let out_group = reader.u32()?;
        let flags = reader.u16()?;
        let [table_id, number] = reader.array()?;
        let command = match number {
            0 => MonitorCommand::Add,
            1 => MonitorCommand::Modify,
            2 => MonitorCommand::Delete,
            other => MonitorCommand::Unknown(other),
        };
        if command != MonitorCommand::Delete {
            check_flags(flags, flags & !flags::ALL)?;
            check_port(out_port)?;
        }
        let (matching, _) = Match::pull_checked(reader)?;
        Ok(Self {
            id,
            command,
            flags,
            out_port,
            out_group,
            table_id,
            matching,
        })
    }

    /// Encodes the entry in a form; the extensions can only add monitors.
    pub fn put(&self, form: Form, out: &mut Vec<u8>) {
        let own = match self.flags & flags::OWN {
            0 => 0,
            _ => flags::EXTENSION_OWN,
        };
        let extension_flags = self.flags & !flags::OWN | own;
        match form {
            Form::Nicira => {
                let nxm = openflow10::to_nxm(&self.matching);
                out.put_u32(self.id);
                out.put_u16(extension_flags);
                out.put_u16(openflow10::to_port16(self.out_port));
                out.put_u16(u16::try_from(nxm.len()).unwrap_or(u16::MAX));
                out.put_u8(self.table_id);
                out.zeros(5);
                openflow10::put_padded(out, &nxm);
            }
            Form::Onf => {
                out.put_u32(self.id);
                out.put_u16(extension_flags);
                let length = 4 + self.matching.as_oxm().len();
                out.put_u16(u16::try_from(length).unwrap_or(u16::MAX));
                out.put_u32(self.out_port);
                out.put(&[self.table_id, 0, 0, 0]);
                self.matching.put(out);
            }
            Form::Standard => {
                out.put_u32(self.id);
                out.put_u32(self.out_port);
                out.put_u32(self.out_group);
                out.put_u16(self.flags);
                let number = match self.command {
                    MonitorCommand::Add => 0,
                    MonitorCommand::Modify => 1,
                    MonitorCommand::Delete => 2,
                    MonitorCommand::Unknown(other) => other,
                };
                out.put(&[self.table_id, number]);
                self.matching.put(out);
            }
        }
    }
}

fn check_flags(given: u16, unknown: u16) -> Result<(), Refusal> {
    if given & flags::CHANGES != 0 && unknown == 0 {
        return Ok(());
    }
    let detail = format!("flow monitor with flags {given:#x}");
    Err(Refusal::new(ErrorCode::NX_MONITOR_BAD_FLAGS, detail))
}

/// Converts flags of the extensions.
fn of_extension_flags(given: u16) -> Result<u16, Refusal> {
    let common = flags::ALL & !flags::OWN;
    check_flags(given, given & !(common | flags::EXTENSION_OWN))?;
    Ok(match given & flags::EXTENSION_OWN {
        0 => given,
        _ => given & common | flags::OWN,
    })
}

fn check_padding(padding: &[u8]) -> Result<(), Refusal> {
    if padding.iter().all(|byte| *byte == 0) {
        return Ok(());
    }
    let detail = "the padding of a flow monitor is not zero";
    Err(Refusal::new(ErrorCode::NX_MUST_BE_ZERO, detail))
}

fn check_port(port: u32) -> Result<(), Refusal> {
    if is_representable(port) {
        return Ok(());
    }
    let detail = format!("flow monitor of outputs to {port:#x}");
    Err(Refusal::new(ErrorCode::BAD_ACTION_BAD_OUT_PORT, detail))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const FORMS: [Form; 3] = [Form::Nicira, Form::Onf, Form::Standard];

    fn request(id: u32) -> MonitorRequest {
        MonitorRequest {
            id,
            command: MonitorCommand::Add,
            flags: flags::INITIAL | flags::ADD | flags::OWN,
            out_port: 3,
            out_group: group_no::ANY,
            table_id: 2,
            matching: Match::any().with_in_port(1),
        }
    }

    fn encoded(form: Form, entries: &[MonitorRequest]) -> Vec<u8> {
        let mut out = Vec::new();
        entries.iter().for_each(|entry| entry.put(form, &mut out));
        out
    }

    fn decoded(form: Form, list: &[u8]) -> Vec<Result<MonitorRequest, ErrorCode>> {
        let requests = MonitorRequests::pull(form, &mut Reader::new(list)).unwrap();
        requests.iter().map(|r| r.map_err(|r| r.error)).collect()
    }

    #[test]
    fn requests_encode_to_what_they_were_decoded_from() {
        for form in FORMS {
            let list = encoded(form, &[request(1), request(2)]);
            let found: Vec<_> = decoded(form, &list).into_iter().flatten().collect();
            let keys = |r: &MonitorRequest| (r.id, r.flags, r.matching.canonical().unwrap());
            let wanted: Vec<_> = [request(1), request(2)].iter().map(keys).collect();
            assert_eq!(
                found.iter().map(keys).collect::<Vec<_>>(),
                wanted,
                "{form:?}"
            );
            assert_eq!(encoded(form, &found), list, "{form:?}");
        }
    }

    #[test]
    fn an_entry_that_cannot_be_read_is_the_last() {
        for form in FORMS {
            let mut bad = request(1);
            bad.flags = flags::INITIAL;
            let list = encoded(form, &[request(1), bad, request(2)]);
            let errors: Vec<_> = decoded(form, &list).into_iter().map(Result::err).collect();
            let expected = [None, Some(ErrorCode::NX_MONITOR_BAD_FLAGS)];
            assert_eq!(errors, expected, "{form:?}");
            let short = list.get(..8).unwrap();
            let errors = decoded(form, short);
            assert_eq!(errors, [Err(ErrorCode::BAD_REQUEST_BAD_LEN)], "{form:?}");
        }
    }

    #[test]
    fn what_open_vswitch_refuses_is_refused() {
        let mut padded = encoded(Form::Nicira, &[request(1)]);
        padded[11] = 1;
        let errors = decoded(Form::Nicira, &padded);
        assert_eq!(errors, [Err(ErrorCode::NX_MUST_BE_ZERO)]);
        for form in [Form::Onf, Form::Standard] {
            let mut unknown = request(1);
            unknown.out_port = 0x1_0000;
            let errors = decoded(form, &encoded(form, &[unknown]));
            assert_eq!(errors, [Err(ErrorCode::BAD_ACTION_BAD_OUT_PORT)]);
        }
        let mut no_abbreviation = request(1);
        no_abbreviation.flags = flags::ADD | flags::EXTENSION_OWN;
        let list = encoded(Form::Standard, &[no_abbreviation]);
        let errors = decoded(Form::Standard, &list);
        assert_eq!(errors, [Err(ErrorCode::NX_MONITOR_BAD_FLAGS)]);
    }

    #[test]
    fn deletions_need_no_flags() {
        let mut delete = request(1);
        (delete.command, delete.flags) = (MonitorCommand::Delete, 0);
        let list = encoded(Form::Standard, &[delete.clone()]);
        assert_eq!(decoded(Form::Standard, &list), [Ok(delete)]);
    }
}
