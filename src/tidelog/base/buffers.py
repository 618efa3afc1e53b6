"""Memory to be filled.

`bytearray(n)` is zeroed before anybody writes to it. That was six per cent of what brokers spent on
replicating batches of a megabyte, which a read overwrites at once; so large buffers are made
without it. Whoever gets one shows nobody what it has not filled.
"""

import ctypes
from collections.abc import Callable

ZEROED_MAX_BYTES = 32 * 1024
"""Up to here zeroing costs less than the call that leaves it out."""


def _find_maker() -> Callable[[None, int], bytearray] | None:
    """Python's own function, of its C interface; None if this is another Python than CPython."""
    try:
        prototype = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_char_p, ctypes.c_ssize_t)
        return prototype(("PyByteArray_FromStringAndSize", ctypes.pythonapi))
    except AttributeError:
        return None


_make = _find_maker()


def new_buffer(size_bytes: int) -> bytearray:
    """A buffer of that size; what is in it is not defined."""
    if size_bytes <= ZEROED_MAX_BYTES or _make is None:
        return bytearray(size_bytes)
    return _make(None, size_bytes)
