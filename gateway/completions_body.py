"""A legacy text-completions body as a chat body: its prompt becomes one user message.

So a prompt takes every road a conversation takes, masking included, and nothing behind the gateway knows of it. What
such a body may ask for and this cannot give is refused; a field that is not named here is kept for the backend.
"""

from __future__ import annotations

from typing import Any, Final

from weighbridge.config.errors import InvalidRequest

DEFAULT_MAX_TOKENS: Final = 16
"""Tokens of an answer whose caller names no limit: OpenAI's for text completions."""

MAX_LOGPROBS: Final = 20
"""The most alternatives to each token; what the chat API takes as `top_logprobs`."""

_CHAT_ONLY: Final = (
    "messages",
    "tools",
    "tool_choice",
    "functions",
    "function_call",
    "max_completion_tokens",
    "top_logprobs",
    "modalities",
    "audio",
)
"""What only a chat answer can hold, or a text completion says by another name."""

_NOT_OFFERED: Final = ("prompt_logprobs", "prompt_embeds")

LEFT_OUT: Final = frozenset(("prompt", "echo", "suffix", "best_of", "logprobs", *_CHAT_ONLY, *_NOT_OFFERED))
"""What the chat body does not have from the caller: said in another way, or null."""

_RAW_PROMPT: Final = (
    "the prompt is put to the model as a user's message, so the answer does not continue its text"
)


def to_chat(body: dict[str, Any]) -> dict[str, Any]:
    """The chat body that stands for `body`, which is left as it is.

    Raises:
        InvalidRequest: 400; `param` names the field at fault.
    """
    for field in _CHAT_ONLY:
        if body.get(field) is not None:
            raise InvalidRequest(
                f"'{field}' belongs to /v1/chat/completions and cannot be used here.",
                code="unsupported_parameter",
                param=field,
            )
    for field in _NOT_OFFERED:
        if body.get(field) is not None:
            raise InvalidRequest(f"'{field}' is not offered here.", code="unsupported_parameter", param=field)
    _check_raw_prompt_fields(body)
    prompt, wanted = _prompt(body.get("prompt")), _logprobs(body.get("logprobs"))
    chat = {field: value for field, value in body.items() if field not in LEFT_OUT}
    chat["messages"] = [{"role": "user", "content": prompt}]
    if wanted is not None:
        chat |= {"logprobs": True, "top_logprobs": wanted}
    if chat.get("max_tokens") is None:
        chat["max_tokens"] = DEFAULT_MAX_TOKENS
    return chat


def _check_raw_prompt_fields(body: dict[str, Any]) -> None:
    echo = body.get("echo")
    if not isinstance(echo, bool | None):
        raise InvalidRequest("'echo' must be true, false or null.", param="echo")
    if echo:
        raise InvalidRequest(
            f"'echo' is not offered here: {_RAW_PROMPT}.", code="unsupported_parameter", param="echo"
        )
    if body.get("suffix") not in (None, ""):
        raise InvalidRequest(
            f"'suffix' is not offered here: {_RAW_PROMPT}.", code="unsupported_parameter", param="suffix"
        )
    best_of, n = body.get("best_of"), body.get("n")
    if best_of is not None and (type(best_of) is not int or best_of != (1 if n is None else n)):
        raise InvalidRequest(
            "'best_of' is not offered here, unless it is the same as 'n'.",
            code="unsupported_parameter",
            param="best_of",
        )


def _prompt(prompt: Any) -> str:
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str):
        prompt = prompt[0]
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, list) and len(prompt) > 1 and all(isinstance(item, str) for item in prompt):
        raise InvalidRequest(
            "'prompt' holds several texts; send one request for each.",
            code="unsupported_prompt",
            param="prompt",
        )
    if isinstance(prompt, list) and prompt:
        raise InvalidRequest(
            "'prompt' must be text; token ids are not taken here, as the models have different tokenizers.",
            code="unsupported_prompt",
            param="prompt",
        )
    raise InvalidRequest("'prompt' must be text.", param="prompt")


def _logprobs(wanted: Any) -> int | None:
    if wanted is None:
        return None
    if type(wanted) is not int or not 0 <= wanted <= MAX_LOGPROBS:
        raise InvalidRequest(
            f"'logprobs' must be a whole number from 0 to {MAX_LOGPROBS}, or null.", param="logprobs"
        )
    return wanted
