// What is done in a drill of three ranks, and how it must end.
//
// kill, stop, leave (SIGTERM twice: exit code 130): every other rank names the right one, at once or when the deadline
// passes, and ends with 5. full_disk, exception (one rank alone cannot write its part of a checkpoint): whoever knows
// the cause tells it, all end with 5. In all of these no process is left and the run goes on from its newest
// checkpoint. pause (stopped, and woken before the deadline): the run goes on, and learns the bits that threads learn.
#pragma once
#include <cstdint>
#include <string>

namespace lockstep::tests {

enum class Harm : std::uint8_t { kill, stop, leave, full_disk, exception, pause };
const char* name_of(Harm harm);

// One round, to another rank each time, under this stage of ZeRO. What was not as it should be, or nothing.
std::string round_of(Harm harm, int zero, int round);

}  // namespace lockstep::tests
