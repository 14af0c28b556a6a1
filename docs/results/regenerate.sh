#!/usr/bin/env bash
# Runs experiments and publishes them: regenerate.sh [SCALE] [CLUSTER] [NAME...]
# SCALE is 1 for full runs, CLUSTER embedded, apache or sim. Without names all experiments run; an experiment without a use for
# this cluster says why it is left out. CLIENTS has the clients, separated by commas.
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
run=$(mktemp)
trap 'rm -f "$run"' EXIT
for name in "${names[@]}"; do
  code=0
  curtail lab run "$name" --cluster "$cluster" --client "${CLIENTS:-curtail}" --scale "$scale" --json "$run" || code=$?
  # 2: a condition does not hold, and the report says which.
  if [ "$code" -eq 0 ] || [ "$code" -eq 2 ]; then
    curtail lab publish "$run"
  else
    echo "left out: $name" >&2
  fi
done
