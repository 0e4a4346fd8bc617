#include "spec/run/async_check.h"

#include <fmt/format.h>

namespace lockstep {

void check_async(const RunSpec& spec, const AsyncFault& fail) {
  if (spec.sync.kind != SyncKind::async) return;
  const LayoutSpec& layout = spec.layout;
  const auto refuse = [&](std::string_view section, std::string_view key, const std::string& why,
                          const std::string& remedy) {
    fail(section, key, fmt::format("with kind = \"async\" in [sync] {}", why), remedy);
  };
  if (layout.dp_kind != DpKind::server)
    refuse("layout", "dp_kind",
           fmt::format("parameter servers apply the gradients, and dp_kind is \"{}\"", name_of(layout.dp_kind)),
           "use layout.dp_kind=server, or sync.kind=full");
  if (!spec.sync.is_asynchronous()) return;
  if (layout.cp > 1)
    refuse("layout", "cp", fmt::format("a worker has whole samples, and cp is {}", layout.cp), "use layout.cp=1");
  if (spec.train.global_batch % (layout.dp * layout.micro) != 0) {
    const std::int64_t each = layout.dp * layout.micro, below = spec.train.global_batch / each * each;
    refuse("train", "global_batch",
           fmt::format("every ticket is for as many samples, and global_batch ({}) is not a multiple of dp ({}) times "
                       "micro ({})",
                       spec.train.global_batch, layout.dp, layout.micro),
           fmt::format("use train.global_batch={}", below + each));
  }
  if (layout.overlap == Switch::off)
    refuse("layout", "overlap", "a worker computes on while its gradients wait for their turn",
           "use layout.overlap=on");
  if (spec.train.bad_values != BadValues::stop)
    refuse("train", "bad_values", "a worker's gradient is one of many in a step, and steps are not skipped",
           "use train.bad_values=stop");
  if (spec.train.loss_spikes != LossSpikes::ignore)
    refuse("train", "loss_spikes", "a run does not go back to an earlier step", "use train.loss_spikes=ignore");
  if (spec.run.check_state > 0)
    refuse("run", "check_state", "workers have weights of different updates", "use run.check_state=0");
  if (spec.precision.loss_scale.kind == LossScale::Kind::dynamic)
    refuse("precision", "loss_scale", "servers do not find a loss scale from gradients of different weights",
           "use precision.compute=bf16, or a loss scale that is a number");
  const MemorySpec& memory = spec.memory;
  if (memory.offload_activations != Offload::none)
    refuse("memory", "offload_activations", "activations are not offloaded", "remove it");
  if (memory.offload_parameters != Offload::none)
    refuse("memory", "offload_parameters", "weights come from servers and are not offloaded", "remove it");
}

std::string why_workers_may_not_die(const RunSpec& spec) {
  if (!spec.sync.is_asynchronous()) return "sync.kind is not async with a staleness above 0";
  if (spec.layout.dp < 2) return "there is one worker";
  if (!spec.sync.replay.empty()) return "sync.replay repeats which worker is at which ticket";
  if (spec.run.trace > 0) return "run.trace is of all ranks together";
  if (spec.run.device == RunDevice::cuda) return "GPUs send each other tensors in one world of NCCL";
  return "";
}

}  // namespace lockstep
