"""`python -m fsctx`: the command line."""

from fsctx.cli import main

if __name__ == "__main__":
    main()
