#!/bin/sh
# Print the folder with the jars of scripts/jars/NAME.xml, which Maven downloads when it is asked for them for the first time:
#     sh scripts/ensure_jars.sh kafka
set -u

NAME="$1"
NEEDS="The jars of $NAME need Maven 3.6 or newer, and Maven Central"
. "$(dirname "$0")/packages.sh"

root="$(cd "$(dirname "$0")/.." && pwd)"
pom="$root/scripts/jars/$NAME.xml"
[ -f "$pom" ] || fail "there is no $pom"
folder="$root/.jars/$NAME"
wanted="$(cksum < "$pom")"
if [ "$(cat "$folder/.complete" 2>/dev/null)" = "$wanted" ]; then
    echo "$folder"
    exit 0
fi
if ! has mvn; then
    { has apt-get && can_be_root; } || fail "install maven, with mvn on PATH"
    { as_root apt-get update -qq && apt_install maven; } >&2 || fail "installing it failed; install it by hand"
fi
mkdir -p "$root/.jars"
new="$(mktemp -d "$root/.jars/new-$NAME-XXXXXX")"
mvn --batch-mode --quiet --file "$pom" org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
    -DoutputDirectory="$new" -DincludeScope=runtime >&2 || { rm -r "$new"; fail "downloading the jars failed"; }
echo "$wanted" > "$new/.complete"
# Another process may have been faster.
rm -rf "$folder"
mv "$new" "$folder" 2>/dev/null || rm -r "$new"
echo "$folder"
