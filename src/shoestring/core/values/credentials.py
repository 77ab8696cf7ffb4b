"""Hide the passwords and other secrets in an address, so that it can be shown in messages and reports, and stored.

A valid address has a password in one of two places: `scheme://user:password@host/name`, and `…?password=…`. An address that
cannot be read may be meant as either, or as the words of a connection string, `host=… password=…`. There everything that may
belong to a secret is hidden, rather too much than too little.
"""

from __future__ import annotations

import re

HIDDEN = "***"  # what other programs print too in place of a password
_SECRET_NAME = re.compile(
    r"password|passwd|passphrase|pwd|secret|token|credential|signature|(?:api|access|account)_?key", re.IGNORECASE
)
_ENCODED = re.compile(r"%(?P<code>[0-9a-fA-F]{2})")
# Up to the last @. A colon before // ends a scheme, unless there was one already: then it is before a password.
_POSSIBLE_PASSWORD = re.compile(r"^(?P<user>[^:/@]*:?/+[^:@]*|[^:@]*(?=:(?!//))):(?P<password>.*)@", re.DOTALL)
_WORD = re.compile(r"(?P<name>[^\s=?&]+)(?P<equals>\s*=\s*)(?P<value>'(?:[^'\\]|\\.)*'?|[^\s?&]*)")


def hide_credentials(address: str) -> str:
    """Return an address with `***` in place of each password and each other secret.

    Parameters
    ----------
    address : str
        An address, valid or not. The path of a file after `sqlite:` is never changed.

    Returns
    -------
    str
        The address to show.
    """
    if address.startswith("sqlite:"):
        path, mark, query = address.partition("?")
        return path + mark + _hide_parameters(query)
    if (found := _POSSIBLE_PASSWORD.match(address)) is not None:
        # An @ after a ? belongs to a password or to a parameter. If that is not certain, nothing behind the user is shown.
        rest = "" if "?" in found["password"] else f"@{address[found.end() :]}"
        address = f"{found['user']}:{HIDDEN}{rest}"
    words, mark, query = address.partition("?")
    return _WORD.sub(_hide_word, words) + mark + _hide_parameters(query)


def is_secret_name(name: str) -> bool:
    """Return whether a parameter of this name holds a secret.

    Parameters
    ----------
    name : str
        The name, as it is written in an address.

    Returns
    -------
    bool
        True for names such as "password", "sslpassword" and "access_key".
    """
    decoded = _ENCODED.sub(lambda found: chr(int(found["code"], 16)), name)
    return _SECRET_NAME.search(decoded) is not None


def _hide_parameters(query: str) -> str:
    parameters = (parameter.partition("=") for parameter in query.split("&"))
    return "&".join(
        name + equals + (HIDDEN if value and is_secret_name(name) else value) for name, equals, value in parameters
    )


def _hide_word(word: re.Match[str]) -> str:
    return f"{word['name']}{word['equals']}{HIDDEN}" if word["value"] and is_secret_name(word["name"]) else word[0]
