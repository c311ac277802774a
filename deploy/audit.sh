#!/bin/sh
# Looks the locked packages up among the known vulnerabilities with the pip-audit that is named first.
# Exits 1 when one is found; where the database cannot be reached it says so and exits 0, since nothing is known then.
audit=$1
found=$(mktemp)
trap 'rm -f "$found"' EXIT
if "$audit" --require-hashes --disable-pip --progress-spinner off -r requirements.lock --format columns --output "$found"; then
    echo "No known vulnerability in requirements.lock."
elif [ -s "$found" ]; then
    cat "$found"
    exit 1
else
    echo "NOT AUDITED: pip-audit could not look the packages up; its message stands above."
fi
