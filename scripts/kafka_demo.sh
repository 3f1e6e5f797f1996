#!/bin/sh
# examples/kafka_to_delta.py with a broker, events and rules: `make example-kafka`. Everything is in a folder of its own, which is
# removed at the end, or stays if it is given:
#     sh scripts/kafka_demo.sh [FOLDER]
set -eu

spark=4.1.4 # Delta 4.4 does not run on Spark 4.3
root="$(cd "$(dirname "$0")/.." && pwd)"
python="$root/.venv/bin/python"
folder="${1:-}"
[ -n "$folder" ] || folder="$(mktemp -d "${TMPDIR:-/tmp}/kafka-to-delta-XXXXXX")"
mkdir -p "$folder"
folder="$(cd "$folder" && pwd)"
broker=""
end() {
    [ -z "$broker" ] || kill "$broker" 2>/dev/null || true
    [ -z "$broker" ] || wait "$broker" 2>/dev/null || true
    [ $# -eq 0 ] || rm -rf "$1"
}
if [ $# -eq 0 ]; then trap 'end "$folder"' EXIT; else trap end EXIT; fi
trap 'exit 130' INT TERM

[ -d "$root/build/spark-$spark" ] || echo "Spark $spark, beside that of .venv: a download of 456 MB ..."
path="$(sh "$root/scripts/ensure_spark.sh" "$spark" "$python")"
jars=""
for name in broker kafka_spark41 delta; do
    [ -d "$root/.jars/$name" ] || echo "jars of $name, from Maven Central ..."
    added="$(sh "$root/scripts/ensure_jars.sh" "$name")"
    [ "$name" = broker ] || jars="$jars${jars:+,}$(echo "$added"/*.jar | tr ' ' ',')"
done

port="$("$python" -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])')"
echo "a broker of Kafka at 127.0.0.1:$port ..."
sh "$root/scripts/kafka.sh" "$port" "$folder/kafka" > "$folder/kafka.log" 2>&1 &
broker=$!
# What Spark and Kafka log is in files. Delta reads its log in 50 tasks by default, which is much for small tables.
unset SPARK_HOME
few="--conf spark.databricks.delta.snapshotPartitions=2 --conf spark.sql.shuffle.partitions=2 --conf spark.ui.enabled=false"
PYTHONPATH="$path:$root/src:$root" PYSPARK_SUBMIT_ARGS="--master local[2] --jars $jars $few pyspark-shell" \
    "$python" "$root/scripts/kafka_demo.py" "127.0.0.1:$port" "$folder" 2> "$folder/spark.log" || {
    grep -m 1 "terminated with exception" "$folder/spark.log" >&2 || tail -n 20 "$folder/spark.log" >&2
    exit 1
}
