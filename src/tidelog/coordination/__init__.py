"""Who is alive, who is controller, what the cluster remembers."""
