#!/bin/bash
# An older source tree against this one on a GPU machine without network, in about three minutes: first whether this
# one's kernels and launches are right, then times and bits of both, in turn.
# Usage: bash benchmarks/gpu/trees.sh OUTPUT_FOLDER OLD_SOURCES.tar.xz   (`git archive COMMIT src | xz > OLD_SOURCES.tar.xz`)
out="$1"; old=/tmp/old_tree
mkdir -p "$out" "$old" && tar xJf "$2" -C "$old"
export PYTHONUNBUFFERED=1
more=""
if ! python3 -c "import llvmlite" 2>/dev/null; then
  mkdir -p /tmp/llvm && tar xJf "${LLVM_ARCHIVE:-.device/llvmlite312.tar.xz}" -C /tmp/llvm && more=":/tmp/llvm"
fi
new="PYTHONPATH=$PWD/src:$PWD$more"; before="PYTHONPATH=$old/src:$PWD$more"
{
  env "$new" timeout 60 python3 -m benchmarks.gpu.first
  env "$new" timeout 60 python3 -c "from morpho.cli.machine.device_test import test_device; test_device('cuda:0')"
  for turn in 1 2; do
    for tree in old new; do
      echo "== $tree $turn"
      setting="$new"; [ "$tree" = old ] && setting="$before"
      env "$setting" timeout 50 python3 -m benchmarks.gpu.trees cuda:0 "$out/$tree$turn.json"
    done
  done
  env "$new" python3 -m benchmarks.gpu.trees "$out"/{old1,new1,old2,new2}.json
} 2>&1 | tee "$out/trees.log"
