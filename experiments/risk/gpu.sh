#!/bin/sh
# What needs a GPU: InvRE beside leakage on CIFAR-10, and the shadow attacker behind CausShield on CIFAR-10 and MNIST.
#
#   VERACAUSA_DATA=... OUT=... sh experiments/risk/gpu.sh invre|shadow-cifar10|shadow-mnist
#
# Each part ends within about nine minutes and goes on where it stopped when it is run again with the same WORK.
set -eu
: "${VERACAUSA_DATA:?the folder with cifar-10-batches-bin and MNIST}" "${OUT:?where the results go}"
PYTHON=${PYTHON:-python3} WORK=${WORK:-runs/risk}
export PYTHONPATH="$PWD/src" PYTHONUNBUFFERED=1
mkdir -p "$OUT" "$WORK"

veracausa() { "$PYTHON" -m veracausa.cli.main "$@"; }

shadow() { # NAME JOB PROFILE
    set -- "$1" "$2" "$3" "$WORK/shadow-$1-$3"
    if [ "$3" = none ]; then
        defense="--set defense.name=none"
    else
        defense="--set defense.name=causshield --set defense.profile=$3 --twin $WORK/shadow-$1-none"
    fi
    resume=""
    if [ -e "$4/config.toml" ]; then resume="--resume"; fi
    # shellcheck disable=SC2086
    veracausa audit "$2" --out "$4" --attacks shadow --parties passive_1 --no-labels $resume $defense
    for file in summary.json audit.md config.toml environment.json; do cp "$4/$file" "$OUT/$1-$3-$file"; done
}

case "${1:?invre, shadow-cifar10 or shadow-mnist}" in
invre)
    veracausa reproduce risk/invre --scale small --cells "$WORK/cells" --out "$WORK/invre" --time-limit 8m
    cp "$WORK"/invre/table.md "$WORK"/invre/table.csv "$WORK"/invre/environment.json "$WORK"/invre/experiment.toml "$OUT"
    ;;
shadow-*)
    name=${1#shadow-}
    for profile in ${PROFILES:-none recommended paper}; do
        shadow "$name" "experiments/audit/$name.toml" "$profile"
    done
    ;;
*)
    echo "no such part: $1" >&2
    exit 2
    ;;
esac
