"""The form in which a paper prints its method, as one setting of a policy: `printed=True`.

By default our policies depart from their papers where we measured that to be better. `printed=True` undoes these departures:
each setting in which the default and the paper differ has the paper's value. A setting that the user gives with another value
contradicts that, and is an error.

    @as_printed(samples=10, falling=False)
    @dataclass(frozen=True, slots=True, kw_only=True)
    class BHPT:
        samples: int = 1
        falling: bool = True
        printed: bool = False

    BHPT(printed=True)                 # samples=10, falling=False
    BHPT(printed=True, samples=10)     # the same
    BHPT(printed=True, samples=3)      # PolicyError
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from shoestring.core.values.checks import require_one_of, to_plain
from shoestring.errors import PolicyError

P = TypeVar("P")


def as_printed(**paper: Any) -> Callable[[type[P]], type[P]]:
    """Return a decorator for a policy with the field `printed`, a dataclass whose fields are given by name.

    Parameters
    ----------
    **paper
        The settings that `printed=True` sets, with the values of the paper.

    Returns
    -------
    callable
        The decorator. It changes how the class is made, so that the settings given by the user are known.
    """

    def decorate(kind: type[P]) -> type[P]:
        original = cast(Callable[..., None], kind.__init__)

        @wraps(original)
        def init(self: P, **given: Any) -> None:
            if given.get("printed") is True:
                given = {**paper, **given}
                for setting, value in paper.items():
                    _require_printed(kind, setting, given[setting], value)
            original(self, **given)
            require_one_of(self, "printed", (True, False))

        kind.__init__ = init  # type: ignore[assignment, method-assign]
        return kind

    return decorate


def _require_printed(kind: type, setting: str, given: object, value: object) -> None:
    if to_plain(given) != to_plain(value):
        name = getattr(kind, "name", kind.__name__)
        raise PolicyError(
            f"{name}({setting}={given!r}) contradicts printed=True, the form of the paper, in which {setting}={value!r}. "
            "Leave one of the two out."
        )
