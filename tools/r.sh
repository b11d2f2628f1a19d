#!/usr/bin/env bash
# Install R's k-NN where it is missing, for benchmarks/accuracy.py, which leaves it out without.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source tools/common.sh

Rscript -e 'library(class)' >/dev/null 2>&1 && exit
apt_install r-cran-class || say "R's package class cannot be installed from here: it is not compared"
