#include "support/worker_kills.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <sstream>
#include <thread>

#include "spec/layout/layout_toml.h"
#include "support/program.h"
#include "support/run_results.h"
#include "telemetry/arrivals.h"

namespace lockstep::tests {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr double kLongest = 8;  // seconds between two steps, on a machine that does much else
constexpr double kPatience = 40;
constexpr std::int64_t kEvaluated = 5;  // steps

double seconds_since(Clock::time_point then) { return std::chrono::duration<double>(Clock::now() - then).count(); }

// Never a number that stands for others too.
bool signal_process(pid_t pid, int signal) { return pid > 1 && ::kill(pid, signal) == 0; }

std::int64_t lines_in(const fs::path& file) {
  const std::string text = text_of(file);
  return std::ranges::count(text, '\n');
}

class Kills {
 public:
  explicit Kills(const WorkerKills& how) : how_(how), layout_(parse_layout(how.layout)), random_(how.seed) {
    std::ofstream(folder_ / "tiny.toml") << tiny_run(12, 20);
  }

  std::vector<std::string> run() {
    {
      std::vector<std::string> words = arguments("launch", "broken");
      words.insert(words.end(), {"--processes", "--restarts", "1000", "--set", "train.steps=1000000"});
      Program launch(words);
      agent_ = launch.pid();
      if (await([&] { return steps() >= 3; }, "the run does not begin")) {
        for (int kill = 0; kill < how_.kills; ++kill) kill_one();
        const std::int64_t now = steps();
        await([&] { return steps() >= now + 10; }, "it does not go on after the last death");
      }
      launch.signal(SIGTERM);
      const Outcome outcome = launch.wait();
      if (outcome.code != 0) problem("launch has ended with {}: {}", outcome.code, outcome.err);
      if (outcome.err.find("same ranks start again") != std::string::npos)
        problem("all was restarted: {}", outcome.err);
    }
    if (problems_.empty()) look_at_record();
    if (problems_.empty()) repeat();
    return problems_;
  }

 private:
  std::vector<std::string> arguments(const std::string& command, const std::string& out) const {
    std::vector<std::string> all{command, folder_ / "tiny.toml", "--out", folder_ / out, "--layout", how_.layout};
    for (const char* set : {"sync.kind=async", "train.save_every=7", "train.eval_batches=2", "optim.schedule=constant",
                            "optim.lr=1e-3", "train.keep=1"})
      all.insert(all.end(), {"--set", set});
    all.insert(all.end(), {"--set", fmt::format("train.eval_every={}", kEvaluated)});
    all.insert(all.end(), how_.more.begin(), how_.more.end());
    return all;
  }

  template <class... Values>
  void problem(fmt::format_string<Values...> format, Values&&... values) {
    problems_.push_back(fmt::format(format, std::forward<Values>(values)...));
  }
  template <class Done>
  bool await(const Done& done, const std::string& otherwise) {
    const auto began = Clock::now();
    while (!done()) {
      if (seconds_since(began) > kPatience) {
        problem("{}", otherwise);
        return false;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
  }
  std::int64_t steps() const { return lines_in(folder_ / "broken/metrics.jsonl"); }
  int workers() const { return static_cast<int>(layout_.dp * layout_.line()); }

  // At a random moment; those that nobody has killed are the processes that they were.
  void kill_one() {
    std::this_thread::sleep_for(std::chrono::milliseconds(20 + random_() % 300));
    std::map<int, pid_t> now;
    if (!await([&] { return now = ranks_of(agent_), std::ssize(now) == layout_.ranks(); }, "not all ranks are there"))
      return;
    for (const auto& [rank, pid] : now) {
      const auto known = known_.find(rank);
      if (known != known_.end() && known->second != pid) problem("rank {} is another process now", rank);
    }
    known_ = now;
    const int victim = static_cast<int>(random_() % static_cast<unsigned>(workers()));
    const int worker = victim / static_cast<int>(layout_.line());
    signal_process(now.at(victim), SIGKILL);
    for (int rank = 0; rank < workers(); ++rank)
      if (rank / static_cast<int>(layout_.line()) == worker) known_.erase(rank);
    const auto is_gone = [&] {
      const std::map<int, pid_t> there = ranks_of(agent_);
      const auto at = there.find(victim);
      return at == there.end() || at->second != now.at(victim);
    };
    await(is_gone, "a rank that was killed is there");
  }

  void look_at_record() {
    std::int64_t step = 0;
    double before = 0, longest = 0;
    std::vector<double> evaluations;
    std::ifstream metrics(folder_ / "broken/metrics.jsonl");
    for (std::string line; std::getline(metrics, line);) {
      const auto record = nlohmann::json::parse(line);
      if (record.contains("eval_loss")) evaluations.push_back(record["eval_loss"]);
      if (!record.contains("loss")) continue;
      if (record["step"] != ++step) return problem("step {} follows step {}", record["step"].dump(), step - 1);
      const double time = record["time"];
      if (before > 0) longest = std::max(longest, time - before);
      before = time;
    }
    steps_done_ = step;
    if (longest > kLongest) problem("between two steps were {:.1f} s", longest);
    if (evaluations.size() < 2 || !(evaluations.back() < evaluations.front() - 0.05))
      problem("the evaluation loss does not fall: {} evaluations, from {} to {}", evaluations.size(),
              evaluations.empty() ? 0 : evaluations.front(), evaluations.empty() ? 0 : evaluations.back());

    std::set<std::int64_t> tickets;
    for (const Arrival& one : read_arrivals(folder_ / "broken/arrivals.jsonl"))
      if (!tickets.insert(one.ticket).second) problem("ticket {} was applied twice", one.ticket);
    if (std::ssize(tickets) != step * layout_.dp || *tickets.rbegin() != step * layout_.dp - 1)
      problem("{} tickets up to {} were applied in {} steps", tickets.size(), *tickets.rbegin(), step);
    const std::string events = text_of(folder_ / "broken/events.jsonl"),
                      record = text_of(folder_ / "broken/arrivals.jsonl");
    const auto count = [](const std::string& in, const std::string& what) {
      int found = 0;
      for (std::size_t at = in.find(what); at != std::string::npos; at = in.find(what, at + 1)) ++found;
      return found;
    };
    // One that was killed before it had joined was never there.
    const int lost = count(record, R"("change":"lost")"), joined = count(record, R"("change":"joined")");
    if (lost < 1 || lost > how_.kills || joined < lost) problem("{} were lost, and {} have joined", lost, joined);
    const int told = count(events, R"("kind":"fault")");
    if (told < how_.kills || count(events, R"("kind":"leave")") != lost || count(events, R"("kind":"join")") != joined)
      problem("events tell of {} deaths, and not of {} who left and {} who joined", told, lost, joined);
  }

  // The same order, without a death and with ranks that are threads.
  void repeat() {
    std::vector<std::string> words = arguments("train", "again");
    words.insert(words.end(), {"--set", fmt::format("train.steps={}", steps_done_), "--set",
                               "sync.replay=" + (folder_ / "broken/arrivals.jsonl")});
    const Outcome outcome = run_program(words);
    if (outcome.code != 0) return problem("the order cannot be repeated: {}", outcome.err);
    RunResults again = results_in(folder_ / "again");
    const RunResults broken = results_in(folder_ / "broken");
    if (steps_done_ % kEvaluated != 0) again.losses.pop_back();  // a run that was not stopped is evaluated at its end
    const auto [a, b] = std::ranges::mismatch(again.losses, broken.losses);
    if (a != again.losses.end() || b != broken.losses.end())
      problem("the losses of the same order without a death are others: number {} of {} is {}, and of {} {}",
              a - again.losses.begin(), again.losses.size(), a == again.losses.end() ? 0 : *a, broken.losses.size(),
              b == broken.losses.end() ? 0 : *b);
    if (again.files != broken.files) problem("the weights of the same order without a death are others");
  }

  const WorkerKills how_;
  const LayoutSpec layout_;
  std::mt19937 random_;
  TemporaryFolder folder_;
  pid_t agent_ = -1;
  std::map<int, pid_t> known_;  // processes that are to be there still, by rank
  std::int64_t steps_done_ = 0;
  std::vector<std::string> problems_;
};

}  // namespace

std::map<int, pid_t> ranks_of(pid_t agent) {
  std::map<int, pid_t> ranks;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string stat = text_of(entry.path() / "stat");  // "12 (a name) S parent …"
    const std::size_t end = stat.rfind(')');
    if (end == std::string::npos) continue;
    char state = 0;
    pid_t parent = 0;
    std::istringstream(stat.substr(end + 1)) >> state >> parent;
    if (parent != agent || state == 'Z' || state == 'X') continue;
    const std::string all = '\0' + text_of(entry.path() / "environ");
    const std::size_t at = all.find(std::string("\0RANK=", 6));
    if (at != std::string::npos) ranks[std::stoi(all.substr(at + 6))] = static_cast<pid_t>(std::stoi(name));
  }
  return ranks;
}

bool signal_rank(pid_t agent, int rank, int signal) {
  for (int i = 0; i < 2000; ++i, std::this_thread::sleep_for(std::chrono::milliseconds(5)))
    if (const auto ranks = ranks_of(agent); ranks.contains(rank)) return signal_process(ranks.at(rank), signal);
  return false;
}

std::vector<std::string> kill_workers(const WorkerKills& how) { return Kills(how).run(); }

}  // namespace lockstep::tests
