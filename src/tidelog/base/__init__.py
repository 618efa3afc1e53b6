"""Words everybody shares; standard library only."""
