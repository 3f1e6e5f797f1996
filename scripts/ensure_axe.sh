#!/bin/sh
# Print the path of axe-core, which checks the accessibility of pages in the tests of the console. npm downloads it when it is asked for
# for the first time.
set -u

VERSION=4.14.1
SHA256=29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c
NEEDS="the tests of accessibility need npm and its registry"
. "$(dirname "$0")/packages.sh"

root="$(cd "$(dirname "$0")/.." && pwd)"
file="$root/.axe/axe-$VERSION.min.js"
if [ ! -f "$file" ]; then
    if ! has npm; then
        { has apt-get && can_be_root; } || fail "install npm"
        { as_root apt-get update -qq && apt_install npm; } >&2 || fail "installing npm failed; install it by hand"
    fi
    mkdir -p "$root/.axe"
    new="$(mktemp -d "$root/.axe/new-XXXXXX")"
    trap 'rm -rf "$new"' EXIT
    (cd "$new" && npm pack --silent "axe-core@$VERSION" && tar -xzf "axe-core-$VERSION.tgz") >&2 || fail "downloading axe-core failed"
    echo "$SHA256  $new/package/axe.min.js" | sha256sum -c --quiet - >&2 || fail "axe-core $VERSION has changed"
    # Another process may have been faster.
    mv "$new/package/axe.min.js" "$file"
fi
echo "$file"
