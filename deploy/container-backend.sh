#!/bin/bash
# Prints the first container backend that answers, of those named or else of docker, podman and buildah.
# When none answers it says of each what is missing, and fails.
set -uo pipefail
[ $# -gt 0 ] || set -- docker podman buildah

missing=()
for backend in "$@"; do
    if ! command -v "$backend" >/dev/null; then
        missing+=("$backend is not installed")
    elif ! complaint=$("$backend" info 2>&1 >/dev/null); then
        missing+=("$backend is installed but does not answer: ${complaint%%$'\n'*}")
    elif [ "$backend" = docker ] && docker --version | grep -qi podman; then
        missing+=("docker is podman under another name here, which BentoML cannot drive: name podman")
    else
        echo "$backend"
        exit
    fi
done

echo "make image needs a container backend, and none answers:" >&2
printf '  %s\n' "${missing[@]}" >&2
exit 1
