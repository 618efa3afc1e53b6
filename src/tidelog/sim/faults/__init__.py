"""What goes wrong in a simulation: one module for each thing that it goes wrong with."""
