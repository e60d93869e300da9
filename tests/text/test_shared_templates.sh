#!/usr/bin/env bash
# The real templates of the shared folder, each with a few conversations, against Python's jinja2.
# The folder and the package are not everywhere: what is missing is said, and the test counts as skipped.
set -euo pipefail
cascadia=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
templates=$root/../shared/templates
[[ -d $templates ]] || { echo "skipped: no templates at $templates"; exit 77; }
for python in /usr/bin/python3 python3; do
    "$python" -c 'import jinja2' 2>/dev/null || continue
    exec "$python" "$root/tests/peers/templates.py" "$cascadia" "$templates" --quick
done
echo "skipped: no python3 with jinja2"
exit 77
