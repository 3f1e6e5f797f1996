#!/bin/sh
# Find Chromium and its driver for the tests of the console, and print their paths: nothing to do where they are there, else
# install them where that is possible without a question (as root or with passwordless sudo), else say in one line what to install.
set -u

fail() {
    echo "the tests of the console need Chromium and its driver: $1" >&2
    exit 1
}

has() { command -v "$1" >/dev/null 2>&1; }

first() {
    for name in "$@"; do
        command -v "$name" 2>/dev/null && return
    done
    return 1
}

find_both() {
    browser=$(first chromium chromium-browser google-chrome google-chrome-stable) && driver=$(first chromedriver)
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo -n "$@"; fi
}

if ! find_both; then
    has apt-get || fail "install chromium and chromedriver"
    [ "$(id -u)" -eq 0 ] || { has sudo && sudo -n true 2>/dev/null; } || fail "apt-get install chromium chromium-driver"
    {
        as_root apt-get update -qq
        # A browser without fonts shows no text.
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
            chromium chromium-driver fonts-dejavu-core
    } >/dev/null 2>&1
    find_both || fail "apt-get install chromium chromium-driver did not install them"
fi
echo "$browser"
echo "$driver"
