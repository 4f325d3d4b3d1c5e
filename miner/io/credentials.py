"""Hide credentials in what is printed and recorded: in URLs and in the options of a command."""

import re
import shlex
from collections.abc import Sequence

_NAMES = r"key|token|secret|sig|sas|auth|password|passwd|pwd|credential|connection_string"
_USERS = re.compile(r"(?<=://)[^/?#\s'\"\\]*@")  # up to the last @, which passwords may contain
# Of web pages, every query: any of its parameters may be a key. Elsewhere `?` is a wildcard, and a query has a telling name.
_WEB_QUERIES = re.compile(r"(https?://)([^?\s'\"\\]+)\?[^\s'\"\\]*[^\s'\"\\:;,.)\]]", re.IGNORECASE)
_QUERIES = re.compile(rf"(?<=\w)\?[^\s'\"\\:]*(?:{_NAMES})[^\s'\"\\:]*", re.IGNORECASE)
_OPTION = re.compile(rf"(--[\w-]*(?:{_NAMES})[\w-]*)(=.*)?", re.IGNORECASE | re.DOTALL)
HIDDEN = "***"


def hide(text: str) -> str:
    """Remove user names and passwords of URLs, the queries of web pages, and other queries that contain a key, token or signature."""
    return _QUERIES.sub("", _WEB_QUERIES.sub(r"\1\2", _USERS.sub("", text)))


def hide_in_command(arguments: Sequence[str]) -> str:
    """Return a command line in which the values of options such as --s3_secret_access_key are hidden."""
    shown, is_value = [], False
    for argument in arguments:
        option = _OPTION.fullmatch(argument)
        if is_value and not argument.startswith("-"):
            shown.append(HIDDEN)
        elif option is not None and option[2]:
            shown.append(f"{option[1]}={HIDDEN}")
        else:
            shown.append(hide(argument))
        is_value = option is not None and not option[2]
    return shlex.join(shown)
