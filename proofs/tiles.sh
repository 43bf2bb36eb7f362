#!/usr/bin/env bash
# Times of the transformer example within several capacities: the same words, less memory. The first argument is the device
# (cpu, or cuda:0 with a GPU), the second the folder of build outputs (target).
#
#     bash proofs/tiles.sh cuda:0
set -euo pipefail
cd "$(dirname "$0")/.."
device=${1:-cpu}
features=$([ "$device" = cpu ] || echo "--features cuda")
# shellcheck disable=SC2086
cargo build --release -q -p steeve --example transformer $features
size=(--device "$device" --layers 4 --width 512 --hidden 4096 --prompt 512 --context 1024 --tokens 8)
if [ "$device" != cpu ]; then
    size=(--device "$device" --layers 8 --width 2048 --heads 32 --kv-heads 8 --hidden 16384 --prompt 2048 --context 4096 --tokens 8)
fi
[ "$device" = cpu ] && unit=1000000 || unit=8000000
for capacity in none 16 12 10 8 7 6; do
    limit=()
    [ "$capacity" = none ] || limit=(--capacity $((capacity * unit)))
    echo "capacity $capacity x $unit"
    "${CARGO_TARGET_DIR:-target}/release/examples/transformer" "${size[@]}" "${limit[@]}" 2>&1 |
        grep -E "planned|tokens  |prompt  |error|nodes" || true
done
