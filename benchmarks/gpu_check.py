"""Whether this Python can run the stages of gpu.sh: its version, torch's version, the packages that are imported.

    python benchmarks/gpu_check.py [--smoke]

gpu.sh calls it first. What is missing is named in one line, all packages together, and the exit status is 1. Nothing
but the standard library and torch is imported here.
"""

import importlib.util
import platform
import re
import sys

PYTHON, TORCH = (3, 11), (2, 10)  # the oldest versions that bertworks supports
PACKAGES = {  # name of the import -> name of the package
    "torch": "torch",
    "numpy": "numpy",
    "psutil": "psutil",
    "tokenizers": "tokenizers",
    "safetensors": "safetensors",
    "rich": "rich",
    "tomli_w": "tomli-w",
    "zstandard": "zstandard",
    "sentencex": "sentencex",
    "filelock": "filelock",
}


def problem(packages: dict[str, str]) -> str:
    """What is missing, in one line: found, expected, what to do; "" if nothing is."""
    if sys.version_info < PYTHON:
        return (
            f"found Python {platform.python_version()}; expected {_dotted(PYTHON)} or later; set PYTHON to a newer one"
        )
    missing = [name for module, name in packages.items() if importlib.util.find_spec(module) is None]
    if missing:
        return (
            f"found no {', '.join(missing)} in {sys.executable}; expected the packages that bertworks imports; run "
            f"`{sys.executable} -m pip install {' '.join(missing)}`, or add a folder that has them to PYTHONPATH"
        )
    import torch

    version = tuple(int(part) for part in re.findall(r"\d+", torch.__version__)[:2])
    if version < TORCH:
        return f"found torch {torch.__version__}; expected {_dotted(TORCH)} or later; install a newer one"
    return ""


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def main(argv: list[str] | None = None) -> None:
    """End with one line if something is missing."""
    if found := problem(PACKAGES):
        raise SystemExit(found)


if __name__ == "__main__":
    main(sys.argv[1:])
