#!/usr/bin/env bash
# Runs experiments and writes their figures and one page of them here: regenerate.sh [SCALE] [CLUSTER] [NAME...]
# SCALE is 1 for full runs, CLUSTER embedded, apache or whatever --cluster takes. Without names all experiments run; those that
# this cluster has no use for are left out, and say why.
set -euo pipefail
cd "$(dirname "$0")/../.."
scale=${1:-1}
cluster=${2:-embedded}
shift $(($# < 2 ? $# : 2))
cargo build --release
curtail() { cargo run --quiet --release -- "$@"; }

names=("$@")
if [ ${#names[@]} -eq 0 ]; then
  mapfile -t names < <(curtail lab list | cut -d' ' -f1)
fi
results=docs/results/${cluster//[^A-Za-z0-9.-]/_}
mkdir -p "$results"
trap 'rm -f "$results"/*.new' EXIT
for name in "${names[@]}"; do
  code=0
  curtail lab run "$name" --cluster "$cluster" --scale "$scale" --json "$results/$name.new" || code=$?
  # 2: a condition does not hold, and the page says which.
  if [ "$code" -eq 0 ] || [ "$code" -eq 2 ]; then
    mv "$results/$name.new" "$results/$name.json"
  else
    echo "left out: $name" >&2
  fi
done
curtail lab report "$results"/*.json --html "$results.html"
echo "written: $results/*.json and $results.html"
