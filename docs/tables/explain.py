"""The picture of README: attention heads of `mini` on a sentence, from the page of `bertworks probe explain`.

python docs/tables/explain.py     # writes docs/results/charts/; needs Chromium, and `pip install playwright`
"""

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Literal

from charts import CHARTS
from playwright.sync_api import sync_playwright

from bertworks.apps.probing import explain, explain_page
from bertworks.inference.predictor import Predictor

SENTENCE = "He sat on the bank of the river and watched the boats."
WORD, LAYER, HEAD = "bank", 2, 3  # from 0


def main(model: str = "mini") -> None:
    """Write explain-light.png and explain-dark.png: the panel of one head, with a word chosen."""
    predictor = Predictor(model, device="cpu")
    position = predictor.tokenizer.encode(SENTENCE).tokens.index(WORD)
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "page.html"
        file.write_text(explain_page(explain(predictor, SENTENCE)), encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        themes: list[Literal["light", "dark"]] = ["light", "dark"]
        for theme in themes:
            context = browser.new_context(
                viewport={"width": 1048, "height": 900}, color_scheme=theme, locale="en-US", device_scale_factor=1.5
            )
            page = context.new_page()
            page.goto(file.as_uri())
            page.wait_for_selector("body[data-ready]")
            page.add_style_tag(content=".explain .ex-part { padding: 24px; border: 0 }")  # its margins
            page.click(f".ex-tokens button >> nth={position}")
            page.select_option("select >> nth=0", index=LAYER)
            page.select_option("select >> nth=1", index=HEAD)
            page.locator(".ex-part:has(.ex-steps)").screenshot(path=CHARTS / f"explain-{theme}.png")
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
