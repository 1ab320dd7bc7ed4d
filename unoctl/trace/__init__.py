"""`unoctl trace`: the way of a packet through every switch, as the switches report it."""
