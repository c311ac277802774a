"""`make bench`: run every benchmark and print its table."""

from __future__ import annotations

from benchmarks import embedded, stores
from benchmarks.table import table


def main() -> None:
    """Print the tables."""
    print(table("The embedded model and voice", embedded.measure()), end="\n\n")
    print(stores.report())


if __name__ == "__main__":
    main()
