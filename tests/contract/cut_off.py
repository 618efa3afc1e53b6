"""A network between a client and a server that can be cut, for a while or for good."""

import asyncio
from contextlib import suppress

CHUNK_BYTES = 65_536


class Wire:
    """Passes bytes on to `target`, until it is cut: then nothing arrives and nobody is told."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._is_whole = asyncio.Event()
        self._is_whole.set()
        self._server: asyncio.Server | None = None
        self._passages: set[asyncio.Task[None]] = set()

    async def open(self) -> str:
        """The address at which the target is reached through this wire."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        self._is_whole.clear()

    def mend(self) -> None:
        self._is_whole.set()

    def drop_connections(self) -> None:
        """Close what is connected now, as a server that restarts does."""
        for passage in self._passages:
            passage.cancel()

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        passages = list(self._passages)
        self.drop_connections()
        await asyncio.gather(*passages, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        passage = asyncio.current_task()
        assert passage is not None
        self._passages.add(passage)
        try:
            await self._is_whole.wait()
            far_reader, far_writer = await asyncio.open_connection(*self._target)
            try:
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._pass_on(reader, far_writer))
                    both.create_task(self._pass_on(far_reader, writer))
            finally:
                far_writer.transport.abort()
        except* (OSError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()
            self._passages.discard(passage)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(CHUNK_BYTES):
                await self._is_whole.wait()
                writer.write(data)
        # An end in one direction is an end in both.
        raise ConnectionResetError
