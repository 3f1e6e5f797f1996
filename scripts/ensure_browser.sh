#!/bin/sh
# Find Chromium and its driver for the tests of the console, and print their paths: nothing to do where they are there, else
# install them where that is possible without a question (as root or with passwordless sudo), else say in one line what to install.
set -u

NEEDS="the tests of the console need Chromium and its driver"
. "$(dirname "$0")/packages.sh"

first() {
    for name in "$@"; do
        command -v "$name" 2>/dev/null && return
    done
    return 1
}

find_both() {
    browser=$(first chromium chromium-browser google-chrome google-chrome-stable) && driver=$(first chromedriver)
}

if ! find_both; then
    has apt-get || fail "install chromium and chromedriver"
    can_be_root || fail "apt-get install chromium chromium-driver"
    {
        as_root apt-get update -qq
        # A browser without fonts shows no text.
        apt_install chromium chromium-driver fonts-dejavu-core
    } >/dev/null 2>&1
    find_both || fail "apt-get install chromium chromium-driver did not install them"
fi
echo "$browser"
echo "$driver"
