#!/usr/bin/env bash
# Build the wheel, install it into an environment of its own and run the black-box contract in folder $1 on it:
# what is tested is what users install, not src/. By $2 processes (1); CONTRACT_OPTIONS is passed on to pytest.
set -euo pipefail

folder=${1:?usage: tools/contract.sh FOLDER [PROCESSES]}
processes=${2:-1}
if [ ! -d "$folder" ]; then
  echo "contract: $folder is not there, nothing to run"
  exit 0
fi
folder=$(cd "$folder" && pwd)
cd "$(dirname "$0")/.."

# What the wheel and its environment are made of: while nothing of it has changed, those of the last run serve again.
made_of() {
  .venv/bin/python -V
  cat tools/contract.sh
  find src/foldline pyproject.toml constraints.txt README.md LICENSE -type f ! -name '*.pyc' -print0 | sort -z | xargs -0 sha256sum
}
mkdir -p build
now=$(made_of | sha256sum)
if [ "$(cat build/contract-venv/made-of 2>/dev/null)" != "$now" ]; then
  rm -rf build/wheel
  .venv/bin/python -m build --wheel --no-isolation --outdir build/wheel . >build/wheel.log 2>&1 || { cat build/wheel.log >&2; exit 1; }
  # Without a pip of its own, which takes longer to install than all the rest.
  .venv/bin/python -m venv --clear --without-pip build/contract-venv
  .venv/bin/python -m pip --python build/contract-venv/bin/python install --quiet --disable-pip-version-check -c constraints.txt build/wheel/foldline-*.whl pytest pytest-xdist
  echo "$now" >build/contract-venv/made-of
fi

# Nothing is written into the contract's folder, and no configuration of this project applies to it.
cd build
read -r -a options <<<"${CONTRACT_OPTIONS:-}"
PYTHONDONTWRITEBYTECODE=1 exec contract-venv/bin/python -I -m pytest -q -c /dev/null --rootdir "$folder" -p no:cacheprovider -n "$processes" "${options[@]}" "$folder"
