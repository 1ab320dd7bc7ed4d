//! Records of an endpoint: those of the client are opened for the engine, and bytes of the engine are protected for the client.

use nf_tls::{Alert, Header, Received as Opened};

use super::endpoint::{stage, Endpoint};
use crate::{pass::Pass, tables::Event};

impl Pass<'_> {
    /// Opens the records in bytes that follow those in `input`.
    pub(super) fn open_records(&mut self, endpoint: &mut Endpoint, bytes: &mut Vec<u8>) {
        let chunks = &self.tables.chunks;
        let before = endpoint.input.len();
        if before > 0 {
            let mut all = vec![0; before];
            let _ = endpoint.input.read_at(chunks, 0, &mut all);
            endpoint.input.clear(chunks);
            bytes.splice(..0, all);
        }
        let mut at = 0;
        while endpoint.stage == stage::OPEN && endpoint.is_gone == 0 {
            let length = match Header::read(&bytes[at..]) {
                Ok(Some(header)) if header.length <= bytes.len() - at => header.length,
                Ok(_) => break,
                Err(alert) => return self.refuse_records(endpoint, alert),
            };
            let record = &mut bytes[at..at + length];
            at += length;
            match endpoint.session.open(record) {
                Ok(Opened::Data(range)) if !endpoint.to_engine.has_fin() => {
                    if !endpoint.to_engine.push(chunks, &record[range]) {
                        return self.reset_client(endpoint);
                    }
                }
                Ok(Opened::Closed) => endpoint.to_engine.finish(),
                Ok(Opened::Aborted) => return self.close_client(endpoint),
                Ok(Opened::Data(_) | Opened::Nothing) => {}
                Err(alert) => return self.refuse_records(endpoint, alert),
            }
        }
        let rest = &bytes[at..];
        if endpoint.input.append(chunks, rest) < rest.len() {
            self.reset_client(endpoint);
        }
    }

    fn refuse_records(&mut self, endpoint: &mut Endpoint, alert: Alert) {
        self.tables.count(Event::TlsBroken);
        self.end_client(endpoint, alert);
        self.close_client(endpoint);
    }

    /// Queues the records of plaintext.
    pub(super) fn protect(&mut self, endpoint: &mut Endpoint, plain: &[u8]) {
        let mut records = std::mem::take(&mut self.scratch.tls.records);
        records.clear();
        let sealed = endpoint.session.seal(plain, &mut records);
        let is_queued = endpoint.to_client.push(&self.tables.chunks, &records);
        self.scratch.tls.records = records;
        if sealed.is_err() || !is_queued {
            self.reset_client(endpoint);
        }
    }
}
