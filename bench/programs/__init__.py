"""The commands in bench/; each prints one JSON object as its last line."""
