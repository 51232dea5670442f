"""`python -m bertworks.cli VERB ...`, the form that torchrun needs."""

from . import main

if __name__ == "__main__":
    main()
