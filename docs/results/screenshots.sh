#!/usr/bin/env bash
# Shows a page as a reader would see it: screenshots.sh PAGE DIRECTORY
# Light, dark, narrow as on a phone, and printed. Fails if the browser's console has a complaint.
set -euo pipefail
page=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ -z "$browser" ]; then
  echo "skipped: there is no Chromium"
  exit 0
fi
profile=$(mktemp -d)
trap 'rm -rf "$profile"' EXIT
show() {
  "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars \
    --enable-logging=stderr --user-data-dir="$profile" "$@" "file://$page" 2>>"$profile/said"
}
height=${HEIGHT:-6000}
show --screenshot="$out/light.png" --window-size=1000,"$height"
show --screenshot="$out/dark.png" --window-size=1000,"$height" --blink-settings=preferredColorScheme=0
show --screenshot="$out/phone.png" --window-size=500,"$height"
show --print-to-pdf="$out/print.pdf"
if grep CONSOLE "$profile/said"; then
  echo "the page has complaints" >&2
  exit 1
fi
