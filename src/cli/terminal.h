// Whether what is printed reaches a person's terminal, and may have colours and lines that are written over.
#pragma once
#include <string>
#include <string_view>

namespace lockstep {

// A terminal that is not dumb (TERM), and not one that a launcher has put between a process and the file or pipe that
// all of them write to: mpirun gives its processes terminals of their own.
bool on_terminal(int descriptor);

// Such a terminal whose user has not asked for no colours (NO_COLOR, no-color.org).
bool takes_colour(int descriptor);

// How wide it is now; 80 where that is not known.
int terminal_columns(int descriptor);

// The beginning of a line of UTF-8 that fills at most this many columns, one for each character. Colours
// ("\033[36m") fill none, and end with the text.
std::string cut_to_columns(std::string_view line, int columns);

// Of fields with two blanks between them, the first ones that fit into this many columns, each of them whole: half a
// number would be another number. Where not even the first fits, as much of it as does.
std::string whole_fields(std::string_view line, int columns);

}  // namespace lockstep
