#include "cli/drawings.h"

#include <fmt/format.h>

#include <vector>

#include "cli/plan_sweep.h"
#include "cli/plan_timeline.h"
#include "model/model.h"
#include "pictures/memory_picture.h"
#include "pictures/mesh_picture.h"
#include "pictures/pipeline_picture.h"
#include "pictures/ring_picture.h"
#include "pictures/tensor_parallel_picture.h"
#include "pictures/zero_picture.h"
#include "plan/plan.h"
#include "plan/step_timeline.h"
#include "spec/layout/layout_toml.h"
#include "spec/model/presets.h"
#include "telemetry/number_text.h"
#include "train/run_data.h"

namespace lockstep {

namespace {

// A run on meta: one sample of `seq` tokens per micro-batch, bf16. One thread per rank, so that scratch does not depend
// on the machine that draws.
RunSpec drawn_run(const ModelSpec& model, const std::string& layout, std::int64_t global_batch, std::int64_t seq) {
  RunSpec spec;
  spec.model = model;
  spec.data.synthetic = SyntheticSpec{};
  spec.data.seq = seq;
  spec.data.eval_share = 0;
  spec.train.global_batch = global_batch;
  spec.train.save_last = spec.train.async_save = false;
  spec.precision.compute = Precision::bf16;
  spec.run.threads = 1;
  spec.layout = parse_layout(layout);
  validate(spec, [](std::string_view, std::string_view key) { return std::string(key); });
  return spec;
}

std::string draw_mesh() { return mesh_picture(parse_layout("dp=2,pp=2,cp=2,tp=2")); }
std::string draw_ring() { return ring_picture(4); }
std::string draw_ulysses() { return ulysses_picture(4, 8); }
std::string draw_tensor_parallel() { return tensor_parallel_picture({}); }

std::string draw_zero() {
  const Model model(*preset("llama-7b-4l"), 1, 1, DType::bf16);
  std::vector<ResidentUnit> units;
  for (int u = 0; u < model.units(); ++u)
    units.push_back({model.unit(u).layout().name(), model.unit(u).layout().owned()});
  return zero_picture(units, 4, "Four layers of a 7B model");
}

std::string draw_schedules() {
  constexpr int kStages = 4, kMicro = 8;
  std::vector<PicturePanel> panels;
  for (const ScheduleKind kind : kScheduleKinds) {
    const int chunks = usual_chunks(kind);
    const PipelineSchedule schedule = make_schedule(kind, {kStages, kMicro, chunks});
    const double each = 1.0 / chunks;  // of a stage's time
    PipelineTimeline line = timed(schedule, [&](int) { return ChunkTimes{each, each, each, 0}; });
    std::string caption =
        fmt::format("{}: {:g} units of time, bubble {:.1f} %", name_of(kind), line.makespan(), line.bubble() * 100);
    panels.push_back({.line = std::move(line), .caption = std::move(caption)});
  }
  return svg_picture(panels, {.title = fmt::format("Pipeline schedules: {} stages, {} micro-batches", kStages, kMicro),
                              .subtitle = "Forward, backward for inputs and backward for weights take one unit of time "
                                          "each; numbers are micro-batches; messages take no time."});
}

// Three steps one after the other: with a flush after each, and without.
std::string draw_pipedream() {
  constexpr int kStages = 4, kMicro = 4, kSteps = 3;
  const auto times = [](int) { return ChunkTimes{}; };
  PipelineTimeline flushed,
      unflushed = timed(make_schedule(ScheduleKind::pipedream, {kStages, kSteps * kMicro, 1}), times);
  flushed.stages.resize(kStages);
  for (int step = 0; step < kSteps; ++step) {
    const double begin = flushed.makespan();
    const PipelineTimeline one = timed(make_schedule(ScheduleKind::one_f_one_b, {kStages, kMicro, 1}), times);
    for (std::size_t s = 0; s < one.stages.size(); ++s)
      for (ChunkSpan span : one.stages[s]) {
        span.action.micro += step * kMicro;
        flushed.stages[s].push_back({span.action, begin + span.begin, begin + span.end});
      }
  }
  std::vector<PicturePanel> panels;
  for (const auto& [name, line] : {std::pair("1f1b: a flush after each step", &flushed),
                                   std::pair("pipedream: versions of the weights instead", &unflushed)})
    panels.push_back({.line = *line,
                      .caption = fmt::format("{}; {:g} units of time, bubble {:.1f} %", name, line->makespan(),
                                             line->bubble() * 100)});
  return svg_picture(panels,
                     {.title = fmt::format("{} steps of {} micro-batches on {} stages", kSteps, kMicro, kStages),
                      .subtitle = "A forward takes one unit of time and a backward two; numbers are "
                                  "micro-batches; messages take no time."});
}

std::string draw_memory() {
  constexpr std::int64_t kGpu = 80'000'000'000;
  std::vector<MemoryBar> bars;
  for (const char* layout : {"dp=16", "dp=16,zero=1", "dp=16,zero=2", "dp=16,zero=3", "dp=2,tp=8", "dp=4,pp=4,micro=4",
                             "dp=4,cp=4,zero=3", "dp=2,pp=2,cp=2,tp=2,zero=1,micro=4"}) {
    const RunSpec spec = drawn_run(*preset("llama3-8b"), layout, 16, 8192);
    const Plan plan = fullest(plan_stages(spec));
    MemoryBar& bar = bars.emplace_back(MemoryBar{.label = layout, .parts = {}});
    for (int t = 0; t < kTags; ++t) bar.parts.emplace_back(name_of(static_cast<Tag>(t)), plan.peaks[t]);
  }
  return memory_picture(bars,
                        {.title = "Memory of the fullest rank: llama3-8b on 16 ranks",
                         .subtitle = "16 samples of 8,192 tokens per step, bf16, AdamW, no recomputation; bytes by "
                                     "tag, from the plan, which runs the step on a device that only counts.",
                         .limit = kGpu,
                         .limit_label = "80 GB"});
}

std::string draw_offload() {
  std::vector<MemoryBar> bars;
  for (const double share : {0.0, 0.5, 1.0}) {
    RunSpec spec = drawn_run(*preset("llama3-8b"), "micro=16", 16, 4096);
    spec.run.device = RunDevice::cuda;
    spec.precision.gradients = StateType::bf16;
    if (share > 0) {
      spec.memory.offload_optimizer = Offload::host;
      spec.memory.offload_share = share;
    }
    const Plan plan = plan_run(spec);
    MemoryBar& bar = bars.emplace_back(
        MemoryBar{.label = share == 0 ? "none" : fmt::format("host, share {:g}: {} there", share, byte_text(plan.host)),
                  .parts = {}});
    for (int t = 0; t < kTags; ++t) bar.parts.emplace_back(name_of(static_cast<Tag>(t)), plan.peaks[t]);
  }
  return memory_picture(bars, {.title = "memory.offload_optimizer: GPU memory of llama3-8b on one rank",
                               .subtitle = "16 micro-batches of one sample of 4,096 tokens, bf16 with bf16 gradients, "
                                           "AdamW; bytes by tag, from the plan.",
                               .limit = 141'000'000'000,
                               .limit_label = "141 GB"});
}

std::string draw_memory_timeline() {
  ModelSpec model = *preset("llama-7b-4l");
  model.layers = 8;
  const RunSpec spec = drawn_run(model, "dp=8,zero=3,micro=2", 16, 4096);
  return timeline_svg(spec, memory_timeline(spec, 0));
}

std::vector<TimelineRow> timeline_of(const RunSpec& spec, const StatedMachine& machine) {
  const RunData data(spec);
  return step_timeline(step_script(spec, data), spec.layout, machine);
}

std::string draw_ddp_overlap() {
  const StatedMachine machine{.rates = {.flops = 200e12, .bytes = 2e12}, .link = 40e9, .latency = 10e-6};
  std::vector<TimelineRow> rows;
  for (const char* overlap : {"on", "off"}) {
    TimelineRow row =
        timeline_of(drawn_run(*preset("llama-350m"), fmt::format("dp=4,overlap={}", overlap), 32, 1024), machine)[0];
    const MessageTime messages = message_time(row);
    row.label = fmt::format("overlap = {}", overlap);
    row.detail = fmt::format("{:.1f} of {:.1f} ms exposed", messages.exposed * 1e3, messages.all * 1e3);
    row.gap_before = rows.empty() ? 0 : 14;
    for (TimelineSpan& span : row.spans)
      if (!is_message(span.kind)) span.label.clear();  // there is one micro-batch
    rows.push_back(std::move(row));
  }
  return step_timeline_picture(
      rows,
      {.title = "DDP: gradients are summed in buckets while backward still runs",
       .subtitle = "One rank of dp=4: llama-350m, 8 samples of 1,024 tokens per rank, buckets of 25 MiB. Simulated: "
                   "200 TFLOP/s per rank, 40 GB/s per link, 10 µs per message.",
       .width = 780,
       .compute_height = 30,
       .message_height = 22});
}

std::string draw_example_step() {
  const StatedMachine machine{.rates = {.flops = 400e12, .bytes = 3e12}, .link = 100e9, .latency = 5e-6};
  ModelSpec model = *preset("llama-7b-4l");
  model.layers = 5;  // three blocks take about as long as two and the head
  const RunSpec spec = drawn_run(model, "dp=2,pp=2,cp=2,tp=2,micro=4", 16, 4096);
  std::vector<TimelineRow> rows = timeline_of(spec, machine);
  for (std::size_t r = 1; r < rows.size(); ++r) {
    const auto rank = static_cast<std::int64_t>(r);
    rows[r].gap_before = spec.layout.dp_rank(rank) != spec.layout.dp_rank(rank - 1) ? 18
                         : spec.layout.stage(rank) != spec.layout.stage(rank - 1)   ? 9
                                                                                    : 0;
  }
  return step_timeline_picture(
      rows,
      {.title = "One training step on 16 ranks: dp=2, pp=2, cp=2, tp=2",
       .subtitle = "Five layers of a 7B model, 16 samples of 4,096 tokens, 4 micro-batches (the numbers), 1f1b. "
                   "Simulated from the step that runs: 400 TFLOP/s per rank, 100 GB/s per link, 5 µs per message.",
       .width = 780});
}

std::string draw_what_if() {
  const RunSpec spec = drawn_run(*preset("llama3-8b"), "dp=64,zero=3,micro=2", 128, 4096);
  Sweep sweep{.key = "machine.inter_node.bandwidth", .rows = {}};
  for (const char* rate : {"3GB/s", "6GB/s", "12.5GB/s", "25GB/s", "50GB/s", "100GB/s"}) {
    MachineSpec machine = find_machine("h100-sxm");
    set_machine_field(machine, "inter_node.bandwidth", rate);
    sweep.rows.push_back(predicted_row(rate, spec, machine));
  }
  return sweep_svg(sweep);
}

std::string draw_scaling() {
  const RunSpec spec = drawn_run(*preset("llama3-8b"), "dp=8,zero=1,micro=16", 128, 4096);
  return sweep_svg(
      scaling_sweep(spec, find_machine("h100-sxm"), {"1", "2", "4", "8", "16"}, {Scaling::strong, Scaling::weak}));
}

constexpr DrawingEntry kDrawings[] = {
    {"mesh", "the ranks of dp=2,pp=2,cp=2,tp=2 and the groups along each axis", draw_mesh},
    {"zero-residency", "which units are whole on a rank during a step, and its bytes, for ZeRO 0 to 3", draw_zero},
    {"ring", "ring attention over four ranks: who attends to what at each turn", draw_ring},
    {"ulysses", "tokens and heads of four ranks before and after the all-to-all", draw_ulysses},
    {"tensor-parallel", "a block's two products split by columns and rows, without and with sp", draw_tensor_parallel},
    {"schedules", "afab, 1f1b, interleaved, zb-h1 and zb-v of four stages on one clock", draw_schedules},
    {"pipedream", "three steps of four stages with a flush after each, and without", draw_pipedream},
    {"memory", "bytes by tag of one rank for llama3-8b under several layouts", draw_memory},
    {"offload", "bytes by tag on the GPU for llama3-8b, with and without optimizer state on the host", draw_offload},
    {"memory-timeline", "bytes in use from action to action of one step under ZeRO 3, and what makes the peak",
     draw_memory_timeline},
    {"what-if-links", "step time and memory of llama3-8b over the speed of links between nodes", draw_what_if},
    {"scaling", "strong and weak scaling of llama3-8b over nodes, against ideal", draw_scaling},
    {"ddp-overlap", "buckets of gradients summed while backward runs, and without overlap", draw_ddp_overlap},
    {"step-4d", "the timeline of one step on 16 ranks under all axes, with its messages", draw_example_step},
};

}  // namespace

std::span<const DrawingEntry> drawings() { return kDrawings; }

}  // namespace lockstep
