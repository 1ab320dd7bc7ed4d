"""``unoctl nf``: network functions, through nfagent."""
