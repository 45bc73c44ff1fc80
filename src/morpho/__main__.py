"""`python -m morpho` is the `morpho` command."""

from morpho.cli.main import main

if __name__ == "__main__":
    main()
