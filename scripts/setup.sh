#!/bin/sh
# Makes the virtual environment with the three packages (editable) and the development tools: with uv if it is there, else pip.
set -eu
venv=$1
python=${PYTHON:-python3}

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || {
    echo "Penstock needs Python 3.11 or newer: install it, or name one with: make PYTHON=/path/to/python3 …" >&2
    exit 1
}
dev=$("$python" -c 'import tomllib; print(" ".join(repr(d) for d in tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"]["dev"]))')
packages="-e packages/penstock-protocol -e packages/penstock-sdk -e packages/penstock[spark,postgres,kafka]"

echo "Setting up $venv (the first time this downloads Spark, about 450 MB) …"
if command -v uv >/dev/null 2>&1; then
    [ -x "$venv/bin/python" ] || uv venv --quiet --python "$python" "$venv"
    eval "uv pip install --quiet --python $venv/bin/python -c constraints.txt $packages $dev"
else
    [ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
    eval "$venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt $packages $dev"
fi
"$venv/bin/python" -m compileall -q packages/*/src || true
sh scripts/need-java.sh 2>/dev/null && "$venv/bin/python" -m penstock.cli.archive
exit 0
