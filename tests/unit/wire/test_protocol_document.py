"""`docs/protocol.md` lists what the code serves, no more and no less (G1)."""

from tests.support.protocol_document import documented_apis
from tidelog.wire.api import ADVERTISED, SUPPORTED


def test_the_document_lists_what_is_served() -> None:
    assert {api.key: api.served for api in documented_apis()} == dict(SUPPORTED)


def test_the_document_lists_what_is_advertised() -> None:
    assert {api.key: api.advertised for api in documented_apis()} == dict(ADVERTISED)


def test_the_document_calls_apis_by_their_names() -> None:
    for api in documented_apis():
        assert api.name.upper() == api.key.name.replace("_", "")
