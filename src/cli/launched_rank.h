// Which of the processes that a launcher started this is, known before they have met.
//
// A command whose ranks are not processes runs once: the other copies return at once, silently. What all processes
// would report alike, rank 0 reports.
#pragma once
#include <string>

namespace lockstep {

// By what mpirun or torchrun has left in the environment; 0 where this process is alone.
int launched_rank();

// Whether an error that is not of one rank alone is for this process to print. Rank 0 says yes at once. Any other gives
// it the time to: where rank 0 has failed as well, the launcher ends this process meanwhile; where it has not, this one
// has something to say that nobody else will.
bool speaks_for_all();

}  // namespace lockstep
