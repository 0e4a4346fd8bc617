#include "cli/choose.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/output_file.h"
#include "checkpoint/disk.h"
#include "cli/machine_arguments.h"
#include "cli/plan_machine.h"
#include "cli/run_arguments.h"
#include "cli/text_table.h"
#include "plan/layout_walk.h"
#include "spec/run/run_toml.h"
#include "telemetry/number_text.h"
#include "train/run_data.h"

namespace lockstep {

namespace {

struct ChooseSettings {
  RunArguments run;
  MachineArguments machine;
  bool search = false, json = false;
  std::string out;
};

nlohmann::ordered_json layout_json(const TimedLayout& timed, const MachineSpec& machine) {
  nlohmann::ordered_json json{{"layout", to_text(timed.choice.layout)},
                              {"recompute", name_of(timed.choice.recompute)},
                              {"offload_optimizer", timed.choice.offload ? "host" : "none"}};
  json.update(prediction_json(machine, timed.predicted, timed.peak));
  json["fits"] = timed.fits;
  json["limit"] = timed.limit;
  return json;
}

void print_walk(const LayoutWalk& walk) {
  for (std::size_t i = 0; i < walk.steps.size(); ++i) {
    fmt::print("{}. {}\n", i + 1, walk.steps[i].question);
    for (const std::string& line : walk.steps[i].numbers) fmt::print("     {}\n", line);
    fmt::print("   {}\n", walk.steps[i].answer);
  }
}

void print_search(const LayoutSearch& search, const std::optional<TimedLayout>& walked) {
  fmt::print(
      "\n{} combinations were composed from {} shapes of units; {} need too much memory, {} are no run; {} were "
      "planned "
      "and timed in full.\n\n",
      grouped_digits(search.combinations), search.shapes, grouped_digits(search.too_large),
      grouped_digits(search.impossible), search.timed);
  TextTable table{.title = {}, .heads = {"layout", "step", "MFU", "bubble", "memory", "limited by"}, .rows = {}};
  for (const TimedLayout& t : search.best)
    table.rows.push_back(
        {to_text(t.choice), seconds_text(t.predicted.step_seconds), fmt::format("{:.1f} %", 100 * t.predicted.mfu),
         t.predicted.bubble ? fmt::format("{:.1f} %", 100 * *t.predicted.bubble) : "", byte_text(t.peak), t.limit});
  table.drop_empty_columns();
  fmt::print("{}", table.plain());
  const double best = search.best.front().predicted.step_seconds;
  const auto gain = [&](std::string_view over, const std::optional<TimedLayout>& other) {
    if (other)
      fmt::print("{:.2f}x as fast as {} ({}, {})\n", other->predicted.step_seconds / best, over,
                 seconds_text(other->predicted.step_seconds), to_text(other->choice));
    else
      fmt::print("{} does not fit\n", over);
  };
  fmt::print("\n");
  gain("the walk's layout", walked);
  gain("plain dp", search.plain_dp);
}

[[noreturn]] void refuse_machine(const RunSpec& run, const MachineSpec& machine, const RunData& data) {
  const std::optional<Missing> missing = what_is_missing(run, machine, data);
  if (!missing)
    throw UserError(
        ExitCode::does_not_fit,
        fmt::format("no layout spreads {} samples over {} devices", run.train.global_batch, machine.devices()),
        "use a train.global_batch that the devices, or a part of them, divide");
  const TimedLayout& least = missing->smallest;
  throw UserError(
      ExitCode::does_not_fit,
      fmt::format("nothing fits {} devices of {}: {} needs least, {}, and {} are missing on each", machine.devices(),
                  byte_text(machine.memory), to_text(least.choice), byte_text(least.peak),
                  byte_text(least.peak - machine.memory)),
      missing->nodes
          ? fmt::format("use --nodes {}, the fewest doublings of this machine that do, or devices with {}",
                        *missing->nodes, byte_text(least.peak))
          : fmt::format("use devices with {}, a smaller model or a shorter data.seq", byte_text(least.peak)));
}

int choose(ChooseSettings& s) {
  const std::optional<MachineSpec> machine = s.machine.read(s.run);
  if (!machine)
    throw UserError(ExitCode::usage, "choose needs a machine", "add --machine NAME, as in --machine h100-sxm");
  if (machine->kind == MachineSpec::Kind::threads)
    throw UserError(ExitCode::usage, fmt::format("machine {} has threads that share cores", machine->name),
                    "use lockstep compare, which measures layouts where they run");
  RunSpec run = s.run.read_for_any_layout();
  if (run.sync.takes_local_steps())
    throw UserError(ExitCode::usage,
                    fmt::format("sync.kind = \"{}\": layouts are ranked by steps in which all replicas agree",
                                name_of(run.sync.kind)),
                    "use --set sync.kind=full; `lockstep plan --machine` predicts the mean step of one layout");
  run.run.device = RunDevice::cuda;
  run.memory = {};
  const RunData data(run);
  UnitPrices prices(run, *machine, data);
  const ComposedSpace space = compose_all(run, *machine, prices);
  LayoutTimer timer(run, *machine, data);
  const LayoutWalk walk = walk_layouts(timer, space);
  LayoutSearch search;
  if (s.search) {
    SearchOptions options;
    if (walk.result) options.also.push_back(walk.result->choice);
    search = search_layouts(timer, space, options);
  }
  const bool found = s.search ? !search.best.empty() : walk.result.has_value();
  if (!s.json) print_walk(walk);
  if (!found) refuse_machine(run, *machine, data);
  const TimedLayout& best = s.search ? search.best.front() : *walk.result;
  if (s.json) {
    nlohmann::ordered_json json{{"machine", machine->name}, {"devices", machine->devices()}};
    nlohmann::ordered_json steps = nlohmann::ordered_json::array();
    for (const WalkStep& step : walk.steps)
      steps.push_back({{"question", step.question}, {"numbers", step.numbers}, {"answer", step.answer}});
    json["walk"] = steps;
    if (walk.result) json["walked"] = layout_json(*walk.result, *machine);
    if (s.search) {
      nlohmann::ordered_json list = nlohmann::ordered_json::array();
      for (const TimedLayout& t : search.best) list.push_back(layout_json(t, *machine));
      json["layouts"] = list;
      if (search.plain_dp) json["plain_dp"] = layout_json(*search.plain_dp, *machine);
      json["combinations"] = search.combinations;
      json["too_large"] = search.too_large;
      json["impossible"] = search.impossible;
      json["timed"] = search.timed;
    } else {
      json["layouts"] = nlohmann::ordered_json::array({layout_json(best, *machine)});
    }
    fmt::print("{}\n", json.dump(2));
  } else if (s.search) {
    print_search(search, walk.result);
  }
  RunSpec resolved = with_choice(run, best.choice);
  if (!s.out.empty()) {
    const std::string text = to_toml(resolved);
    replace_file(Disk(), s.out, [&](DiskFile& out) { out.write(text.data(), std::ssize(text)); });
  }
  if (!s.json)
    fmt::print(
        "\n--layout {}{}{}\n{} per step, {} tokens/s, MFU {:.1f} %, {} per device{}\n", to_text(best.choice.layout),
        best.choice.recompute == Recompute::none
            ? ""
            : fmt::format(" --set memory.recompute={}", name_of(best.choice.recompute)),
        best.choice.offload ? " --set memory.offload_optimizer=host" : "", seconds_text(best.predicted.step_seconds),
        count_text(best.predicted.tokens_per_second), 100 * best.predicted.mfu, byte_text(best.peak),
        s.out.empty() ? "" : fmt::format("\nrun file: {}", s.out));
  return static_cast<int>(ExitCode::done);
}

}  // namespace

void add_choose(CLI::App& app, std::function<int()>& chosen) {
  auto settings = std::make_shared<ChooseSettings>();
  CLI::App* command = app.add_subcommand("choose", "Choose the layout of a run on a machine, and say why");
  command->footer(
      "Asks what an engineer would ask: does it fit one device, is one device fast enough, tp inside a node, cp for "
      "long\n"
      "samples, pp between nodes, ZeRO and recomputation, micro-batches. Each answer has its numbers; the result is "
      "planned to\n"
      "the byte and timed in full (docs/choosing.md). --search looks at every combination and lists the ten best. "
      "Exit code 3:\n"
      "nothing fits.\n\n"
      "Examples: lockstep choose my.toml --machine h100-sxm --nodes 8\n"
      "          lockstep choose --set model.preset=llama3-70b --set data.seq=8192 --machine h100-sxm --search\n"
      "          lockstep choose my.toml --machine mine.toml --set machine.inter_node.bandwidth=12.5GB/s --out "
      "fast.toml");
  settings->run.add_to(*command);
  settings->machine.add_to(*command)->required();
  command->add_flag("--search", settings->search, "Look at every combination and list the ten best");
  command->add_flag(
      "--json", settings->json,
      "Print {machine, devices, walk[…], walked{…}, layouts[{layout, step_seconds, mfu, …}], plain_dp{…}}");
  command->add_option("--out", settings->out, "Write the run file of the chosen layout here")->type_name("RUN.toml");
  command->callback([settings, &chosen] { chosen = [settings] { return choose(*settings); }; });
}

}  // namespace lockstep
