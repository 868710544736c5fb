"""`fsctx`, and `python -m fsctx`: the command line, from the first import to the end of the process."""

import sys


def main() -> None:
    """Run the command line. Whoever interrupts it before it begins or after its last word sees no traceback.

    So nothing is imported before this function is called, by `fsctx/__init__.py` neither.
    """
    try:
        from fsctx.cli import main as command_line

        command_line()
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        import signal

        signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    main()
