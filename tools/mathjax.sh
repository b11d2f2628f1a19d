#!/usr/bin/env bash
# Put MathJax beside the pages, so that their formulas need no network when they are read. Called by
# `make docs`. Where npm or its registry is missing, the pages get MathML instead and the build
# says so (docs/conf.py).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source tools/common.sh

version=3.2.2
sum=d4295dc33744836935c1399feece5159577b34c5c8ffb9f1c6324cd82e03a882
target=docs/_vendor/mathjax/tex-svg.js

is_right() { [ -e "$1" ] && echo "$sum  $1" | sha256sum --check --status; }

is_right "$target" && exit
command -v npm >/dev/null || { say "no npm, no MathJax: formulas will be MathML"; exit; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# one file: the parser, the output as SVG, and the shapes of all letters
if (cd "$folder" && npm pack --silent "mathjax@$version" >/dev/null 2>&1 &&
    tar xzf "mathjax-$version.tgz" package/es5/tex-svg.js) &&
    is_right "$folder/package/es5/tex-svg.js"; then
    mkdir -p "$(dirname "$target")"
    cp "$folder/package/es5/tex-svg.js" "$target"
    say "MathJax $version for the pages"
else
    say "MathJax $version cannot be had from npm's registry: formulas will be MathML"
fi
