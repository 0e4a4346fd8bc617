// Copies of the state on other hosts: what the ranks of this host have written is mirrored into the memory of another
// host, and what an epoch needs here is brought.
//
// A copy counts as committed only when another host has it, too (checkpoint/state_copy.h): its first rank leaves
// `ready` in the folder, this agent sends the files to the next agent of the list that can be reached, and says
// `mirrored`. Where none can be reached the copy is this host's alone, which is told once; it is tried again after
// kAgain seconds.
//
// Before the ranks of an epoch start, bring() looks on all hosts for the newest step of which every file is somewhere,
// and fetches those that are not here, so that every host has a complete copy of the same step.
//
// All of it runs in threads of its own and over connections of its own: an agent's heartbeats wait for none of it.
// Construction: UserError where the address is none of this machine's. Destroying it ends all transfers.
#pragma once
#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "comm/control/listener.h"
#include "launch/agent_folder.h"
#include "launch/copy_channel.h"
#include "launch/copy_store.h"

namespace lockstep {

class CopyExchange {
 public:
  struct Options {
    std::filesystem::path folder;  // of this host's copies
    int agent = 0, agents = 1;
    std::string address, token;
    AgentFolder& endpoints;  // where the others are found
    std::function<void(const std::string& message)> tell;
  };
  static constexpr double kAgain = 30, kReach = 0.5;  // seconds

  explicit CopyExchange(Options options);
  ~CopyExchange();
  CopyExchange(const CopyExchange&) = delete;
  CopyExchange& operator=(const CopyExchange&) = delete;

  void bring();                                // begins
  bool bringing() const { return bringing_; }  // and has not ended

 private:
  struct Guest;
  void listen();
  void serve(CopyChannel& channel);
  void answer_list(CopyChannel& channel);
  void answer_get(CopyChannel& channel, const nlohmann::json& asked);
  void take_put(CopyChannel& channel, const nlohmann::json& said);

  void push();
  bool push_to_next(const CopyStore::Ready& ready);
  std::unique_ptr<CopyChannel> connect(int agent) const;

  void bring_all();
  bool bring_step(std::int64_t step, const std::map<int, std::set<std::string>>& there,
                  const std::map<int, std::unique_ptr<CopyChannel>>& others) const;

  const Options options_;
  const CopyStore store_;
  const control::Token token_;
  control::Listener listener_;
  std::atomic<bool> stop_ = false, bringing_ = false;
  std::unique_ptr<CopyChannel> next_;  // where copies are mirrored
  int next_agent_ = -1;
  bool told_alone_ = false;
  control::Clock::time_point tried_{};
  std::jthread bringer_, pusher_, server_;
};

}  // namespace lockstep
