#include "telemetry/run_reader.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "telemetry/json_line.h"
#include "telemetry/process_state.h"
#include "telemetry/rank_folder.h"
#include "telemetry/step_record.h"

namespace lockstep {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostNamesInALine = 64;

int use_named(std::string_view name) {
  const auto found = std::ranges::find(kTimeUseNames, name);
  return found == kTimeUseNames.end() ? -1 : static_cast<int>(found - kTimeUseNames.begin());
}

template <class To>
void set_number(const JsonScalar& value, To& to) {
  if (const auto number = number_in(value)) to = static_cast<To>(*number);
}

template <class Map>
void set_entry(Map& map, const std::string& key, const JsonScalar& value) {
  if (const auto bytes = whole_number_in(value); bytes && (map.size() < kMostNamesInALine || map.contains(key)))
    map[key] = *bytes;
}

void set_sent(SentOnAxes& sent, JsonKeys keys, const JsonScalar& value) {
  const auto number = whole_number_in(value);
  if (!number || (sent.size() >= kMostNamesInALine && !sent.contains(keys[1]))) return;
  if (keys[2] == "calls") sent[keys[1]].calls = *number;
  if (keys[2] == "bytes") sent[keys[1]].bytes = *number;
}

struct MetricsLine {
  StepPoint point;
  LastStepDetail detail;
  EvaluationPoint evaluation;
  bool is_evaluation = false, is_step = false;

  void take(JsonKeys keys, const JsonScalar& value) {
    const std::string& key = keys[0];
    if (keys.size() == 1) {
      take_field(key, value);
    } else if (keys.size() == 2 && key == "bytes") {
      set_entry(detail.bytes, keys[1], value);
    } else if (keys.size() == 2 && key == "peak_bytes") {
      set_entry(detail.peak_bytes, keys[1], value);
    } else if (keys.size() == 3 && key == "sent") {
      set_sent(detail.sent, keys, value);
    } else if (keys.size() == 3 && key == "uses") {
      take_use(keys, value);
    }
  }

 private:
  void take_field(const std::string& key, const JsonScalar& value) {
    if (key == "step")
      point.step = evaluation.step = whole_number_in(value).value_or(-1);
    else if (key == "loss")
      is_step = true, set_number(value, point.loss);
    else if (key == "loss_z")
      set_number(value, point.loss_z);
    else if (key == "grad_norm")
      set_number(value, point.grad_norm);
    else if (key == "lr")
      set_number(value, point.lr);
    else if (key == "step_ms")
      set_number(value, point.seconds), point.seconds *= 1e-3;
    else if (key == "tokens_per_s")
      set_number(value, point.tokens_per_s);
    else if (key == "mfu")
      set_number(value, point.mfu);
    else if (key == "time")
      set_number(value, point.time), evaluation.time = point.time;
    else if (key == "bubble")
      set_number(value, point.bubble);
    else if (key == "staleness_mean")
      set_number(value, point.staleness);
    else if (key == "divergence")
      set_number(value, point.divergence);
    else if (key == "compression_error")
      set_number(value, point.compression_error);
    else if (key == "updated")
      point.updated = value != JsonScalar(false);
    else if (key == "overflow")
      point.overflow = value == JsonScalar(true);
    else if (key == "slowest_rank")
      point.slowest_rank = rank_in(value);
    else if (key == "eval_loss")
      is_evaluation = true, set_number(value, evaluation.loss);
    else if (key == "eval_accuracy")
      set_number(value, evaluation.accuracy);
  }
  void take_use(JsonKeys keys, const JsonScalar& value) {
    const int use = use_named(keys[1]);
    if (use < 0) return;
    const auto at = static_cast<std::size_t>(use);
    const auto ms = number_in(value);
    if (keys[2] == "mean_ms" && ms) point.mean[at] = static_cast<float>(*ms * 1e-3);
    if (keys[2] == "max_ms" && ms) point.most[at] = static_cast<float>(*ms * 1e-3);
    if (keys[2] == "rank") detail.rank_of_most[at] = std::max(0, rank_in(value));
  }
  static std::int32_t rank_in(const JsonScalar& value) {
    const auto rank = whole_number_in(value);
    return rank && *rank < kMostRanks ? static_cast<std::int32_t>(*rank) : -1;
  }
};

// Drops every second of what is held, so that its steps are multiples of `every`.
template <class Points>
void thin(Points& points, std::int64_t every) {
  std::erase_if(points, [&](const auto& point) { return point.step % every != 0; });
}

// The rank of "rank-00007.jsonl" and "jsonl"; -1: of no rank.
int rank_of_file(const std::string& name, std::string_view ending) {
  constexpr std::string_view kStart = "rank-";
  if (!name.starts_with(kStart) || !name.ends_with(ending) || name.size() <= kStart.size() + ending.size() + 1)
    return -1;
  const char* begin = name.data() + kStart.size();
  const char* end = name.data() + name.size() - ending.size() - 1;
  int rank = -1;
  const auto [stopped, error] = std::from_chars(begin, end, rank);
  return error == std::errc() && stopped == end && *end == '.' && rank >= 0 && rank < kMostRanks ? rank : -1;
}

// The step of "step-00000100"; -1: of none.
std::int64_t step_of_checkpoint(std::string_view name) {
  constexpr std::string_view kStart = "step-";
  if (!name.starts_with(kStart)) return -1;
  std::int64_t step = -1;
  const char* const end = name.data() + name.size();
  const auto [stopped, error] = std::from_chars(name.data() + kStart.size(), end, step);
  return error == std::errc() && stopped == end ? step : -1;
}

}  // namespace

double StepPoint::total() const { return std::accumulate(mean.begin(), mean.end(), 0.0); }

double RankPoint::waited() const {
  double sum = 0;
  for (int use = 0; use < kTimeUses; ++use)
    if (is_wait(static_cast<TimeUse>(use))) sum += uses[static_cast<std::size_t>(use)];
  return sum;
}

double RankPoint::busy() const {
  return seconds - waited() - uses[static_cast<std::size_t>(TimeUse::save)] -
         uses[static_cast<std::size_t>(TimeUse::evaluate)];
}

RunRecords read_run(const fs::path& folder) {
  RunReader reader(folder);
  reader.update();
  return reader.take();
}

void forget_ranks_from(std::int64_t ranks, RunRecords& run) {
  const auto beyond = [&](const auto& entry) { return entry.first >= ranks; };
  std::erase_if(run.ranks, beyond);
  std::erase_if(run.now, beyond);
}

bool looks_like_a_run(const fs::path& folder) {
  std::error_code error;
  return fs::is_regular_file(folder / "metrics.jsonl", error) || fs::is_regular_file(folder / "run.toml", error) ||
         fs::is_directory(folder / "ranks", error) || fs::is_regular_file(launch_file(folder), error);
}

RunReader::RunReader(fs::path folder, const RunReaderOptions& options)
    : options_(options),
      metrics_(folder / "metrics.jsonl"),
      events_(folder / "events.jsonl", options.most_event_bytes),
      log_(folder / "log.txt", 1 << 20) {
  std::error_code error;
  if (!fs::is_directory(folder, error))
    throw UserError(ExitCode::bad_input_file, fmt::format("there is no folder '{}'", folder.string()),
                    "name a run folder: what `lockstep train --out` was given");
  if (!looks_like_a_run(folder))
    throw UserError(ExitCode::bad_input_file,
                    fmt::format("{} is no run folder: there is no metrics.jsonl in it", folder.string()),
                    "name a run folder: what `lockstep train --out` was given");
  run_.folder = std::move(folder);
}

const RunRecords& RunReader::update() {
  run_.read_at = seconds_since_1970();
  std::error_code error;
  const fs::file_time_type written = fs::last_write_time(run_.folder / "plan.json", error);
  if (error) {
    run_.plan = {};
    plan_written_ = {};
  } else if (written != plan_written_) {
    run_.plan = read_run_plan(run_.folder / "plan.json");
    plan_written_ = written;
  }
  read_metrics();
  read_ranks();
  read_launch();
  read_events();
  read_log();
  find_checkpoints();
  run_.bad_lines = 0;
  const auto add_bad = [this](std::string file, std::int64_t lines) {
    if (lines > 0) run_.bad_by_file[std::move(file)] = lines;
    run_.bad_lines += lines;
  };
  add_bad("metrics.jsonl", bad_metrics_);
  add_bad("events.jsonl", bad_events_);
  for (const auto& [number, rank] : run_.ranks)
    add_bad("ranks/" + rank_file("", number, "jsonl").filename().string(), rank.bad_lines);
  run_.running = lock_is_held(run_.folder / ".lock");
  run_.disk_free = run_.disk_bytes = std::nullopt;
  if (const fs::space_info space = fs::space(run_.folder, error); !error) {
    run_.disk_free = static_cast<std::int64_t>(space.available);
    run_.disk_bytes = static_cast<std::int64_t>(space.capacity);
  }
  return run_;
}

void RunReader::read_metrics() {
  metrics_.read(
      [this] {
        run_.steps.clear();
        run_.evaluations.clear();
        run_.last = {};
        run_.mfu = {};
        run_.detail = {};
        run_.goodput.forget_steps();
        run_.every = 1;
        run_.step_lines = run_.not_updated = run_.overflows = bad_metrics_ = 0;
        run_.first_not_updated = run_.first_bad_loss = -1;
        ++run_.generation;
      },
      [this](std::string_view line) { read_metrics_line(line); });
}

void RunReader::read_metrics_line(std::string_view line) {
  MetricsLine read;
  const bool whole = read_json_line(line, [&](JsonKeys keys, const JsonScalar& value) { read.take(keys, value); });
  if (!whole || read.point.step < 0 || !(read.is_step || read.is_evaluation)) {
    ++bad_metrics_;
    return;
  }
  if (read.is_evaluation) {
    run_.evaluations.push_back(read.evaluation);
    if (run_.evaluations.size() > options_.most_steps) {
      std::size_t at = 0;
      std::erase_if(run_.evaluations, [&](const EvaluationPoint&) { return at++ % 2 == 0; });
    }
    return;
  }
  read.point.bytes = read.detail.bytes.empty() ? kUnknown : 0;
  for (const auto& [tag, bytes] : read.detail.bytes) read.point.bytes += static_cast<double>(bytes);
  run_.detail = std::move(read.detail);
  add_step(read.point);
}

void RunReader::add_step(const StepPoint& point) {
  ++run_.step_lines;
  if (point.overflow)
    ++run_.overflows;
  else if (!point.updated && run_.not_updated++ == 0)
    run_.first_not_updated = point.step;
  if (!point.overflow && run_.first_bad_loss < 0 && (!known(point.loss) || !known(point.grad_norm)))
    run_.first_bad_loss = point.step;
  run_.last = point;
  run_.mfu.add(point.mfu, point.seconds);
  run_.goodput.add_step(point.time, point.seconds);
  if (point.step % run_.every != 0) return;
  run_.steps.push_back(point);
  while (run_.steps.size() > options_.most_steps) {
    run_.every *= 2;
    thin(run_.steps, run_.every);
  }
}

void RunReader::find_rank_files() {
  std::error_code error;
  const fs::path folder = run_.folder / "ranks";
  now_files_.clear();
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (const int rank = rank_of_file(name, "jsonl"); rank >= 0)
      rank_lines_.try_emplace(rank, at->path(), options_.most_rank_bytes);
    if (const int rank = rank_of_file(name, "now"); rank >= 0) now_files_[rank] = at->path();
  }
}

void RunReader::read_ranks() {
  find_rank_files();
  const std::int64_t ranks = run_.plan.ranks.value_or(kMostRanks);
  std::erase_if(rank_lines_, [&](const auto& entry) { return entry.first >= ranks; });
  std::erase_if(now_files_, [&](const auto& entry) { return entry.first >= ranks; });
  forget_ranks_from(ranks, run_);
  for (auto& [number, lines] : rank_lines_) {
    RankHistory& rank = run_.ranks[number];
    lines.read([&rank = rank] { rank = {}; },
               [&](std::string_view line) {
                 RankPoint step;
                 BytesOfTags bytes, peak_bytes;
                 SentOnAxes sent;
                 const bool whole = read_json_line(line, [&](JsonKeys keys, const JsonScalar& value) {
                   if (keys.size() == 1 && keys[0] == "step") step.step = whole_number_in(value).value_or(-1);
                   if (keys.size() == 1 && keys[0] == "ms") set_number(value, step.seconds), step.seconds *= 1e-3F;
                   if (keys.size() == 2 && keys[0] == "uses")
                     if (const int use = use_named(keys[1]); use >= 0)
                       step.uses[static_cast<std::size_t>(use)] =
                           static_cast<float>(number_in(value).value_or(0) * 1e-3);
                   if (keys.size() == 2 && keys[0] == "bytes") set_entry(bytes, keys[1], value);
                   if (keys.size() == 2 && keys[0] == "peak_bytes") set_entry(peak_bytes, keys[1], value);
                   if (keys.size() == 3 && keys[0] == "sent") set_sent(sent, keys, value);
                 });
                 if (!whole || step.step < 0) {
                   ++rank.bad_lines;
                   return;
                 }
                 ++rank.lines;
                 rank.steps.push_back(step);
                 if (rank.steps.size() > options_.most_rank_steps) rank.steps.pop_front();
                 rank.sent = std::move(sent);
                 if (!bytes.empty()) rank.bytes = std::move(bytes);
                 if (!peak_bytes.empty()) rank.peak_bytes = std::move(peak_bytes);
               });
  }
  std::erase_if(rank_lines_, [&](const auto& entry) {
    if (!entry.second.exists()) run_.ranks.erase(entry.first);
    return !entry.second.exists();
  });
  run_.now.clear();
  run_.bad_files = 0;
  run_.bad_by_file.clear();
  for (const auto& [rank, file] : now_files_) {
    try {
      if (const auto now = read_rank_now(file))
        run_.now[rank] = {.now = *now, .process = process_state(now->host, now->pid)};
    } catch (const UserError&) {
      ++run_.bad_files;
      run_.bad_by_file["ranks/" + file.filename().string()] = 1;
    }
  }
}

void RunReader::read_launch() {
  run_.launch.reset();
  try {
    run_.launch = read_launch_state(launch_file(run_.folder));
  } catch (const UserError&) {
    ++run_.bad_files;
    run_.bad_by_file["launch.json"] = 1;
  }
}

void RunReader::find_checkpoints() {
  run_.checkpoints.clear();
  std::error_code error;
  for (fs::directory_iterator at(run_.folder / "checkpoints", error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    const std::int64_t step = step_of_checkpoint(name);
    std::error_code missing;
    if (step >= 0 && fs::is_regular_file(at->path() / "manifest.json", missing)) run_.checkpoints[step] = name;
  }
}

void RunReader::read_events() {
  events_.read(
      [this] {
        run_.events.clear();
        run_.step_events.clear();
        run_.goodput.forget_events();
        bad_events_ = 0;
      },
      [this](std::string_view line) {
        std::optional<RunEvent> event = read_run_event(line);
        if (!event) {
          ++bad_events_;
          return;
        }
        run_.goodput.add_event(*event);
        std::deque<RunEvent>& to = event->kind == "step" ? run_.step_events : run_.events;
        to.push_back(std::move(*event));
        if (to.size() > options_.most_events) to.pop_front();
      });
}

void RunReader::read_log() {
  log_.read([this] { run_.log.clear(); },
            [this](std::string_view line) {
              run_.log.emplace_back(line.substr(0, kMostEventText));
              if (run_.log.size() > options_.most_log_lines) run_.log.pop_front();
            });
}

}  // namespace lockstep
