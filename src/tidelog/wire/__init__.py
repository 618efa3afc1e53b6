"""The request protocol, without a socket."""
