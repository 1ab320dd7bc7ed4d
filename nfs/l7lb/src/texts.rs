//! A request's texts for the access log: method, path and host, kept in the arena until its end.

use bytemuck::{Pod, Zeroable};
use nf_http::Request;

const METHOD: usize = 16;
const HOST: usize = 64;
const PATH: usize = 168;

/// The beginning of a request. Longer parts are cut.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Text {
    method: [u8; METHOD],
    host: [u8; HOST],
    path: [u8; PATH],
    lengths: [u8; 3],
    has_host: u8,
    reserved: [u8; 4],
}

impl Text {
    pub fn of(request: &Request<'_>) -> Self {
        let mut text = Self::zeroed();
        let host = request.host.map(|authority| authority.host);
        text.has_host = u8::from(host.is_some());
        text.lengths = [
            cut(request.method, &mut text.method),
            cut(host.unwrap_or_default(), &mut text.host),
            cut(request.target.path, &mut text.path),
        ];
        text
    }

    /// Describes a TLS connection, which has no method and no path.
    pub fn of_server(server: Option<&str>) -> Self {
        let mut text = Self::zeroed();
        text.has_host = u8::from(server.is_some());
        text.lengths[1] = cut(server.unwrap_or_default(), &mut text.host);
        text
    }

    pub fn method(&self) -> Option<&str> {
        Some(read(&self.method, self.lengths[0])).filter(|method| !method.is_empty())
    }

    pub fn host(&self) -> Option<&str> {
        (self.has_host != 0).then(|| read(&self.host, self.lengths[1]))
    }

    pub fn path(&self) -> Option<&str> {
        Some(read(&self.path, self.lengths[2])).filter(|path| !path.is_empty())
    }
}

fn cut(text: &str, out: &mut [u8]) -> u8 {
    let length = text.len().min(out.len());
    out[..length].copy_from_slice(&text.as_bytes()[..length]);
    length as u8
}

/// Reads text that nf-http has checked to be ASCII.
fn read(bytes: &[u8], length: u8) -> &str {
    let bytes = bytes.get(..usize::from(length)).unwrap_or_default();
    std::str::from_utf8(bytes).unwrap_or_default()
}
