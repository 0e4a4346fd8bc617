#include "cli/plan_sweep.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/output_file.h"
#include "checkpoint/disk.h"
#include "cli/choice_option.h"
#include "cli/plan_machine.h"
#include "cli/usage_error.h"
#include "plan/gathered_room.h"
#include "spec/run/run_extent.h"
#include "spec/text/text_input.h"
#include "train/training_run.h"

namespace lockstep {

namespace {

constexpr std::size_t kMostSweptValues = 1000;

struct SweptKey {
  std::string key;
  std::vector<std::string> values;
};

SweptKey swept_key(const std::string& text) {
  const std::string remedy = "give a key and its values, as in --sweep train.global_batch=64,128,256";
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
    refuse(fmt::format("--sweep {}: it is no KEY=V1,V2,…", quote_text(text)), remedy);
  SweptKey swept{.key = text.substr(0, equals), .values = {}};
  for (std::size_t begin = equals + 1; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    if (end == begin) refuse(fmt::format("--sweep {}: a value is empty", quote_text(text)), remedy);
    swept.values.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  if (swept.values.size() > kMostSweptValues)
    refuse(fmt::format("--sweep: {} values are too many", swept.values.size()),
           fmt::format("give {} at most", kMostSweptValues));
  return swept;
}

[[noreturn]] void no_such_run(const std::string& problem, const std::string& remedy) {
  throw UserError(ExitCode::usage, problem, remedy);
}

std::int64_t nodes_of(const std::string& value) {
  std::int64_t nodes = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), nodes);
  if (error != std::errc{} || end != value.data() + value.size() || nodes < 1 || nodes > 1'000'000)
    no_such_run(fmt::format("{} is no number of nodes", quote_text(value)), "give 1 to 1000000");
  return nodes;
}

std::int64_t replicas_on(const RunSpec& base, const MachineSpec& machine, std::int64_t nodes) {
  const std::int64_t devices = nodes * machine.devices_per_node;
  const std::int64_t replica = base.layout.pp * base.layout.cp * base.layout.tp;
  if (devices % replica != 0)
    no_such_run(fmt::format("{} devices are not whole replicas of {} ranks", devices, replica),
                "give nodes whose devices pp · cp · tp divides");
  return devices / replica;
}

RunSpec scaled_run(RunSpec spec, const MachineSpec& machine, std::int64_t first, std::int64_t nodes, Scaling scaling) {
  const std::int64_t first_dp = replicas_on(spec, machine, first);
  spec.layout.dp = replicas_on(spec, machine, nodes);
  if (scaling == Scaling::weak) {
    if (spec.train.global_batch * nodes % first != 0)
      no_such_run(fmt::format("a global batch of {} for {} nodes is no whole one for {}", spec.train.global_batch,
                              first, nodes),
                  "give multiples of the first number of nodes");
    spec.train.global_batch = spec.train.global_batch * nodes / first;
  } else {
    const std::int64_t batch = spec.train.global_batch, parts = first_dp * spec.layout.micro;
    const std::int64_t samples = batch % parts == 0 ? batch / parts : 0;  // of a micro-batch
    if (samples == 0 || batch % (spec.layout.dp * samples) != 0)
      no_such_run(fmt::format("a global batch of {} is not split by dp={} into micro-batches of {}", batch,
                              spec.layout.dp, samples == 0 ? "whole samples" : fmt::format("{}", samples)),
                  "give a larger train.global_batch, or --scaling weak");
    spec.layout.micro = batch / (spec.layout.dp * samples);
  }
  validate(spec, [](std::string_view section, std::string_view key) { return fmt::format("{}.{}", section, key); });
  return spec;
}

void set_efficiency(std::vector<SweepRow>& rows, Scaling scaling) {
  const auto rate_per_node = [](const SweepRow& row) {
    return row.predicted.tokens_per_second / static_cast<double>(row.machine.nodes);
  };
  const SweepRow* first = nullptr;
  for (SweepRow& row : rows) {
    if (row.scaling != scaling || !row.impossible.empty()) continue;
    if (!first) first = &row;
    row.efficiency = rate_per_node(row) / rate_per_node(*first);
  }
}

// The row that `make` gives, or why there is none.
template <class Make>
SweepRow row_or_reason(const std::string& value, Make&& make) {
  try {
    return make();
  } catch (const UserError& error) {
    SweepRow row;
    row.value = value;
    row.impossible = error.what();
    return row;
  }
}

Sweep swept_settings(const SweptKey& swept, const RunArguments& run, const LayoutArguments& layout,
                     const MachineArguments& machine) {
  Sweep sweep{.key = swept.key, .rows = {}};
  for (const std::string& value : swept.values)
    sweep.rows.push_back(row_or_reason(value, [&] {
      RunArguments changed = run;
      changed.sets.push_back(swept.key + "=" + value);
      const std::optional<MachineSpec> on = machine.read(changed);
      RunSpec spec = layout.read(changed);
      resolve_gathered(spec, on->memory);
      return predicted_row(value, spec, *on);
    }));
  return sweep;
}

}  // namespace

void SweepArguments::add_to(CLI::App& command, CLI::Option& machine) {
  CLI::Option* swept = command.add_option("--sweep", text, "Of --machine: a row for each value of one setting")
                           ->type_name("KEY=V1,V2,..")
                           ->needs(&machine);
  add_choice_option(
      command, "--scaling", scaling,
      Choices<std::vector<Scaling>>{
          {"strong", {Scaling::strong}}, {"weak", {Scaling::weak}}, {"both", {Scaling::strong, Scaling::weak}}},
      "Of --sweep nodes: whether the global batch stays or grows", "strong")
      ->needs(swept);
}

SweepRow predicted_row(const std::string& value, const RunSpec& spec, const MachineSpec& machine) {
  check_extent(spec);
  require_machine(spec, machine);
  const RunData data(spec);
  const std::vector<Plan> stages = plan_stages(spec, data);
  SweepRow row{.value = value, .spec = spec, .machine = machine};
  row.predicted = predict_step(spec, machine, data, stages);
  row.fullest = fullest(stages);
  row.fits = fits_device(machine, spec, row.fullest);
  return row;
}

Sweep scaling_sweep(const RunSpec& base, const MachineSpec& machine, const std::vector<std::string>& nodes,
                    const std::vector<Scaling>& scaling) {
  Sweep sweep{.key = "nodes", .rows = {}};
  for (const Scaling way : scaling) {
    for (const std::string& value : nodes) {
      SweepRow row = row_or_reason(value, [&] {
        MachineSpec larger = machine;
        larger.nodes = nodes_of(value);
        return predicted_row(value, scaled_run(base, machine, nodes_of(nodes.front()), larger.nodes, way), larger);
      });
      row.scaling = way;
      sweep.rows.push_back(std::move(row));
    }
    set_efficiency(sweep.rows, way);
  }
  return sweep;
}

int show_sweep(const SweepArguments& arguments, const RunArguments& run, const LayoutArguments& layout,
               const MachineArguments& machine) {
  const SweptKey swept = swept_key(arguments.text);
  if (!arguments.svg.empty()) require_output_file(arguments.svg, fmt::format("--svg {}", quote_text(arguments.svg)));
  Sweep sweep;
  if (swept.key == "nodes") {
    RunArguments base = run;
    const std::optional<MachineSpec> on = machine.read(base);
    RunSpec spec = layout.read(base);
    resolve_gathered(spec, on->memory);
    sweep = scaling_sweep(spec, *on, swept.values, arguments.scaling);
  } else {
    sweep = swept_settings(swept, run, layout, machine);
  }
  const auto possible = [](const SweepRow& row) { return row.impossible.empty(); };
  if (std::ranges::none_of(sweep.rows, possible))
    throw UserError(ExitCode::usage,
                    fmt::format("--sweep {}: no value is possible; {}: {}", quote_text(sweep.key),
                                sweep.rows.front().value, sweep.rows.front().impossible),
                    "give others");
  if (!arguments.svg.empty()) {
    const std::string picture = sweep_svg(sweep);
    replace_file(Disk(), arguments.svg, [&](DiskFile& out) { out.write(picture.data(), std::ssize(picture)); });
  }
  if (arguments.json)
    fmt::print("{}\n", sweep_json(sweep).dump(2));
  else
    fmt::print("{}", sweep_table(sweep));
  return static_cast<int>(ExitCode::done);
}

}  // namespace lockstep
