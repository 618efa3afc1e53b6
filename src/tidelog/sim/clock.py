"""What a simulated process reads from its clock: virtual time, set wrong and running wrong.

Wall clocks of machines differ (`offset_ms`) and may be set (`set_offset_ms`); the monotonic clock
never goes back. Both run too fast or too slow by `drift`, a fraction. Timers of the process's loop
do not drift: what a process concludes from its clock and what it waits for may disagree by that.
"""

from typing import Final

from tidelog.sim.agenda import Agenda

# When simulations begin.
EPOCH_MS: Final = 1_700_000_000_000


class SimulatedClock:
    """The `Clock` of one process, or of all processes of one machine."""

    def __init__(self, agenda: Agenda, *, offset_ms: int, drift: float) -> None:
        self._agenda = agenda
        self._offset_ms = offset_ms
        self._drift = drift
        self._since_s = agenda.now_s
        self._before_ms = agenda.now_s * 1_000

    def now_ms(self) -> int:
        return EPOCH_MS + self._offset_ms + self.monotonic_ms()

    def monotonic_ms(self) -> int:
        passed_ms = (self._agenda.now_s - self._since_s) * 1_000
        return int(self._before_ms + passed_ms * (1.0 + self._drift))

    def set_offset_ms(self, offset_ms: int) -> None:
        """Set the wall clock; it jumps."""
        self._offset_ms = offset_ms

    def set_drift(self, drift: float) -> None:
        """Let it run at another speed from now on."""
        assert drift > -1.0
        passed_ms = (self._agenda.now_s - self._since_s) * 1_000
        self._before_ms += passed_ms * (1.0 + self._drift)
        self._since_s = self._agenda.now_s
        self._drift = drift
