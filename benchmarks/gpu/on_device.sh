#!/bin/bash
# Everything for one visit to a GPU machine without network. LLVM is unpacked from LLVM_ARCHIVE where Python has none.
# Usage: bash benchmarks/gpu/on_device.sh OUTPUT_FOLDER PARTS...
out="$1"; shift
mkdir -p "$out"
export PYTHONUNBUFFERED=1 PYTHONPATH="$PWD/src:$PWD"
if ! python3 -c "import llvmlite" 2>/dev/null; then
  mkdir -p /tmp/llvm && tar xJf "${LLVM_ARCHIVE:-.device/llvmlite312.tar.xz}" -C /tmp/llvm && export PYTHONPATH="$PYTHONPATH:/tmp/llvm"
fi
python3 -c "import llvmlite, numpy, sys; print(sys.version, llvmlite.__version__, numpy.__version__)"
for part in "$@"; do
  echo "== $part"
  case "$part" in
    first) timeout 120 python3 -m benchmarks.gpu.first 2>&1 | tee "$out/first.log" | tail -60 ;;
    kernels*) name="kernels$(echo "${part#kernels}" | tr -c "a-z0-9" "_")"
      timeout 175 python3 -m benchmarks.gpu.kernels cuda:0 "$out/$name.json" "$(echo "${part#kernels}" | tr -d :)" 2>&1 | tee "$out/$name.log" | tail -60 ;;
    test) timeout 100 python3 -c "from morpho.cli.machine.device_test import test_device; test_device('cuda:0')" 2>&1 | tee "$out/test.log" | tail -50 ;;
    doctor) timeout 30 python3 -c 'from morpho.cli.machine import doctor; doctor.show()' 2>&1 | tee "$out/doctor.log" | head -30 ;;
    queueing) timeout 90 python3 -m benchmarks.gpu.queueing 2>&1 | tee "$out/queueing.log" | tail -80 ;;
    steps) timeout 90 python3 -m benchmarks.gpu.steps 2>&1 | tee "$out/steps.log" | tail -40
      timeout 60 python3 -m benchmarks.gpu.steps cuda:0 1 128 2>&1 | tee "$out/steps1.log" | tail -40 ;;
    transfers) timeout 60 python3 -m benchmarks.gpu.transfers 2>&1 | tee "$out/transfers.log" | tail -50 ;;
    table*) timeout 200 python3 -m benchmarks.gpu.table cuda:0 "${part#table}" "$out/table.json" 2>&1 | tee "$out/table.log" | tail -40 ;;
  esac
done
