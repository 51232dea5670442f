"""Settings of all tests. That this file is here puts tests/ on the import path, so that any test finds the helpers."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # tests are offline: whoever looks for a model on the net fails at once
