#!/bin/sh
# Print the folder with PostgreSQL's server programs: for the tests of the SQL discoverer. Where there are none, install them if
# that is possible without a question (as root or with passwordless sudo), else say in one line what to install.
set -u

NEEDS="The tests need PostgreSQL 11 or newer"
. "$(dirname "$0")/packages.sh"

# Debian and Red Hat keep the server's programs out of PATH.
server_folder() {
    for program in "$(command -v initdb 2>/dev/null)" /usr/lib/postgresql/*/bin/initdb /usr/pgsql-*/bin/initdb \
        /usr/libexec/postgresql*/initdb /opt/homebrew/opt/postgresql*/bin/initdb /usr/local/opt/postgresql*/bin/initdb; do
        if [ -n "$program" ] && [ -x "$program" ]; then
            dirname "$(readlink -f "$program")"
            return
        fi
    done
    return 1
}

install_server() {
    if has apt-get; then
        can_be_root || fail "run \`apt-get install postgresql\` as root"
        # The tests make a server of their own: none of Debian's is to be made, and started, besides.
        settings=/etc/postgresql-common/createcluster.d
        if [ ! -e "$settings" ]; then
            as_root mkdir -p "$settings"
            echo "create_main_cluster = false" | as_root tee "$settings/asterism.conf" >/dev/null
        fi
        as_root apt-get update -qq
        apt_install postgresql
    elif has dnf; then
        can_be_root || fail "run \`dnf install postgresql-server\` as root"
        as_root dnf install -y -q postgresql-server
    elif has apk; then
        can_be_root || fail "run \`apk add postgresql\` as root"
        as_root apk add --quiet postgresql
    elif has brew; then
        brew install --quiet postgresql@17
    else
        fail "install it, with initdb on PATH"
    fi
}

server_folder && exit 0
install_server >&2
server_folder || fail "installing it failed; install it by hand, with initdb on PATH"
