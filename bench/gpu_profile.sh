#!/usr/bin/env bash
# Everything that needs a GPU, in one run of at most 15 minutes; one part that fails stops no other.
#
#   bash bench/gpu_profile.sh [OUT]
#
# Needs: this package importable by $PYTHON (default python3) with a CUDA build of torch; for the
# quantised profiles bitsandbytes as well. Random 7B weights (13.5 GB in bfloat16) are made on the
# card; nothing is downloaded. OUT (default runs/gpu) gets one profile and one log per part.
set -uo pipefail
cd "$(dirname "$0")/.."
out=${1:-runs/gpu}
python=${PYTHON:-python3}
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" HF_HUB_OFFLINE=1
mkdir -p "$out"
begin=$(date +%s)

part() { # part NAME SECONDS COMMAND...
  local name=$1 limit=$2
  shift 2
  if timeout "$limit" "$@" >"$out/$name.log" 2>&1; then state=ok; else state="failed ($?)"; fi
  echo "$(($(date +%s) - begin)) s: $name $state" | tee -a "$out/summary.txt"
}

profile() { # profile NAME SECONDS OPTIONS...
  local name=$1 limit=$2
  shift 2
  part "$name" "$limit" "$python" -m heisd_ros.offline.profile --out "$out/$name.json" \
    --set model.device=cuda --set simulation.image_size=224 "$@"
}

nvidia-smi >"$out/nvidia-smi.txt" 2>&1
part tests 90 "$python" -m pytest -q -p no:cacheprovider -m gpu test/models
profile small 60 --name "small model" --set simulation.image_size=96
profile 7b_bf16 150 --shape 7b --name "7B shape, bfloat16, random weights"
profile 7b_nf4 120 --shape 7b --name "7B shape, NF4, random weights" --repeats 20 \
  --set model.dtype=nf4
profile 7b_int8 120 --shape 7b --name "7B shape, int8, random weights" --repeats 20 \
  --set model.dtype=int8
# Last: every bucket is compiled once, which may use up what is left.
profile 7b_bf16_compiled 330 --shape 7b --name "7B shape, bfloat16, compiled, random weights" \
  --repeats 20 --set model.compile=true
cat "$out/summary.txt"
