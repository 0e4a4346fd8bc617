#include "telemetry/heartbeat.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "base/error.h"
#include "telemetry/partial_file.h"
#include "telemetry/rank_folder.h"
#include "telemetry/rank_now.h"
#include "telemetry/step_record.h"

namespace lockstep {

namespace {

std::string host_name() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

std::string text_or_empty(const char* text) { return text ? text : ""; }

}  // namespace

Heartbeat::Heartbeat(std::filesystem::path run_folder, const HeartbeatOptions& options)
    : run_folder_(std::move(run_folder)), period_(options.period), host_(host_name()), nvml_(options.nvml) {
  LOCKSTEP_CHECK(period_ > std::chrono::nanoseconds(0), "a period of {} ns", period_.count());
  make_rank_folder(run_folder_);
  thread_ = std::thread([this] { run(); });
}

Heartbeat::~Heartbeat() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stopped_.notify_one();
  thread_.join();
  write_files(true);
}

Doing& Heartbeat::add(int rank, std::vector<std::string> actions, const std::string& gpu) {
  LOCKSTEP_CHECK(rank >= 0 && rank < kMostRanks, "rank {}", rank);
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(ranks_.begin(), ranks_.end(), [&](const Rank& r) { return r.number == rank; });
  Rank& entry = found == ranks_.end() ? ranks_.emplace_back() : *found;
  entry.number = rank;
  entry.doing.keep_durations(nullptr);
  entry.durations = std::make_unique<RecentDurations>(static_cast<std::size_t>(kFirstActionPlace) + actions.size());
  entry.actions = std::move(actions);
  entry.doing.enter(DoingKind::between_steps);
  entry.doing.keep_durations(entry.durations.get());
  entry.end_written = false;
  entry.thread = this_thread_id();
  entry.cpu_before = cpu_of_thread(entry.thread).value_or(RankCpu{});
  entry.cpu.reset();
  entry.gpu.reset();
  if (nvml_ && !gpu.empty()) entry.gpu.emplace(*nvml_, gpu);
  entry.gpu_asked = steady_nanoseconds();
  return entry.doing;
}

void Heartbeat::run() {
  // Signals are for the threads that had them before.
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  for (std::unique_lock lock(mutex_); !stopped_.wait_for(lock, period_, [this] { return stop_; });) {
    lock.unlock();
    write_files(false);
    lock.lock();
  }
}

RankNow Heartbeat::now_of(Rank& rank, const DoingState& state) const {
  std::string action;
  if (state.action >= 0)
    action = state.action < std::ssize(rank.actions) ? rank.actions[static_cast<std::size_t>(state.action)]
                                                     : fmt::format("action {}", state.action);
  const std::int64_t now = steady_nanoseconds(), there = std::max<std::int64_t>(0, now - state.since);
  if (const auto cpu = cpu_of_thread(rank.thread))  // else its thread has ended
    rank.cpu = RankCpu{.ran = cpu->ran - rank.cpu_before.ran, .waited = cpu->waited - rank.cpu_before.waited};
  if (const std::uint64_t stores = rank.doing.stores(); stores != rank.stores) {
    rank.stores = stores;
    rank.moved = now;
  }
  const std::int64_t quiet = std::clamp<std::int64_t>(now - rank.moved, 0, there);
  std::optional<RankGpu> gpu;
  if (rank.gpu) gpu = rank.gpu->sample(static_cast<double>(now - std::exchange(rank.gpu_asked, now)) * 1e-9);
  return {.rank = rank.number,
          .pid = ::getpid(),
          .host = host_,
          .step = state.step,
          .doing = state.kind,
          .action = action,
          .group = text_or_empty(state.group),
          .op = text_or_empty(state.op),
          .call = state.call,
          .seconds = static_cast<double>(there) * 1e-9,
          .time = seconds_since_1970(),
          .quiet = static_cast<double>(quiet) * 1e-9,
          .usual = rank.durations->usual(state.place),
          .cpu = rank.cpu,
          .gpu = gpu};
}

std::vector<Heartbeat::File> Heartbeat::files(bool ending) {
  std::vector<File> files;
  const std::lock_guard lock(mutex_);
  if (const auto memory = memory_of_process(); memory && (!memory_ || memory->share() > memory_->share()))
    memory_ = memory;
  // What is given back after the last step, while the run saves its last state, is no swing.
  const bool trains = !ending && std::ranges::any_of(ranks_, [](const Rank& rank) {
    const std::optional<DoingState> state = rank.doing.load();
    return !rank.end_written && state && state->kind != DoingKind::saving;
  });
  if (const auto held = held_by_process(); held && memory_ && trains) {
    swing_.look(*held);
    memory_->held = *held;
    memory_->swing = swing_.bytes();
  }
  for (Rank& rank : ranks_) {
    if (rank.end_written) continue;
    std::optional<DoingState> state = rank.doing.load();
    if (!state) continue;
    if (ending) state->kind = DoingKind::ended;
    rank.end_written = state->kind == DoingKind::ended;
    RankNow now = now_of(rank, *state);
    now.memory = memory_;
    files.push_back({&rank, rank_file(run_folder_, rank.number, "now"), to_json_line(now)});
  }
  return files;
}

void Heartbeat::write_files(bool ending) noexcept {
  try {
    for (const File& file : files(ending)) {
      try {
        PartialFile out(file.path);
        out.write(file.text);
        out.finish();
      } catch (const EnvironmentError&) {  // the next one is a period later
        const std::lock_guard lock(mutex_);
        file.rank->end_written = false;
      }
    }
  } catch (...) {  // no memory: likewise
  }
}

}  // namespace lockstep
