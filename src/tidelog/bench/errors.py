"""Why something could not be measured."""

from tidelog.base.errors import TidelogError


class BenchError(TidelogError):
    """One figure is missing; others may still be measured."""


class LoadFailed(BenchError):
    """A load generator ended without an answer."""


class Interrupted(TidelogError):
    """Whoever wanted the figures does not want to wait for them."""
