# Read by the bash of a `shell` call before its command: tells the last directory on a private descriptor at the end.
# It is only a claim: the command can replace the trap, close the descriptor or write to it.
unset BASH_ENV
if [ -n "${CORRAL_BASH_ENV-}" ]; then
    export BASH_ENV="$CORRAL_BASH_ENV"
    unset CORRAL_BASH_ENV
    . "$BASH_ENV"
fi
trap '{ set +x; builtin pwd -P >&251; } 2>&- || :' EXIT
