#!/bin/bash
#SBATCH --job-name=lockstep
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=USR1@300
# sbatch job.sh LOCKSTEP [what `lockstep launch` takes]: one agent per node; each starts the ranks of its node.
#
# Slurm asks the run to end by SIGTERM (preemption, scancel) or, five minutes before the time limit, by SIGUSR1: it
# saves, and launch exits with 75. A job that has to make room or whose time is over is then queued again; there launch
# finds SLURM_RESTART_COUNT and resumes. A job that was cancelled stays cancelled.
lockstep=$1 again=75
shift

srun --kill-on-bad-exit=0 "$lockstep" launch "$@" --stopped-code $again
code=$?
if [ $code -eq $again ]; then
  scontrol requeue "$SLURM_JOB_ID" && exit 0
fi
exit $code
