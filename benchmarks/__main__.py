"""`make bench`: run every benchmark and print its table."""

from __future__ import annotations

from benchmarks import adapters, embedded, stores
from benchmarks.table import ratios, table


def main() -> None:
    """Print the tables."""
    print(ratios(f"Adapters, {adapters.STREAMS} streams at once", adapters.measure()), end="\n\n", flush=True)
    print(table("The embedded model and voice", embedded.measure()), end="\n\n", flush=True)
    print(stores.report())


if __name__ == "__main__":
    main()
