"""The OpenAPI document: additions to the framework's output."""

from typing import Any

from nfagent.api.schemas import ProblemDetails

_ALWAYS = {"400": "Malformed", "401": "No token, or an unknown one", "413": "The body is too large"}
_WITH_BODY = {"415": "The body is not application/json"}
_PROBLEM = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}}


def finished(spec: dict[str, Any] | str) -> dict[str, Any]:
    """Add problem documents as errors and a token to every path, and remove the address, which the client knows."""
    if isinstance(spec, str):
        raise TypeError("expected the document as data: SPEC_FORMAT is json")
    spec.pop("servers", None)
    schemas: dict[str, Any] = spec["components"]["schemas"]
    for replaced in ("HTTPError", "ValidationError", "ValidationErrorDetail", "ValidationErrorDetailLocation"):
        schemas.pop(replaced, None)
    schemas["ProblemDetails"] = ProblemDetails.model_json_schema(ref_template="#/components/schemas/{model}")
    for operations in spec["paths"].values():
        for operation in operations.values():
            for parameter in operation.get("parameters", []):
                parameter["schema"] = _without_null(parameter["schema"])
            operation["security"] = [{"token": []}]
            responses: dict[str, Any] = operation["responses"]
            for status, description in (_ALWAYS | (_WITH_BODY if "requestBody" in operation else {})).items():
                responses.setdefault(status, {"description": description})
            for status, response in responses.items():
                if status.startswith(("4", "5")):
                    response["content"] = _PROBLEM
            operation["responses"] = dict(sorted(responses.items()))
    return spec


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Remove null from the type of path and query parameters, which are text or absent."""
    choices = [each for each in schema.get("anyOf", []) if each.get("type") != "null"]
    return choices[0] if len(choices) == 1 else schema
