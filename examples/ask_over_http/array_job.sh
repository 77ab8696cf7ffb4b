#!/bin/sh
# A Slurm array job whose tasks ask a server what to train, without Ray. First run on the login node:
#
#   shoestring serve --space space.toml --budget '2h' --max-steps 50 --workers 8 --port 8765 --token-file token &
#   sbatch array_job.sh
#
# The token stays in a file that only you can read. A task that Slurm requeues keeps its name, so it continues its order.
#SBATCH --array=0-7
#SBATCH --requeue
#SBATCH --time=01:00:00
#SBATCH --signal=TERM@30
set -eu
server=${SHOESTRING_SERVER:-$SLURM_SUBMIT_HOST}
port=${SHOESTRING_PORT:-8765}
cd "$SLURM_SUBMIT_DIR"

# The server listens on its own machine only, so this opens a tunnel to it. Each job uses its own port on this node.
local_port=$((20000 + (SLURM_JOB_ID % 20000)))
if [ "$server" = localhost ]; then
  local_port=$port
else
  ssh -N -o ExitOnForwardFailure=yes -L "127.0.0.1:$local_port:127.0.0.1:$port" "$server" &
  trap 'kill $!' EXIT
fi

SHOESTRING_ADDRESS="http://127.0.0.1:$local_port" SHOESTRING_TOKEN="$(cat token)" \
  python "${SHOESTRING_WORKER:-worker.py}" "$SLURM_ARRAY_JOB_ID-$SLURM_ARRAY_TASK_ID" --checkpoints checkpoints
