"""What the commands in bench/ run; each prints one JSON object as its last line."""
