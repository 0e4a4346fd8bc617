#include "cli/plan.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/output_file.h"
#include "checkpoint/disk.h"
#include "cli/choice_option.h"
#include "cli/machine_arguments.h"
#include "cli/placement_view.h"
#include "cli/plan_fit.h"
#include "cli/plan_machine.h"
#include "cli/plan_sweep.h"
#include "cli/plan_timeline.h"
#include "cli/plan_view.h"
#include "cli/run_arguments.h"
#include "cli/usage_error.h"
#include "plan/gathered_room.h"
#include "plan/placement_warning.h"
#include "plan/plan.h"
#include "spec/run/run_extent.h"
#include "spec/text/text_input.h"
#include "train/training_run.h"

namespace lockstep {

namespace {

constexpr int kMostPlannedRanks = 1'000'000;  // as many as a layout may name
constexpr std::int64_t kMostTimedPhases = 1 << 16;

struct TimelineSettings {
  bool wanted = false;
  int rank = -1;  // the fullest
  std::string svg;
};

int show_timeline(const TimelineSettings& s, const RunSpec& spec) {
  if (spec.model.layers * spec.layout.micro > kMostTimedPhases)
    refuse(fmt::format("--timeline: {} layers times {} micro-batches are too many to show", spec.model.layers,
                       spec.layout.micro),
           fmt::format("use fewer, which repeat: {} in all at most", kMostTimedPhases));
  if (spec.layout.unflushed())
    refuse(fmt::format("--timeline with schedule \"{}\": it shows one step, and steps overlap",
                       name_of(spec.layout.schedule)),
           "use --set layout.schedule=1f1b, or leave --timeline out");
  if (s.rank >= spec.layout.ranks())
    refuse(fmt::format("--rank {}: the layout has {} rank{}", s.rank, spec.layout.ranks(),
                       spec.layout.ranks() == 1 ? "" : "s"),
           fmt::format("give 0 to {}", spec.layout.ranks() - 1));
  if (!s.svg.empty()) require_output_file(s.svg, fmt::format("--svg {}", quote_text(s.svg)));
  check_extent(spec);
  const MemoryTimeline line = memory_timeline(spec, s.rank >= 0 ? s.rank : fullest(plan_stages(spec)).rank);
  if (!s.svg.empty()) {
    const std::string picture = timeline_svg(spec, line);
    replace_file(Disk(), s.svg, [&](DiskFile& out) { out.write(picture.data(), std::ssize(picture)); });
  }
  fmt::print("{}", timeline_text(spec, line));
  return static_cast<int>(ExitCode::done);
}

// Consecutive ranks on each node, as launchers start them.
struct OnNodes {
  PlacementCosts costs;
  std::vector<std::string> warnings;
};
OnNodes on_nodes(const RunSpec& spec, const std::vector<Plan>& stages, std::int64_t per_node,
                 const std::optional<NetworkRate>& link = {}) {
  const NodeMap nodes = NodeMap::consecutive(spec.layout.ranks(), per_node);
  const PlacementCosts costs = placement_costs(spec, stages, nodes, route_of(device_of(spec)));
  return {costs, placement_warnings(spec, costs, nodes, link)};
}

}  // namespace

void add_plan(CLI::App& app, std::function<int()>& chosen) {
  auto arguments = std::make_shared<RunArguments>();
  auto layout = std::make_shared<LayoutArguments>();
  auto json = std::make_shared<bool>(false), picture = std::make_shared<bool>(false);
  auto timeline = std::make_shared<TimelineSettings>();
  auto fit = std::make_shared<FitArguments>();
  auto machine = std::make_shared<MachineArguments>();
  auto sweep = std::make_shared<SweepArguments>();
  auto per_node = std::make_shared<std::int64_t>(0);  // not given
  CLI::App* command = app.add_subcommand("plan", "Predict memory and work of a run, to the byte, without running it");
  command->footer(
      "The real set-up and one real step run on a device that holds and computes nothing, and its ledger is printed.\n"
      "Any size works on any machine, and any number of ranks: it is rank 0 that is shown, or, of a pipeline, the "
      "rank\n"
      "that needs most.\n\n"
      "--timeline shows one step from action to action: what of the memory is in use, when most of it is, and by "
      "which\n"
      "tensors. What is held, in use or not, is what the plan says, to the byte.\n\n"
      "--fit searches for the setting with the least predicted step time that fits into the size per rank, or into\n"
      "what is free here: saves that wait, micro-batches, ZeRO, recomputation; with --allow numbers, where these do\n"
      "not do, state in bf16; then offload of optimizer state and activations; then of gradients and weights too.\n"
      "Exit code 3: nothing fits.\n\n"
      "--machine adds the step's time there, its exposed messages by axis, the bubble and MFU (docs/choosing.md).\n\n"
      "--sweep KEY=V1,V2,.. is a row for each value: of a setting of the run, of the machine (machine.KEY), or of "
      "nodes,\n"
      "with which dp grows. Exit code 2: no value is possible.\n\n"
      "--per-node also shows what of a step's messages crosses nodes of so many consecutive ranks, and warns where "
      "tensor-\n"
      "or context-parallel ranks are on several.\n\n"
      "Examples: lockstep plan --set model.preset=llama3.1-405b --set data.seq=8192\n"
      "          lockstep plan my.toml --layout dp=64,zero=3 --set train.global_batch=64\n"
      "          lockstep plan my.toml --layout pp=2,micro=4 --timeline --svg memory.svg\n"
      "          lockstep plan my.toml --layout dp=8 --fit 24GiB\n"
      "          lockstep plan my.toml --layout dp=8,pp=4,tp=8,micro=8 --machine h100-sxm --nodes 32\n"
      "          lockstep plan my.toml --machine h100-sxm --sweep machine.inter_node.bandwidth=12.5GB/s,25GB/s,50GB/s\n"
      "          lockstep plan my.toml --machine h100-sxm --sweep nodes=1,2,4,8 --scaling both --svg scaling.svg\n"
      "          lockstep plan my.toml --layout dp=4,tp=8 --per-node 8");
  arguments->add_to(*command);
  layout->add_to(*command, kMostPlannedRanks, "1");
  command->add_flag("--json", *json,
                    "Print {parameters, …, peak_bytes, steady_bytes, tags{tag: {steady, peak}}, units[…], "
                    "messages{…}, with --per-node placement{…}}; of --fit {limit_bytes, asked, cheapest, too_large[…], "
                    "rates{…}}");
  command->add_flag("--picture", *picture, "Draw the actions of a step instead: a line per unit, a column per phase")
      ->excludes("--json");
  CLI::Option* timed =
      command->add_flag("--timeline", timeline->wanted, "Show memory over one step instead: by phase, tag and tensor");
  timed->excludes("--json")->excludes("--picture");
  command->add_option("--rank", timeline->rank, "Of --timeline: whose memory [the fullest stage's first rank]")
      ->check(CLI::Range(0, kMostPlannedRanks - 1).description(""))
      ->type_name("N")
      ->needs(timed);
  command->add_option("--svg", timeline->svg, "Of --timeline and --sweep: also write it to this file as a picture")
      ->type_name("FILE");
  CLI::Option* fitted =
      command
          ->add_option("--fit", fit->size, "Find the cheapest setting that fits into this much per rank [what is free]")
          ->expected(0, 1)
          ->type_name("[SIZE]");
  fitted->excludes("--picture")->excludes("--timeline");
  command->add_option("--per-node", *per_node, "Ranks of a node: also show what crosses nodes")
      ->check(CLI::Range(1, kMostPlannedRanks).description(""))
      ->type_name("N")
      ->excludes("--picture")
      ->excludes("--timeline")
      ->excludes(fitted);
  add_choice_option(*command, "--allow", fit->change_numbers, Choices<bool>{{"numbers", true}},
                    "Of --fit: also what changes numbers, precision.gradients, moments and master", "nothing")
      ->needs(fitted);
  CLI::Option* on_machine = machine->add_to(*command);
  on_machine->excludes("--picture")->excludes(timed)->excludes(fitted);
  sweep->add_to(*command, *on_machine);
  command->callback([arguments, layout, json, picture, timeline, fit, fitted, machine, per_node, sweep, &chosen] {
    fit->wanted = fitted->count() > 0;
    chosen = [arguments, layout, json, picture, timeline, fit, machine, per_node, sweep] {
      arguments->takes_auto = true;
      if (!timeline->svg.empty() && !timeline->wanted && sweep->text.empty())
        refuse("--svg: there is no picture to write", "add --timeline or --sweep");
      if (!sweep->text.empty()) {
        sweep->svg = timeline->svg;
        sweep->json = *json;
        return show_sweep(*sweep, *arguments, *layout, *machine);
      }
      const std::optional<MachineSpec> on = machine->read(*arguments);
      RunSpec spec = layout->read(*arguments);
      fit->json = *json;
      if (fit->wanted) return show_fit(*fit, spec);
      const bool chooses = spec.memory.gathered == kGatheredAuto;
      resolve_gathered(spec, available_memory(device_of(spec)) / spec.layout.ranks());
      if (timeline->wanted) return show_timeline(*timeline, spec);
      if (*picture && spec.model.layers > kMostDrawnLayers)
        throw UserError(ExitCode::usage, fmt::format("--picture: {} layers are too many to draw", spec.model.layers),
                        fmt::format("use model.layers = {} or less, which repeat", kMostDrawnLayers));
      check_extent(spec);
      const RunData data(spec);
      const std::vector<Plan> stages = plan_stages(spec, data);
      const Plan& plan = fullest(stages);
      std::optional<StepPrediction> predicted;
      if (on) predicted = predict_step(spec, *on, data, stages);
      if (*picture) {
        for (const Plan& stage : stages)
          fmt::print("{}{}\n", stages.size() > 1 ? fmt::format("rank {}\n", stage.rank) : "", stage.picture);
        fmt::print(
            "F forward  I backward, inputs  W backward, weights  N norm  U update\n"
            "= its weights are whole, another unit computes  s its gradient's sum is under way  p it is published\n{}",
            stages.size() > 1 ? "> it is sent to another stage  < it was asked for from one\n" : "");
        return static_cast<int>(ExitCode::done);
      }
      std::optional<OnNodes> nodes;
      if (on && *per_node == 0 && on->kind == MachineSpec::Kind::devices && on->nodes > 1 && spec.layout.servers == 0)
        nodes = on_nodes(spec, stages, on->devices_per_node,
                         NetworkRate{.bytes_per_second = on->inter_node.bandwidth * on->inter_node.efficiency});
      if (*per_node > 0) nodes = on_nodes(spec, stages, *per_node);
      if (*json) {
        nlohmann::ordered_json all = plan_json(spec, plan);
        if (predicted) all.update(prediction_json(*on, *predicted, plan.peak));
        if (nodes) all["placement"] = placement_json(nodes->costs, nodes->warnings);
        fmt::print("{}\n", all.dump(2));
      } else {
        fmt::print("{}{}{}\n\n{}{}\n", plan_table(spec, plan),
                   predicted ? "\n" + prediction_table(spec, *on, *predicted, plan) : "",
                   chooses
                       ? fmt::format("\ngathered     auto: {} MiB may stay, of what is free here", spec.memory.gathered)
                       : "",
                   stages.size() > 1 ? stage_table(stages) + "\n" : "", unit_table(plan));
        if (nodes) fmt::print("\n{}\n", placement_table(nodes->costs, nodes->warnings));
      }
      return static_cast<int>(ExitCode::done);
    };
  });
}

}  // namespace lockstep
