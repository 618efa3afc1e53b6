# -- the table ---------------------------------------------------------------------------------------

cdef extern from *:
    """
    #if defined(__GNUC__)
    #define FETCH_AHEAD(address) __builtin_prefetch(address)
    #else
    #define FETCH_AHEAD(address) ((void)(address))
    #endif
    """
    void FETCH_AHEAD(const void *address) noexcept nogil

# So many tags are worked out before the first of them is searched for: the memory of a large table is slow, and is
# fetched meanwhile. One by one, hashing leaves a processor no room to look ahead by itself, and took twice as long.
cdef enum:
    _AHEAD = 32

cdef int _CHUNK_BITS = 10
cdef int64_t _CHUNK = 1 << _CHUNK_BITS
cdef int64_t _PENDING = <int64_t>1 << 62
cdef int64_t _DEAD = -1
cdef uint64_t _NUMBERS = 0xFFFFFFFF
cdef uint64_t _SLOTS_MIN = 64


cdef struct Entry:
    uint64_t low
    uint64_t high
    int64_t offset
    int64_t time_ms


cdef inline uint64_t _tag(const HashKey *hash_key, const void *fingerprint) noexcept nogil:
    """32 bits that whoever makes ids cannot foresee: not those of the fingerprint, which anybody can choose."""
    cdef uint64_t digest[2]
    _siphash(hash_key, <const uint8_t *>fingerprint, 16, digest)
    return digest[0] & _NUMBERS


cdef class IdTable:
    """See records/id_table.py.

    Entries lie in chunks in the order in which they were added, numbered without end. A slot holds the number of an
    entry modulo 2^32 - 1, plus one (0 is an empty slot), below its tag. That also says where its search begins, so that
    slots can move without a look at the entries.
    """

    cdef Entry **_chunks
    cdef Py_ssize_t _chunk_count
    cdef Py_ssize_t _chunk_room
    cdef int64_t _base
    """The number of the first entry of the first chunk."""
    cdef readonly int64_t first_number
    cdef readonly int64_t end_number
    cdef uint64_t *_slots
    cdef uint64_t _slot_count
    cdef uint64_t _used
    cdef HashKey _hash_key

    def __cinit__(self, bytes hash_key):
        self._hash_key = _hash_key(hash_key)
        self._slots = <uint64_t *>calloc(_SLOTS_MIN, sizeof(uint64_t))
        if self._slots == NULL:
            raise MemoryError
        self._slot_count = _SLOTS_MIN

    def __dealloc__(self):
        cdef Py_ssize_t number
        for number in range(self._chunk_count):
            free(self._chunks[number])
        free(self._chunks)
        free(self._slots)

    def __len__(self):
        return self.end_number - self.first_number

    @property
    def size_bytes(self):
        return (
            self._chunk_count * _CHUNK * sizeof(Entry)
            + self._chunk_room * sizeof(Entry *)
            + self._slot_count * sizeof(uint64_t)
        )

    @property
    def longest_search(self):
        """For tests: how many slots are looked at to find what is furthest from where its search begins."""
        cdef uint64_t mask = self._slot_count - 1
        cdef uint64_t at, longest = 0
        for at in range(self._slot_count):
            if self._slots[at]:
                longest = max(longest, ((at - (self._slots[at] >> 32)) & mask) + 1)
        return longest

    cdef inline Entry *_entry(self, int64_t number) noexcept nogil:
        cdef int64_t at = number - self._base
        return &self._chunks[at >> _CHUNK_BITS][at & (_CHUNK - 1)]

    cdef inline uint64_t _slot(self, Entry *entry, int64_t number) noexcept nogil:
        return (_tag(&self._hash_key, entry) << 32) | (<uint64_t>number % _NUMBERS + 1)

    cdef inline void _fetch_ahead(self, uint64_t tag) noexcept nogil:
        FETCH_AHEAD(&self._slots[tag & (self._slot_count - 1)])

    cdef inline int64_t _number_in(self, uint64_t slot) noexcept nogil:
        cdef uint64_t first = <uint64_t>self.first_number % _NUMBERS
        return self.first_number + <int64_t>(((slot & _NUMBERS) - 1 + _NUMBERS - first) % _NUMBERS)

    # -- adding

    def add(self, bytes entries, int64_t base_offset, int64_t time_ms, bint is_pending):
        cdef const char *data = PyBytes_AS_STRING(entries)
        cdef int64_t count = len(entries) // _ENTRY
        cdef int64_t number, end, start = 0
        cdef int32_t delta
        cdef Entry *entry
        cdef uint64_t slots[_AHEAD]
        cdef int64_t first = self.end_number
        self._make_room(count)
        with nogil:
            while start < count:
                end = min(start + _AHEAD, count)
                for number in range(start, end):
                    entry = self._entry(first + number)
                    memcpy(entry, data + number * _ENTRY, 16)
                    memcpy(&delta, data + number * _ENTRY + 16, 4)
                    entry.offset = base_offset + delta
                    if is_pending:
                        entry.offset |= _PENDING
                    entry.time_ms = time_ms
                    slots[number - start] = self._slot(entry, first + number)
                    self._fetch_ahead(slots[number - start] >> 32)
                for number in range(start, end):
                    self._put(slots[number - start])
                start = end
        self.end_number = first + count
        self._used += count
        return first

    cdef int _make_room(self, int64_t count) except -1:
        cdef uint64_t wanted = self._slot_count
        cdef Entry **chunks
        while (self._used + count) * 3 > wanted * 2:
            wanted *= 2
        if wanted != self._slot_count:
            self._resize(wanted)
        while self._base + self._chunk_count * _CHUNK < self.end_number + count:
            if self._chunk_count == self._chunk_room:
                chunks = <Entry **>realloc(
                    self._chunks, (self._chunk_room * 2 + 8) * sizeof(Entry *)
                )
                if chunks == NULL:
                    raise MemoryError
                self._chunks = chunks
                self._chunk_room = self._chunk_room * 2 + 8
            self._chunks[self._chunk_count] = <Entry *>malloc(_CHUNK * sizeof(Entry))
            if self._chunks[self._chunk_count] == NULL:
                raise MemoryError
            self._chunk_count += 1
        return 0

    cdef int _resize(self, uint64_t slot_count) except -1:
        cdef uint64_t *before = self._slots
        cdef uint64_t before_count = self._slot_count
        cdef uint64_t at
        cdef uint64_t *slots = <uint64_t *>calloc(slot_count, sizeof(uint64_t))
        if slots == NULL:
            raise MemoryError
        self._slots = slots
        self._slot_count = slot_count
        for at in range(before_count):
            if before[at]:
                self._put(before[at])
        free(before)
        return 0

    cdef inline void _put(self, uint64_t slot) noexcept nogil:
        cdef uint64_t mask = self._slot_count - 1
        cdef uint64_t at = (slot >> 32) & mask
        while self._slots[at]:
            at = (at + 1) & mask
        self._slots[at] = slot

    # -- removing

    cdef inline void _take(self, uint64_t slot) noexcept nogil:
        """Those behind it that could not be where their search begins move up."""
        cdef uint64_t mask = self._slot_count - 1
        cdef uint64_t at = (slot >> 32) & mask
        cdef uint64_t following, home
        while self._slots[at] != slot:
            at = (at + 1) & mask
        following = at
        while True:
            following = (following + 1) & mask
            if self._slots[following] == 0:
                break
            home = (self._slots[following] >> 32) & mask
            if ((following - home) & mask) >= ((following - at) & mask):
                self._slots[at] = self._slots[following]
                at = following
        self._slots[at] = 0
        self._used -= 1

    def forget(self, int64_t time_ms, int64_t count_max):
        cdef int64_t before = self.first_number
        cdef Py_ssize_t freed, number
        while self._forget_some(time_ms, count_max) == _AHEAD:
            pass
        freed = (self.first_number - self._base) >> _CHUNK_BITS
        if freed:
            for number in range(freed):
                free(self._chunks[number])
            self._chunk_count -= freed
            memmove(self._chunks, self._chunks + freed, self._chunk_count * sizeof(Entry *))
            self._base += freed * _CHUNK
        if self._used * 8 < self._slot_count and self._slot_count > _SLOTS_MIN:
            self._resize(self._slot_count // 2)
        return self.first_number - before

    cdef int64_t _forget_some(self, int64_t time_ms, int64_t count_max) noexcept nogil:
        """How many it were: _AHEAD at most; fewer if that was all."""
        cdef uint64_t slots[_AHEAD]
        cdef int64_t number = self.first_number
        cdef int64_t end = min(number + _AHEAD, self.end_number)
        cdef int64_t count = 0, place, forgotten
        cdef Entry *entry
        while number < end:
            entry = self._entry(number)
            if entry.time_ms > time_ms and self.end_number - number <= count_max:
                break
            if entry.offset != _DEAD:
                slots[count] = self._slot(entry, number)
                self._fetch_ahead(slots[count] >> 32)
                count += 1
            number += 1
        for place in range(count):
            self._take(slots[place])
        forgotten = number - self.first_number
        self.first_number = number
        return forgotten

    def settle(self, int64_t first, int64_t count, bint is_committed):
        cdef int64_t number
        cdef Entry *entry
        for number in range(max(first, self.first_number), first + count):
            entry = self._entry(number)
            if is_committed:
                entry.offset &= ~_PENDING
            else:
                self._take(self._slot(entry, number))
                entry.offset = _DEAD

    # -- asking

    def find(self, bytes entries, int64_t oldest_ms, int64_t log_start_offset):
        cdef const char *data = PyBytes_AS_STRING(entries)
        cdef int64_t count = len(entries) // _ENTRY
        cdef int64_t place, number, end, start = 0
        cdef uint64_t tags[_AHEAD]
        found = None
        while start < count:
            end = min(start + _AHEAD, count)
            for place in range(start, end):
                tags[place - start] = _tag(&self._hash_key, data + place * _ENTRY)
                self._fetch_ahead(tags[place - start])
            for place in range(start, end):
                number = self._find(
                    data + place * _ENTRY, tags[place - start], oldest_ms, log_start_offset
                )
                if number >= 0:
                    if found is None:
                        found = []
                    found.append((place, number, self._entry(number).offset & ~_PENDING,
                                  (self._entry(number).offset & _PENDING) != 0))
            start = end
        return found

    cdef int64_t _find(
        self, const char *digest, uint64_t tag, int64_t oldest_ms, int64_t log_start_offset
    ) noexcept nogil:
        """The newest that is decided, else the newest that is pending; -1: none."""
        cdef uint64_t mask = self._slot_count - 1
        cdef uint64_t low, high, slot
        cdef uint64_t at = tag & mask
        cdef int64_t number, best = -1, best_pending = -1
        cdef Entry *entry
        memcpy(&low, digest, 8)
        memcpy(&high, digest + 8, 8)
        while True:
            slot = self._slots[at]
            if slot == 0:
                break
            if slot >> 32 == tag:
                number = self._number_in(slot)
                entry = self._entry(number)
                if entry.low == low and entry.high == high and entry.time_ms > oldest_ms:
                    if (entry.offset & ~_PENDING) >= log_start_offset:
                        if entry.offset & _PENDING:
                            best_pending = max(best_pending, number)
                        else:
                            best = max(best, number)
            at = (at + 1) & mask
        return best if best >= 0 else best_pending


def repeated(bytes entries, bytes hash_key):
    """See records/id_table.py."""
    cdef const char *data = PyBytes_AS_STRING(entries)
    cdef int64_t count = len(entries) // _ENTRY
    cdef uint64_t slot_count = 4
    cdef uint64_t at
    cdef int64_t place, other
    cdef int32_t *places
    cdef HashKey key = _hash_key(hash_key)
    if count < 2:
        return None
    while slot_count < <uint64_t>count * 2:
        slot_count *= 2
    places = <int32_t *>calloc(slot_count, sizeof(int32_t))
    if places == NULL:
        raise MemoryError
    found = None
    try:
        for place in range(count):
            at = _tag(&key, data + place * _ENTRY) & (slot_count - 1)
            while places[at]:
                other = places[at] - 1
                if memcmp(data + other * _ENTRY, data + place * _ENTRY, 16) == 0:
                    if found is None:
                        found = []
                    found.append((place, other))
                    break
                at = (at + 1) & (slot_count - 1)
            else:
                places[at] = <int32_t>(place + 1)
        return found
    finally:
        free(places)
