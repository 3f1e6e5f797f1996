#!/bin/sh
# Print the folder with MariaDB's install program and the path of its server: for the tests of rules in MySQL and MariaDB. Where
# there are none, install them if that is possible without a question (as root or with passwordless sudo), else say in one line
# what to install.
set -u

NEEDS="The tests need MariaDB 10.6 or newer"
. "$(dirname "$0")/packages.sh"

programs() {
    PATH="$PATH:/usr/sbin:/usr/libexec:/opt/homebrew/opt/mariadb/bin:/usr/local/opt/mariadb/bin"
    has mariadb-install-db && has mariadbd || return 1
    command -v mariadb-install-db
    command -v mariadbd
}

install_server() {
    if has apt-get; then
        # The tests start a server of their own. These packages have the programs, and no service that would be started besides.
        can_be_root || fail "run \`apt-get install mariadb-server-core mariadb-client-core\` as root"
        as_root apt-get update -qq
        apt_install mariadb-server-core mariadb-client-core
    elif has dnf; then
        can_be_root || fail "run \`dnf install mariadb-server\` as root"
        as_root dnf install -y -q mariadb-server
    elif has apk; then
        can_be_root || fail "run \`apk add mariadb\` as root"
        as_root apk add --quiet mariadb
    elif has brew; then
        brew install --quiet mariadb
    else
        fail "install it, with mariadb-install-db and mariadbd on PATH"
    fi
}

programs && exit 0
install_server >&2
programs || fail "installing it failed; install it by hand, with mariadb-install-db and mariadbd on PATH"
