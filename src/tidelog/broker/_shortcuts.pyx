# cython: language_level=3, boundscheck=False, wraparound=False
"""Ordinary requests, compiled: from the frame to the file and back with little of the interpreter.

Most requests are like the one before. A producer sends one sound batch for one partition, there is
room in the segment, and followers come to fetch it; a follower gets that one batch, appends it and
asks for the next. For those this does what the Python on the left does, and nothing else:

    Connection.buffer_updated                     `FastProtocol`
    ProduceTemplate.match, .answer                the bytes of request and answer
    records.validation.validate_produce           `_is_sound`
    PartitionRunner._attempt, ._write             `_may_append`, `_append`
    Log.roll_needed, .append, Segment.append      `_has_room`, `_write`
    ProduceHandler._park                          `ProduceWait`
    wire.fetch.decode_fetch, FetchHandler.answer  `FastFetch`
    handlers.fetch._Attempt, ParkedFetch          `FetchWait`
    ReplicaFetcher._on_response, ._request        `FastFollow`
    FollowerRunner.on_answer                      `_may_follow`, `_copy`

Rules:

    F1  Whatever is not ordinary gets None before anything has changed, and takes the way through
        Python, which decides. So no request is refused here and no error has a text here. A batch
        that was appended and then not replicated gets the code that its leader has for that.
    F2  Machines (core/) are asked, not imitated: `on_batch`, `on_appended`, `on_append`,
        `on_follower_fetch`, `acknowledgement`, `on_fetched`. A fetch session's books are kept here.
    F3  An installation without a C compiler lacks this file and differs in nothing but speed.

tests/unit/broker/test_read_shortcut.py, test_produce_shortcut.py, test_fetch_shortcut.py and
test_follow_shortcut.py send the same requests and answers with and without it and compare what is
said, files and books; whoever changes one side is told there.

It reads and writes the slots of a runner and of its log, which nobody else does, and by their place
in memory: a look-up by name takes 25 ns, and there are fifty of them. docs/decisions/0007, 0012.
"""

include "_shortcuts_slots.pxi"
include "_shortcuts_append.pxi"
include "_shortcuts_produce.pxi"
include "_shortcuts_fetch.pxi"
include "_shortcuts_follow.pxi"
include "_shortcuts_read.pxi"
