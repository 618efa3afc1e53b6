"""The network between a cluster's processes, which can be cut, slowed down and healed."""
