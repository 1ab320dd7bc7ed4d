//! Services that PRADS knows by their port, if no signature knows the payload.

/// Returns the name of the service that usually has this port of TCP.
#[must_use]
pub fn tcp(port: u16) -> Option<&'static str> {
    Some(match port {
        20 => "@ftp-data",
        21 => "@ftp",
        22 => "@ssh",
        25 => "@smtp",
        80 => "@www",
        110 => "@pop3",
        113 => "@auth",
        115 => "@sftp",
        119 => "@nntp",
        143 => "@imap2",
        389 => "@ldap",
        443 => "@https",
        445 => "@microsoft-ds",
        631 => "@ipp",
        990 => "@ftps",
        992 => "@telnets",
        993 => "@imaps",
        995 => "@pop3s",
        3306 => "@mysql",
        6667 => "@irc",
        port => return both(port),
    })
}

/// Returns the name of the service that usually has this port of UDP.
#[must_use]
pub fn udp(port: u16) -> Option<&'static str> {
    Some(match port {
        53 => "@domain",
        123 => "@ntp",
        514 => "@syslog",
        1194 => "@openvpn",
        port => return both(port),
    })
}

fn both(port: u16) -> Option<&'static str> {
    Some(match port {
        111 => "@sunrpc",
        161 => "@snmp",
        162 => "@snmp-trap",
        554 => "@rtsp",
        2049 => "@nfs",
        _ => return None,
    })
}
