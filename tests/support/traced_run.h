// Runs over thread ranks, through the loop, and what their ranks are told.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "support/trace_check.h"
#include "train/loop.h"

namespace lockstep::tests {

// All that a rank's watcher hears of, to be compared.
struct HeardRun final : Watcher {
  void stepped(const StepRecord& record) override {
    losses.push_back(record.loss);
    norms.push_back(record.grad_norm);
  }
  void timed(std::int64_t, const std::vector<TimesByUse>&, const std::vector<SentByAxis>& own) override {
    for (const SentByAxis& along : own) sent.emplace_back(along.calls, along.bytes);
  }
  void happened(const LoggedEvent& event) override { events.push_back(event); }

  std::vector<double> losses, norms;
  std::vector<std::pair<std::int64_t, std::int64_t>> sent;
  std::vector<LoggedEvent> events;
};

using WrapRank = std::function<std::unique_ptr<Communicator>(std::unique_ptr<Communicator>)>;
std::vector<HeardRun> heard_of(const RunSpec& spec, const WrapRank& wrap = {});

// The trace of two steps of that run, read by the independent checker.
TraceFacts traced_facts(RunSpec spec);

}  // namespace lockstep::tests
