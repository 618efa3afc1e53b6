"""What `docs/protocol.md` lists is what a running broker advertises and answers (G1)."""

import dataclasses
import struct
from collections.abc import Iterator

import pytest
from kio.schema.api_versions.v3.request import ApiVersionsRequest
from kio.schema.api_versions.v3.response import ApiVersionsResponse

from tests.support.broker_process import BrokerProcess
from tests.support.message_client import ConnectionClosed, MessageClient, one_of_everything
from tests.support.protocol_document import DocumentedApi, documented_apis
from tidelog.base.errors import ErrorCode
from tidelog.wire.api import ApiKey

APIS = documented_apis()
SERVED = [
    pytest.param(api.key, version, id=f"{api.name}-v{version}")
    for api in APIS
    for version in range(api.served.lowest, api.served.highest + 1)
]
NOT_LISTED = sorted(set(ApiKey) - {api.key for api in APIS})


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[MessageClient]:
    with MessageClient("127.0.0.1", broker.port) as connected:
        yield connected


def test_the_broker_advertises_what_the_document_lists(client: MessageClient) -> None:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    response = client.ask(request)
    assert isinstance(response, ApiVersionsResponse)
    advertised = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
    assert advertised == {int(api.key): tuple(api.advertised) for api in APIS}


@pytest.mark.parametrize(("api_key", "version"), SERVED)
def test_every_version_that_is_listed_is_answered_in_kind(
    client: MessageClient, api_key: ApiKey, version: int
) -> None:
    request = one_of_everything(api_key, version)
    if api_key is ApiKey.PRODUCE:
        request = dataclasses.replace(request, acks=1)
    client.ask(request)


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_the_version_after_the_last_one_is_refused(
    client: MessageClient, api: DocumentedApi
) -> None:
    if api.key is ApiKey.API_VERSIONS:
        answer = client.ask_unknown(api.key, api.served.highest + 1)
        (code,) = struct.unpack_from(">h", answer)
        assert code == ErrorCode.UNSUPPORTED_VERSION
        return
    with pytest.raises(ConnectionClosed):
        client.ask_unknown(api.key, api.served.highest + 1)


def test_versions_that_are_advertised_for_show_are_refused(broker: BrokerProcess) -> None:
    shown = [
        (api.key, version)
        for api in APIS
        for version in range(api.advertised.lowest, api.served.lowest)
    ]
    assert shown == [(ApiKey.PRODUCE, 0), (ApiKey.PRODUCE, 1), (ApiKey.PRODUCE, 2)]
    for api_key, version in shown:
        with MessageClient("127.0.0.1", broker.port) as client, pytest.raises(ConnectionClosed):
            client.ask_unknown(api_key, version)


@pytest.mark.parametrize("api_key", NOT_LISTED, ids=lambda key: key.name)
def test_what_is_not_listed_is_not_served(client: MessageClient, api_key: ApiKey) -> None:
    with pytest.raises(ConnectionClosed):
        client.ask_unknown(api_key, 0)
