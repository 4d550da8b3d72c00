#!/usr/bin/env bash
# Training with shadow validation: a slow reference implementation recomputes every step of every environment.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    cat <<'END'
usage: scripts/run_training_validation.sh smoke|soak|N [flags of scripts/train_and_compare.py ...]

  smoke   under a minute:    32 environments, at least 576 comparisons in each
  soak    about 12 minutes: 128 environments, at least 10,000 comparisons in each
  N       a total of N environment steps in 32 environments, at least N / 32 comparisons in each

Trains vision_free by PPO on the CPU with NPPSIM_SHADOW=1. The exit status is 0 if there was no mismatch and at least the
stated number of comparisons. Log and run are in runs/validation/MODE_DATE_TIME(.log, /).
docs/development.md explains the validation. PYTHON=... selects the interpreter (default: .venv/bin/python).
END
}

fail() {
    echo "error: $*" >&2
    exit 2
}

mode=${1:-}
case $mode in
    -h | --help) usage && exit 0 ;;
    smoke) environments=32 required=576 ;;
    soak) environments=128 required=10000 ;;
    *)
        [[ $mode =~ ^[1-9][0-9]*$ ]] || { usage >&2 && fail "the first argument is '$mode'; give smoke, soak or a number of steps"; }
        environments=32 required=$((mode / 32))
        ((required > 0)) || fail "$mode steps are fewer than one for each of 32 environments; give at least 32"
        ;;
esac
shift
python=${PYTHON:-.venv/bin/python}
command -v "$python" >/dev/null || fail "there is no $python; run 'make setup', or name an interpreter with PYTHON=..."

rollout=64
updates=$(((required + rollout - 1) / rollout))
name=runs/validation/${mode}_$(date +%Y%m%d_%H%M%S)
mkdir -p "$name"
export NPPSIM_SHADOW=1
{
    echo "validation: $mode, $environments environments, $required comparisons required for each; started $(date -Is)"
    "$python" scripts/train_and_compare.py --experiment-name training --architectures vision_free \
        --total-timesteps $((updates * rollout * environments)) --num-envs $environments --rollout-length $rollout \
        --minibatch-size 1024 --device cpu --eval-freq 0 --skip-final-eval --output-dir "$name" "$@"
} 2>&1 | tee "$name.log"

# Each simulator prints its numbers at the end of the process.  Those of evaluations have fewer environments.
awk -v environments=$environments -v required=$required '
    /^shadow: total of / {
        mismatches += $13
        if ($4 >= environments && $10 > least) least = $10
    }
    END {
        printf "validation: %d mismatches, at least %d comparisons in each of %d environments", mismatches, least, environments
        failed = mismatches > 0 || least < required
        print (failed ? "; failed, " required " comparisons without a mismatch are required" : "; passed")
        exit failed
    }' "$name.log" | tee -a "$name.log"
