#!/usr/bin/env bash
# Runs the tests on MySQL 9 and RabbitMQ 4.3, in a chroot with Debian unstable. Needs root, Debian or Ubuntu, and
# some minutes for the chroot's 800 MB; with NEWER_ROOT=DIR it stays in DIR and is there the next time.
#
#   scripts/test-newer.sh [PACKAGES]        ./... by default
#
# Tests that want the delayed exchange, which ends with RabbitMQ 4.2, get a private broker of the installed version; those
# that do not run on 4.3 (AMQP_PLAIN_URL).
# The servers live in process and mount namespaces of their own: they end, and their mounts go, with this script.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

die() {
	echo "test-newer: $*" >&2
	exit 1
}

((EUID == 0)) || die "a chroot needs root; run: sudo make test-newer"
scripts/setup.sh
if ! command -v debootstrap >/dev/null || [[ ! -e /usr/share/keyrings/debian-archive-keyring.gpg ]]; then
	apt-get update -qq </dev/null >&2
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends debootstrap debian-archive-keyring </dev/null >&2
fi

servers=
root=${NEWER_ROOT:-$(mktemp -d /tmp/duebox-newer.XXXXXX)}
mkdir -p "$root"
root=$(cd "$root" && pwd)

# The namespaces end with their first process, which is the child of $servers and ends with it.
cleanup() {
	if [[ -n $servers ]]; then
		kill -KILL "$servers" 2>/dev/null || true
		wait "$servers" 2>/dev/null || true
	fi
	if [[ -n ${NEWER_ROOT:-} ]]; then
		rm -rf --one-file-system -- "$root/srv/duebox"
	else
		rm -rf --one-file-system -- "$root"
	fi
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

if [[ ! -e $root/complete ]]; then
	echo "test-newer: building the chroot in $root" >&2
	debootstrap --variant=minbase --include=rabbitmq-server,mysql-server-core,mysql-client-core sid "$root" >"$root.log" 2>&1 </dev/null ||
		die "debootstrap gave up; see $root.log"
	rm -f -- "$root.log"
	touch "$root/complete"
fi

# Four ports in a row that nobody listens on, below those that outgoing connections take.
free_ports() {
	local first port
	while :; do
		first=$((20000 + RANDOM % 3000 * 4))
		for port in {0..3}; do
			if (exec 3<>"/dev/tcp/127.0.0.1/$((first + port))") 2>/dev/null; then
				continue 2
			fi
		done
		echo "$first"
		return
	done
}
mysql_port=$(free_ports)
amqp_port=$((mysql_port + 1))

echo "127.0.0.1 localhost" >"$root/etc/hosts"
rm -rf --one-file-system -- "$root/srv/duebox"
mkdir -p "$root/srv/duebox/home"
cat >"$root/srv/duebox/servers" <<'SERVERS'
#!/bin/sh
# The first process of the namespaces. Starts both servers on ports from $1 on and ends when one of them does.
set -eu
cd /srv/duebox
exec >servers.log 2>&1
mysqld --no-defaults --initialize-insecure --user=root --datadir="$PWD/mysql"
echo 'CREATE DATABASE test;' >init.sql
mysqld --no-defaults --user=root --datadir="$PWD/mysql" --init-file="$PWD/init.sql" --socket="$PWD/mysql.sock" --pid-file="$PWD/mysql.pid" \
	--bind-address=127.0.0.1 --port="$1" --mysqlx=OFF --secure-file-priv=NULL --skip-log-bin --performance-schema=OFF \
	--innodb-flush-log-at-trx-commit=1 --innodb-buffer-pool-size=256M --max-connections=1000 &
mysqld=$!
printf 'listeners.tcp.default = 127.0.0.1:%s\n' "$(($1 + 1))" >rabbitmq.conf
: >rabbitmq-env.conf
echo '[].' >enabled_plugins
HOME=$PWD/home ERL_EPMD_PORT=$(($1 + 2)) ERL_EPMD_ADDRESS=127.0.0.1 \
	RABBITMQ_NODENAME=duebox@localhost RABBITMQ_DIST_PORT=$(($1 + 3)) RABBITMQ_MNESIA_BASE=$PWD/rabbitmq \
	RABBITMQ_LOG_BASE=$PWD/log RABBITMQ_CONF_ENV_FILE=$PWD/rabbitmq-env.conf RABBITMQ_CONFIG_FILE=$PWD/rabbitmq.conf \
	RABBITMQ_ENABLED_PLUGINS_FILE=$PWD/enabled_plugins RABBITMQ_PID_FILE=$PWD/rabbitmq.pid \
	/usr/lib/rabbitmq/bin/rabbitmq-server &
rabbitmq=$!
while kill -0 "$mysqld" && kill -0 "$rabbitmq"; do
	sleep 1
done
SERVERS

setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child sh -euc '
	mount --rbind /dev "$1/dev"
	mount -t proc proc "$1/proc"
	exec chroot "$1" /bin/sh /srv/duebox/servers "$2"' sh "$root" "$mysql_port" </dev/null &
servers=$!

answers() {
	chroot "$root" mysqladmin --no-defaults --host=127.0.0.1 --port="$mysql_port" --user=root --silent ping >/dev/null 2>&1 &&
		(exec 3<>"/dev/tcp/127.0.0.1/$amqp_port") 2>/dev/null
}
deadline=$((SECONDS + 180))
until answers; do
	if ! kill -0 "$servers" 2>/dev/null || ((SECONDS > deadline)); then
		tail -n 50 "$root/srv/duebox/servers.log" >&2 || true
		die "the servers do not answer"
	fi
	sleep 0.5
done
chroot "$root" dpkg-query --show --showformat='test-newer: ${Package} ${Version}\n' mysql-server-core rabbitmq-server >&2

if (($# == 0)); then
	set -- ./...
fi
MYSQL_DSN="root@tcp(127.0.0.1:$mysql_port)/test?charset=utf8mb4&interpolateParams=true&timeout=5s&readTimeout=1m&writeTimeout=1m" \
	AMQP_URL= AMQP_PLAIN_URL="amqp://guest:guest@127.0.0.1:$amqp_port/" CGO_ENABLED=1 \
	"${GO:-go}" run ./internal/devenv/with -- "${GO:-go}" test -race -shuffle=on -timeout=20m -p="${JOBS:-2}" -parallel="${PARALLEL:-4}" "$@"
