// The ranks of this host, as the leading agent orders them: brought what they need, started, watched, ended.
//
// Of a run whose state is copied between hosts, what this host lacks of the newest copy is brought before its ranks
// start (copy_exchange.h). An order that is taken back meanwhile, or whose processes cannot be started, ends as if its
// ranks had: look() tells it.
//
// One thread.
#pragma once
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launch/copy_exchange.h"
#include "launch/host_ranks.h"

namespace lockstep {

class OrderedRanks {
 public:
  // `command` is HostRanks'; `tell` hears why processes could not be started.
  OrderedRanks(HostRanks::Command command, std::function<void(const std::string& message)> tell)
      : command_(std::move(command)), tell_(std::move(tell)) {}
  void share_copies(CopyExchange::Options options) { exchange_.emplace(std::move(options)); }

  void start(const EpochOrder& order);
  void ask_to_end();
  void kill() { kill({}); }
  void kill(const std::set<int>& ranks);  // none: all

  struct Ended {
    std::uint32_t epoch = 0;
    std::vector<RankEnd> ends = {};
  };
  std::vector<Ended> look();  // starts what waits, and says what has ended or hangs since the last look

  bool running() const { return ranks_.running(); }
  void add_descriptors(std::vector<pollfd>& polled) const { ranks_.add_descriptors(polled); }

 private:
  void start_now(const EpochOrder& order);
  void take_back(int code, bool killed);
  void take_back(EpochOrder& order, const std::set<int>& ranks);
  void end_all_of(const EpochOrder& order, int code, bool killed);

  const HostRanks::Command command_;
  const std::function<void(const std::string&)> tell_;
  HostRanks ranks_;
  std::optional<CopyExchange> exchange_;  // none: there is nothing to bring
  std::optional<EpochOrder> waiting_;     // for it; perhaps without places any more
  std::vector<EpochOrder> after_;         // it, of the same epoch
  bool asked_ = false;                    // it was begun for them
  std::vector<Ended> never_ran_;
};

}  // namespace lockstep
