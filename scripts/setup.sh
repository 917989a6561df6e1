#!/usr/bin/env bash
# Installs what the demo, the tests and the benchmarks start: MariaDB, RabbitMQ,
# Node.js for an example, systemd's own check of our units, promtool for those of
# alerts, Redis for the comparison, and a C compiler for the race detector; for
# the tests (scripts/setup.sh tests) also a browser. Debian and Ubuntu only.
#
# When everything is there it does nothing and needs neither root nor network.
# No service is started: devenv runs private ones.
set -euo pipefail

# package: programs that it brings.
needs=(
	"gcc gcc"
	"libc6-dev /usr/include/stdlib.h"
	"mariadb-server-core mariadbd mariadb-install-db"
	"mariadb-client-core my_print_defaults"
	"rabbitmq-server /usr/lib/rabbitmq/bin/rabbitmq-server"
	"erlang-base erlc epmd"
	"nodejs node"
	"npm npm"
	"systemd systemd-analyze"
	"prometheus promtool"
	"redis-server redis-server"
)

# Any of these will do. Ubuntu has no package chromium: install one of the others there.
browser() {
	there chromium || there chromium-browser || there google-chrome
}

die() {
	echo "setup: $*" >&2
	exit 1
}

# There is a file of that path, or a program of that name. An ordinary user's
# PATH may lack sbin.
there() {
	local path=$1
	if [[ $path != /* ]]; then
		path=$(PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin type -P -- "$1") && [[ -x $path ]]
		return
	fi
	[[ -e $path ]]
}

# look fills packages with what is missing.
packages=()
wanted=${1-}
look() {
	local need package programs program
	packages=()
	for need in "${needs[@]}"; do
		read -r package programs <<<"$need"
		for program in $programs; do
			if ! there "$program"; then
				packages+=("$package")
				break
			fi
		done
	done
	if [[ $wanted == tests ]] && ! browser; then
		packages+=(chromium)
	fi
}

# Debian asks this script whether a service may start; 101 means no. One that
# is there already belongs to the machine's owner and stays as it is.
policy=/usr/sbin/policy-rc.d

refuse_starts() {
	if [[ -e $policy || -L $policy ]]; then
		return
	fi
	trap 'rm -f -- "$policy"' EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod 755 "$policy"
}

main() {
	look
	if ((${#packages[@]} == 0)); then
		return
	fi
	there apt-get || die "${packages[*]} missing, and this is not Debian or Ubuntu: install them yourself"
	((EUID == 0)) || die "${packages[*]} missing; run: sudo scripts/setup.sh"

	echo "setup: installing ${packages[*]}" >&2
	refuse_starts
	export DEBIAN_FRONTEND=noninteractive
	apt-get update -qq </dev/null >&2
	apt-get install -y -qq --no-install-recommends "${packages[@]}" </dev/null >&2

	look
	((${#packages[@]} == 0)) || die "${packages[*]} still missing after the installation"
}

main
