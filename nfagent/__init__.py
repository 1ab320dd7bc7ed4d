"""The management plane of a server with smart NICs."""
