"""Errors in OpenAI's form."""

from __future__ import annotations

from typing import Any

TYPES = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error",
         404: "not_found_error", 429: "rate_limit_error", 503: "service_unavailable_error"}


class ApiError(Exception):
    """What is answered instead of a result: a status of HTTP and a sentence; `param` names the field of the body.

    >>> from morpho.serve.api.errors import ApiError
    >>> ApiError(400, "n is too large", "n").body()["error"]["type"]
    'invalid_request_error'
    """

    def __init__(self, status: int, message: str, param: str | None = None, code: str | None = None,
                 retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code
        self.retry_after_s = retry_after_s

    def body(self) -> dict[str, Any]:
        kind = TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}
