// The ranks that train one model together, as ZeRO sees them: those that share one copy of its state, a shard each, and
// those that hold the same shard of other copies (hybrid sharding). Where there are parameter servers, they are those
// that share the state, and the ranks that compute have no part of it.
//
// With `shard` ranks to a copy, rank r has shard r % shard of copy r / shard. A copy is of consecutive ranks, which the
// canonical sum may sum first (comm/sum_order.h). All ranks construct theirs at the same point. One thread uses it; it
// is destroyed before the communicator of all ranks.
#pragma once
#include <algorithm>
#include <memory>

#include "comm/communicator.h"
#include "parallel/server_links.h"
#include "spec/layout/layout_spec.h"
#include "spec/layout/shard.h"

namespace lockstep {

class ZeroGroups {
 public:
  // `asynchronous`: how parameter servers work.
  ZeroGroups(Communicator& all, const LayoutSpec& layout, bool asynchronous = false)
      : all_(all), shard_{.index = all.rank() % layout.shards(), .count = layout.shards()} {
    const int ranks = static_cast<int>(layout.shards());
    if (layout.dp_kind == DpKind::server) connect_servers(static_cast<int>(layout.replicas()), asynchronous);
    if (links_ || ranks == 1 || ranks == all.size()) return;
    own_sharers_ = all.split([ranks](int r) { return Place{.color = r / ranks, .key = r}; }, "shard");
    across_ = all.split([ranks](int r) { return Place{.color = r % ranks, .key = r}; }, "copies");
  }

  Communicator& all() { return all_; }
  Shard shard() const { return shard_; }
  bool sharded() const { return shard_.count > 1; }
  Communicator& sharers() { return own_sharers_ ? *own_sharers_ : all_; }  // where state is sharded
  Communicator* across() { return across_.get(); }  // none: there is one copy, or nothing is sharded
  ServerLinks* servers() { return links_.get(); }   // none: there are no parameter servers

 private:
  void connect_servers(int workers, bool asynchronous) {
    links_ = std::make_unique<ServerLinks>(all_, workers, asynchronous);
    shard_.index = std::max(0, all_.rank() - workers);
    if (shard_.count > 1)
      own_sharers_ = all_.split([=](int r) { return Place{.color = r < workers ? -1 : 0, .key = r}; }, "shard");
  }

  Communicator& all_;
  Shard shard_;
  std::unique_ptr<Communicator> own_sharers_, across_;
  std::unique_ptr<ServerLinks> links_;
};

}  // namespace lockstep
