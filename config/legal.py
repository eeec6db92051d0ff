"""The types and checks the settings' fields are made of."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, SecretStr
from pydantic_core import PydanticCustomError

from weighbridge.config.problems import ConfigProblems
from weighbridge.config.yamlsource import read_bytes

Dtype = Literal["auto", "half", "float16", "bfloat16", "float", "float32"]

Quantization = Literal[
    "awq",
    "auto_awq",
    "awq_marlin",
    "gptq",
    "auto_gptq",
    "gptq_marlin",
    "fp8",
    "fp8_per_tensor",
    "fp8_per_block",
    "fp8_per_channel",
    "int8_per_channel_weight_only",
    "nvfp4_per_token",
    "mxfp8",
    "mxfp4",
    "gpt_oss_mxfp4",
    "deepseek_v4_fp8",
    "compressed-tensors",
    "modelopt",
    "modelopt_fp4",
    "modelopt_mxfp8",
    "modelopt_mixed",
    "torchao",
    "humming",
    "experts_int8",
    "quark",
    "moe_wna16",
    "inc",
    "online",
]
"""vLLM 0.32's names without the two it calls deprecated (`fbgemm_fp8`, `fp_quant`)."""

BLOCK_STEP = 16
BLOCK_MAX = 256
BLOCK_LEGAL = (
    f"a multiple of {BLOCK_STEP} from {BLOCK_STEP} to {BLOCK_MAX} (16, 32, 48, 64 ...; the CPU backend of vLLM needs "
    "a multiple of 32)"
)

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$"
"""Ids and tenant names: they stand in records, logs and headers."""
NAME_LEGAL = "text of 1 to 64 letters, digits and . _ @ -, beginning with a letter or digit"

_CORES = r"\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*"
_CPUS = rf"(?:auto|nobind|{_CORES}(?:\|{_CORES})*)"
CPUS_PATTERN = rf"^{_CPUS}(?:;{_CPUS})*$"
"""Cores of one engine's threads, or of each of several engines with `;` between them."""

MODEL_NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._/:-]{0,127}$"
MODEL_NAME_LEGAL = "text of 1 to 128 letters, digits and . _ / : -"

LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""vLLM's."""
LORA_RANK_LEGAL = f"one of {', '.join(str(rank) for rank in LORA_RANKS)}"

_PRIVATE = tuple(
    ipaddress.ip_network(text)
    for text in ("127.0.0.0/8", "::1/128", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")
)

_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,253}[A-Za-z0-9.])?")
_SECRET = re.compile(r"[\x21-\x7e]{1,4096}")


def _refuse_bool(value: Any) -> Any:
    # To Python true is 1, and pydantic agrees; a file that says `port: true` is still wrong.
    if isinstance(value, bool):
        raise PydanticCustomError("not_a_number", "true and false are no numbers")
    return value


Count = Annotated[int, BeforeValidator(_refuse_bool)]
"""A whole number; true and false are refused."""
Real = Annotated[float, BeforeValidator(_refuse_bool)]
"""A finite number; true and false are refused."""


def _home(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError:
        raise ValueError(f"no home folder to put in place of ~ in {path}") from None


def _file(path: Path) -> Path:
    path = _home(path)
    if not path.is_file():
        raise ValueError(f"no file at {path}")
    return path


def _model_folder(path: Path) -> Path:
    path = _home(path)
    if not path.is_dir():
        raise ValueError(f"no model folder at {path}")
    if not (path / "config.json").is_file():
        raise ValueError(f"no config.json in {path}, so it is not a model folder")
    return path


def _adapter_folder(path: Path) -> Path:
    path = _home(path)
    if not path.is_dir():
        raise ValueError(f"no adapter folder at {path}")
    if not (path / "adapter_config.json").is_file():
        raise ValueError(f"no adapter_config.json in {path}, so it is not an adapter's folder")
    return path


def _lora_rank(rank: int) -> int:
    if rank not in LORA_RANKS:
        raise ValueError(f"must be {LORA_RANK_LEGAL}")
    return rank


LoraRank = Annotated[Count, AfterValidator(_lora_rank)]
AnyPath = Annotated[Path, AfterValidator(_home)]
"""A path; a leading `~` is the home folder, a relative path starts at the working directory."""
ExistingFile = Annotated[Path, AfterValidator(_file)]
ModelFolder = Annotated[Path, AfterValidator(_model_folder)]
AdapterFolder = Annotated[Path, AfterValidator(_adapter_folder)]


def check_secret(secret: SecretStr) -> SecretStr:
    """Raises: ValueError unless it is printable ASCII without spaces, so that it can stand in a header."""
    if _SECRET.fullmatch(secret.get_secret_value()) is None:
        raise ValueError("must hold 1 to 4096 printable ASCII characters without spaces")
    return secret


Secret = Annotated[SecretStr, AfterValidator(check_secret)]


def read_secret(path: Path, check: Callable[[SecretStr], SecretStr] | None = None) -> SecretStr:
    """The secret in a file, without the line break at its end.

    Args:
        check: what `check_secret` is by default.

    Raises:
        ValueError: the file cannot be read or holds no usable secret.
    """
    try:
        raw = read_bytes(path)
    except ConfigProblems as exc:
        raise ValueError(f"{path}: {exc.problems[0].message}") from None
    text = SecretStr(raw.decode("ascii", "replace").rstrip("\r\n"))
    try:
        return (check or check_secret)(text)
    except ValueError as exc:
        raise ValueError(f"{path}: {exc}") from None


def endpoint(url: str, *, key_file: str = "commercial.api_key_file") -> str:
    """An API's base URL, without a slash at its end.

    Args:
        key_file: the setting to name to somebody who put a password into the URL.

    Raises:
        ValueError: not http(s) with a host, or with credentials, a query or a fragment.
    """
    try:
        parts = urlsplit(url)
        port_is_wrong = parts.port == 0
    except ValueError:
        raise ValueError("is not a URL") from None
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        raise ValueError("must be plain ASCII without spaces or backslashes")
    if parts.scheme not in ("http", "https") or not parts.hostname or port_is_wrong:
        raise ValueError("must begin with http:// or https:// and a host name")
    if "@" in parts.netloc:
        raise ValueError(f"must hold no user name or password: use {key_file}")
    if "?" in url or "#" in url:
        raise ValueError("must hold no query (?) and no fragment (#)")
    return url.rstrip("/")


def worker_endpoint(url: str) -> str:
    """A worker's base URL; see `endpoint`."""
    url = endpoint(url, key_file="endpoint_api_key_file")
    try:
        host_name(urlsplit(url).hostname or "")
    except ValueError:
        raise ValueError("must name a host or an IP address") from None
    return url


def host_name(text: str) -> str:
    """A host name or address in the one form in which it is compared: small letters, an address in its short form.

    Raises:
        ValueError: neither a host name nor an IP address.
    """
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        if _HOST.fullmatch(text) is None:
            raise ValueError("must be a host name or an IP address, without scheme and port") from None
        return text.lower().removesuffix(".")


def is_address(host: str) -> bool:
    """Whether `host` is an IP address and no name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_private(address: str) -> bool:
    """Whether an IP address is a loopback one or out of the private ranges (RFC 1918, RFC 4193)."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    ip = getattr(ip, "ipv4_mapped", None) or ip
    return any(ip.version == net.version and ip in net for net in _PRIVATE)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens on `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
