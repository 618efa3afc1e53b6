"""IncrementalAlterConfigs: seeing for whom it is, against kio in every version."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.golden import kafka_api_versions
from tests.support.kio_codec import PER_VERSION, names, request_bytes
from tidelog.base.errors import WireError
from tidelog.wire.api import ApiKey, RequestHeader
from tidelog.wire.incremental_alter_configs import has_resource_of

KEY = ApiKey.INCREMENTAL_ALTER_CONFIGS
LOWEST, HIGHEST = kafka_api_versions()[KEY]
every_version = pytest.mark.parametrize("version", range(LOWEST, HIGHEST + 1))

_configs = st.fixed_dictionaries(
    {"name": names, "config_operation": st.integers(0, 3), "value": st.none() | names}
)
_resources = st.lists(
    st.fixed_dictionaries(
        {
            "resource_type": st.sampled_from([2, 4, 8, 32]),
            "resource_name": names,
            "configs": st.lists(_configs, max_size=3),
        }
    ),
    max_size=3,
)


def _looked_at(body: bytes, version: int, resource_type: int) -> bool:
    header = RequestHeader(KEY, version, 7, "client", len(b"header"))
    return has_resource_of(memoryview(b"header" + body), header, resource_type)


@every_version
@PER_VERSION
@given(resources=_resources, resource_type=st.sampled_from([2, 4, 8]))
def test_a_resource_is_found_wherever_it_is(
    version: int, resources: list[dict[str, object]], resource_type: int
) -> None:
    body = request_bytes(KEY, version, {"resources": resources, "validate_only": True})
    is_there = any(one["resource_type"] == resource_type for one in resources)
    assert _looked_at(body, version, resource_type) == is_there


@every_version
@PER_VERSION
@given(resources=_resources, data=st.data())
def test_what_is_cut_off_is_no_request(
    version: int, resources: list[dict[str, object]], data: st.DataObject
) -> None:
    """The last byte, whether it is only to be validated, is nobody's here, nor what is behind."""
    body = request_bytes(KEY, version, {"resources": resources, "validate_only": True})
    needed = len(body) - (1 if version == 0 else 2)
    cut = body[: data.draw(st.integers(0, needed - 1))]
    with pytest.raises(WireError):
        _looked_at(cut, version, 99)
