#!/usr/bin/env bash
# Makes the folder that `kaggle datasets create -p FOLDER` uploads: our wheel, and wheels of what Kaggle's image lacks,
# so that a notebook without internet can install from it. Needs a package index once, here.
#
# usage: scripts/kaggle-dataset.sh VENV [FOLDER]      (FOLDER defaults to dist/kaggle-dataset)
set -euo pipefail
cd "$(dirname "$0")/.."
pip=$1/bin/pip
folder=${2:-dist/kaggle-dataset}

mkdir -p "$folder"
rm -f "$folder"/*.whl
"$pip" wheel --quiet --no-deps --wheel-dir "$folder" .
# Without --no-deps pip would fetch a torch of its own; the image's interpreter is CPython 3.12 on x86-64.
"$pip" download --quiet --no-deps --only-binary=:all: --python-version 3.12 --implementation cp \
    --platform manylinux_2_28_x86_64 --platform manylinux2014_x86_64 --platform manylinux_2_17_x86_64 --platform any \
    --constraint constraints.txt --requirement kaggle/image-lacks.txt --dest "$folder"
cp kaggle/dataset-metadata.json "$folder"
ls -l "$folder"
if grep --quiet your-user-name "$folder/dataset-metadata.json"; then
    printf '\nPut your user name into %s first (and into kaggle/kernel-metadata.json, for the notebook).\n' \
        "$folder/dataset-metadata.json"
fi
cat <<EOT

Then: kaggle datasets create -p $folder        (the next time: kaggle datasets version -p $folder -m "...")
EOT
