"""The simulator: brokers and clients as processes in virtual time, with faults, from one seed."""
