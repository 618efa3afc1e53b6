"""A server that speaks S3's protocol, on loopback."""

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

from moto.server import ThreadedMotoServer
from pyarrow.fs import S3FileSystem

BUCKET = "tides"
_KEY = "nobody"


@contextmanager
def s3_server() -> Iterator[str]:
    """The address of an empty bucket, as an archive takes it: `{}` stands for a folder in it."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"{host}:{port}"
        system = S3FileSystem(
            access_key=_KEY,
            secret_key=_KEY,
            region="us-east-1",
            scheme="http",
            endpoint_override=endpoint,
            allow_bucket_creation=True,
        )
        system.create_dir(BUCKET)
        terms = f"region=us-east-1&scheme=http&endpoint_override={quote(endpoint, safe='')}"
        yield f"s3://{_KEY}:{_KEY}@{BUCKET}/{{}}?{terms}"
    finally:
        server.stop()
