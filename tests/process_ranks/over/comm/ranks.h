// The ranks of tests/comm as processes: what those tests include instead of tests/comm/ranks.h when they are built into
// test_mpi and test_tcp, so that the same claims are held over them.
//
// each_rank(n, body) runs the body on the first n processes, as a group of its own, and is skipped where there are
// fewer.
#pragma once
#include "../../../comm/ranks.h"
#include "process_ranks/processes.h"

namespace lockstep::tests {

inline void each_process(int ranks, const std::function<void(Communicator&)>& body, ThreadsOptions = {}) {
  if (ranks > Processes::world().size()) GTEST_SKIP() << ranks << " processes are needed";
  const auto group = Processes::world().split([&](int rank) { return Place{rank < ranks ? 0 : -1, rank}; }, "ranks");
  if (group) body(*group);
}
#define each_rank each_process

}  // namespace lockstep::tests
