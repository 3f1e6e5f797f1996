#!/bin/sh
# Make sure that Spark finds Java 17 or newer: nothing to do where it is there, else install it where that is possible
# without a question (as root or with passwordless sudo), else say in one line what to install.
set -u

NEEDS="Asterism needs Java 17 or newer for Spark"
. "$(dirname "$0")/packages.sh"

# As Spark does: JAVA_HOME goes before PATH.
spark_java() {
    if [ -n "${JAVA_HOME:-}" ]; then echo "$JAVA_HOME/bin/java"; else echo java; fi
}

# The major version, 0 without a working Java: `version "17.0.15"` -> 17, `version "21-ea"` -> 21, `version "1.8.0_402"` -> 1.
java_major() {
    major=$("$(spark_java)" -version 2>&1 | sed -n 's/.* version "\([0-9][0-9]*\).*/\1/p' | head -n 1)
    echo "${major:-0}"
}

# The first package of the list that can be installed: releases differ in the versions that they carry.
first_of() {
    install=$1
    shift
    for package in "$@"; do
        $install "$package" && return
    done
    return 1
}

install_java() {
    if has apt-get; then
        can_be_root || fail "run \`apt-get install openjdk-17-jre-headless\` (or default-jre-headless) as root"
        as_root apt-get update -qq
        first_of apt_install openjdk-17-jre-headless default-jre-headless
    elif has dnf; then
        can_be_root || fail "run \`dnf install java-21-openjdk-headless\` as root"
        first_of "as_root dnf install -y -q" java-21-openjdk-headless java-17-openjdk-headless java-latest-openjdk-headless
    elif has apk; then
        can_be_root || fail "run \`apk add openjdk17-jre-headless\` as root"
        first_of "as_root apk add --quiet" openjdk17-jre-headless openjdk21-jre-headless
    elif has brew; then
        brew install --quiet --cask temurin@21
    else
        fail "install a JRE (for example OpenJDK 17 or 21) and put it on PATH or set JAVA_HOME"
    fi
}

[ "$(java_major)" -ge 17 ] && exit 0
[ -z "${JAVA_HOME:-}" ] || fail "JAVA_HOME=$JAVA_HOME has none; point it at one, or unset it"
install_java
[ "$(java_major)" -ge 17 ] || fail "installing one failed; install a JRE by hand and put it on PATH"
