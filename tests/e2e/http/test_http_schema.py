"""`/openapi.json` is complete and true: schemathesis calls every route by it, with what it allows and with what it does not.

Seeded and bounded: the same requests in every run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.checks import CHECKS, not_a_server_error

from tests.e2e.http.servers import DEADLINE, SIMULATED, Server, serving

KEY = {"authorization": "Bearer admin"}
EXAMPLES = 6
"""Of each operation."""

WANTED = (
    "content_type_conformance",
    "response_schema_conformance",
    "status_code_conformance",
    "response_headers_conformance",
)


@pytest.fixture(scope="module")
def guarded() -> Iterator[Server]:
    flags = ("--api-key", "user", "--admin-api-key", "admin", "--max-total-tokens", "20000", "--context-length", "256")
    with serving(*SIMULATED, *flags, check=False) as up:
        yield up


@pytest.fixture(scope="module")
def schema(guarded: Server) -> Any:
    document = guarded.get("/openapi.json", headers=KEY).json()
    found = schemathesis.openapi.from_dict(document)
    found.config.update(base_url=guarded.url)
    return found


def operations(schema: Any) -> list[Any]:
    return [result.ok() for result in schema.get_all_operations()]


def test_a_schema_that_is_not_true_is_found(guarded: Server) -> None:
    document = guarded.get("/openapi.json", headers=KEY).json()
    document["components"]["schemas"]["ModelList"]["required"].append("nothing")
    document["paths"] = {"/v1/models": document["paths"]["/v1/models"]}
    false = schemathesis.openapi.from_dict(document)
    false.config.update(base_url=guarded.url)
    (operation,) = operations(false)
    with pytest.raises(BaseExceptionGroup) as found:
        operation.Case().call_and_validate(headers=KEY, checks=[CHECKS.get_one("response_schema_conformance")])
    assert "nothing" in repr([failure.message for failure in found.value.exceptions])


def test_every_operation_by_its_schema(guarded: Server, schema: Any) -> None:
    checks = [not_a_server_error, *(CHECKS.get_one(name) for name in WANTED)]
    found = operations(schema)
    assert len(found) > 15
    for operation in found:
        # A stream answers in another media type, whose pieces have tests of their own.
        @seed(1)
        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def call(case: Any) -> None:
            case.call_and_validate(headers=KEY, checks=checks, timeout=DEADLINE)

        call()
    assert guarded.get("/health", headers=KEY).status_code == 200
