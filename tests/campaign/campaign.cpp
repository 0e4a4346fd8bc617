// The campaign: faults of every kind, injected into runs of every layout, and what became of them.
//
//   campaign run [--file campaign.jsonl] [--cases 300] [--first 0] [--jobs 4] [--hours 3] [--only KIND] [--seconds S]
//   campaign case SEED [--only KIND]        one case, again; its folder stays where it has failed
//   campaign report [--file campaign.jsonl]
//   campaign recovery [--trials 20] [--ranks 8] [--preset bench-a] [--only threads-death|…]
//   campaign soak [--seconds 3600] [--mean 20]
//
// A case is drawn from its seed (campaign_case.h), so its number says all about it but timing. Results are added to the
// file, a JSON object per case; cases that are in it are not run again. Exit code 1 where a case has hung, is wrong or
// has lost a committed step, or where fewer than 99 % of the culprits were named. For root alone.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <csignal>
#include <fstream>
#include <iostream>
#include <set>
#include <thread>

#include "campaign/campaign_run.h"
#include "campaign/recovery.h"
#include "campaign/run_case.h"
#include "campaign/small_network.h"
#include "support/small_disk.h"

namespace {

namespace fs = std::filesystem;
using namespace lockstep::tests;

struct Settings {
  std::string file = "campaign.jsonl", only, program = LOCKSTEP_BINARY;
  std::int64_t cases = 300, first = 0;
  int jobs = 4, number = 0;
  double hours = 3, seconds = 0, least_named = 99;
  bool fresh = false;
  std::uint64_t seed = 0;
  int trials = 20, ranks = 8;
  std::string preset = "bench-a";
  double mean = 20;
};

std::string command_of(std::uint64_t seed, const std::string& only) {
  return fmt::format("campaign case {}{}", seed, only.empty() ? "" : " --only " + only);
}

std::vector<nlohmann::json> results_in_file(const std::string& file) {
  std::vector<nlohmann::json> all;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);)
    if (auto object = nlohmann::json::parse(line, nullptr, false); object.is_object()) all.push_back(std::move(object));
  return all;
}

int report(const std::string& file, double least_named) {
  struct Row {
    std::int64_t count = 0, asked = 0, named = 0, lost = 0;
    std::vector<double> seconds;
  };
  std::map<std::string, Row> rows;
  Row sum;
  std::int64_t cases = 0, hung = 0, wrong = 0;
  for (const auto& result : results_in_file(file)) {
    ++cases;
    hung += result["hung"] == true ? 1 : 0;
    wrong += result["wrong"] == true ? 1 : 0;
    for (const auto& fault : result["faults"])
      for (Row* row : {&rows[fault["kind"]], &sum}) {
        ++row->count;
        row->asked += fault["asked"] == true ? 1 : 0;
        row->named += fault["asked"] == true && fault["named"] == true ? 1 : 0;
        row->lost += fault["lost"] == true ? 1 : 0;
        row->seconds.push_back(fault["seconds"]);
      }
    if (result["hung"] == true || result["wrong"] == true || result["lost"] == true)
      fmt::print("FAILED {}: {}\n  {}\n", result["seed"].get<std::uint64_t>(), result["case"].get<std::string>(),
                 result["why"].get<std::string>());
  }
  rows["all"] = sum;
  fmt::print(
      "| kind | faults | judged by name | named right | lost | median s | worst s |\n|---|---|---|---|---|---|---|\n");
  for (auto& [kind, row] : rows) {
    std::ranges::sort(row.seconds);
    if (row.count > 0)
      fmt::print("| {} | {} | {} | {} | {} | {:.1f} | {:.1f} |\n", kind, row.count, row.asked, row.named, row.lost,
                 row.seconds[row.seconds.size() / 2], row.seconds.back());
  }
  const double named = sum.asked > 0 ? 100.0 * static_cast<double>(sum.named) / static_cast<double>(sum.asked) : 100;
  fmt::print("{} cases, {} faults: {} hung, {} wrong, {} faults lost a committed step, {:.1f} % named right\n", cases,
             sum.count, hung, wrong, sum.lost, named);
  return hung + wrong + sum.lost > 0 || named < least_named ? 1 : 0;
}

fs::path work_folder() {
  const fs::path path = fs::temp_directory_path() / fmt::format("lockstep-campaign-{}", ::getpid());
  fs::create_directories(path);
  return path;
}

void print(const CaseOutcome& outcome, const std::string& only) {
  std::string all = fmt::format("{} {}\n", outcome.good() ? "ok    " : "FAILED", outcome.the_case.text());
  for (const FaultOutcome& fault : outcome.faults)
    if (!outcome.good() || !fault.named)
      all += fmt::format("       {} at {}: {:.1f} s{}{} {}\n", fault.kind, fault.target, fault.seconds,
                         fault.named ? "" : ", MISNAMED", fault.lost ? ", LOST" : "", fault.said);
  if (!outcome.good()) all += fmt::format("  {}\n  {}\n", outcome.why, command_of(outcome.the_case.seed, only));
  std::cout << all << std::flush;
}

int run(const Settings& s) {
  const auto begun = SteadyClock::now();
  if (s.fresh) fs::remove(s.file);
  std::set<std::uint64_t> done;
  for (const auto& result : results_in_file(s.file)) done.insert(result["seed"].get<std::uint64_t>());
  const fs::path work = work_folder();
  Unbroken unbroken(work);
  std::atomic<std::int64_t> next = s.first;
  std::mutex mutex;
  const double seconds = s.seconds > 0 ? s.seconds : s.hours * 3600;
  const auto work_off = [&](int job) {
    for (std::int64_t seed; (seed = next++) < s.first + s.cases && seconds_since(begun) < seconds;) {
      if (done.contains(static_cast<std::uint64_t>(seed))) continue;
      CampaignCase c = draw_case(static_cast<std::uint64_t>(seed), s.only);
      c.program = s.program;
      const CaseOutcome outcome = run_case(c, work / fmt::format("case-{}", seed), s.number + job, unbroken, true);
      const std::lock_guard lock(mutex);
      if (stop_campaigns) return;
      print(outcome, s.only);
      std::ofstream(s.file, std::ios::app)
          << outcome.to_json().dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
    }
  };
  {
    std::vector<std::jthread> jobs;
    for (int job = 0; job < s.jobs; ++job) jobs.emplace_back(work_off, job);
  }
  std::error_code error;
  fs::remove(work, error);  // which leaves the folders of cases that have failed
  return report(s.file, s.least_named);
}

// One host: median and worst seconds to the next step, after a death or from when a hang was found.
int recovery(const Settings& s) {
  struct Way {
    std::string name;
    RanksAs ranks_as;
    bool hangs;
    int spares;
    std::string on_fault;
    double median, worst;  // seconds, at most
  };
  const std::vector<Way> ways{{"threads-death", RanksAs::threads, false, 0, "restart,wait", 5, 10},
                              {"threads-hang", RanksAs::threads, true, 0, "restart,wait", 5, 10},
                              {"processes-death", RanksAs::processes, false, 0, "restart,wait", 5, 10},
                              {"processes-hang", RanksAs::processes, true, 0, "restart,wait", 5, 10},
                              {"processes-spare", RanksAs::processes, false, 30, "spare,wait", 5, 10},
                              {"processes-shrink", RanksAs::processes, false, 0, "shrink,wait", 15, 15}};
  bool good = true;
  const fs::path work = work_folder();
  for (const Way& way : ways) {
    if (!s.only.empty() && way.name != s.only) continue;
    CampaignCase c{.ranks_as = way.ranks_as,
                   .ranks = s.ranks,
                   .layout = fmt::format("dp={}", s.ranks),
                   .spares = way.spares,
                   .on_fault = way.on_fault,
                   .steps = 1'000'000,
                   .save_every = 10,
                   .disk_megabytes = 2000};
    c.program = s.program;
    c.more = {"--set", "model.preset=" + s.preset, "--set", "precision.compute=fp32"};
    std::vector<double> seconds = recovery_seconds(
        {.the_case = c, .hangs = way.hangs, .trials = s.trials, .most_per_run = way.on_fault == "shrink,wait" ? 3 : 25},
        work / way.name, s.number);
    std::ranges::sort(seconds);
    const double median = seconds[seconds.size() / 2], worst = seconds.back();
    const bool within = median <= way.median && worst <= way.worst;
    good = good && within;
    fmt::print("| {} | {} | {:.2f} | {:.2f} | {} |\n", way.name, seconds.size(), median, worst, within ? "yes" : "NO");
    std::cout << std::flush;
  }
  std::error_code error;
  fs::remove_all(work, error);
  return good ? 0 : 1;
}

int run_soak(const Settings& s) {
  CampaignCase c{.ranks_as = RanksAs::processes,
                 .ranks = 4,
                 .layout = "dp=2,tp=2,zero=1",
                 .on_fault = "restart,wait",
                 .steps = 100'000'000,
                 .save_every = 50,
                 .disk_megabytes = 2000};
  c.program = s.program;
  const fs::path work = work_folder();
  const SoakOutcome o =
      soak({.the_case = c, .seconds = s.seconds > 0 ? s.seconds : 3600, .mean_gap = s.mean}, work / "run", s.number);
  std::error_code error;
  fs::remove_all(work, error);
  const double off = 100 * std::abs(o.goodput - o.simulated);
  fmt::print(
      "{:.0f} s, {} faults, {} steps of {:.1f} ms, a restart takes {:.2f} s: goodput {:.1f} %, simulated {:.1f} % "
      "({:.1f} to {:.1f}), {:.1f} points apart; before the faults {:.1f} ms and {:.2f} s, with which {:.1f} % are "
      "simulated\n",
      o.seconds, o.faults, o.steps, 1000 * o.step_within, o.restart_within, 100 * o.goodput, 100 * o.simulated,
      100 * o.simulated_low, 100 * o.simulated_high, off, 1000 * o.step_seconds, o.restart_seconds,
      100 * o.simulated_before);
  return off <= 5 ? 0 : 1;
}

int one_case(const Settings& s) {
  const fs::path work = work_folder();
  Unbroken unbroken(work);
  CampaignCase c = draw_case(s.seed, s.only);
  c.program = s.program;
  std::cout << c.text() << std::endl;
  const CaseOutcome outcome = run_case(c, work / fmt::format("case-{}", s.seed), s.number, unbroken, true);
  for (const FaultOutcome& fault : outcome.faults)
    fmt::print("  {} at {}: {:.1f} s{}{} {}\n", fault.kind, fault.target, fault.seconds,
               fault.named ? "" : ", MISNAMED", fault.lost ? ", LOST" : "", fault.said);
  print(outcome, s.only);
  if (!outcome.good()) fmt::print("its folder: {}\n", (work / fmt::format("case-{}", s.seed)).string());
  return outcome.good() ? 0 : 1;
}

}  // namespace

int main(int count, char** words) {
  CLI::App app("Injects faults of every kind into runs and judges what becomes of them");
  app.require_subcommand(1);
  Settings s;
  const auto common = [&](CLI::App* command) {
    command->add_option("--file", s.file);
    command->add_option("--only", s.only);
    command->add_option("--program", s.program, "The lockstep that is tried");
    command->add_option("--number", s.number, "Of its networks, where several campaigns run at once");
  };
  CLI::App* const all = app.add_subcommand("run", "Run the cases that are not in the file");
  common(all);
  all->add_option("--cases", s.cases);
  all->add_option("--first", s.first);
  all->add_option("--jobs", s.jobs);
  all->add_option("--hours", s.hours);
  all->add_option("--seconds", s.seconds, "In place of --hours");
  all->add_flag("--fresh", s.fresh, "Forget what is in the file");
  all->add_option("--least-named", s.least_named, "Percent of culprits");
  CLI::App* const one = app.add_subcommand("case", "Run one again");
  common(one);
  one->add_option("seed", s.seed)->required();
  CLI::App* const told = app.add_subcommand("report", "Sum up the file");
  common(told);
  CLI::App* const times = app.add_subcommand("recovery", "How long recovery takes");
  common(times);
  times->add_option("--trials", s.trials);
  times->add_option("--ranks", s.ranks);
  times->add_option("--preset", s.preset);
  CLI::App* const soaked = app.add_subcommand("soak", "Faults for an hour; goodput beside the simulator's");
  common(soaked);
  soaked->add_option("--seconds", s.seconds);
  soaked->add_option("--mean", s.mean, "Seconds between two faults");
  CLI11_PARSE(app, count, words);
  if (told->parsed()) return report(s.file, s.least_named);
  if (::geteuid() != 0) {
    std::cerr << "the campaign needs root: it makes networks, disks and control groups\n";
    return 77;
  }
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) std::signal(number, [](int) { stop_campaigns = true; });
  for (const char* tool : {"ip", "nft", "unshare", "mpirun"})
    if (std::system(fmt::format("command -v {} >/dev/null", tool).c_str()) != 0) {
      std::cerr << "the campaign needs " << tool << "; install iproute2, nftables, util-linux and Open MPI\n";
      return 77;
    }
  try {
    if (times->parsed()) return recovery(s);
    if (soaked->parsed()) return run_soak(s);
    return one->parsed() ? one_case(s) : run(s);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
