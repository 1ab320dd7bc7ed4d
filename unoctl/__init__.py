"""unoctl: the operator's command for a server that is shown to its controllers as one OpenFlow switch."""
