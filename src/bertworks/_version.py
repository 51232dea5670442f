"""The version, which setuptools reads too."""

__version__ = "0.3.0.dev0"
