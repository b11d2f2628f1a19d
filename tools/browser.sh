#!/usr/bin/env bash
# Install Chromium where there is none, for the tests that open the pages; they are skipped without.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source tools/common.sh

for name in chromium chromium-browser google-chrome; do
    command -v "$name" >/dev/null && exit
done
apt_install chromium || say "Chromium cannot be installed from here: the pages will not be opened"
