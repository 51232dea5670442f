"""What mkdocs does beyond rendering docs/. The pages stay as GitHub shows them; the site needs no repository beside it.

- A link from a page to a file outside docs/ (source, recipe, results) leads to a page of the site that shows the file.
  A link to a folder becomes plain text.
- Notebooks become pages, with their outputs.
- `reference.md` is made from the names that `bertworks` exports, and a page of each verb by verb_pages.py.
- Headings have the anchors that GitHub gives them.

mkdocs.yml names this file; mkdocs calls the functions that begin with `on_`.
"""

import ast
import json
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import verb_pages
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
COPIES = "repository"  # the folder of the site for what is outside docs/
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
LANGUAGES = {".py": "python", ".toml": "toml", ".sh": "bash", ".conf": "nginx", ".service": "ini", ".js": "javascript"}
COMMAND = re.compile(r"^ {4}(?:#|bertworks|curl|dask|docker|kubectl|pip|python3?|salloc|systemctl|torchrun) ")
WIDTH = 77  # columns of a command on a screen of 1280 pixels, beside the button that copies it
TOKENS = re.compile(r"\[([A-Z]+)\](?= ?\[)")  # [CLS] before another bracket, which Markdown takes for a reference


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Set the anchors of headings, and add the pages of verbs to the navigation.

    YAML cannot name a function without a tag that safe loaders refuse.
    """
    config.mdx_configs.setdefault("toc", {})["slugify"] = anchor
    assert config.nav is not None
    config.nav.insert(1, {"Commands": verb_pages.navigation()})
    return config


def anchor(heading: str, separator: str = "-") -> str:
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", separator)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that have no file in docs/."""
    files.append(File.generated(config, "reference.md", content=reference()))
    for name, content in verb_pages.pages():
        files.append(File.generated(config, name, content=content))
    for notebook in sorted((ROOT / "docs/notebooks").glob("*.ipynb")):
        files.append(File.generated(config, f"notebooks/{notebook.stem}.md", content=notebook_page(notebook)))
    for path in sorted(linked_files()):
        if path.suffix in (".md", *LANGUAGES):
            files.append(File.generated(config, site_name(path), content=shown(path)))
        else:
            files.append(File.generated(config, site_name(path), abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite the links that leave docs/, and name the language of blocks of commands."""
    home = repository_path(page.file.src_uri)
    if re.match(rf"{COPIES}/|results/.*/", page.file.src_uri):  # what pages quote would come before them
        page.meta["search"] = {"exclude": True}
    if home.suffix in LANGUAGES:  # space for the lines of a source file
        page.meta["hide"] = ["navigation", "toc"]

    def rewritten(match: re.Match[str]) -> str:
        text, link, heading = match[1], match[2], match[3] or ""
        target = resolved(home, link)
        if target is None:
            return match[0]
        if (ROOT / target).is_dir():
            return text
        goal = site_name(target)
        if goal not in files.src_uris:
            return match[0]  # mkdocs reports it
        return f"[{text}]({posixpath.relpath(goal, posixpath.dirname(page.file.src_uri))}{heading})"

    return rendered_as_on_github(LINK.sub(rewritten, markdown))


def rendered_as_on_github(markdown: str) -> str:
    """Return a page whose indented blocks of commands are fenced shell, and whose [TOKENS] stay what they are."""
    lines, out, in_code = markdown.split("\n"), list[str](), False
    while lines:
        line = lines.pop(0)
        in_code ^= line.startswith(("```", "~~~"))
        if not in_code and COMMAND.match(line) and not (out and out[-1].strip()):
            block = [line]
            while lines and lines[0].startswith("    "):
                block.append(lines.pop(0))
            out += ["```bash", *(part for one in block for part in wrapped(one[4:])), "```"]
        else:
            out.append(line if in_code or line.startswith("    ") else with_tokens(line))
    return "\n".join(out)


def wrapped(line: str) -> list[str]:
    """Return a long command as lines that a shell joins again, its comment before it; any other line as it is."""
    if len(line) <= WIDTH or not COMMAND.match(f"    {line}") or line.startswith("#") or line.endswith("\\"):
        return [line]
    command, hint, comment = line.partition("  # ")
    lines = [command.split(" --")[0]]
    for flag in command.rstrip().split(" --")[1:]:
        if len(lines[-1]) + len(flag) > WIDTH - 5:
            lines[-1] += " \\"
            lines.append(f"    --{flag}")
        else:
            lines[-1] += f" --{flag}"
    return [f"# {comment}", *lines] if hint else lines


def with_tokens(line: str) -> str:
    """Return a line of prose in which `[CLS] [SEP]` is no reference to `SEP`."""
    parts = re.split(r"(`+[^`]*`+)", line)
    return "".join(part if i % 2 else TOKENS.sub(r"\\[\1\\]", part) for i, part in enumerate(parts))


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Keep `--flag` in one piece at the end of a line: browsers break behind hyphens."""
    inline = r"(?<!<pre>)(?<!<span></span>)<code>([^<\n]+)</code>"  # in a block an empty element is before <code>
    return re.sub(inline, lambda match: f"<code>{unbroken(match[1])}</code>", html)


def unbroken(code: str) -> str:
    """Return the HTML of inline code whose shorter words with hyphens are not broken."""
    words = code.split(" ")
    return " ".join(f'<span class="whole">{one}</span>' if "-" in one and len(one) < 30 else one for one in words)


def resolved(home: Path, link: str) -> Path | None:
    """Return the path in the repository that a link leads to; None for an address or a file that is not there."""
    if "://" in link or link.startswith(("mailto:", "/")):
        return None
    path = Path(posixpath.normpath((home.parent / link).as_posix()))
    return path if not path.as_posix().startswith("..") and (ROOT / path).exists() else None


def repository_path(uri: str) -> Path:
    """Return the path in the repository of what a page of the site shows."""
    if uri.startswith(f"{COPIES}/"):
        path = Path(uri).relative_to(COPIES)
        return path if (ROOT / path).exists() else path.with_suffix("")
    return Path("docs", uri)


def site_name(path: Path) -> str:
    """Return the name in the site of a file of the repository."""
    if path.parts[0] == "docs":
        return path.with_suffix(".md" if path.suffix == ".ipynb" else path.suffix).relative_to("docs").as_posix()
    return f"{COPIES}/{path.as_posix()}{'.md' if path.suffix in LANGUAGES else ''}"


def linked_files() -> set[Path]:
    """Return the files outside docs/ that a page links to, and those that linked pages link to."""
    found, todo = set[Path](), [path.relative_to(ROOT) for path in (ROOT / "docs").rglob("*.md")]
    while todo:
        for target in targets(todo.pop()):
            if target.parts[0] != "docs" and target not in found:
                found.add(target)
                todo += [target] if target.suffix == ".md" else []
    return found


def targets(page: Path) -> Iterator[Path]:
    """Return the files of the repository that a page links to."""
    for match in re.finditer(r"\]\(([^)\s#]+)", (ROOT / page).read_text("utf-8")):
        target = resolved(page, match[1])
        if target is not None and (ROOT / target).is_file():
            yield target


def shown(path: Path) -> str:
    """Return the page that shows a file of the repository."""
    text = (ROOT / path).read_text("utf-8")
    if path.suffix == ".md":
        return text
    return f"# {path.as_posix()}\n\n~~~~~~ {{.{LANGUAGES[path.suffix]} linenums=1}}\n{text}~~~~~~\n"


def notebook_page(path: Path) -> str:
    """Return a notebook's cells and outputs as a page."""
    cells = json.loads(path.read_text("utf-8"))["cells"]
    parts = [part for cell in cells for part in cell_parts(cell)]
    return "\n\n".join([*parts, f"[The notebook]({path.name}), to run it in Jupyter.", ""])


def cell_parts(cell: dict[str, Any]) -> Iterator[str]:
    """Return the text of a cell, and each of its outputs."""
    source = "".join(cell["source"])
    yield source if cell["cell_type"] == "markdown" else f"~~~ python\n{source}\n~~~"
    for output in cell.get("outputs", []):
        data = output.get("data", {"text/plain": output.get("text", [])})
        if "image/png" in data:
            picture = "".join(data["image/png"]).strip()
            yield f'<img alt="Output of the cell above" src="data:image/png;base64,{picture}">'
        elif text := "".join(data["text/plain"]).strip("\n"):
            yield f"~~~ text\n{text}\n~~~"


def reference() -> str:
    """Return a page with the signature and docstring of every name that `bertworks` exports."""
    lines = ["# Python reference", "", "The names that `import bertworks` offers. [Python](python.md) shows their use."]
    for name, module in sorted(public_names(), key=lambda pair: pair[0].lower()):
        lines += ["", f"::: {module}.{name}", "    options:", f"      heading: {name}", f"      toc_label: {name}"]
    return "\n".join([*lines, ""])


def public_names() -> Iterator[tuple[str, str]]:
    """Return each public name with the module that defines it."""
    tree = ast.parse((ROOT / "src/bertworks/__init__.py").read_text("utf-8"))
    for block in tree.body:
        for node in block.body if isinstance(block, ast.If) else []:
            if isinstance(node, ast.ImportFrom):
                yield from ((alias.name, f"bertworks.{node.module}") for alias in node.names)
