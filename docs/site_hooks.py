"""What the site adds to the pages in this folder: a page for each public name, a list of policies, and links that lead there.

MkDocs calls these functions by their names. Nothing here is needed to read the pages as they are.
"""

from __future__ import annotations

import inspect
import posixpath
import re
from importlib import import_module
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import shoestring
from shoestring import policies

ROOT = Path(__file__).parent.parent
API = "reference/api"
LIST = "reference/policies/index.md"
ORDER = (  # in which somebody meets the names; others follow
    *("tune", "Space", "Float", "Int", "Choice", "Constant", "Budget", "Prices", "Report", "Context"),
    *("Study", "Best", "OnlineTuner", "Schedule", "ShoestringError"),
)
PARAMETERS = ("Float", "Int", "Choice", "Constant")
_LINK = re.compile(r"\[([^\]]*)\]\((?!\w+:|#)([^)\s]+)\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fill the two empty lists of the navigation, and add pages that it does not name."""
    names = [*(n for n in ORDER if n in shoestring.__all__), *(n for n in shoestring.__all__ if n not in ORDER)]
    titles = {group: [f"reference/policies/{name}.md" for name in found] for group, found in _groups().items()}
    lists: dict[str, list[Any]] = {
        "Python": [f"{API}/index.md", *({name: f"{API}/{name}.md"} for name in names)],
        "Policies": [LIST, *({title.capitalize(): pages} for title, pages in titles.items())],
    }
    sections = {title: pages for part in config.nav or [] for title, pages in part.items() if isinstance(pages, list)}
    for part in sections["Reference"]:
        for title in lists.keys() & (part if isinstance(part, dict) else {}):
            part[title] = lists[title]
    for pages in sections.values():  # what mkdocs.yml does not put into an order comes last
        folder = posixpath.dirname(next(page for page in pages if isinstance(page, str)))
        found = sorted(f"{folder}/{page.name}" for page in (ROOT / "docs" / folder).glob("*.md"))
        pages += [page for page in found if page not in pages]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made from the code."""
    made = {f"{API}/{name}.md": _name_page(name) for name in shoestring.__all__}
    made |= {f"{API}/index.md": _names_page(), LIST: _policies_page()}
    for path, text in made.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The first page begins as the project's README does; links to the rest of the repository are led there."""
    here = posixpath.dirname(page.file.src_uri)
    markdown = _lead_links(markdown, f"docs/{here}", here, config.repo_url)
    if page.is_homepage:
        readme = _lead_links((ROOT / "README.md").read_text(encoding="utf-8"), "", here, config.repo_url)
        return f"{readme}\n{markdown.replace('# Documentation', '## All pages', 1)}"
    return markdown


def _lead_links(markdown: str, folder: str, here: str, repository: str | None) -> str:
    """Links of a page that lies in `folder` of the repository, for the site's folder `here`.

    What is outside docs/ is named, as long as the repository has no address; then it is linked.
    """

    def lead(link: re.Match[str]) -> str:
        text, (path, _, anchor) = link[1], link[2].partition("#")
        target = posixpath.normpath(posixpath.join(folder, path))
        if target.startswith("docs/"):
            inside = posixpath.relpath(LIST if target == "docs/reference/policies" else target[5:], here or ".")
            return f"[{text}]({inside}#{anchor})" if anchor else f"[{text}]({inside})"
        if repository:
            return f"[{text}]({repository.rstrip('/')}/blob/main/{target})"
        return text if target in text else f"{text} (`{target}`)"

    return _LINK.sub(lead, markdown)


# pages ----------------------------------------------------------------------------------------------------------------


def _name_page(name: str) -> str:
    module = f"shoestring.{shoestring._MODULE_OF[name]}"
    options = "    options:\n      inherited_members: true\n"
    if name == "ShoestringError":  # and all that are one
        tree = inspect.getdoc(inspect.getmodule(shoestring.ShoestringError))
        return f"# Errors\n\n```python\nfrom shoestring import {name}\n```\n\n{tree}\n"
    about = inspect.getdoc(import_module(module)) or ""
    if name in PARAMETERS:
        about = "[The search space](../space.md): `when`, constants, and the same in TOML."
    elif re.search(r"^(from|import) ", about, re.MULTILINE):  # a program, which would be laid out as prose
        about = ""
    about = f"## More\n\n{about}\n" if about else ""
    return f"::: {module}.{name}\n{options}\n{about}"


def _names_page() -> str:
    rows = [f"| [`{name}`]({name}.md) | {_first_line(getattr(shoestring, name))} |" for name in shoestring.__all__]
    return "\n".join(
        ["# Python", "", "All that `from shoestring import …` offers.", "", "| | |", "|---|---|", *rows, ""]
    )


def _policies_page() -> str:
    parts = [
        "# Policies\n",
        f"Choose one with `policy=NAME` or `--policy NAME`; the default is `{policies.DEFAULT}`. A setting is given as",
        "`settings={…}` or `--set NAME=VALUE`; what each means is said on the page of its policy.\n",
    ]
    for title, names in _groups().items():
        parts.append(f"## {title.capitalize()}\n")
        for name in names:
            idea = _first_line(inspect.getmodule(policies.find_class(name)))
            parts.append(f"### [{name}]({name}.md)\n\n{idea}\n")
            settings = policies.defaults_of(name)
            rows = [f"| `{setting}` | `{default!r}` |" for setting, default in settings.items()]
            parts.append("\n".join(["| setting | default |", "|---|---|", *rows, ""]) if rows else "No settings.\n")
    return "\n".join(parts)


def _groups() -> dict[str, list[str]]:
    """Those of this package; another one has pages of its own."""
    return {title: [n for n in found if n in policies.REGISTRY] for title, found in policies.groups().items()}


def _first_line(thing: object) -> str:
    return (inspect.getdoc(thing) or "").splitlines()[0].replace("|", "\\|")
