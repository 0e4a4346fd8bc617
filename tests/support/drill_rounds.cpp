#include "support/drill_rounds.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <sstream>
#include <thread>

#include "support/drill.h"
#include "support/run_results.h"
#include "support/small_disk.h"

namespace lockstep::tests {

namespace fs = std::filesystem;

const char* name_of(Harm harm) {
  switch (harm) {
    case Harm::kill:
      return "killed";
    case Harm::stop:
      return "stopped";
    case Harm::leave:
      return "told to leave twice";
    case Harm::full_disk:
      return "a full disk";
    case Harm::exception:
      return "an exception";
    case Harm::pause:
      return "paused";
  }
  return "";
}

std::string name_of_harm(const ::testing::TestParamInfo<std::tuple<Harm, const char*>>& test) {
  std::string name = fmt::format("{} {}", name_of(std::get<0>(test.param)), std::get<1>(test.param));
  std::ranges::replace_if(
      name, [](char c) { return c == ' ' || c == ','; }, '_');
  std::erase(name, '=');
  return name;
}

namespace {

// SIGTERM and SIGINT that are heard as two: the second is sent when the first has been taken.
void terminate_twice(pid_t process) {
  kill(process, SIGTERM);
  for (int i = 0; i < 1000; ++i) {
    std::ifstream status(fmt::format("/proc/{}/status", process));
    std::string line;
    while (std::getline(status, line) && line.rfind("ShdPnd:", 0) != 0) {
    }
    if (line.empty() || !(std::stoull(line.substr(7), nullptr, 16) >> (SIGTERM - 1) & 1)) break;
  }
  kill(process, SIGINT);
}

// Every rank but the victim has ended with 5, in time, and with these words or none where another tells them.
std::string survivors(const Drill::Ended& ended, int victim, const std::vector<std::string>& words, double most) {
  int told = 0;
  for (const auto& [rank, end] : ended.ranks) {
    if (rank == victim) continue;
    if (end.code != 5) return fmt::format("rank {} did not end with 5\n", rank);
    if (end.seconds > most) return fmt::format("rank {} took longer than {} s\n", rank, most);
    bool all = true;
    for (const std::string& word : words) all &= end.words.find(word) != std::string::npos;
    if (!end.words.empty() && !all) return fmt::format("rank {} said something else\n", rank);
    told += all;
  }
  return told > 0 ? "" : "nobody told what happened\n";
}

std::string harm(Harm harm, int victim, double deadline, Drill& drill) {
  const auto ranks = drill.trains();
  if (std::ssize(ranks) != drill.ranks()) return "the run did not begin\n" + drill.end().text();
  const pid_t process = ranks.at(victim);
  drill.did();
  if (harm == Harm::kill) kill(process, SIGKILL);
  if (harm == Harm::stop) kill(process, SIGSTOP);
  if (harm == Harm::leave) terminate_twice(process);
  const Drill::Ended ended = drill.end();
  const bool stopped = harm == Harm::stop;
  const std::string gone = fmt::format("rank {} (process {}) is gone", victim, process);
  const std::string late = fmt::format("rank {} has not come within {} s", victim, deadline);
  // Found at once, or when the deadline passes; and half a second for who is told by others, one for a full machine,
  // and more for each rank that it is too full for.
  const double most = (stopped ? deadline : 0) + 1.5 + 0.25 * std::max(0, drill.ranks() - 3);
  std::string problem = survivors(ended, victim, {stopped ? late : gone}, most);
  if (harm == Harm::leave && ended.ranks.at(victim).code != 130) problem += "the victim did not end with 130\n";
  if (!ended.left.empty()) problem += "a process is left\n";
  if (ended.launcher.code == 0) problem += "mpirun ended with 0\n";
  if (problem.empty()) problem = drill.goes_on();
  return problem.empty() ? "" : problem + ended.text();
}

std::vector<std::string> endless_with_retry(double seconds) {
  std::vector<std::string> more = Drill::endless();
  more.insert(more.end(), {"--set", fmt::format("train.save_retry={}", seconds)});
  return more;
}

std::string fill_disk(int told, Drill& drill) {
  const SmallDisk disk(drill.out(), "size=64m");
  if (!disk) throw std::runtime_error("mount failed");
  drill.start(endless_with_retry(20));
  const auto ranks = drill.trains();
  if (std::ssize(ranks) != drill.ranks()) return "the run did not begin\n" + drill.end().text();
  disk.fill();
  drill.said("the run continues and tries again");
  disk.empty();
  const bool saves = drill.saves_again();
  drill.did();
  kill(ranks.at(told), SIGTERM);
  const Drill::Ended ended = drill.end();
  std::string problem = saves ? "" : "it did not save when there was room\n";
  if (ended.launcher.code != 0) problem += "it did not end with 0\n";
  if (ended.launcher.out.find("checkpoint not saved") == std::string::npos) problem += "it did not tell\n";
  if (!ended.left.empty()) problem += "a process is left\n";
  if (problem.empty()) problem = drill.goes_on();
  return problem.empty() ? "" : problem + ended.text();
}

// From now on one rank may write no file as long as its part of a checkpoint.
std::string throw_in(int victim, Drill& drill) {
  drill.start(endless_with_retry(0.5), {}, "trap '' XFSZ");
  const auto ranks = drill.trains();
  if (std::ssize(ranks) != drill.ranks()) return "the run did not begin\n" + drill.end().text();
  const rlimit limit{4096, 4096};
  if (prlimit(ranks.at(victim), RLIMIT_FSIZE, &limit, nullptr) != 0) return "prlimit failed\n" + drill.end().text();
  drill.said("checkpoint not saved: ");
  drill.did();
  kill(ranks.at((victim + 1) % drill.ranks()), SIGTERM);
  const Drill::Ended ended = drill.end();
  std::string problem =
      survivors(ended, -1, {fmt::format("rank {}: ", victim), "File too large", "could not be saved"}, 10);
  if (!ended.left.empty()) problem += "a process is left\n";
  for (const auto& [rank, end] : ended.ranks)
    if (rank != victim && !end.words.empty()) problem += fmt::format("rank {} speaks for rank {}\n", rank, victim);
  if (problem.empty()) problem = drill.goes_on();
  return problem.empty() ? "" : problem + ended.text();
}

std::string pause_one(int victim, const std::string& layout, const TemporaryFolder& folder, Drill& drill) {
  const std::vector<std::string> more{"--set", "train.steps=100", "--set", "train.save_every=10"};
  drill.start(more);
  const auto ranks = drill.trains();
  if (std::ssize(ranks) != drill.ranks()) return "the run did not begin\n" + drill.end().text();
  drill.did();
  kill(ranks.at(victim), SIGSTOP);
  std::this_thread::sleep_for(std::chrono::milliseconds(1200));
  kill(ranks.at(victim), SIGCONT);
  const Drill::Ended ended = drill.end();
  if (ended.launcher.code != 0) return "it did not go on\n" + ended.text();
  for (const auto& [rank, end] : ended.ranks)
    if (end.seconds < 1.2) return "it had ended before it was paused\n";
  const Outcome threads = run_program({"train", folder / "tiny.toml", "--out", folder / "threads", "--layout", layout,
                                       "--set", "train.steps=100", "--set", "train.save_every=10"});
  const RunResults mine = results_in(drill.out()), theirs = results_in(folder / "threads");
  if (threads.code != 0 || mine.losses.size() < 100 || mine.files.empty()) return "nothing was learned\n" + threads.err;
  return mine == theirs ? "" : "other bits than threads learn\n";
}

}  // namespace

std::string round_of(Harm kind, const std::string& layout, int round) {
  const TemporaryFolder folder;
  const double deadline = kind == Harm::stop ? 3 : 5;
  Drill drill(folder, layout, deadline);
  const int victim = round % drill.ranks();
  if (kind == Harm::full_disk) return fill_disk(victim, drill);
  if (kind == Harm::exception) return throw_in(victim, drill);
  if (kind == Harm::pause) return pause_one(victim, layout, folder, drill);
  drill.start(Drill::endless());
  return harm(kind, victim, deadline, drill);
}

}  // namespace lockstep::tests
