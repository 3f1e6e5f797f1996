#!/bin/sh
# Print the Python to make the virtual environment with: 3.11 or newer, able to make one.
# Candidates may be given as arguments. Each is run, for a version manager's shim can be on PATH with nothing behind it.
set -u
[ $# -gt 0 ] || set -- python3.11 python3.12 python3.13 python3.14 python3 python
for candidate in "$@"; do
    if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
        command -v "$candidate"
        exit 0
    fi
done
echo "Asterism needs Python 3.11 or newer with its venv module (Debian, Ubuntu: apt-get install python3 python3-venv); tried: $*" >&2
exit 1
