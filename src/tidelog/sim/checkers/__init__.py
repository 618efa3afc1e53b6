"""One module for each promise that a simulation watches."""
