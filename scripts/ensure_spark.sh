#!/bin/sh
# Print the folder with PySpark of a version that .venv does not have. It is first on PYTHONPATH of a process that needs it:
#     sh scripts/ensure_spark.sh 4.1.4
set -u

version="$1"
root="$(cd "$(dirname "$0")/.." && pwd)"
folder="$root/build/spark-$version"
if [ -d "$folder" ]; then
    echo "$folder"
    exit 0
fi
mkdir -p "$root/build"
new="$(mktemp -d "$root/build/new-spark-XXXXXX")"
# py4j is the same as that of .venv.
"${2:-$root/.venv/bin/python}" -m pip install --quiet --no-deps --target "$new" "pyspark==$version" >&2 || {
    rm -r "$new"
    echo "PySpark $version cannot be installed: Delta and Iceberg need it" >&2
    exit 1
}
# Another process may have been faster.
mv -T "$new" "$folder" 2>/dev/null || rm -r "$new"
echo "$folder"
