"""unoctl: the operator's command for a server that appears to its controllers as one OpenFlow switch."""
