"""The admin API's look at masking: what would become of a text. Nothing is sent, kept or logged."""

from __future__ import annotations

from fastapi import FastAPI, Request, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from weighbridge.config.deadline import Deadline
from weighbridge.config.errors import ApiError, InvalidRequest
from weighbridge.config.legal import NAME_PATTERN
from weighbridge.gateway.admin_schema import PreviewView
from weighbridge.gateway.auth import Authenticator
from weighbridge.gateway.body import decode_object, read_body
from weighbridge.gateway.parts import Parts
from weighbridge.gateway.web import credentials, json_response
from weighbridge.masking.errors import EXPLAINED, MaskingRefused
from weighbridge.router.egress_rules import rules_beside

_BYTES_A_CHAR = 6
"""A character takes at most so many bytes of JSON, as `\\uXXXX`; one beyond the basic plane counts as two."""


class Preview(BaseModel):
    """The body of a preview."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    text: str = Field(description="The text, taken as one message.")
    tenant: str = Field(
        default="",
        pattern=f"^$|{NAME_PATTERN}",
        description="Tenant whose rules and known values count; none by default.",
    )


def add_preview(api: FastAPI, parts: Parts, auth: Authenticator) -> None:
    """Add the route to `api`."""
    limit = parts.settings.masking.max_chars * _BYTES_A_CHAR * 2 + 1024

    @api.post(
        "/admin/v1/masking/preview",
        tags=["admin"],
        summary="What would be masked and refused in a text under the policy in force, and why",
        response_model=PreviewView,
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": Preview.model_json_schema()}},
            }
        },
    )
    async def preview(request: Request) -> Response:
        headers, peer = credentials(request)
        auth.admin(headers, peer)
        raw = await read_body(request.receive, headers, min(limit, parts.settings.server.max_body_bytes))
        asked = _asked(await decode_object(raw))
        policy = parts.policies.current
        try:
            found = await parts.masker.look(
                asked.text,
                deadline=Deadline.after(parts.clock, parts.settings.server.request_timeout_s),
                rules=await rules_beside(policy, asked.tenant),
                tenant=asked.tenant,
                conversation="preview",
            )
        except MaskingRefused as refusal:
            raise ApiError(
                503,
                f"The text could not be looked at ({refusal.reason}): {EXPLAINED[refusal.reason]}.",
                type="server_error",
                code="masking_unavailable",
                retry_after_s=1,
            ) from None
        return json_response(
            {
                "masked": found.masked,
                "spans": [{"start": start, "end": end, "type": kind} for start, end, kind in found.spans],
                "refused": found.refused,
                "explanation": None if found.refused is None else EXPLAINED[found.refused],
                "egress": policy.egress_for(asked.tenant),
                "layers": parts.masker.layers,
                "policy_version": policy.version,
            }
        )


def _asked(body: dict[str, object]) -> Preview:
    try:
        return Preview.model_validate(body)
    except ValidationError as exc:
        first = exc.errors(include_input=False, include_url=False, include_context=False)[0]
        field = ".".join(map(str, first["loc"][:1])) or "body"
        known = field in Preview.model_fields
        raise InvalidRequest(
            f"{field if known else 'The body'}: {'wrong value or missing' if known else 'holds an unknown field'}; "
            "it takes text and tenant, both strings.",
            param=field if known else None,
        ) from None
