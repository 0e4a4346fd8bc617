// What an agent with the token may tell another, one message per line: each is a CommError of one line, or says the
// same when it is written again; an order that an agent would obey names its own slots and nothing but letters of a
// layout and of an address; and an agent that leads, or that inherits what such a leader said, begins only epochs that
// can be. The input's first byte says who speaks first.
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "comm/error.h"
#include "launch/agent_message.h"

namespace {

using namespace lockstep;

constexpr int kAgents = 3, kRanks = 4;

void require(bool claim) {
  if (!claim) std::abort();
}

void check_order(const EpochOrder& order) {
  require(order.epoch > 0 && order.layout.ranks > 0 && is_layout_text(order.layout.text));
  require(!order.places.empty());
  for (const EpochOrder::Place& place : order.places)
    require(place.rank >= 0 && place.rank < order.layout.ranks && place.slot >= 0);
  // What is sent is what the other end would obey.
  const AgentMessage there = parse_agent_message(to_text({.kind = AgentMessageKind::start, .order = order}));
  require(there.order == order);
}

// A leading agent, without the processes.
class Leading {
 public:
  Leading() : leader_(options(), hands(), now_) { leader_.joined(0, {.name = "a", .slots = 2}, now_); }
  Leading(const Epoch& last, const std::set<int>& agents) : Leading() { leader_.inherit(last, agents); }

  void take(int from, const AgentMessage& message) {
    if (message.kind == AgentMessageKind::join) {
      leader_.lost(from, "its agent was started again", now_);
      leader_.joined(from, message.facts, now_);
    }
    for (const RankEnd& end : message.ends) leader_.ended(from, message.epoch, end, now_);
    if (message.kind == AgentMessageKind::stop) leader_.stop();
    tick(1);
  }
  void tick(double seconds) {
    now_ += std::chrono::duration_cast<Leader::Clock::duration>(std::chrono::duration<double>(seconds));
    leader_.tick(now_);
    require(leader_.reason().find('\n') == std::string::npos);
  }

 private:
  static Leader::Options options() {
    Leader::Options all{
        .plan = {.wanted = {.ranks = kRanks}}, .agents = kAgents, .start_seconds = 3, .wait_seconds = 5};
    all.plan.layouts = [](int slots) -> std::optional<LaunchLayout> {
      return LaunchLayout{.ranks = slots, .text = "dp=" + std::to_string(slots)};
    };
    return all;
  }
  Leader::Hands hands() {
    return {.start = [](int agent, const EpochOrder& order) { require(agent >= 0), check_order(order); },
            .ask_to_end = [](int) {},
            .kill = [](int) {},
            .take_epoch = [](std::uint32_t) { return true; },
            .folder_is_free = [] { return true; },
            .last_step = [this] { return ++step_; },
            .blamed_rank = [] { return std::optional<int>(); },
            .tell = [](const std::string& text) { require(text.find('\n') == std::string::npos); },
            .decided = [](const Leader::Hands::Decided&) {}};
  }

  Leader::Clock::time_point now_ = Leader::Clock::now();
  std::int64_t step_ = 0;
  Leader leader_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  Leading leading;
  int from = 1 + data[0] % (kAgents - 1);
  for (int count = 0; !rest.empty() && count < 64; ++count) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    try {
      const AgentMessage message = parse_agent_message(line);
      const std::string text = to_text(message);
      require(to_text(parse_agent_message(text)) == text && text.find('\n') == std::string::npos);
      if (message.kind == AgentMessageKind::start) check_order(message.order);
      if (message.kind == AgentMessageKind::beat && !message.agents.empty()) {
        Leading heir(message.plan, message.agents);
        for (int i = 0; i < 4; ++i) heir.tick(2);
      }
      leading.take(from, message);
    } catch (const CommError& error) {
      const std::string text = error.what();
      require(!text.empty() && text.find('\n') == std::string::npos && text.size() < 1000);
      from = from % (kAgents - 1) + 1;  // its connection is given up: another speaks
    }
  }
  return 0;
}
