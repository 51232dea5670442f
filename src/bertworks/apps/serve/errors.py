"""Error responses: statuses, error types, and the form that each API gives them.

| status | error_type | when |
|---|---|---|
| 400 | Empty | an empty body; an input without text |
| 400 | Validation | a body that is no JSON; a Host header that is not allowed |
| 401 | Unauthorized | no key, or a wrong one |
| 404 | NotFound | an unknown route; an unknown model, where several are loaded |
| 405 | NotFound | a route with another method; the message names the right one |
| 408 | Timeout | the body did not arrive in time |
| 413 | Validation | too many bytes, tokens or results; an input longer than the model's, without `truncate` |
| 415 | Validation | another content type than application/json, or a body with Content-Encoding |
| 422 | Validation | a field that is missing or has another form |
| 422 | Tokenizer | a text that cannot be read |
| 424 | Backend | the model has no head for it; the forward pass failed |
| 429 | Overloaded | too many requests; `Retry-After` gives the seconds |
| 503 | Unhealthy | the server is shutting down |
"""

import re
from collections.abc import Mapping
from typing import Any

TYPES = {  # of a status; Validation: every other
    401: "Unauthorized",
    404: "NotFound",
    405: "NotFound",
    408: "Timeout",
    424: "Backend",
    429: "Overloaded",
    500: "Backend",
    503: "Unhealthy",
}
CODES = {  # of OpenAI's errors; no words of Python's, which change with its version
    400: "invalid_value",
    401: "invalid_api_key",
    404: "not_found",
    405: "method_not_allowed",
    408: "timeout",
    413: "request_too_large",  # context_length_exceeded only of a single text, since clients shorten texts then
    415: "unsupported_media_type",
    422: "invalid_value",
    424: "model_cannot",
    429: "rate_limit_exceeded",
}


def without_folders(message: str, names: Mapping[str, str]) -> str:
    """A message with names instead of folders, which are no business of clients. names: of each folder's path.

    Only whole paths are replaced: a folder may have the name of a word, or be part of another name.
    """
    if not names:
        return message
    folders = "|".join(re.escape(folder) for folder in sorted(names, key=len, reverse=True))
    return re.sub(rf"(?<![\w./-])({folders})(?![\w-]|\.\w)", lambda match: names[match[0]], message)


class HTTPError(Exception):
    """The error response to a request. The message says what was found, what was expected, and what to do."""

    def __init__(
        self,
        status: int,
        message: str,
        headers: Mapping[str, str] | None = None,
        param: str | None = None,
        error_type: str = "",
        code: str = "",
    ):
        """headers: of the response, such as Retry-After. param: the field of the request that is at fault.

        error_type, code: by default those of the status, in the tables above.
        """
        super().__init__(message)
        self.status, self.message, self.headers, self.param = status, message, dict(headers or {}), param
        self.error_type = error_type or TYPES.get(status, "Validation")
        self.code = code or ("model_not_found" if param == "model" else CODES.get(status, "server_error"))


def shutting_down() -> HTTPError:
    """The error of every request that comes after SIGTERM."""
    return HTTPError(503, "the server is shutting down; send the request to another one", {"Retry-After": "1"})


def tei(error: HTTPError) -> dict[str, Any]:
    """{"error", "error_type"}: text-embeddings-inference, Hugging Face Inference, and our own routes."""
    return {"error": error.message, "error_type": error.error_type}


def openai(error: HTTPError) -> dict[str, Any]:
    """{"error": {"message", "type", "param", "code"}}."""
    kinds = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
    kind = kinds.get(error.status, "server_error" if error.status >= 500 else "invalid_request_error")
    return {"error": {"message": error.message, "type": kind, "param": error.param, "code": error.code}}


def body_of(error: HTTPError, path: str) -> dict[str, Any]:
    """The JSON of an error on this path. The path decides, because some errors are raised before the route is known."""
    return openai(error) if path.startswith("/v1/") and path != "/v1/rerank" else tei(error)
