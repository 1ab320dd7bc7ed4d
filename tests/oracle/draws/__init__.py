"""The draws: a file each for a kind of message, and for what only one version has."""
