"""Requests that schemathesis makes from /openapi.json: no 500, no undocumented status, no undocumented form."""

import pytest
from hypothesis import given, settings

schemathesis = pytest.importorskip("schemathesis")
BOUNDED = settings(max_examples=12, derandomize=True)


def checks():
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks as of_openapi

    conformance = ("status_code", "content_type", "response_schema")
    return [not_a_server_error, *(getattr(of_openapi, f"{name}_conformance") for name in conformance)]


@pytest.mark.heavy
@pytest.mark.parametrize("mode", ["positive", "negative"])
def test_what_schemathesis_sends(server_url, mode):
    failures = []
    for found in schemathesis.openapi.from_url(f"{server_url}/openapi.json").get_all_operations():
        operation = found.ok()
        if mode == "negative" and operation.method == "get":  # nothing in it can be wrong
            continue
        try:
            exercise(operation.as_strategy(generation_mode=schemathesis.GenerationMode(mode)))
        except (Exception, BaseExceptionGroup) as error:
            each = getattr(error, "exceptions", (error,))
            failures.append("\n".join([operation.label, *(f"{type(one).__name__}: {one}" for one in each)]))
    assert not failures, "\n\n".join(failures)


def exercise(cases):
    """Send some cases of an operation. Raises schemathesis' failures."""

    @BOUNDED
    @given(cases)
    def send(case):
        case.validate_response(case.call(timeout=20), checks=checks())

    send()
