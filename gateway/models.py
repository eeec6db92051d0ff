"""What `GET /v1/models` says: the roads by name, and plainly what serves each of them."""

from __future__ import annotations

from typing import Any

from weighbridge.config.roads import AUTO, COMMERCIAL, LOCAL_ROADS, MODEL_NAMES, Road
from weighbridge.gateway.health import commercial_open, readiness
from weighbridge.gateway.parts import Parts
from weighbridge.pool.tier import Tier


def model_names(parts: Parts) -> tuple[str, ...]:
    """The names a request may ask for: the roads, whether this deployment has them or not, and the adapters."""
    return (*MODEL_NAMES, *parts.settings.adapters)


def list_models(parts: Parts, barred: frozenset[Road] = frozenset()) -> list[dict[str, Any]]:
    """OpenAI model objects, each with a `weighbridge` object beside the usual fields; those of the policy's aliases
    last, as far as what they stand for is served here. `barred`: roads that the caller's key may not use."""
    models = [_auto(parts)]
    for road in LOCAL_ROADS:
        if (tier := parts.pool.tier(road)) is not None and road not in barred:
            models.append(_local(parts, road))
            models += [_adapter(parts, tier, name) for name in tier.adapters]
    if parts.gate.configured and COMMERCIAL not in barred:
        models.append(_commercial(parts))
    served = {model["id"]: model["weighbridge"] for model in models}
    aliases = parts.policies.current.aliases
    return models + [_alias(parts, name, of, served[of]) for name, of in aliases.items() if of in served]


def _model(parts: Parts, name: str, about: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": parts.started_ns // 1_000_000_000,
        "owned_by": "weighbridge",
        "weighbridge": about,
    }


def _auto(parts: Parts) -> dict[str, Any]:
    about = {
        "ready": readiness(parts)[0],
        "note": "Weighbridge weighs each request and chooses the road; the answer's headers name it.",
    }
    return _model(parts, AUTO, about)


def _local(parts: Parts, road: Road) -> dict[str, Any]:
    tier = parts.pool.tier(road)
    assert tier is not None  # the caller asked the pool
    note = (
        f"The embedded model {tier.model} stands in for the model of this tier: good for trying "
        "Weighbridge out, not for real answers."
        if tier.embedded
        else "A model of this organisation, served on its own machines."
    )
    about = {
        "serves": tier.model,
        "embedded": tier.embedded,
        "ready": tier.ready,
        "state": str(tier.state),
        "max_model_len": tier.max_model_len,
        "note": note,
    }
    return _model(parts, road, about)


def _adapter(parts: Parts, tier: Tier, name: str) -> dict[str, Any]:
    about = {
        "serves": tier.model,
        "adapter_of": tier.road,
        "embedded": tier.embedded,
        "ready": tier.ready,
        "max_model_len": tier.max_model_len,
        "note": "A fine-tuned adapter on the model of that tier.",
    }
    return _model(parts, name, about)


def _commercial(parts: Parts) -> dict[str, Any]:
    models = dict.fromkeys(endpoint.model for endpoint in parts.settings.commercial.all_endpoints.values())
    about = {
        "serves": ", ".join(models),
        "embedded": False,
        "ready": commercial_open(parts),
        "note": "A commercial API; requests leave masked, and only if the policy lets them.",
    }
    return _model(parts, COMMERCIAL, about)


def _alias(parts: Parts, name: str, of: str, about: dict[str, Any]) -> dict[str, Any]:
    note = f"Another name for {of}, out of the policy in force."
    return _model(parts, name, {**about, "alias_of": of, "note": note})
