"""The name in a Host header, read strictly: a name that is read wrongly could be another's."""

import ipaddress
import re

FORM = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::([0-9]{1,5}))?", re.ASCII)


def name_of(header: str) -> str | None:
    """The name or address without port, in lower case and without the final dot of a full name; None: no host.

    An IPv6 address has brackets, and nothing but a port after them.
    """
    found = FORM.fullmatch(header.lower())
    if found is None or int(found[3] or 0) > 65_535:
        return None
    if found[1] is None:
        return found[2].removesuffix(".") or None
    try:
        return str(ipaddress.IPv6Address(found[1]))
    except ValueError:
        return None


def is_address(name: str) -> bool:
    """Whether a name is an IP address."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
