#include "spec/run/run_spec.h"

#include <algorithm>

#include "base/integers.h"
#include "spec/model/vocabulary_remedy.h"
#include "spec/run/async_check.h"
#include "spec/run/compression_check.h"
#include "spec/run/lora_check.h"
#include "spec/run/sparsity_check.h"
#include "spec/run/unflushed_check.h"
#include "spec/run/varlen_check.h"

namespace lockstep {
namespace {

// Tokens of a whole run: counts and products of them stay within 63 bits.
constexpr std::int64_t kMaxRunTokens = std::int64_t{1} << 60;

class RunChecker {
 public:
  RunChecker(const RunSpec& spec, const KeyPlace& place) : spec_(spec), place_(place) {}

  void source() const {
    const DataSpec& data = spec_.data;
    std::string_view first, second;
    for (const auto& [key, given] : {std::pair("text", !data.text.empty()), std::pair("tokens", !data.tokens.empty()),
                                     std::pair("synthetic", data.synthetic.has_value()),
                                     std::pair("example", data.example), std::pair("source", !data.sources.empty())}) {
      if (given) (first.empty() ? first : second) = key;
    }
    if (first.empty()) {
      fail("data", "", "[data] names no source",
           "add one of text = \"FILE or FOLDER\", tokens = \"FILE\", [data.synthetic], example = true or "
           "[data.source.NAME]");
    }
    if (!second.empty()) {
      fail("data", second, fmt::format("[data] names both {} and {}", first, second), "keep one of the two");
    }
    const bool text =
        !data.text.empty() || std::ranges::any_of(data.sources, [](const SourceSpec& s) { return !s.text.empty(); });
    const bool tokens = !data.tokens.empty() ||
                        std::ranges::any_of(data.sources, [](const SourceSpec& s) { return !s.tokens.empty(); });
    if (!data.tokenizer.empty() && !text && !tokens)
      fail("data", "tokenizer", fmt::format("tokenizer does nothing beside {}: it is of text or tokens", first),
           "remove it, or use text or tokens");
    if (!data.tokenizer.empty() && !text && !(spec_.model_hf.empty() && spec_.model_from.empty()))
      fail("data", "tokenizer",
           fmt::format("tokenizer does nothing beside tokens and model.{}, whose tokenizer the run keeps",
                       spec_.model_hf.empty() ? "from" : "hf"),
           "remove it");
    if (data.synthetic && data.documents != Documents::stream)
      fail("data", "documents",
           fmt::format("documents = \"{}\" does nothing beside synthetic, which has none", name_of(data.documents)),
           "remove it, or use text or tokens");
    if (data.synthetic && data.synthetic->branching > data.synthetic->vocabulary) {
      fail("data.synthetic", "branching",
           fmt::format("branching ({}) is more than the synthetic vocabulary ({})", data.synthetic->branching,
                       data.synthetic->vocabulary),
           fmt::format("use branching = {} or less, or a larger vocabulary", data.synthetic->vocabulary));
    }
    if (data.synthetic && data.synthetic->order == 2 && data.synthetic->vocabulary > kMaxSyntheticPairs) {
      fail("data.synthetic", "vocabulary",
           fmt::format("a synthetic vocabulary of {} is too large for order 2", data.synthetic->vocabulary),
           fmt::format("use at most {}, or order = 1", kMaxSyntheticPairs));
    }
  }

  // Weights of which none counts leave nothing to take a sample from.
  void mixture() const {
    const std::vector<SourceSpec>& sources = spec_.data.sources;
    for (const SourceSpec& source : sources)
      for (const WeightSteps::Step& step : source.weight.steps) {
        if (std::ranges::any_of(sources, [&](const SourceSpec& s) { return s.weight.at(step.from) > 0; })) continue;
        fail("data", "source", fmt::format("no source has a weight above 0 from sample {} on", step.from),
             "give one of them a weight there");
      }
  }

  void fits_model() const {
    const DataSpec& data = spec_.data;
    if (data.seq > spec_.model.max_positions) {
      fail("data", "seq",
           fmt::format("seq ({}) is beyond the model's max_positions ({})", data.seq, spec_.model.max_positions),
           fmt::format("use seq = {} or a model with more positions", spec_.model.max_positions));
    }
    // What a token file or a tokenizer holds is known only when it is opened.
    const bool bytes = data.tokenizer.empty() &&
                       std::ranges::any_of(data.sources, [](const SourceSpec& s) { return !s.text.empty(); });
    if (!data.tokens.empty() || !data.tokenizer.empty() || (!data.sources.empty() && !bytes)) return;
    const std::int64_t needed = data.synthetic ? data.synthetic->vocabulary : kByteVocabulary;
    if (spec_.model.vocabulary < needed) {
      fail("model", "vocabulary",
           fmt::format("the model's vocabulary ({}) is smaller than the data's ({}, {})", spec_.model.vocabulary,
                       needed, data.synthetic ? "synthetic" : "text as bytes"),
           vocabulary_remedy(spec_, needed));
    }
  }

  void batch() const {
    const std::int64_t batch = spec_.train.global_batch;
    check_layout(batch, spec_.layout, [&](std::string_view key, const std::string& problem, const std::string& remedy) {
      fail("layout", key, problem, remedy);
    });
    check_model_layout(spec_.model, spec_.data.seq, spec_.layout,
                       [&](std::string_view key, const std::string& problem, const std::string& remedy) {
                         fail("layout", key, problem, remedy);
                       });
    const auto samples = checked_mul(spec_.train.steps, batch);
    const auto tokens = samples ? checked_mul(*samples, spec_.data.seq) : std::nullopt;
    if (!tokens || *tokens > kMaxRunTokens) {
      fail("train", "steps", "steps times global_batch times seq is more than 2^60 tokens",
           "check for a size with digits too many");
    }
  }

  void memory() const {
    offload();
    const LayoutSpec& layout = spec_.layout;
    const StageBlocks& stages = spec_.memory.recompute_stages;
    if (!stages.empty() && std::ssize(stages.counts) != layout.pp)
      fail("memory", "recompute_stages",
           fmt::format("recompute_stages = \"{}\" is of {} stages, and pp is {}", stages.text(), stages.counts.size(),
                       layout.pp),
           layout.pp == 1 ? "use recompute_blocks" : fmt::format("name {} numbers of blocks", layout.pp));
    if (spec_.memory.gathered == 0 || (layout.zero == 3 && layout.reshard == Reshard::forward)) return;
    fail("memory", "gathered",
         fmt::format("gathered = {} does nothing: {}",
                     spec_.memory.gathered == kGatheredAuto ? "\"auto\"" : fmt::format("{}", spec_.memory.gathered),
                     layout.zero == 3 ? "with reshard = \"never\" all weights stay" : "only zero = 3 gathers weights"),
         "remove it, or use zero = 3 with reshard = \"forward\"");
  }

  void offload() const {
    const bool gpu = spec_.run.device == RunDevice::cuda;
    const Offload to = spec_.memory.offloads_to();
    for (const auto& [key, where] : {std::pair("offload_optimizer", spec_.memory.offload_optimizer),
                                     std::pair("offload_gradients", spec_.memory.offload_gradients),
                                     std::pair("offload_parameters", spec_.memory.offload_parameters),
                                     std::pair("offload_activations", spec_.memory.offload_activations)}) {
      if (where == Offload::none) continue;
      if (where == Offload::host && !gpu)
        fail("memory", key,
             fmt::format("{} = \"host\" does nothing with device = \"cpu\", whose memory is the host's", key),
             "use \"disk\", or remove it");
      if (where != to)
        fail("memory", key,
             fmt::format("{} = \"{}\", and other state is offloaded to \"{}\"", key, name_of(where), name_of(to)),
             "offload all to one of the two");
    }
    if (spec_.layout.servers > 0 &&
        (spec_.memory.offload_optimizer != Offload::none || spec_.memory.offload_gradients != Offload::none))
      fail("memory", spec_.memory.offload_optimizer != Offload::none ? "offload_optimizer" : "offload_gradients",
           "parameter servers hold gradients and optimizer state, and do not offload them",
           "use more layout.servers, or remove it");
    if (spec_.memory.offload_gradients != Offload::none && spec_.layout.replicas() > 1 && !spec_.layout.passes_on())
      fail("memory", "offload_gradients",
           "gradients that ranks sum once per step are summed where they are kept, and not offloaded",
           "use layout.grad_sync=micro or layout.zero=2, or remove it");
    if (spec_.memory.offload_parameters != Offload::none && spec_.layout.zero != 3)
      fail("memory", "offload_parameters", "weights are offloaded where they are gathered for their use: with zero = 3",
           "use layout.zero=3, or remove it");
    const bool others_go =
        spec_.memory.offload_gradients != Offload::none || spec_.memory.offload_parameters != Offload::none;
    if (spec_.memory.updates_on_host() && others_go)
      fail(
          "memory", "offload_update",
          "offload_update = \"host\" takes gradients from the device and gives it weights, and these are offloaded too",
          "use offload_update = \"device\"");
    const Precision computes = spec_.precision.compute;
    const bool has_masters =
        (computes_in_bf16(computes) || computes == Precision::fp16) && spec_.precision.master == StateType::full;
    if (spec_.memory.offload_optimizer != Offload::none && spec_.optimizer.kind == OptimizerKind::sgd &&
        spec_.optimizer.momentum == 0 && !has_masters)
      fail("memory", "offload_optimizer", "sgd with momentum = 0 keeps no state here beside the weights", "remove it");
  }

  void servers() const {
    if (spec_.run.server_device == ServerDevice::same) return;
    const LayoutSpec& layout = spec_.layout;
    const auto refuse = [&](const std::string& problem, const std::string& remedy) {
      fail("run", "server_device", problem, remedy + ", or server_device = \"same\"");
    };
    if (layout.servers == 0)
      refuse("server_device = \"cpu\" does nothing: there are no parameter servers", "use layout.dp_kind=server");
    if (spec_.run.device != RunDevice::cuda)
      refuse("server_device = \"cpu\" does nothing: all ranks are on the cpu", "use run.device=cuda");
    if (layout.line() > 1)
      refuse(
          "workers on GPUs under servers on the cpu hold whole replicas: what they sent each other would go through "
          "the host",
          "use layout.pp=1, layout.cp=1 and layout.tp=1");
  }

  // What hashes are compared of is on the device, and equal on the ranks that hold it alike.
  void state_check() const {
    if (spec_.run.check_state == 0) return;
    const MemorySpec& memory = spec_.memory;
    if (memory.offload_optimizer != Offload::none || memory.offload_parameters != Offload::none)
      fail("run", "check_state", "state that is offloaded is not hashed",
           "use check_state = 0, or offload_optimizer = \"none\" and offload_parameters = \"none\" in [memory]");
    if (spec_.layout.reduce == ReduceKind::native && (spec_.layout.replicas() > 1 || spec_.layout.tp > 1))
      fail("run", "check_state", "with reduce = \"native\" nothing promises that replicas are equal to the bit",
           "use layout.reduce=canonical, or check_state = 0");
  }

  // Local steps: what would need replicas to agree between two synchronizations is refused.
  void sync() const {
    const SyncSpec& sync = spec_.sync;
    if (!sync.takes_local_steps()) return;
    const LayoutSpec& layout = spec_.layout;
    const auto kind = fmt::format("kind = \"{}\"", name_of(sync.kind));
    const auto refuse = [&](std::string_view section, std::string_view key, const std::string& why,
                            const std::string& remedy) {
      fail(section, key, fmt::format("with {} in [sync] {}", kind, why), remedy);
    };
    if (layout.dp_kind != DpKind::ddp)
      refuse("layout", "dp_kind", fmt::format("every replica updates, and dp_kind is \"{}\"", name_of(layout.dp_kind)),
             "use layout.dp_kind=ddp, or sync.kind=full");
    const std::int64_t together = sync.together() * layout.cp;
    if (layout.zero > 0 && layout.shards() != together) {
      if (together == 1)
        refuse("layout", "zero", "replicas have weights of their own, which they cannot shard",
               "use layout.zero=0, or sync.kind=full");
      refuse("layout", "shard",
             fmt::format("groups of {} ranks have weights of their own, and {} ranks shard them", together,
                         layout.shards()),
             fmt::format("use layout.shard={}, or layout.zero=0", together));
    }
    if (layout.grad_sync != GradSync::step && layout.zero < 2)
      refuse("layout", "grad_sync", "gradients are summed once per step, where they are at all",
             "use layout.grad_sync=step");
    if (layout.reduce != ReduceKind::canonical)
      refuse("layout", "reduce", "replicas are averaged in the canonical order", "use layout.reduce=canonical");
    if (sync.kind == SyncKind::mixed && layout.dp % sync.group != 0)
      fail("sync", "group", fmt::format("dp ({}) is not a multiple of group ({})", layout.dp, sync.group),
           "use a group that divides dp");
    const TrainSpec& train = spec_.train;
    for (const auto& [key, steps] : {std::pair("steps", train.steps), std::pair("save_every", train.save_every),
                                     std::pair("eval_every", train.eval_every)})
      if (const std::int64_t above = (steps / sync.every + 1) * sync.every; steps % sync.every != 0)
        refuse(
            "train", key,
            fmt::format("replicas agree after every {} steps, of which {} = {} is no multiple", sync.every, key, steps),
            fmt::format("use train.{0}={1}{2}", key, above,
                        steps > sync.every ? fmt::format(" or train.{}={}", key, above - sync.every) : ""));
    if (train.bad_values != BadValues::stop)
      refuse("train", "bad_values", "replicas would skip different steps", "use train.bad_values=stop");
    if (train.loss_spikes != LossSpikes::ignore)
      refuse("train", "loss_spikes", "a run does not go back to an earlier step", "use train.loss_spikes=ignore");
    if (spec_.run.check_state > 0)
      refuse("run", "check_state", "replicas are not equal between two synchronizations", "use run.check_state=0");
    if (spec_.precision.loss_scale.kind == LossScale::Kind::dynamic)
      refuse("precision", "loss_scale", "replicas would find different loss scales",
             "use precision.compute=bf16, or a loss scale that is a number");
    if (spec_.precision.master != StateType::full)
      refuse("precision", "master", "bf16 masters would lose the averages", "leave precision.master out");
    const MemorySpec& memory = spec_.memory;
    for (const auto& [key, where] : {std::pair("offload_optimizer", memory.offload_optimizer),
                                     std::pair("offload_gradients", memory.offload_gradients),
                                     std::pair("offload_parameters", memory.offload_parameters)})
      if (where != Offload::none) refuse("memory", key, "what is averaged stays on the device", "remove it");
  }

  void snapshot() const {
    if (spec_.train.snapshot != SnapshotPlace::device) return;
    if (spec_.run.device != RunDevice::cuda)
      fail("train", "snapshot", "snapshot = \"device\" is for GPUs: a save on the cpu has one copy of the state",
           "use snapshot = \"auto\", or run.device=cuda");
    if (!spec_.train.async_save)
      fail("train", "snapshot", "a run that waits for its saves has no snapshot",
           "use snapshot = \"auto\", or async_save = true");
    if (spec_.sparsity)
      fail("train", "snapshot", "packed state is made whole on its way to the host", "use snapshot = \"auto\"");
    if (spec_.memory.offloads_state())
      fail("train", "snapshot", "state that is offloaded is on the host", "use snapshot = \"auto\"");
  }

  void loss_spikes() const {
    const TrainSpec &train = spec_.train, usual;
    if (train.loss_spikes == LossSpikes::ignore) {
      for (const auto& [key, changed] : {std::pair("spike_z", train.spike_z != usual.spike_z),
                                         std::pair("most_rewinds", train.most_rewinds != usual.most_rewinds)})
        if (changed)
          fail("train", key, fmt::format("'{}' does nothing without loss_spikes = \"rewind\"", key), "remove it");
      return;
    }
    if (spec_.run.trace > 0)
      fail("train", "loss_spikes", "a run that goes back to an earlier step has no timeline",
           "use loss_spikes = \"ignore\", or run.trace=0");
    if (train.save_every == 0)
      fail("train", "loss_spikes", "a run goes back to what it has saved, and save_every is 0",
           "set save_every, or use loss_spikes = \"ignore\"");
  }

  void schedule() const {
    const LearningRateSpec& schedule = spec_.schedule;
    const std::int64_t steps = spec_.train.steps;
    if (schedule.warmup > steps && steps > 0) {  // a run of no steps has no rates
      fail("optim", "warmup", fmt::format("warmup ({}) is longer than the run ({} steps)", schedule.warmup, steps),
           fmt::format("use warmup = {} or less, or more steps", steps));
    }
    if (schedule.kind != RateKind::wsd) return;
    if (schedule.decay < 1) {
      fail("optim", "decay", "schedule \"wsd\" has no decay",
           steps > schedule.warmup ? fmt::format("say how many of the last steps decay, as in decay = {}",
                                                 std::max<std::int64_t>(1, (steps - schedule.warmup) / 5))
                                   : "train for more steps than warmup, and say how many of the last decay");
    }
    if (schedule.decay > steps - schedule.warmup) {
      fail("optim", "decay",
           fmt::format("warmup ({}) and decay ({}) are together longer than the run ({} steps)", schedule.warmup,
                       schedule.decay, steps),
           fmt::format("use train.steps = {} or more, or shorten one of the two", schedule.warmup + schedule.decay));
    }
  }

  void async() const {
    check_async(spec_, [&](std::string_view section, std::string_view key, const std::string& problem,
                           const std::string& remedy) { fail(section, key, problem, remedy); });
  }

  void compression() const {
    check_compression(spec_, [&](std::string_view section, std::string_view key, const std::string& problem,
                                 const std::string& remedy) { fail(section, key, problem, remedy); });
  }

  void sparsity() const {
    check_sparsity(spec_, [&](std::string_view section, std::string_view key, const std::string& problem,
                              const std::string& remedy) { fail(section, key, problem, remedy); });
  }

  void lora() const {
    check_lora(spec_, [&](std::string_view section, std::string_view key, const std::string& problem,
                          const std::string& remedy) { fail(section, key, problem, remedy); });
  }

  void unflushed() const {
    check_unflushed(spec_, [&](std::string_view section, std::string_view key, const std::string& problem,
                               const std::string& remedy) { fail(section, key, problem, remedy); });
  }

  void varlen() const {
    check_varlen(spec_, [&](std::string_view section, std::string_view key, const std::string& problem,
                            const std::string& remedy) { fail(section, key, problem, remedy); });
  }

  void evaluation() const {
    const std::vector<SourceSpec>& sources = spec_.data.sources;
    const bool any = sources.empty()
                         ? spec_.data.eval_share > 0
                         : std::ranges::any_of(sources, [](const SourceSpec& s) { return s.eval_share > 0; });
    if (spec_.train.eval_every > 0 && !any) {
      fail("train", "eval_every",
           fmt::format("eval_every is {} but eval_share is 0, so no sample is for evaluation", spec_.train.eval_every),
           "set eval_share = 0.05 in [data], or eval_every = 0");
    }
  }

  void precision() const {
    const PrecisionSpec& precision = spec_.precision;
    if (precision.gradients != StateType::full && !computes_in_bf16(precision.compute)) {
      fail("precision", "gradients",
           fmt::format("gradients = \"{}\" needs weights that compute in it, and compute is \"{}\"",
                       name_of(precision.gradients), name_of(precision.compute)),
           "set compute = \"bf16\" or \"fp8\", or leave gradients out");
    }
    if (precision.master != StateType::full && !computes_in_bf16(precision.compute)) {
      fail("precision", "master",
           fmt::format("master = \"{}\" needs weights that compute in it, and compute is \"{}\"",
                       name_of(precision.master), name_of(precision.compute)),
           "set compute = \"bf16\" or \"fp8\", or leave master out");
    }
    if (precision.moments != StateType::full && spec_.optimizer.kind == OptimizerKind::sgd &&
        spec_.optimizer.momentum == 0) {
      fail("precision", "moments", "sgd with momentum = 0 keeps no moments", "leave moments out");
    }
  }

 private:
  [[noreturn]] void fail(std::string_view section, std::string_view key, const std::string& problem,
                         const std::string& remedy) const {
    throw UserError(ExitCode::usage, place_(section, key) + ": " + problem, remedy);
  }

  const RunSpec& spec_;
  const KeyPlace& place_;
};

}  // namespace

void validate(const RunSpec& spec, const KeyPlace& place) {
  const RunChecker check(spec, place);
  check.source();
  check.mixture();
  check.fits_model();
  check.async();  // whose samples are divided evenly, where the batch's check would allow uneven parts
  check.batch();
  check.memory();
  check.servers();
  check.state_check();
  check.sync();
  check.snapshot();
  check.loss_spikes();
  check.schedule();
  check.evaluation();
  check.precision();
  check.compression();
  check.sparsity();
  check.lora();
  check.unflushed();
  check.varlen();
}

}  // namespace lockstep
