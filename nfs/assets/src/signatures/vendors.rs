//! The vendors of network cards, by the first bits of their MAC addresses: a file in Wireshark's format.

use super::fault::{trimmed, Fault};

/// The number of lists into which PRADS spreads entries. Its search depends on it: where no list on the way has an entry, it looks through the 255 after it.
const LISTS: usize = 19_963;

/// A range of MAC addresses, and the vendor that it belongs to.
struct Entry {
    octets: [u8; 6],
    bits: u8,
    vendor: Vec<u8>,
}

/// The entries of a file.
pub struct Vendors {
    all: Vec<Entry>,
    lists: Vec<Vec<u32>>,
}

fn list_of(octets: &[u8]) -> usize {
    let hash = octets
        .iter()
        .zip([24, 16, 8].iter().cycle())
        .fold(0, |hash, (octet, shift)| hash ^ u32::from(*octet) << shift);
    hash as usize % LISTS
}

impl Vendors {
    /// # Errors
    /// If a line has no range of MAC addresses.
    pub fn parse(text: &[u8]) -> Result<Self, Fault> {
        let mut all = Vec::new();
        let mut lists = vec![Vec::new(); LISTS];
        for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
            let line = trimmed(line);
            if line.is_empty() || line[0] == b'#' {
                continue;
            }
            let (entry, octets) =
                Entry::parse(line).map_err(|reason| Fault::at(number, line, reason))?;
            lists[list_of(&entry.octets[..octets])].push(all.len() as u32);
            all.push(entry);
        }
        Ok(Self { all, lists })
    }

    /// Returns the number of the entry of an address, from 1 on. It is the one that PRADS finds: usually, but not always, the one with the most bits.
    #[must_use]
    pub fn find(&self, mac: [u8; 6]) -> Option<u32> {
        self.find_from(mac, 6).map(|index| index + 1)
    }

    /// Returns the vendor of an entry.
    #[must_use]
    pub fn name(&self, number: u32) -> Option<&[u8]> {
        let index = (number as usize).checked_sub(1)?;
        self.all.get(index).map(|entry| &entry.vendor[..])
    }

    /// Searches the lists of the first 6, 5, ... octets, and then, of the fewest first, the 255 lists after each.
    fn find_from(&self, mac: [u8; 6], octets: usize) -> Option<u32> {
        if octets == 0 {
            return None;
        }
        let list = list_of(&mac[..octets]);
        let near = || (1..=255).find_map(|distance| self.find_in(mac, (list + distance) % LISTS));
        self.find_in(mac, list)
            .or_else(|| self.find_from(mac, octets - 1))
            .or_else(near)
    }

    fn find_in(&self, mac: [u8; 6], list: usize) -> Option<u32> {
        let mut entries = self.lists[list].iter().copied();
        entries.find(|index| self.all[*index as usize].contains(mac))
    }
}

impl Entry {
    /// Parses `00:50:C2:00:00:00/36 vendor # comment`. Returns the number of octets, too.
    fn parse(line: &[u8]) -> Result<(Self, usize), &'static str> {
        let reason = "expected a MAC address or its first octets, such as 00:50:C2 or 00:50:C2:00:00:00/36, and a vendor";
        let mut words = line
            .split(u8::is_ascii_whitespace)
            .filter(|word| !word.is_empty());
        let (range, vendor) = (
            words.next().ok_or(reason)?,
            words.next().unwrap_or_default(),
        );
        let range = std::str::from_utf8(range).map_err(|_| reason)?;
        let (address, bits) = range
            .split_once('/')
            .map_or((range, None), |(address, bits)| (address, Some(bits)));
        let mut octets = [0; 6];
        let mut count = 0;
        for digits in address.split([':', '-']) {
            let place = octets.get_mut(count).ok_or(reason)?;
            *place = u8::from_str_radix(digits, 16).map_err(|_| reason)?;
            count += 1;
        }
        let bits = match bits {
            Some(bits) => bits.parse().ok().filter(|bits| *bits <= 48),
            None => Some(8 * count as u8),
        };
        let entry = Self {
            octets,
            bits: bits.ok_or("expected at most 48 bits")?,
            vendor: vendor.to_vec(),
        };
        Ok((entry, count))
    }

    fn contains(&self, mac: [u8; 6]) -> bool {
        let whole = usize::from(self.bits / 8);
        let differing = |index: usize| mac[index] ^ self.octets[index];
        let rest = self.bits % 8;
        (0..whole).all(|index| differing(index) == 0)
            && (rest == 0 || differing(whole) >> (8 - rest) == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_the_vendor_of_its_range() {
        let file = b"# comment\n00:00:0C\tCisco  # CISCO SYSTEMS\n00-00-0C-07-AC/40 HSRP\n00:50:C2:00:10:00/36 Jmbs\n";
        let vendors = Vendors::parse(file).unwrap();
        let name = |mac| {
            let number = vendors.find(mac)?;
            vendors.name(number).map(String::from_utf8_lossy)
        };
        assert_eq!(name([0, 0, 0x0c, 1, 2, 3]).unwrap(), "Cisco");
        assert_eq!(name([0, 0, 0x0c, 7, 0xac, 3]).unwrap(), "HSRP");
        assert_eq!(name([0, 0x50, 0xc2, 0, 0x10, 3]).unwrap(), "Jmbs");
        // PRADS' search does not pass the list of this range, whose hash is far away.
        assert_eq!(name([0, 0x50, 0xc2, 0, 0x1f, 3]), None);
        assert_eq!(name([9, 9, 9, 9, 9, 9]), None);
        assert_eq!(vendors.name(0), None);
    }

    #[test]
    fn faults_name_the_line() {
        for line in ["00:zz:11 X", "00:11:22:33:44:55:66 X", "00:11/49 X"] {
            let fault = Vendors::parse(line.as_bytes()).err().unwrap().to_string();
            assert!(
                fault.starts_with("line 1: ") && fault.contains("expected"),
                "{fault}"
            );
        }
    }
}
