#!/bin/sh
# Gradient descent with momentum in a narrow valley, from the saved step to the last step that is ordered.
set -eu
lr=0.1 momentum=0
for word in "$@"; do
  case $word in
    --lr=*) lr=${word#*=} ;;
    --momentum=*) momentum=${word#*=} ;;
    *) echo "unknown argument: $word" >&2; exit 2 ;;
  esac
done
state=$SHOESTRING_CHECKPOINT/state
[ -f "$state" ] || echo "0 4 3 0 0" > "$state" # step x y vx vy
awk -v lr="$lr" -v m="$momentum" -v until="$SHOESTRING_UNTIL" '{
  x = $2; y = $3; vx = $4; vy = $5
  for (step = $1 + 1; step <= until; step++) {
    vx = m * vx - lr * x; vy = m * vy - lr * 20 * y
    x += vx; y += vy
    if (x > 1e9 || x < -1e9 || y > 1e9 || y < -1e9) { print "{\"step\": " step ", \"value\": Infinity}"; break }
    printf "{\"step\": %d, \"value\": %.12g}\n", step, x * x / 2 + 10 * y * y
  }
  printf "%d %.17g %.17g %.17g %.17g\n", step - 1, x, y, vx, vy > "'"$state.new"'"
}' "$state"
mv "$state.new" "$state"
