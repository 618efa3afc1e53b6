"""The building blocks of the protocol: integers, strings, arrays and tagged fields.

Two spellings of everything that has a length. The *classic* one states it in two or four bytes, -1
for null. The *compact* one of flexible versions (KIP-482) states it as an unsigned varint plus
one, 0 for null, and ends every structure with a list of tagged fields.

    Reader      for decoders where a microsecond does not matter
    functions   for the hot ones, which walk the buffer themselves, and for all encoders;
                a read beyond the end may leave them as IndexError, struct.error or
                UnicodeDecodeError, which the decoder turns into WireError in one place

Everything read here came from outside. Whatever it holds, the outcome is a value or WireError;
nothing is believed before it has been compared with the bytes that are left:

    - a position only ever grows, so nothing is read twice and no loop outlasts the input,
    - an array may not have more elements than there are bytes left, nor more than
      ELEMENTS_MAX, so a frame of 100 MB cannot be turned into gigabytes of objects,
    - a structure may not have more than TAGGED_FIELDS_MAX tagged fields, most of which would only
      be skipped, at a cost per field rather than per byte.
"""

import struct
from typing import Final, cast

from tidelog.base.errors import WireError

# More topics or partitions than one broker holds. An element costs up to 500 bytes once decoded.
ELEMENTS_MAX: Final = 100_000
# Kafka's own messages have up to four. Unknown ones are skipped, whoever invented them.
TAGGED_FIELDS_MAX: Final = 16

UUID_BYTES: Final = 16
NO_UUID: Final = bytes(UUID_BYTES)

_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_UINT16 = struct.Struct(">H")
_FLOAT64 = struct.Struct(">d")

_UVARINT_SHIFT_MAX = 28
_UVARINT_CACHE: Final = [bytes([number]) for number in range(128)]


def read_uvarint(view: memoryview, position: int) -> tuple[int, int]:
    """The number at `position`, at most five bytes of it, and the position behind it."""
    byte = view[position]
    position += 1
    if byte < 0x80:
        return byte, position
    number = byte & 0x7F
    shift = 7
    while byte >= 0x80:
        if shift > _UVARINT_SHIFT_MAX:
            raise WireError("varint is longer than five bytes")
        byte = view[position]
        position += 1
        number |= (byte & 0x7F) << shift
        shift += 7
    return number, position


def read_compact_string(view: memoryview, position: int) -> tuple[str | None, int]:
    """The string or null at `position`, and the position behind it."""
    length, position = read_uvarint(view, position)
    if length == 0:
        return None, position
    end = position + length - 1
    if end > len(view):
        raise WireError(f"string of {length - 1} bytes, {len(view) - position} are left")
    return str(view[position:end], "utf-8"), end


def read_classic_string(view: memoryview, position: int) -> tuple[str | None, int]:
    """The string or null at `position`, and the position behind it."""
    length = _INT16.unpack_from(view, position)[0]
    position += 2
    if length < 0:
        return None, position
    end = position + length
    if end > len(view):
        raise WireError(f"string of {length} bytes, {len(view) - position} are left")
    return str(view[position:end], "utf-8"), end


def read_uuid(view: memoryview, position: int) -> tuple[bytes, int]:
    """The sixteen bytes at `position`, and the position behind them."""
    end = position + UUID_BYTES
    if end > len(view):
        raise WireError(f"uuid, {len(view) - position} bytes are left")
    return bytes(view[position:end]), end


def skip_tagged_fields(view: memoryview, position: int) -> int:
    """The position behind a list of tagged fields, none of which is wanted."""
    try:
        count = view[position]
        if count == 0:
            return position + 1
        if count > TAGGED_FIELDS_MAX:
            raise WireError(f"structure with {count} tagged fields or more")
        position += 1
        for _ in range(count):
            _tag, position = read_uvarint(view, position)
            size_bytes, position = read_uvarint(view, position)
            position += size_bytes
        if position > len(view):
            raise WireError(f"tagged fields end at {position}, the frame at {len(view)}")
    except IndexError as error:
        raise WireError("tagged fields are cut off") from error
    return position


def uvarint(number: int) -> bytes:
    """`number` as an unsigned varint."""
    if number < 0x80:
        return _UVARINT_CACHE[number]
    output = bytearray()
    while number >= 0x80:
        output.append(number & 0x7F | 0x80)
        number >>= 7
    output.append(number)
    return bytes(output)


def classic_string(text: str) -> bytes:
    data = text.encode()
    return _INT16.pack(len(data)) + data


def classic_nullable_string(text: str | None) -> bytes:
    return b"\xff\xff" if text is None else classic_string(text)


def compact_string(text: str) -> bytes:
    data = text.encode()
    return uvarint(len(data) + 1) + data


def compact_nullable_string(text: str | None) -> bytes:
    return b"\x00" if text is None else compact_string(text)


def string(text: str, *, flexible: bool) -> bytes:
    """`text` in the spelling of the version."""
    return compact_string(text) if flexible else classic_string(text)


def nullable_string(text: str | None, *, flexible: bool) -> bytes:
    """`text` or null in the spelling of the version."""
    return compact_nullable_string(text) if flexible else classic_nullable_string(text)


def array_count(count: int, *, flexible: bool) -> bytes:
    """What precedes the elements of an array."""
    return uvarint(count + 1) if flexible else _INT32.pack(count)


def int32_array(numbers: tuple[int, ...] | list[int], *, flexible: bool) -> bytes:
    """An array of int32."""
    count = len(numbers)
    return array_count(count, flexible=flexible) + struct.pack(f">{count}i", *numbers)


def tagged_fields(fields: list[tuple[int, bytes]]) -> bytes:
    """Fields by tag, in ascending order, each encoded already."""
    parts = [uvarint(len(fields))]
    for tag, data in fields:
        parts += (uvarint(tag), uvarint(len(data)), data)
    return b"".join(parts)


def frame(parts: list[bytes]) -> bytes:
    """`parts` as one frame, with its length in front."""
    body = b"".join(parts)
    return _INT32.pack(len(body)) + body


class Reader:
    """Walks one buffer from `position` to its end. Every method moves on by what it returns.

    `elements_max` bounds what a peer can have us decode. What comes from a log of our own may have
    as many elements as bytes.
    """

    __slots__ = ("_elements_left", "flexible", "position", "view")

    def __init__(
        self,
        view: memoryview,
        position: int,
        *,
        flexible: bool,
        elements_max: int = ELEMENTS_MAX,
    ) -> None:
        self.view = view
        self.position = position
        self.flexible = flexible
        self._elements_left = elements_max

    def boolean(self) -> bool:
        return self.int8() != 0

    def float64(self) -> float:
        return cast("float", self._integer(_FLOAT64))

    def int8(self) -> int:
        return self._integer(_INT8)

    def int16(self) -> int:
        return self._integer(_INT16)

    def int32(self) -> int:
        return self._integer(_INT32)

    def int64(self) -> int:
        return self._integer(_INT64)

    def uint16(self) -> int:
        return self._integer(_UINT16)

    def uvarint(self) -> int:
        try:
            number, self.position = read_uvarint(self.view, self.position)
        except IndexError as error:
            raise WireError("varint is cut off") from error
        return number

    def uuid(self) -> bytes:
        """The sixteen bytes of a UUID; a topic id that is not given is NO_UUID."""
        return bytes(self._take(UUID_BYTES))

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise WireError("null where a string is required")
        return text

    def nullable_string(self) -> str | None:
        size_bytes = self.uvarint() - 1 if self.flexible else self.int16()
        if size_bytes < 0:
            return None
        try:
            return str(self._take(size_bytes), "utf-8")
        except UnicodeDecodeError as error:
            raise WireError(f"string is not UTF-8: {error}") from error

    def data(self) -> bytes:
        data = self.nullable_data()
        if data is None:
            raise WireError("null where bytes are required")
        return data

    def nullable_data(self) -> bytes | None:
        size_bytes = self.uvarint() - 1 if self.flexible else self.int32()
        return None if size_bytes < 0 else bytes(self._take(size_bytes))

    def array_count(self) -> int:
        """How many elements follow; null is refused."""
        count = self.nullable_array_count()
        if count is None:
            raise WireError("null where an array is required")
        return count

    def nullable_array_count(self) -> int | None:
        """How many elements follow, None for null. All arrays of a frame share one bound."""
        count = self.uvarint() - 1 if self.flexible else self.int32()
        if count < 0:
            return None
        if count > len(self.view) - self.position or count > self._elements_left:
            raise WireError(
                f"array of {count} elements, {len(self.view) - self.position} bytes are left"
            )
        self._elements_left -= count
        return count

    def int32_array(self) -> list[int]:
        return [self.int32() for _ in range(self.array_count())]

    def end_structure(self) -> None:
        """Skip the tagged fields at the end of a structure, if this version has them."""
        if self.flexible:
            self.position = skip_tagged_fields(self.view, self.position)

    def tagged_fields(self) -> dict[int, "Reader"]:
        """The tagged fields at the end of a structure, each with a reader of its own."""
        if not self.flexible:
            return {}
        count = self.uvarint()
        if count > TAGGED_FIELDS_MAX:
            raise WireError(f"structure with {count} tagged fields")
        fields = {}
        for _ in range(count):
            tag = self.uvarint()
            field = Reader(self._take(self.uvarint()), 0, flexible=True)
            field._elements_left = self._elements_left
            fields[tag] = field
        return fields

    def _integer(self, layout: struct.Struct) -> int:
        try:
            number: int = layout.unpack_from(self.view, self.position)[0]
        except struct.error as error:
            raise WireError(f"number is cut off: {error}") from error
        self.position += layout.size
        return number

    def _take(self, size_bytes: int) -> memoryview:
        end = self.position + size_bytes
        if end > len(self.view):
            raise WireError(f"field of {size_bytes} bytes, {len(self.view) - self.position} left")
        taken = self.view[self.position : end]
        self.position = end
        return taken
