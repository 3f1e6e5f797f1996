#!/bin/sh
# A Kafka broker on this machine, to try things with. It runs until it is stopped (Ctrl-C); its records are in FOLDER, and stay:
#     sh scripts/kafka.sh [PORT [FOLDER]]        # 9092, and a new folder in /tmp
set -eu

port="${1:-9092}"
root="$(cd "$(dirname "$0")/.." && pwd)"
folder="${2:-$(mktemp -d "${TMPDIR:-/tmp}/kafka-XXXXXX")}"
jars="$(sh "$root/scripts/ensure_jars.sh" broker)"
mkdir -p "$folder"
cat > "$folder/server.properties" <<END
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$((port + 1))
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$((port + 1))
advertised.listeners=PLAINTEXT://127.0.0.1:$port
controller.listener.names=CONTROLLER
log.dirs=$folder/data
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
auto.create.topics.enable=false
END
kafka() { java -Xmx512m -cp "$jars/*" "$@"; }
kafka kafka.tools.StorageTool format --ignore-formatted -t 4L6g3nShT-eMCtK--X86sw -c "$folder/server.properties" >&2
echo "a broker at 127.0.0.1:$port, with its records in $folder" >&2
exec java -Xmx512m -cp "$jars/*" kafka.Kafka "$folder/server.properties"
