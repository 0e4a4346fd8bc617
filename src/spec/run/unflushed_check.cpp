#include "spec/run/unflushed_check.h"

#include <fmt/format.h>

namespace lockstep {

void check_unflushed(const RunSpec& spec, const UnflushedFault& fail) {
  const LayoutSpec& layout = spec.layout;
  if (!layout.unflushed()) return;
  const auto refuse = [&](std::string_view section, std::string_view key, const std::string& why,
                          const std::string& remedy) {
    fail(section, key, fmt::format("with schedule = \"{}\" {}", name_of(layout.schedule), why),
         remedy + ", or layout.schedule=1f1b");
  };
  if (spec.model.tied)
    refuse("layout", "schedule",
           "each stage has versions of its own weights, and the model's first and last stage share one",
           "use a model with model.tied=false");
  if (layout.micro < layout.pp - 1)
    refuse("layout", "micro",
           fmt::format("a stage lags behind by up to {} micro-batches, which is more than one step of {}",
                       layout.pp - 1, layout.micro),
           fmt::format("use layout.micro={} or more", layout.pp - 1));
  if (layout.zero > 0) refuse("layout", "zero", "every rank keeps all versions of its weights", "use layout.zero=0");
  if (layout.cp > 1) refuse("layout", "cp", "samples are not split over ranks in this version", "use layout.cp=1");
  if (layout.dp_kind != DpKind::ddp)
    refuse("layout", "dp_kind", fmt::format("every rank updates, and dp_kind is \"{}\"", name_of(layout.dp_kind)),
           "use layout.dp_kind=ddp");
  if (layout.grad_sync != GradSync::step)
    refuse("layout", "grad_sync", "gradients are summed once per update", "use layout.grad_sync=step");
  const SyncSpec& sync = spec.sync;
  if (sync.kind != SyncKind::full)
    refuse("sync", "kind", "replicas sum the gradients of every update", "use sync.kind=full");
  if (sync.compress) refuse("sync", "compress", "what is sent is not compressed", "use sync.compress=none");
  if (sync.compress_activations)
    refuse("sync", "compress_activations", "what is sent is not compressed", "use sync.compress_activations=none");
  if (spec.sparsity)
    refuse("sparsity", "kind", "each stage has versions of its weights, which a mask step would have to change",
           "use sparsity.kind=none");
  if (layout.embedding_gradient != EmbeddingGradient::dense)
    refuse("layout", "embedding_gradient", "gradients are summed per update, whole",
           "use layout.embedding_gradient=dense");
  const TrainSpec& train = spec.train;
  if (train.bad_values != BadValues::stop)
    refuse("train", "bad_values", "stages would skip different updates", "use train.bad_values=stop");
  if (train.loss_spikes != LossSpikes::ignore)
    refuse("train", "loss_spikes", "a run does not go back to an earlier step", "use train.loss_spikes=ignore");
  if (spec.run.check_state > 0)
    refuse("run", "check_state", "state is not whole between two steps", "use run.check_state=0");
  if (spec.precision.loss_scale.kind != LossScale::Kind::none || spec.precision.compute == Precision::fp8)
    refuse("precision", "compute", "losses and products have no scales", "use precision.compute=bf16");
  if (spec.memory.offloads_to() != Offload::none)
    refuse("memory", "", "nothing is offloaded: a stage updates while it computes", "remove what offloads");
  if (spec.run.trace > 0)
    refuse("run", "trace", "steps overlap, and a timeline is of steps that do not", "use run.trace=0");
}

}  // namespace lockstep
