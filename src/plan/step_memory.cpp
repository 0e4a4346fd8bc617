#include "plan/step_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <tuple>

#include "plan/message_tally.h"
#include "spec/layout/shard.h"
#include "train/training_run.h"

namespace lockstep {

namespace {

std::int64_t& of(StepMemory::ByTag& bytes, Tag tag) { return bytes[static_cast<std::size_t>(tag)]; }

std::int64_t sum_of(const StepMemory::ByTag& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}

StepMemory::ByTag current_of(const Ledger& ledger) {
  StepMemory::ByTag bytes{};
  for (int t = 0; t < kTags; ++t) bytes[static_cast<std::size_t>(t)] = ledger.current(static_cast<Tag>(t));
  return bytes;
}

// One rank of the run on meta, and a step of it.
class SteppedRank {
 public:
  SteppedRank(const RunSpec& spec, int rank)
      : ranks_(rank, static_cast<int>(spec.layout.ranks()), "world", tally_),
        data_(spec),
        run(spec, Device::meta, "", {.ranks = &ranks_, .data = &data_, .data_of_rank = true}) {
    run.init_weights();
  }
  void step(StepWatch* watch) {
    run.replica().show(watch);
    run.step(0, run.spec().optimizer.learning_rate);
    run.replica().show(nullptr);
  }
  const Model& model() { return run.replica().model(); }
  const RankStep& list() { return run.replica().rank_step(); }
  // Of a unit's weights when they are gathered: all shards, which are equally long.
  std::int64_t whole_bytes(int unit) {
    const Shard shard{.index = 0, .count = run.spec().layout.shards()};
    const UnitLayout& layout = model().unit(unit).layout();
    return (shard.padded(layout.owned()) + shard.padded(layout.frozen())) * size_of(model().dtype());
  }

  StepMemory memory() {
    const RankStep& own = list();
    StepMemory memory{.in_use = {}, .held = current_of(run.ledger())};
    const std::vector<std::int64_t> activations = live_bytes(model().slots(), own.actions, own.shape);
    std::int64_t gathered = 0;
    for (std::size_t i = 0; i < own.actions.size(); ++i) {
      const Action& action = own.actions[i];
      if (action.kind == ActionKind::gather) gathered += whole_bytes(action.unit);
      StepMemory::ByTag now = memory.held;
      of(now, Tag::activation) = activations[i];
      of(now, Tag::gathered) = gathered;
      memory.in_use.push_back(now);
      if (action.kind == ActionKind::release) gathered -= whole_bytes(action.unit);
    }
    return memory;
  }

 private:
  MessageTally tally_;
  CountingCommunicator ranks_;
  RunData data_;

 public:
  TrainingRun run;
};

// What the ledger holds as each action begins.
class LedgerWatch final : public StepWatch {
 public:
  explicit LedgerWatch(const Ledger& ledger) : ledger_(ledger) {}
  void comes_to(std::size_t) override {}
  void runs(const Action&) override { held.push_back(current_of(ledger_)); }
  void is_done_with(const Action&) override {}
  std::vector<StepMemory::ByTag> held;

 private:
  const Ledger& ledger_;
};

std::vector<TensorInUse> tensors_at(SteppedRank& rank, std::size_t action) {
  const RankStep& own = rank.list();
  const auto unit_name = [&](int unit) { return rank.model().unit(unit).layout().name(); };
  std::map<std::tuple<Tag, std::string, std::string>, TensorInUse> all;
  const auto add = [&](Tag tag, const std::string& unit, const std::string& name, std::int64_t bytes, int micros) {
    TensorInUse& one = all[{tag, unit, name}];
    one = {tag, unit, name, one.micros + micros, one.bytes + bytes};
  };
  for (const LiveSlot& live : live_slots(rank.model().slots(), own.actions, own.shape, action)) {
    const SlotSpec& spec = rank.model().slots().all()[static_cast<std::size_t>(live.slot)];
    add(Tag::activation, unit_name(spec.born.unit), spec.name, live.bytes, 1);
  }
  for (std::size_t i = 0; i <= action; ++i) {
    const Action& a = own.actions[i];
    if (a.kind == ActionKind::gather) add(Tag::gathered, unit_name(a.unit), "", rank.whole_bytes(a.unit), 0);
    if (a.kind == ActionKind::release && i < action)
      add(Tag::gathered, unit_name(a.unit), "", -rank.whole_bytes(a.unit), 0);
  }
  for (const auto& [key, count] : rank.run.ledger().rows())
    if (key.first != Tag::activation && key.first != Tag::gathered) add(key.first, key.second, "", count.current, 0);
  std::vector<TensorInUse> largest_first;
  for (const auto& [key, one] : all)
    if (one.bytes > 0) largest_first.push_back(one);
  std::ranges::stable_sort(largest_first, std::greater<>(), &TensorInUse::bytes);
  return largest_first;
}

}  // namespace

StepMemory step_memory(const RunSpec& spec, int rank) {
  SteppedRank stepped(spec, rank);
  stepped.step(nullptr);
  return stepped.memory();
}

std::int64_t MemoryTimeline::in_use(std::size_t action) const { return sum_of(memory.in_use[action]); }

StepMemory::ByTag MemoryTimeline::most_held() const {
  StepMemory::ByTag most{};
  for (const StepMemory::ByTag& now : held)
    for (std::size_t t = 0; t < most.size(); ++t) most[t] = std::max(most[t], now[t]);
  return most;
}

std::int64_t MemoryTimeline::most() const {
  std::int64_t most = 0;
  for (const StepMemory::ByTag& now : held) most = std::max(most, sum_of(now));
  return most;
}

MemoryTimeline memory_timeline(const RunSpec& spec, int rank) {
  SteppedRank stepped(spec, rank);
  LedgerWatch watch(stepped.run.ledger());
  stepped.step(&watch);
  MemoryTimeline line{.rank = rank,
                      .units = {},
                      .actions = stepped.list().actions,
                      .memory = stepped.memory(),
                      .held = std::move(watch.held),
                      .at_peak = {}};
  LOCKSTEP_CHECK(line.held.size() == line.actions.size(), "{} of {} actions ran", line.held.size(),
                 line.actions.size());
  for (int u = 0; u < stepped.model().units(); ++u) line.units.push_back(stepped.model().unit(u).layout().name());
  for (std::size_t i = 1; i < line.actions.size(); ++i)
    if (line.in_use(i) > line.in_use(line.peak)) line.peak = i;
  line.at_peak = tensors_at(stepped, line.peak);
  return line;
}

std::string text_of(const Action& action, const std::vector<std::string>& units) {
  std::string text(name_of(action.kind));
  if (action.unit >= 0) text += " of " + units[static_cast<std::size_t>(action.unit)];
  if (action.micro >= 0) text += fmt::format(", micro-batch {}", action.micro);
  return text;
}

}  // namespace lockstep
