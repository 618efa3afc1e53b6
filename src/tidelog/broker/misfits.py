"""Settings that are left out (`config/fitting.py`), told to whoever can mend them."""

import logging
from collections.abc import Collection

from tidelog.config.fitting import Misfit

logger = logging.getLogger(__name__)


def log_misfits(misfits: Collection[Misfit], where: str, *, known: Collection[Misfit] = ()) -> None:
    """One line for each that is not `known` since the last change."""
    for misfit in misfits:
        if misfit not in known:
            logger.error(
                "setting is not in force: alter or delete it, or what it contradicts",
                extra={
                    "setting": misfit.given.name,
                    "value": misfit.given.value,
                    "set_for": misfit.given.scope.value,
                    "where": where,
                    "reason": misfit.reason,
                },
            )
