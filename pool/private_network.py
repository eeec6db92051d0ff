"""Raw text goes to this machine and to the private network only, whatever a name leads to."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from yarl import URL

from weighbridge.config.errors import ConfigError
from weighbridge.config.legal import host_name, is_address, is_private

_METADATA: Final = frozenset({"fd00:ec2::254", "fd20:ce::254"})
"""Where clouds hand out credentials, inside a private range (their IPv4 ones are link-local or carrier-grade NAT)."""


class AddressRefused(OSError):
    """A host that is not trusted leads to an address outside the private network. Nothing was connected."""


def may_get_text(address: str) -> bool:
    """Whether an IP address is loopback or private (RFC 1918, RFC 4193) and no cloud's metadata service.

    An IPv4 address inside an IPv6 one (`::ffff:10.0.0.1`) counts as the IPv4 address. A text that is no address in its
    usual form (`127.1`, `2130706433`) may not: operating systems disagree on what it means.
    """
    if not is_private(address):
        return False
    return host_name(address.partition("%")[0]) not in _METADATA


def check_endpoint(road: str, url: str, trusted: Collection[str]) -> None:
    """Check what can be seen of an endpoint without asking for a name.

    Args:
        url: its base URL.
        trusted: hosts that may be anywhere, as in `trusted_endpoints`.

    Raises:
        ConfigError: its host is an address that may not get raw text, or a number that is none.
    """
    try:
        host = URL(url).raw_host or ""
    except ValueError:
        host = ""
    if not host:
        raise ConfigError(f"tiers.{road}.endpoints: this is not the URL of a server")
    if is_trusted(host, trusted):
        return
    # What is an address is connected to without asking a resolver.
    if (is_address(host) or ":" in host or host.replace(".", "").isdigit()) and not may_get_text(host):
        raise ConfigError(
            f"tiers.{road}.endpoints: {host} is neither loopback nor a private address; name it in "
            f"tiers.{road}.trusted_endpoints if it may get raw text"
        )


def is_trusted(host: str, trusted: Collection[str]) -> bool:
    """Whether `host` is one of the hosts in `trusted`, in whatever spelling."""
    try:
        return host_name(host) in {host_name(other) for other in trusted}
    except ValueError:
        return False
