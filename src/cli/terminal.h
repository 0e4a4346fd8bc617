// Whether what is printed reaches a person's terminal, and may have colours and lines that are written over.
#pragma once

namespace lockstep {

// A terminal that is not dumb (TERM), and not one that a launcher has put between a process and the file or pipe that
// all of them write to: mpirun gives its processes terminals of their own.
bool on_terminal(int descriptor);

// Such a terminal whose user has not asked for no colours (NO_COLOR, no-color.org).
bool takes_colour(int descriptor);

}  // namespace lockstep
