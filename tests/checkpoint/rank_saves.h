// What the tests of several ranks share: a state that every rank holds, saved by all of them together.
#pragma once
#include <memory>
#include <vector>

#include "checkpoint/fake_state.h"
#include "checkpoint/state_share.h"
#include "comm/threads/run_ranks.h"

namespace lockstep::checkpoint_tests {

inline std::vector<StateTensor> share(const FakeState& state, const Communicator& ranks) {
  return share_of_state(state.tensors(), ranks.rank(), ranks.size());
}

// Every rank holds the state of that step and writes its share.
inline void save_by(int ranks, const CheckpointFolder& folder, std::int64_t step,
                    const std::vector<FakeState::Kind>& kinds = FakeState::kinds()) {
  run_ranks(ranks, [&](std::unique_ptr<Communicator> group) {
    FakeState state(1, kinds);
    state.set(step);
    save_checkpoint(folder, progress_at(step), share(state, *group), Disk(), group.get());
  });
}

}  // namespace lockstep::checkpoint_tests
