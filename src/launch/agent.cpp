#include "launch/agent.h"

#include <fmt/format.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "base/error.h"
#include "launch/rank_processes.h"
#include "telemetry/event_log.h"
#include "telemetry/process_state.h"
#include "telemetry/rank_now.h"

namespace lockstep {

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point then) { return std::chrono::duration<double>(Clock::now() - then).count(); }

double now_on_the_calendar() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// The last step that metrics.jsonl tells of; its last line may be half written.
std::int64_t last_step_of(const std::filesystem::path& metrics) {
  std::ifstream file(metrics, std::ios::binary | std::ios::ate);
  if (!file) return 0;
  constexpr std::streamoff kTail = 64 << 10;
  const std::streamoff size = file.tellg(), from = std::max<std::streamoff>(0, size - kTail);
  file.seekg(from);
  std::int64_t last = 0;
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json object = nlohmann::json::parse(line, nullptr, false);
    if (!object.is_object()) continue;
    if (const auto step = object.find("step"); step != object.end() && step->is_number_integer())
      last = step->get<std::int64_t>();
  }
  return last;
}

class Agent {
 public:
  explicit Agent(const AgentOptions& options) : options_(options), policy_(options.most_restarts) {}

  int run() {
    for (;;) {
      const RanksEnd end = run_ranks();
      const RestartDecision decision = policy_.decide(end, asked_to_end_);
      if (!decision.restarts) {
        if (decision.reason.empty()) return decision.code;
        log({.kind = EventKind::fault, .step = end.last_step, .text = decision.reason});
        throw EnvironmentError(decision.reason);
      }
      fault_ = {.at = Clock::now(), .step = end.last_step, .resumed_at = end.last_step, .text = decision.reason};
      options_.tell(
          fmt::format("{}; restart {} of at most {}", decision.reason, policy_.restarts(), options_.most_restarts));
      wait_for_folder();
    }
  }

 private:
  struct Fault {
    Clock::time_point at;
    std::int64_t step;
    std::int64_t resumed_at;  // step, as far as is known
    std::string text;
  };
  struct Silence {  // of one rank
    double written = 0;
    Clock::time_point heard = Clock::now(), ran = Clock::now();
  };

  std::filesystem::path metrics() const { return options_.folder / "metrics.jsonl"; }
  std::optional<RankNow> now_of(int rank) const {
    try {
      return read_rank_now(options_.folder / "ranks" / fmt::format("rank-{:05}.now", rank));
    } catch (const UserError&) {
      return std::nullopt;  // of something else: it says nothing of the rank
    }
  }

  RanksEnd run_ranks() {
    const double began = now_on_the_calendar();
    RankProcesses ranks(options_.command(policy_.restarts()));
    std::vector<Silence> silences(static_cast<std::size_t>(options_.ranks));
    auto looked = Clock::now();
    for (;;) {
      if (const auto code = ranks.wait(100ms)) {
        ranks.kill(pids_since(began));  // those of an mpirun that was killed itself
        note_first_step();
        return {.code = *code, .last_step = last_step_of(metrics())};
      }
      if (options_.stop && !asked_to_end_) {
        ranks.ask_to_end();
        asked_to_end_ = true;
      }
      note_first_step();
      if (seconds_since(looked) < 1) continue;
      looked = Clock::now();
      if (const std::string found = find_hung(silences, began); !found.empty()) {
        ranks.kill(pids_since(began));
        return {.code = static_cast<int>(ExitCode::environment), .last_step = last_step_of(metrics()), .found = found};
      }
    }
  }

  // Which rank is hung, and how; empty: none is.
  std::string find_hung(std::vector<Silence>& silences, double began) const {
    for (int rank = 0; rank < options_.ranks; ++rank) {
      Silence& silence = silences[static_cast<std::size_t>(rank)];
      const auto now = now_of(rank);
      const bool of_this_try = now && now->time >= began && now->doing != DoingKind::ended;
      const ProcessState state = of_this_try ? process_state(now->host, now->pid) : ProcessState::unknown;
      if (!of_this_try || state == ProcessState::gone || now->time != silence.written) silence.heard = Clock::now();
      if (state != ProcessState::stopped) silence.ran = Clock::now();
      if (!of_this_try) continue;
      silence.written = now->time;
      if (seconds_since(silence.ran) > kStopped)
        return fmt::format("rank {} (process {}) has been stopped for {:.0f} s", rank, now->pid,
                           seconds_since(silence.ran));
      if (seconds_since(silence.heard) > kSilent)
        return fmt::format("rank {} (process {}) has not been heard from for {:.0f} s", rank, now->pid,
                           seconds_since(silence.heard));
    }
    return "";
  }

  std::vector<pid_t> pids_since(double began) const {
    std::vector<pid_t> pids;
    for (int rank = 0; rank < options_.ranks; ++rank)
      if (const auto now = now_of(rank);
          now && now->time >= began && process_state(now->host, now->pid) != ProcessState::unknown)
        pids.push_back(static_cast<pid_t>(now->pid));
    return pids;
  }

  // The run has overcome its fault when a step is completed in the new try, which cuts metrics.jsonl back to the
  // checkpoint's step and adds to it from there. Where both happen between two looks, the next new step is taken.
  void note_first_step() {
    if (!fault_) return;
    const std::int64_t step = last_step_of(metrics());
    fault_->resumed_at = std::min(fault_->resumed_at, step);
    if (step <= fault_->resumed_at) return;
    const double seconds = seconds_since(fault_->at);
    log({.kind = EventKind::restart, .step = fault_->step, .seconds = seconds, .text = fault_->text});
    options_.tell(fmt::format("step {} is done, {:.1f} s after the fault", step, seconds));
    fault_.reset();
  }

  void wait_for_folder() const {
    for (int i = 0; i < 100 && lock_is_held(options_.folder / ".lock").value_or(false); ++i)
      std::this_thread::sleep_for(100ms);
  }

  void log(LoggedEvent event) const {
    event.time = now_on_the_calendar();
    append_event(options_.folder / "events.jsonl", event);
  }

  const AgentOptions& options_;
  RestartPolicy policy_;
  bool asked_to_end_ = false;
  std::optional<Fault> fault_;  // that no step was completed after yet
};

}  // namespace

int keep_running(const AgentOptions& options) { return Agent(options).run(); }

}  // namespace lockstep
