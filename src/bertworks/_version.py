"""The version, which setuptools reads too."""

__version__ = "0.2.0"
