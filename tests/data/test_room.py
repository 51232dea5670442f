"""The rooms below torch can be imported without anything heavy."""

import subprocess
import sys

import pytest

HEAVY = ("torch", "matplotlib", "pyarrow", "scipy", "sklearn", "transformers")


@pytest.mark.parametrize("room", ["data", "data.prefetch", "tokenizer", "workers"])
def test_importing_a_room_loads_nothing_heavy(room):
    code = f"import sys, bertworks.{room}; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[]\n", done
