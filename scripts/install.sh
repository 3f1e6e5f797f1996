#!/bin/sh
# Install the project, editable, with what its development needs, into a virtual environment: `sh scripts/install.sh .venv`.
# uv takes a third of the time of pip, which installs where uv cannot be had, or where the configuration of pip has more than uv knows of.
# See docs/decisions/0190.
set -eu
python=$1/bin/python
cache=$1/uv-cache

# PySpark is built from source: the jars in its wheel, 450 MB, are compressed already.
DIST_EXTRA_CONFIG=$PWD/scripts/builds.cfg
export DIST_EXTRA_CONFIG

pip() {
    "$python" -m pip install --quiet --disable-pip-version-check --no-compile "$@"
}

# The cache is on the file system of the environment, so that files become links, not copies. It takes 4 GB until the end.
uv() {
    "$python" -m uv pip install --quiet --python "$python" --cache-dir "$cache" "$@"
}

[ -z "${PIP_CERT-}" ] || export SSL_CERT_FILE="${SSL_CERT_FILE-$PIP_CERT}"
[ -z "${PIP_FIND_LINKS-}" ] || export UV_FIND_LINKS="${UV_FIND_LINKS-$PIP_FIND_LINKS}"
export UV_HTTP_TIMEOUT="${UV_HTTP_TIMEOUT-180}"

if "$python" -m pip config list | grep -Eq 'index|proxy|trusted-host|constraint|no-binary|only-binary'; then
    pip --editable '.[dev]'
elif pip uv && uv --editable '.[dev]'; then
    rm -rf "$cache"
else
    rm -rf "$cache"
    pip --editable '.[dev]'
fi
