#!/bin/sh
# Make sure that there are the programs with which the tests make hosts in network namespaces: nothing to do where they are there, else
# install them where that is possible without a question, else say in one line what to install.
set -u

NEEDS="Hosts in network namespaces need ip (iproute2), and unshare, nsenter and setpriv (util-linux)"
PATH="$PATH:/usr/sbin:/sbin"
. "$(dirname "$0")/packages.sh"

programs() { has ip && has unshare && has nsenter && has setpriv; }

programs && exit 0
{ has apt-get && can_be_root; } || fail "install iproute2 and util-linux"
{ as_root apt-get update -qq && apt_install iproute2 util-linux; } >/dev/null 2>&1
programs || fail "apt-get install iproute2 util-linux did not install them"
