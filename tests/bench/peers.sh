#!/bin/sh
# attnd beside PyTorch and ONNX Runtime, which it installs from PyPI into
# $BUILD/peers, some 6 GB; prints a table for one thread, then for all.
set -eu
BUILD=${BUILD:-build}
python=$BUILD/peers/bin/python

if ! "$python" -c 'import onnxruntime, orjson, safetensors, torch' 2>/dev/null; then
    tests/deps.sh python3-venv
    python3 -m venv "$BUILD/peers"
    "$python" -m pip install --quiet torch onnx onnxruntime orjson safetensors
fi
for threads in 1 "$(nproc)"; do
    "$python" tests/bench/peers.py "$BUILD/attnd" "$threads"
done
