#include "cli/schedule.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/output_file.h"
#include "checkpoint/disk.h"
#include "cli/schedule_memory.h"
#include "cli/schedule_view.h"
#include "cli/terminal.h"
#include "cli/usage_error.h"
#include "pictures/pipeline_picture.h"
#include "plan/measured_timeline.h"
#include "spec/text/text_input.h"
#include "telemetry/trace.h"

namespace lockstep {

namespace {

constexpr int kMostMicro = 1024, kMostChunks = 64, kUsualWidth = 100;
constexpr int kMostTokens = 1 << 24, kMostTensorRanks = 1024;
constexpr double kShortest = 1e-3, kLongest = 1e6;  // of a time on the command line

struct ScheduleSettings {
  std::string kind = "1f1b", file, trace, svg, colour = "auto";
  int pp = 4, micro = 8, width = 0;
  std::optional<int> chunks;
  std::optional<std::int64_t> step;
  ScheduleTimes times;
  PlannedRun planned;
  bool compare = false, text = false, json = false;
};

// Text from outside, made fit for a heading.
std::string one_line(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }, '?');
  return text;
}

std::string json_text(const nlohmann::ordered_json& json) {
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

ScheduleKind kind_of(const std::string& word) {
  std::vector<std::string_view> names;
  for (const ScheduleKind kind : kAllScheduleKinds) {
    if (word == name_of(kind)) return kind;
    names.push_back(name_of(kind));
  }
  refuse(fmt::format("--kind {}: there is no such schedule", quote_text(word)),
         fmt::format("did you mean '{}'? There are {}", nearest_word(word, names), fmt::join(names, ", ")));
}

// A NaN passes every comparison, so the parser's range check is not enough.
void check_times(const ScheduleTimes& times) {
  const auto check = [](const char* flag, double time, double least) {
    if (!(time >= least && time <= kLongest))
      refuse(fmt::format("{} {}: it is not a time from {:g} to {:g}", flag, time, least, kLongest),
             "give a number as in 1.5; only their proportions count");
  };
  check("--tf", times.forward, kShortest);
  check("--tb", times.input, kShortest);
  check("--tw", times.weight, kShortest);
  check("--tcomm", times.message, 0);
}

NamedSchedule named(const ScheduleSettings& s, ScheduleKind kind, int chunks) {
  const PipelineShape shape{.stages = s.pp, .micro = s.micro, .chunks = chunks};
  check_schedule(kind, shape, [&](const std::string& problem, const std::string&) {
    refuse(fmt::format("--chunks {}: {}", chunks, problem),
           fmt::format("use --chunks {}{}", usual_chunks(kind),
                       kind == ScheduleKind::zb_v ? "" : ", or --kind interleaved"));
  });
  if (std::int64_t{s.pp} * s.micro * chunks > kMostDrawn)
    refuse(fmt::format("--pp {} with --micro {} and {} chunk{}: more than {} micro-batches of all chunks", s.pp,
                       s.micro, chunks, chunks == 1 ? "" : "s", kMostDrawn),
           "use fewer micro-batches or stages");
  if (!flushes(kind) && s.text)
    refuse(fmt::format("--text of {}: a schedule written by hand is of a step with a flush", name_of(kind)),
           "use --kind 1f1b, whose order it has");
  NamedSchedule out{.name = std::string(name_of(kind)), .schedule = make_schedule(kind, shape), .line = {}};
  if (!flushes(kind)) out.unflushed = kind;
  out.line = timed(out.schedule, s.times);
  return out;
}

NamedSchedule asked(const ScheduleSettings& s) {
  if (s.file.empty()) {
    const ScheduleKind kind = kind_of(s.kind);
    return named(s, kind, s.chunks.value_or(usual_chunks(kind)));
  }
  const std::string text = read_text_file(s.file, kMostScheduleText, ExitCode::usage);
  NamedSchedule out{.name = s.file, .schedule = parse_drawn_schedule(text, s.file, ExitCode::usage), .line = {}};
  out.line = timed(out.schedule, s.times);
  return out;
}

TextPictureOptions drawing_options(const ScheduleSettings& s) {
  const bool terminal = on_terminal(STDOUT_FILENO);
  winsize size{};
  int width = kUsualWidth;
  if (terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) width = size.ws_col;
  return {.width = s.width > 0 ? s.width : width,
          .colour = s.colour == "always" || (s.colour == "auto" && takes_colour(STDOUT_FILENO))};
}

void write_svg(const ScheduleSettings& s, std::span<const PicturePanel> panels, const SvgPictureOptions& options) {
  if (s.svg.empty()) return;
  require_output_file(s.svg, fmt::format("--svg {}", quote_text(s.svg)));
  const std::string text = svg_picture(panels, options);
  replace_file(Disk(), s.svg, [&](DiskFile& out) { out.write(text.data(), std::ssize(text)); });
}

void draw(const ScheduleSettings& s) {
  const NamedSchedule drawn = asked(s);
  const std::string head = one_line(fmt::format("{}: {}", drawn.name, shape_text(drawn.schedule.shape)));
  const PicturePanel panel{.line = drawn.line, .caption = ""};
  const std::string numbers =
      fmt::format("makespan {:g}, bubble {:.1f} %", drawn.line.makespan(), drawn.line.bubble() * 100);
  write_svg(s, {&panel, 1}, {.title = head, .subtitle = numbers});
  if (s.text)
    fmt::print("# {}\n{}", head, to_text(drawn.schedule));
  else if (s.json)
    fmt::print("{}\n", json_text(schedule_json(drawn)));
  else
    fmt::print("{}\n\n{}\n{}", head, text_picture(drawn.line, drawing_options(s)), stage_table(drawn));
}

void compare(const ScheduleSettings& s) {
  std::vector<NamedSchedule> all;
  for (const ScheduleKind kind : kScheduleKinds) {
    const int usual = usual_chunks(kind);
    all.push_back(named(s, kind, kind == ScheduleKind::interleaved ? s.chunks.value_or(usual) : usual));
    all.back().activation_bytes = planned_activations(s.planned, kind, all.back().schedule.shape);
  }
  s.json ? fmt::print("{}\n", json_text(kinds_json(all))) : fmt::print("{}", kinds_table(all, to_text(s.planned)));
}

void show_trace(const ScheduleSettings& s) {
  const Trace trace = read_trace(s.trace);
  const MeasuredTimeline measured = measured_timeline(trace, s.step, s.trace);
  const PipelineTimeline ideal = ideal_timeline(measured, s.times.message * 1e-3);
  const std::string head = one_line(fmt::format("step {}{}{}: {}", measured.step, trace.layout.empty() ? "" : " of ",
                                                trace.layout, shape_text(measured.schedule.shape)));
  const PicturePanel panels[] = {{.line = measured.line, .caption = "measured"}, {.line = ideal, .caption = "ideal"}};
  write_svg(s, panels, {.title = head, .unit = "ms", .scale = 1e3});
  if (s.text) return fmt::print("# {}\n{}", head, to_text(measured.schedule));
  if (s.json) return fmt::print("{}\n", json_text(measured_json(measured, ideal)));
  TextPictureOptions options = drawing_options(s);
  options.horizon = std::max(measured.line.makespan(), ideal.makespan());
  options.unit = "ms";
  options.scale = 1e3;
  fmt::print("{}\n\nmeasured\n{}\nideal: each step takes the median time of its kind, with no other delay\n{}\n{}",
             head, text_picture(measured.line, options), text_picture(ideal, options), measured_table(measured, ideal));
}

int run_schedule(const ScheduleSettings& s) {
  check_times(s.times);
  if (s.colour != "auto" && s.colour != "always" && s.colour != "never")
    refuse(fmt::format("--color {}: it must be auto, always or never", quote_text(s.colour)),
           "auto colours a terminal and nothing else, and none where NO_COLOR is set");
  if (!s.trace.empty())
    show_trace(s);
  else
    s.compare ? compare(s) : draw(s);
  return static_cast<int>(ExitCode::done);
}

}  // namespace

void add_schedule(CLI::App& app, std::function<int()>& chosen) {
  auto s = std::make_shared<ScheduleSettings>();
  CLI::App* command = app.add_subcommand("schedule", "Draw a pipeline's schedule, or what a trace says of one");
  command->footer(
      "Kinds: afab (all forwards, then all backwards), 1f1b, interleaved (several chunks per stage), zb-h1 (backwards "
      "in\n"
      "halves: inputs, and weights where there is a gap), zb-v (the same, two chunks per stage in a V).\n"
      "pipedream and pipedream-2bw change what is learned: 1f1b without a flush at the end of a step, with versions "
      "of\n"
      "the weights; --micro is then of all steps from an empty pipeline to the next.\n"
      "The bubble is the share of all stages' time, from the first step to the last, in which they do nothing.\n"
      "--text prints the schedule with a line per stage: F forward, B backward, I and W its halves, each with its\n"
      "micro-batch, and with @ its chunk where there are several. Change it and give it back by --file.\n"
      "--from-trace draws what a run did in one step, and below it the same work without any delay but the "
      "schedule's;\n"
      "of the ranks of a stage the first one is shown. Exit code 4: it is no trace, or of no pipeline.\n\n"
      "Examples: lockstep schedule --kind zb-h1 --pp 4 --micro 8\n"
      "          lockstep schedule --compare --pp 8 --micro 32 --model llama3-70b --seq 8192 --tp 8\n"
      "          lockstep schedule --kind 1f1b --pp 4 --micro 8 --text > mine.txt\n"
      "          lockstep schedule --file mine.txt --tf 1 --tb 1.2 --tw 0.8 --svg mine.svg\n"
      "          lockstep schedule --from-trace trace.json --svg measured.svg");
  const auto number = [](CLI::Option* option, int least, int most) {
    return option->check(CLI::Range(least, most).description(""))->type_name("N");
  };
  const auto time = [&](const char* flag, double& value, const std::string& help) {
    return command->add_option(flag, value, fmt::format("{} [{:g}]", help, value))->type_name("TIME");
  };
  CLI::Option* kind =
      command->add_option("--kind", s->kind, "afab, 1f1b, interleaved, zb-h1, zb-v, pipedream or pipedream-2bw [1f1b]");
  kind->type_name("KIND");
  CLI::Option* pp = number(command->add_option("--pp", s->pp, "Stages [4]"), 1, kMostStages);
  CLI::Option* micro = number(command->add_option("--micro", s->micro, "Micro-batches [8]"), 1, kMostMicro);
  CLI::Option* chunks =
      number(command->add_option("--chunks", s->chunks, "Chunks per stage [2 of interleaved and zb-v, else 1]"), 1,
             kMostChunks);
  CLI::Option* tf = time("--tf", s->times.forward, "A stage's forward of one micro-batch, all its chunks together");
  CLI::Option* tb = time("--tb", s->times.input, "Its backward, the inputs' half");
  CLI::Option* tw = time("--tw", s->times.weight, "Its backward, the weights' half");
  time("--tcomm", s->times.message, "A message between two stages, beside the steps; with --from-trace in ms");
  CLI::Option* file = command->add_option("--file", s->file, "A schedule written by hand, as --text prints them");
  file->type_name("FILE")->excludes(kind)->excludes(pp)->excludes(micro)->excludes(chunks);
  CLI::Option* compared =
      command->add_flag("--compare", s->compare, "All kinds at this --pp and --micro, in one table, with bytes");
  compared->excludes(kind)->excludes(file);
  command
      ->add_option("--model", s->planned.model,
                   fmt::format("With --compare: the preset whose bytes are shown [{}]", s->planned.model))
      ->type_name("PRESET")
      ->needs(compared);
  number(command->add_option("--seq", s->planned.seq, fmt::format("Its tokens per sample [{}]", s->planned.seq)), 1,
         kMostTokens)
      ->needs(compared);
  number(command->add_option("--tp", s->planned.tp, "Ranks that each layer is split over [1]"), 1, kMostTensorRanks)
      ->needs(compared);
  CLI::Option* trace = command->add_option("--from-trace", s->trace, "A trace of a run with a pipeline");
  trace->type_name("FILE");
  for (CLI::Option* other : {kind, pp, micro, chunks, tf, tb, tw, file, compared}) trace->excludes(other);
  command->add_option("--step", s->step, "Which step of training of the trace [the last complete one]")
      ->type_name("N")
      ->needs(trace);
  CLI::Option* svg = command->add_option("--svg", s->svg, "Also write the picture to this file");
  svg->type_name("FILE")->excludes(compared);
  CLI::Option* text = command->add_flag("--text", s->text, "Print the schedule itself, for --file");
  text->excludes(compared);
  CLI::Option* json = command->add_flag("--json", s->json, "Print shape, bubbles, activations and every step's times");
  json->excludes(text);
  CLI::Option* colour = command->add_option("--color", s->colour, "auto, always or never [auto: on a terminal]");
  colour->type_name("WHEN");
  CLI::Option* width =
      number(command->add_option("--width", s->width,
                                 fmt::format("Columns of the drawing [the terminal's, or {}]", kUsualWidth)),
             30, 10000);
  for (CLI::Option* drawing : {colour, width}) drawing->excludes(compared)->excludes(text)->excludes(json);
  command->callback([s, &chosen] { chosen = [s] { return run_schedule(*s); }; });
}

}  // namespace lockstep
