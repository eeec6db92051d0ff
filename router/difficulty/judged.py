"""What no outcome was at hand for: judgements, each said so in the artefact and in docs/difficulty.md."""

from __future__ import annotations

from typing import Final

PRIORS: Final[dict[str, tuple[float, float]]] = {
    "classification": (0.17, 0.06),
    "extraction": (0.25, 0.08),
    "summarization": (0.38, 0.12),
    "rag": (0.38, 0.12),
    "decision": (0.60, 0.40),
    "translation": (0.27, 0.10),
    "chat": (0.18, 0.06),
}
"""P(the 8B fails) and P(the 70B fails and the frontier does not) where no outcomes exist: judged. `chat` follows one
published set where a Llama-3-8B lost 16 %."""

UNKNOWN: Final = (0.28, 0.10)
"""The same where nothing was recognised."""

HARD: Final[dict[str, tuple[float, float]]] = {
    "proof": (0.6, 0.6),
    "failing": (0.7, 0.6),
    "constraint": (0.08, 0.08),
    "proof_floor": (0.5, 0.3),
    "failing_floor": (0.4, 0.25),
}
"""What proofs, failing code and each condition add in log-odds, and the least risk the first two stand for: judged."""

DAMPING: Final = {"judged": 0.4, "fitted": 0.5}
"""How much of what was fitted on English questions counts for tasks without outcomes, and for other languages."""

EXAMS: Final = 0.75
"""Of the second risk on exam questions, what everyday requests of the fitted tasks are held to bear, where the task's
mean is all there is to go by: in other languages than English. The first is left whole, as is the doubt whether the 8B
speaks the language."""

SLOTS: Final[dict[str, tuple[float, float]]] = {"ko": (1.0, 0.0), "other": (1.0, 0.0)}
"""Slope and shift in log-odds of both risks in languages without outcomes: nothing has calibrated them yet."""

LEAST_PRIOR: Final = 0.02
