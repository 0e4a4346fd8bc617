#include "campaign/inject.h"

#include <fmt/format.h>
#include <sys/mount.h>

#include <atomic>
#include <csignal>
#include <fstream>
#include <functional>
#include <map>
#include <thread>

#include "campaign/bit_flip.h"
#include "campaign/strangers.h"
#include "support/control_group.h"
#include "support/run_results.h"

namespace lockstep::tests {

namespace fs = std::filesystem;

namespace {

void hold(CampaignRun& run, double seconds) {
  wait_until(run, seconds, [] { return false; });
}

struct Target {
  int rank = 0;
  pid_t pid = -1;
};

// A rank that is at work, drawn; of several those that `others` does not have.
Target pick_rank(CampaignRun& run, Draws& draws, const std::vector<pid_t>& others = {}) {
  Target target;
  wait_until(run, 30, [&] {
    std::map<int, pid_t> ranks = run.ranks();
    std::erase_if(ranks, [&](const auto& one) { return std::ranges::find(others, one.second) != others.end(); });
    if (ranks.empty()) return false;
    const auto at = std::next(ranks.begin(), draws.below(std::ssize(ranks)));
    target = {at->first, at->second};
    return true;
  });
  return target;
}

void blame(Injection& injection, const CampaignRun& run, const Target& target) {
  injection.culprits.push_back(fmt::format("rank {} ", target.rank));
  injection.culprits.push_back(fmt::format("rank {}:", target.rank));
  injection.culprits.push_back(fmt::format("(process {})", target.pid));
  if (run.the_case().ranks_as == RanksAs::threads) {
    injection.culprits.emplace_back("the process of the ranks");
    injection.culprits.emplace_back("the ranks ");
  }
  injection.target +=
      fmt::format("{}rank {} (process {})", injection.target.empty() ? "" : ", ", target.rank, target.pid);
}

void blame_host(Injection& injection, const CampaignRun& run, int host) {
  injection.culprits.push_back(run.host_name(host));
  for (const int rank : run.ranks_of(host)) injection.culprits.push_back(fmt::format("rank {} ", rank));
  injection.culprits.emplace_back("the leading agent is lost");
  injection.target = fmt::format("host {}{}", host, run.leader() == host ? ", whose agent leads" : "");
}

void signal_rank(CampaignRun& run, Draws& draws, Injection& injection, int number) {
  const Target target = pick_rank(run, draws);
  if (target.pid <= 0) return;
  blame(injection, run, target);
  injection.committed = run.newest_checkpoint();
  ::kill(target.pid, number);
}

void out_of_memory(CampaignRun& run, Draws& draws, Injection& injection) {
  const Target target = pick_rank(run, draws);
  if (target.pid <= 0) return;
  blame(injection, run, target);
  injection.committed = run.newest_checkpoint();
  ControlGroup small = ControlGroup::of_memory(48 << 20);
  if (!small) throw std::runtime_error("control groups of memory are not to be had here: /sys/fs/cgroup");
  small.take(target.pid);
  ::kill(target.pid, SIGRTMIN + kLeak);
  wait_until(run, 20, [&] { return !fs::exists(fmt::format("/proc/{}/exe", target.pid)); });
}

void slow_rank(CampaignRun& run, Draws& draws, Injection& injection) {
  const Target target = pick_rank(run, draws);
  if (target.pid <= 0) return;
  injection.target = fmt::format("rank {}", target.rank);
  ControlGroup slow = ControlGroup::of_cores(draws.between(0.1, 0.3));
  if (!slow) throw std::runtime_error("control groups of processors are not to be had here: /sys/fs/cgroup");
  slow.take(target.pid);
  hold(run, draws.between(0.5, 2));
}

void two_at_once(CampaignRun& run, Draws& draws, Injection& injection) {
  const Target one = pick_rank(run, draws);
  const Target other = pick_rank(run, draws, {one.pid});
  if (one.pid <= 0 || other.pid <= 0) return;
  blame(injection, run, one);
  blame(injection, run, other);
  injection.committed = run.newest_checkpoint();
  ::kill(one.pid, draws.below(2) == 0 ? SIGSTOP : SIGKILL);
  ::kill(other.pid, SIGKILL);
}

void in_a_save(CampaignRun& run, Draws& draws, Injection& injection) {
  const Target target = pick_rank(run, draws);
  if (target.pid <= 0) return;
  blame(injection, run, target);
  for (const auto begun = SteadyClock::now(); !run.is_saving() && seconds_since(begun) < 10;) {
    run.tend();
    if (run.ended()) return;
    nap(0.0003);
  }
  nap(draws.between(0, 0.015));
  injection.committed = run.newest_checkpoint();
  ::kill(target.pid, SIGKILL);
}

void in_a_recovery(CampaignRun& run, Draws& draws, Injection& injection) {
  const Target first = pick_rank(run, draws);
  if (first.pid <= 0) return;
  blame(injection, run, first);
  injection.committed = run.newest_checkpoint();
  std::vector<pid_t> before;
  for (const auto& [rank, pid] : run.ranks()) before.push_back(pid);
  ::kill(first.pid, SIGKILL);
  Target second;
  wait_until(run, 30, [&] {
    for (const auto& [rank, pid] : run.ranks())
      if (std::ranges::find(before, pid) == before.end() &&
          (rank != first.rank || run.the_case().ranks_as == RanksAs::threads ||
           run.the_case().ranks_as == RanksAs::mpirun))
        second = {rank, pid};
    return second.pid > 0;
  });
  if (second.pid <= 0) return;
  nap(draws.between(0, 0.1));
  blame(injection, run, second);
  ::kill(second.pid, SIGKILL);
}

void corrupted_checkpoint(CampaignRun& run, Draws& draws, Injection& injection) {
  const Target target = pick_rank(run, draws);
  if (target.pid <= 0) return;
  blame(injection, run, target);
  // With the only one damaged a run cannot resume, and says so.
  wait_until(run, 30, [&] { return run.checkpoints().size() >= 2; });
  const std::int64_t newest = run.newest_checkpoint();
  for (const std::int64_t step : run.checkpoints())
    if (step < newest) injection.committed = step;
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(run.out() / "checkpoints" / fmt::format("step-{:08}", newest), error))
    if (entry.is_regular_file()) files.push_back(entry.path());
  if (!files.empty()) {
    const fs::path file = files[static_cast<std::size_t>(draws.below(std::ssize(files)))];
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    const auto size = static_cast<std::int64_t>(fs::file_size(file, error));
    const std::int64_t at = draws.below(std::max<std::int64_t>(1, size));
    bytes.seekg(at);
    const int byte = bytes.get();
    bytes.seekp(at);
    bytes.put(static_cast<char>(byte ^ (1 << draws.below(8))));
    bytes.close();
    injection.target += fmt::format(", after byte {} of {}", at, fs::relative(file, run.out()).string());
  }
  ::kill(target.pid, SIGKILL);
}

void clock_jump(CampaignRun& run, Draws& draws, Injection& injection) {
  constexpr std::int64_t kSecond = 1'000'000'000;
  const std::int64_t seconds = (draws.below(2) == 0 ? -1 : 1) * (1 + draws.below(draws.below(2) == 0 ? 60 : 200'000));
  injection.target = fmt::format("the calendar, by {} s", seconds);
  run.controls().clock_offset_ns = seconds * kSecond;
  hold(run, draws.between(0.3, 1.5));
  run.controls().clock_offset_ns = 0;
}

// Until a save has failed, or for some seconds.
void wait_for_failed_save(CampaignRun& run, std::size_t failures_before) {
  wait_until(run, 2.5, [&] {
    std::size_t count = 0;
    for (const auto& fault : run.events().rank_faults)
      count += fault.value("text", "").find("checkpoint not saved") != std::string::npos ? 1 : 0;
    return count > failures_before;
  });
}

std::size_t failed_saves(const CampaignRun& run) {
  std::size_t count = 0;
  for (const auto& fault : run.events().rank_faults)
    count += fault.value("text", "").find("checkpoint not saved") != std::string::npos ? 1 : 0;
  return count;
}

void disk_full(CampaignRun& run, Draws& draws, Injection& injection) {
  const bool all = draws.below(3) == 0;
  const SmallDisk& disk = all ? run.disk() : run.checkpoint_disk();
  injection.target = all ? "the run's disk" : "the checkpoints' disk";
  const std::size_t before = failed_saves(run);
  disk.fill();
  wait_for_failed_save(run, before);
  disk.empty();
}

void disk_fails(CampaignRun& run, Injection& injection, bool reads_too, int error) {
  injection.target = "the checkpoints' disk";
  const std::size_t before = failed_saves(run);
  (reads_too ? run.controls().any_error : run.controls().write_error) = error;
  wait_for_failed_save(run, before);
  run.controls().any_error = 0;
  run.controls().write_error = 0;
}

void disk_read_only(CampaignRun& run, Injection& injection) {
  injection.target = "the checkpoints' disk";
  const fs::path at = run.out() / "checkpoints";
  const std::size_t before = failed_saves(run);
  // Not while a file is open to be written there.
  wait_until(run, 5, [&] { return ::mount("none", at.c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) == 0; });
  wait_for_failed_save(run, before);
  ::mount("none", at.c_str(), nullptr, MS_REMOUNT, nullptr);
}

void strangers(CampaignRun& run, Draws& draws, Injection& injection) {
  struct Port {
    int host;
    std::string address;
    int number;
  };
  std::vector<Port> ports;
  for (int host = 0; host < run.the_case().hosts; ++host) {
    std::string address;
    int number = 0;
    if (std::ifstream(run.out() / fmt::format(".launch/agent-{}", host)) >> address >> number)
      ports.push_back({host, address, number});
  }
  int number = 0;
  if (std::ifstream(run.out() / ".control") >> number)
    ports.push_back({std::max(0, run.host_of(0)),
                     run.network() ? run.host_name(std::max(0, run.host_of(0))) : "127.0.0.1", number});
  if (ports.empty()) return;
  const double seconds = draws.between(0.5, 2);
  std::atomic<int> made = 0;
  std::vector<std::jthread> threads;
  for (const Port& port : ports)
    threads.emplace_back([&, port, seed = draws.next()] {
      const auto body = [&] { made += disturb(port.address, port.number, seconds, seed); };
      run.network() ? run.network()->within(port.host, body) : body();
    });
  hold(run, seconds);
  threads.clear();
  injection.target = fmt::format("{} ports, {} connections", ports.size(), made.load());
}

void agent_stopped(CampaignRun& run, Draws& draws, Injection& injection) {
  const int host = static_cast<int>(draws.below(run.the_case().hosts));
  blame_host(injection, run, host);
  const pid_t agent = run.agent_of(host);
  if (agent <= 0) return;
  injection.committed = run.newest_checkpoint();
  ::kill(agent, SIGSTOP);
  nap(draws.between(0.5, run.network() ? 9 : 3));
  ::kill(agent, SIGCONT);
}

void kill_agent(CampaignRun& run, Draws& draws, Injection& injection, int host, bool with_ranks) {
  blame_host(injection, run, host);
  injection.committed = run.newest_checkpoint();
  std::vector<pid_t> pids;
  const std::map<int, pid_t> ranks = run.ranks();
  for (const int rank : run.ranks_of(host)) pids.push_back(ranks.contains(rank) ? ranks.at(rank) : -1);
  run.kill_agent(host, draws.between(0.3, 3));
  if (!with_ranks) return;
  for (const pid_t pid : pids)
    if (pid > 0) ::kill(pid, SIGKILL);
}

void host_ranks_killed(CampaignRun& run, Draws& draws, Injection& injection) {
  const Target one = pick_rank(run, draws);
  const int host = std::max(0, run.host_of(one.rank));
  blame_host(injection, run, host);
  injection.culprits.pop_back();  // the agent lives
  injection.committed = run.newest_checkpoint();
  const std::map<int, pid_t> ranks = run.ranks();
  for (const int rank : run.ranks_of(host))
    if (ranks.contains(rank)) ::kill(ranks.at(rank), SIGKILL);
}

void network_cut(CampaignRun& run, Draws& draws, Injection& injection) {
  const int host = static_cast<int>(draws.below(run.the_case().hosts));
  blame_host(injection, run, host);
  if (run.the_case().hosts == 2) injection.culprits.push_back(run.host_name(1 - host));  // who is it that is cut off?
  injection.committed = run.newest_checkpoint();
  const double seconds = draws.between(0.2, 11);
  injection.target += fmt::format(", for {:.1f} s", seconds);
  run.network()->cut(host, true);
  hold(run, seconds);
  run.network()->cut(host, false);
}

void packet_loss(CampaignRun& run, Draws& draws, Injection& injection) {
  const int host = static_cast<int>(draws.below(run.the_case().hosts));
  const int percent = 2 + static_cast<int>(draws.below(9));
  injection.target = fmt::format("{} % at host {}", percent, host);
  run.network()->lose_packets(host, percent);
  hold(run, draws.between(0.5, 3));
  run.network()->lose_packets(host, 0);
}

}  // namespace

Injection inject(CampaignRun& run, const PlannedFault& fault) {
  Draws draws(fault.seed);
  Injection injection;
  const auto by_signal = [&](int number) { return [&, number] { signal_rank(run, draws, injection, number); }; };
  const auto host_not_leading = [&] {
    const int leader = run.leader(), hosts = run.the_case().hosts;
    return (leader + 1 + static_cast<int>(draws.below(hosts - 1))) % hosts;
  };
  const std::map<std::string_view, std::function<void()>> how{
      {"sigkill", by_signal(SIGKILL)},
      {"sigsegv", by_signal(SIGSEGV)},
      {"sigstop", by_signal(SIGSTOP)},
      {"exit-0", by_signal(SIGRTMIN + kExitZero)},
      {"exit-5", by_signal(SIGRTMIN + kExitFive)},
      {"exception", by_signal(SIGRTMIN + kThrow)},
      {"out-of-memory", [&] { out_of_memory(run, draws, injection); }},
      {"two-at-once", [&] { two_at_once(run, draws, injection); }},
      {"in-a-save", [&] { in_a_save(run, draws, injection); }},
      {"in-a-recovery", [&] { in_a_recovery(run, draws, injection); }},
      {"corrupted-checkpoint", [&] { corrupted_checkpoint(run, draws, injection); }},
      {"bit-flip", [&] { flip_a_bit(run, draws, injection); }},
      {"slow-rank", [&] { slow_rank(run, draws, injection); }},
      {"clock-jump", [&] { clock_jump(run, draws, injection); }},
      {"disk-full", [&] { disk_full(run, draws, injection); }},
      {"disk-error", [&] { disk_fails(run, injection, false, EIO); }},
      {"disk-gone", [&] { disk_fails(run, injection, true, ENODEV); }},
      {"disk-read-only", [&] { disk_read_only(run, injection); }},
      {"strangers", [&] { strangers(run, draws, injection); }},
      {"agent-stopped", [&] { agent_stopped(run, draws, injection); }},
      {"agent-killed", [&] { kill_agent(run, draws, injection, 0, false); }},
      {"host-agent-killed", [&] { kill_agent(run, draws, injection, host_not_leading(), false); }},
      {"leader-killed", [&] { kill_agent(run, draws, injection, run.leader(), draws.below(2) == 0); }},
      {"host-ranks-killed", [&] { host_ranks_killed(run, draws, injection); }},
      {"host-killed", [&] { kill_agent(run, draws, injection, host_not_leading(), true); }},
      {"network-cut", [&] { network_cut(run, draws, injection); }},
      {"packet-loss", [&] { packet_loss(run, draws, injection); }},
  };
  how.at(kFaultKinds[fault.kind].name)();
  if (injection.target.empty()) injection.happened = false;
  return injection;
}

}  // namespace lockstep::tests
