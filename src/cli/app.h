// The command line. Each command has a file of its own; this one dispatches to them.
#pragma once

namespace lockstep {

// Runs the command `argv` names and returns the process's exit code. Every failure is one line on standard error.
int run_app(int argc, char** argv);

}  // namespace lockstep
