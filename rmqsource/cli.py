"""The command ``rocketmq-store``; needs the extra ``cli`` and says so where it is missing."""

from __future__ import annotations

import sys

_EXTRA = ("typer", "rich")


def main() -> None:
    """Run the command line; leaves through ``SystemExit``."""
    try:
        from rmqsource.cli_app import app  # noqa: PLC0415 (the extra may be missing)
    except ModuleNotFoundError as err:
        if (err.name or "").split(".")[0] not in _EXTRA:
            raise
        sys.exit(_missing_extra(err.name or ""))
    app(prog_name="rocketmq-store")


def _missing_extra(module: str) -> int:
    print(
        f"rocketmq-store needs the Python package {module!r}: pip install 'rmqsource[cli]'",
        file=sys.stderr,
    )
    return 2


if __name__ == "__main__":
    main()
