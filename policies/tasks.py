"""The tasks a policy can have a row for: a closed set, so that a misspelt task is an error."""

from __future__ import annotations

from typing import Final, Literal, get_args

Task = Literal[
    "classification",
    "extraction",
    "summarization",
    "rag",
    "decision",
    "code",
    "chat",
    "knowledge",
    "reasoning",
    "math",
    "translation",
    "unknown",
]

TASKS: Final[tuple[Task, ...]] = get_args(Task)

MEANING: Final[dict[Task, str]] = {
    "classification": "classifying or labelling a text",
    "extraction": "pulling structured data or entities out of a text",
    "summarization": "summarising a document",
    "rag": "answering from one document given in the prompt",
    "decision": "a business decision under several conditions",
    "code": "writing or debugging code precisely",
    "chat": "conversation",
    "knowledge": "a question of fact, answered from the model's own knowledge",
    "reasoning": "conclusions over several steps",
    "math": "calculation and proof",
    "translation": "from one language into another",
    "unknown": "nothing of the above was recognised",
}
