"""Extracted Wikipedia (WikiExtractor's files) without the articles that questions of an evaluation set are about.

    python docs/results/encoders/wikipedia.py enwiki enwiki-clean data/squad/dev-v1.1.json data/squad/dev-v2.0.json

writes every file of the first folder below the second, without the articles whose title is one in the evaluation files,
or that contain one of their paragraphs (but for spaces). The number of articles left out is printed.
"""

import json
import re
import sys
from pathlib import Path

ARTICLE = re.compile(r'<doc [^>]*title="([^"]*)"[^>]*>\n.*?</doc>\n?', re.DOTALL)


def plain(text: str) -> str:
    """What two texts that differ in spaces alone have in common."""
    return "".join(text.split())


def main(source: Path, target: Path, *evaluation: Path) -> None:
    """Write the files; print how many articles were left out."""
    articles = [one for path in evaluation for one in json.loads(path.read_text(encoding="utf-8"))["data"]]
    titles = {article["title"].replace("_", " ") for article in articles}
    contexts = {plain(paragraph["context"]) for article in articles for paragraph in article["paragraphs"]}
    left_out: list[str] = []

    def kept(match: re.Match[str]) -> str:
        lines = match[0].splitlines()
        if match[1] not in titles and not any(plain(line) in contexts for line in lines):
            return match[0]
        left_out.append(match[1])
        return ""

    for path in sorted(path for path in source.rglob("*") if path.is_file()):
        out = target / path.relative_to(source)
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(ARTICLE.sub(kept, path.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"{source.name}: {len(left_out)} articles left out: {', '.join(sorted(left_out))}")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
