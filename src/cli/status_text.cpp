#include "cli/status_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "telemetry/number_text.h"

namespace lockstep {

namespace {

std::string status_row(std::string_view name, const std::string& text) { return fmt::format("{:<8} {}\n", name, text); }

std::string ago_text(double seconds) { return seconds < 1e-3 ? "now" : seconds_text(seconds) + " ago"; }

// Columns of text, without those that are empty in every row; the last one is as long as it is.
std::string columns_text(std::vector<std::vector<std::string>> rows) {
  const std::vector<std::string> heads = rows.front();
  std::vector<std::size_t> width(heads.size());
  for (std::size_t r = 1; r < rows.size(); ++r)
    for (std::size_t c = 0; c < width.size(); ++c) width[c] = std::max(width[c], rows[r][c].size());
  std::string text;
  for (const std::vector<std::string>& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c)
      if (width[c] > 0) line += fmt::format("{:<{}}  ", row[c], std::max(width[c], heads[c].size()));
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string run_line(const StatusOfRun& s) {
  std::string text = fmt::format("{}: {}, step {}", s.folder, name_of(s.state), s.step);
  if (s.steps) text += fmt::format(" of {}", *s.steps);
  if (s.loss) text += fmt::format(", loss {:.4f}", *s.loss);
  return text + "\n";
}

std::string launch_text(const RunHealth& h) {
  if (!h.launched) return "none: nobody restarts this run";
  std::string text = fmt::format("epoch {}, {} restart{}", h.epoch, h.restarts, h.restarts == 1 ? "" : "s");
  if (!h.leader.empty()) text += fmt::format(", led by {}", h.leader);
  if (!h.layout.empty()) text += fmt::format(", layout {}", h.layout);
  if (h.copy_every) text += fmt::format(", state copied every {} step{}", *h.copy_every, *h.copy_every == 1 ? "" : "s");
  return text + (h.agents ? "" : "; no agent is at work");
}

std::string fault_text(const LastFault& fault, double now) {
  std::string text = known(fault.time) ? ago_text(now - fault.time) : std::string("at an unknown time");
  if (fault.culprit) text += fmt::format(", rank {} to blame", *fault.culprit);
  text += fault.cost_seconds ? fmt::format(", cost {}", seconds_text(*fault.cost_seconds)) : "";
  return text + ": " + fault.text;
}

std::string workers_last_text(const WorkerRecord& workers, double now) {
  if (workers.last.empty()) return "";
  return fmt::format("; {}: {}", known(workers.time) ? ago_text(now - workers.time) : "at the last", workers.last);
}

std::string host_table(const StatusOfRun& s) {
  std::vector<std::vector<std::string>> rows{{"host", "role", "ranks", "agent", "heard", "address"}};
  for (const LaunchedHost& host : s.health.hosts)
    rows.push_back({host.name, std::string(name_of(host.role)), host.ranks.empty() ? "-" : ranges_text(host.ranks),
                    host.pid > 0 ? std::to_string(host.pid) : "-", host.heard > 0 ? ago_text(s.time - host.heard) : "-",
                    host.address});
  return columns_text(std::move(rows));
}

std::string doing_text(const StatusOfRank& rank) {
  std::string text = rank.what;
  if (rank.doing != DoingKind::ended) text += " for " + seconds_text(rank.seconds);
  if (rank.doing != DoingKind::ended && rank.process == ProcessState::gone) text += "; its process is gone";
  if (rank.process == ProcessState::stopped) text += "; its process is stopped";
  return text + (rank.slow ? "; slow" : "");
}

std::string rank_table(const StatusOfRun& s) {
  std::vector<std::vector<std::string>> rows{{"rank", "host", "process", "epoch", "step", "heard", "last"}};
  for (const StatusOfRank& rank : s.ranks)
    rows.push_back({std::to_string(rank.rank), rank.host, std::to_string(rank.pid),
                    rank.epoch > 0 ? std::to_string(rank.epoch) : "", std::to_string(rank.step), ago_text(rank.heard),
                    doing_text(rank)});
  return columns_text(std::move(rows));
}

}  // namespace

std::string goodput_text(const Goodput& goodput) {
  std::string text =
      fmt::format("{:.1f}% of {} in steps that count", 100 * goodput.share(), duration_text(goodput.whole));
  std::string separator = "; ";
  for (const auto& [name, seconds] : goodput.parts()) {
    const double share = goodput.whole > 0 ? seconds / goodput.whole : 0;
    if (name == "steps" || share < 1e-3) continue;
    text += fmt::format("{}{} {:.1f}%", std::exchange(separator, ", "), name, 100 * share);
  }
  return text;
}

std::string ranges_text(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", ranks[i]);
    if (end - i > 1) text += fmt::format("{}{}", end - i > 2 ? "-" : ", ", ranks[end - 1]);
    i = end;
  }
  return text;
}

std::string workers_text(const WorkerRecord& workers) {
  const auto times = [](std::int64_t n) { return n == 1 ? std::string("once") : fmt::format("{} times", n); };
  std::string text = fmt::format("lost {}, joined again {}", times(workers.lost),
                                 workers.joined == 0 ? std::string("never") : times(workers.joined));
  return workers.away.empty()
             ? text
             : fmt::format("{}; away: the worker{} of rank{} {}", text, workers.away.size() == 1 ? "" : "s",
                           workers.away.size() == 1 ? "" : "s", ranges_text(workers.away));
}

std::string status_text(const StatusOfRun& s) {
  std::string text = run_line(s);
  text += status_row("launch", launch_text(s.health));
  if (s.health.goodput) text += status_row("goodput", goodput_text(*s.health.goodput));
  if (s.health.fault) text += status_row("fault", fault_text(*s.health.fault, s.time));
  if (s.health.workers)
    text += status_row("workers", workers_text(*s.health.workers) + workers_last_text(*s.health.workers, s.time));
  if (!s.health.slow.empty()) text += status_row("slow", "ranks " + ranges_text(s.health.slow));
  if (!s.damaged.empty()) text += status_row("damaged", fmt::format("{}", fmt::join(s.damaged, ", ")));
  if (!s.health.hosts.empty()) text += "\n" + host_table(s);
  return text + "\n" + (s.ranks.empty() ? "no rank has said what it does yet\n" : rank_table(s));
}

}  // namespace lockstep
