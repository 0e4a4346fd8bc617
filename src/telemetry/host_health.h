// What the system tells of a thread's share of the cores and of a process's share of the memory.
//
// Read from /proc, a few microseconds each. Nothing where the system does not tell. Any thread may ask.
#pragma once
#include <cstdint>
#include <optional>

#include "telemetry/rank_now.h"

namespace lockstep {

std::int64_t this_thread_id();
// Since the thread began. One that has ended: nothing.
std::optional<RankCpu> cpu_of_thread(std::int64_t thread);
// Of this process: resident bytes of what the host or a control group allows, or bytes of data or addresses of what
// ulimit allows, whichever is nearest to its limit.
std::optional<RankMemory> memory_of_process();

}  // namespace lockstep
