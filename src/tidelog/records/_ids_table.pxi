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

# In an entry's offset, with what its id has to do with others. Of those that are no more it is negative.
cdef int64_t _PENDING = <int64_t>1 << 62
cdef int64_t _SHARED = <int64_t>1 << 61  # Of one that is pending: there was another with its id.
cdef int64_t _OFFSETS = _SHARED - 1
cdef int64_t _SUPERSEDED = -1  # By a newer one that counts. It has no slot, and is not asked for again.
cdef int64_t _TAKEN_OUT = -2  # Its slot may still be there.

cdef uint64_t _NUMBERS = 0xFFFFFFFF
cdef uint64_t _SLOTS_MIN = 64


cdef struct Entry:
    uint64_t low
    uint64_t high
    int64_t offset
    int64_t time_ms


# The slots that entries with one id have.
cdef struct Copies:
    int64_t decided  # The number of the newest that is; -1: there is none.
    int64_t decided_at
    int64_t pending  # The same of those that are pending. It may be -1 where a slot is left, of one that was aborted.
    int64_t pending_at
    int64_t empty_at  # Where the search ended.


# The entries of a batch, as of which time and offset they are asked for, and room for what is found of each; NULL: none.
cdef struct Asked:
    const char *data
    int64_t count
    int64_t oldest_ms
    int64_t log_start_offset
    int64_t *offsets
    int64_t *undecided


cdef inline uint64_t _tag(const HashKey *hash_key, const void *fingerprint) noexcept nogil:
    """32 bits that whoever makes ids cannot foresee: not those of the fingerprint, which anybody can choose."""
    cdef uint64_t digest[2]
    _siphash(hash_key, <const uint8_t *>fingerprint, 16, digest)
    return digest[0] & _NUMBERS


cdef inline bint _is_decided(const Entry *entry) noexcept nogil:
    return entry.offset >= 0 and not entry.offset & _PENDING


cdef inline uint64_t _numbered(uint64_t tag, int64_t number) noexcept nogil:
    """A slot."""
    return (tag << 32) | (<uint64_t>number % _NUMBERS + 1)


cdef class IdTable:
    """See records/id_table.py.

    Entries lie in chunks in the order in which they were added, numbered without end. A slot holds the number of an
    entry modulo 2^32 - 1, plus one (0 is an empty slot), below its tag. That also says where its search begins, so that
    slots can move without a look at the entries.

    However many entries have one id, they have two slots at the most: that of the newest which is decided, and that of
    the newest which is pending. Times and offsets ascend with the numbers, so while an entry is remembered that is decided,
    none before it can be the answer, whatever becomes of it: it is superseded. The pending ones behind that have a chain,
    from the newest to the oldest, in `_links`, of which there is none where no id has several.

    Invariants:

        I1  An entry that is decided and not superseded has a slot.
        I2  One that is pending has a slot, or is in the chain that begins at the slot of a newer one.
        I3  In a chain, those before the first that is decided or superseded are pending or aborted.
    """

    cdef Entry **_chunks
    cdef uint32_t **_links
    """Of each chunk, how far it is from each entry to the next of its chain, which is older; 0: it ends. May be NULL."""
    cdef Py_ssize_t _link_chunks
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
            free(self._links[number])
        free(self._chunks)
        free(self._links)
        free(self._slots)

    def __len__(self):
        return self.end_number - self.first_number

    @property
    def size_bytes(self):
        return (
            self._chunk_count * _CHUNK * sizeof(Entry)
            + self._link_chunks * _CHUNK * sizeof(uint32_t)
            + self._chunk_room * (sizeof(Entry *) + sizeof(uint32_t *))
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
        return _numbered(_tag(&self._hash_key, entry), number)

    cdef inline void _fetch_ahead(self, uint64_t tag) noexcept nogil:
        FETCH_AHEAD(&self._slots[tag & (self._slot_count - 1)])

    cdef inline int64_t _number_in(self, uint64_t slot) noexcept nogil:
        cdef uint64_t first = <uint64_t>self.first_number % _NUMBERS
        return self.first_number + <int64_t>(((slot & _NUMBERS) - 1 + _NUMBERS - first) % _NUMBERS)

    # -- entries with one id

    cdef void _find_copies(self, const Entry *entry, uint64_t tag, Copies *copies) noexcept nogil:
        """The slots of entries with its id, its own if it has one among them."""
        cdef uint64_t mask = self._slot_count - 1
        cdef uint64_t at = tag & mask
        cdef int64_t number
        cdef Entry *other
        copies.decided = copies.decided_at = copies.pending = copies.pending_at = -1
        while self._slots[at]:
            if self._slots[at] >> 32 == tag:
                number = self._number_in(self._slots[at])
                other = self._entry(number)
                if other.low == entry.low and other.high == entry.high:
                    if _is_decided(other):
                        copies.decided = number
                        copies.decided_at = <int64_t>at
                    else:
                        copies.pending_at = <int64_t>at
                        copies.pending = self._newest_pending(at, number)
            at = (at + 1) & mask
        copies.empty_at = <int64_t>at

    cdef int64_t _newest_pending(self, uint64_t at, int64_t number) noexcept nogil:
        """Of the chain that begins with `number`, in the slot `at`; -1: none.

        The slot moves on with it, or to the last that was aborted: nobody passes the others again.
        """
        cdef int64_t newest = number
        cdef int64_t last = number
        while newest >= 0 and self._entry(newest).offset < 0:
            last = newest
            newest = self._older(newest)
        if newest >= 0 and _is_decided(self._entry(newest)):
            newest = -1  # I3
        if newest >= 0:
            last = newest
        if last != number:
            self._slots[at] = _numbered(self._slots[at] >> 32, last)
        return newest

    cdef inline int64_t _older(self, int64_t number) noexcept nogil:
        """The next of the chain that is still remembered; -1: none."""
        cdef int64_t at = number - self._base
        cdef uint32_t *links = self._links[at >> _CHUNK_BITS]
        cdef int64_t distance = 0 if links == NULL else links[at & (_CHUNK - 1)]
        return -1 if distance == 0 or number - distance < self.first_number else number - distance

    cdef bint _link(self, int64_t number, int64_t older) noexcept nogil:
        """False: there is no memory."""
        cdef int64_t at = number - self._base
        cdef uint32_t **links = &self._links[at >> _CHUNK_BITS]
        if links[0] == NULL:
            links[0] = <uint32_t *>calloc(_CHUNK, sizeof(uint32_t))
            if links[0] == NULL:
                return False
            self._link_chunks += 1
        links[0][at & (_CHUNK - 1)] = <uint32_t>(number - older)
        return True

    cdef void _supersede(self, int64_t number) noexcept nogil:
        """An entry that will have no slot, and those before it in its chain; -1: nothing."""
        while number >= 0 and self._entry(number).offset != _SUPERSEDED:
            self._entry(number).offset = _SUPERSEDED
            number = self._older(number)

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
                    if not self._put_entry(first + number, slots[number - start], is_pending):
                        with gil:
                            raise MemoryError
                    self.end_number += 1
                start = end
        return first

    cdef bint _put_entry(self, int64_t number, uint64_t slot, bint is_pending) noexcept nogil:
        """False: there is no memory, and the entry has no slot."""
        cdef Copies copies
        self._find_copies(self._entry(number), slot >> 32, &copies)
        if copies.decided_at < 0 and copies.pending_at < 0:
            self._slots[copies.empty_at] = slot
            self._used += 1
        elif is_pending:
            if copies.pending >= 0:
                if not self._link(number, copies.pending):
                    return False
                self._entry(copies.pending).offset |= _SHARED
            self._entry(number).offset |= _SHARED
            if copies.pending_at >= 0:
                self._slots[copies.pending_at] = slot
            else:
                self._slots[copies.empty_at] = slot
                self._used += 1
        else:
            self._supersede(copies.decided)
            self._supersede(copies.pending)
            if copies.decided_at < 0:
                self._slots[copies.pending_at] = slot
            else:
                self._slots[copies.decided_at] = slot
                if copies.pending_at >= 0:
                    self._take(self._slots[copies.pending_at])
        return True

    def moved_by(self, int64_t count):
        return self._used if (self._used + count) * 3 > self._slot_count * 2 else 0

    cdef int _make_room(self, int64_t count) except -1:
        cdef uint64_t wanted = self._slot_count
        cdef bint has_room
        cdef Entry **chunks
        cdef uint32_t **links
        while (self._used + count) * 3 > wanted * 2:
            wanted *= 2
        if wanted != self._slot_count:
            with nogil:
                has_room = self._resize(wanted)
            if not has_room:
                raise MemoryError
        while self._base + self._chunk_count * _CHUNK < self.end_number + count:
            if self._chunk_count == self._chunk_room:
                chunks = <Entry **>realloc(
                    self._chunks, (self._chunk_room * 2 + 8) * sizeof(Entry *)
                )
                if chunks == NULL:
                    raise MemoryError
                self._chunks = chunks
                links = <uint32_t **>realloc(
                    self._links, (self._chunk_room * 2 + 8) * sizeof(uint32_t *)
                )
                if links == NULL:
                    raise MemoryError
                self._links = links
                self._chunk_room = self._chunk_room * 2 + 8
            self._chunks[self._chunk_count] = <Entry *>malloc(_CHUNK * sizeof(Entry))
            if self._chunks[self._chunk_count] == NULL:
                raise MemoryError
            self._links[self._chunk_count] = NULL
            self._chunk_count += 1
        return 0

    cdef bint _resize(self, uint64_t slot_count) noexcept nogil:
        """False: there is no memory."""
        cdef uint64_t *before = self._slots
        cdef uint64_t before_count = self._slot_count
        cdef uint64_t at
        cdef uint64_t *slots = <uint64_t *>calloc(slot_count, sizeof(uint64_t))
        if slots == NULL:
            return False
        self._slots = slots
        self._slot_count = slot_count
        for at in range(before_count):
            if before[at]:
                self._put(before[at])
        free(before)
        return True

    cdef inline void _put(self, uint64_t slot) noexcept nogil:
        cdef uint64_t mask = self._slot_count - 1
        cdef uint64_t at = (slot >> 32) & mask
        while self._slots[at]:
            at = (at + 1) & mask
        self._slots[at] = slot

    # -- removing

    cdef inline void _take(self, uint64_t slot) noexcept nogil:
        """Empty it, if it is there. Those behind it that could not be where their search begins move up."""
        cdef uint64_t mask = self._slot_count - 1
        cdef uint64_t at = (slot >> 32) & mask
        cdef uint64_t following, home
        while self._slots[at] != slot:
            if self._slots[at] == 0:
                return
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

    def forget(self, int64_t time_ms, int64_t count_max, int64_t at_most):
        cdef int64_t before = self.first_number
        cdef int64_t end = before + min(at_most, self.end_number - before)
        cdef Py_ssize_t freed, number
        if end - before <= _WITH_LOCK:
            self._forget_until(time_ms, count_max, end)
        else:
            with nogil:
                self._forget_until(time_ms, count_max, end)
        freed = (self.first_number - self._base) >> _CHUNK_BITS
        if freed:
            for number in range(freed):
                free(self._chunks[number])
                self._link_chunks -= self._links[number] != NULL
                free(self._links[number])
            self._chunk_count -= freed
            memmove(self._chunks, self._chunks + freed, self._chunk_count * sizeof(Entry *))
            memmove(self._links, self._links + freed, self._chunk_count * sizeof(uint32_t *))
            self._base += freed * _CHUNK
        if self._used * 8 < self._slot_count and self._slot_count > _SLOTS_MIN:
            with nogil:
                self._resize(self._slot_count // 2)  # Without memory for it, it stays as it is.
        return self.first_number - before

    cdef void _forget_until(self, int64_t time_ms, int64_t count_max, int64_t end) noexcept nogil:
        while self._forget_some(time_ms, count_max, end) == _AHEAD:
            pass

    cdef int64_t _forget_some(
        self, int64_t time_ms, int64_t count_max, int64_t end
    ) noexcept nogil:
        """How many it were: _AHEAD at most; fewer if that was all."""
        cdef uint64_t slots[_AHEAD]
        cdef int64_t number = self.first_number
        cdef int64_t count = 0, place, forgotten
        cdef Entry *entry
        end = min(number + _AHEAD, end)
        while number < end:
            entry = self._entry(number)
            if entry.time_ms > time_ms and self.end_number - number <= count_max:
                break
            if entry.offset != _SUPERSEDED:
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
        cdef bint has_room
        if count <= _WITH_LOCK:
            has_room = self._settle(first, count, is_committed)
        else:
            with nogil:
                has_room = self._settle(first, count, is_committed)
        if not has_room:
            raise MemoryError

    cdef bint _settle(self, int64_t first, int64_t count, bint is_committed) noexcept nogil:
        """False: there is no memory."""
        cdef int64_t number
        cdef Entry *entry
        # From the newest on: of many with one id, the first that is committed supersedes the others.
        for number in range(first + count - 1, max(first, self.first_number) - 1, -1):
            entry = self._entry(number)
            if entry.offset < 0:
                continue
            if not is_committed:
                entry.offset = _TAKEN_OUT
            elif entry.offset & _SHARED:
                if not self._commit_shared(entry, number):
                    return False
            else:
                entry.offset &= ~_PENDING
        return True

    cdef bint _commit_shared(self, Entry *entry, int64_t number) noexcept nogil:
        """False: there is no memory."""
        cdef Copies copies
        cdef uint64_t slot = self._slot(entry, number)
        if (self._used + 1) * 3 > self._slot_count * 2 and not self._resize(self._slot_count * 2):
            return False
        self._find_copies(entry, slot >> 32, &copies)
        self._supersede(copies.decided)
        self._supersede(self._older(number))
        entry.offset &= _OFFSETS
        if number == copies.pending:  # Its slot is now that of the newest which is decided.
            if copies.decided_at >= 0:
                self._take(self._slots[copies.decided_at])
        elif copies.decided_at >= 0:
            self._slots[copies.decided_at] = slot
        else:
            self._slots[copies.empty_at] = slot
            self._used += 1
        return True

    # -- asking

    def find(self, bytes entries, int64_t oldest_ms, int64_t log_start_offset):
        cdef Asked asked
        cdef int64_t place
        asked.data = PyBytes_AS_STRING(entries)
        asked.count = len(entries) // _ENTRY
        asked.oldest_ms = oldest_ms
        asked.log_start_offset = log_start_offset
        asked.offsets = asked.undecided = NULL
        place = self._find_from(&asked, 0)
        if place == asked.count:
            return None
        offsets = PyBytes_FromStringAndSize(NULL, asked.count * sizeof(int64_t))
        undecided = None
        asked.offsets = <int64_t *>PyBytes_AS_STRING(offsets)
        place = self._find_from(&asked, place)
        if place < asked.count:
            undecided = PyBytes_FromStringAndSize(NULL, asked.count * sizeof(int64_t))
            asked.undecided = <int64_t *>PyBytes_AS_STRING(undecided)
            self._find_from(&asked, 0)
        return offsets, undecided

    cdef int64_t _find_from(self, Asked *asked, int64_t start) except -1:
        cdef int64_t place
        if asked.count <= _WITH_LOCK:
            return self._find_all(asked, start)
        with nogil:
            place = self._find_all(asked, start)
        return place

    cdef int64_t _find_all(self, Asked *asked, int64_t start) noexcept nogil:
        """As far as there is room for what is found; where that was."""
        cdef int64_t place, number, end
        cdef uint64_t tags[_AHEAD]
        if asked.offsets != NULL:
            memset(asked.offsets, 0xFF, start * sizeof(int64_t))
        while start < asked.count:
            end = min(start + _AHEAD, asked.count)
            for place in range(start, end):
                tags[place - start] = _tag(&self._hash_key, asked.data + place * _ENTRY)
                self._fetch_ahead(tags[place - start])
            for place in range(start, end):
                number = self._find(
                    asked.data + place * _ENTRY, tags[place - start], asked.oldest_ms, asked.log_start_offset
                )
                if number >= 0 and asked.offsets == NULL:
                    return place
                if asked.offsets != NULL:
                    asked.offsets[place] = -1 if number < 0 else self._entry(number).offset & _OFFSETS
                if number >= 0 and _is_decided(self._entry(number)):
                    number = -1
                if number >= 0 and asked.undecided == NULL:
                    return place
                if asked.undecided != NULL:
                    asked.undecided[place] = number
            start = end
        return asked.count

    cdef int64_t _find(
        self, const char *digest, uint64_t tag, int64_t oldest_ms, int64_t log_start_offset
    ) noexcept nogil:
        """The newest that is decided, else the newest that is pending; -1: none."""
        cdef Entry asked
        cdef Copies copies
        memcpy(&asked, digest, 16)
        self._find_copies(&asked, tag, &copies)
        if self._counts(copies.decided, oldest_ms, log_start_offset):
            return copies.decided
        if self._counts(copies.pending, oldest_ms, log_start_offset):
            return copies.pending
        return -1

    cdef inline bint _counts(
        self, int64_t number, int64_t oldest_ms, int64_t log_start_offset
    ) noexcept nogil:
        cdef Entry *entry
        if number < 0:
            return False
        entry = self._entry(number)
        return entry.time_ms > oldest_ms and (entry.offset & _OFFSETS) >= log_start_offset


def repeated(bytes entries, bytes hash_key):
    """See records/id_table.py."""
    cdef const char *data = PyBytes_AS_STRING(entries)
    cdef int64_t count = len(entries) // _ENTRY
    cdef HashKey key = _hash_key(hash_key)
    cdef int64_t place
    cdef int32_t *places
    cdef uint64_t slot_count = 4
    cdef char *into = NULL
    if count < 2:
        return None
    while slot_count < <uint64_t>count * 2:
        slot_count *= 2
    places = <int32_t *>calloc(slot_count, sizeof(int32_t))
    if places == NULL:
        raise MemoryError
    marks = None
    try:
        place = _mark_repeated(data, 0, count, &key, places, slot_count, NULL)
        if place < count:
            marks = PyBytes_FromStringAndSize(NULL, count)
            into = PyBytes_AS_STRING(marks)
            _mark_repeated(data, place, count, &key, places, slot_count, into)
        return marks
    finally:
        free(places)


cdef int64_t _mark_repeated(
    const char *data, int64_t start, int64_t count, const HashKey *key, int32_t *places, uint64_t slot_count, char *marks
) except -1:
    cdef int64_t place
    if count <= _WITH_LOCK:
        return _mark_all_repeated(data, start, count, key, places, slot_count, marks)
    with nogil:
        place = _mark_all_repeated(data, start, count, key, places, slot_count, marks)
    return place


cdef int64_t _mark_all_repeated(
    const char *data, int64_t start, int64_t count, const HashKey *key, int32_t *places, uint64_t slot_count, char *marks
) noexcept nogil:
    """From `start` on; without `marks`, as far as there is nothing to mark. Where that was."""
    cdef uint64_t at
    cdef int64_t place
    cdef bint is_repeated
    if marks != NULL:
        memset(marks, 0, start)
    for place in range(start, count):
        at = _tag(key, data + place * _ENTRY) & (slot_count - 1)
        is_repeated = False
        while places[at] and not is_repeated:
            is_repeated = memcmp(data + (<int64_t>places[at] - 1) * _ENTRY, data + place * _ENTRY, 16) == 0
            at = (at + 1) & (slot_count - 1)
        if not is_repeated:
            places[at] = <int32_t>(place + 1)
        elif marks == NULL:
            return place
        if marks != NULL:
            marks[place] = is_repeated
    return count


# The records of a batch that are to be dropped, and where they go.
cdef struct Dropped:
    int64_t count
    int32_t *deltas
    int64_t *offsets
    int64_t smallest
    int64_t largest


cdef int _collect_dropped(
    const char *data, int64_t count, const int64_t *offsets, const char *marks, Dropped *dropped
) except -1:
    if count <= _WITH_LOCK:
        _collect_all_dropped(data, count, offsets, marks, dropped)
    else:
        with nogil:
            _collect_all_dropped(data, count, offsets, marks, dropped)
    return 0


cdef void _collect_all_dropped(
    const char *data, int64_t count, const int64_t *offsets, const char *marks, Dropped *dropped
) noexcept nogil:
    """Only count them, if there is no room for them."""
    cdef int64_t place, offset
    dropped.count = 0
    for place in range(count):
        offset = -1 if offsets == NULL else offsets[place]
        if offset < 0 and (marks == NULL or not marks[place]):
            continue
        if dropped.deltas != NULL:
            memcpy(&dropped.deltas[dropped.count], data + place * _ENTRY + 16, sizeof(int32_t))
            dropped.offsets[dropped.count] = offset
        if dropped.count == 0:
            dropped.smallest = dropped.largest = offset
        dropped.smallest = min(dropped.smallest, offset)
        dropped.largest = max(dropped.largest, offset)
        dropped.count += 1


def dropped_of(bytes entries, bytes offsets, bytes marks):
    """See records/id_table.py."""
    cdef const char *data = PyBytes_AS_STRING(entries)
    cdef int64_t count = len(entries) // _ENTRY
    cdef const int64_t *copies = NULL
    cdef const char *marked = NULL
    cdef Dropped dropped
    if offsets is not None:
        copies = <const int64_t *>PyBytes_AS_STRING(offsets)
    if marks is not None:
        marked = PyBytes_AS_STRING(marks)
    dropped.deltas = NULL
    _collect_dropped(data, count, copies, marked, &dropped)
    deltas = PyBytes_FromStringAndSize(NULL, dropped.count * sizeof(int32_t))
    found = PyBytes_FromStringAndSize(NULL, dropped.count * sizeof(int64_t))
    dropped.deltas = <int32_t *>PyBytes_AS_STRING(deltas)
    dropped.offsets = <int64_t *>PyBytes_AS_STRING(found)
    _collect_dropped(data, count, copies, marked, &dropped)
    return deltas, found, dropped.smallest, dropped.largest
