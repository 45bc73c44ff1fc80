"""Errors in the forms of the APIs."""

from __future__ import annotations

from typing import Any

TYPES = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error",
         404: "not_found_error", 429: "rate_limit_error", 503: "service_unavailable_error"}

ANTHROPIC = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 413: "request_too_large",
             429: "rate_limit_error", 503: "overloaded_error", 504: "timeout_error"}


class ApiError(Exception):
    """Error answer: a status of HTTP and a sentence; `param` names the field of the body.

    >>> from morpho.serve.api.errors import ApiError
    >>> ApiError(400, "n is too large", "n").body()["error"]["type"]
    'invalid_request_error'
    """

    def __init__(self, status: int, message: str, param: str | None = None, code: str | None = None,
                 retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code
        self.retry_after_s = retry_after_s

    def told(self, path: str) -> dict[str, Any]:
        """The error in the form of the API that an address belongs to."""
        if path.startswith("/api/"):
            return {"error": self.message}  # Ollama's
        if path.startswith("/v1/messages"):
            kind = ANTHROPIC.get(self.status, "invalid_request_error" if self.status < 500 else "api_error")
            return {"type": "error", "error": {"type": kind, "message": self.message}}
        return self.body()

    def body(self) -> dict[str, Any]:
        """The error in OpenAI's form."""
        kind = TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}
