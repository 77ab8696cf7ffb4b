"""Check that everything that names the version or the supported Pythons agrees.

    python tools/check_release.py

Compares `__version__` with the first section of CHANGELOG.md and with CITATION.cff, the classifiers of pyproject.toml
with the version and with `requires-python`, and the length of the change log's section with its limit. Prints one line
for each disagreement and exits with 1 if there is any. `make build` runs it first.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
MAX_CHANGELOG_LINES = 60  # for one release, so that a reader sees its content on one screen or two
STATUSES = {"0": "3 - Alpha", "1": "5 - Production/Stable"}  # by the major version


def find_disagreements(root: Path = ROOT) -> list[str]:
    """Return one sentence for each place that disagrees with the version of the package."""
    version = _search(r'^__version__ = "([^"]+)"', root / "src" / "shoestring" / "__init__.py")
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [
        *_check_changelog(version, (root / "CHANGELOG.md").read_text(encoding="utf-8")),
        *_check_citation(version, _search(r"^version: (\S+)$", root / "CITATION.cff")),
        *_check_classifiers(version, project),
    ]


def _check_changelog(version: str, text: str) -> list[str]:
    titles = re.findall(r"^## (\S+) \((.+)\)$", text, flags=re.MULTILINE)
    if not titles:
        return ["CHANGELOG.md has no section such as '## 0.1.0 (2027-01-31)' or '## 0.1.0 (not released yet)'"]
    found, date = titles[0]
    wrong = [] if found == version else [f"CHANGELOG.md begins with {found}, the package is {version}"]
    if date != "not released yet" and not re.fullmatch(r"\d{4}-\d{2}-\d{2}", date):
        wrong.append(f"CHANGELOG.md dates {found} with {date!r}: write a day such as 2027-01-31, or 'not released yet'")
    lines = len(re.split(r"^## ", text, flags=re.MULTILINE)[1].splitlines())
    if lines > MAX_CHANGELOG_LINES:
        wrong.append(f"CHANGELOG.md has {lines} lines on {found}, more than {MAX_CHANGELOG_LINES}: shorten it")
    return wrong


def _check_citation(version: str, cited: str) -> list[str]:
    found = f"names version {cited}" if cited else "names no version"
    return [] if cited == version else [f"CITATION.cff {found}, the package is {version}"]


def _check_classifiers(version: str, project: dict[str, Any]) -> list[str]:
    status = next(words for words in project["classifiers"] if words.startswith("Development Status"))
    expected = f"Development Status :: {STATUSES[version.split('.')[0]]}"
    wrong = [] if status == expected else [f"the classifier {status!r} should be {expected!r} for version {version}"]
    lowest = project["requires-python"].removeprefix(">=")
    listed = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    if listed[:1] != [lowest]:
        wrong.append(f"requires-python begins with {lowest}, the classifiers with {listed[:1]}")
    return wrong


def _search(pattern: str, path: Path) -> str:
    found = re.search(pattern, path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return found.group(1) if found else ""


def main() -> int:
    wrong = find_disagreements()
    for sentence in wrong:
        print(sentence)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
