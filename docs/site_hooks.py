"""Hooks of the site. They add a page for each public name and a list of policies, and adapt links to the site.

MkDocs calls the functions `on_…` by their names. The pages in this folder can be read without these hooks.
"""

from __future__ import annotations

import inspect
import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import shoestring
import shoestring.policy
import shoestring.testing
from shoestring import policies

ROOT = Path(__file__).parent.parent
API = "reference/api"
LIST = "reference/policies/index.md"
INTEGRATIONS = f"{API}/integrations.md"
MORE = "more.md"  # the second half of the README
BEGIN_OF_SECOND_HALF = "## How strictly the budget is kept"
MODULES = {"policy": shoestring.policy, "testing": shoestring.testing}  # what an author of a policy or a store needs
ORDER = (  # the order in which a user needs the names; all others follow
    *("tune", "Space", "Float", "Int", "Choice", "Constant", "Group", "Budget", "Prices", "Report", "Context"),
    *("tune_objective", "Study", "Best", "Plot", "Importance", "OnlineTuner", "Schedule", "ShoestringError"),
)
NOTEBOOKS = sorted((ROOT / "docs").rglob("*.ipynb"))
INTEGRATED = {
    "integrations.stepping": ("stepwise", "Steps"),
    "integrations.lightning": ("LightningSteps", "checkpoint_of"),
    "integrations.transformers": ("TransformersSteps", "checkpoint_of"),
    "integrations.keras": ("KerasSteps", "load_model"),
    "integrations.boosting": ("xgboost_steps", "lightgbm_steps", "catboost_steps"),
    "integrations.sklearn": ("BudgetSearchCV", "partial_fit_steps", "warm_start_steps"),
    "integrations.optuna": ("CostAwareSampler", "from_optuna", "to_optuna"),
    "integrations.loggers": ("Follow", "log_study", "TensorBoard", "Mlflow", "Wandb"),
    "integrations.stopping": ("StoppingRule", "k1_schedule"),
}
PARAMETERS = ("Float", "Int", "Choice", "Constant")
_LINK = re.compile(r"\[([^\]]*)\]\((?!\w+:|#)([^)\s]+)\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fill the two empty lists of the navigation, and add pages that it does not name."""
    names = [*(n for n in ORDER if n in shoestring.__all__), *(n for n in shoestring.__all__ if n not in ORDER)]
    titles = {group: [f"reference/policies/{name}.md" for name in found] for group, found in _groups().items()}
    lists: dict[str, list[Any]] = {
        "Python": [
            f"{API}/index.md",
            *({name: f"{API}/{name}.md"} for name in names),
            *(f"{API}/{name}.md" for name in MODULES),
            INTEGRATIONS,
        ],
        "Policies": [LIST, *({title.capitalize(): pages} for title, pages in titles.items())],
    }
    sections = {title: pages for part in config.nav or [] for title, pages in part.items() if isinstance(pages, list)}
    for part in sections["Reference"]:
        for title in lists.keys() & (part if isinstance(part, dict) else {}):
            part[title] = lists[title]
    for pages in sections.values():  # pages that mkdocs.yml does not name come last
        named = list(_pages_in(pages))
        folder = posixpath.dirname(named[0])
        found = sorted(f"{folder}/{page.name}" for page in (ROOT / "docs" / folder).glob("*.md"))
        pages += [page for page in found if page not in named]
    return config


def _pages_in(part: Any) -> Iterator[str]:
    """Yield the pages of a part of the navigation, those of its groups included."""
    if isinstance(part, str):
        yield part
    for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from _pages_in(inner)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are generated from the code and the notebooks."""
    texts = {f"{API}/{name}.md": _name_page(name) for name in shoestring.__all__}
    texts |= {f"{API}/{name}.md": _module_page(module) for name, module in MODULES.items()}
    texts |= {f"{API}/index.md": _names_page(), INTEGRATIONS: _integrations_page(), LIST: _policies_page()}
    texts[MORE] = f"# Promises, policies, results\n\n{_readme(config)[1]}"
    texts |= {
        _page_of(notebook.relative_to(ROOT / "docs").as_posix()): _notebook_page(notebook) for notebook in NOTEBOOKS
    }
    for path, text in texts.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Adapt the links of a page, and put the first half of the project's README in front of the first page."""
    here = posixpath.dirname(page.file.src_uri)
    if page.file.src_uri == MORE:
        return markdown
    markdown = _adapt_links(markdown, f"docs/{here}", here, config.repo_url)
    if page.is_homepage:
        return f"{_readme(config)[0]}\n{markdown.replace('# Documentation', '## All pages', 1)}"
    return markdown


def _readme(config: MkDocsConfig) -> tuple[str, str]:
    """Return the two halves of the project's README as pages of the site: as one page it would be too long to read."""
    text = _adapt_links((ROOT / "README.md").read_text(encoding="utf-8"), "", "", config.repo_url)
    first, begin, second = text.partition(BEGIN_OF_SECOND_HALF)
    assert begin, f"the README has no heading {BEGIN_OF_SECOND_HALF!r}"
    second = begin + second

    def link_other(half: str, other: str, page: str) -> str:
        for title in re.findall(r"^## (.+)$", other, re.MULTILINE):
            anchor = re.sub(r"\W+", "-", title.lower()).strip("-")
            half = half.replace(f"](#{anchor})", f"]({page}#{anchor})")
        return half

    return link_other(first, second, MORE), link_other(second, first, "README.md")


def _adapt_links(markdown: str, folder: str, here: str, repository: str | None) -> str:
    """Return the text of a file in `folder` of the repository with links that work in the site's folder `here`.

    A file outside docs/ is linked if the repository has an address; otherwise its path is printed.
    """

    def adapt(link: re.Match[str]) -> str:
        text, (path, _, anchor) = link[1], link[2].partition("#")
        target = posixpath.normpath(posixpath.join(folder, path))
        if target.startswith("docs/"):
            page = LIST if target == "docs/reference/policies" else _page_of(target[5:])
            inside = posixpath.relpath(page, here or ".")
            return f"[{text}]({inside}#{anchor})" if anchor else f"[{text}]({inside})"
        if repository:
            return f"[{text}]({repository.rstrip('/')}/blob/main/{target})"
        return text if target in text else f"{text} (`{target}`)"

    return _LINK.sub(adapt, markdown)


# pages ----------------------------------------------------------------------------------------------------------------


def _name_page(name: str) -> str:
    module = f"shoestring.{shoestring._MODULE_OF[name]}"
    options = "    options:\n      inherited_members: true\n"
    if name == "ShoestringError":  # its page lists all errors
        tree = inspect.getdoc(inspect.getmodule(shoestring.ShoestringError))
        return f"# Errors\n\n```python\nfrom shoestring import {name}\n```\n\n{tree}\n"
    about = inspect.getdoc(import_module(module)) or ""
    if name in PARAMETERS:
        about = "[The search space](../space.md): `when`, constants, and the same in TOML."
    elif re.search(r"^(from|import) ", about, re.MULTILINE):  # it contains a program, which would be formatted as prose
        about = ""
    about = f"## More\n\n{about}\n" if about else ""
    return f"::: {module}.{name}\n{options}\n{about}"


def _module_page(module: ModuleType) -> str:
    """Return a page with the docstring of a public module and all its functions and classes.

    Those that `shoestring` exports too have a page of their own, which is linked.
    """
    about, name = inspect.getdoc(module) or "", module.__name__
    title, _, more = about.partition("\n")
    parts = [f"# {name}\n\n{title}\n", f"```python\nfrom {name} import …\n```\n", _tables(more)]
    found = {each: getattr(module, each) for each in module.__all__}
    linked = [f"[`{each}`]({each}.md)" for each in found if each in shoestring.__all__]
    if linked:
        parts.append(f"## Explained elsewhere\n\n{', '.join(linked)}\n")
    parts.append("## All other names\n" if linked else "## Names\n")
    for each, thing in found.items():
        if each not in shoestring.__all__ and (inspect.isclass(thing) or inspect.isfunction(thing)):
            parts.append(f"::: {thing.__module__}.{each}\n    options:\n      heading_level: 3\n")
    return "\n".join(parts)


def _tables(text: str) -> str:
    """Return a docstring with its indented tables of two columns as tables of Markdown."""
    lines: list[str] = []
    for line in text.splitlines():
        first, gap, second = line.strip().partition("  ")
        if not line.startswith("    "):
            lines.append(line)
        elif gap and line[4] != " ":
            lines += [
                *(() if lines and lines[-1].startswith("|") else ("| | |", "|---|---|")),
                f"| {first} | {second.strip()} |",
            ]
        else:  # the second column goes on
            lines[-1] = f"{lines[-1].removesuffix(' |')} {line.strip()} |"
    return "\n".join([*lines, ""])


def _notebook_page(notebook: Path) -> str:
    """Return a page with the cells of the notebook, their outputs, and a link to download it."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    frames = {"markdown": "{}", "code": "```python\n{}\n```"}
    parts = []
    for cell in cells:
        parts.append(frames[cell["cell_type"]].format("".join(cell["source"])))
        parts += [_output(output) for output in cell.get("outputs", ())]
    parts.insert(1, f'<a href="../{notebook.name}" download>Download the notebook</a> and run it cell by cell.')
    return "\n\n".join(parts)


def _output(output: Mapping[str, Any]) -> str:
    """Return the output of a cell as HTML, in one line, because Markdown would read indented lines as code."""
    data = output.get("data", {"text/plain": output.get("text", "")})
    if "text/html" in data:
        return f'<div class="output" tabindex="0">{"".join(data["text/html"]).replace(chr(10), " ")}</div>'
    return f'```text title="Output"\n{"".join(data["text/plain"]).rstrip()}\n```'


def _page_of(path: str) -> str:
    """Return the path of the page that the site makes from a file of this folder."""
    return path.removesuffix(".ipynb") + ".md" if path.endswith(".ipynb") else path


def _integrations_page() -> str:
    """Return a page of the names for other frameworks. Their modules need more packages, so they are parsed and not imported."""
    head = "# Inside other tools\n\nImport each name from its own module. The how-to pages show examples.\n"
    parts = [head]
    for module, names in INTEGRATED.items():
        parts.append(
            f"## {module.rpartition('.')[2]}\n\n```python\nfrom shoestring.{module} import {', '.join(names)}\n```\n"
        )
        parts += [f"::: shoestring.{module}.{name}\n    options:\n      heading_level: 3\n" for name in names]
    return "\n".join(parts)


def _names_page() -> str:
    rows = [f"| [`{name}`]({name}.md) | {_first_line(getattr(shoestring, name))} |" for name in shoestring.__all__]
    return "\n".join(
        [
            *("# Python", "", "The names that `from shoestring import …` offers.", "", "| | |", "|---|---|", *rows, ""),
            "[Inside other tools](integrations.md): callbacks for frameworks, `BudgetSearchCV`, loggers, Optuna.",
        ]
    )


def _policies_page() -> str:
    parts = [
        "# Policies\n",
        f"Choose one with `policy=NAME` or `--policy NAME`; the default is `{policies.DEFAULT}`. A setting is given as",
        "`settings={…}` or `--set NAME=VALUE`; the page of each policy explains its settings.\n",
    ]
    for title, names in _groups().items():
        parts.append(f"## {title.capitalize()}\n")
        for name in names:
            idea = _first_line(inspect.getmodule(policies.find_class(name)))
            parts.append(f"### [{name}]({name}.md)\n\n{idea}\n")
            rows = [
                f"| `{setting}` | `{default!r}` | {_meaning(name, setting)} |"
                for setting, default in policies.defaults_of(name).items()
            ]
            head = ["| setting | default | meaning |", "|---|---|---|"]
            parts.append("\n".join([*head, *rows, ""]) if rows else "No settings.\n")
    return "\n".join(parts)


def _meaning(policy: str, setting: str) -> str:
    """Return what a setting means, from the page of the policy, or of another one that has the setting from the same class."""
    kinds = policies.find_class(policy).__mro__
    *_, owner = (kind for kind in kinds if setting in vars(kind).get("__annotations__", {}))
    relatives = [name for name in policies.REGISTRY if issubclass(policies.find_class(name), owner)]
    return next(found for name in (policy, *relatives) if (found := _settings_on_page(name).get(setting)))


@cache
def _settings_on_page(policy: str) -> dict[str, str]:
    """Return the meanings of the settings in the tables of a policy's page."""
    found: dict[str, str] = {}
    columns: list[str] = []
    for line in (ROOT / "docs" / "reference" / "policies" / f"{policy}.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not cells or "meaning" in cells:
            columns = cells
        elif "meaning" in columns:
            found |= dict.fromkeys(re.findall(r"`(\w+)`", cells[0]), cells[columns.index("meaning")])
    return found


def _groups() -> dict[str, list[str]]:
    """Return the names of this package's policies by group; policies of other packages are left out."""
    return {title: [n for n in found if n in policies.REGISTRY] for title, found in policies.groups().items()}


def _first_line(thing: object) -> str:
    return (inspect.getdoc(thing) or "").splitlines()[0].replace("|", "\\|")
