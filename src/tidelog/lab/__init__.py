"""Local clusters as processes."""
