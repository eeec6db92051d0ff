"""What of vLLM's log may be seen. Its request handlers quote prompts, schemas and token ids; those are silenced."""

from __future__ import annotations

import logging
from typing import Final

_SILENT: Final = (
    "vllm.entrypoints",
    "vllm.inputs",
    "vllm.logging_utils",
    "vllm.multimodal",
    "vllm.parser",
    "vllm.reasoning",
    "vllm.renderers",
    "vllm.tool_parsers",
    "vllm.v1.core.sched",
    "vllm.v1.engine.detokenizer",
    "vllm.v1.structured_output",
)
_CORE: Final = "vllm.v1.engine.core"

_ERRORS_ALONE: Final = (
    # What every start on a CPU warns of, and the steps of an orderly end.
    "torch._library.triton",
    "vllm.config",
    "vllm.distributed.device_communicators.shm_broadcast",
    "vllm.platforms",
    "vllm.utils.system_utils",
    "vllm.v1.executor.multiproc_executor",
    "vllm.v1.utils",
    "vllm.v1.worker.cpu_worker",
)


def quiet() -> None:
    """Keep warnings and errors about the engine, drop everything that is about a request. In every vLLM process."""
    logging.getLogger("vllm").setLevel(logging.WARNING)
    for name in _SILENT:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    for name in _ERRORS_ALONE:
        logging.getLogger(name).setLevel(logging.ERROR)
    core = logging.getLogger(_CORE)
    if not any(isinstance(item, _WithoutRequestErrors) for item in core.filters):
        core.addFilter(_WithoutRequestErrors())


class _WithoutRequestErrors(logging.Filter):
    """The core names the request it could not take in, and prints the exception: the name is enough."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.msg, str) and "pre-processing request" in record.msg:
            record.exc_info = None
        return True
