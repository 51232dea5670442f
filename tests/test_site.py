"""The site of docs/: it builds without a warning, has every page, loads nothing from elsewhere, no link is dead."""

import ast
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

ROOT = Path(__file__).parents[1]
LOADS = {"img", "script", "iframe", "source", "video", "audio", "embed"}
LINKS = {"stylesheet", "icon", "preload", "preconnect", "dns-prefetch", "modulepreload", "prefetch", "manifest"}


class Found(HTMLParser):
    """What a page loads as it opens, where its links lead, and its anchors."""

    def __init__(self, text):
        super().__init__()
        self.loaded, self.links, self.anchors = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        has = {name: value or "" for name, value in attributes}
        self.anchors.add(has.get("id", ""))
        if tag == "a" and "href" in has:
            self.links.append(has["href"])
        if tag in LOADS and "src" in has:
            self.loaded.append(has["src"])
        if tag == "link" and LINKS & set(has.get("rel", "").split()):
            self.loaded.append(has["href"])
        self.loaded += re.findall(r"url\(([^)]+)\)", has.get("style", ""))


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built site, and what mkdocs printed."""
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stderr[-3000:]
    return folder


@pytest.fixture(scope="module")
def pages(site):
    return {path.relative_to(site).as_posix(): Found(path.read_text("utf-8")) for path in sorted(site.rglob("*.html"))}


def test_every_page_is_in_the_navigation():
    yaml = pytest.importorskip("yaml")
    tabs = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"]
    entries = [entry for tab in tabs for section in tab.values() for entry in section]
    named = [page for entry in entries for page in (entry.values() if isinstance(entry, dict) else [entry])]
    assert len(set(named)) == len(named)
    docs = {
        path.relative_to(ROOT / "docs").as_posix()
        for folder in (".", "ko", "results")
        for path in (ROOT / "docs" / folder).glob("*.md")
    }
    notebooks = {f"notebooks/{path.stem}.md" for path in (ROOT / "docs/notebooks").glob("*.ipynb")}
    assert set(named) == docs | notebooks | {"reference.md"}


@pytest.mark.heavy
def test_no_page_loads_anything_from_another_host(site, pages):
    assert len(pages) > 40 and sum(len(page.loaded) for page in pages.values()) > 300
    for name, page in pages.items():
        elsewhere = [url for url in page.loaded if re.match(r"\s*['\"]?(?:[a-z]+:)?//", url)]
        assert not elsewhere, f"{name} loads {elsewhere}"
    for style in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//", style.read_text("utf-8")), style.name


@pytest.mark.heavy
def test_links_of_the_site_lead_to_its_files_and_headings(site, pages):
    """Those of the source files and of the notebooks too, which mkdocs does not check."""
    for name, page in pages.items():
        for link in page.links:
            path, anchor = urldefrag(unquote(link))
            if re.match(r"[a-z]+:", path):
                continue
            target = (site / name).parent / path if path and not path.startswith("/") else site / name
            assert target.exists(), f"{name}: {link}"
            if anchor and target.suffix == ".html":
                known = pages[target.resolve().relative_to(site.resolve()).as_posix()].anchors
                assert anchor in known, f"{name}: {link}"


@pytest.mark.heavy
def test_the_reference_has_every_public_name(site):
    tree = ast.parse((ROOT / "src/bertworks/__init__.py").read_text("utf-8"))
    guarded = [node for block in tree.body if isinstance(block, ast.If) for node in block.body]
    names = {alias.name for node in guarded if isinstance(node, ast.ImportFrom) for alias in node.names}
    page = (site / "reference.html").read_text("utf-8")
    headings = set(re.findall(r'<h2 id="bertworks\.[\w.]*?(\w+)"', page))
    assert headings == names and len(names) > 10
