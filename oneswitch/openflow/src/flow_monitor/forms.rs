//! The forms of requests in the versions of OpenFlow, not decoded any further.

use crate::error::{ErrorCode, Refusal};
use crate::header::{VERSION, VERSION_10};
use crate::session::Experimenter;
use crate::wire::{Put, Reader};
use crate::{NX_VENDOR, ONF_VENDOR};

/// `NXST_FLOW_MONITOR`, and `ONFST_FLOW_MONITOR`, which is also the number of
/// the message that cancels a monitor.
pub(crate) const NICIRA_STATS: u32 = 2;
pub(crate) const ONF_STATS: u32 = 1870;
/// `NXT_FLOW_MONITOR_CANCEL` and those that tell of a pause.
pub(crate) const NICIRA_CANCEL: u32 = 21;
pub(crate) const NICIRA_PAUSED: u32 = 22;
pub(crate) const NICIRA_RESUMED: u32 = 23;
pub(crate) const ONF_PAUSED: u32 = 1871;
pub(crate) const ONF_RESUMED: u32 = 1872;
/// `OFPMP_FLOW_MONITOR`.
pub(crate) const STANDARD_STATS: u16 = 16;

/// The form of messages about monitors, which depends on the version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Nicira's, of OpenFlow 1.0.
    Nicira,
    /// The ONF's, of OpenFlow 1.3.
    Onf,
    /// That of OpenFlow 1.4 and later.
    Standard,
}

impl Form {
    /// Returns the form that a version of OpenFlow has.
    pub fn of_version(version: u8) -> Self {
        match version {
            VERSION_10 => Self::Nicira,
            VERSION => Self::Onf,
            _ => Self::Standard,
        }
    }
}

/// The entries of a request, not decoded yet: Open vSwitch carries each out
/// before it reads the next one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MonitorRequests {
    /// The form of the entries.
    pub form: Form,
    /// One list for each message of the request.
    pub parts: Vec<Box<[u8]>>,
}

impl MonitorRequests {
    /// Takes the entries of one message.
    pub(crate) fn pull(form: Form, reader: &mut Reader<'_>) -> Result<Self, Refusal> {
        if reader.len() % 8 != 0 {
            return Err(Refusal::new(
                ErrorCode::BAD_REQUEST_BAD_LEN,
                "flow monitors are not padded to 8 bytes",
            ));
        }
        let parts = vec![reader.rest().into()];
        Ok(Self { form, parts })
    }

    /// Writes the entries behind the header that their form has.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        let head = match self.form {
            Form::Nicira => Some((NX_VENDOR, NICIRA_STATS)),
            Form::Onf => Some((ONF_VENDOR, ONF_STATS)),
            Form::Standard => None,
        };
        if let Some((vendor, number)) = head {
            out.put_u32(vendor);
            out.put_u32(number);
        }
        self.parts.iter().for_each(|part| out.put(part));
    }
}

/// Takes a request out of the ONF's extension to OpenFlow 1.3.
pub(crate) fn of_extension(message: &Experimenter) -> Option<Result<MonitorRequests, Refusal>> {
    let is_it = (message.vendor, message.subtype) == (ONF_VENDOR, ONF_STATS);
    is_it.then(|| MonitorRequests::pull(Form::Onf, &mut Reader::new(&message.body)))
}

/// Returns the monitor that a vendor's message cancels in a version.
pub(crate) fn cancelled(version: u8, message: &Experimenter) -> Option<Result<u32, Refusal>> {
    let wanted = match Form::of_version(version) {
        Form::Nicira => (NX_VENDOR, NICIRA_CANCEL),
        Form::Onf => (ONF_VENDOR, ONF_STATS),
        Form::Standard => return None,
    };
    let bad_length = || {
        let detail = format!("cancels a flow monitor with {} bytes", message.body.len());
        Refusal::new(ErrorCode::BAD_REQUEST_BAD_LEN, detail)
    };
    ((message.vendor, message.subtype) == wanted).then(|| {
        let id: Result<[u8; 4], _> = message.body.as_ref().try_into();
        id.map(u32::from_be_bytes).map_err(|_| bad_length())
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn each_version_cancels_by_its_own_message() {
        let message = |vendor, subtype, length| Experimenter {
            vendor,
            subtype,
            body: vec![0; length].into(),
        };
        let nicira = message(NX_VENDOR, NICIRA_CANCEL, 4);
        let onf = message(ONF_VENDOR, ONF_STATS, 4);
        for (version, theirs, other) in [(1, &nicira, &onf), (4, &onf, &nicira)] {
            assert_eq!(cancelled(version, theirs).unwrap().unwrap(), 0);
            assert!(cancelled(version, other).is_none());
        }
        assert!(cancelled(5, &onf).is_none());
        let long = message(NX_VENDOR, NICIRA_CANCEL, 8);
        assert!(cancelled(1, &long).unwrap().is_err());
    }
}
